package exchange

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	idleTimeout    = 4 * time.Second
	maxHeaderBytes = 256 << 10
)

// scripted is a service that writes a fixed text for each request, the last one
// again and again, and knows which connection each came on.
type scripted struct {
	address string

	mu       sync.Mutex
	requests []scriptedRequest
}

type scriptedRequest struct {
	connection int
	raw        string
}

// answer is what scripted does about a request: it writes text, and then hangs up.
type answer struct {
	text   string
	hangUp bool
	// later is written when the client has had the time to be done with text.
	later string
}

func serveScript(t *testing.T, answers ...answer) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{address: l.Addr().String()}
	var serving sync.WaitGroup
	serving.Go(func() {
		for connection := 1; ; connection++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.serve(c, connection, answers) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return s
}

func (s *scripted) serve(c net.Conn, connection int, answers []answer) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		raw, err := httputil.DumpRequest(req, true)
		if err != nil {
			return
		}
		s.mu.Lock()
		a := answers[min(len(s.requests), len(answers)-1)]
		s.requests = append(s.requests, scriptedRequest{connection, string(raw)})
		s.mu.Unlock()
		_, _ = io.WriteString(c, a.text)
		if a.later != "" {
			<-time.After(20 * time.Millisecond)
			_, _ = io.WriteString(c, a.later)
		}
		if a.hangUp {
			return
		}
	}
}

// seen are the requests so far.
func (s *scripted) seen() []scriptedRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]scriptedRequest(nil), s.requests...)
}

func newTestDirect(t *testing.T) *Direct {
	t.Helper()
	d := NewDirect(&http.Transport{
		DialContext: new(net.Dialer).DialContext, DisableCompression: true,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: maxHeaderBytes,
	})
	t.Cleanup(d.CloseIdleConnections)
	return d
}

// post sends a request and reads the whole reply.
func (s *scripted) post(t *testing.T, via http.RoundTripper, body string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.address+"/x?y=1", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := via.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

func ok(body string) answer {
	return answer{text: "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body}
}

func TestAWholeReplyLeavesItsConnectionForTheNextRequest(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]answer{
		"length":      ok("first"),
		"empty":       ok(""),
		"chunked":     {text: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n0\r\nA-Trailer: x\r\n\r\n"},
		"no content":  {text: "HTTP/1.1 204 No Content\r\n\r\n"},
		"early hints": {text: "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst"},
		"an error":    {text: "HTTP/1.1 500 Oh\r\nContent-Length: 5\r\n\r\nfirst"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d := serveScript(t, first, ok("second")), newTestDirect(t)
			text, err := s.post(t, d, "a")
			if err != nil || text != "first" && text != "" {
				t.Fatalf("first = %q, %v", text, err)
			}
			if text, err = s.post(t, d, "b"); err != nil || text != "second" {
				t.Fatalf("second = %q, %v", text, err)
			}
			if r := s.seen(); len(r) != 2 || r[1].connection != 1 {
				t.Errorf("%d requests came, the last on connection %d, want 2 on 1", len(r), r[len(r)-1].connection)
			}
		})
	}
}

// Whatever could make the bytes of one reply part of another ends a connection.
func TestAConnectionInDoubtIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	const evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	for name, c := range map[string]struct {
		first answer
		cut   bool // the reply is not whole
	}{
		"close is said":            {first: answer{text: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nfirst"}},
		"HTTP/1.0":                 {first: answer{text: "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nfirst"}},
		"the end is the length":    {first: answer{text: "HTTP/1.1 200 OK\r\n\r\nfirst", hangUp: true}},
		"a second reply at once":   {first: answer{text: ok("first").text + evil}},
		"a second reply later":     {first: answer{text: ok("first").text, later: evil}},
		"closed after the reply":   {first: answer{text: ok("first").text, hangUp: true}},
		"cut off":                  {first: answer{text: "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nfirst", hangUp: true}, cut: true},
		"two lengths":              {first: answer{text: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nfirst"}, cut: true},
		"no HTTP":                  {first: answer{text: "220 mail ready\r\n"}, cut: true},
		"another protocol follows": {first: answer{text: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", hangUp: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d := serveScript(t, c.first, ok("second")), newTestDirect(t)
			text, err := s.post(t, d, "a")
			if c.cut == (err == nil) || err == nil && text != "first" && text != "" {
				t.Fatalf("first = %q, %v", text, err)
			}
			<-time.After(50 * time.Millisecond) // what comes later has come
			if text, err := s.post(t, d, "b"); err != nil || text != "second" {
				t.Errorf("second = %q, %v", text, err)
			}
			if r := s.seen(); len(r) != 2 || r[1].connection != 2 {
				t.Errorf("%d requests came, the last on connection %d, want 2 on connections of their own", len(r), r[len(r)-1].connection)
			}
		})
	}
}

func TestAReplyThatIsNotReadTakesItsConnectionWithIt(t *testing.T) {
	t.Parallel()
	late := answer{text: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", later: "first"}
	s, d := serveScript(t, late, ok("second")), newTestDirect(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := d.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if _, err := response.Body.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("a closed body says %v", err)
	}
	if text, err := s.post(t, d, "b"); err != nil || text != "second" {
		t.Errorf("second = %q, %v", text, err)
	}
	if r := s.seen(); len(r) != 2 || r[1].connection != 2 {
		t.Errorf("the second request came on connection %d, want 2", r[len(r)-1].connection)
	}
}

func TestAnExchangeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"before the reply": "", "in the header": "HTTP/1.1 200 OK\r\nA: ", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfir",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d := serveScript(t, answer{text: text}), newTestDirect(t)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.address, strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			response, err := d.RoundTrip(req)
			if err == nil {
				_, err = io.ReadAll(response.Body)
				_ = response.Body.Close()
			}
			if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
				t.Errorf("it ended with %v, the context with %v", err, ctx.Err())
			}
			if d.idle.pop(s.address) != nil {
				t.Error("the connection is kept")
			}
		})
	}
}

