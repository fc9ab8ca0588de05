package router_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/router"
)

// serviceOf is the service of a table with one upstream, whose settings besides its
// url are these.
func serviceOf(t *testing.T, settings string, env map[string]string) (*router.Table, *router.Service) {
	t.Helper()
	table := parse(t, "version: 1\nupstreams:\n  crm: { url: \"https://crm\", "+settings+" }\nroutes:\n  f: { upstream: crm, path: /x }\n", env)
	return table, lookup(t, table, "f").Service
}

func reveal(t *testing.T, s router.Secret) string {
	t.Helper()
	text, err := s.Reveal()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// write puts a text into a file of which an earlier one is long unchanged.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	age(t, path)
}

// age makes a file so old that only a change can be why it is read again.
func age(t *testing.T, path string) {
	t.Helper()
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
}

func TestAuthIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{"token": "from file\n", "crlf": " p w \r\n\r\n"})
	env := map[string]string{"T": "t {x} $HOME ${T}", "DIR": dir}
	for settings, want := range map[string]string{
		`auth: { bearer: "${T}" }`:                                                              "bearer Authorization t {x} $HOME ${T}",
		`auth: { bearer: "{a}$$${T}" }`:                                                         "bearer Authorization {a}$t {x} $HOME ${T}",
		`auth: { bearer: 0123 }`:                                                                "bearer Authorization 0123",
		`auth: { bearer_file: "${DIR}/token" }`:                                                 "bearer Authorization from file",
		`auth: { basic: { username: "u", password: "p:${T}" } }`:                                "basic Authorization u p:t {x} $HOME ${T}",
		`auth: { basic: { username: "${T}", password: "" } }`:                                   "basic Authorization t {x} $HOME ${T} ",
		`auth: { basic: { username: u, password_file: "${DIR}/crlf" } }`:                        "basic Authorization u  p w ",
		`auth: { header: { name: X-Key, value: "k ${T}" } }`:                                    "header X-Key k t {x} $HOME ${T}",
		`auth: { header: { name: "X-${N:-Key}", value_file: "${DIR}/token" } }`:                 "header X-Key from file",
		`auth: { oauth2: { token_url: "https://l/t?a=b", client_id: c, client_secret: "${T}"}}`: "oauth2 Authorization https://l/t?a=b c t {x} $HOME ${T} []",
		`auth: { oauth2: { token_url: "${U:-http://l}", client_id: "${T}", client_secret_file: "${DIR}/token", scopes: ["a", "b c", "${N:-d}"] } }`: "oauth2 Authorization http://l t {x} $HOME ${T} from file [a b c d]",
		`auth: { oauth2: { token_url: "http://l", client_id: c, client_secret: s, scopes: a b } }`:                                                  "oauth2 Authorization http://l c s [a b]",
		`auth: { oauth2: { token_url: "http://l", client_id: c, client_secret: s, scopes: [] } }`:                                                   "oauth2 Authorization http://l c s []",
		`headers: { X-A: a }`: " ",
	} {
		_, service := serviceOf(t, settings, env)
		a := service.Auth
		parts := []string{string(a.Kind), a.Header()}
		for _, s := range []router.Secret{a.Bearer, a.Username, a.Password, a.HeaderValue, a.OAuth2.TokenURL, a.OAuth2.ClientID, a.OAuth2.ClientSecret} {
			if s.IsSet() {
				parts = append(parts, reveal(t, s))
			}
		}
		if a.Kind == router.AuthOAuth2 {
			parts = append(parts, fmt.Sprint(a.OAuth2.Scopes))
		}
		if got := strings.Join(parts, " "); got != want {
			t.Errorf("%s: got %q, want %q", settings, got, want)
		}
	}
}

func TestRoutesShareTheServiceOfTheirUpstream(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{
		"upstreams.yaml": "version: 1\nupstreams: { u: { url: \"http://u\", auth: { bearer_file: secrets/token }, max_concurrent: 3 } }\n",
		"routes.yaml":    "version: 1\ndefaults: { max_concurrent: 2, rate_limit: 5/m }\nroutes:\n  f: { upstream: u, path: /f }\n  g: { upstream: u, path: /g, max_concurrent: 1 }\n  h: http://h/\n",
		"secrets/token":  "t\n",
	})
	table, err := router.Load(dir, envOf(nil))
	if err != nil {
		t.Fatal(err)
	}
	f, g, h := lookup(t, table, "f"), lookup(t, table, "g"), lookup(t, table, "h")
	if f.Service == nil || f.Service != g.Service || h.Service != nil || f.Service.Name != "u" || f.Service.Limits.MaxConcurrent != 3 {
		t.Errorf("%+v, %+v, %+v", f.Service, g.Service, h.Service)
	}
	if got := reveal(t, f.Service.Auth.Bearer); got != "t" { // relative paths begin at the table's directory
		t.Errorf("got %q", got)
	}
	if f.Limits.MaxConcurrent != 2 || g.Limits.MaxConcurrent != 1 || g.Limits.Rate.String() != "5/m" || h.Limits.MaxConcurrent != 2 {
		t.Errorf("%+v, %+v, %+v", f.Limits, g.Limits, h.Limits)
	}
}

