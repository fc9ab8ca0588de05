package sqlite

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

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
