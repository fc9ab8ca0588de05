package forward

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"
)

// direct makes an exchange over plain HTTP/1.1 in the goroutine of its caller:
// the request is written and the reply read by net/http's own code, on a
// connection that nobody else looks at meanwhile. http.Transport has two
// goroutines for each connection, and hands every exchange to both and back: that
// is as dear as the system calls, and a quarter of what a call costs the bridge
// on its way to the service. What direct does not suit is left to a transport:
// TLS, proxies, large bodies.
//
// It never sends a request twice.
type direct struct {
	*http.Transport

	dial  Dial
	proxy func(*http.Request) (*url.URL, error)
	idle  idleConns
}

func newDirect(t *http.Transport) *direct {
	d := &direct{Transport: t, dial: t.DialContext, proxy: t.Proxy}
	d.idle.most = t.MaxIdleConnsPerHost
	return d
}

// CloseIdleConnections closes them.
func (d *direct) CloseIdleConnections() {
	d.idle.closeAll()
	d.Transport.CloseIdleConnections()
}

// maxDirectBody is a body that the system takes whole, so that it is written
// also when the service answers and reads no further.
const maxDirectBody = 16 << 10

// suits reports whether the exchange can be made here.
func (d *direct) suits(req *http.Request) bool {
	if req.URL.Scheme != "http" || req.ContentLength > maxDirectBody || req.ContentLength < 0 || req.Header["Expect"] != nil {
		return false
	}
	for _, c := range []byte(req.URL.Host) {
		if c >= 0x80 {
			return false // http.Transport writes it in ASCII
		}
	}
	proxy, err := d.proxy(req)
	return proxy == nil && err == nil
}

// RoundTrip implements http.RoundTripper. As that of http.Transport it returns
// when the reply's header is there, and the reply's body ends the exchange.
func (d *direct) RoundTrip(req *http.Request) (*http.Response, error) {
	if !d.suits(req) {
		return d.Transport.RoundTrip(req)
	}
	ctx := req.Context()
	c, err := d.connect(ctx, addressOf(req.URL))
	if err != nil {
		return nil, err
	}
	c.watch = context.AfterFunc(ctx, c.interrupt)
	response, err := c.exchange(req)
	if err != nil {
		c.end(false)
		return nil, err
	}
	if response.Body == http.NoBody {
		c.end(true)
	} else {
		response.Body = &directBody{body: response.Body, conn: c}
	}
	return response, nil
}

// addressOf is the host and port of a URL.
func addressOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// connect takes an idle connection, or makes one.
func (d *direct) connect(ctx context.Context, address string) (*directConn, error) {
	c := d.idle.take(address)
	reused := c != nil
	if c == nil {
		raw, err := d.dial(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		c = newDirectConn(raw, &d.idle, address)
	}
	c.reused = reused
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c.raw, Reused: reused, WasIdle: reused})
	}
	return c, nil
}

// directConn is one connection. It belongs to one exchange, or to idleConns.
type directConn struct {
	raw     net.Conn
	limit   io.LimitedReader // of raw
	reader  *bufio.Reader    // of limit
	writer  *bufio.Writer
	home    *idleConns
	address string
	since   time.Time // idle since
	reused  bool
	// keep says that the connection is good for another exchange, if this one
	// comes to its end.
	keep bool
	// watch takes interrupt back. It returns false when that was called.
	watch func() bool
}

func newDirectConn(raw net.Conn, home *idleConns, address string) *directConn {
	c := &directConn{raw: raw, home: home, address: address}
	c.limit.R = raw
	c.reader, c.writer = bufio.NewReader(&c.limit), bufio.NewWriter(raw)
	return c
}

// interrupt ends what is under way on the connection, by a deadline that is over.
func (c *directConn) interrupt() { _ = c.raw.SetDeadline(time.Unix(1, 0)) }

// exchange sends the request and reads the header of the reply.
func (c *directConn) exchange(req *http.Request) (*http.Response, error) {
	err := req.Write(c.writer)
	if err == nil {
		err = c.writer.Flush()
	}
	if err != nil {
		return nil, fmt.Errorf("send the request: %w", err)
	}
	c.limit.N = maxHeaderBytes
	response, err := c.readHeader(req)
	if err != nil {
		return nil, fmt.Errorf("read the reply: %w", err)
	}
	c.limit.N = math.MaxInt64
	c.keep = !req.Close && !response.Close && response.StatusCode != http.StatusSwitchingProtocols
	return response, nil
}

// readHeader reads the header of the final reply, behind those that only say that
// it is to come. The limit holds for all of them.
func (c *directConn) readHeader(req *http.Request) (*http.Response, error) {
	for {
		response, err := http.ReadResponse(c.reader, req)
		if err != nil || response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			return response, err
		}
	}
}

// end ends the exchange; whole says that all of the reply was read.
func (c *directConn) end(whole bool) {
	undisturbed := c.watch()
	if whole && undisturbed && c.keep && c.reader.Buffered() == 0 && c.home.put(c) {
		return
	}
	_ = c.raw.Close()
}

// directBody is the body of a reply; its end is that of the exchange.
type directBody struct {
	body io.ReadCloser
	conn *directConn // nil once the exchange has ended
	err  error       // what Read returns then
}

// Read implements io.Reader.
func (b *directBody) Read(p []byte) (int, error) {
	if b.conn == nil {
		return 0, b.err
	}
	n, err := b.body.Read(p)
	if err != nil {
		b.finish(err, errors.Is(err, io.EOF))
	}
	return n, err //nolint:wrapcheck // io.EOF must stay itself
}

// Close implements io.Closer. A reply that was not read to its end takes the
// connection with it.
func (b *directBody) Close() error {
	if b.conn != nil {
		b.finish(http.ErrBodyReadAfterClose, false)
	}
	return nil
}

func (b *directBody) finish(err error, whole bool) {
	b.conn.end(whole)
	b.conn, b.err = nil, err
}
