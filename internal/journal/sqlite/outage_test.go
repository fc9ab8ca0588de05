package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"functionbridge/internal/journal"
)

// patience is how long a test waits for what happens by itself.
const patience = 20 * time.Second

// until polls a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); !condition(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long: %s", what)
		}
	}
}

// full gives each new connection a file that cannot grow while it is on.
type full struct {
	driver.Connector
	on atomic.Bool
}

func (f *full) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := f.Connector.Connect(ctx)
	if err == nil && f.on.Load() {
		_, err = queryRow(ctx, conn, "PRAGMA max_page_count = 1")
	}
	return conn, err
}

// fill makes the file full for the open connection and each one after it.
func (f *full) fill(t *testing.T, s *Store) {
	t.Helper()
	f.on.Store(true)
	err := s.do(t.Context(), func(ctx context.Context, c *connection) error {
		_, err := queryRow(ctx, c.conn, "PRAGMA max_page_count = 1") // SQLite takes the present size for less
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// openFull opens a store whose file can be made full.
func openFull(t *testing.T, path string) (*Store, *full) {
	t.Helper()
	s, err := build(t.Context(), path, Options{Owner: "a", FlushDelay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	f := &full{Connector: s.connect}
	s.connect = f
	s.start(context.WithoutCancel(t.Context()))
	t.Cleanup(func() { _ = s.Close() })
	return s, f
}

// large is a call that no page has room for yet.
func large(id string) journal.Call {
	c := pending(id)
	c.Arguments = []byte(strings.Repeat("x", 100<<10))
	return c
}

func TestFullFileLosesNothingAndRecoversByItself(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	s, file := openFull(t, path)
	if err := s.Save(t.Context(), large("before"), journal.Durable); err != nil {
		t.Fatal(err)
	}
	file.fill(t, s)

	// A lazy row that was accepted, then a durable one that waits.
	if err := s.Save(t.Context(), large("lazy"), journal.Lazy); err != nil {
		t.Fatal(err)
	}
	durable := make(chan error, 1)
	go func() { durable <- s.Save(t.Context(), large("durable"), journal.Durable) }()
	until(t, "the outage shows", s.queue.outage)

	for range 3 {
		if err := s.Save(t.Context(), large("refused"), journal.Lazy); !errors.Is(err, journal.ErrUnavailable) {
			t.Errorf("lazy save in the outage: %v, want unavailable", err)
		}
		if err := s.Ready(t.Context()); !errors.Is(err, journal.ErrUnavailable) || !strings.Contains(err.Error(), "full") {
			t.Errorf("ready in the outage: %v, want unavailable and the cause", err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Save(short, large("impatient"), journal.Durable); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("durable save in the outage: %v, want its deadline", err)
	}
	if c, err := s.Call(t.Context(), large("before").Key); err != nil || c.CallID != "before" {
		t.Errorf("read in the outage: %v", err)
	}
	select {
	case err := <-durable:
		t.Fatalf("the durable save returned in the outage: %v", err)
	default:
	}

	file.on.Store(false)
	if err := <-durable; err != nil {
		t.Fatalf("durable save after the outage: %v", err)
	}
	until(t, "ready again", func() bool { return s.Ready(t.Context()) == nil })
	for _, id := range []string{"before", "lazy", "durable", "impatient"} {
		if _, err := s.Call(t.Context(), large(id).Key); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := s.Call(t.Context(), large("refused").Key); !errors.Is(err, journal.ErrNotFound) {
		t.Errorf("the refused row: %v, want not found", err)
	}
	if got := s.Counts()[journal.Pending]; got != 4 {
		t.Errorf("%d pending, want 4", got)
	}
}

func TestCloseInAnOutageSaysWhatIsLost(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	s, file := openFull(t, path)
	file.fill(t, s)
	if err := s.Save(t.Context(), large("lazy"), journal.Lazy); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- s.Save(t.Context(), large("durable"), journal.Durable) }()
	until(t, "the outage shows", s.queue.outage)
	if err := s.Close(); !errors.Is(err, journal.ErrUnavailable) || !strings.Contains(err.Error(), "not written") {
		t.Errorf("close: %v, want what was not written", err)
	}
	if err := <-waiting; !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("the waiting save: %v, want unavailable", err)
	}
	if !openStore(t, path, Options{Owner: "b"}).Unclean() {
		t.Error("rows were lost, and the next process takes the end for clean")
	}
}

// TestFullDisk fills a real file system and frees it again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mount(t, dir, 0, "size=16m")
	s := openStore(t, filepath.Join(dir, "bridge.db"), Options{Owner: "a", FlushDelay: time.Millisecond})
	ballast := filepath.Join(dir, "ballast")
	fillDisk(t, ballast)

	const rows = 10
	saves := make(chan error, rows)
	for i := range rows {
		go func() { saves <- s.Save(t.Context(), large(strconv.Itoa(i)), journal.Durable) }()
	}
	until(t, "the outage shows", s.queue.outage)
	if err := s.Ready(t.Context()); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("ready on a full disk: %v, want unavailable", err)
	}
	select {
	case err := <-saves:
		t.Errorf("a durable save returned on a full disk: %v", err)
	case <-time.After(2 * firstRetry):
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for range rows {
		if err := <-saves; err != nil {
			t.Error(err)
		}
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("ready once the disk is free: %v", err)
	}
	if calls, err := s.Unsettled(t.Context()); err != nil || len(calls) != rows {
		t.Errorf("%d rows (%v), want %d", len(calls), err, rows)
	}
}

func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// hang holds SQLite's write lock, as a disk that does not answer would.
func hang(t *testing.T, path string) (release func()) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	return func() { _ = errors.Join(conn.Close(), db.Close()) }
}

func TestReadyAnswersInTimeWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	s := openStore(t, path, Options{Owner: "a"})
	release := hang(t, path)
	began := time.Now()
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := s.Ready(ctx); !errors.Is(err, journal.ErrUnavailable) {
			t.Errorf("ready: %v, want unavailable", err)
		}
		cancel()
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("20 answers took %s", took)
	}
	s.queue.mu.Lock()
	if n := len(s.queue.next.tasks); n > 1 {
		t.Errorf("%d probes wait, want one at most", n)
	}
	s.queue.mu.Unlock()
	release()
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("ready after the hang: %v", err)
	}
}

// TestLazyRowsAreBounded: a disk that hangs without an error must not fill memory.
func TestLazyRowsAreBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	s := openStore(t, path, Options{Owner: "a"})
	release := hang(t, path)
	defer release()
	var err error
	n := 0
	for ; err == nil && n <= 3*maxRows; n++ {
		err = s.Save(t.Context(), pending(strconv.Itoa(n)), journal.Lazy)
	}
	if !errors.Is(err, journal.ErrUnavailable) || n < maxRows {
		t.Errorf("after %d rows: %v, want unavailable, and not before %d", n, err, maxRows)
	}
	err = nil
	for i := 0; err == nil && i < 2*maxBytes/(1<<20); i++ {
		c := pending(fmt.Sprintf("large %d", i))
		c.Arguments = make([]byte, 1<<20)
		err = s.Save(t.Context(), c, journal.Lazy)
	}
	if !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("large rows: %v, want unavailable", err)
	}
	release()
	if err := s.Flush(t.Context()); err != nil {
		t.Error(err)
	}
}
