package forward_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

// both is what is wanted of a non-idempotent and of an idempotent route.
type both struct {
	requests [2]int64
	kind     [2]journal.Kind
}

func (w both) check(t *testing.T, i int, requests int64, o journal.Outcome, rec *recorder) {
	t.Helper()
	if requests != w.requests[i] || int64(len(rec.attempts)) != w.requests[i] {
		t.Errorf("%d requests, %d attempts recorded, want %d", requests, len(rec.attempts), w.requests[i])
	}
	if o.Failure != w.kind[i] {
		t.Errorf("outcome = %+v, want kind %s", o, w.kind[i])
	}
}

var idempotency = [2]bool{false, true}

func TestMayThisStatusBeSentAgain(t *testing.T) {
	t.Parallel()
	same := func(n int64, kind journal.Kind) both {
		return both{[2]int64{n, n}, [2]journal.Kind{kind, kind}}
	}
	maybe := func(kind journal.Kind) both {
		return both{[2]int64{1, 3}, [2]journal.Kind{journal.UnknownOutcome, kind}}
	}
	tests := []struct {
		status     int
		retryAfter string
		want       both
	}{
		{400, "", same(1, journal.InvalidArguments)},
		{401, "", same(1, journal.Denied)},
		{403, "", same(1, journal.Denied)},
		{404, "", same(1, journal.NotFound)},
		{405, "", same(1, journal.Rejected)},
		{407, "", same(1, journal.Denied)},
		{408, "", maybe(journal.Timeout)},
		{409, "", same(1, journal.Conflict)},
		{409, "0", same(1, journal.Conflict)},
		{410, "", same(1, journal.NotFound)},
		{412, "", same(1, journal.Conflict)},
		{422, "", same(1, journal.InvalidArguments)},
		{423, "", same(1, journal.Rejected)},
		{425, "", same(3, journal.Unavailable)},
		{428, "", same(1, journal.Conflict)},
		{429, "", same(3, journal.RateLimited)},
		{429, "0", same(3, journal.RateLimited)},
		{451, "", same(1, journal.Rejected)},
		{500, "", both{[2]int64{1, 3}, [2]journal.Kind{journal.UpstreamError, journal.UpstreamError}}},
		{501, "", same(1, journal.UpstreamError)},
		{502, "", maybe(journal.Unavailable)},
		{502, "0", maybe(journal.Unavailable)},
		{503, "", maybe(journal.Unavailable)},
		{503, "soon", maybe(journal.Unavailable)},
		{503, "-1", maybe(journal.Unavailable)},
		{503, "0", same(3, journal.Unavailable)},
		{503, "Fri, 31 Dec 1999 23:59:59 GMT", same(3, journal.Unavailable)},
		{504, "", maybe(journal.Timeout)},
		{505, "", same(1, journal.UpstreamError)},
		{599, "", same(1, journal.UpstreamError)},
	}
	for _, test := range tests {
		for i, idempotent := range idempotency {
			t.Run(fmt.Sprintf("%d retry-after=%q idempotent=%t", test.status, test.retryAfter, idempotent), func(t *testing.T) {
				t.Parallel()
				up := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if test.retryAfter != "" {
						w.Header().Set("Retry-After", test.retryAfter)
					}
					answer(test.status, "text/plain", "no")(w, r)
				})
				b := newBench(t, table(fmt.Sprintf("act: { url: %s, idempotent: %t }", up.URL, idempotent)))
				o, rec := b.run(t, "act", `{}`)
				test.want.check(t, i, int64(len(up.requests())), o, rec)
				if !strings.Contains(o.Error, "act") || !strings.Contains(o.Error, strconv.Itoa(test.status)) {
					t.Errorf("error %q names not both function and status", o.Error)
				}
			})
		}
	}
}

func TestServiceUnavailableIsFinalWhereTheRouteSaysSo(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"", "0"} {
		for i, idempotent := range idempotency {
			t.Run(fmt.Sprintf("retry-after=%q idempotent=%t", after, idempotent), func(t *testing.T) {
				t.Parallel()
				up := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					if after != "" {
						w.Header().Set("Retry-After", after)
					}
					w.WriteHeader(503)
				})
				b := newBench(t, table(fmt.Sprintf("act: { url: %s, idempotent: %t, retry: { on_503: false } }", up.URL, idempotent)))
				o, rec := b.run(t, "act", `{}`)
				want := both{[2]int64{1, 1}, [2]journal.Kind{journal.Unavailable, journal.Unavailable}}
				if after == "" {
					want.kind[0] = journal.UnknownOutcome
				}
				want.check(t, i, int64(len(up.requests())), o, rec)
			})
		}
	}
}

