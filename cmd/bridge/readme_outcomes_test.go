package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// ordersTable has the two routes that the README's sentences are about.
const ordersTable = `version: 1
defaults:
  timeout: 1s
  attempt_timeout: ATTEMPT
  retry: { min_wait: 1ms, max_wait: 2ms }
routes:
  get_order:
    url: SCHEME://orders:8080/orders/{order_id}
    method: GET
    parameters:
      type: object
      properties: { order_id: { type: integer }, verbose: { type: boolean } }
      required: [order_id]
      additionalProperties: false
  get_file: { url: "SCHEME://orders:8080/files/{name}", method: GET, headers: { X-User-Id: "{session.metadata.user_id}" } }
  refund_order:
    url: SCHEME://orders:8080/orders/{order_id}/refunds
    result: { max_bytes: 1000 }
`

// orders is a service that does one thing, and what is asked of it.
type orders struct {
	answer http.HandlerFunc
	// unreachable: nothing listens. secure: it speaks TLS, with a certificate that nobody knows.
	unreachable, secure bool
	// attemptTimeout is the route's; empty is its timeout of one second.
	attemptTimeout string
	// args are {"order_id":17} when empty.
	args string
	// metadata is the session's.
	metadata map[string]string
	// state is the call's; running means that an earlier process sent it.
	state journal.State
}

// tried is what became of a call and how many requests the service got.
type tried struct {
	outcome  journal.Outcome
	attempts int
}

// run calls a function whose service is o.
func (o orders) run(t *testing.T, function string) tried {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.answer(w, r) }))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	scheme := "http"
	if o.secure {
		scheme = "https"
		server.StartTLS()
	} else {
		server.Start()
	}
	defer server.Close()
	if o.unreachable {
		server.Close()
	}
	fill := strings.NewReplacer("SCHEME", scheme, "ATTEMPT", cmpOr(o.attemptTimeout, "1s"))
	table, err := router.Parse("routes.yaml", []byte(fill.Replace(ordersTable)), router.Env{})
	if err != nil {
		t.Fatal(err)
	}
	forwarder := forward.New(forward.Config{
		Table: func() *router.Table { return table }, Logger: slog.New(slog.DiscardHandler),
		Transport: forward.Transport{Dial: dialOnly(server.Listener.Addr().String())},
	})
	defer forwarder.Close()
	notes := &attemptCount{}
	call := journal.Call{
		Key:      journal.Key{SessionID: "sess_1", TurnID: "turn_1", CallID: "call_1"},
		Function: function, Arguments: []byte(cmpOr(o.args, `{"order_id":17}`)), State: o.state, Idempotent: forwarder.Plan(function).Idempotent,
	}
	outcome, err := forwarder.Forward(t.Context(), call, journal.Session{ID: "sess_1", Metadata: o.metadata}, notes)
	if err != nil {
		t.Fatal(err)
	}
	return tried{outcome, int(notes.sent.Load())}
}

// attemptCount is a journal.Recorder that counts.
type attemptCount struct{ sent atomic.Int32 }

func (*attemptCount) Sending(context.Context, []byte) error { return nil }
func (c *attemptCount) Sent(journal.Attempt, bool)          { c.sent.Add(1) }
func (*attemptCount) NeverRan()                             {}

