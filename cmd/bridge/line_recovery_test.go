package main

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
	"functionbridge/internal/session"
)

// losing breaks the connection of /lost before it answers.
func losing(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/lost" {
		panic(http.ErrAbortHandler)
	}
	slowly(w, r)
}

// A call whose outcome nobody knows waits for an operator, through restarts,
// and what he says is what the agent gets.
func TestHeldCallWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcome journal.Outcome
		output  string
		failure string
	}{
		"carried out": {journal.Success(`{"paid":true}`), `{"paid":true}`, ""},
		"failed":      {journal.Failure(journal.Rejected, "The payment was refused."), "", "The payment was refused."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), losing, nil)
				id := l.follow(t)
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay_held", `{}`).WithID("c1")})
				pass(time.Hour)
				key := journal.Key{SessionID: id, TurnID: turn, CallID: "c1"}
				held := l.wantState(t, id, turn, "c1", journal.InDoubt)
				if held.Outcome.Failure != journal.UnknownOutcome || !held.AnsweredAt.IsZero() {
					t.Errorf("the held call has the outcome %+v, answered at %s", held.Outcome, held.AnsweredAt)
				}
				l.stop(t, time.Second)
				l.start(t)
				pass(time.Hour)
				l.wantState(t, id, turn, "c1", journal.InDoubt)
				if posts := l.sim.Posts(id, "c1"); len(posts) != 0 {
					t.Errorf("a held call was posted: %+v", posts)
				}
				resolved, err := l.manager.Resolve(t.Context(), key, c.outcome)
				if err != nil || resolved.State != journal.Answered {
					t.Fatalf("resolve: %s, %v", resolved.State, err)
				}
				if _, err := l.manager.Resolve(t.Context(), key, c.outcome); err == nil {
					t.Error("a call was resolved twice")
				}
				pass(time.Minute)
				l.wantState(t, id, turn, "c1", journal.Confirmed)
				l.wantRequests(t, "c1", 1)
				results := l.sim.Results(id)
				if len(results) != 1 {
					t.Fatalf("the agent got %+v, want one result", results)
				}
				if text, _ := results[0].Text(); text != c.output || results[0].Error != c.failure {
					t.Errorf("the agent got %+v", results)
				}
			})
		})
	}
}

func TestHeldCallOfACancelledTurnIsAbandoned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), losing, nil)
		id := l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay_held", `{}`).WithID("c1")})
		pass(time.Minute)
		l.sim.Cancel(id)
		pass(time.Minute)
		l.wantState(t, id, turn, "c1", journal.Abandoned)
		_, err := l.manager.Resolve(t.Context(), journal.Key{SessionID: id, TurnID: turn, CallID: "c1"}, journal.Success(""))
		if err != session.ErrNotInDoubt { //nolint:errorlint // it is returned as it is
			t.Errorf("resolving an abandoned call: %v", err)
		}
	})
}

// The agent of an async function goes on; the result is wanted when the turn
// has ended, however the session lists the call.
func TestAsyncCallIsAnsweredAfterItsTurn(t *testing.T) {
	t.Parallel()
	for name, options := range agentsim.Positions() {
		for _, function := range []string{"look_later", "pay_later"} {
			t.Run(name+"/"+function, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					l := newLine(t, options, slowly, nil)
					id := l.follow(t)
					pass(10 * time.Second)
					turn := l.sim.Play(id, agentsim.Step{agentsim.AsyncCall(function, `{"a":1}`).WithID("c1"), agentsim.Call("pay", `{}`).WithID("c2")})
					pass(30 * time.Second)
					l.wantState(t, id, turn, "c2", journal.Confirmed)
					l.wantState(t, id, turn, "c1", journal.Running)
					pass(5 * time.Minute)
					call := l.call(t, id, turn, "c1")
					if call.Outcome.Output != `{"ok":true}` || !call.State.Settled() || len(l.sim.Posts(id, "c1")) == 0 {
						t.Errorf("the async call is %s with %q, posted %d times", call.State, call.Outcome.Output, len(l.sim.Posts(id, "c1")))
					}
					l.wantRequests(t, "c1", 1)
				})
			})
		}
	}
}

