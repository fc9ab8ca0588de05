package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"

	"functionbridge/internal/journal"
)

func TestPragmasHoldOnEveryConnection(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "bridge.db"), Options{Owner: "a"})
	check := func(query func(string) (string, error)) {
		for _, p := range []pragma{
			{"journal_mode", "", "wal"},
			{"synchronous", "", "2"},
			{"foreign_keys", "", "1"},
			{"busy_timeout", "", "5000"},
			{"temp_store", "", "2"},
		} {
			if got, err := query("PRAGMA " + p.name); err != nil || got != p.shown {
				t.Errorf("%s is %q (%v), want %s", p.name, got, err, p.shown)
			}
		}
	}
	err := s.do(t.Context(), func(ctx context.Context, c *connection) error {
		check(func(q string) (string, error) {
			row, err := queryRow(ctx, c.conn, q)
			return fmt.Sprint(row[0]), err
		})
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	conns := make([]*sql.Conn, readers) // all at once, so that they are different ones
	for i := range conns {
		if conns[i], err = s.reader.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range conns {
		check(func(q string) (text string, err error) {
			err = conn.QueryRowContext(t.Context(), q).Scan(&text)
			return text, err
		})
		if _, err := conn.ExecContext(t.Context(), "DELETE FROM calls"); err == nil {
			t.Error("a reader could write")
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestConnectionWithoutItsPragmasIsRefused(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]string{
		"synchronous":  "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)",
		"journal_mode": "?_pragma=busy_timeout(5000)&_pragma=journal_mode(DELETE)",
		"busy_timeout": "?_pragma=busy_timeut(5000)", // SQLite takes a misspelt pragma without a word
	} {
		base, err := sqlite.NewConnector("file:" + filepath.Join(t.TempDir(), "bridge.db") + dsn)
		if err != nil {
			t.Fatal(err)
		}
		_, err = assertive{base, pragmas()}.Connect(t.Context())
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v, want one that names it", name, err)
		}
	}
}

func TestSecondOpenerIsToldTheHolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "bridge.db"), filepath.Join(dir, "link.db")
	s := openStore(t, path, Options{Owner: "a"})
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link} {
		_, err := Open(t.Context(), p, Options{Owner: "b"})
		locked, ok := errors.AsType[*LockedError](err)
		if !ok || locked.PID != os.Getpid() || locked.Host != host {
			t.Errorf("%s: error %v, want the holder's pid and host", p, err)
		}
	}
	if err := s.Save(t.Context(), pending("call_1"), journal.Durable); err != nil {
		t.Errorf("the holder is disturbed: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openStore(t, link, Options{Owner: "b"})
}

func TestOpenSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(t *testing.T, dir string) string // returns the path to open
		want    string
	}{
		"no path":      {func(*testing.T, string) string { return "" }, "name a file"},
		"no directory": {func(_ *testing.T, dir string) string { return filepath.Join(dir, "no", "bridge.db") }, "create it"},
		"a directory":  {func(_ *testing.T, dir string) string { return dir }, "use another path"},
		"a device":     {func(*testing.T, string) string { return os.DevNull }, "would keep nothing"},
		"under a file": {func(t *testing.T, dir string) string {
			t.Helper()
			return filepath.Join(write(t, filepath.Join(dir, "file"), "x"), "bridge.db")
		}, "use another path"},
		"not a database": {func(t *testing.T, dir string) string {
			t.Helper()
			return write(t, filepath.Join(dir, "bridge.db"), strings.Repeat("not a database ", 1000))
		}, "not a SQLite database"},
		"damaged": {func(t *testing.T, dir string) string {
			t.Helper()
			return overwritten(t, filepath.Join(dir, "bridge.db"))
		}, "it is damaged"},
		"no permission": {noPermission, "let user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := test.prepare(t, t.TempDir())
			s, err := Open(t.Context(), path, Options{Owner: "a"})
			if err == nil {
				_ = s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one with %q and the path", err, test.want)
			}
		})
	}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// overwritten makes a journal and overwrites all but its first page.
func overwritten(t *testing.T, path string) string {
	t.Helper()
	if err := openStore(t, path, Options{Owner: "a"}).Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(b[4096:], bytes.Repeat([]byte{0xa5}, len(b)))
	return write(t, path, string(b))
}

