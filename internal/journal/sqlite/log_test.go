package sqlite

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"functionbridge/internal/journal"
)

// TestClosedJournalIsOneFile: a backup of it is whole without the log.
func TestClosedJournalIsOneFile(t *testing.T) {
	t.Parallel()
	for i := range 30 {
		path := written(t, filepath.Join(t.TempDir(), "bridge.db"), 3, 10)
		if size, err := sizeOf(path + "-wal"); err != nil || size >= 0 {
			t.Fatalf("close %d left a log of %d bytes (%v)", i, size, err)
		}
	}
}

// TestLogStaysBounded writes 200,000 rows while somebody reads now and then, for
// so long that the log cannot start anew meanwhile.
func TestLogStaysBounded(t *testing.T) {
	t.Parallel()
	const (
		rows  = 200_000 / slowness
		every = 50_000 / slowness // rows
		bound = 3 * maxLog
	)
	path := filepath.Join(t.TempDir(), "bridge.db")
	s := openStore(t, path, Options{Owner: "a"})
	call := pending("")
	call.State, call.Outcome = journal.Confirmed, journal.Success(string(bytes.Repeat([]byte("o"), 300)))
	var largest int64
	stop := func() {}
	for i := range rows {
		call.CallID = strconv.Itoa(i * 7919 % rows) // all over the index
		save(t, s, call)
		switch i % every {
		case every / 5:
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			stop = readOn(t, s)
		case 0:
			stop()
			stop = func() {}
		}
		if i%1000 == 0 {
			size, err := sizeOf(path + "-wal")
			if err != nil {
				t.Fatal(err)
			}
			largest = max(largest, size)
		}
	}
	if largest > bound {
		t.Errorf("the log grew to %d MiB, want at most %d", largest>>20, bound>>20)
	}
	t.Logf("the log grew to %d MiB", largest>>20)
}

// save queues a row, waiting while too many do.
func save(t *testing.T, s *Store, c journal.Call) {
	t.Helper()
	if s.Save(t.Context(), c, journal.Lazy) != nil {
		saveAll(t, s, c)
	}
}

// readOn holds a reader in the middle of the table until it is told to stop.
func readOn(t *testing.T, s *Store) (stop func()) {
	t.Helper()
	rows, err := s.reader.QueryContext(t.Context(), "SELECT id FROM calls")
	if err != nil || !rows.Next() || rows.Err() != nil {
		t.Fatal(err)
	}
	return func() {
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWritersDoNotWaitForAReaderForLong: one that stays holds the log up, and
// nobody else.
func TestWritersDoNotWaitForAReaderForLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	s := openStore(t, path, Options{Owner: "a"})
	saveAll(t, s, large("first"))
	stop := readOn(t, s)
	var slowest time.Duration
	for n, size := 0, int64(0); size < 2*maxLog; n++ {
		c := pending(strconv.Itoa(n))
		c.Arguments = bytes.Repeat([]byte("a"), 1<<20)
		began := time.Now()
		saveAll(t, s, c)
		slowest = max(slowest, time.Since(began))
		var err error
		if size, err = sizeOf(path + "-wal"); err != nil {
			t.Fatal(err)
		}
	}
	if slowest > 3*time.Second { // the usual wait for a lock is 5 s
		t.Errorf("a write took %s while somebody was reading", slowest)
	}
	stop()
	until(t, "the log is cut back", func() bool {
		saveAll(t, s, pending("after"))
		info, err := os.Stat(path + "-wal")
		return err == nil && info.Size() <= maxLog
	})
}
