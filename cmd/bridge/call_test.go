package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// command runs one command line as main does.
func command(t *testing.T, stdin string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(signals{stop: t.Context(), hurry: t.Context()}, args, strings.NewReader(stdin), &o, &e)
	return code, o.String(), e.String()
}

// callBench is a route table with a service that remembers its requests.
type callBench struct {
	routes string

	mu       sync.Mutex
	requests []*http.Request
	bodies   []string
}

func newCallBench(t *testing.T, table string, answer http.HandlerFunc) *callBench {
	t.Helper()
	b := &callBench{routes: filepath.Join(t.TempDir(), "routes.yaml")}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.requests, b.bodies = append(b.requests, r), append(b.bodies, string(body))
		b.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	if err := os.WriteFile(b.routes, []byte(strings.ReplaceAll(table, "SERVICE", server.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *callBench) received() ([]*http.Request, []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests, b.bodies
}

const greetTable = "version: 1\nroutes:\n  greet: SERVICE/greet\n"

func hello(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"hello": 1}`))
}

func TestCallPrintsTheToolResultOfASuccess(t *testing.T) {
	t.Parallel()
	b := newCallBench(t, greetTable, hello)
	code, out, errOut := command(t, "", "call", "--routes", b.routes, "greet", `{"id":9007199254740993,  "n":1.0}`)
	if code != 0 || errOut != "" {
		t.Fatalf("exit code %d, standard error %q; want 0 and nothing", code, errOut)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("printed %q: %v", out, err)
	}
	turn, _ := got["turn_id"].(string)
	call, _ := got["call_id"].(string)
	if got["type"] != "agent.session.input.tool_result" || got["success"] != true || got["output"] != `{"hello": 1}` ||
		!strings.HasPrefix(turn, "turn_") || !strings.HasPrefix(call, "call_") || len(got) != 5 {
		t.Errorf("printed %s, want the tool_result of the reply", out)
	}
	requests, bodies := b.received()
	if len(requests) != 1 || bodies[0] != `{"id":9007199254740993,  "n":1.0}` || requests[0].Header.Get("Bridge-Call-Id") != call {
		t.Errorf("the service got %q, want the arguments once, byte for byte", bodies)
	}
}

func TestCallReadsArgumentsFromStandardInput(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"nothing": nil, "dash": {"-"}} {
		for input, want := range map[string]string{"{\"a\": 1}\n": `{"a": 1}`, "": `{}`, " \n": `{}`, `"{\"a\":1.0}"`: `{"a":1.0}`} {
			t.Run(name+" "+input, func(t *testing.T) {
				t.Parallel()
				b := newCallBench(t, greetTable, hello)
				code, _, _ := command(t, input, append([]string{"call", "--routes", b.routes, "greet"}, args...)...)
				if _, bodies := b.received(); code != 0 || len(bodies) != 1 || bodies[0] != want {
					t.Errorf("exit code %d, the service got %q; want 0 and %s", code, bodies, want)
				}
			})
		}
	}
}

func TestCallHasNewIdsAndKeyEachTime(t *testing.T) {
	t.Parallel()
	b := newCallBench(t, greetTable, hello)
	for range 2 {
		command(t, "", "call", "--routes", b.routes, "greet", "{}")
	}
	requests, _ := b.received()
	for _, header := range []string{"Idempotency-Key", "Bridge-Session-Id", "Bridge-Turn-Id", "Bridge-Call-Id"} {
		first, second := requests[0].Header.Get(header), requests[1].Header.Get(header)
		if first == "" || first == second {
			t.Errorf("%s is %q and %q, want two different ones", header, first, second)
		}
	}
}

func TestCallSendsTheGivenKeyAndMetadata(t *testing.T) {
	t.Parallel()
	b := newCallBench(t, "version: 1\nroutes:\n  greet:\n    url: SERVICE/greet\n    headers: {X-User: \"{session.metadata.user_id}\"}\n", hello)
	code, _, errOut := command(t, "", "call", "--routes", b.routes, "--idempotency-key", "key-1", "--metadata", "user_id=a=b", "--metadata", "x=", "greet", "{}")
	requests, _ := b.received()
	if code != 0 || len(requests) != 1 {
		t.Fatalf("exit code %d, %d requests, standard error %q", code, len(requests), errOut)
	}
	if key, user := requests[0].Header.Get("Idempotency-Key"), requests[0].Header.Get("X-User"); key != "key-1" || user != "a=b" {
		t.Errorf("the service got key %q and user %q, want key-1 and a=b", key, user)
	}
}

func TestCallExitsWith1WhenTheAgentGetsAFailure(t *testing.T) {
	t.Parallel()
	missing := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"detail":"No such thing."}`))
	}
	for name, test := range map[string]struct {
		function, args, sentence string
		requests                 int
	}{
		"the service refuses":     {"greet", `{}`, "No such thing.", 1},
		"no such function":        {"great", `{}`, "greet", 0},
		"arguments are not JSON":  {"greet", `{"a":`, "not valid JSON", 0},
		"arguments are no object": {"greet", `[1]`, "a list", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newCallBench(t, greetTable, missing)
			code, out, _ := command(t, "", "call", "--routes", b.routes, test.function, test.args)
			var got struct {
				Success *bool
				Error   string
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil || got.Success == nil {
				t.Fatalf("printed %q, want a tool_result (%v)", out, err)
			}
			requests, _ := b.received()
			if code != 1 || *got.Success || !strings.Contains(got.Error, test.sentence) || len(requests) != test.requests {
				t.Errorf("exit code %d, %d requests, %+v; want 1, %d and %q", code, len(requests), got, test.requests, test.sentence)
			}
		})
	}
}

