package forward_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

const benchArguments = `{"place":"Lisbon","unit":"C","days":3}`

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

// silent is a Recorder that does nothing.
type silent struct{}

func (silent) Sending(context.Context, []byte) error { return nil }
func (silent) Sent(journal.Attempt, bool)            {}
func (silent) NeverRan()                             {}

// cpuTime is the process's so far, the service's share included.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure runs one call again and again and reports its CPU time.
func measure(b *testing.B, call func()) {
	b.Helper()
	b.ReportAllocs()
	began := cpuTime(b)
	for b.Loop() {
		call()
	}
	b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/float64(b.N), "cpu-µs/op")
}

// BenchmarkForward is one call of a plain POST route, log line and metrics
// included. Its floor is BenchmarkBareExchange of the same run.
func BenchmarkForward(b *testing.B) {
	up := quick(b)
	f := newBench(b, fmt.Sprintf("version: 1\nroutes:\n  get_weather: { url: %s/x, idempotent: true }\n", up.URL), func(c *forward.Config) {
		c.Logger = slog.New(slog.NewJSONHandler(io.Discard, nil)) //nolint:sloglint // what a line costs is to be seen
	})
	call := f.call("get_weather", benchArguments)
	measure(b, func() {
		if o, err := f.Forward(b.Context(), call, journal.Session{ID: "sess_1"}, silent{}); !o.Success || err != nil {
			b.Fatal(o, err)
		}
	})
}

// BenchmarkBareExchange is the shortest way to the same: http.Client with the
// same headers, and the reply read whole.
func BenchmarkBareExchange(b *testing.B) {
	up := quick(b)
	client := &http.Client{Transport: &http.Transport{}}
	b.Cleanup(client.CloseIdleConnections)
	measure(b, func() {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, up.URL+"/x", bytes.NewReader([]byte(benchArguments)))
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range []string{
			"Accept", "Content-Type", "Idempotency-Key", "Bridge-Session-Id", "Bridge-Turn-Id", "Bridge-Call-Id", "Bridge-Function",
		} {
			req.Header.Set(name, "application/json")
		}
		resp, err := client.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || len(text) == 0 {
			b.Fatal(err)
		}
	})
}

// BenchmarkPrepare is what a call costs before anything is sent.
func BenchmarkPrepare(b *testing.B) {
	f := newBench(b, "version: 1\nroutes:\n  get_weather: http://upstream.test/x\n")
	trial := forward.Trial{
		Function: "get_weather", Arguments: []byte(benchArguments), DryRun: true,
		Session: journal.Session{ID: "s"}, TurnID: "t", CallID: "c",
	}
	measure(b, func() { f.Try(b.Context(), trial) })
}
