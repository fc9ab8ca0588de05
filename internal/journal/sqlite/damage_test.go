package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"functionbridge/internal/journal"
)

const pageSize = 4096

// Kinds of pages, by their first byte (sqlite.org/fileformat2.html).
const (
	indexLeaf = 0x0a
	tableLeaf = 0x0d
)

// written makes a closed journal of some calls, each with an output of so many bytes.
func written(t *testing.T, path string, calls, output int) string {
	t.Helper()
	s := openStore(t, path, Options{Owner: "a"})
	for i := range calls {
		c := pending(fmt.Sprintf("call_%d", i))
		c.State, c.Outcome = journal.Confirmed, journal.Success(strings.Repeat("o", output))
		d := journal.Lazy
		if output > pageSize {
			d = journal.Durable // more would wait than may
		}
		if err := s.Save(t.Context(), c, d); err != nil {
			t.Fatal(err)
		}
	}
	closeIt(t, s)
	return path
}

// spoil changes the journal's file.
func spoil(t *testing.T, path string, change func(file []byte) []byte) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, path, string(change(b)))
}

// middle returns a page of calls from the middle of the file.
func middle(t *testing.T, file []byte, kind byte) []byte {
	t.Helper()
	var found [][]byte
	for at := pageSize; at < len(file); at += pageSize {
		if page := file[at : at+pageSize]; page[0] == kind && bytes.Contains(page, []byte("call_")) {
			found = append(found, page)
		}
	}
	if len(found) == 0 {
		t.Fatalf("no page of kind %#x", kind)
	}
	return found[len(found)/2]
}

func TestDamagedFileIsNotOpened(t *testing.T) {
	t.Parallel()
	noise := bytes.Repeat([]byte{0xa5, 0x17}, pageSize)
	for name, test := range map[string]struct {
		change func(t *testing.T, file []byte) []byte
		want   string
	}{
		"garbage header": {func(_ *testing.T, f []byte) []byte { copy(f[:100], noise); return f }, "not a SQLite database"},
		"cut in a page":  {func(_ *testing.T, f []byte) []byte { return f[:len(f)/2+100] }, "damaged"},
		"cut at a page":  {func(_ *testing.T, f []byte) []byte { return f[:len(f)/2/pageSize*pageSize] }, "damaged"},
		"cut to a page":  {func(_ *testing.T, f []byte) []byte { return f[:pageSize] }, "damaged"},
		"empty":          {func(*testing.T, []byte) []byte { return nil }, "it is empty and was not before"},
		"noise in the table": {func(t *testing.T, f []byte) []byte {
			t.Helper()
			copy(middle(t, f, tableLeaf), noise[:pageSize])
			return f
		}, "damaged"},
		"zeros in the table": {func(t *testing.T, f []byte) []byte {
			t.Helper()
			clear(middle(t, f, tableLeaf))
			return f
		}, "damaged"},
		"noise in the index": {func(t *testing.T, f []byte) []byte {
			t.Helper()
			copy(middle(t, f, indexLeaf), noise[:pageSize])
			return f
		}, "damaged"},
		"a letter in the index": {spoilKey, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := spoil(t, written(t, filepath.Join(t.TempDir(), "bridge.db"), 500, 100), func(f []byte) []byte { return test.change(t, f) })
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				refusedToOpen(t, path, test.want, "restore a backup", "start empty", "run a second time")
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the damaged file was changed (%v)", err)
			}
			// What the sentence says to do works.
			if err := os.Rename(path, path+".aside"); err != nil {
				t.Fatal(err)
			}
			openStore(t, path, Options{Owner: "c"})
		})
	}
}

// spoilKey changes one letter of a key, which leaves the structure as it was.
func spoilKey(t *testing.T, file []byte) []byte {
	t.Helper()
	page := middle(t, file, indexLeaf)
	copy(page[bytes.LastIndex(page, []byte("call_")):], "cbll_")
	return file
}

