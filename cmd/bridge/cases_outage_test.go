package main

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
	"functionbridge/internal/session"
)

// mishaps are answers of the API that are no answer.
func mishaps() map[string]agentsim.Fault {
	return map[string]agentsim.Fault{
		"500": {Kind: agentsim.FaultStatus, Status: 500}, "503 with Retry-After": {Kind: agentsim.FaultStatus, Status: 503, RetryAfter: "20"},
		"429": {Kind: agentsim.FaultStatus, Status: 429, RetryAfter: "5"}, "403": {Kind: agentsim.FaultStatus, Status: 403},
		"404": {Kind: agentsim.FaultStatus, Status: 404}, "409": {Kind: agentsim.FaultStatus, Status: 409}, "a page": {Kind: agentsim.FaultHTML},
		"a broken connection": {Kind: agentsim.FaultDrop}, "a redirect": {Kind: agentsim.FaultStatus, Status: 302},
		"an odd error": {Kind: agentsim.FaultStatus, Status: 500, Body: `{"error":"text"}`}, "no answer": {Kind: agentsim.FaultHang},
	}
}

// A call that no event tells of is found by a read, and so by the next one where
// a read fails.
func TestReadThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, fault := range mishaps() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), ok, func(c *session.Config) { c.ResyncInterval = 24 * time.Hour })
				id := l.sim.CreateSession(agentsim.SessionSpec{})
				l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
				fault.On, fault.Count = agentsim.GetSession, 4
				l.fault(t, fault)
				if err := l.manager.Follow(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				pass(3 * time.Minute)
				l.wantRequests(t, "c1", 1)
				if n := len(l.sim.Results(id)); n != 1 {
					t.Errorf("the session has %d results, want 1", n)
				}
			})
		})
	}
}

// A stream that cannot be opened is opened again, so that calls do not wait for
// the regular reads for ever.
func TestStreamThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, fault := range mishaps() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), ok, func(c *session.Config) { c.ResyncInterval = 24 * time.Hour })
				fault.On, fault.Count = agentsim.OpenStream, 2
				l.fault(t, fault)
				id := l.follow(t)
				pass(5 * time.Minute)
				l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
				pass(time.Second)
				l.wantRequests(t, "c1", 1)
			})
		})
	}
}

// Neither a stream nor a read is put off for as long as the API asks: agents wait
// for what only these bring.
func TestAbsurdRetryAfterKeepsNothingClosedForHours(t *testing.T) {
	t.Parallel()
	for _, status := range []int{429, 503} {
		for _, on := range []agentsim.Endpoint{agentsim.OpenStream, agentsim.GetSession} {
			t.Run(fmt.Sprint(status, " on ", on), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					l := newLine(t, agentsim.Kind(), ok, func(c *session.Config) { c.ResyncInterval = 24 * time.Hour })
					id := l.sim.CreateSession(agentsim.SessionSpec{})
					l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: on, Status: status, RetryAfter: "86400", Count: 2})
					if err := l.manager.Follow(t.Context(), id); err != nil {
						t.Fatal(err)
					}
					pass(21 * time.Minute)
					if n := l.sim.Count(on); n < 3 {
						t.Errorf("it was asked for %d times in 21 minutes, want a third time", n)
					}
				})
			})
		}
	}
}

// 403 is about a session, not about the key.
func TestForbiddenSessionIsNoRefusedKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id := l.follow(t)
		for _, on := range []agentsim.Endpoint{agentsim.OpenStream, agentsim.GetSession, agentsim.PostEvents} {
			l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: on, SessionID: id, Status: 403, For: 5 * time.Minute})
		}
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultCut, SessionID: id})
		for range 240 {
			if pass(time.Second); l.manager.KeyRefused() {
				t.Fatal("a forbidden session counts as a refused key")
			}
		}
	})
}

// lineWithoutEvents is a line whose session's stream has gone silent, so that only
// reads tell of what happens.
func lineWithoutEvents(t *testing.T, options agentsim.Options, answer http.HandlerFunc, resync time.Duration) (l *line, id string) {
	t.Helper()
	l = newLine(t, options, answer, func(c *session.Config) { c.ResyncInterval, c.IdleTimeout = resync, 24*time.Hour })
	id = l.follow(t)
	pass(10 * time.Second)
	return l, id
}

