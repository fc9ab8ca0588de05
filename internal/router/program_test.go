package router_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"functionbridge/internal/router"
)

// bodyOf is the body that a route makes of arguments.
func bodyOf(t *testing.T, table *router.Table, name, args string) string {
	t.Helper()
	request, err := lookup(t, table, name).Build([]byte(args), values())
	if err != nil {
		t.Fatalf("%s with %s: %v", name, args, err)
	}
	if request.BodyIsArguments {
		t.Errorf("%s: the body counts as the arguments", name)
	}
	return string(request.Body)
}

func TestProgramMakesTheBodyOfEachMethodThatHasOne(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"POST", "PUT", "PATCH"} {
		table := parse(t, `
version: 1
routes:
  static: { url: "http://host/", method: `+method+`, body: "{n: .n, by: $session.metadata.user_id, none: $session.metadata.none, call: $call, agent: $session.agent_id}" }
  templated: { url: "http://host/{n}{?q}", method: `+method+`, body: "del(.n)" }
`, nil)
		want := `{"agent":"agent_1","by":"u-7","call":{"id":"call_1","idempotency_key":"key_1","name":"f","session_id":"sess_1","turn_id":"turn_1"},"n":9007199254740993,"none":null}`
		if got := bodyOf(t, table, "static", `{"n":9007199254740993}`); got != want {
			t.Errorf("%s: %s", method, got)
		}
		if got := wired(t, table, "templated", `{"n":1,"q":"x","rest":1.10}`); got.URL != "http://host/1?q=x" || string(got.Body) != `{"q":"x","rest":1.10}` {
			t.Errorf("%s: %+v", method, got)
		}
	}
}

func TestBodyWithoutMetadataOrAgentHasNulls(t *testing.T) {
	t.Parallel()
	table := parse(t, "version: 1\nroutes:\n  f: { url: \"http://host/\", body: \"[$session.metadata.a, $session.metadata.a.b?, $session.agent_id, ($session.metadata | length)]\" }\n", nil)
	request, err := lookup(t, table, "f").Build([]byte(`{}`), router.Values{})
	if err != nil || string(request.Body) != `[null,null,"",0]` {
		t.Errorf("%s, %v", request.Body, err)
	}
}

