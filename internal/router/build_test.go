package router_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"functionbridge/internal/router"
)

// hostile are values that a model may send to move a request.
func hostile() []string {
	return []string{
		"..", ".", "../x", "../../admin", "a/../b", `..\x`, `a\..\b`, "%2e%2e", "%2e%2e%2f", "%2e", "\\", "/", "//", "?", "#", "&", "=", "+", " ", ";", ":", "@",
		"a\r\nX-Injected: 1", "\n", "\t", "\x7f", "\u0085", `"`, `'`, "<>", "http://evil/", "//evil.example", "https://evil.example/x", "a/b", "a?admin=1#",
		"x&role=owner", `a","admin":true,"x":"b`, "\x00", "a\x00b", "\u2e2e", "José", "日本", "🙂", "{x}", "${SECRET}", "$$", "$", "%", "%00", "...", "..a", "",
		`{"session":{"metadata":{"user_id":"x"}}}`,
	}
}

func argument(t *testing.T, value string) string {
	t.Helper()
	data, err := json.Marshal(map[string]string{"x": value})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func leavesPlace(value string) bool {
	for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == "." || part == ".." {
			return true
		}
	}
	return value == "" || strings.Contains(value, "\x00")
}

func TestPathValuesStayInTheirSegment(t *testing.T) {
	t.Parallel()
	url, send := echo(t)
	table := parse(t, `
version: 1
routes:
  f: `+url+`/api/users/{x}/edit?fixed=1
  g: `+url+`/api/users{/x}
`, map[string]string{"SECRET": "s3cret"})
	for _, value := range hostile() {
		args := argument(t, value)
		if leavesPlace(value) {
			refused(t, table, "f", args)
			refused(t, table, "g", args)
			continue
		}
		got := send(wired(t, table, "f", args))
		if want := "/api/users/" + value + "/edit"; got.path != want || strings.Count(got.rawPath, "/") != 4 {
			t.Errorf("%q: path %q (%s), want %q as one segment", value, got.path, got.rawPath, want)
		}
		if got.rawQuery != "fixed=1" || "http://"+got.host != url {
			t.Errorf("%q: query %q, host %q", value, got.rawQuery, got.host)
		}
		if got := send(wired(t, table, "g", args)); got.path != "/api/users/"+value {
			t.Errorf("%q in {/x}: path %q", value, got.path)
		}
	}
}

