package forward_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	key := newKey(t)
	a := &authority{key: key, certificate: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.certificate = a.sign(t, a.certificate, key)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(t *testing.T, template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// issue makes a certificate for hosts and addresses, good for both sides.
func (a *authority) issue(t *testing.T, name string, hosts ...string) tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	leaf := a.sign(t, template, key)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

func (a *authority) pem() string { return pemOf("CERTIFICATE", a.certificate.Raw) }

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// pair are the two files of a certificate.
func pair(t *testing.T, c tls.Certificate) (certificate, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pemOf("CERTIFICATE", c.Certificate[0]), pemOf("PRIVATE KEY", der)
}

// clientFiles are the files of the bridge's side.
type clientFiles struct{ ca, certificate, key string }

func newClientFiles(t *testing.T, ca *authority, own tls.Certificate) clientFiles {
	t.Helper()
	dir := t.TempDir()
	f := clientFiles{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	certificate, key := pair(t, own)
	writeFile(t, f.ca, ca.pem())
	writeFile(t, f.certificate, certificate)
	writeFile(t, f.key, key)
	return f
}

func (f clientFiles) setting() string {
	return "tls: { ca_file: " + f.ca + ", cert_file: " + f.certificate + ", key_file: " + f.key + " }"
}

// serveTLS starts a service in TLS.
func serveTLS(t *testing.T, config *tls.Config, with2 bool, handler http.HandlerFunc) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewUnstartedServer(s.recording(handler))
	s.Listener = lingering{s.Listener}
	s.EnableHTTP2, s.TLS = with2, config
	quiet(s.Server)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// lingering closes connections so that the last words are heard: to close one
// with unread data would reset it.
type lingering struct{ net.Listener }

func (l lingering) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return &lingeringConn{tcp}, nil
	}
	return c, err
}

type lingeringConn struct{ *net.TCPConn }

func (c *lingeringConn) Close() error {
	_ = c.CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.Copy(io.Discard, c.TCPConn)
	return c.TCPConn.Close()
}

func protocolOf(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }

// Each upstream trusts its own authority and no other, in both protocols.
func TestEachUpstreamTrustsItsOwnAuthority(t *testing.T) {
	t.Parallel()
	one, other := newAuthority(t, "one"), newAuthority(t, "other")
	for _, with2 := range []bool{false, true} {
		up := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{one.issue(t, "crm", "127.0.0.1")}}, with2, protocolOf)
		b := newBench(t, "version: 1\n"+fastRetries+`
upstreams:
  good: { url: "`+up.URL+`", tls: { ca_file: `+newFile(t, one.pem())+` } }
  bad: { url: "`+up.URL+`", tls: { ca_file: `+newFile(t, other.pem())+` } }
routes:
  good: { upstream: good, path: /x }
  bad: { upstream: bad, path: /x, idempotent: true }
  none: { url: "`+up.URL+`", idempotent: true }
`)
		want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[with2]
		if o, _ := b.run(t, "good", `{}`); o != journal.Success(want) {
			t.Errorf("outcome = %+v", o)
		}
		for _, function := range []string{"bad", "none"} {
			o, rec := b.run(t, function, `{}`)
			if o.Failure != journal.Unavailable || len(rec.attempts) != 1 || rec.attempts[0].Error != "certificate refused" ||
				!strings.Contains(o.Error, "its certificate was refused. Do not try again.") {
				t.Errorf("%s: outcome = %+v, attempts %+v", function, o, rec.attempts)
			}
		}
	}
}

