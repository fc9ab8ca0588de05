package main

import (
	"net/http"
	"strings"
	"testing"

	"functionbridge/internal/agentsim"
)

// adminRequests are requests that change nothing, and one that would.
var adminRequests = []struct{ method, path, body string }{
	{http.MethodGet, "/metrics", ""},
	{http.MethodGet, "/admin/routes", ""},
	{http.MethodGet, "/admin/tools", ""},
	{http.MethodGet, "/admin/sessions", ""},
	{http.MethodGet, "/admin/sessions/s", ""},
	{http.MethodGet, "/admin/calls", ""},
	{http.MethodGet, "/admin/calls/s/t/c", ""},
	{http.MethodGet, "/admin/nothing", ""},
	{http.MethodPost, "/admin/sessions", `{"session_id":"sess_intruder"}`},
	{http.MethodDelete, "/admin/sessions/sess_intruder", ""},
	{http.MethodPost, "/admin/routes/greet/call", `{}`},
}

func TestAdminListenerWantsItsToken(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, func(s *settings) { s.AdminToken = "s3cret token" })
	o := newOperator(t, b.daemon)
	o.get(t, "/admin/sessions").want(t, http.StatusOK)
	o.do(t, http.MethodGet, "/admin/calls", "", "Authorization", "bearer s3cret token", "Host", "bridge.example").want(t, http.StatusOK)
	for _, given := range []string{
		"", "Bearer", "Bearer ", "Bearer s3cret", "Bearer s3cret token2", "Bearer S3CRET TOKEN", "Basic s3cret token", "s3cret token",
		"Bearer " + strings.Repeat("x", 20_000),
	} {
		for _, r := range adminRequests {
			got := o.do(t, r.method, r.path, r.body, "Authorization", given, "Content-Type", "application/json", "X-Forwarded-For", "127.0.0.1")
			got.want(t, http.StatusUnauthorized)
			if !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s %s: WWW-Authenticate is %q", r.method, r.path, got.header.Get("WWW-Authenticate"))
			}
			if strings.Contains(string(got.body), "s3cret") {
				t.Errorf("the answer shows the token: %s", got.body)
			}
		}
	}
	if _, followed := b.daemon.sessions.Session("sess_intruder"); followed {
		t.Error("a request without the token was carried out")
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		o.do(t, http.MethodGet, path, "", "Authorization", "").want(t, http.StatusOK)
	}
}

func TestWithoutATokenOnlyLoopbackNamesAreServed(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	o := newOperator(t, b.daemon)
	for _, host := range []string{
		"localhost", "localhost:8081", "LocalHost:1", "127.0.0.1", "127.0.0.1:8081", "127.8.9.10", "[::1]", "[::1]:8081",
	} {
		o.do(t, http.MethodGet, "/admin/calls", "", "Host", host).want(t, http.StatusOK)
	}
	for _, host := range []string{
		"evil.example", "evil.example:8081", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0", "[::]", "[::2]:80",
		"localhost:evil", "notlocalhost", "[::1].evil.example", "127.1", "2130706433", "[localhost]", "[127.0.0.1]",
	} {
		for _, r := range adminRequests {
			o.do(t, r.method, r.path, r.body, "Host", host, "Content-Type", "application/json",
				"X-Forwarded-For", "127.0.0.1", "X-Forwarded-Host", "localhost", "X-Real-IP", "127.0.0.1").want(t, http.StatusForbidden)
		}
	}
	if _, followed := b.daemon.sessions.Session("sess_intruder"); followed {
		t.Error("a request to another name was carried out")
	}
	o.do(t, http.MethodGet, "/readyz", "", "Host", "evil.example").want(t, http.StatusOK)
}

func TestUnsafeRequestsFromAnotherOriginAreRefused(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "t0ken"} {
		b := startBridge(t, agentsim.Kind(), plainTable, ok, func(s *settings) { s.AdminToken = token })
		o := newOperator(t, b.daemon)
		own := "http://" + b.daemon.adminAddr
		for _, c := range []struct {
			header, value string
			want          int
		}{
			{"Sec-Fetch-Site", "cross-site", http.StatusForbidden},
			{"Sec-Fetch-Site", "same-site", http.StatusForbidden},
			{"Origin", "http://evil.example", http.StatusForbidden},
			{"Origin", "null", http.StatusForbidden},
			{"Origin", "http://127.0.0.1:1", http.StatusForbidden},
			{"Sec-Fetch-Site", "same-origin", http.StatusOK},
			{"Origin", own, http.StatusOK},
		} {
			o.do(t, http.MethodPost, "/admin/sessions", `{"session_id":"sess_1"}`, "Content-Type", "application/json", c.header, c.value).
				want(t, c.want)
			if c.want == http.StatusForbidden {
				o.do(t, http.MethodDelete, "/admin/sessions/sess_1", "", c.header, c.value).want(t, c.want)
				o.do(t, http.MethodGet, "/admin/sessions", "", c.header, c.value).want(t, http.StatusOK)
			}
		}
	}
}

// The listener for a scraper has metrics, asks nobody for a token, and has
// nothing else.
func TestMetricsListenerServesMetricsAlone(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, func(s *settings) {
		s.AdminToken, s.AdminAddr, s.MetricsAddr = "t0ken", "", "127.0.0.1:0"
	})
	o := newOperator(t, b.daemon)
	o.token = ""
	base := "http://" + b.daemon.metricsAddr
	got := o.send(t, http.MethodGet, base+"/metrics", "", "Host", "bridge.example").want(t, http.StatusOK)
	for _, want := range []string{
		"\nbridge_routes_reloads_total{outcome=\"success\"} 1\n", "\nbridge_journal_calls{state=\"pending\"} 0\n",
		"bridge_build_info{commit=", "\nbridge_oldest_unanswered_seconds 0\n",
	} {
		if !strings.Contains(string(got.body), want) {
			t.Errorf("the metrics lack %q", want)
		}
	}
	for _, path := range []string{"/admin/calls", "/admin/sessions", "/healthz", "/"} {
		o.send(t, http.MethodGet, base+path, "").want(t, http.StatusNotFound)
	}
	o.send(t, http.MethodPost, base+"/metrics", "").want(t, http.StatusMethodNotAllowed)
}
