package forward_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"functionbridge/internal/forward"
	"functionbridge/internal/router"
)

// noSecret fails when a text holds a secret of the tests' table, as it is or
// as it stands in JSON.
func noSecret(t *testing.T, where, text string) {
	t.Helper()
	for _, secret := range secrets() {
		quoted := strconv.Quote(secret)
		for _, form := range []string{secret, quoted[1 : len(quoted)-1]} {
			if strings.Contains(text, form) {
				t.Errorf("%s holds the secret %s: %s", where, form, text)
			}
		}
	}
}

func TestSecretsAreInNoErrorLogOrRecord(t *testing.T) {
	t.Parallel()
	echo := func(status int, format string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, format, r.Header.Get("X-Api-Key"))
		}
	}
	quoting := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			text, _ := json.Marshal(map[string]any{"detail": []string{r.Header.Get("X-Api-Key"), r.URL.Query().Get("token")}})
			answerJSON(w, status, text)
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"not reached":         nil,
		"echoed as text":      echo(401, "bad key %s!"),
		"echoed in JSON":      quoting(403),
		"echoed in a 500":     quoting(500),
		"echoed with escapes": echoEscaped,
		"echoed as a URL": func(w http.ResponseWriter, r *http.Request) {
			echo(404, "no route for "+strings.ReplaceAll(r.RequestURI, "%", "%%")+" %.0s")(w, r)
		},
		"echoed at the cut":    func(w http.ResponseWriter, r *http.Request) { echo(404, strings.Repeat("x", 2040)+"%s")(w, r) },
		"echoed over lines":    echo(404, "a\n%s\tb"),
		"no reply":             func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"redirect with secret": func(w http.ResponseWriter, r *http.Request) { redirecting(302, "/?t="+r.URL.RawQuery)(w, r) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := serve(t, handler)
			if handler == nil {
				up.Close()
			}
			address := strings.Replace(up.URL, "http://", "http://user:${PASSWORD}@", 1)
			b := newBench(t, table("act: { url: \""+address+"/hook?token=${TOKEN}\", headers: { X-Api-Key: \"${TOKEN}\" }, idempotent: true, result: { expose: detail } }"))

			o, rec := b.run(t, "act", `{}`)

			if o.Success || o.Error == "" {
				t.Errorf("outcome = %+v", o)
			}
			noSecret(t, "error", o.Error)
			noSecret(t, "log", b.log.String())
			for _, a := range rec.attempts {
				noSecret(t, "attempt", a.Error)
			}
			for _, r := range rec.requests {
				noSecret(t, "journaled request", string(r))
			}
			if strings.HasPrefix(name, "echoed") && !strings.Contains(o.Error, "[redacted]") && name != "echoed at the cut" {
				t.Errorf("error = %q", o.Error)
			}
			tried, _ := json.Marshal(b.Try(t.Context(), forward.Trial{Function: "act"}))
			noSecret(t, "trial", string(tried))
			if got := up.requests(); len(got) > 0 {
				user, password, _ := (&http.Request{Header: got[0].header}).BasicAuth()
				if user != "user" || password != secrets()["PASSWORD"] || !strings.Contains(got[0].uri, "token=T0P-") {
					t.Errorf("the service was not sent its secrets: %+v", got[0])
				}
			}
		})
	}
}

// echoEscaped writes every character of a secret as \uXXXX.
func echoEscaped(w http.ResponseWriter, r *http.Request) {
	var b strings.Builder
	for _, c := range r.Header.Get("X-Api-Key") {
		fmt.Fprintf(&b, "\\u%04x", c)
	}
	answerJSON(w, 422, []byte(`{"detail":[{"input":"`+b.String()+`"}]}`))
}

func answerJSON(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func TestHostHeaderSetsTheRequestsHost(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "ok"))
	b := newBench(t, table("act: { url: "+up.URL+", headers: { Host: api.internal, accept: text/csv, User-Agent: mine } }"))
	b.run(t, "act", `{}`)
	got := up.requests()[0]
	if got.host != "api.internal" || got.header.Get("Accept") != "text/csv" || got.header.Get("User-Agent") != "mine" ||
		len(got.header.Values("Accept")) != 1 {
		t.Errorf("request = %+v", got)
	}
}

// User and password of a URL are sent as basic authentication, unless the route
// has its own.
func TestCredentialsOfAURL(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "ok"))
	url := strings.Replace(up.URL, "http://", "http://user:${PASSWORD}@", 1)
	literal := strings.Replace(up.URL, "http://", "http://user:p%40ss@", 1)
	b := newBench(t, table(`url: "`+url+`"`, `literal: "`+literal+`"`, `both: { url: "`+url+`", headers: { authorization: "Bearer ${TOKEN}" } }`))
	for function, want := range map[string]string{
		"url":     "Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+secrets()["PASSWORD"])),
		"literal": "Basic " + base64.StdEncoding.EncodeToString([]byte("user:p@ss")),
		"both":    "Bearer " + secrets()["TOKEN"],
	} {
		before := len(up.requests())
		if _, rec := b.run(t, function, `{}`); strings.Contains(string(rec.requests[0]), "p%40ss") {
			t.Errorf("%s: the password is journaled: %s", function, rec.requests[0])
		}
		if got := up.requests()[before].header["Authorization"]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: Authorization = %q, want %q", function, got, want)
		}
	}
}

// Secrets that a reload brought are replaced like those of the first table.
func TestSecretsOfANewTableAreReplaced(t *testing.T) {
	t.Parallel()
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		answer(401, "text/plain", "bad key "+r.Header.Get("X-Api-Key"))(w, r)
	})
	load := func(token string) *router.Table {
		env := router.Env{Lookup: func(string) (string, bool) { return token, true }}
		tab, err := router.Parse("routes.yaml", []byte(table("act: { url: "+up.URL+", headers: { X-Api-Key: \"${TOKEN}\" } }")), env)
		if err != nil {
			t.Fatal(err)
		}
		return tab
	}
	current := load("first-key")
	b := newBench(t, table("x: http://x.test"), func(c *forward.Config) { c.Table = func() *router.Table { return current } })
	for _, token := range []string{"first-key", "second-key"} {
		current = load(token)
		if o, _ := b.run(t, "act", `{}`); !strings.Contains(o.Error, "bad key [redacted]") || strings.Contains(o.Error, token) {
			t.Errorf("error = %q", o.Error)
		}
	}
}

// A service that repeats the headers it was sent tells no password either.
func TestAnEchoedCredentialIsReplaced(t *testing.T) {
	t.Parallel()
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		answer(401, "text/plain", "not welcome: "+r.Header.Get("Authorization"))(w, r)
	})
	for _, user := range []string{"user:${PASSWORD}", "user:p%40ss"} {
		b := newBench(t, table(`act: "`+strings.Replace(up.URL, "http://", "http://"+user+"@", 1)+`"`))
		if o, _ := b.run(t, "act", `{}`); !strings.Contains(o.Error, ": not welcome: Basic [redacted]. ") {
			t.Errorf("error = %q", o.Error)
		}
	}
}

// A secret that is a part of the mark does not break the mark.
func TestShortSecretsAreReplacedOnce(t *testing.T) {
	t.Parallel()
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		answer(403, "text/plain", "not with "+r.Header.Get("X-Api-Key")+" or act")(w, r)
	})
	b := newBench(t, upstreamTable(up.URL, `auth: { header: { name: X-Api-Key, value: act } }`, throughCRM))
	if o, _ := b.run(t, "act", `{}`); !strings.Contains(o.Error, ": not with [redacted] or [redacted]. ") {
		t.Errorf("error = %q", o.Error)
	}
}
