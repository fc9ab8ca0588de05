package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
	"functionbridge/internal/journal/sqlite"
	"functionbridge/internal/session"
)

// onDisk reads a call from the journal of a process that is dead.
func (r *killRig) onDisk(t *testing.T, key journal.Key) journal.Call {
	t.Helper()
	s, err := sqlite.Open(t.Context(), r.database(t), sqlite.Options{Owner: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	call, err := s.Call(t.Context(), key)
	if err != nil {
		t.Errorf("call %s: %v", key.CallID, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return call
}

func (r *killRig) database(t *testing.T) string {
	t.Helper()
	for _, setting := range r.env {
		if path, ok := strings.CutPrefix(setting, "BRIDGE_DATABASE_URL=sqlite:"); ok {
			return path
		}
	}
	t.Fatal("the rig has no database")
	return ""
}

// wait returns when the turn is completed.
func (r *killRig) wait(t *testing.T, id, turn string, p *bridgeProcess) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if status, err := r.sim.WaitTurn(ctx, id, turn); err != nil || status != "completed" {
		t.Fatalf("the turn is %q (%v)\n%s", status, err, p.logs.String())
	}
}

// results are what the agent got, by call.
func results(sim *agentsim.Sim, id string) map[string]agentsim.Result {
	by := map[string]agentsim.Result{}
	for _, r := range sim.Results(id) {
		by[r.CallID] = r
	}
	return by
}

// A call that waits for its turn has not left: the next process sends it.
func TestCallThatWaitedWhenTheBridgeWasKilledIsRun(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	r, ids := newKillRig(t, agentsim.Kind(), 1, func(w http.ResponseWriter, req *http.Request) {
		arrived <- struct{}{}
		select {
		case <-release:
			ok(w, req)
		case <-req.Context().Done():
		}
	})
	routes := filepath.Join(t.TempDir(), "routes.yaml")
	table := fmt.Sprintf("version: 1\nroutes:\n  pay: {url: %s/pay, max_concurrent: 1}\n", r.service.URL)
	if err := os.WriteFile(routes, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	r.env = append(r.env, "BRIDGE_ROUTES="+routes)
	turn := r.sim.Play(ids[0], agentsim.Step{agentsim.Call("pay", `{"n":1}`).WithID("c1"), agentsim.Call("pay", `{"n":2}`).WithID("c2")})
	p := startProcess(t, r.env...)
	<-arrived
	<-time.After(time.Second) // both rows get to the disk
	p.kill(t)
	close(release)
	states := map[journal.State]string{}
	for _, id := range []string{"c1", "c2"} {
		states[r.onDisk(t, journal.Key{SessionID: ids[0], TurnID: turn, CallID: id}).State] = id
	}
	sent, waited := states[journal.Running], states[journal.Pending]
	if sent == "" || waited == "" {
		t.Fatalf("the disk holds %v, want one that is running and one that is pending", states)
	}
	p = startProcess(t, r.env...)
	defer p.kill(t)
	r.wait(t, ids[0], turn, p)
	got := results(r.sim, ids[0])
	if got[sent].Success || !strings.HasPrefix(got[sent].Error, "It is not known whether pay was carried out") || !got[waited].Success {
		t.Errorf("the agent got %+v, want an unknown outcome and a success", got)
	}
	if n := len(r.service.received("/pay")); n != 2 {
		t.Errorf("the service got %d requests, want one for each call", n)
	}
}

// Between the reply and the post lies the window in which a result is only in
// the journal.
func TestResultThatWasSavedAndNotPostedOutlivesAKill(t *testing.T) {
	t.Parallel()
	r, ids := newKillRig(t, agentsim.Kind(), 1, ok)
	if err := r.sim.Fault(agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.PostEvents, Status: http.StatusServiceUnavailable, Count: -1}); err != nil {
		t.Fatal(err)
	}
	turn := r.sim.Play(ids[0], agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1"), agentsim.Call("look", `{}`).WithID("c2")})
	p := startProcess(t, r.env...)
	for r.sim.Count(agentsim.PostEvents) < 2 {
		<-time.After(10 * time.Millisecond)
	}
	<-time.After(time.Second) // also that of the idempotent call gets to the disk
	p.kill(t)
	r.sim.ClearFaults()
	for _, id := range []string{"c1", "c2"} {
		call := r.onDisk(t, journal.Key{SessionID: ids[0], TurnID: turn, CallID: id})
		if call.State != journal.Answered || call.Outcome.Output != `{"ok":true}` {
			t.Errorf("call %s is %s on disk with %+v", id, call.State, call.Outcome)
		}
	}
	p = startProcess(t, r.env...)
	defer p.kill(t)
	r.wait(t, ids[0], turn, p)
	for id, result := range results(r.sim, ids[0]) {
		if text, _ := result.Text(); text != `{"ok":true}` {
			t.Errorf("for %s the agent got %+v", id, result)
		}
	}
	if pays, looks := len(r.service.received("/pay")), len(r.service.received("/look")); pays != 1 || looks != 1 {
		t.Errorf("the service got %d and %d requests, want one each", pays, looks)
	}
}

// takeTableAway renames the table of the calls, so that nothing of it can be read or
// written, until the returned function is called.
func takeTableAway(t *testing.T, path string) (giveBack func()) {
	t.Helper()
	rename := func(from, to string) {
		// In the way in which the journal is open: see the connector of package sqlite.
		db, err := sql.Open("sqlite", "file:"+path+"?vfs=unix-excl&_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	rename("calls", "away")
	return func() { rename("away", "calls") }
}

// What is known of a turn is read before a call of it is taken: otherwise one
// that an earlier process settled would be taken for a new one.
func TestCallIsNotTakenUntilItsTurnCanBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, func(c *session.Config) { c.ResyncInterval = 5 * time.Second })
		id := l.follow(t)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultForget, On: agentsim.PostEvents, SessionID: id, Count: 2})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("look", `{}`).WithID("c1"), agentsim.Call("pay", `{}`).WithID("c2")})
		l.fault(t, idleAnswer(id))
		pass(12 * time.Second) // the results are accepted, forgotten, and by one read listed no more
		for _, call := range []string{"c1", "c2"} {
			l.wantState(t, id, turn, call, journal.Confirmed)
		}
		l.stop(t, time.Second)
		l.start(t)
		giveBack := takeTableAway(t, filepath.Join(l.dir, "bridge.db"))
		pass(30 * time.Second) // the session lists both again
		for _, call := range []string{"c1", "c2"} {
			l.wantRequests(t, call, 1)
		}
		giveBack()
		pass(2 * time.Minute)
		for _, call := range []string{"c1", "c2"} {
			l.wantRequests(t, call, 1)
			l.wantState(t, id, turn, call, journal.Confirmed)
		}
		if n := len(l.sim.Results(id)); n != 2 {
			t.Errorf("the session has %d results, want 2", n)
		}
	})
}