// refusedToOpen wants an error in one sentence that has all the words.
func refusedToOpen(t *testing.T, path string, words ...string) {
	t.Helper()
	s, err := Open(t.Context(), path, Options{Owner: "b"})
	if err == nil {
		closeIt(t, s)
		t.Fatal("it was opened")
	}
	for _, w := range append(words, path) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q, want one with %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "migrate") {
		t.Errorf("error %q is more than a sentence", err)
	}
}

// TestLogWithoutItsFileIsKept: SQLite would take the file for a new one and
// throw the log away.
func TestLogWithoutItsFileIsKept(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, filepath.Join(t.TempDir(), "bridge.db"), Options{Owner: "a"})
			saveAll(t, s, pending("call_1"))
			path := image(t, s)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := lose(path); err != nil {
				t.Fatal(err)
			}
			refusedToOpen(t, path, path+"-wal", "put it back", "start empty")
			s = openStore(t, write(t, path, string(whole)), Options{Owner: "b"})
			if _, err := s.Call(t.Context(), pending("call_1").Key); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEmptyFileOfTheFirstStartIsFine(t *testing.T) {
	t.Parallel()
	openStore(t, write(t, filepath.Join(t.TempDir(), "bridge.db"), ""), Options{Owner: "a"})
}

// notReady waits until nothing is written any more, and that the store says so.
func notReady(t *testing.T, s *Store, words ...string) {
	t.Helper()
	var err error
	until(t, "it is not ready", func() bool { err = s.Ready(t.Context()); return err != nil })
	for _, w := range words {
		if !errors.Is(err, journal.ErrUnavailable) || !strings.Contains(err.Error(), w) {
			t.Errorf("not ready for %q, want a reason with %q", err, w)
		}
	}
	if err := s.Save(t.Context(), pending("late"), journal.Lazy); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("lazy save: %v, want unavailable", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*firstRetry)
	defer cancel()
	if err := s.Save(ctx, pending("late"), journal.Durable); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("durable save: %v, want that it is not taken", err)
	}
}

func TestLargeFileIsLookedThroughWhileItIsUsed(t *testing.T) {
	t.Parallel()
	path := written(t, filepath.Join(t.TempDir(), "bridge.db"), 70, 1<<20)
	spoil(t, path, func(f []byte) []byte { return spoilKey(t, f) })
	s := openStore(t, path, Options{Owner: "b"}) // too large to be read at the start
	notReady(t, s, "it is damaged", "missing from the index")
}

func TestDamageThatShowsLaterStopsTheWriting(t *testing.T) {
	t.Parallel()
	for name, trigger := range map[string]func(t *testing.T, s *Store){
		"in a read": func(t *testing.T, s *Store) {
			t.Helper()
			if _, _, err := s.Calls(t.Context(), journal.Filter{Limit: 1000}); err == nil {
				t.Error("the damaged page was read")
			}
		},
		"in a write": func(t *testing.T, s *Store) {
			t.Helper()
			for i := range 500 {
				c := pending(fmt.Sprintf("call_%d", i))
				c.State = journal.Confirmed
				if err := s.Save(t.Context(), c, journal.Lazy); err != nil {
					break
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := written(t, filepath.Join(t.TempDir(), "bridge.db"), 500, 100)
			s, err := build(t.Context(), path, Options{Owner: "b"})
			if err != nil {
				t.Fatal(err)
			}
			spoil(t, path, func(f []byte) []byte { clear(middle(t, f, tableLeaf)); return f })
			s.start(context.WithoutCancel(t.Context()))
			t.Cleanup(func() { _ = s.Close() })
			trigger(t, s)
			notReady(t, s, "it is damaged", "restore a backup")
			if err := s.Close(); err == nil || !strings.Contains(err.Error(), "not written") {
				t.Errorf("close: %v, want what was not written", err)
			}
		})
	}
}

func TestFileThatIsTakenAwayIsNoticed(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(path string) error{
		"deleted": os.Remove,
		"moved":   func(path string) error { return os.Rename(path, path+".aside") },
		"replaced": func(path string) error {
			b, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path+".new", b, 0o600), os.Rename(path+".new", path))
		},
		"its log deleted":       func(path string) error { return os.Remove(path + "-wal") },
		"its directory renamed": func(path string) error { return os.Rename(filepath.Dir(path), filepath.Dir(path)+".aside") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "bridge.db")
			s := openStore(t, path, Options{Owner: "a"})
			saveAll(t, s, pending("call_1"))
			if err := take(path); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*firstRetry)
			defer cancel()
			if err := s.Save(ctx, pending("call_2"), journal.Durable); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("durable save: %v, want that it is not taken", err)
			}
			notReady(t, s, "was deleted or replaced while it was in use", "put the file")
		})
	}
}

