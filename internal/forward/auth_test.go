package forward_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

// upstreamTable is a table with one upstream, and routes through it.
func upstreamTable(url, settings string, routes ...string) string {
	return "version: 1\n" + fastRetries + "upstreams:\n  crm: { url: \"" + url + "\", " + settings + " }\n" +
		"routes:\n  " + strings.Join(routes, "\n  ") + "\n"
}

const throughCRM = `act: { upstream: crm, path: /x, idempotent: true }`

// newFile writes a file of its own and returns its path.
func newFile(tb testing.TB, content string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "secret")
	writeFile(tb, path, content)
	return path
}

// writeFile replaces a file as an operator would, in one step.
func writeFile(tb testing.TB, path, content string) {
	tb.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		tb.Fatal(err)
	}
}

// authKinds are the settings of auth, and how a service checks them.
func authKinds(tb testing.TB) map[string]struct {
	setting string
	check   func(*http.Request) bool
} {
	tb.Helper()
	token, password := secrets()["TOKEN"], secrets()["PASSWORD"]
	basic := func(r *http.Request) bool {
		user, pass, ok := r.BasicAuth()
		return ok && user == "bridge" && pass == password
	}
	bearer := func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer "+token }
	header := func(r *http.Request) bool { return r.Header.Get("X-Api-Key") == token }
	tokenFile, passwordFile := newFile(tb, token+"\n"), newFile(tb, password+"\r\n")
	return map[string]struct {
		setting string
		check   func(*http.Request) bool
	}{
		"bearer":            {`auth: { bearer: "${TOKEN}" }`, bearer},
		"bearer in a file":  {`auth: { bearer_file: ` + tokenFile + ` }`, bearer},
		"basic":             {`auth: { basic: { username: bridge, password: "${PASSWORD}" } }`, basic},
		"basic with a file": {`auth: { basic: { username: bridge, password_file: ` + passwordFile + ` } }`, basic},
		"header":            {`auth: { header: { name: x-api-key, value: "${TOKEN}" } }`, header},
		"header in a file":  {`auth: { header: { name: X-API-Key, value_file: ` + tokenFile + ` } }`, header},
	}
}

// A service is shown what it asks for with every method, with every attempt
// and with the questions about a lost request, and nothing of it is recorded.
func TestServicesAreShownWhoAsks(t *testing.T) {
	t.Parallel()
	for name, kind := range authKinds(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 0
			up := serve(t, func(w http.ResponseWriter, r *http.Request) {
				switch n++; {
				case !kind.check(r):
					w.WriteHeader(http.StatusUnauthorized)
				case n%2 == 1:
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			})
			b := newBench(t, upstreamTable(up.URL, kind.setting,
				throughCRM, `get: { upstream: crm, path: /x, method: GET }`,
				`lost: { upstream: crm, path: /x, attempt_timeout: 1s, recover: { path: /y } }`))
			for _, function := range []string{"act", "get", "lost"} {
				o, rec := b.run(t, function, `{}`)
				if !o.Success || len(rec.attempts) != 2 {
					t.Errorf("%s: outcome = %+v, attempts %+v", function, o, rec.attempts)
				}
				for _, r := range rec.requests {
					noSecret(t, "journaled request", string(r))
				}
			}
			noSecret(t, "log", b.log.String())
		})
	}
}

// A request is shown with the headers that it is sent with, but not with what
// they hold.
func TestAuthIsShownMasked(t *testing.T) {
	t.Parallel()
	for name, kind := range authKinds(t) {
		b := newBench(t, upstreamTable("http://crm.test", kind.setting, throughCRM))
		tried := b.Try(t.Context(), forward.Trial{Function: "act", DryRun: true})
		text, err := json.Marshal(tried)
		if err != nil {
			t.Fatal(err)
		}
		noSecret(t, "dry run", string(text))
		shown := fmt.Sprint(tried.Request.Headers)
		if !strings.Contains(shown, "[redacted]") {
			t.Errorf("%s: headers = %s", name, shown)
		}
	}
}

// A header of the route takes the place of the auth, whatever its case.
func TestARoutesOwnCredentialTakesThePlaceOfAuth(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "ok"))
	b := newBench(t, upstreamTable(up.URL, `auth: { bearer: "${TOKEN}" }`,
		`act: { upstream: crm, path: /x, headers: { authorization: "Bearer mine" } }`))
	b.run(t, "act", `{}`)
	if got := up.requests()[0].header.Values("Authorization"); len(got) != 1 || got[0] != "Bearer mine" {
		t.Errorf("Authorization = %q", got)
	}
	tried := b.Try(t.Context(), forward.Trial{Function: "act", DryRun: true})
	if tried.Request.Headers["authorization"] != "Bearer mine" || tried.Request.Headers["Authorization"] != "" {
		t.Errorf("shown = %v", tried.Request.Headers)
	}
}

