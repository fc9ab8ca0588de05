package forward_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"testing"

	"functionbridge/internal/journal"
)

// rawService is a TCP server that reads one request at a time and answers with
// what it is told, byte for byte.
type rawService struct {
	URL      string
	requests chan string
}

// serveRaw starts one. reply gets the number of the request, from 1, and its
// connection; true keeps the connection.
func serveRaw(tb testing.TB, reply func(n int, c net.Conn) bool) *rawService {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &rawService{URL: "http://" + listener.Addr().String(), requests: make(chan string, 100)}
	done := make(chan struct{})
	tb.Cleanup(func() { _ = listener.Close(); <-done })
	go func() {
		defer close(done)
		n := 0
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			reader := bufio.NewReader(conn)
			for {
				text, err := readRaw(reader)
				if err != nil {
					break
				}
				s.requests <- text
				if n++; !reply(n, conn) {
					break
				}
			}
			_ = conn.Close()
		}
	}()
	return s
}

func readRaw(r *bufio.Reader) (string, error) {
	var b strings.Builder
	tee := bufio.NewReader(io.TeeReader(onlyReader{r}, &b))
	tp := textproto.NewReader(tee)
	if _, err := tp.ReadLine(); err != nil {
		return "", err
	}
	header, err := tp.ReadMIMEHeader()
	if err != nil {
		return "", err
	}
	length, _ := strconv.Atoi(header.Get("Content-Length"))
	if _, err := io.CopyN(io.Discard, tee, int64(length)); err != nil {
		return "", err
	}
	return b.String(), nil
}

// onlyReader hands out what is there, so that nothing beyond one request is
// waited for.
type onlyReader struct{ r *bufio.Reader }

func (o onlyReader) Read(p []byte) (int, error) { return o.r.Read(p) }

func TestBodylessRequestsHaveNoBodyOnTheWire(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "DELETE", "HEAD"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			up := serveRaw(t, func(_ int, c net.Conn) bool {
				_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
				return true
			})
			b := newBench(t, table(fmt.Sprintf("act: { url: %s/x, method: %s }", up.URL, method)))

			outcome, _ := b.run(t, "act", `{"a":1}`)

			if outcome != journal.Success("") {
				t.Errorf("outcome = %+v", outcome)
			}
			got := <-up.requests
			if !strings.HasPrefix(got, method+" /x?a=1 HTTP/1.1\r\n") || !strings.HasSuffix(got, "\r\n\r\n") {
				t.Errorf("request:\n%s", got)
			}
			for _, name := range []string{"Transfer-Encoding", "Content-Length", "Content-Type"} {
				if strings.Contains(got, name) {
					t.Errorf("%s in\n%s", name, got)
				}
			}
		})
	}
}

func TestBodiesHaveTheirLength(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "ok"))
	b := newBench(t, table("act: "+up.URL))
	b.run(t, "act", "")
	got := up.requests()[0]
	if got.length != 2 || got.coding != nil || got.body != "{}" {
		t.Errorf("request = %+v", got)
	}
}