// dialOnly reaches one address, whatever host a URL names.
func dialOnly(address string) forward.Dial {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

func cmpOr(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}

// answers gives one reply to every request. headers are names and values in turn.
func answers(status int, mediaType, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// says is a reply with a problem document.
func says(status int, detail string, headers ...string) http.HandlerFunc {
	return answers(status, "application/problem+json", `{"title":"Problem","detail":"`+detail+`"}`, headers...)
}

// silent keeps the request until the other side gives up.
func silent(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // the server sees that the client has gone only once the body was read
	<-r.Context().Done()
}

// broken ends the connection after the request was read.
func broken(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// halved ends the connection in the middle of the reply.
func halved(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = w.Write([]byte("{"))
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// tellings are the rows of the README's table of what the agent is told: the
// first column, and how to bring it about.
func tellings() map[string]func(t *testing.T) tried {
	run := func(function string, o orders) func(t *testing.T) tried {
		return func(t *testing.T) tried { t.Helper(); return o.run(t, function) }
	}
	pdf := orders{answer: answers(200, "application/pdf", "%PDF-1.7")}
	large := answers(200, "application/json", `"`+strings.Repeat("x", 300_000)+`"`)
	return map[string]func(t *testing.T) tried{
		"200, `application/json`, `{\"total\":12.50}`": run("get_order", orders{answer: answers(200, "application/json", `{"total":12.50}`)}),
		"204":                  run("refund_order", orders{answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }}),
		"200, `image/png`":     run("get_order", orders{answer: answers(200, "image/png", "\x89PNG")}),
		"200, a PDF (GET)":     run("get_order", pdf),
		"200, a PDF (POST)":    run("refund_order", pdf),
		"200, too large (GET)": run("get_order", orders{answer: large}),
		"200, too large (POST, `max_bytes: 1000`)": run("refund_order", orders{answer: large}),
		"400 or 422 with a detail":                 run("refund_order", orders{answer: says(422, "amount must be positive")}),
		"401, 403 or 407":                          run("get_order", orders{answer: says(403, "No access to orders")}),
		"404 or 410 with a detail":                 run("get_order", orders{answer: says(404, "There is no order 17")}),
		"409, 412 or 428":                          run("refund_order", orders{answer: says(409, "Order 17 is being shipped")}),
		"429 with `Retry-After: 30`":               run("refund_order", orders{answer: says(429, "Too many refunds today", "Retry-After", "30")}),
		"another 4xx":                              run("refund_order", orders{answer: says(451, "Blocked by order of a court")}),
		"a redirect elsewhere":                     run("get_order", orders{answer: answers(302, "text/plain", "", "Location", "https://elsewhere.example/")}),
		"500 (GET)":                                run("get_order", orders{answer: says(500, "kept from the agent")}),
		"500 (POST)":                               run("refund_order", orders{answer: says(500, "kept from the agent")}),
		"502 (GET)":                                run("get_order", orders{answer: says(502, "")}),
		"503 with `Retry-After: 30` (POST)":        run("refund_order", orders{answer: says(503, "", "Retry-After", "30")}),
		"503 without `Retry-After`, 502, 504 or 408 (POST)":                        run("refund_order", orders{answer: says(503, "")}),
		"connection refused (GET)":                                                 run("get_order", orders{unreachable: true}),
		"connection refused (POST)":                                                run("refund_order", orders{unreachable: true}),
		"a certificate that is not trusted":                                        run("get_order", orders{secure: true}),
		"no reply in time (GET)":                                                   run("get_order", orders{answer: silent}),
		"no reply in time (POST)":                                                  run("refund_order", orders{answer: silent}),
		"the reply is cut off (GET)":                                               run("get_order", orders{answer: halved}),
		"the reply is cut off, or the connection is reset (POST)":                  run("refund_order", orders{answer: halved}),
		"the bridge was killed while it waited (POST)":                             run("refund_order", orders{state: journal.Running}),
		"not called: arguments `[17]`":                                             run("get_order", orders{args: `[17]`}),
		"not called: arguments `{\"order_id\":\"x\"}`":                             run("get_order", orders{args: `{"order_id":"x"}`}),
		"not called: arguments `{\"name\":\"../etc/passwd\"}` for `/files/{name}`": run("get_file", orders{args: `{"name":"../etc/passwd"}`}),
		"not called: the session has no metadata `user_id`":                        run("get_file", orders{args: `{"name":"a.txt"}`}),
		"not called: no such route":                                                run("get_ordr", orders{}),
	}
}

func TestReadmeTellsWhatTheAgentIsTold(t *testing.T) {
	t.Parallel()
	rows := readmeTable(t, "What the agent is told", "What happened")
	cases := tellings()
	seen := map[string]bool{}
	var kinds []string
	for _, row := range rows {
		try := cases[row[0]]
		if seen[row[0]] = true; try == nil {
			t.Errorf("the README has a row %q that nothing here brings about", row[0])
			continue
		}
		kinds = append(kinds, code(row[1]))
		t.Run(row[0], func(t *testing.T) {
			t.Parallel()
			got := try(t).outcome
			text := got.Error
			if got.Success {
				text = "`" + got.Output + "`"
				if got.Output == "" {
					text = "nothing: `output` is empty"
				}
			}
			if row[1] != "`"+got.Label()+"`" || row[2] != text {
				t.Errorf("the agent is told\n%s: %s\nand the README says\n%s: %s", got.Label(), text, row[1], row[2])
			}
		})
	}
	for name := range cases {
		if !seen[name] {
			t.Errorf("the README lacks the row %q", name)
		}
	}
	for _, kind := range journal.Kinds() {
		if !slices.Contains(kinds, string(kind)) {
			t.Errorf("the README shows no %s", kind)
		}
	}
}

// repeats are the rows of the README's table of attempts.
func repeats() map[string]orders {
	return map[string]orders{
		"no connection: refused, host not found, no connection in time": {unreachable: true},
		"425, 429, and 503 with `Retry-After`":                          {answer: says(503, "", "Retry-After", "0")},
		"503 without `Retry-After`":                                     {answer: says(503, "")},
		"408, 502, 504":                                                 {answer: says(504, "")},
		"500":                                                           {answer: says(500, "")},
		"no reply within `attempt_timeout`":                             {answer: silent, attemptTimeout: "100ms"},
		"connection reset after the request, or the reply cut off":      {answer: broken},
		"other 4xx and 5xx, redirects":                                  {answer: says(404, "")},
		"a certificate that is refused":                                 {secure: true},
		"any 2xx":                                                       {answer: answers(200, "application/pdf", "%PDF")},
	}
}

func TestReadmeTellsWhichRequestsAreSentAgain(t *testing.T) {
	t.Parallel()
	words := map[string]bool{"sent again": true, "not sent again": false}
	cases := repeats()
	rows := readmeTable(t, "Which requests are sent again", "Result of an attempt")
	if len(rows) != len(cases) {
		t.Errorf("the README has %d rows, and %d are tried here", len(rows), len(cases))
	}
	for _, row := range rows {
		o, known := cases[row[0]]
		if !known {
			t.Errorf("the README has a row %q that nothing here brings about", row[0])
			continue
		}
		t.Run(row[0], func(t *testing.T) {
			t.Parallel()
			for column, function := range map[int]string{1: "get_order", 2: "refund_order"} {
				again, ok := words[row[column]]
				if n := o.run(t, function).attempts; !ok || again != (n > 1) {
					t.Errorf("%s was sent %d times, and the README says %q", function, n, row[column])
				}
			}
		})
	}
}

// Every row of "425, 429, and 503", and of the others that name several, is what it says.
func TestReadmeRowsOfSeveralStatusesHoldForEach(t *testing.T) {
	t.Parallel()
	for statuses, want := range map[string][2]int{
		"425 429": {3, 3}, "408 502 504": {3, 1}, "400 401 404 409 413 422 451 501 505": {1, 1},
	} {
		for status := range strings.SplitSeq(statuses, " ") {
			t.Run(status, func(t *testing.T) {
				t.Parallel()
				n, err := strconv.Atoi(status)
				if err != nil {
					t.Fatal(err)
				}
				o := orders{answer: says(n, "")}
				if get, post := o.run(t, "get_order").attempts, o.run(t, "refund_order").attempts; get != want[0] || post != want[1] {
					t.Errorf("sent %d times with GET and %d with POST, want %v", get, post, want)
				}
			})
		}
	}
}
