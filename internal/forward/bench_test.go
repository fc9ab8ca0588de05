package forward_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

// quick is a service that costs little.
func quick(b *testing.B) *httptest.Server {
	b.Helper()
	reply := []byte(`{"temperature":21.5,"unit":"C","place":"Lisbon"}`)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header()["Content-Type"] = []string{"application/json"}
		_, _ = w.Write(reply)
	}))
	b.Cleanup(s.Close)
	return s
}

const benchArguments = `{"place":"Lisbon","unit":"C","days":3}`

// silent is a Recorder that does nothing.
type silent struct{}

func (silent) Sending(context.Context, []byte) error { return nil }
func (silent) Sent(journal.Attempt, bool)            {}

// BenchmarkForward is one call of a plain POST route; compare it with
// BenchmarkBareExchange of the same run, which is the floor.
func BenchmarkForward(b *testing.B) {
	up := quick(b)
	f := newBench(b, fmt.Sprintf("version: 1\nroutes:\n  get_weather: { url: %s/x, idempotent: true }\n", up.URL), func(c *forward.Config) {
		c.Logger = slog.New(slog.NewJSONHandler(io.Discard, nil)) //nolint:sloglint // what a line costs is to be seen
	})
	call := f.call("get_weather", benchArguments)
	session := journal.Session{ID: "sess_1"}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if o, err := f.Deliver(ctx, call, session, silent{}); !o.Success || err != nil {
			b.Fatal(o, err)
		}
	}
}

// BenchmarkBareExchange is the shortest way to the same: http.Client, with as
// many headers, and the reply as a string.
func BenchmarkBareExchange(b *testing.B) {
	up := quick(b)
	client := &http.Client{Transport: &http.Transport{}}
	b.Cleanup(client.CloseIdleConnections)
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, up.URL+"/x", bytes.NewReader([]byte(benchArguments)))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", "k")
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || len(text) == 0 {
			b.Fatal(err)
		}
	}
}

func BenchmarkArguments(b *testing.B) {
	up := quick(b)
	f := newBench(b, fmt.Sprintf("version: 1\nroutes:\n  get_weather: %s/x\n", up.URL))
	trial := forward.Trial{Function: "get_weather", Arguments: []byte(benchArguments), DryRun: true}
	b.ReportAllocs()
	for b.Loop() {
		f.Try(b.Context(), trial)
	}
}
