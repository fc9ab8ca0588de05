package forward

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// cannedService answers in the place of a transport's connections.
type cannedService struct{ header http.Header }

func (cannedService) CloseIdleConnections() {}

func (s cannedService) RoundTrip(r *http.Request) (*http.Response, error) {
	body := []byte(`{"temperature":21.5,"unit":"C","place":"Lisbon"}`)
	_ = r.Body.Close()
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: s.header,
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: r,
	}, nil
}

// mute is a Recorder that does nothing.
type mute struct{}

func (mute) Sending(context.Context, []byte) error { return nil }
func (mute) Sent(journal.Attempt, bool)            {}
func (mute) NeverRan()                             {}

// BenchmarkForwardAlone is what Forward costs without connections: a call of each kind of route, log line and metrics
// included. The canned reply, and the copy of the request that net/http makes, are 6 allocations and 600 bytes of it.
func BenchmarkForwardAlone(b *testing.B) {
	const yaml = `
version: 1
upstreams:
  crm: { url: "http://crm.test/api", headers: { X-Key: "${KEY}" } }
routes:
  plain: { url: "http://plain.test/x", idempotent: true }
  once: { url: "http://plain.test/x", idempotent: false }
  keyed: { upstream: crm, path: /weather, idempotent: true }
  templated: { upstream: crm, path: "/places/{place}", idempotent: true }
`
	env := func(string) (string, bool) { return "T0P-$ecret", true }
	table, err := router.Parse("routes.yaml", []byte(yaml), router.Env{Lookup: env})
	if err != nil {
		b.Fatal(err)
	}
	f := New(Config{
		Table: func() *router.Table { return table }, Version: "1.2.3", Registerer: prometheus.NewRegistry(),
		Logger: slog.New(slog.NewJSONHandler(io.Discard, nil)), //nolint:sloglint // what a line costs is to be seen
	})
	b.Cleanup(f.Close)
	canned := cannedService{header: http.Header{"Content-Type": {"application/json"}}}
	f.upstreams.plain.line.Load().pool.transport = canned // all upstreams share it without TLS of their own
	for _, name := range []string{"plain", "once", "keyed", "templated"} {
		route, _ := table.Lookup(name)
		call := journal.Call{
			Key:      journal.Key{SessionID: "sess_68d1c0ffee", TurnID: "turn_68d1c0ffee", CallID: "call_68d1c0ffee"},
			Function: name, Arguments: []byte(`{"place":"Lisbon","unit":"C","days":3}`),
			State: journal.Pending, Idempotent: route.Idempotent,
		}
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				if o, err := f.Forward(ctx, call, journal.Session{ID: "sess_68d1c0ffee"}, mute{}); !o.Success || err != nil {
					b.Fatal(o, err)
				}
			}
		})
	}
}
