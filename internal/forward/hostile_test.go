package forward_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

// wild is a service in a synctest bubble that does what it likes with each
// connection.
type wild struct {
	*bench

	began time.Time
	pipe  *agentsim.Pipe
	conns sync.WaitGroup
}

// goWild starts one for a route "act"; handle gets each connection with its
// number, from 1, and the connection is closed after it.
func goWild(t *testing.T, options string, handle func(n int, c net.Conn)) *wild {
	t.Helper()
	w := &wild{began: time.Now(), pipe: agentsim.NewPipe()}
	w.conns.Go(func() {
		for n := 1; ; n++ {
			c, err := w.pipe.Accept()
			if err != nil {
				return
			}
			w.conns.Go(func() {
				defer func() { _ = c.Close() }()
				handle(n, c)
			})
		}
	})
	w.bench = newBench(t, "version: 1\nroutes:\n  act: { url: \"http://upstream.test\", timeout: 10s"+options+" }\n",
		func(c *forward.Config) { c.Transport.Dial = w.pipe.DialContext })
	return w
}

// stop fails when a connection outlives the forwarder.
func (w *wild) stop() {
	w.Close()
	_ = w.pipe.Close()
	w.conns.Wait()
}

// replying reads each request on a connection and writes the same to all.
func replying(reply string) func(int, net.Conn) {
	return func(_ int, c net.Conn) {
		r := bufio.NewReader(c)
		for {
			if _, err := readRaw(r); err != nil {
				return
			}
			if _, err := io.WriteString(c, reply); err != nil {
				return
			}
		}
	}
}

// closing is replying, and then closes the connection.
func closing(reply string) func(int, net.Conn) {
	return func(_ int, c net.Conn) {
		if _, err := readRaw(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, reply)
		}
	}
}

// endless writes head and then more until nobody reads, with a pause between.
func endless(head, more string, pause time.Duration) func(int, net.Conn) {
	return func(_ int, c net.Conn) {
		if _, err := readRaw(bufio.NewReader(c)); err != nil {
			return
		}
		for text := head; ; text = more {
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
			if pause > 0 {
				<-time.After(pause)
			}
		}
	}
}

const wholeHead = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"