// A session that was missing for so long that it counted as deleted comes back
// with a call that was cut short: it goes on.
func TestAbandonedCallThatIsListedAgainGoesOn(t *testing.T) {
	t.Parallel()
	for function, c := range map[string]struct {
		runs    int
		failure journal.Kind
		output  string
	}{
		"slow_look": {2, "", `{"ok":true}`},
		"slow_pay":  {1, "", `{"ok":true}`}, // it ran to its end, and its outcome was kept
	} {
		t.Run(function, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), inMinutes, func(c *session.Config) { c.ResyncInterval = 5 * time.Second })
				id := l.follow(t)
				pass(10 * time.Second)
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call(function, `{}`).WithID("c1")})
				pass(time.Second)
				for _, on := range []agentsim.Endpoint{agentsim.GetSession, agentsim.OpenStream} {
					l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: on, Status: 404, SessionID: id, For: 5 * time.Minute})
				}
				pass(4 * time.Minute)
				l.wantState(t, id, turn, "c1", journal.Abandoned)
				pass(2 * time.Minute)
				if err := l.manager.Follow(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				pass(5 * time.Minute)
				call := l.wantState(t, id, turn, "c1", journal.Confirmed)
				if call.Outcome.Failure != c.failure || call.Outcome.Output != c.output {
					t.Errorf("outcome %+v", call.Outcome)
				}
				l.wantRequests(t, "c1", c.runs)
				if results := l.sim.Results(id); len(results) != 1 {
					t.Errorf("the session has %d results, want one", len(results))
				}
			})
		})
	}
}

// inMinutes answers /slow after three minutes, or not at all when the client goes.
func inMinutes(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(3 * time.Minute):
		ok(w, r)
	case <-r.Context().Done():
	}
}

func TestDrainLeavesWhatIsCutRunning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), slowly, nil)
		id := l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_pay", `{}`).WithID("c1"), agentsim.Call("slow_look", `{}`).WithID("c2")})
		pass(time.Second)
		l.stop(t, 10*time.Second)
		l.openJournal(t)
		for _, call := range []string{"c1", "c2"} {
			l.wantState(t, id, turn, call, journal.Running)
		}
		if err := l.journal.Close(); err != nil {
			t.Fatal(err)
		}
		l.start(t)
		pass(2 * time.Minute)
		paid := l.wantState(t, id, turn, "c1", journal.Confirmed)
		if paid.Outcome.Failure != journal.UnknownOutcome {
			t.Errorf("the cut side effect ended with %+v, want an unknown outcome", paid.Outcome)
		}
		l.wantState(t, id, turn, "c2", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
		l.wantRequests(t, "c2", 2)
	})
}

// The API forgot a result and drops repeats of its key; processes that live no
// longer than one post find the way out together.
func TestKeyChangesAfterThreeFruitlessPostsOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id := l.follow(t)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultForget, On: agentsim.PostEvents, SessionID: id, KeepKey: true})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		for range 6 {
			pass(40 * time.Second)
			l.stop(t, time.Second)
			l.start(t)
		}
		pass(time.Minute)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
		keys := map[string]int{}
		for _, p := range l.sim.Posts(id, "c1") {
			keys[p.Key]++
		}
		if len(keys) != 2 {
			t.Errorf("the result was posted under these keys: %v, want two", keys)
		}
	})
}

// A process that starts does not take the stale snapshot of a lagging API for a
// result that was lost.
func TestResultConfirmedBeforeARestartIsNotPostedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), func(w http.ResponseWriter, r *http.Request) { <-time.After(time.Second); slowly(w, r) }, nil)
		id := l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1"), agentsim.Call("slow_pay", `{}`).WithID("c2")})
		pass(500 * time.Millisecond)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultStale, On: agentsim.GetSession, SessionID: id, For: 10 * time.Second})
		pass(2 * time.Second)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.stop(t, time.Millisecond)
		l.start(t)
		pass(time.Minute)
		if posts := l.sim.Posts(id, "c1"); len(posts) != 1 {
			t.Errorf("the result was posted %d times, want once", len(posts))
		}
	})
}
