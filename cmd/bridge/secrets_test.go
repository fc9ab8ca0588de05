package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
)

// secretPlaces are the marker secrets by the place where they stand. Each is
// long enough not to turn up by chance.
func secretPlaces() map[string]string {
	places := map[string]string{}
	for _, place := range []string{
		"API_KEY", "ADMIN_TOKEN", "HEADER", "QUERY", "USERINFO", "PATH", "BEARER", "BEARER_FILE", "BASIC", "KEY_HEADER", "CLIENT", "ACCESS_TOKEN", "LITERAL",
	} {
		places[place] = "m4rk-" + strings.ToLower(strings.ReplaceAll(place, "_", "-")) + "-0123456789abcdef"
	}
	for _, place := range []string{"SIGN", "SIGN_FILE"} {
		places[place] = "whsec_" + base64.StdEncoding.EncodeToString([]byte("m4rk "+strings.ToLower(place)+" 0123456789abcdef 0123456789abcdef"))
	}
	return places
}

// secretTable has a secret in every place that a table has for one. FILES is a
// directory.
const secretTable = `version: 1
upstreams:
  bearer: { url: SERVICE/bearer, auth: { bearer: "${BEARER}" }, sign: { secret: "${SIGN}" } }
  file: { url: SERVICE/file, auth: { bearer_file: FILES/bearer }, sign: { secret_file: FILES/sign } }
  basic: { url: SERVICE/basic, auth: { basic: { username: bridge, password: "${BASIC}" } } }
  key: { url: SERVICE/key, auth: { header: { name: X-Api-Key, value: "${KEY_HEADER}" } } }
  oauth: { url: SERVICE/oauth, auth: { oauth2: { token_url: SERVICE/token, client_id: bridge, client_secret: "${CLIENT}" } } }
  notoken: { url: SERVICE/notoken, auth: { oauth2: { token_url: SERVICE/notoken-token, client_id: bridge, client_secret: "${CLIENT}" } } }
  literal: { url: SERVICE/literal, auth: { bearer: LITERAL } }
  gone: { url: "http://bridge:${USERINFO}@127.0.0.1:1/${PATH}", headers: { X-Secret: "${HEADER}" } }
routes:
  f_bearer: { upstream: bearer, path: /x }
  f_file: { upstream: file, path: /x }
  f_basic: { upstream: basic, path: /x }
  f_key: { upstream: key, path: /x }
  f_oauth: { upstream: oauth, path: /x }
  f_notoken: { upstream: notoken, path: /x }
  f_literal: { upstream: literal, path: /x }
  f_gone: { upstream: gone, path: /x, retry: { attempts: 2, min_wait: 1ms, max_wait: 2ms } }
  f_env: { url: "SERVICE/env/${PATH}", headers: { X-Secret: "${HEADER}" }, query: { key: "${QUERY}" } }
  f_lost: { url: "SERVICE/lost/${PATH}", headers: { X-Secret: "${HEADER}" }, query: { key: "${QUERY}" } }
  f_user: { url: "USERINFO/user?key=${QUERY}" }
`

// parrot repeats all that it is told in the detail of a failure, breaks the
// connection of /lost, and issues tokens.
func parrot(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch {
	case strings.HasPrefix(r.URL.Path, "/lost"):
		panic(http.ErrAbortHandler)
	case r.URL.Path == "/token":
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, secretPlaces()["ACCESS_TOKEN"])
		return
	}
	detail := []string{r.RequestURI, string(body)}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		detail = append(detail, name+": "+strings.Join(r.Header[name], ", "))
	}
	if user, password, ok := r.BasicAuth(); ok {
		detail = append(detail, user, password)
	}
	answer, err := json.Marshal(map[string]string{"detail": "m3ssage " + strings.Join(detail, "; ")})
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write(answer)
}

// leaks finds secrets in a text, as they are and as they are sent.
func leaks(text string) (found []string) {
	for place, secret := range secretPlaces() {
		key, _ := strings.CutPrefix(secret, "whsec_")
		for _, form := range []string{
			key, url.QueryEscape(key), base64.StdEncoding.EncodeToString([]byte("bridge:" + key)), base64.StdEncoding.EncodeToString([]byte(key)),
		} {
			if strings.Contains(text, form) {
				found = append(found, place)
				break
			}
		}
	}
	return found
}

