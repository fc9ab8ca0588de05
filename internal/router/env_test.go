package router_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"functionbridge/internal/router"
)

const secretTable = `
version: 1
upstreams:
  u: { url: "https://${HOST}:${PORT:-8443}/v1?key=${KEY}", headers: { Authorization: "Bearer ${TOKEN}", X-Default: "${NONE:-fallback}" } }
routes:
  f: { upstream: u, path: "/{id}{?q}", query: { sig: "a ${KEY} b" } }
  literal: { url: "http://host/", headers: { X-A: "pa$USERx$9", X-B: "$$x", X-C: "$$$$${TOKEN}$", X-D: "${TOKEN}$" }, query: { p: "$$5${KEY}$" } }
  password: http://user:p%40ss@host/hook?token=T0P
`

// awkward values: none of them may mean anything but itself.
func awkward() map[string]string {
	return map[string]string{
		"HOST": "secret-host", "KEY": "k&x=1#{id}$HOME${TOKEN}%20", "TOKEN": `t$HOME "quoted": {id} ${KEY} $$`,
	}
}

func TestVariablesAreInsertedLiterally(t *testing.T) {
	t.Parallel()
	table := parse(t, secretTable, awkward())
	got := wired(t, table, "f", `{"id":1,"q":"$z"}`)
	const key = "k%26x%3D1%23%7Bid%7D%24HOME%24%7BTOKEN%7D%2520"
	if want := "https://secret-host:8443/v1/1?key=" + key + "&q=%24z&sig=a%20" + key + "%20b"; got.URL != want {
		t.Errorf("URL\n%s, want\n%s", got.URL, want)
	}
	want := []router.Header{{Name: "Authorization", Value: "Bearer " + awkward()["TOKEN"]}, {Name: "X-Default", Value: "fallback"}}
	if !reflect.DeepEqual(got.Headers, want) {
		t.Errorf("headers %v", got.Headers)
	}
	got = wired(t, table, "literal", `{}`)
	want = []router.Header{
		{Name: "X-A", Value: "pa$USERx$9"}, {Name: "X-B", Value: "$x"}, {Name: "X-C", Value: "$$" + awkward()["TOKEN"] + "$"}, {Name: "X-D", Value: awkward()["TOKEN"] + "$"},
	}
	if !reflect.DeepEqual(got.Headers, want) || got.URL != "http://host/?p=%245"+key+"%24" {
		t.Errorf("%+v", got)
	}
}

func TestJournaledRequestHoldsNoSecret(t *testing.T) {
	t.Parallel()
	table := parse(t, secretTable, awkward())
	for _, name := range []string{"f", "password"} {
		request, err := lookup(t, table, name).Build([]byte(`{"id":"${TOKEN}","q":"$${KEY}"}`), values())
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		described, err := json.Marshal(table.Describe())
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range append(table.Secrets(), "p%40ss", "p@ss") {
			if strings.Contains(string(data), secret) || strings.Contains(string(described), secret) {
				t.Errorf("%s: the secret %q is in\n%s\n%s", name, secret, data, described)
			}
		}
		var again router.Request
		if err := json.Unmarshal(data, &again); err != nil {
			t.Fatal(err)
		}
		first, err := table.Wire(request)
		if err != nil {
			t.Fatal(err)
		}
		second, err := table.Wire(again)
		if err != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("%s: from the journal %+v, %v; before %+v", name, second, err, first)
		}
	}
	if got := wired(t, table, "password", `{}`).URL; got != "http://user:p%40ss@host/hook?token=T0P" {
		t.Errorf("got %s", got)
	}
}