// What cannot be trusted with the upstream's authority is one attempt with an
// error of its own; what is signed by itself is trusted where it is the
// authority.
func TestWhatAnAuthorityDoesNotCover(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	now := time.Now()
	selfSigned, expired := newCertificate(t, now.Add(-time.Hour), now.Add(time.Hour)), newCertificate(t, now.Add(-2*time.Hour), now.Add(-time.Hour))
	for name, test := range map[string]struct {
		shown   tls.Certificate
		trusted string
		why     string
	}{
		"signed by itself":              {selfSigned, ca.pem(), "certificate refused"},
		"signed by itself, and trusted": {selfSigned, pemOf("CERTIFICATE", selfSigned.Leaf.Raw), ""},
		"over":                          {expired, pemOf("CERTIFICATE", expired.Leaf.Raw), "certificate refused"},
		"of another host":               {ca.issue(t, "crm", "crm.internal"), ca.pem(), "certificate refused"},
		"none":                          {tls.Certificate{}, ca.pem(), "no TLS spoken"},
	} {
		up := serve(t, protocolOf)
		address := strings.Replace(up.URL, "http://", "https://", 1)
		if test.shown.Leaf != nil {
			up = serveTLS(t, &tls.Config{Certificates: []tls.Certificate{test.shown}}, false, protocolOf)
			address = up.URL
		}
		b := newBench(t, upstreamTable(address, "tls: { ca_file: "+newFile(t, test.trusted)+" }", throughCRM))
		o, rec := b.run(t, "act", `{}`)
		if len(rec.attempts) != 1 || rec.attempts[0].Error != test.why || o.Success != (test.why == "") || !o.Success && !strings.HasSuffix(o.Error, "Do not try again.") {
			t.Errorf("%s: outcome = %+v, attempts %+v", name, o, rec.attempts)
		}
	}
}

// mutual is a server's config that asks for certificates of an authority.
func mutual(t *testing.T, server, clients *authority, version uint16) *tls.Config {
	t.Helper()
	return &tls.Config{
		Certificates: []tls.Certificate{server.issue(t, "crm", "127.0.0.1", "crm.test")},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: clients.pool(), MaxVersion: version,
	}
}

// A service that asks for the bridge's certificate gets it. Without one that it
// takes it is not called, and that is known, on every route: it ends the call.
func TestTheBridgeShowsItsCertificate(t *testing.T) {
	t.Parallel()
	servers, clients, strangers := newAuthority(t, "servers"), newAuthority(t, "clients"), newAuthority(t, "strangers")
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		for _, with2 := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " HTTP/2 ", with2), func(t *testing.T) {
				t.Parallel()
				up := serveTLS(t, mutual(t, servers, clients, version), with2, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
				})
				files := newClientFiles(t, servers, clients.issue(t, "bridge"))
				stranger := newClientFiles(t, servers, strangers.issue(t, "stranger"))
				b := newBench(t, "version: 1\n"+fastRetries+`
upstreams:
  welcome: { url: "`+up.URL+`", `+files.setting()+` }
  stranger: { url: "`+up.URL+`", `+stranger.setting()+` }
  nobody: { url: "`+up.URL+`", tls: { ca_file: `+files.ca+` } }
routes:
  welcome: { upstream: welcome, path: /x }
  stranger: { upstream: stranger, path: /x, idempotent: false }
  nobody: { upstream: nobody, path: /x, idempotent: true }
`)
				if o, _ := b.run(t, "welcome", `{}`); o != journal.Success("bridge") {
					t.Errorf("outcome = %+v", o)
				}
				for _, function := range []string{"stranger", "nobody"} {
					o, rec := b.run(t, function, `{}`)
					// In HTTP/2 the refusal may come before the request has a stream, and
					// net/http then says only that the connection is gone, perhaps each time.
					if lost := "connection lost before the request was sent"; with2 && rec.attempts[len(rec.attempts)-1].Error == lost {
						if o.Failure != journal.Unavailable || !strings.Contains(o.Error, "was lost before the request was sent") {
							t.Errorf("%s: outcome = %+v, attempts %+v", function, o, rec.attempts)
						}
						continue
					}
					last := len(rec.attempts) - 1
					for last > 0 && with2 && rec.attempts[0].Error == "connection lost before the request was sent" {
						rec.attempts, last = rec.attempts[1:], last-1
					}
					if o.Failure != journal.Unavailable || last != 0 || !strings.HasPrefix(rec.attempts[0].Error, "TLS refused by the service: ") ||
						!strings.Contains(o.Error, "its service refused the secure connection that the bridge offers") || !strings.HasSuffix(o.Error, " Do not try again.") {
						t.Errorf("%s: outcome = %+v, attempts %+v", function, o, rec.attempts)
					}
					noInside(t, o.Error, up.Listener.Addr().String())
				}
				if len(up.requests()) != 1 {
					t.Errorf("%d requests were served", len(up.requests()))
				}
			})
		}
	}
}

