package forward

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"testing"
)

// What TLS writes on its own account is no request: otherwise every connection
// that the service closes while it is idle would look as if a request had left.
func TestOnlyRequestsCountAsWritten(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	t.Cleanup(server.Close)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			t.Parallel()
			raw, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			wire := &wireConn{Conn: raw}
			conn := tls.Client(wire, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
			if err := conn.HandshakeContext(t.Context()); err != nil {
				t.Fatal(err)
			}
			w := watch{conn: conn, wire: underlying(conn), writes: wire.writes.Load()}
			if !w.nothingSent(io.EOF) {
				t.Error("a request counts before it was written")
			}
			if _, err := conn.Write(make([]byte, 300)); err != nil {
				t.Fatal(err)
			}
			if w.nothingSent(io.EOF) {
				t.Error("a request does not count")
			}
			w.writes = wire.writes.Load()
			_ = conn.Close()
			if !w.nothingSent(io.EOF) {
				t.Error("the alert of a close counts as a request")
			}
		})
	}
}

// failing writes as much as it says and fails.
type failing struct {
	net.Conn

	n int
}

func (f failing) Write([]byte) (int, error) { return f.n, errors.New("broken pipe") }

func TestAWriteCountsUnlessNotAByteWentOut(t *testing.T) {
	t.Parallel()
	for n, counts := range map[int]int64{0: 0, 1: 1, 299: 1} {
		c := &wireConn{Conn: failing{n: n}}
		_, _ = c.Write(make([]byte, 300))
		if got := c.writes.Load(); got != counts {
			t.Errorf("%d of 300 bytes written count as %d", n, got)
		}
	}
	unknown := watch{conn: failing{}}
	if unknown.nothingSent(io.EOF) {
		t.Error("a connection that does not count is taken for one on which nothing was written")
	}
}

// One large reply must not stay in memory for ever.
func TestLargeBuffersAreNotKept(t *testing.T) {
	t.Parallel()
	var b buffers
	large := make([]byte, 0, largestBuffer+1)
	for range 100 {
		b.put(&large)
		if got := b.get(); cap(*got) > largestBuffer {
			t.Fatalf("a buffer of %d bytes was kept", cap(*got))
		}
	}
}
