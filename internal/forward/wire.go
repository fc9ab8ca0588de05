package forward

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// smallestWrite tells a request from what TLS writes on its own account: an
// alert or a key update takes 24 to 40 bytes, while the first write of a
// request holds its headers, some 300 bytes or, in TLS, a record of a kilobyte.
const smallestWrite = 64

// wireConn counts the writes on a connection, so that it can be said whether
// anything of a request left.
type wireConn struct {
	net.Conn
	writes atomic.Int64
}

// NetConn is the connection without the count.
func (c *wireConn) NetConn() net.Conn { return c.Conn }

// Write counts first, so that a write in flight counts, and takes that back
// when not a byte went out.
func (c *wireConn) Write(p []byte) (int, error) {
	if len(p) < smallestWrite {
		return c.Conn.Write(p)
	}
	c.writes.Add(1)
	n, err := c.Conn.Write(p)
	if err != nil && n == 0 {
		c.writes.Add(-1)
	}
	return n, err
}

// watched makes connections that count.
func watched(dial Dial) Dial {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &wireConn{Conn: conn}, nil
	}
}

// watch observes one request below http.Transport.
type watch struct {
	trace httptrace.ClientTrace
	// conn is the connection that the request was given, nil before; wire is
	// what lies under it, and writes what had been written by then.
	conn   net.Conn
	wire   *wireConn
	writes int64
	// reused: the connection carried requests before.
	reused bool
	// notTLS is set from the transport's dialing goroutine, which may outlive
	// the attempt.
	notTLS atomic.Bool
}

// observe returns a context under which w watches the one request that is
// sent; secure says that it goes over TLS.
func (w *watch) observe(ctx context.Context, secure bool) context.Context {
	w.trace.GotConn = w.gotConn
	if secure {
		w.trace.TLSHandshakeDone = w.handshakeDone
	}
	return httptrace.WithClientTrace(ctx, &w.trace)
}

func (w *watch) gotConn(info httptrace.GotConnInfo) {
	w.conn, w.wire, w.reused = info.Conn, underlying(info.Conn), info.Reused
	if w.wire != nil {
		w.writes = w.wire.writes.Load()
	}
}

func (w *watch) handshakeDone(_ tls.ConnectionState, err error) {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		w.notTLS.Store(true)
	}
}

// underlying finds the counting connection below TLS, also through a proxy
// that is itself spoken to in TLS.
func underlying(conn net.Conn) *wireConn {
	for {
		switch c := conn.(type) {
		case *wireConn:
			return c
		case *tls.Conn:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

// nothingSent reports whether certainly nothing of the request that failed with
// err was processed. It is to be asked after the transport has given up.
func (w *watch) nothingSent(err error) bool {
	if w.conn == nil {
		return true
	}
	untouched := w.wire != nil && w.wire.writes.Load() == w.writes
	if c, ok := w.conn.(*tls.Conn); ok && c.ConnectionState().NegotiatedProtocol == "h2" {
		// Later requests on a connection are compressed to a few bytes.
		return refusedStream(err) || untouched && !w.reused
	}
	return untouched
}

// refusedStream reports whether an HTTP/2 server said that it did not look at
// the request: REFUSED_STREAM, or GOAWAY with a lower last stream; or whether its
// connection had ended before the request had a stream. The library has words
// alone for it (net/http, http2shouldRetryRequest, awaitOpenSlotForStreamLocked);
// should they change, such a request counts as possibly processed, and a test
// fails.
func refusedStream(err error) bool {
	text := err.Error()
	return strings.Contains(text, "; REFUSED_STREAM") ||
		strings.Contains(text, "Server's graceful shutdown GOAWAY") ||
		strings.Contains(text, "http2: client conn could not be established")
}