// The marker secrets are in every place that has one, services repeat what they
// are told, and nothing that the bridge shows, logs or tells holds any.
func TestNoSecretOfAnyPlaceIsShownLoggedOrTold(t *testing.T) {
	t.Parallel()
	places := secretPlaces()
	files := t.TempDir()
	write(t, filepath.Join(files, "bearer"), []byte(places["BEARER_FILE"]+"\n"))
	write(t, filepath.Join(files, "sign"), []byte(places["SIGN_FILE"]+"\n"))
	var logs lockedBuffer
	table := strings.NewReplacer("FILES", files, ": LITERAL", ": "+places["LITERAL"], `"USERINFO/`, `"SERVICE_USER/`).Replace(secretTable)
	table = strings.ReplaceAll(table, "SERVICE_USER", "http://bridge:${USERINFO}@127.0.0.1:1")
	b := startBridge(t, agentsim.Kind(), table, parrot, func(s *settings) {
		s.APIKey, s.AdminToken = places["API_KEY"], places["ADMIN_TOKEN"]
		s.LookupEnv = func(name string) (string, bool) { value, ok := places[name]; return value, ok }
	}, &logs)
	o := newOperator(t, b.daemon)
	o.token = places["ADMIN_TOKEN"]
	id := b.sim.CreateSession(agentsim.SessionSpec{})
	o.post(t, "/admin/sessions", `{"session_id":"`+id+`"}`).want(t, http.StatusOK)
	var step agentsim.Step
	var functions []string
	for _, route := range b.daemon.table.Load().Routes() {
		functions = append(functions, route.Name)
		step = append(step, agentsim.Call(route.Name, `{"a":1}`).WithID(route.Name))
	}
	turn := b.sim.Play(id, step)
	shown := map[string]string{}
	for _, f := range functions {
		b.waitState(t, journal.Key{SessionID: id, TurnID: turn, CallID: f}, journal.Confirmed)
		shown["call "+f] = string(o.get(t, "/admin/calls/"+pathOf(id, turn, f)).want(t, http.StatusOK).body)
		shown["dry run "+f] = string(o.post(t, "/admin/routes/"+f+"/call", `{"arguments":{},"dry_run":true}`).want(t, http.StatusOK).body)
		shown["by hand "+f] = string(o.post(t, "/admin/routes/"+f+"/call", `{"arguments":{}}`).want(t, http.StatusOK).body)
	}
	for _, path := range []string{"/admin/calls", "/admin/routes", "/admin/sessions", "/admin/tools", "/metrics"} {
		shown[path] = string(o.get(t, path).want(t, http.StatusOK).body)
	}
	write(t, filepath.Join(b.dir, "routes.yaml"), []byte(strings.ReplaceAll(table, "version: 1", "version: 1\nbad: ${HEADER}")))
	shown["reload"] = string(o.post(t, "/admin/routes/reload", "").want(t, http.StatusUnprocessableEntity).body)
	var texts strings.Builder
	repeated := 0
	for _, r := range b.sim.Results(id) {
		texts.WriteString(r.Error + string(r.Output) + "\n")
		repeated += strings.Count(r.Error, "m3ssage")
	}
	told := texts.String()
	if repeated < 6 {
		t.Errorf("%d services repeated what they were told, want 6 at least: %s", repeated, told)
	}
	shown["results"], shown["log"] = told, logs.String()
	if n := strings.Count(told, "[redacted]"); n < 9 {
		t.Errorf("%d secrets were taken out of what services repeated, want 9 at least: %s", n, told)
	}
	maps.Copy(shown, commandsWith(t, b, places, "of a bad table"))
	write(t, filepath.Join(b.dir, "routes.yaml"), []byte(strings.ReplaceAll(table, "SERVICE", b.service.URL)))
	maps.Copy(shown, commandsWith(t, b, places, "of a good table"))
	for where, text := range shown {
		if found := leaks(text); len(found) > 0 {
			t.Errorf("%s shows the secrets of %v: %.2000s", where, found, text)
		}
	}
}

// commandsWith runs the commands that read the table and the environment.
func commandsWith(t *testing.T, b *bridgeUnderTest, places map[string]string, what string) map[string]string {
	t.Helper()
	printed := map[string]string{}
	for _, args := range [][]string{
		{"check"}, {"tools"}, {"call", "--dry-run", "f_env", "{}"}, {"call", "f_gone", "{}"}, {"call", "f_bearer", "{}"}, {"serve"},
	} {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(slices.DeleteFunc(os.Environ(), isSetting), asBridge+"=1", "BRIDGE_ROUTES="+filepath.Join(b.dir, "routes.yaml"), //nolint:forbidigo // the child's environment
			"BRIDGE_DATABASE_URL=postgres://bridge:"+places["USERINFO"]+"@db/bridge?password="+places["QUERY"], "OPENAI_API_KEY="+places["API_KEY"])
		for name, value := range places {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run()
		printed["bridge "+strings.Join(args, " ")+" "+what] = out.String()
	}
	return printed
}
