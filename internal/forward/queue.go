package forward

import (
	"container/list"
	"time"
)

// queue holds the calls that wait for the same gates. The sessions take turns,
// one call each, so that one with many calls does not keep the others waiting;
// the calls of a session go in the order in which they came.
type queue struct {
	size     int
	sessions map[string]*list.Element
	// round lists the *waitingSession in the order of their turns.
	round list.List
}

type waitingSession struct {
	id    string
	calls list.List
}

// waiter is a call that waits. ready is closed when it is settled: then it has
// its turn or was refused.
type waiter struct {
	passage *passage
	// patience is what the call's route gives it altogether.
	patience time.Duration
	session  *waitingSession
	place    *list.Element

	ready   chan struct{}
	settled bool
	turn    turn
	refused *turnError
}

// settle ends the wait of a call that has left its queue.
func (w *waiter) settle(t turn, refused *turnError) {
	w.turn, w.refused, w.settled = t, refused, true
	close(w.ready)
}

func (q *queue) push(session string, w *waiter) {
	if q.sessions == nil {
		q.sessions = make(map[string]*list.Element)
	}
	place := q.sessions[session]
	if place == nil {
		place = q.round.PushBack(&waitingSession{id: session})
		q.sessions[session] = place
	}
	w.session = sessionAt(place)
	w.place = w.session.calls.PushBack(w)
	q.size++
}

// front is the call whose turn it is; the queue is not empty.
func (q *queue) front() *waiter {
	return waiterAt(sessionAt(q.round.Front()).calls.Front())
}

// remove takes a call out.
func (q *queue) remove(w *waiter) {
	w.session.calls.Remove(w.place)
	q.size--
	if w.session.calls.Len() == 0 {
		q.round.Remove(q.sessions[w.session.id])
		delete(q.sessions, w.session.id)
	}
}

// endTurn ends the turn of the session that was in front, unless it has left.
func (q *queue) endTurn(s *waitingSession) {
	if place := q.sessions[s.id]; place != nil {
		q.round.MoveToBack(place)
	}
}

// of is how many calls of a session wait.
func (q *queue) of(session string) int {
	if place := q.sessions[session]; place != nil {
		return sessionAt(place).calls.Len()
	}
	return 0
}

// before is how many have their turn before one more call of a session.
func (q *queue) before(session string) int {
	own := q.of(session)
	n := own
	for id, place := range q.sessions {
		if id != session {
			n += min(sessionAt(place).calls.Len(), own+1)
		}
	}
	return n
}

// longest is how many calls the session has that has most of them, and the last
// of these; 0 and nil when none wait.
func (q *queue) longest() (int, *waiter) {
	var most *waitingSession
	for place := q.round.Front(); place != nil; place = place.Next() {
		if s := sessionAt(place); most == nil || s.calls.Len() > most.calls.Len() {
			most = s
		}
	}
	if most == nil {
		return 0, nil
	}
	return most.calls.Len(), waiterAt(most.calls.Back())
}

func sessionAt(place *list.Element) *waitingSession {
	return place.Value.(*waitingSession) //nolint:forcetypeassert,errcheck // the list holds nothing else
}

func waiterAt(place *list.Element) *waiter {
	return place.Value.(*waiter) //nolint:forcetypeassert,errcheck // the list holds nothing else
}
