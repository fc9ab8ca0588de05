package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"functionbridge/internal/router"
)

// checked runs check on one file and returns the exit code and what was
// printed, the file's directory left out.
func checked(t *testing.T, text string, env router.Env) (code int, out, errOut string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "routes.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code = report(check(&stdout, &stderr, []string{path}, env), &stderr)
	short := strings.NewReplacer(filepath.Dir(path)+"/", "")
	return code, short.Replace(stdout.String()), short.Replace(stderr.String())
}

func TestCheckPrintsEveryProblemWithItsPlace(t *testing.T) {
	t.Parallel()
	code, out, errOut := checked(t, `version: 1
upstreams:
  crm:
    url: http://crm:8080
routes:
  get_customer:
    upstream: crn
    path: /customers/{id}
  refund:
    url: http://billing:8080/refunds
    timeout: 20
    metod: PUT
  weather:
    url: weather:8080/lookup
  weather:
    url: http://weather:8080/${CITY}
`, router.Env{})
	const want = `routes.yaml:7:15: routes.get_customer.upstream: unknown upstream crn (did you mean crm?)
routes.yaml:11:14: routes.refund.timeout: must be a duration with its unit, such as 500ms, 30s or 2m, got 20
routes.yaml:12:5: routes.refund.metod: unknown key (did you mean method?)
routes.yaml:14:10: routes.weather.url: bad URL: must begin with http:// or https:// and a host
routes.yaml:15:3: duplicate key weather: it stands at routes.yaml:13:3 too
`
	if code != 1 || out != want || errOut != "" {
		t.Errorf("exit %d, printed\n%s%s", code, out, errOut)
	}
}

func TestCheckSaysThatATableIsValid(t *testing.T) {
	t.Parallel()
	code, out, errOut := checked(t, "version: 1\nroutes:\n  f: http://host/\n  g: http://host/\n", router.Env{})
	if code != 0 || out != "routes.yaml: 2 routes, valid\n" || errOut != "" {
		t.Errorf("exit %d, printed %q, %q", code, out, errOut)
	}
	if code, out, _ := checked(t, "version: 1\nroutes:\n  f: http://host/\n", router.Env{}); code != 0 || out != "routes.yaml: 1 route, valid\n" {
		t.Errorf("exit %d, printed %q", code, out)
	}
}

func TestCheckWithoutEnvironmentWarnsOfUnsetVariables(t *testing.T) {
	t.Parallel()
	const text = "version: 1\nroutes:\n  f: { url: \"http://host/\", headers: { X-Key: \"${KEY}\" } }\n"
	code, out, errOut := checked(t, text, router.Env{AllowUnset: true})
	const warning = "routes.yaml:3:47: routes.f.headers.X-Key: the variable KEY is not set"
	if code != 0 || out != "routes.yaml: 1 route, valid\n" || errOut != warning+" (warning)\n" {
		t.Errorf("exit %d, printed %q, %q", code, out, errOut)
	}
	if code, out, _ := checked(t, text, router.Env{}); code != 1 || out != warning+"\n" {
		t.Errorf("exit %d, printed %q", code, out)
	}
}

func TestCheckPrintsWarningsInTheOrderOfTheFile(t *testing.T) {
	t.Parallel()
	code, out, errOut := checked(t, `version: 1
routes:
  crm.find: http://host/:id
  get: { url: "http://host/{id}", description: Get one. }
  put: { url: http://host/$X, method: PUT }
`, router.Env{})
	const want = `routes.yaml:3:3: routes.crm.find: the API takes letters, digits, _ and - in the name of a function, nothing else (warning)
routes.yaml:3:13: routes.crm.find: :id is sent as it stands; write {id} (warning)
routes.yaml:4:3: routes.get: has a description and no parameters: bridge tools leaves it out (warning)
routes.yaml:5:15: routes.put.url: $X is sent as it stands; write ${X} for the variable, or $$X (warning)
`
	if code != 0 || out != "routes.yaml: 3 routes, valid\n" || errOut != want {
		t.Errorf("exit %d, printed %q and\n%swant\n%s", code, out, errOut, want)
	}
}

func TestToolsSaysWhichRoutesAreNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.yaml")
	t.Setenv("BRIDGE_ROUTES", path)
	const (
		published = "  f: { url: \"http://h/${NOT_SET}\", description: x, parameters: {} }\n"
		described = "  g: { url: http://h/, description: x }\n"
	)
	for routes, want := range map[string]string{
		published:                        "",
		published + "  h: http://h/$X\n": "", // of no concern to tools
		published + described:            path + ":4:3: routes.g: has a description and no parameters: bridge tools leaves it out (warning)\n",
		described: path + ":3:3: routes.g: has a description and no parameters: bridge tools leaves it out (warning)\n" +
			"bridge: no route has both description and parameters, so there are no tools\n",
		"  h: http://h/\n": "bridge: no route has both description and parameters, so there are no tools\n",
	} {
		if err := os.WriteFile(path, []byte("version: 1\nroutes:\n"+routes), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out, errOut := command(t, "", "tools")
		if code != 0 || !strings.HasPrefix(out, "[") || errOut != want {
			t.Errorf("%s: exit %d, printed %q and %q; want %q", routes, code, out, errOut, want)
		}
	}
}

func TestCheckOfSeveralTablesGoesOnAfterABadOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, bad, none := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "none.yaml")
	for path, text := range map[string]string{good: "version: 1\nroutes: {}\n", bad: ""} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, errOut bytes.Buffer
	code := report(check(&out, &errOut, []string{none, bad, good}, router.Env{}), &errOut)
	want := bad + ":1:1: the file is empty: a route table begins with version: 1\n" + good + ": 0 routes, valid\n"
	if code != 1 || out.String() != want || !strings.Contains(errOut.String(), none) {
		t.Errorf("exit %d, printed %q, %q", code, out.String(), errOut.String())
	}
}

func TestCheckAndToolsUseTheTableOfTheEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.yaml")
	const text = "version: 1\nroutes:\n  f: { url: \"http://${NOT_SET_HERE}/\", description: x, parameters: { type: object } }\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("BRIDGE_ROUTES", path)
	var out bytes.Buffer
	cmd := newToolsCmd()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{}) // nil would be those of the test binary
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if want := `[{"type":"function","name":"f","description":"x","parameters":{"type":"object"}}]` + "\n"; out.String() != want {
		t.Errorf("tools: %s", out.String())
	}
	out.Reset()
	cmd = newCheckCmd()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs([]string{"--no-env"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), path+": 1 route, valid") {
		t.Errorf("check: %s", out.String())
	}
}

func TestToolsOfABadTablePrintsItsProblemsAndNoTools(t *testing.T) {
	path := filepath.Join(t.TempDir(), "own.yaml")
	if err := os.WriteFile(path, []byte("version: 1\nroutes:\n  f: weather\n  f: http://h/\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		path: path + ":3:6: routes.f: bad URL: must begin with http:// or https:// and a host\n" +
			path + ":4:3: duplicate key f: it stands at " + path + ":3:3 too\n",
		path + ".none": "bridge: read the route table: stat " + path + ".none: no such file or directory; name the table, or set BRIDGE_ROUTES\n",
	} {
		t.Setenv("BRIDGE_ROUTES", name)
		var out, errOut bytes.Buffer
		cmd := newToolsCmd()
		cmd.SetOut(&out)
		cmd.SetErr(&errOut)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs([]string{}) // nil would be those of the test binary
		if code := report(cmd.Execute(), &errOut); code != 2 || out.String() != "" || errOut.String() != want {
			t.Errorf("exit %d, printed %q, %q", code, out.String(), errOut.String())
		}
	}
}

// A secret that a table cannot use is in no line that check prints.
func TestCheckPrintsNoValueOfAVariable(t *testing.T) {
	t.Parallel()
	secrets := map[string]string{"A": "s3cret#1", "B": "s3cret\n2", "C": "s3cret://host", "D": "http://user:s3cret@ho st/", "E": "http://host/?s3cret", "F": "%zzs3cret"}
	env := router.Env{Lookup: func(name string) (string, bool) {
		value, ok := secrets[name]
		return value, ok
	}}
	code, out, errOut := checked(t, `version: 1
upstreams:
  e: { url: "${E}" }
routes:
  a: http://host/${A}/x
  b: { url: "http://host/", headers: { X-B: "${B}", Host: "${C}" }, timeout: "${A}", method: "${B}" }
  c: ${C}
  d: ${D}
  e: { upstream: e, path: "/x" }
  f: http://host/${F}
  g: { upstream: "${C}", path: "${A}" }
`, env)
	if code != 1 || errOut != "" || strings.Count(out, "\n") != 11 || strings.Contains(out, "s3cret") {
		t.Errorf("exit %d, printed\n%s%s", code, out, errOut)
	}
}