// An auth's header goes before one of the bridge's own.
func TestAuthMaySetAHeaderOfTheBridge(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "ok"))
	b := newBench(t, upstreamTable(up.URL, `auth: { header: { name: user-agent, value: "${TOKEN}" } }`, throughCRM))
	b.run(t, "act", `{}`)
	if got := up.requests()[0].header.Values("User-Agent"); len(got) != 1 || got[0] != secrets()["TOKEN"] {
		t.Errorf("User-Agent = %q", got)
	}
}

// A secret that is replaced between two attempts counts from the second on; a
// file that is gone leaves the last one in force, and the log says so once.
func TestSecretFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := newFile(t, "first\n")
		var seen []string
		b := startBubble(t, upstreamTable("http://crm.test", "auth: { bearer_file: "+file+" }", throughCRM),
			func(w http.ResponseWriter, r *http.Request) {
				seen = append(seen, r.Header.Get("Authorization"))
				if len(seen) == 1 {
					writeFile(t, file, "second\n")
					w.Header().Set("Retry-After", "2")
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			})
		defer b.stop()
		b.run(t, "act", `{}`)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(2 * time.Second) // fake clock
			b.run(t, "act", `{}`)
		}
		writeFile(t, file, "third")
		time.Sleep(2 * time.Second) // fake clock
		b.run(t, "act", `{}`)

		want := []string{"Bearer first", "Bearer second", "Bearer second", "Bearer second", "Bearer second", "Bearer third"}
		if fmt.Sprint(seen) != fmt.Sprint(want) {
			t.Errorf("the service saw %q, want %q", seen, want)
		}
		log := b.log.String()
		if strings.Count(log, "files of an upstream cannot be used") != 1 || strings.Count(log, "can be used again") != 1 ||
			!strings.Contains(log, "upstreams.crm.auth.bearer_file: there is no such file") || strings.Contains(log, file) {
			t.Errorf("log:\n%s", log)
		}
	})
}

// What a service repeats of auth is replaced, in each form, also when the file
// has changed since.
func TestEchoedAuthIsReplaced(t *testing.T) {
	t.Parallel()
	for name, kind := range authKinds(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, format := range []string{"%s", `{"detail":%q}`} {
				up := serve(t, func(w http.ResponseWriter, r *http.Request) {
					text := "got " + r.Header.Get("Authorization") + r.Header.Get("X-Api-Key")
					if user, password, ok := r.BasicAuth(); ok {
						text += " which is " + user + " and " + password
					}
					answer(http.StatusForbidden, "application/json", fmt.Sprintf(format, text))(w, r)
				})
				b := newBench(t, upstreamTable(up.URL, kind.setting, throughCRM))
				o, rec := b.run(t, "act", `{}`)
				if o.Failure != journal.Denied || !strings.Contains(o.Error, "[redacted]") {
					t.Errorf("outcome = %+v", o)
				}
				sent := up.requests()[0].header.Get("Authorization") + up.requests()[0].header.Get("X-Api-Key")
				for _, text := range []string{o.Error, b.log.String(), fmt.Sprint(rec.attempts)} {
					noSecret(t, "text", text)
					if scheme, value, found := strings.Cut(sent, " "); found && strings.Contains(text, value) {
						t.Errorf("%s of %s in %s", strconv.Quote(value), scheme, text)
					}
				}
			}
		})
	}
}

// What an upstream is shown goes to it alone, wherever it points.
func TestARedirectElsewhereIsShownNothing(t *testing.T) {
	t.Parallel()
	for name, kind := range authKinds(t) {
		elsewhere := serve(t, answer(200, "text/plain", "ok"))
		up := serve(t, redirecting(http.StatusTemporaryRedirect, elsewhere.URL+"/y"))
		b := newBench(t, upstreamTable(up.URL, kind.setting+", sign: { secret: "+signingSecret("a")+" }", throughCRM))
		if o, _ := b.run(t, "act", `{}`); o.Failure != journal.Rejected || len(elsewhere.requests()) != 0 {
			t.Errorf("%s: outcome = %+v, %d requests elsewhere", name, o, len(elsewhere.requests()))
		}
	}
}
