package forward

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"functionbridge/internal/router"
)

// proxies says which requests go through a proxy, as HTTP_PROXY, HTTPS_PROXY
// and NO_PROXY of the process have it (golang.org/x/net/http/httpproxy): a name
// in NO_PROXY covers its subdomains, .name and *.name only these, and networks
// are like 10.0.0.0/8. What runs on this machine (localhost, 127.0.0.0/8, ::1)
// is never proxied.
type proxies struct {
	of func(*url.URL) (*url.URL, error)
	// secrets are the passwords, in each form in which they are sent.
	secrets []string
}

func newProxies() proxies {
	environment := httpproxy.FromEnvironment()
	p := proxies{of: environment.ProxyFunc()}
	for _, text := range []string{environment.HTTPProxy, environment.HTTPSProxy} {
		if !strings.Contains(text, "://") {
			text = "http://" + text
		}
		if proxy, err := url.Parse(text); err == nil && proxy.User != nil {
			p.secrets = append(p.secrets, credentials(proxy.User)...)
		}
	}
	return p
}

// credentials are the forms of a password in a URL, or of a user without one,
// which is a token.
func credentials(user *url.Userinfo) []string {
	password, ok := user.Password()
	if !ok {
		password = user.Username()
	}
	pair := user.Username() + ":" + password
	return []string{password, user.String(), pair, base64.StdEncoding.EncodeToString([]byte(pair))}
}

func (p proxies) ofRequest(req *http.Request) (*url.URL, error) { return p.of(req.URL) }

// Proxies tells which routes of a table go through a proxy: its URL by the
// route's name, with user and password masked. Routes that are not in it are
// called directly.
func (f *Forwarder) Proxies(table *router.Table) map[string]string {
	found := make(map[string]string)
	for _, route := range table.Describe() {
		origin := originOfRoute(table, route.URL)
		if origin == nil {
			continue
		}
		if proxy, err := f.proxies.of(origin); err == nil && proxy != nil {
			found[route.Name] = maskedProxy(proxy)
		}
	}
	return found
}

// originOfRoute is scheme, host and port of a route's URL as it is shown, nil
// when they are not known.
func originOfRoute(table *router.Table, shown string) *url.URL {
	wire, err := table.Wire(router.Request{URL: shown})
	if err != nil {
		return nil
	}
	scheme, rest, found := strings.Cut(wire.URL, "://")
	if i := strings.IndexAny(rest, "/?{"); i >= 0 {
		rest = rest[:i]
	}
	if !found {
		return nil
	}
	origin, err := url.Parse(scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:])
	if err != nil {
		return nil
	}
	return origin
}

func maskedProxy(proxy *url.URL) string {
	user := ""
	if proxy.User != nil {
		user = redacted + "@"
	}
	return proxy.Scheme + "://" + user + proxy.Host
}

// proxyError is a proxy's refusal to connect to a service.
type proxyError struct{ status int }

func (e *proxyError) Error() string { return "proxy answered " + strconv.Itoa(e.status) }

// connected looks at a proxy's answer to CONNECT.
func connected(_ context.Context, _ *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyError{status: answer.StatusCode}
}
