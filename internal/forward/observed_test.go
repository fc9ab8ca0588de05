package forward_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

func TestMetricsOfCallsAndAttempts(t *testing.T) {
	t.Parallel()
	n := 0
	up := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if n++; n == 1 {
			w.WriteHeader(503)
		}
	})
	b := newBench(t, table("get: { url: "+up.URL+", idempotent: true }"))
	b.run(t, "get", `{}`)
	b.run(t, "get", `[]`)
	b.run(t, "secret-name-that-a-model-made-up", `{}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = b.Forward(ctx, b.call("get", `{}`), journal.Session{}, &recorder{}) // has no outcome
	b.Try(t.Context(), forward.Trial{Function: "get", DryRun: true})

	want := strings.NewReader(`
# HELP bridge_calls_total Calls whose outcome became known, by function and outcome.
# TYPE bridge_calls_total counter
bridge_calls_total{function="_unknown",outcome="unknown_function"} 1
bridge_calls_total{function="get",outcome="invalid_arguments"} 1
bridge_calls_total{function="get",outcome="success"} 1
# HELP bridge_calls_in_flight Upstream requests under way.
# TYPE bridge_calls_in_flight gauge
bridge_calls_in_flight 0
# HELP bridge_upstream_attempts_total Finished upstream requests, by function and HTTP status (or error, timeout); recover_… for questions about a lost one.
# TYPE bridge_upstream_attempts_total counter
bridge_upstream_attempts_total{code="200",function="get"} 1
bridge_upstream_attempts_total{code="503",function="get"} 1
`)
	if err := testutil.GatherAndCompare(nonZero{b.registry}, want,
		"bridge_calls_total", "bridge_calls_in_flight", "bridge_upstream_attempts_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(b.registry, "bridge_calls_total"); err != nil || n != 2*(1+len(journal.Kinds())) {
		t.Errorf("%d series of bridge_calls_total (%v): every outcome is to have one from the start", n, err)
	}
	if got := timed(t, b); !maps.Equal(got, map[string]uint64{"get": 2, "_unknown": 1}) {
		t.Errorf("bridge_call_duration_seconds counts %v", got)
	}
}

// timed is how many calls of each function bridge_call_duration_seconds counts.
func timed(t *testing.T, b *bench) map[string]uint64 {
	t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, f := range families {
		if f.GetName() == "bridge_call_duration_seconds" {
			for _, m := range f.GetMetric() {
				counts[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
			}
		}
	}
	return counts
}

func TestOneLogLineAnAttempt(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(404, "text/plain", "no"))
	b := newBench(t, table("get: \""+up.URL+"/path?q=secret\""))
	b.run(t, "get", `{"body":"secret"}`)
	var line map[string]any
	if err := json.Unmarshal([]byte(b.log.String()), &line); err != nil {
		t.Fatalf("%v in %s", err, b.log.String())
	}
	for key, want := range map[string]any{
		"level": "INFO", "msg": "call forwarded", "session_id": "sess_1", "turn_id": "turn_1", "call_id": "call_1",
		"function": "get", "attempt": 1.0, "outcome": "not_found", "status": 404.0,
	} {
		if line[key] != want {
			t.Errorf("%s = %v, want %v", key, line[key], want)
		}
	}
	if _, ok := line["duration_ms"].(float64); !ok || strings.Contains(b.log.String(), "secret") || strings.Contains(b.log.String(), "/path") {
		t.Errorf("line = %s", b.log.String())
	}
}

func TestCallWithoutARequestHasItsLineToo(t *testing.T) {
	t.Parallel()
	b := newBench(t, table("pay: http://x.test"))
	running := b.call("pay", `{}`)
	running.State = journal.Running
	for _, test := range []struct {
		call           journal.Call
		level, outcome string
		message        string
	}{
		{b.call("pay", `[]`), "INFO", "invalid_arguments", "call answered without a request"},
		{b.call("nobody", `{}`), "INFO", "unknown_function", "call answered without a request"},
		{running, "WARN", "unknown_outcome", "call answered without another request; an earlier process had sent it"},
	} {
		before := len(b.log.String())
		if _, err := b.Forward(t.Context(), test.call, journal.Session{}, &recorder{}); err != nil {
			t.Fatal(err)
		}
		var line map[string]any
		if err := json.Unmarshal([]byte(b.log.String()[before:]), &line); err != nil {
			t.Fatalf("%v in %s", err, b.log.String()[before:])
		}
		if line["msg"] != test.message || line["level"] != test.level || line["outcome"] != test.outcome || line["call_id"] != "call_1" {
			t.Errorf("%s: line %v", test.outcome, line)
		}
	}
}

func TestPlanOfAFunction(t *testing.T) {
	t.Parallel()
	routes := "routes:\n  get: { url: http://x.test, method: GET }\n  pay: http://x.test\n"
	ignoring := newBench(t, "version: 1\nunknown_function: ignore\n"+routes)
	failing := newBench(t, "version: 1\n"+routes)
	for function, want := range map[string]journal.Plan{"get": {Idempotent: true}, "pay": {}, "Pay": {Ignore: true}} {
		if got := ignoring.Plan(function); got != want {
			t.Errorf("Plan(%q) = %+v, want %+v", function, got, want)
		}
	}
	if got := failing.Plan("Pay"); got != (journal.Plan{}) {
		t.Errorf("Plan of an unknown function = %+v", got)
	}
}

func TestNamesAreDifferentFunctions(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "ok"))
	b := newBench(t, table("crm.find: "+up.URL+"/1", "crm_find: "+up.URL+"/2", "CRM.find: "+up.URL+"/3"))
	for function, uri := range map[string]string{"crm.find": "/1", "crm_find": "/2", "CRM.find": "/3"} {
		before := len(up.requests())
		b.run(t, function, `{}`)
		if got := up.requests()[before:]; len(got) != 1 || got[0].uri != uri || got[0].header.Get("Bridge-Function") != function {
			t.Errorf("%s: %+v", function, got)
		}
	}
}

func TestTryRunsACallWithoutJournal(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "application/json", `{"ok":true}`))
	b := newBench(t, table("get: { url: \""+up.URL+"/c{?id}&cost=$$5\", method: PUT, headers: { X-Key: \"Bearer ${TOKEN}\", Accept: text/csv } }"))

	tried := b.Try(t.Context(), forward.Trial{Function: "get", Arguments: []byte(`{"id":7,"n":1.0}`), IdempotencyKey: "mine"})

	if tried.Outcome == nil || *tried.Outcome != journal.Success(`{"ok":true}`) || len(tried.Attempts) != 1 || tried.Attempts[0].Status != 200 {
		t.Errorf("tried = %+v", tried)
	}
	sent := up.requests()[0]
	shown := tried.Request
	if shown.Method != "PUT" || shown.URL != up.URL+"/c?id=7&cost=$5" || string(shown.Body) != `{"id":7,"n":1.0}` {
		t.Errorf("request = %+v", shown)
	}
	if sent.uri != "/c?id=7&cost=$5" && sent.uri != "/c?id=7&cost=%245" {
		t.Errorf("sent to %s", sent.uri)
	}
	if shown.Headers["X-Key"] != "Bearer ${TOKEN}" || sent.header.Get("X-Key") != "Bearer "+secrets()["TOKEN"] {
		t.Errorf("key shown as %q, sent as %q", shown.Headers["X-Key"], sent.header.Get("X-Key"))
	}
	delete(shown.Headers, "X-Key")
	for name, value := range shown.Headers {
		if sent.header.Get(name) != value {
			t.Errorf("%s shown as %q, sent as %q", name, value, sent.header.Get(name))
		}
	}
	if sent.header.Get("Idempotency-Key") != "mine" || sent.header.Get("Bridge-Call-Id") == "" {
		t.Errorf("sent %+v", sent.header)
	}

	again := b.Try(t.Context(), forward.Trial{Function: "get", Arguments: []byte(`{"id":7}`)})
	last := b.Try(t.Context(), forward.Trial{Function: "get", Arguments: []byte(`{"id":7}`)})
	if a, c := again.Request.Headers["Idempotency-Key"], last.Request.Headers["Idempotency-Key"]; a == c || len(a) < 20 {
		t.Errorf("two trials have the keys %q and %q", a, c)
	}
}

// A trial that is stopped has no outcome, and its attempt is no timeout.
func TestATrialThatIsStoppedHasNoOutcome(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancelCause(t.Context())
	up := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		stop(io.ErrClosedPipe)
		<-r.Context().Done()
	})
	b := newBench(t, table("act: "+up.URL))
	tried := b.Try(ctx, forward.Trial{Function: "act"})
	if tried.Outcome != nil || !errors.Is(tried.Stopped, io.ErrClosedPipe) || len(tried.Attempts) != 1 || tried.Attempts[0].Error != "stopped" {
		t.Errorf("tried = %+v", tried)
	}
}

func TestDryRunSendsNothing(t *testing.T) {
	t.Parallel()
	up := serve(t, nil)
	b := newBench(t, table("get: { url: \""+up.URL+"\", method: GET }"))
	tried := b.Try(t.Context(), forward.Trial{Function: "get", Arguments: []byte(`{"q":"a b"}`), DryRun: true})
	if tried.Outcome != nil || tried.Request == nil || tried.Request.URL != up.URL+"?q=a%20b" || string(tried.Request.Body) != "null" {
		t.Errorf("tried = %+v, %+v", tried, tried.Request)
	}
	if _, ok := tried.Request.Headers["Content-Type"]; ok {
		t.Error("a request without a body has a Content-Type")
	}
	hidden := newBench(t, table(`get: { url: "http://user:pa55-word@x.test/$$a?k=${TOKEN}", headers: { X-Cost: "5$$ ${TOKEN}" } }`))
	tried = hidden.Try(t.Context(), forward.Trial{Function: "get", DryRun: true})
	if tried.Request.URL != "http://[redacted]@x.test/$a?k=${TOKEN}" || tried.Request.Headers["X-Cost"] != "5$ ${TOKEN}" {
		t.Errorf("request = %+v", tried.Request)
	}
	tried = b.Try(t.Context(), forward.Trial{Function: "get", Arguments: []byte(`[]`), DryRun: true})
	if tried.Request != nil || tried.Outcome == nil || tried.Outcome.Failure != journal.InvalidArguments {
		t.Errorf("tried = %+v", tried)
	}
	if len(up.requests()) != 0 {
		t.Error("a dry run sent something")
	}
}

func TestIdsAreHeaderSafe(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "ok"))
	b := newBench(t, table("act: "+up.URL))
	call := b.call("act", `{}`)
	call.SessionID, call.TurnID, call.CallID = "s\r\nX-Evil: 1", "t é%", "plain-id_1"
	if o, err := b.Forward(t.Context(), call, journal.Session{}, &recorder{}); !o.Success || err != nil {
		t.Fatalf("%+v, %v", o, err)
	}
	got := up.requests()[0].header
	if got.Get("Bridge-Session-Id") != "s%0D%0AX-Evil:%201" || got.Get("Bridge-Turn-Id") != "t%20%C3%A9%25" ||
		got.Get("Bridge-Call-Id") != "plain-id_1" || got.Get("X-Evil") != "" {
		t.Errorf("header = %v", got)
	}
}
