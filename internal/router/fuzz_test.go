package router_test

import (
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"functionbridge/internal/router"
)

// FuzzParse: whatever a file holds, there is no panic, every problem has a
// place inside the file, and no secret is in one.
func FuzzParse(f *testing.F) {
	for _, kind := range []string{"good", "bad", "odd"} {
		entries, err := os.ReadDir("testdata/" + kind)
		if err != nil {
			f.Fatal(err)
		}
		for _, e := range entries {
			data, err := os.ReadFile("testdata/" + kind + "/" + e.Name())
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		table, err := router.Parse("f.yaml", data, fixtureEnv())
		if err == nil {
			exercise(t, table)
			return
		}
		problems, ok := errors.AsType[router.Problems](err)
		if !ok || len(problems) == 0 {
			t.Fatalf("not problems: %v", err)
		}
		lines := 1
		for _, r := range string(data) {
			if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) { // each ends a line in YAML
				lines++
			}
		}
		for _, p := range problems {
			if p.File != "f.yaml" || p.Line < 1 || p.Line > lines+1 || p.Column < 1 || p.Message == "" || strings.ContainsAny(p.Message, "\n\r") {
				t.Errorf("bad problem %+v in a file of %d lines", p, lines)
			}
		}
		if secret := "s3cret"; strings.Contains(err.Error(), secret) && !strings.Contains(string(data), secret) {
			t.Errorf("a secret is in %v", err)
		}
	})
}

// exercise uses a valid table in every way.
func exercise(t *testing.T, table *router.Table) {
	t.Helper()
	if !json.Valid(table.Tools()) {
		t.Errorf("tools are not JSON: %s", table.Tools())
	}
	if _, err := json.Marshal(table.Describe()); err != nil {
		t.Errorf("not describable: %v", err)
	}
	if secrets := table.Secrets(); slices.Contains(secrets, "") {
		t.Errorf("an empty secret among %q", secrets)
	}
	for _, route := range table.Routes() {
		exerciseService(t, route.Service)
		if _, ok := table.Lookup(route.Name); !ok {
			t.Errorf("%q is not found", route.Name)
		}
		args := []byte(`{"a":"1","id":2,"x":{"y":["z"]}}`)
		_ = route.Check(args)
		for kind, build := range requestsOf(route) {
			request, err := build(args, values())
			if err != nil {
				continue
			}
			wire, err := table.Wire(request)
			if err != nil {
				t.Errorf("%s of %q: %v", kind, route.Name, err)
				continue
			}
			if u, err := url.Parse(wire.URL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
				t.Errorf("%s of %q: bad URL %q: %v", kind, route.Name, wire.URL, err)
			}
		}
	}
}

// exerciseService: whatever a valid table says of a service can be used.
func exerciseService(t *testing.T, s *router.Service) {
	t.Helper()
	if s == nil {
		return
	}
	for _, secret := range []router.Secret{s.Auth.Bearer, s.Auth.Username, s.Auth.Password, s.Auth.HeaderValue, s.Auth.OAuth2.ClientSecret} {
		if text, err := secret.Reveal(); err != nil || strings.ContainsFunc(text, unicode.IsControl) {
			t.Errorf("%s: a secret is %q, %v", s.Name, text, err)
		}
	}
	if keys, err := s.Sign.Keys(); err != nil || len(keys) > 2 || s.Sign.IsSet() != (len(keys) > 0) {
		t.Errorf("%s: %d signing keys, %v", s.Name, len(keys), err)
	}
	if _, err := s.TLS.Config(); err != nil {
		t.Errorf("%s: %v", s.Name, err)
	}
	if u, err := url.Parse(textOf(s.Auth.OAuth2.TokenURL)); err != nil || (s.Auth.Kind == router.AuthOAuth2 && u.Host == "") {
		t.Errorf("%s: bad token URL: %v", s.Name, err)
	}
}

func textOf(s router.Secret) string {
	text, _ := s.Reveal()
	return text
}

// requestsOf are the requests that a route makes of one call.
func requestsOf(route *router.Route) map[string]func([]byte, router.Values) (router.Request, error) {
	builds := map[string]func([]byte, router.Values) (router.Request, error){"request": route.Build}
	if route.Recover != nil {
		builds["recover"] = route.BuildRecover
	}
	return builds
}

