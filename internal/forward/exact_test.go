package forward_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"functionbridge/internal/journal"
)

// exactTexts are JSON texts of which nothing may change on the way.
func exactTexts() map[string]string {
	return map[string]string{
		"64-bit id":        `{"id":9007199254740993,"rate":1.10}`,
		"huge exponent":    `{"n":1e400,"m":-1E+4000000,"z":-0}`,
		"key order":        `{"b":1,"a":2.50,"B":3}`,
		"white space":      "{ \"a\" :\t[ 1 ,\r\n 2 ] }",
		"escapes":          `{"s":"\u0041\/\b\f\n\r\t\"\\\u0000\u2028é\ud83d\ude00😀"}`,
		"lone surrogates":  `{"s":"\ud800","t":"\udfff x"}`,
		"HTML characters":  `{"s":"<a href='x'>&amp;</a>"}`,
		"JSON in a string": `{"note":"{\"k\":\"{\\\"deep\\\":1}\"}"}`,
		"null members":     `{"nickname":null,"list":[null]}`,
		"empty":            `{}`,
		"empty key":        `{"":{"":[]}}`,
		"deep":             `{"a":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`,
		"200 KB":           `{"s":"` + strings.Repeat(`é\u0000日`, 20<<10) + `"}`,
	}
}

// The service gets an object byte for byte, and so it does when the object
// comes as a string; the reply's text reaches the outcome in the same way.
func TestArgumentsAndReplyPassByteForByte(t *testing.T) {
	t.Parallel()
	for name, text := range exactTexts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := serve(t, answer(200, "application/json", text))
			b := newBench(t, table("post: "+up.URL, "patch: { url: "+up.URL+", method: PATCH }"))
			literal, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, function := range []string{"post", "patch"} {
				for form, arguments := range map[string]string{"object": text, "string": string(literal), "in space": " \n" + text + "\r\t "} {
					before := len(up.requests())
					o, _ := b.run(t, function, arguments)
					if o != journal.Success(text) {
						t.Errorf("outcome = %.300v\nwant the reply %.300q", o, text)
					}
					got := up.requests()[before:]
					if len(got) != 1 || got[0].body != text || got[0].length != int64(len(text)) {
						t.Errorf("%s as %s: the service got %.300v\nwant %.300q", function, form, got, text)
					}
				}
			}
		})
	}
}

// Missing arguments are an object without members, a null member is not a
// missing one, and what is no object does not leave.
func TestArgumentsThatAreNone(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "ok"))
	b := newBench(t, table("patch: { url: "+up.URL+", method: PATCH }", "get: { url: "+up.URL+", method: GET }",
		"strict: { url: "+up.URL+", parameters: { type: object, required: [city, unit] } }"))
	for _, test := range []struct{ function, raw, body, uri string }{
		{"patch", ``, `{}`, "/"},
		{"patch", `null`, `{}`, "/"},
		{"patch", `""`, `{}`, "/"},
		{"patch", `"  "`, `{}`, "/"},
		{"patch", `{"nickname":null}`, `{"nickname":null}`, "/"},
		{"get", `""`, ``, "/"},
		{"get", `{"nickname":null}`, ``, "/"},
		{"get", `{"id":9007199254740993,"rate":1.10}`, ``, "/?id=9007199254740993&rate=1.10"},
	} {
		before := len(up.requests())
		o, _ := b.run(t, test.function, test.raw)
		got := up.requests()[before:]
		if !o.Success || len(got) != 1 || got[0].body != test.body || got[0].uri != test.uri {
			t.Errorf("%s of %q: %+v, the service got %+v", test.function, test.raw, o, got)
		}
	}
	before := len(up.requests())
	for _, raw := range []string{`[1,2]`, `42`, `true`, `"[]"`, `"\"{}\""`, `"{\"a\":1} and more"`, `{"a":1}{"a":2}`, `"{'a':1}"`, `"{\"a\":1,}"`} {
		if o, rec := b.run(t, "patch", raw); o.Failure != journal.InvalidArguments || rec.sendings != 0 || !strings.HasPrefix(o.Error, "The arguments of patch ") {
			t.Errorf("%s: %+v", raw, o)
		}
	}
	if o, _ := b.run(t, "strict", `""`); o.Failure != journal.InvalidArguments || !strings.Contains(o.Error, "city") || !strings.Contains(o.Error, "unit") {
		t.Errorf("missing arguments: %+v", o)
	}
	if n := len(up.requests()) - before; n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// Numbers that a validator may fail at end their own call and no other.
