package forward_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// inEnvironment sets the proxy variables of the process for a test.
func inEnvironment(t *testing.T, variables map[string]string) {
	t.Helper()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "REQUEST_METHOD"} {
		t.Setenv(strings.ToLower(name), "")
		t.Setenv(name, variables[name])
	}
}

// Which routes go through a proxy is told as the requests go, and no password
// with it.
func TestProxiesOfRoutes(t *testing.T) {
	const password = "pr0xy-pass"
	inEnvironment(t, map[string]string{
		"HTTPS_PROXY": "http://user:" + password + "@proxy:3128",
		"HTTP_PROXY":  password + "@plain.proxy:8888",
		"NO_PROXY":    "*.svc,.local,corp.test,10.0.0.0/8,192.0.2.7,port.test:8443",
	})
	const secure, plain = "http://[redacted]@proxy:3128", "http://[redacted]@plain.proxy:8888"
	want := map[string]string{}
	var routes []string
	for i, test := range []struct{ url, proxy string }{
		{"https://api.example.com/x", secure},
		{"http://api.example.com/x", plain},
		{"https://crm.shop.svc/x", ""},
		{"https://crm.shop.svc:8443/x", ""},
		{"https://svc/x", secure},
		{"http://printer.local", ""},
		{"http://local", plain},
		{"http://corp.test/{id}", ""},
		{"http://www.corp.test/{id}{?q}", ""},
		{"http://notcorp.test", plain},
		{"https://10.1.2.3:8443/x", ""},
		{"https://11.1.2.3/x", secure},
		{"http://192.0.2.7", ""},
		{"http://[2001:db8::1]:80/x", plain},
		{"https://port.test:8443", ""},
		{"https://port.test", secure},
		{"http://localhost:8080/x", ""},
		{"http://127.0.0.1:8080/x", ""},
		{"http://127.1.2.3/x", ""},
		{"http://[::1]/x", ""},
		{"${BASE}/x?y=1", secure},
		{"http://user:${PASSWORD}@${HOST}:${PORT:-8080}/x", ""},
		{"http://user:pass@api.example.com?x={x}", plain},
	} {
		name := fmt.Sprintf("r%d", i)
		routes = append(routes, name+`: "`+test.url+`"`)
		if test.proxy != "" {
			want[name] = test.proxy
		}
	}
	env := router.Env{Lookup: func(name string) (string, bool) {
		value, ok := map[string]string{"BASE": "https://u:pa55-word@api.example.com/base", "HOST": "crm.shop.svc", "PASSWORD": "pa55-word"}[name]
		return value, ok
	}}
	given, err := router.Parse("routes.yaml", []byte(table(routes...)), env)
	if err != nil {
		t.Fatal(err)
	}

	got := newBench(t, table("x: http://x.test")).Proxies(given)

	if !maps.Equal(got, want) {
		t.Errorf("proxies = %v\nwant %v", got, want)
	}
	if strings.Contains(fmt.Sprint(got), password) {
		t.Errorf("the password is in %v", got)
	}
}

func TestWithoutProxyVariablesNothingIsProxied(t *testing.T) {
	inEnvironment(t, nil)
	b := newBench(t, table("a: https://api.example.com"))
	if got := b.Proxies(parse(t, table("a: https://api.example.com"))); len(got) != 0 {
		t.Errorf("proxies = %v", got)
	}
}

// proxy is an HTTP proxy that wants a password. It connects to target whatever
// it is asked for.
type proxy struct {
	*httptest.Server

	target string
	mu     sync.Mutex
	asked  []string
	status int
}

const proxyPassword = "pr0xy-pa55"

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	p := &proxy{target: target}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

// environment sends everything through the proxy with a password.
func (p *proxy) environment(t *testing.T, password string) {
	t.Helper()
	address := strings.Replace(p.URL, "http://", "http://bridge:"+password+"@", 1)
	inEnvironment(t, map[string]string{"HTTP_PROXY": address, "HTTPS_PROXY": address})
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.Host)
	status := p.status
	p.mu.Unlock()
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("bridge:"+proxyPassword))
	if r.Header.Get("Proxy-Authorization") != want {
		answer(http.StatusProxyAuthRequired, "text/plain", "not with "+r.Header.Get("Proxy-Authorization"))(w, r)
		return
	}
	if status != 0 {
		w.WriteHeader(status)
		return
	}
	out, err := net.Dial("tcp", p.target)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer out.Close()
	if r.Method == http.MethodConnect {
		tunnel(w, out)
		return
	}
	r.Header.Del("Proxy-Authorization")
	_ = r.Write(out)
	reply, err := http.ReadResponse(bufio.NewReader(out), r)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer reply.Body.Close()
	maps.Copy(w.Header(), reply.Header)
	w.WriteHeader(reply.StatusCode)
	_, _ = io.Copy(w, reply.Body)
}