// A certificate is checked against server_name, where the table has one.
func TestServerNames(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	up := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "crm", "crm.internal")}}, false, protocolOf)
	file := newFile(t, ca.pem())
	for name, welcome := range map[string]bool{"": false, ", server_name: crm.internal": true, ", server_name: other.internal": false} {
		b := newBench(t, upstreamTable(up.URL, "tls: { ca_file: "+file+name+" }", throughCRM))
		if o, rec := b.run(t, "act", `{}`); o.Success != welcome || len(rec.attempts) != 1 {
			t.Errorf("%q: outcome = %+v, attempts %+v", name, o, rec.attempts)
		}
	}
}

// secureBubble is a service in TLS in a synctest bubble.
type secureBubble struct {
	*bench

	began          time.Time
	opened, closed atomic.Int64
	// certificate is what the service shows from the next connection on.
	certificate atomic.Pointer[tls.Certificate]

	server *http.Server
	served chan struct{}
}

func startSecureBubble(t *testing.T, config *tls.Config, yaml string, handler http.HandlerFunc, change ...func(*forward.Config)) *secureBubble {
	t.Helper()
	b := &secureBubble{began: time.Now(), served: make(chan struct{})}
	b.certificate.Store(&config.Certificates[0])
	config.Certificates = nil
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return b.certificate.Load(), nil }
	listener := agentsim.NewPipe()
	b.server = &http.Server{
		ReadHeaderTimeout: time.Hour, IdleTimeout: time.Minute, Handler: handler, ErrorLog: quietLog(),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				b.opened.Add(1)
			case http.StateClosed:
				b.closed.Add(1)
			case http.StateActive, http.StateIdle, http.StateHijacked:
			}
		},
	}
	go func() { defer close(b.served); _ = b.server.Serve(tls.NewListener(listener, config)) }()
	b.bench = newBench(t, yaml, append(change, func(c *forward.Config) { c.Transport.Dial = listener.DialContext })...)
	return b
}

func (b *secureBubble) stop() {
	b.Close()
	_ = b.server.Close()
	<-b.served
}

// A new authority in the file is trusted at the next connection.
func TestAnAuthoritysFileIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		older, newer := newAuthority(t, "older"), newAuthority(t, "newer")
		file := newFile(t, older.pem())
		b := startSecureBubble(t, &tls.Config{Certificates: []tls.Certificate{older.issue(t, "crm", "crm.test")}},
			upstreamTable("https://crm.test", "tls: { ca_file: "+file+" }", throughCRM), protocolOf)
		defer b.stop()
		if o, _ := b.run(t, "act", `{}`); !o.Success {
			t.Errorf("outcome = %+v", o)
		}
		replaced := newer.issue(t, "crm", "crm.test")
		b.certificate.Store(&replaced)
		time.Sleep(10 * time.Second) // fake clock
		if o, rec := b.run(t, "act", `{}`); o.Success || len(rec.attempts) != 1 {
			t.Errorf("outcome = %+v, attempts %+v", o, rec.attempts)
		}
		writeFile(t, file, newer.pem())
		time.Sleep(1100 * time.Millisecond) // fake clock
		if o, _ := b.run(t, "act", `{}`); !o.Success {
			t.Errorf("outcome = %+v", o)
		}
	})
}

// New files of the bridge's certificate count at the next request, although a
// connection with the old one is idle; while only one of them is new, the old
// pair stays in force.
func TestTheBridgesCertificateIsReadAgain(t *testing.T) {
	t.Parallel()
	for _, with2 := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ca := newAuthority(t, "ca")
			files := newClientFiles(t, ca, ca.issue(t, "first"))
			config := mutual(t, ca, ca, tls.VersionTLS13)
			if with2 {
				config.NextProtos = []string{"h2"}
			}
			b := startSecureBubble(t, config, upstreamTable("https://crm.test", files.setting(), throughCRM),
				func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.WriteString(w, r.Proto+" "+r.TLS.PeerCertificates[0].Subject.CommonName)
				})
			defer b.stop()
			proto := map[bool]string{false: "HTTP/1.1 ", true: "HTTP/2.0 "}[with2]
			certificate, key := pair(t, ca.issue(t, "second"))
			for _, step := range []struct {
				path, content, shown string
				opened               int64
			}{
				{files.ca, ca.pem(), "first", 1},
				{files.certificate, certificate, "first", 1},
				{files.key, key, "second", 2},
			} {
				writeFile(t, step.path, step.content)
				time.Sleep(1500 * time.Millisecond) // fake clock
				if o, _ := b.run(t, "act", `{}`); o != journal.Success(proto+step.shown) || b.opened.Load() != step.opened {
					t.Errorf("outcome = %+v over %d connections, want %s over %d", o, b.opened.Load(), step.shown, step.opened)
				}
			}
			synctest.Wait()
			if b.closed.Load() != 1 {
				t.Errorf("%d connections were closed, want the one with the old certificate", b.closed.Load())
			}
			if log := b.log.String(); strings.Count(log, "cannot be used, what they held before") != 1 || !strings.Contains(log, "upstreams.crm.tls.key_file: the key does not belong") {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}

