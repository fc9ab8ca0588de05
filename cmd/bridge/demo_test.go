package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"functionbridge/internal/demo"
)

// What the user has set up for a real bridge must neither help nor disturb.
func TestDemoComesOutAsScriptedWhateverTheEnvironment(t *testing.T) {
	t.Parallel()
	temp, work := t.TempDir(), t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "demo")
	cmd.Dir = work
	cmd.Env = append(os.Environ(), asBridge+"=1", "TMPDIR="+temp, //nolint:forbidigo // the child's environment
		"OPENAI_API_KEY=", "OPENAI_BASE_URL=http://127.0.0.1:1/v1", "OPENAI_ORG_ID=org", "OPENAI_PROJECT_ID=proj",
		"OPENAI_WEBHOOK_SECRET=x", "BRIDGE_ROUTES=/nowhere.yaml", "BRIDGE_ADDR=nonsense", "BRIDGE_SESSIONS=sess_real",
		"BRIDGE_DATABASE_URL=postgres://nowhere", "BRIDGE_MAX_CALLS=-1", "BRIDGE_ADMIN_TOKEN=secret",
		"SHOP_URL=http://127.0.0.1:1", "CARRIER_URL=http://127.0.0.1:1", "HTTP_PROXY=http://127.0.0.1:1",
	)
	var printed, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &trouble
	if err := cmd.Run(); err != nil || trouble.Len() > 0 {
		t.Fatalf("ended with %v, standard error %q, output\n%s", err, &trouble, &printed)
	}
	out := printed.String()
	for _, want := range []string{
		"Everything came out as scripted: 5 succeeded, 7 failed as they should.\n",
		"request     GET shop /customers/9007199254740993?expand=address&expand=orders\n",
		"result      error not_found after ", "status 422", "reply       none, timeout after ",
		"request     none; nothing was sent\n", "still pending when",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the trace lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("colours without a terminal")
	}
	for _, dir := range []string{temp, work} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v (error %v)", left, err)
		}
	}
}

// The demo is worth nothing as a check if it cannot fail.
func TestDemoNamesWhatCameOutOtherwise(t *testing.T) {
	t.Parallel()
	var out, logs bytes.Buffer
	show := demonstration{
		out: &out, logs: &lateWriter{to: &logs}, shop: demo.Shop(), script: demo.Script()[2:3],
		carrier: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/labels" {
				w.WriteHeader(http.StatusCreated)
				return
			}
			demo.Carrier().ServeHTTP(w, r)
		}),
	}
	err := show.run(t.Context())
	if code := report(err, io.Discard); code != 1 {
		t.Errorf("exit code %d (%v), want 1", code, err)
	}
	if want := "create_label (call_8): the agent was told success true, want false"; strings.Count(out.String(), want) != 2 {
		t.Errorf("want %q at the call and in the summary:\n%s", want, out.String())
	}
	if strings.Contains(out.String(), "track_parcel (call_7)") || !strings.Contains(logs.String(), "call forwarded") {
		t.Errorf("want create_label alone to be named, and the bridge's log:\n%s\n%s", out.String(), logs.String())
	}
}

// waitingWriter tells when a text has been written to it.
type waitingWriter struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *waitingWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *waitingWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// waitFor waits until the output matches and gives the matches' first groups.
func (w *waitingWriter) waitFor(t *testing.T, pattern string) []string {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		if found := regexp.MustCompile(pattern).FindStringSubmatch(w.String()); found != nil {
			return found
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatalf("no %s in\n%s", pattern, w.String())
		}
	}
}

func TestDemoStaysUntilItIsTold(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, done := &waitingWriter{}, make(chan int, 1)
	go func() {
		done <- run(signals{stop: ctx, hurry: t.Context()}, []string{"demo", "--stay"}, nil, out, io.Discard)
	}()
	post := out.waitFor(t, `curl -s (\S+/events) .* -d '(.*)'`)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, post[1], strings.NewReader(post[2]))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer demo", "OpenAI-Beta": "agents=v1", "Content-Type": "application/json"} {
		if !strings.Contains(out.String(), "-H '"+name+": "+value+"'") {
			t.Errorf("the curl line lacks %s", name)
		}
		request.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(request)
	if err != nil || res.StatusCode != http.StatusAccepted {
		t.Fatalf("post a message: %v %v", res, err)
	}
	_ = res.Body.Close()
	results := out.waitFor(t, `curl -s (\S+/_sim/results)`)[1]
	waitForText(t, client, results, `Rome`)
	calls := out.waitFor(t, `curl -s '(\S+/admin/calls\?limit=3)'`)[1]
	waitForText(t, client, calls, `"city":\s*"Rome".*"state":\s*"confirmed"`)
	for _, url := range regexp.MustCompile(`(?m)^    curl -s (http\S+)$`).FindAllStringSubmatch(out.String(), -1) {
		waitForText(t, client, url[1], `.`)
	}
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// waitForText reads a URL until the answer is 200 and matches.
func waitForText(t *testing.T, client *http.Client, url, pattern string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		res, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err == nil && res.StatusCode == http.StatusOK && regexp.MustCompile(`(?s)`+pattern).Match(body) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s answered %d without %s: %s", url, res.StatusCode, pattern, body)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func TestDemoStopsWhenInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, done := &waitingWriter{}, make(chan int, 1)
	go func() {
		done <- run(signals{stop: ctx, hurry: t.Context()}, []string{"demo"}, nil, out, io.Discard)
	}()
	out.waitFor(t, `sess_support, turn 1`)
	cancel()
	if code := <-done; code != 1 || strings.Contains(out.String(), "Summary") {
		t.Errorf("exit code %d, want 1 and no summary:\n%s", code, out.String())
	}
}