// idleAnswer is what a read gets from a server that has lost track of a session.
func idleAnswer(id string) agentsim.Fault {
	return agentsim.Fault{
		Kind: agentsim.FaultStatus, On: agentsim.GetSession, SessionID: id, Status: http.StatusOK, For: 20 * time.Second,
		Body: fmt.Sprintf(`{"id":%q,"object":"agent.session","status":"in_progress","required_actions":[]}`, id),
	}
}

// A result that was accepted, and seen to be asked for no more, is posted again
// when the session asks for it all the same: under its key, and after three
// times under another. The function is not run for that.
func TestResultOfAConfirmedCallIsPostedAgainWhenItIsListedAgain(t *testing.T) {
	t.Parallel()
	for name, keepKey := range map[string]bool{"it was forgotten": false, "its key is remembered": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), ok, func(c *session.Config) { c.ResyncInterval = 5 * time.Second })
				id := l.follow(t)
				l.fault(t, agentsim.Fault{Kind: agentsim.FaultForget, On: agentsim.PostEvents, SessionID: id, KeepKey: keepKey})
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
				l.fault(t, idleAnswer(id))
				pass(12 * time.Second)
				l.wantState(t, id, turn, "c1", journal.Confirmed)
				if n := len(l.sim.Results(id)); n != 0 {
					t.Fatalf("the session has %d results, and was to forget them", n)
				}
				pass(2 * time.Minute)
				if results := l.sim.Results(id); len(results) != 1 || !results[0].Success {
					t.Errorf("the session has %+v, want the result", results)
				}
				l.wantRequests(t, "c1", 1)
				keys := map[string]int{}
				for _, p := range l.sim.Posts(id, "c1") {
					keys[p.Key]++
				}
				if want := map[bool]int{false: 1, true: 2}[keepKey]; len(keys) != want {
					t.Errorf("the result was posted under the keys %v, want %d", keys, want)
				}
			})
		})
	}
}