// However user and password of a URL are put together, neither the journal nor
// people see them, and they are sent as they are written.
func TestUserAndPasswordOfAURLAreHidden(t *testing.T) {
	t.Parallel()
	env := map[string]string{"USER": "bob", "PASS": "p4ss", "SCHEME": "https", "HOST": "example"}
	for url, secrets := range map[string][]string{
		"http://bob:w0rd@host/x":                {"bob:w0rd", "w0rd"},
		"http://t0ken@host/x":                   {"t0ken"},
		"http://bob:w%300rd$$@host/x":           {"bob:w%300rd$", "w%300rd$", "w00rd$"},
		"http://bob:w0${PASS}rd@${HOST}/x":      {"w0p4ssrd"},
		"http://${USER}:w0rd@host/x":            {"w0rd"},
		"http://${USER}:${PASS}@host/x/a@b/{i}": {"bob:p4ss"},
		"${SCHEME}://bob:w0rd@host/x":           {"w0rd"},
		"http://a@b:w0rd@host/x":                {"w0rd"},
	} {
		table, err := router.Parse("routes.yaml", []byte("version: 1\nroutes:\n  f: \""+url+"\"\n"), envOf(env))
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		request, err := lookup(t, table, "f").Build([]byte(`{"i":1}`), values())
		if err != nil {
			t.Fatal(err)
		}
		for _, shown := range []string{request.URL, request.Shown().URL, table.Describe()[0].URL} {
			if strings.Contains(shown, "w0") || strings.Contains(shown, "t0k") || strings.Contains(shown, "bob") || strings.Contains(shown, "rd") {
				t.Errorf("%s is shown as %s", url, shown)
			}
		}
		for _, secret := range secrets {
			if !slices.Contains(table.Secrets(), secret) {
				t.Errorf("%s: %q is not among the secrets %q", url, secret, table.Secrets())
			}
		}
		want := strings.NewReplacer("${USER}", "bob", "${PASS}", "p4ss", "${SCHEME}", "https", "${HOST}", "example", "$$", "$", "{i}", "1").Replace(url)
		if wire, err := table.Wire(request); err != nil || wire.URL != want {
			t.Errorf("%s is sent as %s, %v", url, wire.URL, err)
		}
	}
}

// A request outlives its table: the values are those of the table in force.
func TestWireTakesTheValuesOfTheTableInForce(t *testing.T) {
	t.Parallel()
	before := parse(t, secretTable, awkward())
	request, err := lookup(t, before, "f").Build([]byte(`{"id":1}`), values())
	if err != nil {
		t.Fatal(err)
	}
	after := parse(t, "version: 1\nroutes: {}\n", map[string]string{"HOST": "new-host", "KEY": "new", "TOKEN": "new"})
	wire, err := after.Wire(request)
	if err == nil || !strings.Contains(err.Error(), "PORT") {
		t.Errorf("a variable without its default: %+v, %v", wire, err)
	}
	after = parse(t, "version: 1\nroutes: {}\n", map[string]string{"HOST": "new-host", "PORT": "1", "KEY": "new", "TOKEN": "new", "NONE": ""})
	wire, err = after.Wire(request)
	if err != nil || wire.URL != "https://new-host:1/v1/1?key=new&sig=a%20new%20b" || wire.Headers[0].Value != "Bearer new" {
		t.Errorf("%+v, %v", wire, err)
	}
}

func TestAnUpstreamsLastSlashStaysAwayUnderALaterTable(t *testing.T) {
	t.Parallel()
	env := map[string]string{"BASE": "http://host/api/"}
	before := parse(t, "version: 1\nupstreams: { u: { url: \"${BASE}\" } }\nroutes:\n  f: { upstream: u, path: /x }\n", env)
	request, err := lookup(t, before, "f").Build([]byte(`{}`), values())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"version: 1\nroutes: {}\n", "version: 1\nroutes:\n  f: ${BASE}\n"} {
		if wire, err := parse(t, text, env).Wire(request); err != nil || wire.URL != "http://host/api/x" {
			t.Errorf("%q: %s, %v", text, wire.URL, err)
		}
	}
}

// A value that cannot stand in a header is found when a table is read; a request
// that outlived its table meets it here.
func TestWireRefusesControlCharactersInHeaders(t *testing.T) {
	t.Parallel()
	before := parse(t, secretTable, awkward())
	request, err := lookup(t, before, "f").Build([]byte(`{"id":1}`), values())
	if err != nil {
		t.Fatal(err)
	}
	after := parse(t, "version: 1\nroutes: {}\n", map[string]string{"HOST": "h", "PORT": "1", "KEY": "k", "TOKEN": "s3cret\r\nX-Injected: 1", "NONE": ""})
	wire, err := after.Wire(request)
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%+v, %v", wire, err)
	}
}

func TestOneVariableWithTwoDefaults(t *testing.T) {
	t.Parallel()
	const text = `
version: 1
routes:
  a: { url: "http://host/", headers: { X-A: "${V:-one}" } }
  b: { url: "http://host/", headers: { X-A: "${V:-two}" } }
`
	for value, want := range map[string][2]string{"": {"one", "two"}, "set": {"set", "set"}} {
		table := parse(t, text, map[string]string{"V": value})
		got := [2]string{wired(t, table, "a", `{}`).Headers[0].Value, wired(t, table, "b", `{}`).Headers[0].Value}
		if got != want {
			t.Errorf("V=%q: got %v, want %v", value, got, want)
		}
		for _, info := range table.Describe() {
			if info.Headers[0].Value != "${V}" {
				t.Errorf("shown as %v", info.Headers)
			}
		}
	}
}

