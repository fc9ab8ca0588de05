package forward_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

// leaky is a way for a call to fail. Its service stands at an address that
// nobody is to hear of.
type leaky struct {
	name string
	// dial fails in a way of its own; without it, handler answers, in TLS that
	// the bridge does not trust where the scheme is https.
	dial    func() error
	handler http.HandlerFunc
	scheme  string
	options string
	// function and arguments are "act" and {} when empty.
	function, arguments string
	kind                journal.Kind
}

const (
	hiddenHost = "billing-7.corp.internal"
	hiddenPath = "/v9/ledger"
	stackTrace = "panic: boom at " + hiddenHost + "\ngoroutine 1 [running]:\nmain.go:17"
)

func failures() []leaky {
	socket := &net.TCPAddr{IP: net.IPv4(10, 9, 8, 7), Port: 4711}
	dial := func(err error) func() error {
		return func() error { return &net.OpError{Op: "dial", Net: "tcp", Addr: socket, Err: err} }
	}
	answered := func(status int, kind journal.Kind) leaky {
		return leaky{name: http.StatusText(status), kind: kind, handler: answer(status, "application/json", `{"detail":"no"}`)}
	}
	raw := func(name, reply string, kind journal.Kind) leaky {
		return leaky{name: name, kind: kind, handler: hijacking(reply)}
	}
	return []leaky{
		{name: "refused", dial: dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)), kind: journal.Unavailable},
		{name: "no route to host", dial: dial(syscall.EHOSTUNREACH), kind: journal.Unavailable},
		{name: "dial timeout", dial: dial(os.ErrDeadlineExceeded), kind: journal.Unavailable},
		{name: "no such host", dial: dial(&net.DNSError{Err: "no such host", Name: hiddenHost, Server: "10.9.8.7:53", IsNotFound: true}), kind: journal.Unavailable},
		{name: "another error", dial: func() error { return errors.New("dial " + hiddenHost + ": EOF") }, kind: journal.Unavailable},
		{name: "certificate", scheme: "https", handler: answer(200, "text/plain", "ok"), kind: journal.Unavailable},
		raw("closed", "", journal.Unavailable),
		raw("no HTTP", "220 "+hiddenHost+" ESMTP\r\n", journal.Unavailable),
		raw("bad header", "HTTP/1.1 200 OK\r\n"+hiddenHost+"\r\n\r\n", journal.Unavailable),
		raw("headers too large", "HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 300<<10)+"\r\n\r\n", journal.Unavailable),
		raw("cut", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", journal.BadReply),
		raw("bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz", journal.BadReply),
		{name: "timeout", options: ", timeout: 100ms", handler: silentUntilGone, kind: journal.Timeout},
		{name: "redirect", handler: redirecting(302, "http://"+hiddenHost+hiddenPath), kind: journal.Rejected},
		{name: "redirect elsewhere", handler: redirecting(307, "http://"+hiddenHost+":9"+hiddenPath), kind: journal.Rejected},
		answered(400, journal.InvalidArguments), answered(401, journal.Denied), answered(404, journal.NotFound),
		answered(408, journal.Timeout), answered(409, journal.Conflict), answered(418, journal.Rejected),
		answered(425, journal.Unavailable), answered(429, journal.RateLimited),
		answered(502, journal.Unavailable), answered(503, journal.Unavailable), answered(504, journal.Timeout),
		{name: "stack in a 500", handler: answer(500, "text/plain", stackTrace), kind: journal.UpstreamError},
		{name: "page of a proxy", handler: answer(404, "text/html", "<h1>"+hiddenHost), kind: journal.NotFound},
		{name: "HTML", handler: answer(200, "text/html", "<h1>"+hiddenHost), kind: journal.BadReply},
		{name: "binary", handler: answer(200, "application/octet-stream", hiddenHost), kind: journal.BadReply},
		{name: "bad gzip", handler: coded("gzip", []byte(hiddenHost)), kind: journal.BadReply},
		{name: "no parts", options: ", result: { as: content }", handler: answer(200, "text/plain", hiddenHost), kind: journal.BadReply},
		{name: "too large", options: ", result: { max_bytes: 3 }", handler: answer(200, "text/plain", hiddenHost), kind: journal.TooLarge},
		{name: "arguments", arguments: `[1]`, kind: journal.InvalidArguments},
		{name: "schema", options: ", parameters: { type: object, required: [id] }", kind: journal.InvalidArguments},
		{name: "template value", options: `, query: { q: "{id}" }`, kind: journal.InvalidArguments},
		{name: "header value", options: `, headers: { X-Id: "{id}" }`, arguments: `{"id":"a\nb"}`, kind: journal.InvalidArguments},
		{name: "session value", options: `, headers: { X-Id: "{session.metadata.user_id}" }`, kind: journal.Internal},
		{name: "no such function", function: "act2", kind: journal.UnknownFunction},
	}
}

