package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
	"functionbridge/internal/session"
)

// askedJournal counts what the journal is asked about turns, and has no answer
// while it is mute.
type askedJournal struct {
	session.Journal
	turn, turns atomic.Int64
	mute        atomic.Bool
}

func (j *askedJournal) Turn(ctx context.Context, sessionID, turnID string) ([]journal.Call, error) {
	j.turn.Add(1)
	return j.Journal.Turn(ctx, sessionID, turnID) //nolint:wrapcheck // it is the journal's
}

func (j *askedJournal) Turns(ctx context.Context, sessionID string, limit int) ([]string, bool, error) {
	j.turns.Add(1)
	if j.mute.Load() {
		return nil, false, journal.ErrUnavailable
	}
	return j.Journal.Turns(ctx, sessionID, limit) //nolint:wrapcheck // it is the journal's
}

// askAbout has an askedJournal put between.
func (l *line) askAbout() *askedJournal {
	asked := &askedJournal{}
	l.watch = func(j session.Journal) session.Journal {
		asked.Journal = j
		return asked
	}
	return asked
}

// playedTurn has the agent call look, which runs at once, and the stream show the
// call and then its output. It returns the event that listed the call.
func playedTurn(t *testing.T, l *line, stream *written, id, callID string) (listed string) {
	t.Helper()
	turn := l.sim.Play(id, agentsim.Step{agentsim.Call("look", `{}`).WithID(callID)})
	listed = listing("listed "+callID, id, pendingCall(turn, callID, "look"))
	stream.send(listed)
	pass(100 * time.Millisecond) // it runs and is posted
	stream.send(fmt.Sprintf(`data: {"event_id":"output %s","type":"agent.session.turn.item.added","turn_id":%q,"item":{"type":"function_call_output","call_id":%q}}`+"\n\n",
		callID, turn, callID))
	l.wantRequests(t, callID, 1)
	return listed
}

// playedTurns plays more turns than a session remembers, a long time after those
// before, so that these are forgotten.
func playedTurns(t *testing.T, l *line, stream *written, id, name string, n int) (listed []string) {
	t.Helper()
	for i := range n {
		pass(time.Minute)
		listed = append(listed, playedTurn(t, l, stream, id, fmt.Sprint(name, i)))
	}
	return listed
}

// Snapshots of events may be of any age. Each of these lists a settled call of a
// turn that the session's follower does not remember.
func TestOldSnapshotRunsNothingAgain(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(t *testing.T, l *line, stream *written, id string){
		"after a restart": func(t *testing.T, l *line, _ *written, _ string) {
			t.Helper()
			l.stop(t, time.Second)
			l.start(t)
		},
		"after a restart and a new turn": func(t *testing.T, l *line, stream *written, id string) {
			t.Helper()
			l.stop(t, time.Second)
			l.start(t)
			pass(time.Minute)
			playedTurn(t, l, stream, id, "new")
		},
		"of a session that was left for a moment": func(t *testing.T, l *line, _ *written, id string) {
			t.Helper()
			if err := l.manager.Unfollow(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := l.manager.Follow(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		},
		"after many turns": func(t *testing.T, l *line, stream *written, id string) {
			t.Helper()
			playedTurns(t, l, stream, id, "new", 15)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, stream, id := newWrittenLine(t, ok)
				listed := playedTurn(t, l, stream, id, "old")
				forget(t, l, stream, id)
				pass(time.Minute)
				stream.send(listed)
				pass(time.Minute)
				l.wantRequests(t, "old", 1)
				playedTurn(t, l, stream, id, "newest")
			})
		})
	}
}

// A session ends and is found again before a single row of it is on disk. What
// the journal knew of it then is not all that there was.
func TestSessionThatComesBackBeforeItsRowsAreOnDiskRunsNothingAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, stream, other := newWrittenLine(t, ok)
		if err := l.manager.Unfollow(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		l.stop(t, time.Second)
		l.flushDelay, l.config.Agents = time.Hour, []string{"agent_1"}
		l.start(t)
		id := l.sim.CreateSession(agentsim.SessionSpec{AgentID: "agent_1"})
		pass(time.Minute)
		listed := playedTurn(t, l, stream, id, "old")
		for _, on := range []agentsim.Endpoint{agentsim.GetSession, agentsim.ListSessions} {
			l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: on, Status: 404, For: 5 * time.Minute})
		}
		stream.cut <- struct{}{}
		pass(4 * time.Minute)
		if _, followed := l.manager.Session(id); followed {
			t.Fatal("the session is still followed")
		}
		pass(3 * time.Minute)
		playedTurn(t, l, stream, id, "new")
		if err := l.journal.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		stream.send(listed)
		pass(time.Minute)
		l.wantRequests(t, "old", 1)
	})
}

