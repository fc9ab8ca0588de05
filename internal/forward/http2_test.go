package forward_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

// framed is an HTTP/2 server that answers the first stream with what refuse
// writes, and every later one with 200 "done".
type framed struct {
	streams atomic.Int64
	refuse  func(f *http2.Framer, stream uint32)
}

func (s *framed) serve(c net.Conn) {
	if _, err := io.CopyN(io.Discard, c, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	_ = f.WriteSettings()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.HeadersFrame:
			if s.streams.Add(1) == 1 {
				s.refuse(f, frame.StreamID)
				continue
			}
			s.answer(f, frame.StreamID)
		}
	}
}

func (s *framed) answer(f *http2.Framer, stream uint32) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	_ = encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = encoder.WriteField(hpack.HeaderField{Name: "content-type", Value: "text/plain"})
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
	_ = f.WriteData(stream, true, []byte("done"))
}

// A server that says it did not look at a request lets it be sent again, also
// where it is not idempotent. Any other reset does not.
func TestRefusedStreamsWereNotProcessed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		refuse  func(f *http2.Framer, stream uint32)
		streams int64
		outcome journal.Kind
	}{
		"REFUSED_STREAM": {func(f *http2.Framer, stream uint32) { _ = f.WriteRSTStream(stream, http2.ErrCodeRefusedStream) }, 2, ""},
		"GOAWAY before":  {func(f *http2.Framer, _ uint32) { _ = f.WriteGoAway(0, http2.ErrCodeNo, nil) }, 2, ""},
		"INTERNAL_ERROR": {func(f *http2.Framer, stream uint32) { _ = f.WriteRSTStream(stream, http2.ErrCodeInternal) }, 1, journal.UnknownOutcome},
		"PROTOCOL_ERROR": {func(f *http2.Framer, stream uint32) { _ = f.WriteRSTStream(stream, http2.ErrCodeProtocol) }, 1, journal.UnknownOutcome},
		"CANCEL":         {func(f *http2.Framer, stream uint32) { _ = f.WriteRSTStream(stream, http2.ErrCodeCancel) }, 1, journal.UnknownOutcome},
	} {
		for _, method := range []string{"POST", "DELETE"} {
			t.Run(name+" "+method, func(t *testing.T) {
				t.Parallel()
				up := &framed{refuse: test.refuse}
				certificate := newCertificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
				address := acceptTLS(t, certificate, up.serve)
				b := newBench(t, table("act: { url: \"https://"+address+"\", idempotent: false, method: "+method+" }"), func(c *forward.Config) {
					c.Transport.RootCAs = x509.NewCertPool()
					c.Transport.RootCAs.AddCert(certificate.Leaf)
				})

				o, rec := b.run(t, "act", `{}`)

				if o.Failure != test.outcome || up.streams.Load() != test.streams {
					t.Errorf("outcome = %+v after %d streams, attempts %+v", o, up.streams.Load(), rec.attempts)
				}
				if rec.unprocessed[0] != (test.outcome == "") {
					t.Errorf("unprocessed = %v", rec.unprocessed)
				}
			})
		}
	}
}

// mute is a connection that takes so many writes of some size and no more.
type mute struct {
	net.Conn

	left *atomic.Int64
}

func (c mute) Write(p []byte) (int, error) {
	if len(p) >= 64 && c.left.Add(-1) < 0 {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(p)
}

// The first request on a connection that breaks before a byte of it is written
// was not processed, and is sent again on another, whatever the route.
func TestARequestThatWasNotWrittenIsSentAgain(t *testing.T) {
	t.Parallel()
	up := serveTLS(t, nil, true, answer(200, "text/plain", "done"))
	dials := 0
	b := newBench(t, table("act: { url: "+up.URL+", idempotent: false }"), trusting(up.Server), func(c *forward.Config) {
		c.Transport.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if dials++; err != nil || dials > 1 {
				return conn, err
			}
			left := &atomic.Int64{}
			left.Store(3) // two for TLS and the greeting of HTTP/2
			return mute{conn, left}, nil
		}
	})
	o, rec := b.run(t, "act", `{}`)
	if o != journal.Success("done") || len(rec.attempts) != 2 || !rec.unprocessed[0] || rec.attempts[0].Error != "connection lost before the request was sent" {
		t.Errorf("outcome = %+v, attempts %+v", o, rec.attempts)
	}
	if len(up.requests()) != 1 {
		t.Errorf("%d requests were served", len(up.requests()))
	}
}