// JSON can write any character as an escape; what counts is what it stands for.
func TestEscapesInArgumentsHideNothing(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  path: http://host/a/{x}/b
  slash: http://host/a{/l*}
  header: { url: "http://host/", headers: { X-A: "{x}" } }
  query: { url: "http://host/?admin=no", method: GET }
`, nil)
	for _, text := range []string{`\u002e\u002e`, `.\u002E`, `\u002e`, `a\u002f..`, `a\/..\/b`, `..\u005cx`, `a\\..`, `a\u0000`, ``} {
		refused(t, table, "path", `{"x":"`+text+`"}`)
		refused(t, table, "path", `{"\u0078":"`+text+`"}`)
		refused(t, table, "slash", `{"l":["a","`+text+`"]}`)
	}
	for _, text := range []string{`a\r\nX-B: 1`, `\u000d`, `\u007f`, `\u0085`, `a\tb`} {
		refused(t, table, "header", `{"x":"`+text+`"}`)
	}
	refused(t, table, "query", `{"\u0061dmin":"yes"}`)
	for text, want := range map[string]string{
		`\u2e2e`: "%E2%B8%AE", `\ud83d\ude42`: "%F0%9F%99%82", `\ud83d`: "%EF%BF%BD", "\xff": "%EF%BF%BD", `\u002e\u002e\u002e`: "...", `%2e%2e`: "%252e%252e",
	} {
		if got := wired(t, table, "path", `{"x":"`+text+`"}`).URL; got != "http://host/a/"+want+"/b" {
			t.Errorf("%s: %s", text, got)
		}
	}
}

func TestQueryValuesStayInTheirParameter(t *testing.T) {
	t.Parallel()
	url, send := echo(t)
	table := parse(t, `
version: 1
routes:
  mapping: { url: `+url+`/p, query: { a: "{x}", b: "fixed" } }
  literal: `+url+`/p?a={x}&b=fixed
  form: `+url+`/p?b=fixed{&x}
  argument: { url: "`+url+`/p?b=fixed", method: GET }
`, map[string]string{"SECRET": "s3cret"})
	for _, value := range hostile() {
		args := argument(t, value)
		for _, name := range []string{"mapping", "literal", "form", "argument"} {
			want := map[string][]string{"b": {"fixed"}, "a": {value}}
			if name == "form" || name == "argument" {
				want = map[string][]string{"b": {"fixed"}, "x": {value}}
			}
			if value == "" && name == "form" {
				delete(want, "x")
			}
			if value == "" && (name == "mapping" || name == "literal") {
				refused(t, table, name, args)
				continue
			}
			got := send(wired(t, table, name, args))
			if !reflect.DeepEqual(got.query, want) || got.path != "/p" || "http://"+got.host != url {
				t.Errorf("%s with %q: query %v, path %q, host %q", name, value, got.query, got.path, got.host)
			}
		}
	}
}

func TestHeaderValuesStayInTheirHeader(t *testing.T) {
	t.Parallel()
	url, send := echo(t)
	table := parse(t, `
version: 1
routes:
  f: { url: `+url+`/, headers: { X-A: "<{x}>" } }
`, map[string]string{"SECRET": "s3cret"})
	for _, value := range hostile() {
		args := argument(t, value)
		if value == "" || strings.ContainsFunc(value, unicode.IsControl) {
			refused(t, table, "f", args)
			continue
		}
		got := send(wired(t, table, "f", args))
		if got.header.Get("X-A") != "<"+value+">" || got.header.Get("X-Injected") != "" {
			t.Errorf("%q: header %q", value, got.header.Get("X-A"))
		}
	}
	for _, args := range []string{`{"x":["a"]}`, `{"x":{"a":1}}`, `{"x":null}`, `{}`} {
		refused(t, table, "f", args)
	}
}

// No argument can stand for a value of the bridge's own.
func TestArgumentsDoNotShadowTheBridgesValues(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  f:
    url: http://host/{session.metadata.user_id}/{call.id}?t={call.turn_id}
    headers: { X-User: "{session.metadata.user_id}", X-Agent: "{session.agent_id}", X-Key: "{call.idempotency_key}", X-Call: "{call.name} in {call.session_id}" }
`, nil)
	got := wired(t, table, "f", `{"session":{"metadata":{"user_id":"x"},"agent_id":"x"},"call":{"id":"x","name":"x"},"session.metadata.user_id":"x","call.name":"x"}`)
	if got.URL != "http://host/u-7/call_1?t=turn_1" {
		t.Errorf("URL %s", got.URL)
	}
	want := []router.Header{{Name: "X-User", Value: "u-7"}, {Name: "X-Agent", Value: "agent_1"}, {Name: "X-Key", Value: "key_1"}, {Name: "X-Call", Value: "f in sess_1"}}
	if !reflect.DeepEqual(got.Headers, want) {
		t.Errorf("headers %v", got.Headers)
	}
}

