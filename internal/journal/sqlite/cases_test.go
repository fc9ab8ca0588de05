package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"functionbridge/internal/journal"
)

// Damage that does not show any more was there all the same: what was written to
// such a file meanwhile cannot be relied on, so that nothing is until a restart
// has looked at it.
func TestDamageThatWentAwayIsNotForgotten(t *testing.T) {
	t.Parallel()
	path := written(t, filepath.Join(t.TempDir(), "bridge.db"), 500, 100)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := build(t.Context(), path, Options{Owner: "b", FlushDelay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	spoil(t, path, func(f []byte) []byte { clear(middle(t, f, tableLeaf)); return f })
	s.start(context.WithoutCancel(t.Context()))
	t.Cleanup(func() { _ = s.Close() })
	for i := range 500 {
		c := pending(fmt.Sprintf("call_%d", i))
		c.State = journal.Confirmed
		if err := s.Save(t.Context(), c, journal.Lazy); err != nil {
			break
		}
	}
	until(t, "the damage shows", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.Ready(ctx)
		return err != nil && strings.Contains(err.Error(), "it is damaged")
	})
	overwrite(t, path, whole)
	<-time.After(2 * lastRetry)
	if err := s.Ready(t.Context()); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("ready: %v, want that the damage is remembered", err)
	}
	if err := s.Close(); err == nil {
		t.Error("the close says nothing of what was not written")
	}
	openStore(t, path, Options{Owner: "c"})
}

// overwrite puts bytes into a file that stays the same file.
func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(b, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// Where some reader is always at work SQLite does not start the log anew by
// itself, however short each of them is.
func TestLogIsCutBackThoughSomebodyAlwaysReads(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	s := openStore(t, path, Options{Owner: "a"})
	saveAll(t, s, large("first"))
	end := relay(t, s)
	defer end()
	log := func() (size int64) {
		size, err := sizeOf(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return size
	}
	for n := 0; log() <= maxLog; n++ {
		c := pending(strconv.Itoa(n))
		c.Arguments = bytes.Repeat([]byte("a"), 1<<20)
		saveAll(t, s, c)
	}
	until(t, "the log is cut back", func() bool {
		saveAll(t, s, pending("after"))
		return log() <= maxLog
	})
}

// relay keeps the table read until it is told to end: each reader begins before
// the one before it has ended, and lasts for some milliseconds.
func relay(t *testing.T, s *Store) (end func()) {
	t.Helper()
	told, over := make(chan struct{}), make(chan struct{})
	read := func() (stop func()) {
		rows, err := s.reader.QueryContext(t.Context(), "SELECT id FROM calls")
		if err != nil || !rows.Next() || rows.Err() != nil {
			t.Error(err)
			return func() {}
		}
		return func() { _ = rows.Close() }
	}
	go func() {
		defer close(over)
		stop := read()
		defer func() { stop() }()
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-told:
				return
			case <-ticker.C:
			}
			next := read()
			stop()
			stop = next
		}
	}()
	return func() {
		close(told)
		<-over
	}
}
