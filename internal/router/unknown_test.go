package router_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"functionbridge/internal/router"
)

// asked is the question about an earlier request of a call, as it is sent.
func asked(t *testing.T, table *router.Table, name, args string) router.Wire {
	t.Helper()
	request, err := lookup(t, table, name).BuildRecover([]byte(args), values())
	if err != nil {
		t.Fatalf("%s with %s: %v", name, args, err)
	}
	wire, err := table.Wire(request)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func TestRecoverIsAskedBelowTheUpstreamOrTheOrigin(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"BASE": "http://host:8080/api/v1/", "ORIGIN": "http://host:8080", "HOST_AND_PATH": "host:8080/api?u=http://x/", "HOST": "host", "KEY": "k 1",
		"USERINFO": "http://bob:w%40rd@host:8080/api", "QUERY": "http://host:8080?token=t",
	}
	for target, want := range map[string]string{
		`url: "http://host:8080/refunds?a=1"`:                 "http://host:8080/of/key_1",
		`url: "http://host:8080"`:                             "http://host:8080/of/key_1",
		`url: "http://host:8080?a=1"`:                         "http://host:8080/of/key_1",
		`url: "http://host:8080{/x}"`:                         "http://host:8080/of/key_1",
		`url: "http://bob:w0rd$$@host:8080/refunds"`:          "http://bob:w0rd$@host:8080/of/key_1",
		`url: "http://bob:w${KEY}@host:8080/refunds"`:         "http://bob:wk%201@host:8080/of/key_1",
		`url: "${BASE}"`:                                      "http://host:8080/of/key_1",
		`url: "${BASE}refunds/{x}"`:                           "http://host:8080/of/key_1",
		`url: "${ORIGIN}/refunds"`:                            "http://host:8080/of/key_1",
		`url: "${QUERY}"`:                                     "http://host:8080/of/key_1",
		`url: "http://${HOST_AND_PATH}"`:                      "http://host:8080/of/key_1",
		`url: "http://${HOST}:${PORT:-8080}/refunds/${KEY}"`:  "http://host:8080/of/key_1",
		`url: "${USERINFO}"`:                                  "http://bob:w%40rd@host:8080/of/key_1",
		`url: "${NONE:-https://host/a}"`:                      "https://host/of/key_1",
		`{ upstream: u, path: /refunds, query: { b: 2 } }`:    "http://host:8080/api/v1/of/key_1",
		`{ upstream: keyed, path: "/x?c=3", query: { b: 2 }}`: "http://host:8080/api/of/key_1?key=k%201",
	} {
		target = strings.TrimSuffix(strings.TrimPrefix(target, "{"), "}")
		table := parse(t, `
version: 1
upstreams: { u: { url: "${BASE}" }, keyed: { url: "http://host:8080/api/?key=${KEY}" } }
routes:
  f: { `+target+`, recover: { path: "/of/{call.idempotency_key}" } }
`, env)
		if got := asked(t, table, "f", `{"x":"y","unused":1}`); got.URL != want || got.Method != "GET" || got.Body != nil {
			t.Errorf("%s: %s %s %q, want GET %s", target, got.Method, got.URL, got.Body, want)
		}
	}
}