// Requests under way end on the connection that they have, and it is closed.
func TestARotationInterruptsNoRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t, "ca")
		files := newClientFiles(t, ca, ca.issue(t, "first"))
		b := startSecureBubble(t, mutual(t, ca, ca, tls.VersionTLS13), upstreamTable("https://crm.test", files.setting(), throughCRM),
			func(w http.ResponseWriter, r *http.Request) {
				name := r.TLS.PeerCertificates[0].Subject.CommonName
				if name == "first" {
					time.Sleep(5 * time.Second) // fake clock
				}
				_, _ = io.WriteString(w, name)
			})
		defer b.stop()
		var slow sync.WaitGroup
		slow.Go(func() {
			if o, _ := b.run(t, "act", `{}`); o != journal.Success("first") {
				t.Errorf("outcome = %+v", o)
			}
		})
		synctest.Wait()
		certificate, key := pair(t, ca.issue(t, "second"))
		writeFile(t, files.certificate, certificate)
		writeFile(t, files.key, key)
		time.Sleep(1500 * time.Millisecond) // fake clock
		if o, _ := b.run(t, "act", `{}`); o != journal.Success("second") {
			t.Errorf("outcome = %+v", o)
		}
		slow.Wait()
		time.Sleep(4500 * time.Millisecond) // fake clock
		if b.opened.Load() != 2 || b.closed.Load() != 2 {
			t.Errorf("%d connections opened, %d closed", b.opened.Load(), b.closed.Load())
		}
	})
}

// A reload leaves the connections in use, unless what it says of TLS is new;
// then those of before are closed. Upstreams with the same TLS share them.
func TestConnectionsOutliveAReload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t, "ca")
		files := newClientFiles(t, ca, ca.issue(t, "bridge"))
		two := func(setting string) *router.Table {
			return parse(t, `
version: 1
upstreams:
  one: { url: "https://crm.test", `+setting+` }
  two: { url: "https://crm.test", `+setting+` }
routes:
  one: { upstream: one, path: /x }
  two: { upstream: two, path: /x }
`)
		}
		current := two(files.setting())
		b := startSecureBubble(t, mutual(t, ca, ca, tls.VersionTLS13), upstreamTable("https://crm.test", files.setting(), throughCRM),
			protocolOf, func(c *forward.Config) { c.Table = func() *router.Table { return current } })
		defer b.stop()
		for _, step := range []struct {
			table          *router.Table
			opened, closed int64
		}{
			{two(files.setting()), 1, 0},
			{two(files.setting()), 1, 0},
			{two(strings.Replace(files.setting(), " }", ", server_name: crm.test }", 1)), 2, 1},
			{two(files.setting()), 3, 2},
		} {
			current = step.table
			for _, function := range []string{"one", "two"} {
				if o, _ := b.run(t, function, `{}`); !o.Success {
					t.Errorf("outcome = %+v", o)
				}
			}
			synctest.Wait()
			if b.opened.Load() != step.opened || b.closed.Load() != step.closed {
				t.Errorf("%d connections opened and %d closed, want %d and %d", b.opened.Load(), b.closed.Load(), step.opened, step.closed)
			}
		}
	})
}

// Also where an upstream has TLS of its own, one call has one side effect.
func TestOneSideEffectThroughAnUpstreamsTLS(t *testing.T) {
	t.Parallel()
	for _, with2 := range []bool{false, true} {
		for _, method := range []string{"POST", "PUT", "DELETE", "GET"} {
			t.Run(fmt.Sprint(method, " HTTP/2 ", with2), func(t *testing.T) {
				t.Parallel()
				up := startBreaking(t, true, with2, "reset")
				file := newFile(t, pemOf("CERTIFICATE", up.Certificate().Raw))
				b := newBench(t, upstreamTable(up.URL, "auth: { bearer: \"${TOKEN}\" }, sign: { secret: "+signingSecret("a")+" }, tls: { ca_file: "+file+" }",
					"act: { upstream: crm, path: /x, idempotent: false, method: "+method+" }"))
				if o, _ := b.run(t, "act", `{"a":1}`); !o.Success {
					t.Fatalf("first call: %+v", o)
				}
				o, rec := b.run(t, "act", `{"a":1}`)
				if n := up.sideEffects.Load(); n != 1 || o.Failure != journal.UnknownOutcome || len(rec.attempts) != 1 || up.connections.Load() != 1 {
					t.Errorf("%d side effects over %d connections, outcome %+v, attempts %+v", n, up.connections.Load(), o, rec.attempts)
				}
			})
		}
	}
}

