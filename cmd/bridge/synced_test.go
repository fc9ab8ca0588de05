package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"functionbridge/internal/agentsim"
)

// traceBridge starts `bridge serve` under strace, which writes down each write
// and sync with the file or socket that it goes to.
func traceBridge(t *testing.T, trace string, env ...string) *bridgeProcess {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed: nothing shows here that the row is synced before the request leaves")
	}
	if out, err := exec.Command(strace, "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		t.Skipf("strace may not trace here: %v %s", err, out)
	}
	p := &bridgeProcess{cmd: exec.Command(strace, "-f", "-y", "-s", "100000", "-o", trace,
		"-e", "trace=write,writev,pwrite64,sendto,fsync,fdatasync", os.Args[0], "serve")}
	p.cmd.Env = append(os.Environ(), append(env, asBridge+"=1")...) //nolint:forbidigo // the child's environment
	p.cmd.Stdout, p.cmd.Stderr = &p.logs, &p.logs
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // strace passes no signal on
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) })
	return p
}

// What is asked of a disk that loses power, no test by killing can show, because
// the kernel keeps what a killed process wrote: the order of the system calls does.
func TestSideEffectLeavesOnlyAfterItsRowIsSynced(t *testing.T) {
	t.Parallel()
	r, ids := newKillRig(t, agentsim.Kind(), 1, ok)
	trace := filepath.Join(t.TempDir(), "trace")
	p := traceBridge(t, trace, r.env...)
	turn := r.sim.Play(ids[0], agentsim.Step{agentsim.Call("pay", `{"cents":17}`).WithID("call_traced")})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if status, err := r.sim.WaitTurn(ctx, ids[0], turn); err != nil || status != "completed" {
		t.Fatalf("the turn is %q (%v)\n%s", status, err, p.logs.String())
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()

	var row, rowSynced, posted, answer, answerSynced, submitted int
	lines := traced(t, trace)
	for i, line := range lines {
		inLog := strings.Contains(line, "bridge.db-wal>")
		sync := inLog && strings.Contains(line, "sync(") && strings.HasSuffix(line, "= 0")
		switch {
		case inLog && strings.Contains(line, "call_traced") && strings.Contains(line, "running"):
			row = i
		case sync && row > 0 && rowSynced == 0:
			rowSynced = i
		case strings.Contains(line, "POST /pay"):
			posted = i
		case inLog && strings.Contains(line, "call_traced") && strings.Contains(line, "answered"):
			answer = i
		case sync && answer > 0 && answerSynced == 0:
			answerSynced = i
		case strings.Contains(line, "POST /v1/agents/sessions/") && strings.Contains(line, "call_traced"):
			submitted = i
		}
	}
	if row == 0 || row > rowSynced || rowSynced > posted {
		t.Errorf("the running row is written at %d and synced at %d, and the request leaves at %d of %d", row, rowSynced, posted, len(lines))
	}
	if posted > answer || answer > answerSynced || answerSynced > submitted {
		t.Errorf("the result is written at %d and synced at %d, and posted at %d of %d", answer, answerSynced, submitted, len(lines))
	}
}

// traced reads a trace as a list of whole calls in the order in which they
// ended, but for writes to sockets, whose beginning counts.
func traced(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	unfinished := regexp.MustCompile(`^(\d+) +(.*) <unfinished \.\.\.>$`)
	resumed := regexp.MustCompile(`^(\d+) +<\.\.\. \w+ resumed>(.*)$`)
	begun := map[string]string{}
	var lines []string
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		line := scanner.Text()
		if m := unfinished.FindStringSubmatch(line); m != nil {
			begun[m[1]] = m[2]
			if strings.Contains(m[2], "<socket:") || strings.Contains(m[2], "<TCP:") {
				lines = append(lines, m[2])
			}
			continue
		}
		if m := resumed.FindStringSubmatch(line); m != nil {
			line = m[1] + " " + begun[m[1]] + m[2]
		}
		lines = append(lines, line)
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}