// A session of more turns than its follower can know has the journal asked for
// each; one that has just so many comes to that point while it is followed.
func TestSessionOfThousandsOfTurnsRunsNothingAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, calls int }{
		"just so many": {4090, 1}, "too many": {5000, 1}, "too many calls": {5000, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, stream, id := newWrittenLine(t, ok)
				asked := l.askAbout()
				for i := range c.before {
					l.save(t, id, fmt.Sprintf("turn_%d", 10000+i/c.calls), fmt.Sprint("before", i), journal.Confirmed)
				}
				l.stop(t, time.Second)
				l.start(t)
				pass(time.Minute)
				listed := playedTurns(t, l, stream, id, "new", 30)
				last := c.before - 1
				stream.send(listing("old", id, pendingCall("turn_10000", "before0", "look"),
					pendingCall(fmt.Sprintf("turn_%d", 10000+last/c.calls), fmt.Sprint("before", last), "look")))
				stream.send(listed...)
				pass(time.Minute)
				l.wantRequests(t, "before0", 0)
				l.wantRequests(t, fmt.Sprint("before", last), 0)
				for i := range listed {
					l.wantRequests(t, fmt.Sprint("new", i), 1)
				}
				if asked.turn.Load() == 0 || asked.turns.Load() != 1 {
					t.Errorf("the journal was asked for %d turns and %d times for all", asked.turn.Load(), asked.turns.Load())
				}
			})
		})
	}
}

// A call that somebody else left shows that there may be more from the same hands.
func TestSessionWithADroppedCallRunsNothingOfOthersAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, stream, id := newWrittenLine(t, ok)
		l.stop(t, time.Second)
		l.config.ResyncInterval = 30 * time.Second
		l.start(t)
		pass(time.Minute)
		playedTurn(t, l, stream, id, "ours")
		l.save(t, id, "turn_theirs", "settled", journal.Confirmed)
		l.save(t, id, "turn_theirs_too", "dropped", journal.Submitted)
		pass(5 * time.Minute)
		l.wantState(t, id, "turn_theirs_too", "dropped", journal.Confirmed)
		stream.send(listing("theirs", id, pendingCall("turn_theirs", "settled", "look")))
		pass(time.Minute)
		l.wantRequests(t, "settled", 0)
	})
}

// save puts a call that the manager has not seen into the journal.
func (l *line) save(t *testing.T, id, turn, callID string, state journal.State) {
	t.Helper()
	call := journal.Call{
		Key: journal.Key{SessionID: id, TurnID: turn, CallID: callID}, Function: "look", Arguments: []byte(`{}`),
		State: state, Idempotent: true, CreatedAt: time.Now(), SubmittedAt: time.Now(), ConfirmedAt: time.Now(),
	}
	if err := l.journal.Save(t.Context(), call, journal.Lazy); err != nil {
		t.Fatal(err)
	}
}

// Nobody knows what is new while the journal does not say what is old.
func TestCallsWaitForAJournalThatCannotBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, stream, id := newWrittenLine(t, ok)
		listed := playedTurn(t, l, stream, id, "old")
		asked := l.askAbout()
		l.stop(t, time.Second)
		asked.mute.Store(true)
		l.start(t)
		pass(time.Minute)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("look", `{}`).WithID("new")})
		stream.send(listed, listing("new", id, pendingCall(turn, "new", "look")))
		pass(time.Minute)
		l.wantRequests(t, "new", 0)
		asked.mute.Store(false)
		pass(2 * time.Second)
		l.wantRequests(t, "new", 1)
		stream.send(listed)
		pass(time.Minute)
		l.wantRequests(t, "old", 1)
	})
}

// The journal need not be asked whether it knows what nobody had before.
func TestNewTurnsAreNotAskedFor(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"of a new session": false, "of one from before a restart": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, stream, id := newWrittenLine(t, ok)
				asked := l.askAbout()
				if restart {
					playedTurn(t, l, stream, id, "old")
				}
				l.stop(t, time.Second)
				l.start(t)
				pass(time.Minute)
				playedTurns(t, l, stream, id, "new", 30)
				if asked.turn.Load() != 0 || asked.turns.Load() != 1 {
					t.Errorf("in 30 turns the journal was asked for %d of them and %d times for all, want 0 and 1", asked.turn.Load(), asked.turns.Load())
				}
			})
		})
	}
}
