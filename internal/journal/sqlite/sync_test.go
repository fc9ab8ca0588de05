package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"functionbridge/internal/journal"
)

// tracedEnv names the journal in the process whose system calls are looked at.
const tracedEnv = "JOURNAL_TEST_TRACED"

// saveTimeout is how long that process waits for one row.
const saveTimeout = 4 * time.Second

// TestTraced is that process. It says before each row and after it what it does,
// in one write to standard output each, and how long it took. It writes nothing
// else, so that what reaches the log in between is that row.
func TestTraced(t *testing.T) {
	path := os.Getenv(tracedEnv) //nolint:forbidigo // the parent test's only way in
	if path == "" {
		t.Skip("runs as the child of the tests that look at system calls")
	}
	s, err := Open(t.Context(), path, Options{Owner: "traced"})
	if err != nil {
		t.Fatal(err)
	}
	saveAll(t, s, pending("warm"))
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for n := 0; in.Scan(); n++ {
		ctx, cancel := context.WithTimeout(t.Context(), saveTimeout)
		fmt.Println("saving", n)
		began := time.Now()
		err := s.Save(ctx, pending(strconv.Itoa(n)), journal.Durable)
		took := time.Since(began)
		fmt.Println("saved", n, took.Milliseconds(), err)
		cancel()
		ready, cancel := context.WithTimeout(t.Context(), time.Second)
		fmt.Println("is", n, s.Ready(ready))
		cancel()
	}
}

// traced is that process under strace.
type traced struct {
	in    io.Writer
	out   *bufio.Reader
	trace string
}

// trace starts the process and, once it has its journal open, strace on it with
// the arguments given. The test is skipped where that is not possible.
func trace(t *testing.T, args ...string) *traced {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed (apt-get install strace): what the kernel is asked to do is not looked at")
	}
	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTraced$")
	child.Env = append(os.Environ(), tracedEnv+"="+filepath.Join(dir, "bridge.db")) //nolint:forbidigo // a child of this test
	child.Stderr = os.Stderr
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
	p := &traced{in: in, out: bufio.NewReader(out), trace: filepath.Join(dir, "trace")}
	t.Cleanup(func() { _ = child.Wait() })
	t.Cleanup(func() { _ = in.Close() })
	p.expect(t, "ready")
	attach(t, strace, append(args, "-f", "-y", "-s", "20", "-o", p.trace, "-p", strconv.Itoa(child.Process.Pid)))
	return p
}

// attach starts strace and returns when it is at work.
func attach(t *testing.T, strace string, args []string) {
	t.Helper()
	tracer := exec.CommandContext(t.Context(), strace, args...)
	said, err := tracer.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tracer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tracer.Process.Kill(); _ = tracer.Wait() })
	lines := bufio.NewReader(said)
	line, err := lines.ReadString('\n')
	if err != nil || !strings.Contains(line, "attached") {
		t.Skipf("strace may not look at a process here: %s (%v)", line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
}

// next makes the process save one more row.
func (p *traced) next(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		t.Fatal(err)
	}
}

// expect reads a line and returns what follows the words.
func (p *traced) expect(t *testing.T, words string) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, words) {
		t.Fatalf("the traced process says %q (%v), want %s", line, err, words)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, words))
}

// TestDurableRowIsSyncedBeforeItIsReported looks at the order of system calls,
// since a process that is killed loses nothing that the kernel has.
func TestDurableRowIsSyncedBeforeItIsReported(t *testing.T) {
	t.Parallel()
	p := trace(t, "-e", "trace=write,pwrite64,pwritev,fsync,fdatasync")
	const rows = 20
	for n := range rows {
		p.next(t)
		p.expect(t, fmt.Sprintf("saving %d", n))
		if got := p.expect(t, fmt.Sprintf("saved %d ", n)); !strings.HasSuffix(got, "<nil>") {
			t.Fatal(got)
		}
		p.expect(t, "is")
	}
	var o order
	until(t, "the trace is complete", func() bool {
		text, err := os.ReadFile(p.trace)
		o = order{}
		for line := range bytes.Lines(text) {
			o.see(string(line))
		}
		return err == nil && o.rows == rows
	})
	for _, wrong := range o.wrong {
		t.Error(wrong)
	}
}

// order follows a trace: between the words before a row and the words after it,
// the log must have been written, and synced after its last write.
type order struct {
	rows            int
	saving          string // the row being saved
	written, synced bool
	syncing         map[string]bool // threads in a sync that began after the last write
	wrong           []string
}

func (o *order) see(line string) {
	thread, call, _ := strings.Cut(strings.TrimSpace(line), " ")
	call = strings.TrimSpace(call)
	word := regexp.MustCompile(`^write\(1<.*>, "(saving|saved) (\d+)`).FindStringSubmatch(call)
	switch {
	case word != nil && word[1] == "saving":
		*o = order{rows: o.rows, wrong: o.wrong, saving: word[2], syncing: map[string]bool{}}
	case word != nil:
		if o.saving != word[2] || !o.written || !o.synced {
			o.wrong = append(o.wrong, fmt.Sprintf("row %s is reported: written %t, synced after that %t", word[2], o.written, o.synced))
		}
		o.rows++
		o.saving = ""
	case o.saving == "":
	case strings.HasPrefix(call, "pwrite") && strings.Contains(call, "-wal>"):
		o.written, o.synced = true, false
		clear(o.syncing)
	case strings.Contains(call, "sync(") && strings.Contains(call, "-wal>"):
		o.syncing[thread] = o.written
		o.end(thread, call)
	case strings.Contains(call, "sync resumed"):
		o.end(thread, call)
	}
}

// end notes a sync that came back well, on this line or on a later one.
func (o *order) end(thread, call string) {
	if o.syncing[thread] && strings.HasSuffix(call, "= 0") {
		o.synced = true
	}
}

func TestSlowSyncHoldsTheRowUp(t *testing.T) {
	t.Parallel()
	const delay = 700 * time.Millisecond
	p := trace(t, "-e", "trace=fsync,fdatasync", "-e", fmt.Sprintf("inject=fsync,fdatasync:delay_enter=%d", delay.Microseconds()))
	for n := range 2 {
		p.next(t)
		p.expect(t, fmt.Sprintf("saving %d", n))
		ms, result, _ := strings.Cut(p.expect(t, fmt.Sprintf("saved %d ", n)), " ")
		if took, err := strconv.Atoi(ms); err != nil || result != "<nil>" || took < int(delay.Milliseconds()) {
			t.Errorf("saved (%s) after %s ms, want after the sync, which takes %s", result, ms, delay)
		}
		p.expect(t, "is")
	}
}

// TestFailedSyncIsNoSave: what the disk refused to keep is not reported as kept.
func TestFailedSyncIsNoSave(t *testing.T) {
	t.Parallel()
	p := trace(t, "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:error=EIO")
	p.next(t)
	p.expect(t, "saving 0")
	if got := p.expect(t, "saved 0 "); !strings.Contains(got, "deadline exceeded") {
		t.Errorf("saved: %s, want that it waits", got)
	}
	if got := p.expect(t, "is 0 "); !strings.Contains(got, "its disk reports an error: check the disk") {
		t.Errorf("ready: %s, want why not", got)
	}
}