// shownTable has a secret in every place that can hold one.
func shownTable(t *testing.T) *router.Table {
	t.Helper()
	dir := writeFiles(t, map[string]string{"token": "s3cret-file", "signing": signingSecret(32)})
	return parse(t, `
version: 1
upstreams:
  bearer: { url: "https://host", auth: { bearer: "s3cret-literal" }, sign: { secret: ["${SIGNING}", "${SIGNING}"] } }
  file: { url: "https://host", auth: { bearer_file: "${DIR}/token" }, sign: { secret_file: "${DIR}/signing" } }
  basic: { url: "https://host", auth: { basic: { username: s3cret-user, password: "${TOKEN}" } } }
  header: { url: "https://host", auth: { header: { name: X-S3cret, value: "Key ${TOKEN}" } } }
  oauth2:
    url: https://host
    auth: { oauth2: { token_url: "https://s3cret-host/", client_id: "${TOKEN}", client_secret: s3cret-client, scopes: s3cret-scope } }
    tls: { server_name: "${TOKEN}" }
routes:
  a: { upstream: bearer, path: /x }
  b: { upstream: file, path: /x }
  c: { upstream: basic, path: /x }
  d: { upstream: header, path: /x }
  e: { upstream: oauth2, path: /x }
`, map[string]string{"TOKEN": "s3cret-variable", "SIGNING": signingSecret(24), "DIR": dir})
}

func TestSecretsOfServicesAreNeverShown(t *testing.T) {
	t.Parallel()
	table := shownTable(t)
	var out bytes.Buffer
	inJSON, inText := slog.New(slog.NewJSONHandler(&out, nil)), slog.New(slog.NewTextHandler(&out, nil))
	for _, route := range table.Routes() {
		a := route.Service.Auth
		for _, v := range []any{
			a, &a, a.OAuth2.ClientSecret, &a.Bearer, a.Bearer, a.Password, a.HeaderValue,
			struct{ Secret router.Secret }{a.Bearer},
			map[string]router.Secret{"k": a.Password},
			[]router.Secret{a.HeaderValue},
		} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
				fmt.Fprintf(&out, verb+"\n", v)
			}
			if err := json.NewEncoder(&out).Encode(v); err != nil {
				t.Fatal(err)
			}
			inJSON.Info("shown", "value", v)
			inText.Info("shown", "value", v)
		}
	}
	if err := json.NewEncoder(&out).Encode(table.Describe()); err != nil {
		t.Fatal(err)
	}
	for _, secret := range append(table.Secrets(), "s3cret") {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%q is in\n%s", secret, out.String())
		}
	}
	if n := strings.Count(out.String(), "[redacted]"); n < 100 {
		t.Errorf("only %d places are masked:\n%s", n, out.String())
	}
}