// When the reply to a post is lost and every post after it fails, the turn's
// items are what shows that the first one arrived.
func TestItemsOfTheTurnSettleAResultWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first agentsim.FaultKind
		want  journal.State
	}{
		"it arrived":         {agentsim.FaultLostReply, journal.Confirmed},
		"it did not arrive":  {agentsim.FaultDrop, journal.Answered},
		"it was refused all": {agentsim.FaultStatus, journal.Answered},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, id := lineWithoutEvents(t, agentsim.Kind(), slowly, 30*time.Second)
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_pay", `{}`).WithID("c1")})
				pass(10 * time.Second)
				l.fault(t, agentsim.Fault{Kind: agentsim.FaultSilence, SessionID: id})
				l.fault(t, agentsim.Fault{Kind: c.first, On: agentsim.PostEvents, SessionID: id, Status: 503})
				l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.PostEvents, SessionID: id, Status: 503, For: 10 * time.Minute})
				pass(5 * time.Minute)
				l.wantState(t, id, turn, "c1", c.want)
				pass(10 * time.Minute)
				l.wantState(t, id, turn, "c1", journal.Confirmed)
				l.wantRequests(t, "c1", 1)
			})
		})
	}
}

// Somebody else answered, and the turn goes on: a conflict over a result that is
// asked for no more is the end of it.
func TestResultThatAnotherGaveEndsTheCallWhileTheTurnGoesOn(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusConflict, http.StatusBadRequest} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, id := lineWithoutEvents(t, agentsim.Options{LateStatus: status}, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if r.URL.Path == "/look" {
						<-r.Context().Done()
						return
					}
					slowly(w, r)
				}, 24*time.Hour)
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_pay", `{}`).WithID("c1"), agentsim.Call("look", `{}`).WithID("c2")})
				pass(10 * time.Second)
				l.fault(t, agentsim.Fault{Kind: agentsim.FaultSilence, SessionID: id})
				result := fmt.Sprintf(`{"events":[{"type":"agent.session.input.tool_result","turn_id":%q,"call_id":"c1","success":true,"output":"x"}]}`, turn)
				if err := l.client.Submit(t.Context(), id, "another", []byte(result)); err != nil {
					t.Fatal(err)
				}
				pass(2 * time.Minute)
				l.wantState(t, id, turn, "c1", journal.Confirmed)
				l.wantState(t, id, turn, "c2", journal.Running)
				before := l.sim.Count(agentsim.PostEvents)
				pass(5 * time.Minute)
				if n := l.sim.Count(agentsim.PostEvents); n != before {
					t.Errorf("the result was posted %d more times", n-before)
				}
				l.wantRequests(t, "c1", 1)
			})
		})
	}
}

// The race answer does not count as a refusal, however often it comes: the result
// is not at fault.
func TestRaceAnswersAreNoRefusals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id := l.follow(t)
		l.fault(t, agentsim.Fault{
			Kind: agentsim.FaultStatus, On: agentsim.PostEvents, SessionID: id, Status: http.StatusBadRequest, For: 5 * time.Minute,
			Body: `{"error":{"message":"Unknown pending tool call: c1","type":"invalid_request_error","code":"invalid_request_error"}}`,
		})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		pass(4 * time.Minute)
		if n := l.sim.Count(agentsim.PostEvents); n < 12 || n > 100 {
			t.Errorf("the result was posted %d times in four minutes", n)
		}
		pass(3 * time.Minute)
		if call := l.wantState(t, id, turn, "c1", journal.Confirmed); !call.Outcome.Success {
			t.Errorf("the result was replaced by %+v", call.Outcome)
		}
		l.wantRequests(t, "c1", 1)
	})
}