// silentUntilGone reads the request, since only then a server sees its client go.
func silentUntilGone(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// hijacking writes a reply of its own and closes the connection.
func hijacking(reply string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.WriteString(c, reply)
			_ = c.Close()
		}
	}
}

// No way to fail tells the agent, or the list of attempts, where the service
// stands, what it was sent, or what Go calls the fault.
func TestNoFailureTellsWhereTheServiceIs(t *testing.T) {
	t.Parallel()
	for _, test := range failures() {
		for _, idempotent := range []string{"true", "false"} {
			t.Run(test.name+" idempotent="+idempotent, func(t *testing.T) {
				t.Parallel()
				b, address := test.start(t, idempotent)
				function, arguments := test.function, test.arguments
				if function == "" {
					function = "act"
				}
				o, rec := b.run(t, function, arguments)
				if o.Success || o.Failure != test.kind && (idempotent == "true" || o.Failure != journal.UnknownOutcome) {
					t.Errorf("outcome = %+v, want %s", o, test.kind)
				}
				texts := []string{o.Output, o.Error}
				for _, a := range rec.attempts {
					texts = append(texts, a.Error)
				}
				noInside(t, strings.Join(texts, "\n"), address)
				noSecret(t, "outcome", strings.Join(texts, "\n"))
				noSecret(t, "log", b.log.String())
			})
		}
	}
}

// start builds a route to the hidden address; address is where it leads to.
func (l leaky) start(t *testing.T, idempotent string) (b *bench, address string) {
	t.Helper()
	scheme := "http"
	if l.scheme != "" {
		scheme = l.scheme
	}
	if l.handler != nil {
		s := httptest.NewUnstartedServer(l.handler)
		quiet(s)
		if scheme == "https" {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		address = s.Listener.Addr().String()
	}
	url := scheme + "://user:${PASSWORD}@" + hiddenHost + ":8443" + hiddenPath + "?token=${TOKEN}"
	routes := table(`act: { url: "` + url + `", idempotent: ` + idempotent + l.options + ` }`)
	return newBench(t, routes, func(c *forward.Config) {
		c.Transport.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			if l.dial != nil {
				return nil, l.dial()
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}), address
}

func noInside(t *testing.T, text, address string) {
	t.Helper()
	words := []string{
		hiddenHost, "corp.internal", "8443", "ledger", "10.9.8.7", "4711", "127.0.0.1", "://",
		"user:", "Authorization", "Idempotency-Key", "X-Id:",
		"net/http", "http:", "dial", "tcp", "EOF", "context", "deadline", "x509", "tls:", "syscall", "errno",
		"malformed", "goroutine", ".go", "panic", "gzip:", "json:", "0x",
	}
	if _, port, err := net.SplitHostPort(address); err == nil {
		words = append(words, port)
	}
	for _, word := range words {
		if strings.Contains(text, word) {
			t.Errorf("%q in %q", word, text)
		}
	}
}
