package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"functionbridge/internal/journal"
)

// image copies the journal of a store that is open: what a process that is
// killed now would leave behind.
func image(t *testing.T, s *Store) (path string) {
	t.Helper()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "bridge.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(s.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path+suffix, string(b))
	}
	return path
}

func running(id string, idempotent bool) journal.Call {
	c := pending(id)
	c.State, c.Idempotent = journal.Running, idempotent
	return c
}

// crashes adopts what is unsettled and returns how often each call was blamed.
func crashes(t *testing.T, s *Store) map[string]int {
	t.Helper()
	calls, err := s.Unsettled(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, c := range calls {
		out[c.CallID] = c.Crashes
	}
	return out
}

func TestUncleanEndIsBlamedOnTheOnlyRunningCall(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "bridge.db"), Options{Owner: "0"})
	saveAll(t, s, running("call_1", true), pending("call_2"))
	for n := 1; n <= 3; n++ {
		s = openStore(t, image(t, s), Options{Owner: string(rune('0' + n))})
		if !s.Unclean() {
			t.Error("the end is taken for a clean one")
		}
		if got := crashes(t, s); got["call_1"] != n || got["call_2"] != 0 {
			t.Errorf("after %d unclean ends: crashes %v", n, got)
		}
	}
}

func TestUncleanEndIsBlamedOnNobodyInDoubt(t *testing.T) {
	t.Parallel()
	for name, calls := range map[string][]journal.Call{
		"two are running":              {running("call_1", true), running("call_2", true)},
		"another one is running":       {running("call_1", true), running("call_2", false)},
		"the call cannot be run again": {running("call_1", false)},
		"nothing is running":           {pending("call_1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, filepath.Join(t.TempDir(), "bridge.db"), Options{Owner: "a"})
			saveAll(t, s, calls...)
			s = openStore(t, image(t, s), Options{Owner: "b"})
			if got := crashes(t, s); !s.Unclean() || got["call_1"] != 0 || got["call_2"] != 0 {
				t.Errorf("unclean %t, crashes %v, want none", s.Unclean(), got)
			}
		})
	}
}

// TestUncleanEndIsCountedOnce: between the crash and the next run of the call
// there may be starts that come to nothing, and none of them ran it.
func TestUncleanEndIsCountedOnce(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "bridge.db"), Options{Owner: "a"})
	saveAll(t, s, running("call_1", true))
	path := image(t, s)
	if err := openStore(t, path, Options{Owner: "its port is in use"}).Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, path, Options{Owner: "killed before it took the call"})
	if s.Unclean() {
		t.Error("a start that failed is taken for an unclean end")
	}
	s = openStore(t, image(t, s), Options{Owner: "d"})
	if got := crashes(t, s); !s.Unclean() || got["call_1"] != 1 {
		t.Errorf("unclean %t, crashes %v, want 1", s.Unclean(), got)
	}
}

func saveAll(t *testing.T, s *Store, calls ...journal.Call) {
	t.Helper()
	for _, c := range calls {
		if err := s.Save(t.Context(), c, journal.Durable); err != nil {
			t.Fatal(err)
		}
	}
}
