// Package exchange makes HTTP exchanges for those who make many small ones: one
// request, one reply. What to send, and whether to send it again, is for others.
package exchange

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

// Direct makes an exchange over plain HTTP/1.1 in the goroutine of its caller:
// the request is written and the reply read by net/http's own code, on a
// connection that nobody else looks at meanwhile. http.Transport has two
// goroutines for each connection, and hands every exchange to both and back:
// 10 to 20 µs of 165 that a call cost. What Direct does not suit is left to the
// transport: TLS, proxies, large bodies.
//
// It never sends a request twice. It is safe for concurrent use.
type Direct struct {
	*http.Transport

	idle idleConns
}

// NewDirect returns a Direct that keeps to the settings of t, which must have
// DialContext, MaxIdleConnsPerHost, IdleConnTimeout and MaxResponseHeaderBytes.
// Its connections are the system's: of others it cannot be said whether they are
// silent, and they are used once.
func NewDirect(t *http.Transport) *Direct {
	return &Direct{Transport: t, idle: idleConns{most: t.MaxIdleConnsPerHost, patience: t.IdleConnTimeout}}
}

// CloseIdleConnections closes them.
func (d *Direct) CloseIdleConnections() {
	d.idle.closeAll()
	d.Transport.CloseIdleConnections()
}

// maxDirectBody is a body that the system takes whole, so that it is written
// also when the service answers and reads no further.
const maxDirectBody = 16 << 10

// suits reports whether the exchange can be made here.
func (d *Direct) suits(req *http.Request) bool {
	if req.URL.Scheme != "http" || req.ContentLength > maxDirectBody || req.ContentLength < 0 || req.Header["Expect"] != nil {
		return false
	}
	for _, c := range []byte(req.URL.Host) {
		if c >= 0x80 {
			return false // http.Transport writes it in ASCII
		}
	}
	if d.Proxy == nil {
		return canLook
	}
	proxy, err := d.Proxy(req)
	return canLook && proxy == nil && err == nil
}

// RoundTrip implements http.RoundTripper. As that of http.Transport it returns
// when the reply's header is there, and the reply's body ends the exchange.
func (d *Direct) RoundTrip(req *http.Request) (*http.Response, error) {
	if !d.suits(req) {
		return d.Transport.RoundTrip(req)
	}
	ctx := req.Context()
	c, err := d.connect(ctx, addressOf(req.URL))
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // as a RoundTripper must; Request.Write does it else
		}
		return nil, err
	}
	c.watch = context.AfterFunc(ctx, c.interrupt)
	response, err := c.exchange(req)
	if err != nil {
		c.end(false)
		return nil, because(ctx, err)
	}
	if response.Body == http.NoBody {
		c.end(true)
	} else {
		response.Body = &body{ReadCloser: response.Body, ctx: ctx, conn: c}
	}
	return response, nil
}

// because is the end of the context where that is what failed an exchange: the
// connection says only that a deadline is over.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
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
func (d *Direct) connect(ctx context.Context, address string) (*conn, error) {
	c := d.idle.take(address)
	reused := c != nil
	if c == nil {
		raw, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		c = newConn(raw, &d.idle, address)
		c.header = d.MaxResponseHeaderBytes
	}
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c.raw, Reused: reused, WasIdle: reused})
	}
	return c, nil
}

// conn is one connection. It belongs to one exchange, or to idleConns.
type conn struct {
	raw     net.Conn
	limit   io.LimitedReader // of raw
	reader  *bufio.Reader    // of limit
	writer  *bufio.Writer
	home    *idleConns
	address string
	since   time.Time // idle since
	header  int64     // the most bytes of a reply's header
	// keep says that the connection is good for another exchange, if this one
	// comes to its end.
	keep bool
	// watch takes interrupt back. It returns false when that was called.
	watch func() bool
}

func newConn(raw net.Conn, home *idleConns, address string) *conn {
	c := &conn{raw: raw, home: home, address: address}
	c.limit.R = raw
	c.reader, c.writer = bufio.NewReader(&c.limit), bufio.NewWriter(raw)
	return c
}

// interrupt ends what is under way on the connection, by a deadline that is over.
func (c *conn) interrupt() { _ = c.raw.SetDeadline(time.Unix(1, 0)) }

// exchange sends the request and reads the header of the reply.
func (c *conn) exchange(req *http.Request) (*http.Response, error) {
	err := req.Write(c.writer)
	if err == nil {
		err = c.writer.Flush()
	}
	if err != nil {
		return nil, fmt.Errorf("send the request: %w", err)
	}
	c.limit.N = c.header
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
func (c *conn) readHeader(req *http.Request) (*http.Response, error) {
	for {
		response, err := http.ReadResponse(c.reader, req)
		if err != nil || response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			return response, err
		}
	}
}

// end ends the exchange; whole says that all of the reply was read.
func (c *conn) end(whole bool) {
	undisturbed := c.watch()
	if whole && undisturbed && c.keep && c.reader.Buffered() == 0 && c.home.put(c) {
		return
	}
	_ = c.raw.Close()
}

// body is the body of a reply; its end is that of the exchange.
type body struct {
	io.ReadCloser

	ctx  context.Context //nolint:containedctx // of the request, as http.Request has it
	conn *conn           // nil once the exchange has ended
	err  error           // what Read returns then
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.conn == nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		b.finish(err, true)
	case err != nil:
		err = because(b.ctx, err)
		b.finish(err, false)
	}
	return n, err //nolint:wrapcheck // io.EOF must stay itself
}

// Close implements io.Closer. A reply that was not read to its end takes the
// connection with it.
func (b *body) Close() error {
	if b.conn != nil {
		b.finish(http.ErrBodyReadAfterClose, false)
	}
	return nil
}

func (b *body) finish(err error, whole bool) {
	b.conn.end(whole)
	b.conn, b.err = nil, err
}