func TestMissingOwnValueFailsTheCallUnlessOptional(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  path: http://host/{session.metadata.none}
  query: http://host/{?session.metadata.none}
  header: { url: "http://host/", headers: { X-A: "{session.metadata.none}" } }
  parameter: { url: "http://host/", query: { a: "{session.metadata.none}" } }
  optional:
    url: http://host/x{?session.metadata.none?}&z={session.metadata.none?}
    headers: { X-A: "a {session.metadata.none?}", X-B: "{session.metadata.user_id?}" }
    query: { a: "{session.metadata.none?}", b: "{session.metadata.user_id?}" }
`, nil)
	for _, name := range []string{"path", "query", "header", "parameter"} {
		_, err := lookup(t, table, name).Build([]byte(`{}`), values())
		if e, ok := errors.AsType[*router.ValueError](err); !ok || e.Name != "session.metadata.none" {
			t.Errorf("%s: %v", name, err)
		}
	}
	got := wired(t, table, "optional", `{}`)
	if got.URL != "http://host/x?b=u-7" || !reflect.DeepEqual(got.Headers, []router.Header{{Name: "X-B", Value: "u-7"}}) {
		t.Errorf("%+v", got)
	}
}

// Metadata obeys the rules of paths too; then the operator is to blame.
func TestOwnValueThatWouldMoveThePathIsRefused(t *testing.T) {
	t.Parallel()
	table := parse(t, "version: 1\nroutes:\n  f: http://host/a/{session.metadata.user_id}\n", nil)
	v := values()
	v.Metadata = map[string]string{"user_id": "../b"}
	_, err := lookup(t, table, "f").Build([]byte(`{}`), v)
	if _, ok := errors.AsType[*router.ValueError](err); !ok {
		t.Errorf("got %v", err)
	}
}

func TestExpressions(t *testing.T) {
	t.Parallel()
	const args = `{"s":"a b","n":12345678,"big":9007199254740993,"f":1.10,"e":1e+400,"t":true,"no":false,"nil":null,"empty":"","none":[],"void":{},
		"list":["x","y/z",3,true,null],"o":{"k":"v","n":1.50,"nil":null,"l":[1]},"deep":{"er":{"est":"d","nil":null}},"a-b":"dash","$top":5,"flat":{"a":"1","b&":"2"}}`
	for template, want := range map[string]string{
		"/{s}":                    "/a%20b",
		"/{n}/{big}/{f}/{t}/{no}": "/12345678/9007199254740993/1.10/true/false",
		"/{e}":                    "/1e%2B400",
		"/{deep.er.est}":          "/d",
		"/{a-b}":                  "/dash",
		"/x{?$top}":               "/x?$top=5",
		"/{$top}":                 "/5",
		"/{list}":                 "/x,y%2Fz,3,true",
		"/{list*}":                "/x,y%2Fz,3,true",
		"{/list}":                 "/x,y%2Fz,3,true",
		"{/list*}":                "/x/y%2Fz/3/true",
		"{/s,n}":                  "/a%20b/12345678",
		"/{s,n}":                  "/a%20b,12345678",
		"/{flat}":                 "/a,1,b%26,2",
		"/{flat*}":                "/a=1,b%26=2",
		"/x{?list}":               "/x?list=x,y%2Fz,3,true",
		"/x{?list*}":              "/x?list=x&list=y%2Fz&list=3&list=true",
		"/x{?flat*}":              "/x?a=1&b%26=2",
		"/x{?flat}":               "/x?flat=a,1,b%26,2",
		"/x{?s,missing,n}":        "/x?s=a%20b&n=12345678",
		"/x{?missing,nil,empty,none,void,deep.er.nil,nil.x}": "/x",
		"/x{?missing}{&s}":       "/x?s=a%20b",
		"/x?a=1{&s}&z=2":         "/x?a=1&s=a%20b&z=2",
		"/x?a={s}{&n}":           "/x?a=a%20b&n=12345678",
		"/x?a={s,n}&b={list}":    "/x?a=a%20b,12345678&b=x,y%2Fz,3,true",
		"{?s}":                   "?s=a%20b",
		"/x?deep={deep.er.est}":  "/x?deep=d",
		"/größe/a%2Fb/{t}":       "/gr%C3%B6%C3%9Fe/a%2Fb/true",
		"/x?$filter=a$$b&c=$9$$": "/x?$filter=a$b&c=$9$",
	} {
		table := parse(t, "version: 1\nroutes:\n  f: \"http://host"+template+"\"\n", nil)
		if got := wired(t, table, "f", args).URL; got != "http://host"+want {
			t.Errorf("%s: got %s, want http://host%s", template, got, want)
		}
	}
	for _, template := range []string{
		"/{missing}", "/{nil}", "/{empty}", "/{none}", "/{void}", "{/missing}", "{/s,nil}", "/{s,missing}", "/{deep.none}", "/{s.x}", "/{list.x}",
		"/{o}", "/x{?o}", "/x{?s.x}", "/x?a={missing}", "/x?a={nil}", "/x?a={empty}", "/x{?list.x}",
	} {
		table := parse(t, "version: 1\nroutes:\n  f: \"http://host"+template+"\"\n", nil)
		if sentence := refused(t, table, "f", args); !strings.HasPrefix(sentence, "The argument ") || !strings.HasSuffix(sentence, ".") {
			t.Errorf("%s: %s", template, sentence)
		}
	}
}

// The check of the finished path sees what the parts alone do not show.
func TestPartsDoNotMakeDotSegmentsTogether(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  list: http://host/x{/l*}/y
  object: http://host/x/{o*}
  dots: http://host/x/.{a}/y
`, nil)
	for name, args := range map[string]string{
		"list": `{"l":["a","..","b"]}`, "object": `{"o":{"..":"a"}}`, "dots": `{"a":"."}`,
	} {
		refused(t, table, name, args)
	}
	refused(t, table, "list", `{"l":["a",""]}`)
	if got := wired(t, table, "dots", `{"a":".a"}`).URL; got != "http://host/x/..a/y" {
		t.Errorf("got %s", got)
	}
}

