package router_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"functionbridge/internal/router"
)

func TestNamesAreExact(t *testing.T) {
	t.Parallel()
	table := parse(t, "version: 1\nroutes:\n  crm.find: http://one/\n  crm_find: http://two/\n  CRM.find: http://three/\n  a/b: http://four/\n", nil)
	for name, want := range map[string]string{"crm.find": "http://one/", "crm_find": "http://two/", "CRM.find": "http://three/", "a/b": "http://four/"} {
		if got := wired(t, table, name, `{}`).URL; got != want {
			t.Errorf("%s goes to %s", name, got)
		}
	}
	for _, name := range []string{"Crm.find", "crm.find ", "crm", "", "a"} {
		if _, ok := table.Lookup(name); ok {
			t.Errorf("%q has a route", name)
		}
	}
	var names []string
	for _, r := range table.Routes() {
		names = append(names, r.Name)
	}
	if !slices.Equal(names, []string{"crm.find", "crm_find", "CRM.find", "a/b"}) {
		t.Errorf("order %v", names)
	}
}

func TestClosestNames(t *testing.T) {
	t.Parallel()
	table := parse(t, "version: 1\nroutes:\n  list_invoices: http://h/\n  list_invoice_items: http://h/\n  get_weather: http://h/\n  crm.find: http://h/\n", nil)
	for name, want := range map[string][]string{
		"list_invoice":            {"list_invoices"},
		"functions.list_invoices": {"list_invoices"},
		"ListInvoices":            {"list_invoices", "list_invoice_items"},
		"get_wether":              {"get_weather"},
		"find":                    {"crm.find"},
		"something_else":          {},
		"":                        {},
		strings.Repeat("x", 1e6):  {},
	} {
		if got := table.Closest(name); !slices.Equal(got, want) {
			t.Errorf("%.40q: %v, want %v", name, got, want)
		}
	}
}

func TestSettingsWithoutAnyKey(t *testing.T) {
	t.Parallel()
	table := parse(t, "version: 1\nroutes:\n  f: http://host/\n", nil)
	want := router.Retry{Attempts: 3, MinWait: 200 * time.Millisecond, MaxWait: 5 * time.Second, On503: true}
	r := lookup(t, table, "f")
	if r.Method != "POST" || r.Idempotent || r.Timeout != 30*time.Second || r.AttemptTimeout != 30*time.Second || r.Retry != want {
		t.Errorf("%+v", r)
	}
	if r.Result != (router.Result{MaxBytes: 262144, MaxImageBytes: 4 << 20}) || table.IgnoreUnknown() {
		t.Errorf("%+v", r.Result)
	}
}