func TestTextIsSentAsItIsWithAnotherTypeThanJSON(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
upstreams: { u: { url: "http://host", headers: { content-type: text/xml } } }
routes:
  json: { url: "http://host/", body: .a }
  named: { url: "http://host/", headers: { Content-Type: application/vnd.api+JSON }, body: .a }
  form: { url: "http://host/", headers: { Content-Type: application/x-www-form-urlencoded }, body: '"a=" + (.a | @uri)' }
  xml: { upstream: u, path: /x, body: '"<a>" + (.a | @html) + "</a>"' }
  object: { upstream: u, path: /x, body: "." }
  empty: { upstream: u, path: /x, body: '""' }
`, nil)
	for name, want := range map[string]string{
		"json": `"x y <&>"`, "named": `"x y <&>"`, "form": `a=x%20y%20%3C%26%3E`, "xml": `<a>x y &lt;&amp;&gt;</a>`, "object": `{"a":"x y <&>"}`, "empty": "",
	} {
		if got := bodyOf(t, table, name, `{"a":"x y <&>"}`); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// What is journaled makes the same request again, whatever the table says by then.
func TestBodyIsKeptWithTheRequest(t *testing.T) {
	t.Parallel()
	table := parse(t, "version: 1\nroutes:\n  f: { url: \"http://host/\", headers: { X-A: \"${SET}\" }, body: \"{at: now, a}\" }\n", map[string]string{"SET": "v"})
	request, err := lookup(t, table, "f").Build([]byte(`{"a":1.10,"b":"not sent"}`), values())
	if err != nil {
		t.Fatal(err)
	}
	kept, err := json.Marshal(request)
	if err != nil || bytes.Contains(kept, []byte("not sent")) {
		t.Fatalf("%s, %v", kept, err)
	}
	var again router.Request
	if err := json.Unmarshal(kept, &again); err != nil {
		t.Fatal(err)
	}
	first, err1 := table.Wire(request)
	second, err2 := table.Wire(again)
	if err1 != nil || err2 != nil || !bytes.Equal(first.Body, second.Body) || !bytes.HasPrefix(first.Body, []byte(`{"a":1.10,"at":`)) {
		t.Errorf("%s and %s, %v %v", first.Body, second.Body, err1, err2)
	}
}

func TestBodyThatCannotBeMadeIsTheArgumentsFault(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  add: { url: "http://host/", body: ".a + 1" }
  told: { url: "http://host/", body: 'error("a is\n\u0000 wrong: " + .a)' }
  long: { url: "http://host/", body: 'error("x" * 1000)' }
  endless: { url: "http://host/", body: "last(repeat(.))" }
  none: { url: "http://host/", body: "empty" }
  templated: { url: "http://host/{a}", body: "empty" }
  small: { url: "http://host/", body: ., result: { max_bytes: 10 } }
  large: { url: "http://host/", body: .a, result: { max_bytes: 1000000 } }
`, nil)
	for name, want := range map[string]string{
		"add":       "The arguments cannot be made into a request: cannot add: string and number.",
		"told":      "The arguments cannot be used: a is wrong: x.",
		"long":      "The arguments cannot be used: " + strings.Repeat("x", 300) + "….",
		"endless":   "The arguments cannot be made into a request: the program takes longer than 250 ms.",
		"none":      "The arguments cannot be made into a request: the program gives no value.",
		"templated": "The arguments cannot be made into a request: the program gives no value.",
	} {
		if got := refused(t, table, name, `{"a":"x"}`); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := refused(t, table, "small", `{"a":"`+strings.Repeat("x", 262144)+`"}`); got != "The arguments are larger than 262144 bytes." {
		t.Error(got)
	}
	if got := refused(t, table, "add", `{"a":`+strings.Repeat("9", 6000)+`}`); got != "The arguments object holds a number that is too large." {
		t.Error(got)
	}
	if got := refused(t, table, "add", `{"a":`+strings.Repeat("[", 2000)+strings.Repeat("]", 2000)+`}`); got != "The arguments object is nested too deep." {
		t.Error(got)
	}
	if got := bodyOf(t, table, "large", `{"a":"`+strings.Repeat("x", 300_000)+`"}`); len(got) != 300_002 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestRoutesTakeProgramsFromDefaultsOneByOne(t *testing.T) {
	t.Parallel()
	table, err := parseFixture(t, filepath.Join("testdata", "good", "jq.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range table.Describe() {
		got = append(got, fmt.Sprint(r.Name, " ", r.DeferLoading, " ", r.Body != "", " | ", r.Result.SuccessWhen, " | ", strings.Join(strings.Fields(r.Result.Output), " "), " | ", r.Result.Error))
	}
	want := []string{
		`refund_order false true | .status == "ok" | .data // "done" | .message | ascii_downcase`,
		`block true true | .ok | [ .items[] | {id, name} ] | .message`,
		`form true true | .ok | .data | .message`,
		`by_default true false | .ok | .data | .message`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := bodyOf(t, table, "refund_order", `{"order_id":9007199254740993,"amount":19.99}`); got != `{"by":"u-7","cents":1999,"key":"key_1","order":9007199254740993}` {
		t.Error(got)
	}
	if got := bodyOf(t, table, "block", `{"items":[{"id":"a"},{"id":"b","n":2}]}`); got != `{"as":"---","lines":[{"count":1,"sku":"a"},{"count":2,"sku":"b"}],"note":"by u-7 for f"}` {
		t.Error(got)
	}
	if got := wired(t, table, "by_default", `{"a":1}`); got.Body != nil || got.URL != "http://host/x?a=1" {
		t.Errorf("%+v", got)
	}
}

func TestPublishedToolsSayHowTheyAreLoadedAndCalled(t *testing.T) {
	t.Parallel()
	const schema = `{ type: object, properties: { z: { const: 1.10 }, a: { minimum: 12345678901234567890 } } }`
	const parameters = `{"type":"object","properties":{"z":{"const":1.10},"a":{"minimum":12345678901234567890}}}`
	routes := func(more string) string {
		return "version: 1\nroutes:\n  f: { url: \"http://h/\", description: \"A <b> & c.\", parameters: " + schema + more + " }\n  plain: http://h/\n"
	}
	for more, want := range map[string]string{
		``:                       `[{"type":"function","name":"f","description":"A <b> & c.","parameters":` + parameters + `}]`,
		`, async: true`:          `[{"type":"function","name":"f","description":"A <b> & c.","parameters":` + parameters + `,"async":true}]`,
		`, async: false`:         `[{"type":"function","name":"f","description":"A <b> & c.","parameters":` + parameters + `}]`,
		`, defer_loading: true`:  `[{"type":"function","name":"f","description":"A <b> & c.","parameters":` + parameters + `,"defer_loading":true},{"type":"tool_search"}]`,
		`, defer_loading: false`: `[{"type":"function","name":"f","description":"A <b> & c.","parameters":` + parameters + `}]`,
	} {
		if got := string(parse(t, routes(more), nil).Tools()); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", more, got, want)
		}
	}
	deferred := parse(t, "version: 1\ndefaults: { defer_loading: true, description: d, parameters: { type: object } }\nroutes: { f: http://h/, g: http://h/ }\n", nil)
	if n := strings.Count(string(deferred.Tools()), `{"type":"tool_search"}`); n != 1 {
		t.Errorf("%d searches", n)
	}
	none := parse(t, "version: 1\ndefaults: { defer_loading: true }\nroutes: { f: http://h/ }\n", nil)
	if got := string(none.Tools()); got != "[]" {
		t.Error(got)
	}
}

// A table is that of one moment, also while its files are written over.
func TestTableIsNotReadWhileItChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, i int) {
		text := "version: 1\nroutes:\n" + strings.Repeat(fmt.Sprintf("  # %d\n", i), 200) + fmt.Sprintf("  %s: http://host/%d\n", strings.TrimSuffix(name, ".yaml"), i)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	write("a.yaml", 0)
	write("b.yaml", 0)
	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				write("a.yaml", i)
				write("b.yaml", i)
			}
		}
	})
	loaded := 0
	for range 300 {
		table, err := router.Load(dir, router.Env{})
		if problems, ok := errors.AsType[router.Problems](err); ok && !strings.Contains(problems.Error(), "empty") {
			t.Errorf("a file was read in two parts: %v", err)
		}
		if err == nil && len(table.Routes()) == 2 {
			loaded++
		}
	}
	close(stop)
	writing.Wait()
	if loaded == 0 {
		t.Error("it was never read")
	}
}