// A service that is gone without a word is noticed in seconds, also where it
// has TLS of its own.
func TestADeadConnectionOfAnUpstreamIsNoticed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t, "ca")
		certificate := ca.issue(t, "crm", "crm.test")
		w := goWild(t, "", func(_ int, c net.Conn) {
			secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}})
			var greeting sync.WaitGroup
			greeting.Go(func() { _ = http2.NewFramer(secure, nil).WriteSettings() })
			_, _ = io.Copy(io.Discard, secure)
			greeting.Wait()
		})
		defer w.stop()
		yaml := "version: 1\nupstreams:\n  crm: { url: \"https://crm.test\", tls: { ca_file: " + newFile(t, ca.pem()) + " } }\n" +
			"routes:\n  act: { upstream: crm, path: /x, timeout: 300s }\n"
		b := newBench(t, yaml, func(c *forward.Config) { c.Transport.Dial = w.pipe.DialContext })
		defer b.Close()
		o, rec := b.run(t, "act", `{}`)
		if took := time.Since(w.began); o.Failure != journal.UnknownOutcome || len(rec.attempts) != 1 || took > 12*time.Second {
			t.Errorf("outcome = %+v after %s", o, took)
		}
	})
}

// The token endpoint is spoken to with the upstream's TLS. A server_name counts
// for it where it has the service's host.
func TestTheTokenEndpointUsesTheUpstreamsTLS(t *testing.T) {
	t.Parallel()
	ca, strangers := newAuthority(t, "ca"), newAuthority(t, "strangers")
	files := newClientFiles(t, ca, ca.issue(t, "bridge"))
	config := func(signer *authority, host string) *tls.Config {
		c := mutual(t, ca, ca, tls.VersionTLS13)
		c.Certificates = []tls.Certificate{signer.issue(t, "server", host)}
		return c
	}
	issue := func(w http.ResponseWriter, r *http.Request) {
		answer(200, "application/json", `{"access_token":"`+r.TLS.PeerCertificates[0].Subject.CommonName+`"}`)(w, r)
	}
	up := serveTLS(t, config(ca, "crm.internal"), true, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
	})
	named := serveTLS(t, config(ca, "crm.internal"), true, issue)
	elsewhere := serveTLS(t, config(ca, "auth.test"), true, issue)
	untrusted := serveTLS(t, config(strangers, "auth.test"), true, issue)
	for name, test := range map[string]struct {
		url     string
		success bool
	}{
		"on the service's host": {named.URL, true},
		"on a host of its own":  {"https://auth.test:" + port(elsewhere), true},
		"not trusted":           {"https://auth.test:" + port(untrusted), false},
	} {
		setting := strings.Replace(files.setting(), " }", ", server_name: crm.internal }", 1) +
			`, auth: { oauth2: { token_url: "` + test.url + `", client_id: a, client_secret: "${TOKEN}" } }`
		b := newBench(t, upstreamTable(up.URL, setting, throughCRM), func(c *forward.Config) {
			c.Transport.Dial = func(ctx context.Context, _, address string) (net.Conn, error) {
				_, port, _ := net.SplitHostPort(address)
				return (&net.Dialer{}).DialContext(ctx, "tcp", "127.0.0.1:"+port)
			}
		})
		o, rec := b.run(t, "act", `{}`)
		if o.Success != test.success || o.Success && o.Output != "Bearer bridge" {
			t.Errorf("%s: outcome = %+v, attempts %+v", name, o, rec.attempts)
		}
		if !test.success && (len(rec.attempts) != 1 || rec.attempts[0].Error != "no access token: certificate refused") {
			t.Errorf("%s: attempts = %+v", name, rec.attempts)
		}
	}
}

func port(s *service) string {
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	return port
}