func TestHugeNumbersEndOnlyTheirCall(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "ok"))
	b := newBench(t, table("act: { url: "+up.URL+", parameters: { type: object, properties: { n: { minimum: 0, multipleOf: 0.5 } } } }"))
	for _, n := range []string{"1e4000000", "-1e4000000", "1e-4000000", "1E+99999999999999999999", "0.1e-1000001"} {
		o, rec := b.run(t, "act", fmt.Sprintf(`{"n":%s}`, n))
		if o.Failure != journal.InvalidArguments || rec.sendings != 0 || !strings.Contains(o.Error, "n") {
			t.Errorf("%s: %+v", n, o)
		}
		if o, _ := b.run(t, "act", `{"n":1.5}`); !o.Success {
			t.Errorf("after %s: %+v", n, o)
		}
	}
}

// Values from a model stay where the route puts them.
func TestHostileValuesStayInTheirPlace(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "ok"))
	b := newBench(t, table(
		`path: { url: "`+up.URL+`/users/{v}/x", method: GET }`,
		`query: { url: "`+up.URL+`/q{?v}", method: GET }`,
		`rest: { url: "`+up.URL+`/r?role=user", method: GET }`,
		`header: { url: "`+up.URL+`/h", headers: { X-V: "{v}" } }`,
	))
	for value, want := range map[string]struct{ path, header bool }{
		"..": {false, true}, ".": {false, true}, "../x": {false, true}, "../../admin": {false, true}, `..\x`: {false, true},
		"%2e%2e": {true, true}, "%2e%2e%2f": {true, true}, `\`: {true, true}, "/": {true, true}, "a/b": {true, true},
		"//evil.example": {true, true}, "http://evil/": {true, true}, "a?admin=1#": {true, true}, "x&role=owner": {true, true},
		"a\r\nX-Evil: 1": {true, false}, "a\x00b": {false, false}, `a","admin":true,"x":"b`: {true, true},
		"\u2e2e": {true, true}, "José": {true, true}, "日本": {true, true},
		`{"session":{"metadata":{"user_id":"x"}}}`: {true, true},
	} {
		arguments, err := json.Marshal(map[string]string{"v": value})
		if err != nil {
			t.Fatal(err)
		}
		for function, sent := range map[string]bool{"path": want.path, "query": true, "rest": true, "header": want.header} {
			before := len(up.requests())
			o, _ := b.run(t, function, string(arguments))
			got := up.requests()[before:]
			if !sent {
				if o.Failure != journal.InvalidArguments || len(got) != 0 {
					t.Errorf("%s of %q: %+v, the service got %+v", function, value, o, got)
				}
				continue
			}
			if !o.Success || len(got) != 1 {
				t.Errorf("%s of %q: %+v", function, value, o)
				continue
			}
			checkPlace(t, function, value, got[0])
		}
	}
}

func checkPlace(t *testing.T, function, value string, got seen) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), got.method, "http://x.test"+got.uri, nil)
	if err != nil {
		t.Fatal(err)
	}
	query := r.URL.Query()
	var right bool
	switch function {
	case "path":
		right = r.URL.Path == "/users/"+value+"/x" && strings.Count(r.URL.EscapedPath(), "/") == 3 && len(query) == 0
	case "query":
		right = r.URL.Path == "/q" && len(query) == 1 && query.Get("v") == value
	case "rest":
		right = r.URL.Path == "/r" && len(query) == 2 && query.Get("v") == value && query.Get("role") == "user"
	case "header":
		right = got.header.Get("X-V") == value && got.header.Get("X-Evil") == "" && utf8.ValidString(got.header.Get("X-V"))
	}
	if !right || !strings.HasPrefix(got.host, "127.0.0.1:") {
		t.Errorf("%s of %q came as %s, %v", function, value, got.uri, got.header)
	}
}