const fuzzTable = `
version: 1
upstreams:
  u: { url: "${BASE_URL}", headers: { X-Key: "${SET}" } }
routes:
  path: { upstream: u, path: "/p/{x}/{x}-{o.x}/end", headers: { X-A: "<{x}>", X-B: "{session.metadata.user_id?}" } }
  slash: { upstream: u, path: "/p{/x}{/l*}{/o*}", method: GET }
  dots: { upstream: u, path: "/p/.{x}./{x},{l}/{o*}" }
  query: { upstream: u, path: "/p?a={x}&b={l}{&x,l*,o*}", query: { c: "{x}", d: "${SET}{o}" } }
  bodyless: { upstream: u, path: "/p{?l}", method: DELETE, query: { fixed: "1" } }
  own: { upstream: u, path: "/p/{session.metadata.user_id}/{call.id}" }
  shaped: { upstream: u, path: "/p/{x}", body: "{x, l: (.l | join($session.metadata.user_id)), o: (.o | map_values(ascii_downcase | @uri)), size: (.x | gsub(\"[a-z]+\"; \"-\") | length)}" }
  asked: { upstream: u, path: "/p/{x}", recover: { path: "/p/{x}/{session.metadata.user_id}{?l,o*}" } }
  shadow: { upstream: u, path: "/p{?session.metadata.user_id?}{&o*}", method: GET, query: { "session.agent_id": "{session.agent_id}" } }
`

// FuzzBuild: whatever the values, scheme, host and port stay, so does the
// beginning of the path, no dot segment is in the decoded path, and no header
// value has a control character.
func FuzzBuild(f *testing.F) {
	table, err := router.Parse("routes.yaml", []byte(fuzzTable), fixtureEnv())
	if err != nil {
		f.Fatal(err)
	}
	for _, value := range hostile() {
		f.Add(value, value, "k", "v")
		f.Add("a", "b", value, value)
		f.Add("a", value, "session.metadata.user_id", "u")
	}
	f.Fuzz(func(t *testing.T, x, item, key, metadata string) {
		args, err := json.Marshal(map[string]any{"x": x, "l": []string{item, "b"}, "o": map[string]string{key: item, "x": x}, key + "_": x})
		if err != nil {
			t.Skip()
		}
		v := values()
		v.Metadata = map[string]string{"user_id": metadata}
		for _, route := range table.Routes() {
			for kind, build := range requestsOf(route) {
				request, err := build(args, v)
				if err != nil {
					mustBeCallError(t, err)
					continue
				}
				wire, err := table.Wire(request)
				if err != nil {
					t.Errorf("%s of %s: %v", kind, route.Name, err)
					continue
				}
				staysInPlace(t, route.Name, wire)
				if data, err := json.Marshal(request); err != nil || strings.Contains(string(data), "s3cret") && !strings.Contains(string(args)+metadata, "s3cret") {
					t.Errorf("%s of %s: %s, %v", kind, route.Name, data, err)
				}
			}
		}
	})
}

func mustBeCallError(t *testing.T, err error) {
	t.Helper()
	_, isArgument := errors.AsType[*router.ArgumentError](err)
	_, isValue := errors.AsType[*router.ValueError](err)
	if !isArgument && !isValue {
		t.Errorf("neither the model's nor the operator's: %v", err)
	}
}

func staysInPlace(t *testing.T, name string, wire router.Wire) {
	t.Helper()
	const base = "http://s3cret-host/base/p"
	u, err := url.Parse(wire.URL)
	if err != nil || u.Scheme != "http" || u.Host != "s3cret-host" || u.User != nil || u.Fragment != "" || !strings.HasPrefix(wire.URL, base) {
		t.Errorf("%s left its place: %q, %v", name, wire.URL, err)
		return
	}
	for part := range strings.FieldsFuncSeq(u.Path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == "." || part == ".." {
			t.Errorf("%s: dot segment in %q", name, wire.URL)
		}
	}
	if strings.Contains(u.Path, "\x00") || strings.ContainsFunc(wire.URL, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		t.Errorf("%s: bad character in %q", name, wire.URL)
	}
	if q := u.Query(); name == "shadow" && (len(q["session.metadata.user_id"]) > 1 || !slices.Equal(q["session.agent_id"], []string{"agent_1"})) {
		t.Errorf("%s: an argument stands for a value of the bridge's own: %q", name, wire.URL)
	}
	if q := u.Query(); name == "bodyless" && (len(q["fixed"]) != 1 || q["fixed"][0] != "1") {
		t.Errorf("%s: a fixed parameter changed: %q", name, wire.URL)
	}
	for _, h := range wire.Headers {
		if strings.ContainsFunc(h.Value, unicode.IsControl) {
			t.Errorf("%s: header %s has a control character: %q", name, h.Name, h.Value)
		}
	}
}