func TestReadOnlyFileHealsByItself(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	s := openStore(t, path, Options{Owner: "a"})
	saveAll(t, s, pending("before"))
	immutable(t, path+"-wal", true)
	saved := make(chan error, 1)
	go func() { saved <- s.Save(t.Context(), pending("during"), journal.Durable) }()
	until(t, "the outage shows", s.queue.outage)
	if err := s.Ready(t.Context()); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("ready: %v, want unavailable", err)
	}
	immutable(t, path+"-wal", false)
	if err := <-saved; err != nil {
		t.Error(err)
	}
	until(t, "it is ready again", func() bool { return s.Ready(t.Context()) == nil })
}

// immutable sets or takes the flag that keeps even root from writing; the test
// is skipped where the file system or the rights do not allow it.
func immutable(t *testing.T, path string, on bool) {
	t.Helper()
	flag := "-i"
	if on {
		flag = "+i"
		t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "chattr", "-i", path).Run() })
	}
	if out, err := exec.CommandContext(t.Context(), "chattr", flag, path).CombinedOutput(); err != nil {
		t.Skipf("chattr does not work here: %v: %s", err, out)
	}
}

func TestReadOnlyFileIsNotOpened(t *testing.T) {
	t.Parallel()
	path := written(t, filepath.Join(t.TempDir(), "bridge.db"), 1, 1)
	if err := syscall.Mount(path, path, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("bind mounts are not allowed here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(path, syscall.MNT_DETACH) })
	if err := syscall.Mount("", path, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	refusedToOpen(t, path, "let user", "write to it")
}

// foreignEnv names the journal in a process that is no bridge and holds it, and
// how it does so.
const foreignEnv = "JOURNAL_TEST_FOREIGN"

func TestForeigner(t *testing.T) {
	how, path, ok := strings.Cut(os.Getenv(foreignEnv), " ") //nolint:forbidigo // the parent test's only way in
	if !ok {
		t.Skip("runs as the child of TestForeignLockIsNamed")
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	statements := []string{"BEGIN EXCLUSIVE"}
	if how == "reads" {
		statements = []string{"BEGIN", "SELECT count(*) FROM calls"}
	}
	for _, q := range statements {
		if _, err := conn.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := errors.Join(conn.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestForeignLockIsNamed(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"writes", "reads"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			path := written(t, filepath.Join(t.TempDir(), "bridge.db"), 1, 1)
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestForeigner$")
			child.Env = append(os.Environ(), foreignEnv+"="+how+" "+path) //nolint:forbidigo // a child of this test
			in, err := child.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
				t.Fatalf("the child says %q (%v)", line, err)
			}
			began := time.Now()
			refusedToOpen(t, path, "another program has it open", "close that one")
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("the refusal took %s", took)
			}
			if err := errors.Join(in.Close(), child.Wait()); err != nil {
				t.Fatal(err)
			}
			openStore(t, path, Options{Owner: "b"})
		})
	}
}
