package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"functionbridge/internal/agentsim"
)

// verdict is what was counted.
type verdict struct {
	calls                 int
	nonIdempotent, long   int // of these; of those, longer than the time between kills
	unanswered            int
	contradicted          int // answered twice, with different results
	doubled               int // side effects that were begun twice
	keysChanged           int // calls whose idempotency key changed between requests
	keysShared            int // keys that came with several calls
	argumentsChanged      int // calls whose arguments did not arrive as they were made
	wrong                 int // results that are not the service's reply to the call
	failed                int // failures of idempotent calls: the service fails none for good
	unknown               int // failures of calls that are not: the service fails none, so these are unknown outcomes
	unfounded             int // unknown outcomes of calls that no kill met
	inFlight              int // side effects that the service was at work on at a kill
	replied               int // side effects that were done at a kill, but whose results had not arrived
	unsent                int // unknown outcomes of calls that never reached the service
	repeated, recovered   int // idempotent calls that were sent again; calls whose reply was given by key
	reposted              int // results that were posted again
	problems              []problem
	kills, stops, freezes int
	restarts              []time.Duration // from a start to the first result, sorted
}

// problem is one thing that must not be.
type problem struct {
	what string
	call agentsim.MadeCall // zero where it is about no single call
	seen *seen             // nil: the service never saw it
}

// judge counts.
func judge(e evidence) *verdict {
	v := &verdict{keysShared: e.upstream.SharedKeys}
	if v.calls = len(e.calls); v.calls != e.issued {
		v.blame(problem{what: fmt.Sprintf("the agents made %d calls of %d", v.calls, e.issued)})
	}
	if v.keysShared > 0 {
		v.blame(problem{what: fmt.Sprintf("%d idempotency keys came with several calls", v.keysShared)})
	}
	for _, c := range e.calls {
		v.judgeCall(c, e)
	}
	for _, l := range e.lives {
		v.inFlight += l.inFlight
		v.countLife(l)
	}
	v.restarts = restarts(e)
	if bound := v.inFlight + v.replied; v.unknown > bound {
		v.blame(problem{what: fmt.Sprintf("%d unknown outcomes, but only %d side effects in flight at kills", v.unknown, bound)})
	}
	return v
}

func (v *verdict) blame(p problem) { v.problems = append(v.problems, p) }

// count adds to a number that must stay zero.
func (v *verdict) count(number *int, wrong bool, p problem, what string) {
	if wrong {
		*number++
		p.what = what
		v.blame(p)
	}
}

func (v *verdict) judgeCall(c agentsim.MadeCall, e evidence) {
	s := e.upstream.Calls[callID(c.SessionID, c.TurnID, c.CallID)]
	p := problem{call: c, seen: s}
	f := functionNamed(c.Name)
	if !f.idempotent {
		v.nonIdempotent++
	}
	if f.long {
		v.long++
	}
	if s != nil {
		v.judgeRequests(f, p)
	}
	v.count(&v.contradicted, answers(c) > 1, p, "answered with different results")
	v.reposted += max(len(c.Posts)-1, 0)
	v.count(&v.unanswered, c.Result == nil, p, "unanswered")
	switch {
	case c.Result == nil:
	case c.Result.Success:
		v.count(&v.wrong, !answersCall(c), p, "the result is not the reply to this call")
	case f.idempotent:
		v.count(&v.failed, true, p, "an idempotent call failed")
	default:
		v.unknown++
		v.judgeUnknown(p, e)
	}
	if s != nil && !f.idempotent && metByKill(p, e) && s.Severed == 0 {
		v.replied++
	}
}

// judgeRequests looks at what the service got of a call.
func (v *verdict) judgeRequests(f function, p problem) {
	v.count(&v.doubled, !f.idempotent && p.seen.Works > 1, p, "the side effect was done twice")
	v.count(&v.keysChanged, p.seen.KeyChanges > 0 || p.seen.Key == "", p, "the idempotency key changed")
	v.count(&v.argumentsChanged, p.seen.BodyChanges > 0 || p.seen.Body != digest(plain(p.call.Arguments)), p, "the arguments changed")
	if f.idempotent && p.seen.Requests > 1 {
		v.repeated++
	}
	if p.seen.Recovered > 0 {
		v.recovered++
	}
}

// judgeUnknown demands of each unknown outcome that the call was sent before a kill and answered after it. One that never
// arrived at the service was about to be sent at the kill, which only the bridge can know.
func (v *verdict) judgeUnknown(p problem, e evidence) {
	if p.seen == nil || p.seen.Works == 0 {
		v.unsent++
		return
	}
	v.count(&v.unfounded, !metByKill(p, e), p, "an unknown outcome without a kill")
}

// metByKill reports whether the bridge was killed after the service had begun the work of a call, and before the result
// arrived.
func metByKill(p problem, e evidence) bool {
	if p.seen.Works == 0 || p.seen.Life >= len(e.lives) {
		return false
	}
	l := e.lives[p.seen.Life]
	return l.end == kill && !l.ended.IsZero() && (p.call.Result == nil || p.call.Result.At.After(l.ended))
}

// plain are the arguments as the service is to get them: a text is unwrapped.
func plain(arguments string) []byte {
	var inner string
	if strings.HasPrefix(arguments, `"`) && json.Unmarshal([]byte(arguments), &inner) == nil {
		return []byte(inner)
	}
	return []byte(arguments)
}

// answers is how many different results were posted for a call.
func answers(c agentsim.MadeCall) int {
	var bodies []uint64
	for _, post := range c.Posts {
		if !slices.Contains(bodies, post.BodyHash) {
			bodies = append(bodies, post.BodyHash)
		}
	}
	return len(bodies)
}

// answersCall reports whether the result is what the service replies to the call.
func answersCall(c agentsim.MadeCall) bool {
	var o order
	text, ok := c.Result.Text()
	return ok && json.Unmarshal(plain(c.Arguments), &o) == nil && text == replyTo(o.N)
}

func (v *verdict) countLife(l life) {
	switch {
	case l.ended.IsZero(): // the last one, which was not attacked
	case l.end == kill:
		v.kills++
	default:
		v.stops++
	}
	if !l.frozen.IsZero() {
		v.freezes++
	}
}

// inKernel is how old a result may be that a killed process had handed to the kernel. No process starts in less.
const inKernel = 5 * time.Millisecond

// restarts measures the time from each start but the first to the first result. Processes that were frozen or ended
// before it give no number.
func restarts(e evidence) (took []time.Duration) {
	var arrived []time.Time
	for _, c := range e.calls {
		if c.Result != nil {
			arrived = append(arrived, c.Result.At)
		}
	}
	slices.SortFunc(arrived, time.Time.Compare)
	for i, l := range e.lives {
		first, _ := slices.BinarySearchFunc(arrived, l.started.Add(inKernel), time.Time.Compare)
		if i == 0 || first == len(arrived) {
			continue
		}
		at := arrived[first]
		if (l.ended.IsZero() || at.Before(l.ended)) && (l.frozen.IsZero() || at.Before(l.frozen)) {
			took = append(took, at.Sub(l.started))
		}
	}
	slices.Sort(took)
	return took
}