func TestCallOfAnUnknownFunctionNamesTheTable(t *testing.T) {
	b := newCallBench(t, greetTable, hello)
	for name, want := range map[string]string{
		"great":   "bridge: " + b.routes + " has no route \"great\" (did you mean greet?); name another table with --routes or BRIDGE_ROUTES\n",
		"weather": "bridge: " + b.routes + " has no route \"weather\"; name another table with --routes or BRIDGE_ROUTES\n",
	} {
		code, out, errOut := command(t, "", "call", "--routes", b.routes, name, "{}")
		if code != 1 || !strings.Contains(out, `"success":false`) || errOut != want {
			t.Errorf("exit code %d, printed %q and %q; want 1, a tool_result and %q", code, out, errOut, want)
		}
		t.Setenv("BRIDGE_ROUTES", b.routes)
		if _, _, errOut = command(t, "", "call", name, "{}"); errOut != want {
			t.Errorf("with BRIDGE_ROUTES: printed %q, want %q", errOut, want)
		}
	}
}

func TestCallDryRunShowsTheRequestAndSendsNothing(t *testing.T) {
	const secret = "s3cr3t-value"
	t.Setenv("CALL_TEST_TOKEN", secret)
	b := newCallBench(t, `version: 1
routes:
  find:
    url: SERVICE/things/{id}{?q}
    headers: {X-Token: "${CALL_TEST_TOKEN}"}
    idempotent: true
`, hello)
	code, out, errOut := command(t, "", "call", "--dry-run", "--routes", b.routes, "find", `{"id":"a/b","q":"x y"}`)
	requests, _ := b.received()
	if code != 0 || errOut != "" || len(requests) != 0 {
		t.Fatalf("exit code %d, %d requests, standard error %q; want 0 and none", code, len(requests), errOut)
	}
	for _, want := range []string{
		"/things/a%2Fb?q=x%20y\n", "\nX-Token: ${CALL_TEST_TOKEN}\n", "\nIdempotency-Key: ", "\nContent-Type: application/json\n",
		"\n\n{\"id\":\"a/b\",\"q\":\"x y\"}\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the request lacks %q:\n%s", want, out)
		}
	}
	if !strings.HasPrefix(out, "POST http://127.0.0.1:") || strings.Contains(out, secret) {
		t.Errorf("want the method and URL first and no secret:\n%s", out)
	}
}

func TestCallDryRunOfUnusableArgumentsPrintsTheToolResult(t *testing.T) {
	t.Parallel()
	b := newCallBench(t, "version: 1\nroutes:\n  find: {url: \"SERVICE/{id}\", method: GET}\n", hello)
	code, out, _ := command(t, "", "call", "--dry-run", "--routes", b.routes, "find", `{}`)
	if requests, _ := b.received(); code != 1 || len(requests) != 0 || !strings.Contains(out, `"success":false`) {
		t.Errorf("exit code %d, printed %q; want 1 and a tool_result", code, out)
	}
}

