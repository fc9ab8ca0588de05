package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite" // another program that has the journal's file open

	"functionbridge/internal/agentsim"
)

// ready asks /readyz and demands an answer within five seconds.
func (o *operator) ready(t *testing.T) (status int, words []string) {
	t.Helper()
	began := time.Now()
	got := o.get(t, "/readyz")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("/readyz took %s", took)
	}
	body := got.decode(t)
	for _, name := range []string{"reasons", "degraded"} {
		list, _ := body[name].([]any)
		for _, word := range list {
			words = append(words, fmt.Sprint(word))
		}
	}
	return got.status, words
}

func (o *operator) waitReady(t *testing.T, status int, words ...string) {
	t.Helper()
	waitFor(t, "/readyz", func() bool {
		gotStatus, gotWords := o.ready(t)
		return gotStatus == status && slices.Equal(gotWords, words)
	})
	o.get(t, "/healthz").want(t, http.StatusOK)
}

func TestReadinessSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	o := newOperator(t, b.daemon)
	o.waitReady(t, http.StatusOK)

	b.daemon.draining.Store(true)
	o.waitReady(t, http.StatusServiceUnavailable, "draining")
	table := b.daemon.table.inForce.Swap(nil)
	o.waitReady(t, http.StatusServiceUnavailable, "no_table", "draining")
	b.daemon.table.inForce.Store(table)
	b.daemon.draining.Store(false)
	o.waitReady(t, http.StatusOK)
}

func TestReadinessFollowsTheAgentsAPI(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	o := newOperator(t, b.daemon)
	id := b.sim.CreateSession(agentsim.SessionSpec{})
	o.post(t, "/admin/sessions", `{"session_id":"`+id+`"}`).want(t, http.StatusOK)
	for _, c := range []struct {
		status int
		want   int
		word   string
	}{
		{http.StatusUnauthorized, http.StatusServiceUnavailable, "api_key_refused"},
		{http.StatusServiceUnavailable, http.StatusOK, "api_unreachable"},
	} {
		fault := agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.GetSession, Status: c.status, Count: -1}
		if err := b.sim.Fault(fault); err != nil {
			t.Fatal(err)
		}
		o.waitReady(t, c.want, c.word)
		b.sim.ClearFaults()
		o.waitReady(t, http.StatusOK)
	}
}

// Another program holds the journal's file, as a backup or a full disk would.
func TestReadinessAnswersWhileTheJournalHangs(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	o := newOperator(t, b.daemon)
	o.waitReady(t, http.StatusOK)
	unlock := lockFile(t, b.daemon.settings.DatabasePath)

	o.waitReady(t, http.StatusServiceUnavailable, "journal_not_writable")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if status, words := o.ready(t); status != http.StatusServiceUnavailable || !slices.Equal(words, []string{"journal_not_writable"}) {
				t.Errorf("/readyz is %d %v while the journal hangs", status, words)
			}
		})
	}
	all.Wait()
	began := time.Now()
	if got := o.get(t, "/admin/calls"); got.status != http.StatusOK && got.status != http.StatusServiceUnavailable {
		t.Errorf("calls are answered with %d", got.status)
	}
	o.post(t, "/admin/sessions", `{"session_id":"sess_1"}`).want(t, http.StatusServiceUnavailable)
	o.get(t, "/admin/sessions").want(t, http.StatusOK)
	o.get(t, "/metrics").want(t, http.StatusOK)
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("the admin endpoints took %s while the journal hung", took)
	}
	unlock()
	o.waitReady(t, http.StatusOK)
}

// lockFile keeps every other connection from writing a SQLite file.
func lockFile(t *testing.T, path string) (unlock func()) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unlock = sync.OnceFunc(func() {
		_, _ = conn.ExecContext(context.Background(), "ROLLBACK")
		_ = conn.Close()
		_ = db.Close()
	})
	t.Cleanup(unlock)
	if _, err := conn.ExecContext(t.Context(), "PRAGMA busy_timeout = 5000"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	return unlock
}