// faulty is a way in which an attempt can end without a reply.
type faulty struct {
	name string
	// start returns the service's URL, how often it was tried, and what the
	// forwarder's config needs.
	start func(t *testing.T) (url string, tries func() int64, change func(*forward.Config))
	want  both
	says  string
	// patience is the route's attempt_timeout; long unless it is to run out.
	patience string
}

const (
	patient   = "8s"
	impatient = "150ms"
)

func TestMayAnAttemptWithoutReplyBeRepeated(t *testing.T) {
	t.Parallel()
	never := both{[2]int64{3, 3}, [2]journal.Kind{journal.Unavailable, journal.Unavailable}}
	once := both{[2]int64{1, 1}, [2]journal.Kind{journal.Unavailable, journal.Unavailable}}
	maybe := func(kind journal.Kind) both {
		return both{[2]int64{1, 3}, [2]journal.Kind{journal.UnknownOutcome, kind}}
	}
	tests := []faulty{
		{"refused", dialing(func(context.Context) (net.Conn, error) { return net.Dial("tcp", closedPort(t)) }), never, "was not reached", patient},
		{"no such host", dialing(lookup), never, "was not reached", patient},
		{"dial timeout", dialing(func(ctx context.Context) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }), never, "could not be reached within", impatient},
		{"dial timeout of the dialer", dialing(func(context.Context) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}
		}), never, "was not reached", patient},
		{"reset before a byte was written", unwritable, never, "before the request was sent", patient},
		{"handshake cut off", handshakeCut, never, "was not reached", patient},
		{"handshake without an answer", handshakeSilent, never, "could not be reached within", impatient},
		{"certificate of an unknown issuer", untrusted, once, "certificate", patient},
		{"certificate of another name", wrongName, once, "certificate", patient},
		{"expired certificate", expired, once, "certificate", patient},
		{"plain HTTP on an https route", plainOnTLS, once, "does not speak TLS", patient},
		{"reset after the request", breaking(true), maybe(journal.Unavailable), "broke", patient},
		{"closed after the request", breaking(false), maybe(journal.Unavailable), "broke", patient},
		{"no reply in time", hanging, maybe(journal.Timeout), "did not answer within 150 ms", impatient},
		{"reply cut off", cutting("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), maybe(journal.BadReply), "cut off", patient},
		{"chunked reply cut off", cutting("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhalf\n\r\n"), maybe(journal.BadReply), "cut off", patient},
		{"404 cut off", cutting("HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\nhalf"), maybe(journal.BadReply), "cut off", patient},
		{"500 cut off", cutting("HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nhalf"), maybe(journal.BadReply), "cut off", patient},
		{"headers cut off", cutting("HTTP/1.1 200 OK\r\nContent-Le"), maybe(journal.Unavailable), "broke", patient},
		{"no HTTP", cutting("SSH-2.0-OpenSSH_9.6\r\n"), maybe(journal.Unavailable), "broke", patient},
		{"reply that drips", dripping, maybe(journal.Timeout), "did not answer within 150 ms", impatient},
	}
	for _, test := range tests {
		for i, idempotent := range idempotency {
			t.Run(fmt.Sprintf("%s idempotent=%t", test.name, idempotent), func(t *testing.T) {
				t.Parallel()
				url, tries, change := test.start(t)
				b := newBench(t, table(fmt.Sprintf("act: { url: %s, idempotent: %t, attempt_timeout: %s }", url, idempotent, test.patience)), change)
				o, rec := b.run(t, "act", `{}`)
				test.want.check(t, i, tries(), o, rec)
				if !strings.Contains(o.Error, test.says) || !strings.Contains(o.Error, "act") {
					t.Errorf("error = %q, want %q", o.Error, test.says)
				}
				if test.want == once && !strings.HasSuffix(o.Error, " Do not try again.") {
					t.Errorf("error = %q: another try would come to the same", o.Error)
				}
				unprocessed := test.want.requests[0] == test.want.requests[1]
				if strings.Contains(o.Error, ", and nothing was carried out: ") != (unprocessed && !idempotent) {
					t.Errorf("error = %q", o.Error)
				}
				for j, a := range rec.attempts {
					if a.Error == "" {
						t.Errorf("attempt without an error: %+v", a)
					}
					if rec.unprocessed[j] != unprocessed {
						t.Errorf("attempt %d: unprocessed = %t", j, rec.unprocessed[j])
					}
				}
				noAddress(t, o.Error+b.log.String(), url)
			})
		}
	}
}

// noAddress fails when a text holds the address of a service.
func noAddress(t *testing.T, text, url string) {
	t.Helper()
	_, address, _ := strings.Cut(url, "://")
	for _, leak := range []string{address, "127.0.0.1", "tcp", "x509", "EOF"} {
		if strings.Contains(text, leak) {
			t.Errorf("%q in %s", leak, text)
		}
	}
}

