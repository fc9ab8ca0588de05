package forward_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// bench is a forwarder with a table, and what it logged.
type bench struct {
	*forward.Forwarder

	registry *prometheus.Registry
	log      *lockedBuffer
}

// newBench builds a forwarder for a table; change may set more of its config.
func newBench(tb testing.TB, yaml string, change ...func(*forward.Config)) *bench {
	tb.Helper()
	table := parse(tb, yaml)
	b := &bench{registry: prometheus.NewRegistry(), log: &lockedBuffer{}}
	c := forward.Config{
		MaxCalls:   8,
		Version:    "1.2.3",
		Table:      func() *router.Table { return table },
		Logger:     slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Registerer: b.registry,
	}
	for _, f := range change {
		f(&c)
	}
	b.Forwarder = forward.New(c)
	tb.Cleanup(b.Close)
	return b
}

func parse(tb testing.TB, yaml string) *router.Table {
	tb.Helper()
	table, err := router.Parse("routes.yaml", []byte(yaml), router.Env{Lookup: environment})
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

// secrets are the values of ${…} in the tests' tables.
func secrets() map[string]string {
	return map[string]string{"TOKEN": "T0P-$ecret\"x", "PASSWORD": "pa55-word"}
}

func environment(name string) (string, bool) {
	value, ok := secrets()[name]
	return value, ok
}

// call makes a call as the session side does, with the plan's answer in it.
func (b *bench) call(function, arguments string) journal.Call {
	return journal.Call{
		Key:        journal.Key{SessionID: "sess_1", TurnID: "turn_1", CallID: "call_1"},
		Function:   function,
		Arguments:  []byte(arguments),
		State:      journal.Pending,
		Idempotent: b.Plan(function).Idempotent,
	}
}

// run forwards a call and returns its outcome and attempts.
func (b *bench) run(tb testing.TB, function, arguments string) (journal.Outcome, *recorder) {
	tb.Helper()
	rec := &recorder{}
	outcome, err := b.Forward(tb.Context(), b.call(function, arguments), journal.Session{ID: "sess_1"}, rec)
	if err != nil {
		tb.Fatal(err)
	}
	return outcome, rec
}

// recorder keeps what it is told.
type recorder struct {
	requests    [][]byte
	sendings    int
	attempts    []journal.Attempt
	unprocessed []bool
	refuse      error
}

func (r *recorder) Sending(_ context.Context, request []byte) error {
	r.sendings++
	if request != nil {
		r.requests = append(r.requests, request)
	}
	return r.refuse
}

func (r *recorder) NeverRan() {}

func (r *recorder) Sent(a journal.Attempt, unprocessed bool) {
	r.attempts = append(r.attempts, a)
	r.unprocessed = append(r.unprocessed, unprocessed)
}

// service is a real server that keeps what it was sent.
type service struct {
	*httptest.Server

	mu   sync.Mutex
	seen []seen
}

type seen struct {
	method, uri, host string
	header            http.Header
	body              string
	length            int64
	coding            []string
}

// serve starts a service that records each request and lets answer reply.
func serve(tb testing.TB, answer http.HandlerFunc) *service {
	tb.Helper()
	s := &service{}
	s.Server = httptest.NewServer(s.recording(answer))
	tb.Cleanup(s.Close)
	return s
}

func (s *service) recording(answer http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.seen = append(s.seen, seen{
			r.Method, r.RequestURI, r.Host, r.Header.Clone(), string(body), r.ContentLength, r.TransferEncoding,
		})
		s.mu.Unlock()
		if answer != nil {
			answer(w, r)
		}
	})
}

func (s *service) requests() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]seen(nil), s.seen...)
}

// answer replies with a status, a media type and a body.
func answer(status int, mediaType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{mediaType}
		if mediaType == "" {
			w.Header()["Content-Type"] = nil
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// fastRetries keeps the pauses of a test over a real socket short.
const fastRetries = "defaults: { timeout: 10s, retry: { attempts: 3, min_wait: 1ms, max_wait: 2ms } }\n"

// table writes a route table of one-line routes.
func table(routes ...string) string {
	return "version: 1\n" + fastRetries + "routes:\n  " + strings.Join(routes, "\n  ") + "\n"
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