func TestDescribeShowsVariablesOfServicesAndMasksTheRest(t *testing.T) {
	t.Parallel()
	var got []string
	for _, info := range shownTable(t).Describe() {
		line, err := json.Marshal(info.Service)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(line))
	}
	want := []string{
		`{"auth":{"bearer":"[redacted]"},"sign":["${SIGNING}","${SIGNING}"]}`,
		`{"auth":{"bearer_file":"[redacted]"},"sign":["[redacted]"]}`,
		`{"auth":{"basic.password":"${TOKEN}","basic.username":"[redacted]"}}`,
		`{"auth":{"header.name":"[redacted]","header.value":"[redacted]"}}`,
		`{"auth":{"oauth2.client_id":"${TOKEN}","oauth2.client_secret":"[redacted]","oauth2.scopes":"[redacted]","oauth2.token_url":"[redacted]"},"tls":{"server_name":"${TOKEN}"}}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What a service may repeat of its credentials is known in each form in which it is
// sent.
func TestSecretsListsWhatServicesAreSent(t *testing.T) {
	t.Parallel()
	secrets := shownTable(t).Secrets()
	for _, want := range []string{
		"s3cret-literal", "s3cret-file", "s3cret-variable", "Key s3cret-variable", "s3cret-client", "s3cret-user", "https://s3cret-host/",
		base64.StdEncoding.EncodeToString([]byte("s3cret-user:s3cret-variable")), base64.StdEncoding.EncodeToString([]byte("s3cret-variable:s3cret-client")),
		signingSecret(24), strings.TrimPrefix(signingSecret(24), "whsec_"), signingSecret(32), strings.TrimPrefix(signingSecret(32), "whsec_"),
	} {
		if !slices.Contains(secrets, want) {
			t.Errorf("%q is not among %q", want, secrets)
		}
	}
	if slices.Contains(secrets, "") || !slices.IsSortedFunc(secrets, func(a, b string) int { return len(b) - len(a) }) {
		t.Errorf("got %q", secrets)
	}
}

func TestSecretFileIsReadAgainWhenItChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path, other := filepath.Join(dir, "token"), filepath.Join(dir, "other")
		write(t, path, "one\n")
		table, service := serviceOf(t, `auth: { bearer_file: "`+path+`" }`, nil)
		expect := func(want string, secrets ...string) {
			t.Helper()
			if got := reveal(t, service.Auth.Bearer); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			for _, secret := range secrets {
				if !slices.Contains(table.Secrets(), secret) {
					t.Errorf("%q is not among %q", secret, table.Secrets())
				}
			}
		}
		expect("one", "one")

		write(t, path, "two")
		version := table.SecretsVersion()
		expect("one")           // it is looked at once a second
		time.Sleep(time.Second) // fake clock
		expect("two", "one", "two")
		if table.SecretsVersion() == version {
			t.Error("the version of the secrets is the same")
		}

		version = table.SecretsVersion()
		age(t, path)
		time.Sleep(time.Second) // fake clock
		expect("two", "one", "two")
		if table.SecretsVersion() != version {
			t.Error("the same text is another version")
		}

		write(t, other, "six") // another file of the same size and age
		if err := os.Rename(other, path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // fake clock
		expect("six", "one", "two", "six")

		for i := range 10 {
			write(t, path, fmt.Sprintf("text %d", i))
			time.Sleep(time.Second) // fake clock
			expect(fmt.Sprintf("text %d", i), fmt.Sprintf("text %d", max(0, i-1)))
		}
		if n := len(table.Secrets()); n > 5 {
			t.Errorf("%d texts of one file are remembered", n)
		}
	})
}

// A Kubernetes volume swaps a link above the files.
func TestSecretFileIsReadAgainWhenALinkAboveItChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := writeFiles(t, map[string]string{"..1/token": "one", "..2/token": "two"})
		age(t, filepath.Join(dir, "..1/token"))
		age(t, filepath.Join(dir, "..2/token"))
		link := func(target, name string) {
			t.Helper()
			if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		link("..1", "..data")
		link(filepath.Join("..data", "token"), "token")
		_, service := serviceOf(t, `auth: { bearer_file: "`+filepath.Join(dir, "token")+`" }`, nil)
		link("..2", "..data_tmp")
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // fake clock
		if got := reveal(t, service.Auth.Bearer); got != "two" {
			t.Errorf("got %q", got)
		}
	})
}

// A change right after the file was read may leave size and time as they were.
func TestSecretFileIsReadAgainWhileItIsNew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "token")
		now := time.Now()
		change := func(text string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, now, now); err != nil {
				t.Fatal(err)
			}
		}
		change("one")
		_, service := serviceOf(t, `auth: { bearer_file: "`+path+`" }`, nil)
		change("two")
		time.Sleep(time.Second) // fake clock
		if got := reveal(t, service.Auth.Bearer); got != "two" {
			t.Errorf("got %q", got)
		}
	})
}

func TestSecretFileThatCannotBeUsedKeepsItsLastText(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "s3cret-path")
		write(t, path, "good")
		_, service := serviceOf(t, `auth: { bearer_file: "`+path+`" }`, nil)
		for _, bad := range []struct{ text, want string }{
			{"", "the file is empty"}, {"\n", "the file is empty"}, {"s3cret\nmore", "must not hold a line break"}, {"s3cret\x00", "control character"},
		} {
			write(t, path, bad.text)
			time.Sleep(time.Second) // fake clock
			text, err := service.Auth.Bearer.Reveal()
			if text != "good" || err == nil || !strings.Contains(err.Error(), bad.want) || !strings.HasPrefix(err.Error(), "upstreams.crm.auth.bearer_file: ") || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%q: %q, %v", bad.text, text, err)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // fake clock
		if text, err := service.Auth.Bearer.Reveal(); text != "good" || err == nil || err.Error() != "upstreams.crm.auth.bearer_file: there is no such file" {
			t.Errorf("%q, %v", text, err)
		}
		write(t, path, "good")  // the same text: it can be used again
		time.Sleep(time.Second) // fake clock
		if got := reveal(t, service.Auth.Bearer); got != "good" {
			t.Errorf("got %q", got)
		}
	})
}

func TestSecretFileIsReadBesideManyReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "token")
		write(t, path, "text 0")
		table, service := serviceOf(t, `auth: { bearer_file: "`+path+`" }, sign: { secret: `+signingSecret(24)+` }`, nil)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 50 {
					if text, err := service.Auth.Bearer.Reveal(); err != nil || !strings.HasPrefix(text, "text ") || !slices.Contains(table.Secrets(), text) {
						t.Errorf("%q, %v", text, err)
					}
					time.Sleep(300 * time.Millisecond) // fake clock
				}
			})
		}
		for i := range 14 {
			next := path + ".next"
			write(t, next, fmt.Sprintf("text %d", i))
			if err := os.Rename(next, path); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second) // fake clock
		}
		group.Wait()
	})
}

func TestSigningKeysAreOneOrTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "signing")
		write(t, path, signingSecret(24)+"\n")
		env := map[string]string{"A": signingSecret(24), "B": signingSecret(64), "FILE": path}
		sizes := func(s router.Sign) (sizes []int) {
			t.Helper()
			keys, err := s.Keys()
			if err != nil {
				t.Error(err)
			}
			for _, key := range keys {
				sizes = append(sizes, len(key))
			}
			return sizes
		}
		for settings, want := range map[string][]int{
			`sign: { secret: "${A}" }`:           {24},
			`sign: { secret: ["${A}", "${B}"] }`: {24, 64},
			`sign: { secret_file: "${FILE}" }`:   {24},
			`headers: { X-A: a }`:                nil,
		} {
			_, service := serviceOf(t, settings, env)
			if got := sizes(service.Sign); !slices.Equal(got, want) || service.Sign.IsSet() != (want != nil) {
				t.Errorf("%s: got %v, want %v", settings, got, want)
			}
		}
		table, service := serviceOf(t, `sign: { secret_file: "${FILE}" }`, env)
		write(t, path, signingSecret(32)+" "+signingSecret(24)+"\r\n")
		time.Sleep(time.Second) // fake clock
		if got := sizes(service.Sign); !slices.Equal(got, []int{32, 24}) {
			t.Errorf("got %v", got)
		}
		if !slices.Contains(table.Secrets(), signingSecret(32)) {
			t.Errorf("the new secret is not among %q", table.Secrets())
		}
		write(t, path, "whsec_short")
		time.Sleep(time.Second) // fake clock
		keys, err := service.Sign.Keys()
		if len(keys) != 2 || err == nil || strings.Contains(err.Error(), "whsec_short") {
			t.Errorf("%d keys, %v", len(keys), err)
		}
	})
}

// A pipeline has neither variables nor secret files; a file that is there is judged.
func TestTableIsCheckedWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	const text = `
version: 1
upstreams:
  a: { url: "https://host", auth: { bearer: "${TOKEN}" }, sign: { secret: "${SIGN}" } }
  b: { url: "${URL}", auth: { basic: { username: "${U}", password_file: /run/secrets/none } }, tls: { ca_file: /run/none.pem, cert_file: "${DIR}/c.pem", key_file: "${DIR}/k.pem" } }
  c: { url: "https://host", auth: { header: { name: "${NAME}", value_file: "${DIR}/value" } }, sign: { secret_file: /run/secrets/none } }
  d: { url: "https://host", auth: { oauth2: { token_url: "${URL}/token", client_id: "${ID}", client_secret: "${TOKEN}", scopes: "${SCOPES}" } }, tls: { server_name: "${NAME}" } }
routes:
  f: { upstream: b, path: /x }
`
	table, err := router.Parse("f.yaml", []byte(text), router.Env{AllowUnset: true})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(table.Warnings()); n != 16 {
		t.Errorf("%d warnings:\n%v", n, table.Warnings())
	}
	if text, err := lookup(t, table, "f").Service.Auth.Password.Reveal(); text != "" || err == nil {
		t.Errorf("%q, %v", text, err)
	}
	if _, err = router.Parse("f.yaml", []byte(text), envOf(nil)); err == nil || len(strings.Split(err.Error(), "\n")) != 16 {
		t.Errorf("in earnest:\n%v", err)
	}
	_, err = router.Parse("f.yaml", []byte("version: 1\nupstreams: { u: { url: \"https://h\", auth: { bearer_file: \""+fixtureDir+"/two-lines\" } } }\nroutes: {}\n"), router.Env{AllowUnset: true})
	if err == nil || !strings.Contains(err.Error(), "the secret in the file must not hold a line break") {
		t.Errorf("%v", err)
	}
}