// Whatever a service writes, the call has an outcome by its deadline, and its
// connection ends.
func TestServicesThatSpeakStrangely(t *testing.T) {
	t.Parallel()
	ok := journal.Success("ok")
	chunked := wholeHead + "Transfer-Encoding: chunked\r\n\r\n"
	tests := map[string]struct {
		handle func(int, net.Conn)
		want   journal.Outcome // where it succeeds
		kind   journal.Kind    // on an idempotent route where it does not
		took   time.Duration
	}{
		"HTTP/1.0":                          {closing("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nok"), ok, "", 0},
		"HTTP/1.0 keep-alive":               {replying("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"), ok, "", 0},
		"Connection: close":                 {closing(wholeHead + "Connection: close\r\nContent-Length: 2\r\n\r\nok"), ok, "", 0},
		"no length, closed":                 {closing(wholeHead + "\r\nok"), ok, "", 0},
		"bare line feeds":                   {replying("HTTP/1.1 200 OK\nContent-Length: 2\n\nok"), ok, "", 0},
		"100 before":                        {replying("HTTP/1.1 100 Continue\r\n\r\n" + wholeHead + "Content-Length: 2\r\n\r\nok"), ok, "", 0},
		"early hints before":                {replying(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", 20) + wholeHead + "Content-Length: 2\r\n\r\nok"), ok, "", 0},
		"length and chunks":                 {replying(wholeHead + "Content-Length: 77\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"), ok, "", 0},
		"chunks with extensions, a trailer": {replying(chunked + "2;a=\"b\"\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n"), ok, "", 0},
		"the same length twice":             {replying(wholeHead + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok"), ok, "", 0},
		"more than its length":              {replying(wholeHead + "Content-Length: 2\r\n\r\nok, and HTTP/1.1 500 more\r\n\r\n"), ok, "", 0},
		"204 with a body":                   {replying("HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nevil"), journal.Success(""), "", 0},
		"205 with a body":                   {replying("HTTP/1.1 205 Reset Content\r\nContent-Length: 4\r\n\r\nevil"), journal.Success(""), "", 0},
		"no reason phrase":                  {replying("HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok"), ok, "", 0},

		"headers that drip":       {endless("HTTP/1.1 200 OK\r\n", "X: y\r\n", time.Second), journal.Outcome{}, journal.Timeout, 10 * time.Second},
		"body that drips":         {endless(chunked, "1\r\nx\r\n", time.Second), journal.Outcome{}, journal.Timeout, 10 * time.Second},
		"trailer that drips":      {endless(chunked+"0\r\n", "X: y\r\n", time.Second), journal.Outcome{}, journal.Timeout, 10 * time.Second},
		"hints that drip":         {endless("", "HTTP/1.1 103 Early Hints\r\n\r\n", time.Second), journal.Outcome{}, journal.Timeout, 10 * time.Second},
		"headers without end":     {endless("HTTP/1.1 200 OK\r\n", "X: "+strings.Repeat("y", 1000)+"\r\n", 0), journal.Outcome{}, journal.Unavailable, 0},
		"a header without end":    {endless("HTTP/1.1 200 OK\r\nX: ", strings.Repeat("y", 1000), 0), journal.Outcome{}, journal.Unavailable, 0},
		"hints without end":       {endless("", "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", 0), journal.Outcome{}, journal.Unavailable, 0},
		"body without end":        {endless(chunked, "3e8\r\n"+strings.Repeat("y", 1000)+"\r\n", 0), journal.Outcome{}, journal.TooLarge, 0},
		"length of an exabyte":    {endless(wholeHead+"Content-Length: 1152921504606846976\r\n\r\n", strings.Repeat("y", 1000), 0), journal.Outcome{}, journal.TooLarge, 0},
		"trailer without end":     {endless(chunked+"0\r\n", "X: "+strings.Repeat("y", 1000)+"\r\n", 0), journal.Outcome{}, journal.BadReply, 0},
		"extension without end":   {endless(chunked+"1;", strings.Repeat("y", 1000), 0), journal.Outcome{}, journal.BadReply, 0},
		"chunks of one byte":      {endless(chunked, "1;"+strings.Repeat("y", 1000)+"\r\nx\r\n", 0), journal.Outcome{}, journal.BadReply, 0},
		"no chunk size":           {closing(chunked + "zz\r\nok\r\n0\r\n\r\n"), journal.Outcome{}, journal.BadReply, 0},
		"chunk size too large":    {closing(chunked + "fffffffffffffffff\r\nok\r\n"), journal.Outcome{}, journal.BadReply, 0},
		"negative chunk size":     {closing(chunked + "-2\r\nok\r\n0\r\n\r\n"), journal.Outcome{}, journal.BadReply, 0},
		"chunk without its end":   {closing(chunked + "2\r\nokay0\r\n\r\n"), journal.Outcome{}, journal.BadReply, 0},
		"lengths that differ":     {closing(wholeHead + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok!"), journal.Outcome{}, journal.Unavailable, 0},
		"negative length":         {closing(wholeHead + "Content-Length: -1\r\n\r\nok"), journal.Outcome{}, journal.Unavailable, 0},
		"unknown transfer coding": {closing(wholeHead + "Transfer-Encoding: gzip\r\n\r\nok"), journal.Outcome{}, journal.Unavailable, 0},
		"a colon in no header":    {closing("HTTP/1.1 200 OK\r\nno header\r\n\r\nok"), journal.Outcome{}, journal.Unavailable, 0},
		"status of two digits":    {closing("HTTP/1.1 20 OK\r\n\r\nok"), journal.Outcome{}, journal.Unavailable, 0},
		"another protocol":        {closing("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nok"), journal.Outcome{}, journal.Rejected, 0},
		"empty":                   {closing(""), journal.Outcome{}, journal.Unavailable, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, idempotent := range []string{"true", "false"} {
				synctest.Test(t, func(t *testing.T) {
					w := goWild(t, ", retry: { attempts: 1 }, idempotent: "+idempotent, test.handle)
					defer w.stop()
					for range 2 { // what one reply left behind must not be the next one's
						began := time.Now()
						o, _ := w.run(t, "act", `{}`)
						if took := time.Since(began); took != test.took {
							t.Errorf("took %s, want %s", took, test.took)
						}
						want := test.kind
						if idempotent == "false" && want != "" && want != journal.TooLarge && want != journal.Rejected {
							want = journal.UnknownOutcome
						}
						if o.Failure != want || want == "" && o != test.want {
							t.Errorf("idempotent %s: outcome = %+v", idempotent, o)
						}
						synctest.Wait()
					}
				})
			}
		})
	}
}

// A HEAD reply has no body, whatever its headers promise or follows it.
func TestHeadRepliesHaveNoBody(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]string{
		"length":      wholeHead + "Content-Length: 1000000\r\n\r\n",
		"chunks":      wholeHead + "Transfer-Encoding: chunked\r\n\r\n",
		"gzip":        wholeHead + "Content-Encoding: gzip\r\nContent-Length: 30\r\n\r\n",
		"with a body": wholeHead + "Content-Length: 4\r\n\r\nevil",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := goWild(t, ", method: HEAD", replying(reply))
				defer w.stop()
				for range 2 {
					if o, _ := w.run(t, "act", `{}`); o != journal.Success("") || time.Since(w.began) != 0 {
						t.Errorf("outcome = %+v after %s", o, time.Since(w.began))
					}
					synctest.Wait()
				}
			})
		})
	}
}

