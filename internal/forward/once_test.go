package forward_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

// breaker is a service that answers the first request and then takes each
// request whole, acts on it, and breaks the connection instead of replying.
type breaker struct {
	*httptest.Server

	served, sideEffects, connections atomic.Int64
}

type connKey struct{}

// startBreaking starts one; how is "reset" or "eof".
func startBreaking(t *testing.T, secure, http2 bool, how string) *breaker {
	t.Helper()
	b := &breaker{}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 1<<20)
		for {
			if _, err := r.Body.Read(buf); err != nil {
				break
			}
		}
		if b.served.Add(1) == 1 {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write([]byte("warm"))
			return
		}
		b.sideEffects.Add(1)
		conn, _ := r.Context().Value(connKey{}).(net.Conn)
		if c, ok := conn.(*tls.Conn); ok {
			conn = c.NetConn()
		}
		if how == "reset" {
			resetOnClose(conn)
		}
		_ = conn.Close()
		panic(http.ErrAbortHandler)
	}))
	b.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	b.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			b.connections.Add(1)
		}
	}
	quiet(b.Server)
	if b.EnableHTTP2 = http2; secure {
		b.StartTLS()
	} else {
		b.Start()
	}
	t.Cleanup(b.Close)
	return b
}

func trusting(s *httptest.Server) func(*forward.Config) {
	return func(c *forward.Config) {
		if s.Certificate() != nil {
			c.Transport.RootCAs = x509.NewCertPool()
			c.Transport.RootCAs.AddCert(s.Certificate())
		}
	}
}

// net/http repeats such requests by itself when they carry an Idempotency-Key
// or no body, below every retry layer.
func TestOneSideEffectWhenAReusedConnectionBreaksAfterTheRequest(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/1.1 in TLS", "HTTP/2"} {
		for _, how := range []string{"reset", "eof"} {
			for _, method := range []string{"POST", "PATCH", "PUT", "DELETE", "GET"} {
				t.Run(strings.Join([]string{protocol, how, method}, " "), func(t *testing.T) {
					t.Parallel()
					up := startBreaking(t, protocol != "HTTP/1.1", protocol == "HTTP/2", how)
					b := newBench(t, table(fmt.Sprintf("act: { url: %s/x, method: %s, idempotent: false }", up.URL, method)), trusting(up.Server))
					if outcome, _ := b.run(t, "act", `{"a":1}`); !outcome.Success {
						t.Fatalf("first call: %+v", outcome)
					}

					outcome, rec := b.run(t, "act", `{"a":1}`)

					if n := up.sideEffects.Load(); n != 1 {
						t.Errorf("%d side effects, want 1", n)
					}
					if outcome.Failure != journal.UnknownOutcome {
						t.Errorf("outcome = %+v, want unknown_outcome", outcome)
					}
					if len(rec.attempts) != 1 || rec.unprocessed[0] {
						t.Errorf("attempts = %+v, unprocessed %v", rec.attempts, rec.unprocessed)
					}
					if n := up.connections.Load(); n != 1 {
						t.Errorf("%d connections: the second call did not reuse the first's", n)
					}
				})
			}
		}
	}
}

// On an idempotent route the same break is retried, under the same key.
func TestIdempotentCallIsSentAgainUnderItsKey(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"POST", "GET"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int64
			up := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if n.Add(1) < 3 {
					panic(http.ErrAbortHandler)
				}
				_, _ = w.Write([]byte("done"))
			})
			b := newBench(t, table(fmt.Sprintf("act: { url: %s/x, method: %s, idempotent: true }", up.URL, method)))

			outcome, rec := b.run(t, "act", `{"a":1}`)

			if outcome != journal.Success("done") {
				t.Errorf("outcome = %+v", outcome)
			}
			got := up.requests()
			if len(got) != 3 || len(rec.attempts) != 3 {
				t.Fatalf("%d requests, %d attempts", len(got), len(rec.attempts))
			}
			if rec.sendings != 3 || len(rec.requests) != 1 {
				t.Errorf("the request was to be recorded once in %d sendings, not %d times", rec.sendings, len(rec.requests))
			}
			for _, r := range got {
				if r.header.Get("Idempotency-Key") != got[0].header.Get("Idempotency-Key") || r.body != got[0].body || r.uri != got[0].uri {
					t.Errorf("attempts differ: %+v and %+v", got[0], r)
				}
			}
		})
	}
}

// resetOnClose makes the close of a TCP connection a reset.
func resetOnClose(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}