func TestRevisionIsThatOfTheContent(t *testing.T) {
	t.Parallel()
	load := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		table, err := router.Load(dir, router.Env{})
		if err != nil {
			t.Fatal(err)
		}
		return table.Revision()
	}
	one := map[string]string{"a.yaml": "version: 1\nroutes: { f: http://h/ }\n", "b.yaml": "version: 1\nroutes: { g: http://h/ }\n"}
	other := map[string]string{"a.yaml": "version: 1\nroutes: { f: http://h/ }\n", "b.yaml": "version: 1\nroutes: { g: http://h/x }\n"}
	first, again, changed := load(one), load(one), load(other)
	if first != again || first == changed {
		t.Errorf("%s %s %s", first, again, changed)
	}
}

// The programs of a thousand routes.
func TestThousandRoutesWithProgramsLoadInWellUnderASecond(t *testing.T) {
	started := time.Now()
	if n := len(loadPrograms(t, 1000).Routes()); n != 1000 {
		t.Fatalf("%d routes", n)
	}
	if took := time.Since(started); took > 5*time.Second { // a tenth of this is usual; the race detector is slow
		t.Errorf("took %v", took)
	}
}

func loadPrograms(tb testing.TB, n int) *router.Table {
	tb.Helper()
	var out strings.Builder
	out.WriteString("version: 1\nroutes:\n")
	for i := range n {
		fmt.Fprintf(&out, "  function_%d:\n    url: http://service-%d:8080/run\n"+
			"    body: '{order: .order_id, cents: (.amount * 100 | round), by: $session.metadata.user_id}'\n"+
			"    result: { success_when: '.status == \"ok\"', output: '[.items[] | {id, name}]', error: '.message // .error' }\n", i, i)
	}
	table, err := router.Parse("routes.yaml", []byte(out.String()), router.Env{})
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

func BenchmarkLoad1000WithPrograms(b *testing.B) {
	for b.Loop() {
		loadPrograms(b, 1000)
	}
}

func BenchmarkBuildWithProgram(b *testing.B) {
	route, _ := loadPrograms(b, 1).Lookup("function_0")
	args := []byte(`{"order_id":9007199254740993,"amount":19.99}`)
	v := values()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := route.Build(args, v); err != nil {
			b.Fatal(err)
		}
	}
}