// That a turn was cancelled is heard on the stream at once, and found by a read
// where the event was missed.
func TestCancelledTurnEndsItsCalls(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		missed bool
		resync time.Duration
		within time.Duration
	}{
		"heard": {false, 24 * time.Hour, time.Second}, "found": {true, 30 * time.Second, 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var ended time.Time
				l, id := lineWithoutEvents(t, agentsim.Kind(), func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					<-r.Context().Done()
					ended = time.Now()
				}, c.resync)
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("look", `{}`).WithID("c1")})
				pass(10 * time.Second)
				if c.missed {
					l.fault(t, agentsim.Fault{Kind: agentsim.FaultSilence, SessionID: id})
				}
				l.sim.Cancel(id)
				cancelled := time.Now()
				pass(c.within)
				l.wantState(t, id, turn, "c1", journal.Abandoned)
				if ended.IsZero() || ended.Sub(cancelled) > c.within {
					t.Errorf("the request ended at %s, the turn at %s", ended, cancelled)
				}
			})
		})
	}
}

// A call that could not be recorded in its time has not left and is not answered:
// it is taken up again by itself, and run when the journal can be written.
func TestCallThatAnOutageOfTheJournalStoppedIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, func(c *session.Config) { c.ResyncInterval = 24 * time.Hour })
		id := l.follow(t)
		// The first call has its turn read, before the journal is away.
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")}, agentsim.Step{agentsim.Wait(20 * time.Second), agentsim.Call("pay", `{}`).WithID("c2")})
		pass(10 * time.Second)
		giveBack := takeTableAway(t, filepath.Join(l.dir, "bridge.db"))
		pass(5 * time.Minute) // longer than the call's timeout
		l.wantRequests(t, "c2", 0)
		if n := len(l.sim.Posts(id, "c2")); n != 0 {
			t.Errorf("a call that did not run was answered %d times", n)
		}
		giveBack()
		pass(10 * time.Second)
		l.wantRequests(t, "c2", 1)
		if call := l.call(t, id, turn, "c2"); !call.Outcome.Success || call.State == journal.Running {
			t.Errorf("the call is %s with %+v", call.State, call.Outcome)
		}
	})
}

// Memory is the fast lane and the journal the truth: a call on disk that nobody
// works on, whyever, is found there.
func TestCallThatNobodyWorksOnIsTakenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id := l.sim.CreateSession(agentsim.SessionSpec{})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1"), agentsim.Call("look", `{}`).WithID("c2")})
		for callID, state := range map[string]journal.State{"c1": journal.Answered, "c2": journal.Running} {
			dropped := journal.Call{
				Key: journal.Key{SessionID: id, TurnID: turn, CallID: callID}, Function: map[string]string{"c1": "pay", "c2": "look"}[callID],
				State: state, Idempotent: callID == "c2", Arguments: []byte(`{}`), CreatedAt: time.Now(),
			}
			if state == journal.Answered {
				dropped.Outcome, dropped.AnsweredAt = journal.Success("kept"), time.Now()
			}
			if err := l.journal.Save(t.Context(), dropped, journal.Durable); err != nil {
				t.Fatal(err)
			}
		}
		pass(2 * time.Minute)
		for _, call := range []string{"c1", "c2"} {
			l.wantState(t, id, turn, call, journal.Confirmed)
		}
		l.wantRequests(t, "c1", 0)
		l.wantRequests(t, "c2", 1)
		if text, _ := results(l.sim, id)["c1"].Text(); text != "kept" {
			t.Errorf("of the call that was answered the agent got %q", text)
		}
		if _, followed := l.manager.Session(id); followed {
			t.Error("the session is followed after its calls were settled")
		}
	})
}

// What an earlier process left goes on with the start, and not with the first
// search for calls that nobody works on.
func TestUnsettledCallIsTakenUpAtTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), slowly, nil)
		id := l.sim.CreateSession(agentsim.SessionSpec{})
		l.stop(t, time.Second)
		l.config.Sessions = []string{id}
		l.start(t)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.PostEvents, Status: 503, For: 10 * time.Second})
		l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1"), agentsim.Call("slow_pay", `{}`).WithID("c2")})
		pass(5 * time.Second)
		l.stop(t, time.Millisecond)
		pass(10 * time.Second)
		l.config.Sessions = nil
		l.start(t)
		pass(3 * time.Second)
		got := results(l.sim, id)
		if !got["c1"].Success || got["c2"].Success || got["c2"].Error == "" {
			t.Errorf("the agent got %+v, want a success and an unknown outcome", got)
		}
		l.wantRequests(t, "c1", 1)
		l.wantRequests(t, "c2", 1)
		pass(2 * time.Minute) // the service ends
	})
}