// A service that answers without reading the request is heard.
func TestAReplyBeforeTheRequestWasRead(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			up := httptest.NewUnstartedServer(answer(http.StatusRequestEntityTooLarge, "text/plain", "at most 1 KB"))
			if up.EnableHTTP2 = protocol == "HTTP/2"; up.EnableHTTP2 {
				up.StartTLS()
			} else {
				up.Start()
			}
			t.Cleanup(up.Close)
			b := newBench(t, table("act: "+up.URL), trusting(up))
			for range 3 {
				o, rec := b.run(t, "act", `{"s":"`+strings.Repeat("x", 600<<10)+`"}`)
				if o.Failure != journal.Rejected || !strings.Contains(o.Error, "at most 1 KB") || len(rec.attempts) != 1 {
					t.Errorf("outcome = %+v, attempts %+v", o, rec.attempts)
				}
			}
		})
	}
}

// A service that never reads the request does not hold the call.
func TestARequestThatIsNotRead(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		read int64
		kind journal.Kind
	}{
		"nothing of it": {0, journal.Unavailable},
		"a part of it":  {200, journal.UnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				w := goWild(t, ", retry: { attempts: 1 }", func(_ int, c net.Conn) {
					_, _ = io.CopyN(io.Discard, c, test.read)
					<-release
				})
				defer w.stop()
				defer close(release)
				o, _ := w.run(t, "act", `{"s":"`+strings.Repeat("x", 100<<10)+`"}`)
				if took := time.Since(w.began); o.Failure != test.kind || took != 10*time.Second {
					t.Errorf("outcome = %+v after %s", o, took)
				}
			})
		})
	}
}

// Not parallel: it measures what is allocated.
func TestHostileRepliesCostLittleMemory(t *testing.T) {
	chunked := wholeHead + "Transfer-Encoding: chunked\r\n\r\n"
	big := strings.Repeat("y", 32<<10)
	for name, handle := range map[string]func(int, net.Conn){
		"headers":   endless("HTTP/1.1 200 OK\r\n", "X: "+big+"\r\n", 0),
		"a header":  endless("HTTP/1.1 200 OK\r\nX: ", big, 0),
		"hints":     endless("", "HTTP/1.1 103 Early Hints\r\nLink: "+big+"\r\n\r\n", 0),
		"trailer":   endless(chunked+"0\r\n", "X: "+big+"\r\n", 0),
		"extension": endless(chunked+"1;", big, 0),
		"body":      endless(chunked, "8000\r\n"+big+"\r\n", 0),
		"exabyte":   endless(wholeHead+"Content-Length: 1152921504606846976\r\n\r\n", big, 0),
		"error":     endless("HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n\r\n", big, 0),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := goWild(t, "", handle)
				defer w.stop()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				o, _ := w.run(t, "act", `{}`)
				runtime.ReadMemStats(&after)
				if o.Success {
					t.Errorf("outcome = %.200v", o)
				}
				if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
					t.Errorf("%d bytes were allocated", grown)
				}
			})
		})
	}
}