func TestNumbersAndBooleansInHeadersAndQueriesAreTheTextThatWasSent(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  f: { url: "http://host/", headers: { X-A: "{n} {big} {f} {e} {t} $${n}" }, query: { a: "{n} {big} {f} {e} {t} $${n}" } }
`, nil)
	got := wired(t, table, "f", `{"n":12345678,"big":9007199254740993,"f":1.10,"e":1E+400,"t":false}`)
	const want = "12345678 9007199254740993 1.10 1E+400 false $12345678"
	if got.Headers[0].Value != want || got.URL != "http://host/?a=12345678%209007199254740993%201.10%201E%2B400%20false%20%2412345678" {
		t.Errorf("%+v", got)
	}
}

func TestBodyIsTheArgumentsByteForByte(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  plain: http://host/
  templated: { url: "http://host/{id}", headers: { X-A: "{s}" } }
  put: { url: "http://host/", method: PUT }
`, nil)
	const args = ` {"z":1,"id":9007199254740993, "rate":1.10,"s":"\u00e9\/","nil":null} `
	for _, name := range []string{"plain", "templated", "put"} {
		request, err := lookup(t, table, name).Build([]byte(args), values())
		if err != nil || string(request.Body) != args || !request.BodyIsArguments {
			t.Errorf("%s: body %q, %v", name, request.Body, err)
		}
	}
}

func TestBodylessMethodsSendUnusedArgumentsAsQuery(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "HEAD", "DELETE"} {
		table := parse(t, `
version: 1
routes:
  f: { url: "http://host/{id}?fixed=1", method: `+method+`, query: { own: "2" }, headers: { X-A: "{who.name}" } }
`, nil)
		got := wired(t, table, "f", `{"z":"a b","id":7,"tags":["x",null,"y",{"k":1},[2]],"o":{"k":"v","n":1.50},"nil":null,"t":true,"n":1e3,"empty":"","none":[],"who":{"name":"n"},"a&b":"$"}`)
		const want = "http://host/7?fixed=1&own=2&z=a%20b&tags=x&tags=y&tags=%7B%22k%22%3A1%7D&tags=%5B2%5D&o=%7B%22k%22%3A%22v%22%2C%22n%22%3A1.50%7D&t=true&n=1e3&empty=&a%26b=%24"
		if got.URL != want || got.Body != nil || got.Method != method {
			t.Errorf("%s: %s %q", method, got.URL, got.Body)
		}
		for _, args := range []string{`{"id":7,"who":{"name":"n"},"own":"3"}`, `{"id":7,"who":{"name":"n"},"fixed":"3"}`} {
			if sentence := refused(t, table, "f", args); !strings.Contains(sentence, "fixed") {
				t.Errorf("%s", sentence)
			}
		}
	}
}

// Services differ in which of two parameters of one name they take, so no
// argument may add a second one.
func TestNoArgumentSetsAParameterThatIsFixed(t *testing.T) {
	t.Parallel()
	env := map[string]string{"BASE": "http://host/x?token=t0p&a+b=1", "NAME": "admin"}
	for url, names := range map[string][]string{
		"http://host/x?admin=false":                     {"admin"},
		"http://host/x?adm%69n":                         {"admin"},
		"http://host/x?a+b=1&c%20d=1":                   {"a b", "c d"},
		"http://host/x?${NAME}=1":                       {"admin"},
		"http://host/x?is-${NAME}=1":                    {"is-admin"},
		"http://host/x?user={session.metadata.user_id}": {"user"},
		"http://host/x{?session.metadata.user_id}":      {"session.metadata.user_id"},
		"http://host/x{?session.metadata.none?}":        {"session.metadata.none"},
		"http://host/x?a=1{&call.id}":                   {"a", "call.id"},
		"${BASE}":                                       {"token", "a b"},
	} {
		object, separator := "{?o*}", "?{n}=1"
		if strings.Contains(url, "?") || url == "${BASE}" {
			object, separator = "{&o*}", "&{n}=1"
		}
		routes := "version: 1\nroutes:\n  unused: { url: \"" + url + "\", method: GET }\n"
		if url != "${BASE}" { // nothing can follow a variable with a query
			routes += "  object: \"" + url + object + "\"\n  name: \"" + url + separator + "\"\n"
		}
		table := parse(t, routes, env)
		for _, name := range names {
			for route, args := range map[string]string{"unused": `{"` + name + `":"x"}`, "object": `{"o":{"` + name + `":"x"}}`, "name": `{"n":"` + name + `"}`} {
				if _, there := table.Lookup(route); there {
					refused(t, table, route, args)
				}
			}
		}
		if got := wired(t, table, "unused", `{"other":"x"}`).URL; !strings.HasSuffix(got, "other=x") {
			t.Errorf("%s: got %s", url, got)
		}
	}
}

func TestPathGoesAfterTheUpstreamsURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, path, want string }{
		{"http://host/api", "/x", "http://host/api/x"},
		{"http://host/api/", "/x", "http://host/api/x"},
		{"http://host", "/x", "http://host/x"},
		{"http://host/api", "//x", "http://host/api//x"},
		{"http://host/api", "/http://evil/", "http://host/api/http://evil/"},
		{"http://host/api?key=1", "/x?a=2", "http://host/api/x?key=1&a=2"},
		{"http://host/api?key=1", "{/id}{?q}", "http://host/api/7?key=1&q=z"},
		{"http://host/api", "?a=1", "http://host/api?a=1"},
		{"http://host/{call.turn_id}", "/x", "http://host/turn_1/x"},
		{"${BASE}", "/x", "http://env-host/base/x"},
		{"${BASE}/v2", "/x", "http://env-host/base//v2/x"},
	} {
		table := parse(t, "version: 1\nupstreams: { u: { url: \""+c.url+"\" } }\nroutes:\n  f: { upstream: u, path: \""+c.path+"\" }\n",
			map[string]string{"BASE": "http://env-host/base/"})
		if got := wired(t, table, "f", `{"id":7,"q":"z"}`).URL; got != c.want {
			t.Errorf("%s + %s: got %s, want %s", c.url, c.path, got, c.want)
		}
	}
}

// The bridge, signing and the connection set these; a route that sets one is
// mistaken, in whatever case and place.
func TestHeadersThatARouteCannotSet(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Idempotency-Key", "Bridge-Session-Id", "bridge-anything", "webhook-id", "Webhook-Signature", "webhook-timestamp", "Content-Length", "Connection",
		"Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
	} {
		for _, name := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			for place, text := range map[string]string{
				"route":    "version: 1\nroutes:\n  f: { url: \"http://h/\", headers: { " + name + ": x } }\n",
				"upstream": "version: 1\nroutes: {}\nupstreams:\n  u: { url: \"http://h/\", headers: { " + name + ": x } }\n",
				"defaults": "version: 1\nroutes: {}\ndefaults: { headers: { " + name + ": x } }\n",
			} {
				_, err := router.Parse("routes.yaml", []byte(text), envOf(nil))
				problems, ok := errors.AsType[router.Problems](err)
				if !ok || len(problems) != 1 || !strings.Contains(problems[0].Message, "headers."+name+": ") {
					t.Errorf("%s in %s: %v", name, place, err)
				}
			}
		}
	}
}

func TestHeadersOfUpstreamDefaultsAndRoute(t *testing.T) {
	t.Parallel()
	url, send := echo(t)
	table := parse(t, `
version: 1
upstreams:
  u: { url: "`+url+`", headers: { X-A: upstream, X-B: upstream, X-C: upstream, Host: virtual.example } }
defaults:
  headers: { x-b: default, X-C: default }
routes:
  f: { upstream: u, path: /x, headers: { x-c: route, X-D: 5 } }
`, nil)
	got := send(wired(t, table, "f", `{}`))
	for name, want := range map[string]string{"X-A": "upstream", "X-B": "default", "X-C": "route", "X-D": "5"} {
		if values := got.header.Values(name); len(values) != 1 || values[0] != want {
			t.Errorf("%s: %v, want %s", name, values, want)
		}
	}
	if got.host != "virtual.example" {
		t.Errorf("host %s", got.host)
	}
}