func TestCallExitsWith2OnBadUsage(t *testing.T) {
	t.Parallel()
	b := newCallBench(t, greetTable, hello)
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("version: 1\nroutes:\n  greet: {url: 7}\n  other: nowhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"no name":           {[]string{"--routes", b.routes}, "NAME is missing"},
		"too many":          {[]string{"--routes", b.routes, "greet", "{}", "{}"}, "got 3"},
		"unknown flag":      {[]string{"--routs", b.routes, "greet", "{}"}, "--routs"},
		"no table":          {[]string{"--routes", bad + ".not", "greet", "{}"}, "no such file"},
		"bad table":         {[]string{"--routes", bad, "greet", "{}"}, "bad.yaml:4:10: "},
		"metadata no pair":  {[]string{"--routes", b.routes, "--metadata", "user", "greet", "{}"}, "key=value"},
		"key with a blank":  {[]string{"--routes", b.routes, "--idempotency-key", "a b", "greet", "{}"}, "--idempotency-key"},
		"key with new line": {[]string{"--routes", b.routes, "--idempotency-key", "a\n", "greet", "{}"}, "--idempotency-key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := command(t, "", append([]string{"call"}, test.args...)...)
			if code != 2 || out != "" || !strings.Contains(errOut, test.says) {
				t.Errorf("exit code %d, printed %q and %q; want 2 and %q", code, out, errOut, test.says)
			}
		})
	}
	if requests, _ := b.received(); len(requests) != 0 {
		t.Errorf("the service got %d requests, want none", len(requests))
	}
}

// The same call goes through the admin API in serve; here it must leave nothing behind.
func TestCallLeavesNoFile(t *testing.T) {
	b := newCallBench(t, greetTable, hello)
	t.Chdir(filepath.Dir(b.routes))
	if code, _, errOut := command(t, "", "call", "greet", "{}"); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	entries, err := os.ReadDir(".")
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v (error %v), want routes.yaml alone", entries, err)
	}
}

// What a service sends after its reply is not printed, by nobody. In a process
// of its own, because net/http would print it to the process's standard error.
func TestCallPrintsNothingOfWhatFollowsAReply(t *testing.T) {
	t.Parallel()
	replies := []string{
		"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\nsurplus-secret", // time to print it, in the pause
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok",
	}
	var n atomic.Int64
	b := newCallBench(t, "version: 1\nroutes:\n  greet: {url: SERVICE/greet, retry: {attempts: 2, min_wait: 200ms, max_wait: 200ms}}\n",
		func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			_, _ = io.WriteString(c, replies[min(int(n.Add(1)), len(replies))-1])
			_, _ = c.Read(make([]byte, 1)) // until the bridge has left
		})
	child := exec.CommandContext(t.Context(), os.Args[0], "call", "--routes", b.routes, "greet", "{}")
	child.Env = append(child.Environ(), asBridge+"=1")
	var out, errOut bytes.Buffer
	child.Stdout, child.Stderr = &out, &errOut
	if err := child.Run(); err != nil || !strings.Contains(out.String(), `"output":"ok"`) || errOut.Len() > 0 {
		t.Errorf("%v, printed %q and %q; want the tool_result alone", err, out.String(), errOut.String())
	}
}

// After an interrupt no result is made up; what is known of the attempts is told.
func TestCallThatIsInterrupted(t *testing.T) {
	t.Parallel()
	busy := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "20")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	for name, test := range map[string]struct {
		after  time.Duration // 0 is before the call
		answer http.HandlerFunc
		says   string
	}{
		"before anything was sent": {0, hello, "interrupted before anything was sent"},
		"while the service works":  {100 * time.Millisecond, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "not known whether"},
		"while it pauses":          {100 * time.Millisecond, busy, "attempt 1: status 429"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			if test.after == 0 {
				interrupt()
			}
			b := newCallBench(t, greetTable, func(w http.ResponseWriter, r *http.Request) {
				time.AfterFunc(test.after, interrupt)
				test.answer(w, r)
			})
			var out, errOut bytes.Buffer
			code := run(signals{stop: ctx, hurry: ctx}, []string{"call", "--routes", b.routes, "greet", "{}"}, strings.NewReader(""), &out, &errOut)
			requests, _ := b.received()
			if code != 1 || out.Len() != 0 || !strings.Contains(errOut.String(), test.says) || (len(requests) == 0) != (test.after == 0) {
				t.Errorf("exit code %d after %d requests, printed %q and %q", code, len(requests), out.String(), errOut.String())
			}
		})
	}
}

func TestCallThatWaitsForItsArgumentsCanBeInterrupted(t *testing.T) {
	t.Parallel()
	b := newCallBench(t, greetTable, hello)
	ctx, interrupt := context.WithCancel(t.Context())
	in, typing := io.Pipe()
	defer func() { _ = typing.Close() }()
	var out, errOut bytes.Buffer
	done := make(chan int)
	go func() {
		done <- run(signals{stop: ctx, hurry: ctx}, []string{"call", "--routes", b.routes, "greet"}, in, &out, &errOut)
	}()
	if _, err := io.WriteString(typing, "{"); err != nil { // taken: it reads
		t.Fatal(err)
	}
	interrupt()
	if code := <-done; code != 1 || out.Len() != 0 || !strings.Contains(errOut.String(), "interrupted before anything was sent") {
		t.Errorf("exit code %d, printed %q and %q", code, out.String(), errOut.String())
	}
}