func TestRecoverHasTheHeadersOfTheRouteAndNeitherQueryNorBody(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
upstreams: { u: { url: "http://host", headers: { Authorization: "Bearer ${TOKEN}", X-A: upstream } } }
defaults: { headers: { X-A: defaults, X-B: b }, query: { q: 1 } }
routes:
  f:
    upstream: u
    path: /refunds?p=1
    headers: { X-B: "{order.id}", Host: other }
    recover: { method: HEAD, path: "/refunds{/order.id}{?order.note,tags*}" }
`, map[string]string{"TOKEN": "t"})
	got := asked(t, table, "f", `{"order":{"id":12345678901234567890,"note":"a&b"},"tags":["x","y"],"unused":1}`)
	want := router.Wire{
		Method: "HEAD", URL: "http://host/refunds/12345678901234567890?order.note=a%26b&tags=x&tags=y", Host: "other",
		Headers: []router.Header{{Name: "Authorization", Value: "Bearer t"}, {Name: "X-A", Value: "defaults"}, {Name: "X-B", Value: "12345678901234567890"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// What a call holds can move the question no more than the request.
func TestRecoverIsConfinedToItsPath(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  f: { url: "http://host/x", recover: { path: "/api/{x}/end?a=1" } }
`, nil)
	for _, value := range hostile() {
		request, err := lookup(t, table, "f").BuildRecover([]byte(argument(t, value)), values())
		if leavesPlace(value) {
			if _, ok := errors.AsType[*router.ArgumentError](err); !ok {
				t.Errorf("%q: %+v, %v", value, request, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		wire, err := table.Wire(request)
		if err != nil || !strings.HasPrefix(wire.URL, "http://host/api/") || !strings.HasSuffix(wire.URL, "/end?a=1") || strings.Count(wire.URL, "/") != 5 {
			t.Errorf("%q: %s, %v", value, wire.URL, err)
		}
	}
	if _, err := lookup(t, table, "f").BuildRecover([]byte(`{}`), values()); err == nil {
		t.Error("a missing argument is no error")
	}
}

// The question is journaled like any request: without secrets, and asked with
// the values of the table in force.
func TestRecoverIsKeptWithoutSecrets(t *testing.T) {
	t.Parallel()
	const text = `
version: 1
routes:
  f: { url: "${BASE}", headers: { X-A: "${TOKEN}" }, recover: { path: "/of/{call.id}" } }
  g: { url: "http://bob:w0rd@host/x", recover: { path: "/of/{call.id}" } }
`
	before := parse(t, text, map[string]string{"BASE": "http://secret-host/secret", "TOKEN": "secret-token"})
	after := parse(t, text, map[string]string{"BASE": "https://new-host:1?x=y", "TOKEN": "new"})
	without := parse(t, "version: 1\nroutes: {}\n", map[string]string{"BASE": "https://new-host:1?x=y", "TOKEN": "new"})
	for name, want := range map[string]string{"f": "https://new-host:1/of/call_1", "g": "http://bob:w0rd@host/of/call_1"} {
		request, err := lookup(t, before, name).BuildRecover([]byte(`{}`), values())
		if err != nil {
			t.Fatal(err)
		}
		kept, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := json.Marshal([]any{request.Shown(), before.Describe()})
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range append(before.Secrets(), "w0rd", "secret") {
			if strings.Contains(string(kept)+string(shown), secret) {
				t.Errorf("%s: %q is in %s or %s", name, secret, kept, shown)
			}
		}
		tables := []*router.Table{after}
		if name == "f" {
			tables = append(tables, without)
		}
		for _, table := range tables {
			if wire, err := table.Wire(request); err != nil || wire.URL != want {
				t.Errorf("%s: %s, %v, want %s", name, wire.URL, err, want)
			}
		}
	}
}

func TestRoutesTakeWhatIsForUnknownOutcomesFromDefaults(t *testing.T) {
	t.Parallel()
	table, err := parseFixture(t, "testdata/good/recover.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, info := range table.Describe() {
		line := info.Name + " " + info.OnUnknownOutcome + " " + info.Recover.Method + " " + info.Recover.URL
		if info.Async {
			line += " async"
		}
		got = append(got, line)
	}
	want := []string{
		"whole hold GET http://host:8080/by-key/{call.idempotency_key}{?order} async",
		"part  GET ${BASE_URL}/by-key/{call.idempotency_key}{?order}",
		"own hold HEAD ${WITH_QUERY}/refunds{/order.id}{?key,call.idempotency_key} async",
		"query hold GET ${BASE_URL}?key={call.idempotency_key} async",
		"idempotent hold GET http://host/by-key/{call.idempotency_key}{?order} async",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if part, whole := lookup(t, table, "part"), lookup(t, table, "whole"); part.HoldUnknown || part.Async || !whole.HoldUnknown || !whole.Async {
		t.Errorf("part %+v, whole %+v", part, whole)
	}
	plain := lookup(t, parse(t, "version: 1\nroutes:\n  f: http://host/\n", nil), "f")
	if plain.Recover != nil || plain.HoldUnknown || plain.Async {
		t.Errorf("%+v", plain)
	}
}

func TestTableIsCheckedWithRecoverBelowAVariableThatIsNotSet(t *testing.T) {
	t.Parallel()
	table, err := router.Parse("f.yaml", []byte(`
version: 1
upstreams: { u: { url: "${A}/x" } }
routes:
  f: { url: "${A}", recover: { path: "/{call.id}" } }
  g: { url: "http://${A}:${B}/x", recover: { path: "/{call.id}" } }
  h: { upstream: u, path: /y, recover: { path: "/{call.id}" } }
`), router.Env{AllowUnset: true})
	if err != nil || len(table.Warnings()) != 4 {
		t.Errorf("%v, %v", err, table)
	}
}