// noPermission returns a path in a directory that cannot be written: by its mode,
// or, for root, who may write everywhere, by its mount.
func noPermission(t *testing.T, dir string) string {
	t.Helper()
	if os.Getuid() != 0 {
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
		return filepath.Join(dir, "bridge.db")
	}
	mount(t, dir, syscall.MS_RDONLY, "")
	return filepath.Join(dir, "bridge.db")
}

// mount puts a tmpfs at dir; the test is skipped where that is not allowed.
func mount(t *testing.T, dir string, flags uintptr, options string) {
	t.Helper()
	err := syscall.Mount("tmpfs", dir, "tmpfs", flags, options)
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("mounting a tmpfs is not allowed here")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

func TestReleaseBeforeRunsOnTheNewSchema(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	if err := openStore(t, path, Options{Owner: "a"}).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		"ALTER TABLE calls ADD COLUMN lease INTEGER NOT NULL DEFAULT 0",
		"CREATE TABLE nudges (id INTEGER PRIMARY KEY)",
		"INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)",
	} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, path, Options{Owner: "b"})
	c := pending("call_1")
	if err := s.Save(t.Context(), c, journal.Durable); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Call(t.Context(), c.Key); err != nil {
		t.Error(err)
	}
}

// TestRowsOfTheReleaseBeforeAreKept starts from the first schema.
func TestRowsOfTheReleaseBeforeAreKept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, os.DirFS("migrations"), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `INSERT INTO calls (session_id, turn_id, call_id, function, state, owner, idempotent, generation,
		created_at, answered_at, submitted_at, confirmed_at, success, content, failure, attempts, output)
		VALUES ('sess_1', 'turn_1', 'call_1', 'f', 'running', 'old', 1, 0, 1, 0, 0, 0, 0, 0, '',
		CAST('[{"started_at":1,"duration_us":2,"status":503}]' AS BLOB), zeroblob(100000))`); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, path, Options{Owner: "new"})
	calls, err := s.Unsettled(t.Context())
	if err != nil || len(calls) != 1 {
		t.Fatalf("%d calls (%v), want 1", len(calls), err)
	}
	c := calls[0]
	if c.Fence != 1 || c.Rev != 0 || c.Attempts[0].Status != 503 || len(c.Outcome.Output) != 100000 {
		t.Errorf("fence %d, rev %d, attempts %v, %d bytes", c.Fence, c.Rev, c.Attempts, len(c.Outcome.Output))
	}
	c.State, c.Rev = journal.Answered, 1
	if err := s.Save(t.Context(), c, journal.Durable); err != nil {
		t.Error(err)
	}
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	openStore(t, filepath.Join(dir, "a ?#%b.db"), Options{Owner: "a"})
	entries, err := os.ReadDir(dir)
	// An index of the log would be a file in mapped memory, which stops the whole
	// process when its disk hangs.
	if err != nil || len(entries) != 3 {
		t.Fatalf("%v (%v), want database, log and lock", entries, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s (%v), want 0600", e.Name(), info.Mode(), err)
		}
		if !strings.HasPrefix(e.Name(), "a ?#%b.db") {
			t.Errorf("file %q is not named after the path", e.Name())
		}
	}
}

func TestQueriesUseTheIndexes(t *testing.T) {
	t.Parallel()
	s := openStore(t, filepath.Join(t.TempDir(), "bridge.db"), Options{Owner: "a"})
	for name, test := range map[string]struct {
		filter journal.Filter
		want   string
	}{
		"an unsettled state": {journal.Filter{State: journal.InDoubt}, "USING INDEX calls_unsettled"},
		"a session":          {journal.Filter{SessionID: "s"}, "(session_id=?)"},
	} {
		where, args, err := condition(test.filter)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := collect(t.Context(), s.reader, scanPlan, "EXPLAIN QUERY PLAN SELECT id FROM calls"+where+" ORDER BY id DESC LIMIT 9", args...)
		if err != nil || !strings.Contains(strings.Join(plan, "\n"), test.want) {
			t.Errorf("%s: plan %q (%v), want %s", name, plan, err, test.want)
		}
	}
}

func scanPlan(row scanner) (detail string, err error) {
	var n sql.NullInt64
	err = row.Scan(&n, &n, &n, &detail)
	return detail, err
}

func pending(id string) journal.Call {
	return journal.Call{
		Key:       journal.Key{SessionID: "sess_1", TurnID: "turn_1", CallID: id},
		Function:  "f",
		Arguments: []byte(`{}`),
		State:     journal.Pending,
	}
}
