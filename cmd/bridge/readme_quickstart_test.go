package main

import (
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// freePort finds a port that no other program is given by chance: those of
// outgoing connections begin at 32768.
func freePort(t *testing.T) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(20000 + rand.N(10000))
		if listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:"+port); err == nil {
			_ = listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// quickStart runs the README's lines in a folder of their own, on free ports.
type quickStart struct {
	dir    string
	blocks []string
	api    string
	public string
	admin  string
}

func newQuickStart(t *testing.T) *quickStart {
	t.Helper()
	q := &quickStart{dir: t.TempDir(), api: freePort(t), public: freePort(t), admin: freePort(t)}
	ports := strings.NewReplacer("make build\n", "", "bridge simulate", "bridge simulate --addr 127.0.0.1:"+q.api,
		":8090", ":"+q.api, ":8080", ":"+q.public, ":8081", ":"+q.admin)
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section(t, "Quick start"), -1) {
		q.blocks = append(q.blocks, ports.Replace(block[1]))
	}
	if len(q.blocks) != 4 {
		t.Fatalf("the quick start has %d blocks, want 4", len(q.blocks))
	}
	program := "#!/bin/sh\n" + asBridge + "=1 exec '" + os.Args[0] + "' \"$@\"\n"
	if err := os.MkdirAll(filepath.Join(q.dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(q.dir, "bin", "bridge"), []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	return q
}

// shell makes a terminal that runs a block.
func (q *quickStart) shell(block int) *exec.Cmd {
	cmd := exec.Command("bash", "-c", "set -e\n"+q.blocks[block])
	cmd.Dir = q.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), //nolint:forbidigo // where curl and sed are
		"BRIDGE_ADDR=127.0.0.1:" + q.public, "BRIDGE_ADMIN_ADDR=127.0.0.1:" + q.admin,
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// start runs a block that does not end by itself until the test does.
func (q *quickStart) start(t *testing.T, block int) *waitingWriter {
	t.Helper()
	out := &waitingWriter{}
	cmd := q.shell(block)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	return out
}

func (q *quickStart) output(t *testing.T, block int) string {
	t.Helper()
	out, err := q.shell(block).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, out, q.blocks[block])
	}
	return string(out)
}

func TestReadmeQuickStartWorks(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "curl", "sed"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the quick start needs %s", program)
		}
	}
	q := newQuickStart(t)
	q.start(t, 0).waitFor(t, `Ctrl-C stops it`)
	serve := q.start(t, 1)
	serve.waitFor(t, `bridge started`)
	if !strings.Contains(serve.String(), "try/routes.yaml: 1 route, valid\n") {
		t.Errorf("the table is not said to be valid:\n%s", serve.String())
	}
	q.output(t, 2)
	deadline := time.Now().Add(20 * time.Second)
	for {
		got := q.output(t, 3)
		claims := []string{`"success":true,"output":"{\"status\":\"ok\"}\n"`, `"state":"confirmed"`}
		if strings.Contains(got, claims[0]) && strings.Contains(got, claims[1]) {
			for _, claim := range claims {
				if !strings.Contains(section(t, "Quick start"), "`"+claim+"`") {
					t.Errorf("the README does not say %s", claim)
				}
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the call does not come back:\n%s\n%s", got, serve.String())
		}
		<-time.After(20 * time.Millisecond)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	waitForText(t, client, "http://127.0.0.1:"+q.public+"/readyz", `"ready"`)
}
