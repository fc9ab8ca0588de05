package sqlite

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"functionbridge/internal/journal"
	"functionbridge/internal/journal/journaltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	t.Parallel()
	journaltest.Run(t, func(t *testing.T) journaltest.Open {
		t.Helper()
		path := filepath.Join(t.TempDir(), "bridge.db")
		return func(t *testing.T, owner string) journaltest.Store {
			t.Helper()
			return openStore(t, path, Options{Owner: owner})
		}
	})
}

func openStore(t *testing.T, path string, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// TestLateImageIsNoFault: images are saved without a lock, so that one comes late
// now and then. One that was refused for anything else is a fault.
func TestLateImageIsNoFault(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "bridge.db"), Options{Owner: "a"})
	c := pending("call_1")
	c.State, c.Rev = journal.Answered, 2
	saveAll(t, s, c)
	for _, step := range []struct {
		state  journal.State
		rev    int64
		faults int64
	}{{journal.Pending, 1, 0}, {journal.Submitted, 1, 0}, {journal.Pending, 2, 1}, {journal.Running, 3, 2}} {
		c.State, c.Rev = step.state, step.rev
		save(t, s, c)
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.Refused(); got != step.faults {
			t.Errorf("%s at %d: %d rows were refused, want %d", step.state, step.rev, got, step.faults)
		}
	}
}
