package main

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
	"functionbridge/internal/session"
)

// everyEndpoint are those that a bridge asks.
func everyEndpoint() []agentsim.Endpoint {
	return []agentsim.Endpoint{agentsim.OpenStream, agentsim.GetSession, agentsim.PostEvents, agentsim.ListSessions}
}

func TestHoursWithoutTheAPICostNoResultAndNoSecondRun(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]agentsim.Fault{
		"503":                  {Kind: agentsim.FaultStatus, Status: 503},
		"broken connections":   {Kind: agentsim.FaultDrop},
		"no answer":            {Kind: agentsim.FaultHang},
		"429 with Retry-After": {Kind: agentsim.FaultStatus, Status: 429, RetryAfter: "60"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), slowly, nil)
				id := l.follow(t)
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_pay", `{}`).WithID("c1"), agentsim.Call("slow_look", `{}`).WithID("c2")})
				pass(time.Second)
				outage.For = 4 * time.Hour
				for _, on := range everyEndpoint() {
					outage.On = on
					l.fault(t, outage)
				}
				l.fault(t, agentsim.Fault{Kind: agentsim.FaultCut, SessionID: id})
				pass(3*time.Hour + 50*time.Minute)
				for _, call := range []string{"c1", "c2"} {
					if got := l.call(t, id, turn, call); got.State.Settled() || got.State == journal.Submitted {
						t.Errorf("call %s is %s while the API is away", call, got.State)
					}
				}
				if n := l.sim.Count(agentsim.PostEvents); n > 2*4*60*6 {
					t.Errorf("two results were posted %d times in four hours", n)
				}
				pass(15 * time.Minute)
				for _, call := range []string{"c1", "c2"} {
					l.wantState(t, id, turn, call, journal.Confirmed)
					l.wantRequests(t, call, 1)
				}
			})
		})
	}
}

func TestRetryAfterOfADayIsKeptAcrossARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id, other := l.follow(t), l.follow(t)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.PostEvents, SessionID: id, Status: 429, RetryAfter: "86400"})
		began := time.Now()
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		pass(time.Hour)
		l.stop(t, time.Second)
		l.start(t)
		otherTurn := l.sim.Play(other, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c2")})
		pass(22 * time.Hour)
		l.wantState(t, other, otherTurn, "c2", journal.Confirmed)
		l.wantState(t, id, turn, "c1", journal.Answered)
		pass(2 * time.Hour)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
		posts := l.sim.Posts(id, "c1")
		if len(posts) != 1 || posts[0].At.Sub(began) < 24*time.Hour {
			t.Errorf("the result was posted %+v, want once, a day after %s", posts, began)
		}
	})
}

// What waits for long waits in the journal and a timer, not in goroutines.
func TestResultsThatWaitKeepNoGoroutines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id := l.follow(t)
		pass(time.Minute)
		before := runtime.NumGoroutine()
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.PostEvents, Status: 429, RetryAfter: "7200", Count: 1000})
		var step agentsim.Step
		for range 1000 {
			step = append(step, agentsim.Call("pay", `{}`))
		}
		turn := l.sim.Play(id, step)
		pass(30 * time.Minute)
		if n := runtime.NumGoroutine() - before; n > 500 { // those of idle connections, of which there are 128 at most
			t.Errorf("1000 results that wait keep %d goroutines", n)
		}
		pass(2 * time.Hour)
		if n := len(l.sim.Results(id)); n != 1000 {
			t.Errorf("the session has %d results of turn %s, want 1000", n, turn)
		}
	})
}

func TestForbiddenSessionHoldsBackOnlyItsOwnResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id, other := l.follow(t), l.follow(t)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.PostEvents, SessionID: id, Status: 403, For: time.Hour})
		var step agentsim.Step
		for range 20 {
			step = append(step, agentsim.Call("pay", `{}`))
		}
		turn := l.sim.Play(id, append(step, agentsim.Call("pay", `{}`).WithID("c1")))
		pass(2 * time.Second)
		otherTurn := l.sim.Play(other, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c2")})
		pass(time.Minute)
		l.wantState(t, other, otherTurn, "c2", journal.Confirmed)
		if l.manager.KeyRefused() {
			t.Error("a forbidden session counts as a refused key")
		}
		pass(49 * time.Minute)
		// The 21 that were on their way at the first answer, and then one at a time.
		if n := l.sim.Count(agentsim.PostEvents); n > 1+21+12 {
			t.Errorf("a forbidden session was posted to %d times in an hour", n)
		}
		pass(25 * time.Minute)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
	})
}

func TestRefusedKeyHoldsEveryPost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		ids := []string{l.follow(t), l.follow(t), l.follow(t)}
		for _, on := range everyEndpoint() {
			l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: on, Status: 401, For: time.Hour})
		}
		turns := map[string]string{}
		for _, id := range ids {
			turns[id] = l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1"), agentsim.Call("look", `{}`).WithID("c2")})
		}
		pass(50 * time.Minute)
		if !l.manager.KeyRefused() {
			t.Error("the refused key is not said")
		}
		if n := l.sim.Count(agentsim.PostEvents) + l.sim.Count(agentsim.GetSession); n > 150 {
			t.Errorf("a refused key was tried %d times in 50 minutes", n)
		}
		pass(12 * time.Minute)
		if l.manager.KeyRefused() {
			t.Error("the key works again and is said to be refused")
		}
		for _, id := range ids {
			l.wantState(t, id, turns[id], "c1", journal.Confirmed)
			l.wantState(t, id, turns[id], "c2", journal.Confirmed)
		}
	})
}

// A stream that brings one bad frame after another is no reason to read the
// session all the time.
func TestBadFramesDoNotMakeAHotLoop(t *testing.T) {
	t.Parallel()
	for _, kind := range []agentsim.FaultKind{agentsim.FaultMalformed, agentsim.FaultError, agentsim.FaultEmptyData} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), ok, func(c *session.Config) { c.ResyncInterval = time.Hour })
				id := l.follow(t)
				pass(10 * time.Second)
				before := l.sim.Count(agentsim.GetSession)
				for range 1200 {
					l.fault(t, agentsim.Fault{Kind: kind, SessionID: id})
					pass(100 * time.Millisecond)
				}
				if n := l.sim.Count(agentsim.GetSession) - before; n < 3 || n > 15 {
					t.Errorf("the session was read %d times in two minutes of bad frames, want a few times", n)
				}
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
				pass(time.Minute)
				l.wantState(t, id, turn, "c1", journal.Confirmed)
			})
		})
	}
}