func tunnel(w http.ResponseWriter, out net.Conn) {
	in, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer in.Close()
	_, _ = io.WriteString(in, "HTTP/1.1 200 Connection established\r\n\r\n")
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(out, buffered)
		if tcp, ok := out.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	})
	_, _ = io.Copy(in, out)
	_ = in.Close()
	both.Wait()
}

// Requests go through the proxy of the environment, to a service in TLS as a
// tunnel, with the upstream's TLS and auth in it.
func TestRequestsGoThroughTheProxy(t *testing.T) {
	ca := newAuthority(t, "ca")
	files := newClientFiles(t, ca, ca.issue(t, "bridge"))
	secure := serveTLS(t, mutual(t, ca, ca, tls.VersionTLS13), true, protocolOf)
	plain := serve(t, protocolOf)
	for _, test := range []struct {
		up                 *service
		url, asked, answer string
	}{
		{plain, "http://crm.test", "POST crm.test", "HTTP/1.1"},
		{secure, "https://crm.test", "CONNECT crm.test:443", "HTTP/2.0"},
	} {
		p := startProxy(t, test.up.Listener.Addr().String())
		p.environment(t, proxyPassword)
		b := newBench(t, upstreamTable(test.url, files.setting()+`, auth: { bearer: "${TOKEN}" }`, throughCRM))
		if o, rec := b.run(t, "act", `{}`); o != journal.Success(test.answer) {
			t.Errorf("outcome = %+v, attempts %+v", o, rec.attempts)
		}
		if fmt.Sprint(p.asked) != "["+test.asked+"]" {
			t.Errorf("the proxy was asked %v", p.asked)
		}
		got := test.up.requests()
		if len(got) != 1 || got[0].header.Get("Authorization") != "Bearer "+secrets()["TOKEN"] || got[0].header.Get("Proxy-Authorization") != "" {
			t.Errorf("requests = %+v", got)
		}
		noProxyPassword(t, b.log.String())
	}
}

func noProxyPassword(t *testing.T, text string) {
	t.Helper()
	for _, form := range []string{proxyPassword, base64.StdEncoding.EncodeToString([]byte("bridge:" + proxyPassword))} {
		if strings.Contains(text, form) {
			t.Errorf("the proxy's password is in %s", text)
		}
	}
}

// A proxy that does not connect is named for the operator; the agent is told
// that the service was not reached, and not what the proxy said.
func TestAProxyThatRefuses(t *testing.T) {
	up := serve(t, protocolOf)
	for status, why := range map[int]string{403: "proxy answered 403", 407: "proxy answered 407", 503: "proxy answered 503"} {
		p := startProxy(t, up.Listener.Addr().String())
		p.status = status
		p.environment(t, proxyPassword)
		b := newBench(t, table("act: { url: \"https://crm.test\", idempotent: false }"))
		o, rec := b.run(t, "act", `{}`)
		if o.Failure != journal.Unavailable || !strings.Contains(o.Error, "nothing was carried out: its service was not reached in 3 attempts") ||
			rec.attempts[0].Error != why || len(up.requests()) != 0 {
			t.Errorf("outcome = %+v, attempts %+v", o, rec.attempts)
		}
	}
}

// What a proxy repeats of its password is replaced.
func TestAnEchoedProxyPasswordIsReplaced(t *testing.T) {
	up := serve(t, protocolOf)
	p := startProxy(t, up.Listener.Addr().String())
	for _, address := range []string{"http://bridge:wr0ng-pass@", "bridge:wr0ng-pass@"} {
		inEnvironment(t, map[string]string{"HTTP_PROXY": strings.Replace(p.URL, "http://", address, 1)})
		b := newBench(t, table("act: http://crm.test"))
		o, _ := b.run(t, "act", `{}`)
		if o.Failure != journal.Denied || !strings.Contains(o.Error, ": not with Basic [redacted]. ") {
			t.Errorf("outcome = %+v", o)
		}
	}
}

// The token endpoint is reached through the proxy as well.
func TestTokensAreFetchedThroughTheProxy(t *testing.T) {
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			answer(200, "application/json", `{"access_token":"t"}`)(w, r)
			return
		}
		answer(200, "text/plain", r.Header.Get("Authorization"))(w, r)
	})
	p := startProxy(t, up.Listener.Addr().String())
	p.environment(t, proxyPassword)
	b := newBench(t, upstreamTable("http://crm.test", `auth: { oauth2: { token_url: "http://auth.test/token", client_id: a, client_secret: "${TOKEN}" } }`, throughCRM),
		func(c *forward.Config) {
			c.Transport.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				if address != p.Listener.Addr().String() {
					t.Errorf("connection to %s", address)
				}
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}
		})
	if o, rec := b.run(t, "act", `{}`); o != journal.Success("Bearer t") {
		t.Errorf("outcome = %+v, attempts %+v", o, rec.attempts)
	}
	if fmt.Sprint(p.asked) != "[POST auth.test POST crm.test]" {
		t.Errorf("the proxy was asked %v", p.asked)
	}
}
