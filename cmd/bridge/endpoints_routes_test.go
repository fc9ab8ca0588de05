package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
)

const richTable = `version: 1
upstreams:
  crm:
    url: SERVICE/api
    headers: { X-Key: "Key ${ENDPOINTS_TEST_SECRET}" }
  locked:
    url: SERVICE/locked
    auth: { basic: { username: bridge, password: "${ENDPOINTS_TEST_SECRET}" } }
    tls: { server_name: crm.internal }
    max_concurrent: 4
    rate_limit: 10/s
    circuit_breaker: { failures: 3, open_for: 10s }
routes:
  get_customer:
    description: Look up a customer, e.g. <17>.
    parameters:
      type: object
      required: [customer_id]
      properties: { customer_id: { type: integer, maximum: 12345678901234567890 } }
    upstream: crm
    method: GET
    path: /customers/{customer_id}
    headers: { X-User: "{session.metadata.user_id}" }
  echo: SERVICE/echo
  fail/this: SERVICE/fail
  slow: { url: SERVICE/slow, timeout: 20s }
  pay:
    upstream: locked
    path: /pay
    recover: { path: "/pay/{call.idempotency_key}" }
    on_unknown_outcome: hold
    async: true
    defer_loading: true
    max_queue: 5
    body: "{a: .b}"
    result: { success_when: .ok, output: .data, error: .message }
`

const secret = "s3cr3t-v4lue"

// speaking answers /echo with the body, /slow late, /fail with 404.
func speaking(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/slow":
		select {
		case <-time.After(400 * time.Millisecond):
			ok(w, r)
		case <-r.Context().Done():
		}
	case "/fail":
		failing(w, r)
	default:
		ok(w, r)
	}
}

func withSecret(s *settings) {
	s.LookupEnv = func(name string) (string, bool) { return secret, name == "ENDPOINTS_TEST_SECRET" }
}

func startRich(t *testing.T) (*bridgeUnderTest, *operator) {
	t.Helper()
	b := startBridge(t, agentsim.Kind(), richTable, speaking, withSecret)
	return b, newOperator(t, b.daemon)
}

func TestOperatorSeesTheRouteTableWithoutSecrets(t *testing.T) {
	t.Parallel()
	_, o := startRich(t)
	got := o.get(t, "/admin/routes").want(t, http.StatusOK)
	if strings.Contains(string(got.body), secret) {
		t.Errorf("the table shows a secret: %s", got.body)
	}
	table := got.decode(t)
	routes := table.list("routes")
	if len(routes) != 5 || table["last_reload_error"] != nil || table["revision"] == "" {
		t.Errorf("the table is %v", table)
	}
	loaded, err := time.Parse(time.RFC3339Nano, table.text("loaded_at"))
	if err != nil || time.Since(loaded).Abs() > time.Minute {
		t.Errorf("loaded_at is %v (%v)", table["loaded_at"], err)
	}
	first := routes[0]
	wantMembers(t, first, map[string]any{"name": "get_customer", "method": "GET", "upstream": "crm", "idempotent": true, "timeout": "30s"})
	if !strings.Contains(string(got.body), "Key ${ENDPOINTS_TEST_SECRET}") {
		t.Errorf("the header is not shown as it is written: %s", got.body)
	}
	locked := routes[4]
	wantMembers(t, locked.at("service").at("auth"), map[string]any{"basic.username": "[redacted]", "basic.password": "${ENDPOINTS_TEST_SECRET}"})
	wantMembers(t, locked, map[string]any{"on_unknown_outcome": "hold", "async": true})
}

func TestToolsAreTheAgentsToolsArray(t *testing.T) {
	t.Parallel()
	_, o := startRich(t)
	got := o.get(t, "/admin/tools").want(t, http.StatusOK)
	want := `[{"type":"function","name":"get_customer","description":"Look up a customer, e.g. <17>.","parameters":` +
		`{"type":"object","required":["customer_id"],"properties":{"customer_id":{"type":"integer","maximum":12345678901234567890}}}}]`
	if strings.TrimSpace(string(got.body)) != want {
		t.Errorf("tools are\n%s\nwant\n%s", got.body, want)
	}
}

