package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"functionbridge/internal/agentsim"
)

// lockedBuffer takes a command's output while the test reads it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// startSimulate runs `bridge simulate` until the test ends and gives what it printed; stop waits for its end.
func startSimulate(t *testing.T, args ...string) (printed string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := &lockedBuffer{}
	cmd := newSimulateCmd()
	cmd.SetArgs(append([]string{"--addr", "127.0.0.1:0"}, args...))
	cmd.SetOut(out)
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if text := out.String(); strings.Contains(text, "/admin/calls") {
			return text, stop
		}
		select {
		case err := <-ended:
			t.Fatalf("simulate ended: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	t.Fatal("simulate printed nothing")
	return "", nil
}

// The requests that the command prints work as they stand, but for the bridge's own.
func TestSimulatePrintsRequestsThatWork(t *testing.T) {
	t.Parallel()
	printed, stop := startSimulate(t)
	var session string
	for _, line := range regexp.MustCompile(`(?m)curl -s (http://127\.0\.0\.1:\d+/v1\S+) .* -d '([^']+)'`).FindAllStringSubmatch(printed, -1) {
		status, body := send(t, http.MethodPost, strings.ReplaceAll(line[1], "$SESSION", session), line[2])
		if status != 201 && status != 202 {
			t.Errorf("%s: %d %s", line[1], status, body)
		}
		if m := regexp.MustCompile(`^{"id":"([^"]*)"`).FindStringSubmatch(body); m != nil {
			session = m[1]
		}
	}
	base := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(printed)
	if !strings.Contains(printed, "export OPENAI_BASE_URL="+base+"/v1\n") || !strings.Contains(printed, "export OPENAI_API_KEY=sim\n") {
		t.Errorf("the exports are missing:\n%s", printed)
	}
	status, body := send(t, http.MethodGet, base+"/v1/agents/sessions/"+session, "")
	if status != 200 || !strings.Contains(body, `"name":"get_weather","arguments":{"city":"Oslo"}`) {
		t.Errorf("the session after the printed message: %d %s", status, body)
	}
	if err := stop(); err != nil {
		t.Errorf("simulate ended with %v, want nil", err)
	}
}

func TestSimulatePlaysAScript(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "turns.yaml")
	text := "turns:\n  - message: 'call from_script {}'\nfaults:\n  - {kind: status, on: list_sessions, status: 429}\n"
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	printed, _ := startSimulate(t, "--script", script, "--mode", "hostile-other")
	base := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(printed)
	if status, _ := send(t, http.MethodGet, base+"/v1/agents/sessions", ""); status != 429 {
		t.Errorf("the script's fault does not strike: %d", status)
	}
	_, body := send(t, http.MethodPost, base+"/v1/agents/sessions", `{"agent":{"model":"m"},"environment":{"type":"none"},"input":"Hello."}`)
	if !strings.Contains(body, `"name":"from_script"`) {
		t.Errorf("the script's turn is not played: %s", body)
	}
}

// The script in the help is one that can be run.
func TestSimulateHelpShowsAScriptThatIsRead(t *testing.T) {
	t.Parallel()
	_, script, found := strings.Cut(newSimulateCmd().Long, "and faults:\n")
	if !found {
		t.Fatal("the help shows no script")
	}
	got, err := agentsim.ParseScript("help", []byte(script))
	if err != nil || len(got.Turns) != 2 || len(got.Faults) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSimulateHelpNamesEveryMode(t *testing.T) {
	t.Parallel()
	modes, _, _ := strings.Cut(newSimulateCmd().Long, "A user message")
	for mode := range agentsim.Positions() {
		if !strings.Contains(modes, "\n  "+mode+"  ") {
			t.Errorf("%s is missing in\n%s", mode, modes)
		}
	}
	if !strings.Contains(newSimulateCmd().Long, agentsim.FaultHelp()) {
		t.Error("the faults are missing")
	}
}

func TestSimulateRefusesBadUsage(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("turns: 1\nfautls: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--mode", "nice"}, "choose one of hostile, hostile-other, kind"},
		{[]string{"--script", bad + "x"}, "no such file"},
		{[]string{"--script", bad}, "bad.yaml:1:8: want a list\nbridge: " + bad + ":2:1: unknown key"},
	} {
		var errOut bytes.Buffer
		s := signals{stop: t.Context(), hurry: t.Context()}
		code := run(s, append([]string{"simulate"}, tt.args...), nil, io.Discard, &errOut)
		if code != 2 || !strings.Contains(errOut.String(), tt.want) {
			t.Errorf("%v: exit %d, %s", tt.args, code, errOut.String())
		}
	}
}

func send(t *testing.T, method, url, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sim")
	req.Header.Set("OpenAI-Beta", "agents=v1")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}