// A stream without a reply ends with its attempt's time, and the connection
// serves the next call.
func TestASilentStreamHoldsNoOtherCall(t *testing.T) {
	t.Parallel()
	up := &framed{refuse: func(*http2.Framer, uint32) {}}
	var connections atomic.Int64
	certificate := newCertificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	address := acceptTLS(t, certificate, func(c net.Conn) {
		connections.Add(1)
		up.serve(c)
	})
	b := newBench(t, table("act: { url: \"https://"+address+"\", attempt_timeout: 1s }"), func(c *forward.Config) {
		c.Transport.RootCAs = x509.NewCertPool()
		c.Transport.RootCAs.AddCert(certificate.Leaf)
	})
	if o, rec := b.run(t, "act", `{}`); o.Failure != journal.UnknownOutcome || len(rec.attempts) != 1 || rec.attempts[0].Error != "timeout" {
		t.Errorf("outcome = %+v, attempts %+v", o, rec.attempts)
	}
	if o, _ := b.run(t, "act", `{}`); o != journal.Success("done") || connections.Load() != 1 {
		t.Errorf("outcome = %+v over %d connections", o, connections.Load())
	}
}

// A service that is gone without a word is noticed before the call's time is
// over: it answers no ping.
func TestADeadConnectionIsNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		certificate := newCertificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		w := goWild(t, ", method: POST", func(_ int, c net.Conn) {
			secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}})
			var greeting sync.WaitGroup
			greeting.Go(func() { _ = http2.NewFramer(secure, nil).WriteSettings() })
			_, _ = io.Copy(io.Discard, secure)
			greeting.Wait()
		})
		defer w.stop()
		b := newBench(t, "version: 1\nroutes:\n  act: { url: \"https://127.0.0.1\", timeout: 300s }\n", func(c *forward.Config) {
			c.Transport.Dial = w.pipe.DialContext
			c.Transport.RootCAs = x509.NewCertPool()
			c.Transport.RootCAs.AddCert(certificate.Leaf)
		})
		defer b.Close()
		o, rec := b.run(t, "act", `{}`)
		if took := time.Since(w.began); o.Failure != journal.UnknownOutcome || len(rec.attempts) != 1 || took < 5*time.Second || took > 12*time.Second {
			t.Errorf("outcome = %+v after %s", o, took)
		}
	})
}

// acceptTLS starts a TLS server that speaks HTTP/2; it serves connections side
// by side until the test ends.
func acceptTLS(t *testing.T, certificate tls.Certificate, handle func(net.Conn)) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				handle(c)
			}()
		}
	}()
	return l.Addr().String()
}

func TestHTTP2IsSpokenWhereTheServiceSpeaksIt(t *testing.T) {
	t.Parallel()
	var protocol atomic.Value
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol.Store(r.Proto)
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	b := newBench(t, table("echo: "+s.URL, "get: { url: "+s.URL+", method: GET }"), trusting(s))
	if o, _ := b.run(t, "echo", `{"a":1}`); o != journal.Success(`{"a":1}`) || protocol.Load() != "HTTP/2.0" {
		t.Errorf("outcome = %+v over %v", o, protocol.Load())
	}
	if o, _ := b.run(t, "get", `{"a":1}`); o != journal.Success("") {
		t.Errorf("outcome = %+v", o)
	}
}