// A context that ends between the reply and the end of its body has touched the
// connection.
func TestAnInterruptedConnectionIsNotKept(t *testing.T) {
	t.Parallel()
	s, d := serveScript(t, ok("first")), newTestDirect(t)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.address, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := d.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_, _ = io.ReadAll(response.Body) // whole or not, as the race goes
	_ = response.Body.Close()
	if d.idle.pop(s.address) != nil {
		t.Error("the connection is kept")
	}
}

func TestHeadersWithoutEndAreLeft(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"one line":     "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 2*maxHeaderBytes),
		"many lines":   "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: a\r\n", maxHeaderBytes/3),
		"many replies": strings.Repeat("HTTP/1.1 103 Early Hints\r\nA: a\r\n\r\n", maxHeaderBytes/8),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d := serveScript(t, answer{text: text}), newTestDirect(t)
			if text, err := s.post(t, d, "x"); err == nil {
				t.Errorf("the reply is %q", text)
			}
		})
	}
}

// What leaves is what http.Transport would send.
func TestDirectSendsWhatTheTransportSends(t *testing.T) {
	t.Parallel()
	s := serveScript(t, ok("")) // the same for HEAD
	d := newTestDirect(t)
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodPost, http.MethodPut} {
		for _, body := range []string{"", "{}", strings.Repeat("x", maxDirectBody)} {
			for _, via := range []http.RoundTripper{d, d.Transport} {
				req := &http.Request{
					Method: method, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "other.test",
					URL:    &url.URL{Scheme: "http", Host: s.address, Path: "/a b", RawQuery: "q=%20"},
					Header: http.Header{"User-Agent": {"u"}, "Idempotency-Key": {"k"}, "X-Y": {"1", "2"}},
					Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
				}
				response, err := via.RoundTrip(req.WithContext(t.Context()))
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
			r := s.seen()
			if mine, theirs := r[len(r)-2].raw, r[len(r)-1].raw; mine != theirs {
				t.Errorf("%s with %d bytes: sent\n%q, the transport sends\n%q", method, len(body), mine, theirs)
			}
		}
	}
}

