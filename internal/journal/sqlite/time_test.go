package sqlite

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/journal"
)

// onDisk counts the calls of the turn without flushing.
func onDisk(t *testing.T, s *Store) int {
	t.Helper()
	calls, err := s.Turn(t.Context(), "sess_1", "turn_1")
	if err != nil {
		t.Fatal(err)
	}
	return len(calls)
}

// writtenAt reads the time that the last transaction left.
func writtenAt(t *testing.T, s *Store) (at int64) {
	t.Helper()
	if err := s.reader.QueryRowContext(t.Context(), "SELECT written_at FROM tally").Scan(&at); err != nil {
		t.Fatal(err)
	}
	return at
}

func TestLazyRowsWaitForCompany(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, path, Options{Owner: "a"})
		for i := range 3 {
			if err := s.Save(t.Context(), pending(string(rune('a'+i))), journal.Lazy); err != nil {
				t.Fatal(err)
			}
			time.Sleep(flushDelay/3 - time.Millisecond) // fake clock
		}
		synctest.Wait()
		if n := onDisk(t, s); n != 0 {
			t.Errorf("%d rows are on disk before the delay is over, want none", n)
		}
		time.Sleep(4 * time.Millisecond) // fake clock
		synctest.Wait()
		if n := onDisk(t, s); n != 3 {
			t.Errorf("%d rows are on disk when the delay is over, want 3", n)
		}
	})
}

func TestDurableRowGoesAheadOfTheWaitingOnes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, path, Options{Owner: "a"})
		if err := s.Save(t.Context(), pending("lazy"), journal.Lazy); err != nil {
			t.Fatal(err)
		}
		if err := s.Save(t.Context(), pending("both"), journal.Lazy); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		if err := s.Save(t.Context(), pending("both"), journal.Durable); err != nil {
			t.Fatal(err)
		}
		if n, took := onDisk(t, s), time.Since(began); n != 1 || took != 0 {
			t.Errorf("%d rows after %s, want the durable one at once", n, took)
		}
		time.Sleep(flushDelay) // fake clock
		synctest.Wait()
		if n := onDisk(t, s); n != 2 {
			t.Errorf("%d rows are on disk when the delay is over, want 2", n)
		}
		if err := s.Save(t.Context(), pending("last"), journal.Lazy); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := onDisk(t, s); n != 3 {
			t.Errorf("%d rows are on disk after a flush, want all 3", n)
		}
	})
}

func TestManyLazyRowsAreWrittenEarly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, path, Options{Owner: "a", FlushDelay: time.Hour})
		for i := range batchRows {
			if err := s.Save(t.Context(), pending(string(rune('a'+i))), journal.Lazy); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := onDisk(t, s); n != batchRows {
			t.Errorf("%d rows are on disk, want %d", n, batchRows)
		}
		c := pending("big")
		c.Arguments = make([]byte, batchBytes)
		if err := s.Save(t.Context(), c, journal.Lazy); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := onDisk(t, s); n != batchRows+1 {
			t.Error("a row of 4 MiB waits for more")
		}
	})
}

func TestReadyWritesWhenNothingElseDid(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, path, Options{Owner: "a"})
		if err := s.Save(t.Context(), pending("a"), journal.Durable); err != nil {
			t.Fatal(err)
		}
		first := writtenAt(t, s)
		for _, step := range []struct {
			wait  time.Duration
			write bool
		}{{time.Second, false}, {2 * time.Second, true}, {time.Second, false}, {time.Hour, true}} {
			time.Sleep(step.wait) // fake clock
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := s.Ready(ctx); err != nil {
				t.Error(err)
			}
			cancel()
			at := writtenAt(t, s)
			if (at != first) != step.write {
				t.Errorf("after %s: written at %d, before at %d, want a write: %t", step.wait, at, first, step.write)
			}
			first = at
		}
	})
}