func TestVariablesMeanNothingElsewhere(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  f: { url: "http://host/", description: "costs ${NONE} $$5", parameters: { description: "${NONE} $$" } }
`, nil)
	if got, want := string(table.Tools()), `[{"type":"function","name":"f","description":"costs ${NONE} $$5","parameters":{"description":"${NONE} $$"}}]`; got != want {
		t.Errorf("got %s", got)
	}
}

// Where ${VAR} has no meaning it is not a value either: nothing takes it for
// something else.
func TestVariablesWhereTheyDoNotWorkAreMistakes(t *testing.T) {
	t.Parallel()
	for _, route := range []string{
		`{ url: "http://h/", method: "${M}" }`, `{ url: "http://h/", timeout: "${T}" }`, `{ url: "http://h/", attempt_timeout: "${T}" }`,
		`{ url: "http://h/", idempotent: "${I}" }`, `{ url: "http://h/", headers: { "${H}": x } }`, `{ url: "http://h/", retry: { attempts: "${A}" } }`,
		`{ url: "http://h/", result: { expose: "${E}" } }`, `{ upstream: "${U}", path: /x }`, `{ upstream: u, path: "/${P}" }`,
	} {
		env := envOf(map[string]string{"M": "GET", "T": "3s", "I": "true", "H": "X-A", "A": "3", "E": "none", "U": "u", "P": "x"})
		_, err := router.Parse("routes.yaml", []byte("version: 1\nupstreams: { u: { url: \"http://h\" } }\nroutes:\n  f: "+route+"\n"), env)
		if err == nil {
			t.Errorf("%s is taken", route)
		}
	}
}

func TestUnsetVariablesAreWarningsWhenAllowed(t *testing.T) {
	t.Parallel()
	env := envOf(nil)
	env.AllowUnset = true
	table, err := router.Parse("routes.yaml", []byte("version: 1\nroutes:\n  f: ${BASE}/x/{id}\n  g: { url: \"http://host/\", headers: { X-A: \"${TOKEN}\" } }\n"), env)
	if err != nil {
		t.Fatal(err)
	}
	want := "routes.yaml:3:6: routes.f: the variable BASE is not set\nroutes.yaml:4:45: routes.g.headers.X-A: the variable TOKEN is not set"
	if got := table.Warnings().Error(); got != want {
		t.Errorf("got\n%s", got)
	}
}

func TestTheRestOfAURLIsCheckedWhenVariablesAreUnset(t *testing.T) {
	t.Parallel()
	env := envOf(nil)
	env.AllowUnset = true
	for url, good := range map[string]bool{
		"${A}": true, "${A}/x": true, "${A}://host/": true, "http://${A}:${B}/${C}/{x}": true, "http://host:80${A}/": true, "https://${A}.example/": true,
		"${A}/../x": false, "http://${A}{x}": false, "ftp://${A}/": false, "${A}{x}": false, "http://${A}:port/": false,
	} {
		_, err := router.Parse("routes.yaml", []byte("version: 1\nroutes:\n  f: \""+url+"\"\n"), env)
		if (err == nil) != good {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestShownRequestIsForReading(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  f: { url: "http://user:password@host/$x/{id}?k=${KEY}", headers: { X-A: "${KEY:-other} costs 5$ {id}" }, query: { q: "${KEY:-third}" } }
`, map[string]string{"KEY": ""})
	request, err := lookup(t, table, "f").Build([]byte(`{"id":"${KEY}"}`), values())
	if err != nil {
		t.Fatal(err)
	}
	shown := request.Shown()
	if shown.URL != "http://[redacted]@host/$x/%24%7BKEY%7D" || !slices.Equal(shown.Query, []string{"k=${KEY}", "q=${KEY}"}) ||
		shown.Headers[0].Value != "${KEY} costs 5$ ${KEY}" || shown.Method != "POST" {
		t.Errorf("%+v", shown)
	}
	if _, err := table.Wire(request); err != nil {
		t.Errorf("the request itself changed: %v", err)
	}
}

func TestSecretsAreTheValuesLongestFirst(t *testing.T) {
	t.Parallel()
	table := parse(t, "version: 1\nroutes:\n  f: { url: \"http://u:pw@host/\", headers: { X-A: \"${A}\", X-B: \"${B}${EMPTY}\" } }\n", map[string]string{"A": "short", "B": "much longer", "EMPTY": ""})
	if got := table.Secrets(); !slices.Equal(got, []string{"much longer", "short", "u:pw", "pw"}) {
		t.Errorf("got %q", got)
	}
}