func TestDirectLeavesToTheTransportWhatItDoesNotSuit(t *testing.T) {
	t.Parallel()
	d := newTestDirect(t)
	d.Proxy = func(r *http.Request) (*url.URL, error) {
		switch r.URL.Host {
		case "proxied.test":
			return &url.URL{Scheme: "http", Host: "proxy.test"}, nil
		case "odd.test":
			return nil, errors.New("no such proxy")
		}
		return nil, nil
	}
	for address, want := range map[string]bool{
		"http://service.test/": true, "http://127.0.0.1:8080/x": true, "http://[::1]:8080/": true,
		"https://service.test/": false, "http://proxied.test/": false, "http://odd.test/": false, "http://bücher.test/": false,
	} {
		for length, fits := range map[int]bool{0: true, maxDirectBody: true, maxDirectBody + 1: false} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(strings.Repeat("x", length)))
			if err != nil {
				t.Fatal(err)
			}
			if got := d.suits(req); got != (want && fits) {
				t.Errorf("%s with %d bytes: %t, want %t", address, length, got, want && fits)
			}
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://service.test/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if req.Header.Set("Expect", "100-continue"); d.suits(req) {
		t.Error("a request waits for 100 Continue that nobody sends it")
	}
}

func TestIdleConnectionsAreClosedInTime(t *testing.T) {
	t.Parallel()
	s, d := serveScript(t, ok("x")), newTestDirect(t)
	if _, err := s.post(t, d, "a"); err != nil {
		t.Fatal(err)
	}
	d.idle.sweep()
	c := d.idle.byAddress[s.address][0]
	if !silent(c.raw) {
		t.Fatal("a connection is closed before its time")
	}
	old := c.since.Add(-idleTimeout)
	if c.since = old; d.idle.take(s.address) != nil {
		t.Error("a connection is used that was idle for too long")
	}
	if _, err := s.post(t, d, "a"); err != nil {
		t.Fatal(err)
	}
	d.idle.mu.Lock()
	c = d.idle.byAddress[s.address][0]
	c.since = old
	d.idle.mu.Unlock()
	d.idle.sweep()
	if _, err := c.raw.Write([]byte("x")); !errors.Is(err, net.ErrClosed) || len(d.idle.byAddress) != 0 {
		t.Errorf("a connection that was idle for %s is open: %v", idleTimeout, err)
	}
	if d.idle.sweeper != nil {
		t.Error("nothing is idle, and the sweeper comes back")
	}
}

func TestNoMoreConnectionsAreKeptThanCallsAreAllowed(t *testing.T) {
	t.Parallel()
	s, d := serveScript(t, ok("x")), newTestDirect(t)
	var bodies []io.ReadCloser
	t.Cleanup(func() {
		for _, body := range bodies {
			_ = body.Close()
		}
	})
	for range d.idle.most + 3 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.address, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		response, err := d.RoundTrip(req) //nolint:bodyclose // the cleanup does
		if err != nil {
			t.Fatal(err)
		}
		bodies = append(bodies, response.Body)
	}
	for _, body := range bodies {
		_, _ = io.ReadAll(body)
	}
	if n := len(d.idle.byAddress[s.address]); n != d.idle.most {
		t.Errorf("%d connections are kept, want %d", n, d.idle.most)
	}
}

// closing is a body that knows whether it was closed.
type closing struct {
	io.Reader

	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

func TestARequestThatCannotBeSentIsClosed(t *testing.T) {
	t.Parallel()
	d := newTestDirect(t)
	d.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody there") }
	body := &closing{Reader: strings.NewReader("x")}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://service.test/", body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = 1
	if _, err := d.RoundTrip(req); err == nil || !body.closed { //nolint:bodyclose // there is none
		t.Errorf("no connection: %v, and its body is closed: %t", err, body.closed)
	}
}