func TestFunctionIsRunByHand(t *testing.T) {
	t.Parallel()
	b, o := startRich(t)
	got := o.post(t, "/admin/routes/echo/call", `{"arguments": {"n":9007199254740993, "z":1,"a":"<"}}`).want(t, http.StatusOK)
	answer := got.decode(t)
	wantMembers(t, answer.at("result"), map[string]any{"success": true, "output": `{"ok":true}`, "error": nil})
	wantMembers(t, answer.at("request"), map[string]any{"method": "POST", "url": b.service.URL + "/echo"})
	if answer["failure"] != nil || len(answer.list("attempts")) != 1 {
		t.Errorf("the answer is %s", got.body)
	}
	sent := b.service.received("/echo")
	if len(sent) != 1 || string(sent[0].body) != `{"n":9007199254740993, "z":1,"a":"<"}` || sent[0].key == "" {
		t.Errorf("the service got %q, want the arguments as they are written", sent)
	}
	if key := answer.at("request").at("headers")["Idempotency-Key"]; key != sent[0].key {
		t.Errorf("the key shown is %v, sent was %s", key, sent[0].key)
	}

	failed := o.post(t, "/admin/routes/fail%2Fthis/call", `{}`).want(t, http.StatusOK).decode(t)
	wantMembers(t, failed, map[string]any{"failure": "not_found"})
	wantMembers(t, failed.at("result"), map[string]any{"success": false, "output": nil})
	if sent := b.service.received("/fail"); len(sent) != 1 || string(sent[0].body) != "{}" {
		t.Errorf("no arguments became %q, want {}", sent)
	}
	if got := o.get(t, "/admin/calls").want(t, http.StatusOK).decode(t); len(got.list("calls")) != 0 {
		t.Errorf("a call by hand is in the journal: %v", got)
	}
}

func TestDryRunSendsNothingAndShowsNoSecret(t *testing.T) {
	t.Parallel()
	b, o := startRich(t)
	got := o.post(t, "/admin/routes/get_customer/call", `{"arguments":{"customer_id":17},"metadata":{"user_id":"u/1"},"dry_run":true}`).
		want(t, http.StatusOK)
	answer := got.decode(t)
	request := answer.at("request")
	wantMembers(t, request, map[string]any{"method": "GET", "url": b.service.URL + "/api/customers/17", "body": nil})
	wantMembers(t, request.at("headers"), map[string]any{"X-User": "u/1", "X-Key": "Key ${ENDPOINTS_TEST_SECRET}"})
	wantMembers(t, answer, map[string]any{"result": nil, "failure": nil})
	if len(answer.list("attempts")) != 0 || len(b.service.received("/api/customers/17")) != 0 {
		t.Errorf("a dry run was sent: %s", got.body)
	}
	if strings.Contains(string(got.body), secret) {
		t.Errorf("the answer shows a secret: %s", got.body)
	}
	// What cannot be built says what the agent would be told.
	for body, kind := range map[string]string{
		`{"arguments":{"customer_id":"x"},"metadata":{"user_id":"u"},"dry_run":true}`: "invalid_arguments",
		`{"arguments":[1],"metadata":{"user_id":"u"},"dry_run":true}`:                 "invalid_arguments",
		`{"arguments":{"customer_id":1},"dry_run":true}`:                              "internal",
	} {
		answer := o.post(t, "/admin/routes/get_customer/call", body).want(t, http.StatusOK).decode(t)
		wantMembers(t, answer, map[string]any{"request": nil, "failure": kind})
		if answer["result"] == nil {
			t.Errorf("%s has no result", body)
		}
	}
}