// While the journal is away each look finds all the calls that wait for it, and
// they lead to one look more, however many they are and however long it takes.
func TestJournalThatCannotBeReadDoesNotMakeAHotLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, func(c *session.Config) { c.ResyncInterval = time.Hour })
		id := l.follow(t)
		pass(10 * time.Second)
		giveBack := takeTableAway(t, filepath.Join(l.dir, "bridge.db"))
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultDelay, On: agentsim.GetSession, SessionID: id, Delay: 30 * time.Millisecond, Count: -1})
		var step agentsim.Step
		for range 20 {
			step = append(step, agentsim.Call("pay", `{}`))
		}
		before := l.sim.Count(agentsim.GetSession)
		l.sim.Play(id, step)
		pass(time.Minute)
		if n := l.sim.Count(agentsim.GetSession) - before; n < 30 || n > 61 {
			t.Errorf("the session was read %d times in a minute, want once a second", n)
		}
		giveBack()
		pass(10 * time.Second)
		if n := len(l.sim.Results(id)); n != 20 {
			t.Errorf("the session has %d results, want 20", n)
		}
	})
}

// The first process sends ahead of the row, which a crash that comes at once
// takes along; those after it know that the one before ended badly, and wait for
// the row, so that their ends are counted.
func TestCallThatBringsTheBridgeDownAtOnceIsGivenUp(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 10)
	r, ids := newKillRig(t, agentsim.Kind(), 1, func(_ http.ResponseWriter, req *http.Request) {
		arrived <- struct{}{}
		<-req.Context().Done()
	})
	turn := r.sim.Play(ids[0], agentsim.Step{agentsim.Call("look", `{}`).WithID("c1")})
	over := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		_, err := r.sim.WaitTurn(ctx, ids[0], turn)
		over <- err
	}()
	for sent := 0; ; sent++ {
		p := startProcess(t, r.env...)
		select {
		case <-arrived:
			p.kill(t)
			continue
		case err := <-over:
			p.kill(t)
			got := r.sim.Results(ids[0])
			if err != nil || len(got) != 1 || !strings.Contains(got[0].Error, "the bridge failed three times while it ran") {
				t.Errorf("the agent got %+v (%v)\n%s", got, err, p.logs.String())
			}
			if sent > 4 {
				t.Errorf("the service got the call %d times, want 4 at most", sent)
			}
		}
		return
	}
}

// In an outage of the journal an idempotent call does not run ahead of its row
// either, and a call that was stopped for it goes on without anybody's asking.
func TestCallsWaitOutAFullDiskAndGoOnByThemselves(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "16m")
	table := "version: 1\ndefaults: {timeout: 2s}\nroutes: {pay: SERVICE/pay, look: {url: SERVICE/look, idempotent: true}}\n"
	b := startBridge(t, agentsim.Kind(), table, ok, func(s *settings) {
		s.DatabasePath, s.ResyncInterval = filepath.Join(disk, "bridge.db"), time.Hour
	})
	first, second := b.sim.CreateSession(agentsim.SessionSpec{}), b.sim.CreateSession(agentsim.SessionSpec{})
	for _, id := range []string{first, second} {
		if err := b.daemon.sessions.Follow(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if err := b.sim.WaitStreams(t.Context(), id, 1); err != nil {
			t.Fatal(err)
		}
	}
	ballast := filepath.Join(disk, "ballast")
	fill(t, ballast)
	// The first is taken before the outage is known: its row is what shows it.
	large := `{"memo":"` + strings.Repeat("x", 1<<20) + `"}`
	paid := journal.Key{SessionID: first, TurnID: b.sim.Play(first, agentsim.Step{agentsim.Call("pay", large).WithID("c1")}), CallID: "c1"}
	b.waitReadiness(t, http.StatusServiceUnavailable)
	looked := journal.Key{SessionID: second, TurnID: b.sim.Play(second, agentsim.Step{agentsim.Call("look", large).WithID("c2")}), CallID: "c2"}
	<-time.After(3 * time.Second) // longer than the timeout of the calls
	for _, path := range []string{"/pay", "/look"} {
		if n := len(b.service.received(path)); n != 0 {
			t.Errorf("%d requests to %s left without a record", n, path)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for key, path := range map[journal.Key]string{paid: "/pay", looked: "/look"} {
		b.waitState(t, key, journal.Confirmed)
		if n := len(b.service.received(path)); n != 1 {
			t.Errorf("the service got %d requests to %s", n, path)
		}
	}
}