func TestResultIsReadAsWritten(t *testing.T) {
	t.Parallel()
	const mib4 = 4 << 20
	for text, want := range map[string]router.Result{
		"{}":                                    {MaxBytes: 262144, MaxImageBytes: mib4},
		"{ max_bytes: 10 }":                     {MaxBytes: 10, MaxImageBytes: 10},
		"{ on_oversize: truncate }":             {MaxBytes: 262144, MaxImageBytes: mib4, Truncate: true},
		"{ on_oversize: fail, html: false }":    {MaxBytes: 262144, MaxImageBytes: mib4},
		"{ expose: detail }":                    {MaxBytes: 262144, MaxImageBytes: mib4, Expose: router.ExposeDetail},
		"{ expose: status }":                    {MaxBytes: 262144, MaxImageBytes: mib4, Expose: router.ExposeStatus},
		"{ expose: none }":                      {MaxBytes: 262144, MaxImageBytes: mib4, Expose: router.ExposeNone},
		"{ as: content, html: true }":           {MaxBytes: 262144, MaxImageBytes: mib4, Content: true, HTML: true},
		"{ html: TRUE, max_bytes: 1073741824 }": {MaxBytes: 1 << 30, MaxImageBytes: 1 << 30, HTML: true},
	} {
		table := parse(t, "version: 1\nroutes:\n  f: { url: \"http://h/\", result: "+text+" }\n", nil)
		if got := lookup(t, table, "f").Result; got != want {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestIdempotentByMethod(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]bool{"GET": true, "HEAD": true, "PUT": true, "DELETE": true, "POST": false, "PATCH": false} {
		table := parse(t, "version: 1\nroutes:\n  f: { url: \"http://h/\", method: "+method+" }\n  g: { url: \"http://h/\", method: "+method+", idempotent: false }\n  h: { url: \"http://h/\", method: "+method+", idempotent: true }\n", nil)
		if lookup(t, table, "f").Idempotent != want || lookup(t, table, "g").Idempotent || !lookup(t, table, "h").Idempotent {
			t.Errorf("%s", method)
		}
	}
}

func TestRouteOverridesDefaultsKeyByKey(t *testing.T) {
	t.Parallel()
	table, err := parseFixture(t, filepath.Join("testdata", "good", "defaults.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	byPath := lookup(t, table, "by-path")
	if byPath.Retry != (router.Retry{Attempts: 7, MinWait: time.Second, MaxWait: 5 * time.Second}) || byPath.Timeout != 3*time.Second ||
		byPath.AttemptTimeout != 2*time.Second || !byPath.Result.HTML || byPath.Method != "PUT" || byPath.Idempotent || byPath.Upstream != "u" {
		t.Errorf("%+v", byPath)
	}
	byURL := lookup(t, table, "by-url")
	if byURL.Retry.Attempts != 1 || byURL.Retry.MinWait != time.Second || byURL.Result.HTML || byURL.Result.MaxBytes != 5 || byURL.Upstream != "" {
		t.Errorf("%+v", byURL)
	}
	for name, want := range map[string]string{
		"by-path": "http://u/base/x?a=default&b=default", "by-url": "http://other/y?a=default&b=own", "by-shorthand": "http://other/z?a=default&b=default",
	} {
		if got := wired(t, table, name, `{}`).URL; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	want := []router.Header{{Name: "x-a", Value: "own"}, {Name: "X-B", Value: "default"}}
	if got := wired(t, table, "by-url", `{}`).Headers; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestMergeKeysGiveWayToOwnKeys(t *testing.T) {
	t.Parallel()
	table, err := parseFixture(t, filepath.Join("testdata", "good", "anchors.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	two, three := lookup(t, table, "two"), lookup(t, table, "three")
	if got := wired(t, table, "two", `{}`).URL; got != "http://two/" || two.Timeout != 3*time.Second {
		t.Errorf("two: %s, %+v", got, two)
	}
	if got := wired(t, table, "three", `{}`).URL; got != "http://one/" || three.Timeout != 9*time.Second || three.Method != "PUT" {
		t.Errorf("three: %s, %+v", got, three)
	}
}

func TestParametersStayAsWritten(t *testing.T) {
	t.Parallel()
	table, err := parseFixture(t, filepath.Join("testdata", "good", "parameters.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{` +
		`"zeta":{"type":"integer","maximum":9007199254740993},"alpha":{"type":"number","default":1.10,"multipleOf":1e-2},` +
		`"day":{"type":"string","format":"date","default":"2026-01-31","enum":["2026-01-31","2026-02-01"]},"flag":{"const":"yes"},` +
		`"money":{"pattern":"^${SET}{2}$"},"ref":{"$ref":"#/$defs/thing"},"meta":{"$ref":"https://json-schema.org/draft/2020-12/schema"}},` +
		`"$defs":{"thing":{"type":["string","null"]}},"required":["zeta"]}`
	if got := string(lookup(t, table, "f").Parameters); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := string(table.Tools()); got != `[{"type":"function","name":"f","description":"Anything.","parameters":`+want+`}]` {
		t.Errorf("tools %s", got)
	}
}

func TestToolsAreRoutesWithDescriptionAndParameters(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  both: { url: "http://h/", description: "a < b & c", parameters: { type: object } }
  html: { url: "http://h/", description: x, parameters: { properties: { "<b>&": { pattern: "^<" } } } }
  description: { url: "http://h/", description: x }
  parameters: { url: "http://h/", parameters: { type: object } }
`, nil)
	if got := string(table.Tools()); got != `[{"type":"function","name":"both","description":"a < b & c","parameters":{"type":"object"}},`+
		`{"type":"function","name":"html","description":"x","parameters":{"properties":{"<b>&":{"pattern":"^<"}}}}]` {
		t.Errorf("got %s", got)
	}
	if got := string(parse(t, "version: 1\nroutes: {}\n", nil).Tools()); got != "[]" {
		t.Errorf("empty: %s", got)
	}
}

func TestDescribeShowsTemplatesAndMarksAsWritten(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
upstreams: { u: { url: "http://${HOST}/api?key=${KEY:-k}" } }
routes:
  f: { upstream: u, path: "/x/{id}{?a,b*}", query: { c: "{d} e" }, headers: { X-A: "Bearer ${KEY}{id}" } }
  g: https://user:password@host/x
`, map[string]string{"HOST": "secret", "KEY": "secret"})
	infos := table.Describe()
	if got, want := infos[0].URL, "http://${HOST}/api/x/{id}?key=${KEY}{?a,b*}&c={d}%20e"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if infos[0].Headers[0].Value != "Bearer ${KEY}{id}" || infos[0].Upstream != "u" || infos[0].Timeout != "30s" {
		t.Errorf("%+v", infos[0])
	}
	if got := infos[1].URL; got != "https://[redacted]@host/x" {
		t.Errorf("got %s", got)
	}
}

// writeFiles makes a directory of files.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestDirectoryIsOneTable(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{
		"a.yaml":         "version: 1\ndefaults: { timeout: 3s }\nroutes:\n  f: { upstream: u, path: /f }\n",
		"b.yaml":         "version: 1\nupstreams: { u: { url: \"http://u\" } }\nunknown_function: ignore\n",
		"c.yaml":         "version: 1\nroutes:\n  g: http://g/\n",
		".hidden.yaml":   "not a table",
		"notes.txt":      "not a table",
		"old.yaml.bak":   "not a table",
		"dir.yaml/x":     "not a table",
		"sub/other.yaml": "not a table",
	})
	table, err := router.Load(dir, envOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Routes()) != 2 || lookup(t, table, "g").Timeout != 3*time.Second || !table.IgnoreUnknown() {
		t.Errorf("%+v", table.Describe())
	}
	if got := wired(t, table, "f", `{}`).URL; got != "http://u/f" {
		t.Errorf("got %s", got)
	}
}

func TestDirectoryNamesBothPlaces(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{
		"a.yaml": "version: 1\ndefaults: { timeout: 3s }\nunknown_function: fail\nupstreams: { u: { url: \"http://u\" } }\nroutes:\n  f: http://f/\n",
		"b.yaml": "version: 1\ndefaults: { timeout: 3s }\nunknown_function: fail\nupstreams: { u: { url: \"http://u\" } }\nroutes:\n  f: http://f/\n",
	})
	_, err := router.Load(dir, envOf(nil))
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	want := b + ":2:1: defaults stand at " + a + ":2:1 already\n" +
		b + ":3:1: unknown_function stands at " + a + ":3:1 already\n" +
		b + ":4:14: upstream u stands at " + a + ":4:14 too\n" +
		b + ":6:3: route f stands at " + a + ":6:3 too"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// A Kubernetes volume links the visible names to files under hidden ones.
func TestKubernetesVolumeIsReadThroughItsVisibleNames(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{
		"..2026_01/routes.yaml": "version: 1\nroutes:\n  f: http://old/\n",
		"..2026_02/routes.yaml": "version: 1\nroutes:\n  f: http://new/\n",
	})
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("..2026_01", "..data")
	link(filepath.Join("..data", "routes.yaml"), "routes.yaml")
	first, err := router.Load(dir, envOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	link("..2026_02", "..data_tmp")
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	second, err := router.Load(dir, envOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	if wired(t, first, "f", `{}`).URL != "http://old/" || wired(t, second, "f", `{}`).URL != "http://new/" || first.Revision() == second.Revision() {
		t.Error("the swap was not seen")
	}
}

func TestUnreadableTables(t *testing.T) {
	t.Parallel()
	if _, err := router.Load(filepath.Join(t.TempDir(), "none.yaml"), envOf(nil)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := router.Load(t.TempDir(), envOf(nil)); err == nil || !strings.Contains(err.Error(), "no *.yaml file") {
		t.Errorf("an empty directory: %v", err)
	}
	for target, want := range map[string]error{"nowhere": fs.ErrNotExist, "a.yaml": syscall.ELOOP} {
		dir := t.TempDir()
		link := filepath.Join(dir, "a.yaml")
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		if _, err := router.Load(dir, envOf(nil)); !errors.Is(err, want) || !strings.Contains(err.Error(), link) {
			t.Errorf("a link to %s: %v", target, err)
		}
	}
	if _, err := router.Load("/dev/zero", envOf(nil)); err == nil || err.Error() != "/dev/zero:1:1: the file is larger than 16 MiB" {
		t.Errorf("a file without an end: %v", err)
	}
}

// Each file is judged; that an upstream or a default is missing cannot be said
// when a file that may hold it cannot be read.
func TestEveryFileOfADirectoryIsJudged(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{
		"a.yaml": "",
		"b.yaml": "version: 1\nroutes:\n  f: http://h/\n---\nversion: 1\n",
		"c.yaml": "routes:\n  f: a: b\n",
		"d.yaml": "version: 2\nroutes: { g: http://h/, h: { upstream: u, path: /x }, i: { path: /x }, j: {} }\n",
	})
	_, err := router.Load(dir, envOf(nil))
	want := strings.ReplaceAll(`DIR/a.yaml:1:1: the file is empty: a route table begins with version: 1
DIR/b.yaml:4:1: a second YAML document: a file holds one
DIR/c.yaml:2:7: not valid YAML: mapping values are not allowed in this context: quote a value that holds ": "
DIR/d.yaml:1:10: version: must be 1, got 2`, "DIR", dir)
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestRevisionFollowsTheContentOnly(t *testing.T) {
	t.Parallel()
	const text = "version: 1\nroutes:\n  f: { url: \"http://h/\", headers: { X-A: \"${A}\" } }\n"
	one, two := parse(t, text, map[string]string{"A": "1"}), parse(t, text, map[string]string{"A": "2"})
	other := parse(t, text+"  g: http://h/\n", map[string]string{"A": "1"})
	if one.Revision() == "" || one.Revision() != two.Revision() || one.Revision() == other.Revision() {
		t.Errorf("%q %q %q", one.Revision(), two.Revision(), other.Revision())
	}
}