func TestBadTrialsAreRefused(t *testing.T) {
	t.Parallel()
	b, o := startRich(t)
	o.post(t, "/admin/routes/nothing/call", `{}`).want(t, http.StatusNotFound)
	o.post(t, "/admin/routes/fail/this/call", `{}`).want(t, http.StatusNotFound)
	for body, want := range map[string]int{
		``: 400, `[]`: 400, `{"args":{}}`: 400, `{"metadata":[]}`: 400, `{"metadata":{"a":1}}`: 400, `{"metadata":{"a":null}}`: 400,
		`{"dry_run":"yes"}`: 400, `{"arguments":}`: 400, `{"arguments":{},"arguments":{}}`: 400,
		`{"arguments":{"a":"` + strings.Repeat("x", 8<<20) + `"}}`: 413,
	} {
		o.post(t, "/admin/routes/echo/call", body).want(t, want)
	}
	o.do(t, http.MethodPost, "/admin/routes/echo/call", `{}`, "Content-Type", "text/plain").want(t, http.StatusUnsupportedMediaType)
	if sent := b.service.received("/echo"); len(sent) != 0 {
		t.Errorf("a refused trial was sent: %q", sent)
	}
	large := `{"arguments":{"a":"` + strings.Repeat("x", 3<<20) + `"}}`
	o.post(t, "/admin/routes/echo/call", large).want(t, http.StatusOK)
}

// A route may take longer than the server lets a request take to arrive: the
// deadline of reading must not end the call.
func TestSlowFunctionByHandOutlivesTheServersDeadlines(t *testing.T) {
	t.Parallel()
	b, o := startRich(t)
	server := &http.Server{
		Handler: b.daemon.adminEndpoints(), ReadTimeout: 100 * time.Millisecond, WriteTimeout: 100 * time.Millisecond,
	}
	pipe := agentsim.NewPipe()
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(pipe) }()
	transport := &http.Transport{DialContext: pipe.DialContext}
	t.Cleanup(func() { transport.CloseIdleConnections(); _ = server.Close(); <-served })
	o.client = &http.Client{Transport: transport}
	answer := o.send(t, http.MethodPost, "http://localhost/admin/routes/slow/call", `{}`, "Content-Type", "application/json").
		want(t, http.StatusOK).decode(t)
	wantMembers(t, answer, map[string]any{"failure": nil})
}

// No secret of the table is in any answer or metric, also when a service echoes it.
func TestNoAnswerShowsASecret(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), richTable, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "your key "+r.Header.Get("X-Key")+" is wrong")
	}, withSecret)
	o := newOperator(t, b.daemon)
	id := b.sim.CreateSession(agentsim.SessionSpec{Metadata: map[string]string{"user_id": "u"}})
	o.post(t, "/admin/sessions", `{"session_id":"`+id+`"}`).want(t, http.StatusOK)
	turn := b.sim.Play(id, agentsim.Step{agentsim.Call("get_customer", `{"customer_id":1}`).WithID("c")})
	b.waitState(t, journal.Key{SessionID: id, TurnID: turn, CallID: "c"}, journal.Confirmed)
	call := o.get(t, "/admin/calls/"+pathOf(id, turn, "c")).want(t, http.StatusOK)
	if !strings.Contains(string(call.body), "is wrong") {
		t.Errorf("the detail is missing: %s", call.body)
	}
	trial, err := json.Marshal(map[string]any{"arguments": map[string]int{"customer_id": 1}, "metadata": map[string]string{"user_id": "u"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []reply{
		call, o.get(t, "/admin/calls"), o.get(t, "/admin/sessions"), o.get(t, "/admin/routes"), o.get(t, "/metrics"),
		o.post(t, "/admin/routes/get_customer/call", string(trial)),
	} {
		if strings.Contains(string(got.want(t, http.StatusOK).body), secret) {
			t.Errorf("an answer shows a secret: %s", got.body)
		}
	}
}