func dialing(dial func(context.Context) (net.Conn, error)) func(*testing.T) (string, func() int64, func(*forward.Config)) {
	return func(*testing.T) (string, func() int64, func(*forward.Config)) {
		var n atomic.Int64
		return "http://upstream.test", n.Load, func(c *forward.Config) {
			c.Transport.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				n.Add(1)
				return dial(ctx)
			}
		}
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// lookup asks a name server that cannot be reached.
func lookup(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no network")
	}}}
	return d.DialContext(ctx, "tcp", "upstream.test:80")
}

// unwritable gives connections on which not a byte can be written.
func unwritable(t *testing.T) (string, func() int64, func(*forward.Config)) {
	t.Helper()
	return dialing(func(context.Context) (net.Conn, error) {
		client, server := net.Pipe()
		_ = server.Close()
		return client, nil
	})(t)
}

func noChange(*forward.Config) {}

// handshakeCut closes every connection in the TLS handshake.
func handshakeCut(t *testing.T) (string, func() int64, func(*forward.Config)) {
	t.Helper()
	var n atomic.Int64
	l := accept(t, func(c net.Conn) {
		n.Add(1)
		_, _ = c.Read(make([]byte, 1))
	})
	return "https://" + l, n.Load, noChange
}

// handshakeSilent takes every connection and says nothing.
func handshakeSilent(t *testing.T) (string, func() int64, func(*forward.Config)) {
	t.Helper()
	var n atomic.Int64
	l := accept(t, func(c net.Conn) {
		n.Add(1)
		_, _ = io.Copy(io.Discard, c)
	})
	return "https://" + l, n.Load, noChange
}

// accept starts a TCP server that gives each connection to handle, side by
// side, and closes it then.
func accept(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				handle(c)
				_ = c.Close()
			})
		}
	})
	return l.Addr().String()
}

// countConnections starts an httptest server and counts its connections.
func countConnections(t *testing.T, start func(*httptest.Server)) (*httptest.Server, func() int64) {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	quiet(s)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			n.Add(1)
		}
	}
	start(s)
	t.Cleanup(s.Close)
	return s, n.Load
}

func untrusted(t *testing.T) (string, func() int64, func(*forward.Config)) {
	t.Helper()
	s, n := countConnections(t, (*httptest.Server).StartTLS)
	return s.URL, n, noChange
}

func wrongName(t *testing.T) (string, func() int64, func(*forward.Config)) {
	t.Helper()
	s, n := countConnections(t, (*httptest.Server).StartTLS)
	return "https://upstream.test", n, func(c *forward.Config) {
		trusting(s)(c)
		c.Transport.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", s.Listener.Addr().String())
		}
	}
}

func expired(t *testing.T) (string, func() int64, func(*forward.Config)) {
	t.Helper()
	certificate := newCertificate(t, time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
	s, n := countConnections(t, func(s *httptest.Server) {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
		s.StartTLS()
	})
	return s.URL, n, func(c *forward.Config) {
		c.Transport.RootCAs = x509.NewCertPool()
		c.Transport.RootCAs.AddCert(certificate.Leaf)
	}
}

func plainOnTLS(t *testing.T) (string, func() int64, func(*forward.Config)) {
	t.Helper()
	s, n := countConnections(t, (*httptest.Server).Start)
	return strings.Replace(s.URL, "http://", "https://", 1), n, noChange
}

func breaking(reset bool) func(*testing.T) (string, func() int64, func(*forward.Config)) {
	return func(t *testing.T) (string, func() int64, func(*forward.Config)) {
		t.Helper()
		var n atomic.Int64
		up := serveRaw(t, func(_ int, c net.Conn) bool {
			n.Add(1)
			if reset {
				resetOnClose(c)
			}
			return false
		})
		return up.URL, n.Load, noChange
	}
}

func cutting(reply string) func(*testing.T) (string, func() int64, func(*forward.Config)) {
	return func(t *testing.T) (string, func() int64, func(*forward.Config)) {
		t.Helper()
		var n atomic.Int64
		up := serveRaw(t, func(_ int, c net.Conn) bool {
			n.Add(1)
			_, _ = io.WriteString(c, reply)
			return false
		})
		return up.URL, n.Load, noChange
	}
}

func hanging(t *testing.T) (string, func() int64, func(*forward.Config)) {
	t.Helper()
	var n atomic.Int64
	up := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		n.Add(1)
		<-r.Context().Done()
	})
	return up.URL, n.Load, noChange
}

func dripping(t *testing.T) (string, func() int64, func(*forward.Config)) {
	t.Helper()
	var n atomic.Int64
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			_, _ = io.WriteString(w, ".")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	})
	return up.URL, n.Load, noChange
}
