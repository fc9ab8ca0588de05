package forward_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"

	"functionbridge/internal/forward"
	"functionbridge/internal/router"
)

// marked is the beginning of every secret in a test, in the forms in which it
// may be written.
const marked = "MARK3R"

func signingMarker() string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(marked+"-signs", 3)))
}

// everywhere is a table with a secret in every place that takes one, and one
// upstream for each kind of auth.
func everywhere(t *testing.T, up, endpoint string) *router.Table {
	t.Helper()
	up = strings.Replace(up, "http://", "http://user:${URL_PASSWORD}@", 1)
	file := func(name string) string { return newFile(t, marked+"-"+name+"\n") }
	kinds := map[string]string{
		"bearer":        `bearer: "${BEARER}"`,
		"bearer_file":   `bearer_file: ` + file("bearer-file"),
		"basic":         `basic: { username: "${USER}", password: "${BASIC}" }`,
		"basic_file":    `basic: { username: bridge, password_file: ` + file("password-file") + ` }`,
		"header":        `header: { name: X-Secret, value: "${HEADER_AUTH}" }`,
		"header_file":   `header: { name: X-Secret, value_file: ` + file("value-file") + ` }`,
		"literal":       `bearer: ` + marked + `-literal`,
		"oauth2":        `oauth2: { token_url: "` + endpoint + `/token?key=${TOKEN_KEY}", client_id: "${CLIENT_ID}", client_secret: "${CLIENT_SECRET}" }`,
		"oauth2_file":   `oauth2: { token_url: "` + endpoint + `/token", client_id: bridge, client_secret_file: ` + file("client-file") + ` }`,
		"oauth2_denied": `oauth2: { token_url: "` + endpoint + `/denied", client_id: "${CLIENT_ID}", client_secret: "${CLIENT_SECRET}" }`,
	}
	var b strings.Builder
	b.WriteString("version: 1\n" + fastRetries + "upstreams:\n")
	bare := "http://" + up[strings.Index(up, "@")+1:]
	for name, auth := range kinds {
		fmt.Fprintf(&b, "  %s: { url: %q, auth: { %s }, sign: { secret: \"${SIGNING}\" }, headers: { X-Upstream: \"${UPSTREAM}\" } }\n", name, bare, auth)
	}
	b.WriteString("routes:\n")
	for name := range kinds {
		fmt.Fprintf(&b, "  %s: { upstream: %s, path: /x, query: { key: \"${QUERY}\" }, headers: { X-Route: \"${ROUTE}\" }, result: { expose: detail } }\n", name, name)
	}
	fmt.Fprintf(&b, "  url: { url: %q, query: { key: \"${QUERY}\" }, headers: { X-Route: \"${ROUTE}\" }, result: { expose: detail } }\n", up)
	env := router.Env{Lookup: func(name string) (string, bool) {
		switch name {
		case "SIGNING":
			return signingMarker(), true
		case "URL_PASSWORD", "TOKEN_KEY": // a part of a URL
			return marked + "-" + name, true
		}
		return marked + `-"` + name + `"/ü`, true
	}}
	table, err := router.Parse("routes.yaml", []byte(b.String()), env)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// noMarker fails when a text holds a secret, or the parts of one that basic
// authentication and signing secrets encode.
func noMarker(t *testing.T, where, text string) {
	t.Helper()
	for _, form := range []string{
		marked, strings.TrimPrefix(signingMarker(), "whsec_"), "issued-token",
		base64.StdEncoding.EncodeToString([]byte("bridge:" + marked))[:16], base64.StdEncoding.EncodeToString([]byte(marked))[:8],
	} {
		if strings.Contains(text, form) {
			t.Errorf("%s holds %s: %s", where, form, text)
		}
	}
}

// repeats is a service that says everything that it was sent, in many forms.
func repeats(status int, form string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		values := []string{r.RequestURI, r.URL.Query().Get("key"), r.PostFormValue("client_secret")}
		if decoded, err := url.QueryUnescape(r.RequestURI); err == nil {
			values = append(values, decoded)
		}
		for name, held := range r.Header {
			values = append(values, name+": "+held[0])
		}
		if user, password, ok := r.BasicAuth(); ok {
			values = append(values, user, password)
		}
		switch form {
		case "text":
			answer(status, "text/plain", strings.Join(values, "\n"))(w, r)
		case "JSON":
			text, _ := json.Marshal(map[string]any{"detail": strings.Join(values, " ")})
			answerJSON(w, status, text)
		default:
			text, _ := json.Marshal(map[string]any{"error": "invalid_client", "error_description": strings.Join(values, " ")})
			answerJSON(w, status, text)
		}
	}
}

// Whatever a service or a token endpoint repeats, and however a call fails, no
// secret is in what the agent is told, in the log, the journal, a trial or the
// metrics.
func TestNoSecretIsTold(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		form   string
		gone   bool
	}{
		"refused as text": {401, "text", false},
		"refused as JSON": {403, "JSON", false},
		"failed as text":  {500, "text", false},
		"not reached":     {0, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			issued := 0
			endpoint := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/denied" {
					repeats(401, "")(w, r)
					return
				}
				issued++
				answer(200, "application/json", fmt.Sprintf(`{"access_token":"issued-token-%d","expires_in":60}`, issued))(w, r)
			})
			up := serve(t, repeats(test.status, test.form))
			if test.gone {
				up.Close()
			}
			routes := everywhere(t, up.URL, endpoint.URL)
			b := newBench(t, table("x: http://x.test"), func(c *forward.Config) { c.Table = func() *router.Table { return routes } })
			for _, route := range routes.Routes() {
				o, rec := b.run(t, route.Name, `{"a":1}`)
				if o.Success {
					t.Errorf("outcome = %+v", o)
				}
				noMarker(t, route.Name+": the error", o.Error)
				noMarker(t, route.Name+": the journal", fmt.Sprint(rec.attempts, strings.Join(stringsOf(rec.requests), "\n")))
				for _, dry := range []bool{true, false} {
					tried, err := json.Marshal(b.Try(t.Context(), forward.Trial{Function: route.Name, DryRun: dry}))
					if err != nil {
						t.Fatal(err)
					}
					noMarker(t, route.Name+": a trial", string(tried))
				}
				if got := up.requests(); !test.gone && route.Name != "oauth2_denied" && !strings.Contains(fmt.Sprint(got), marked) {
					t.Errorf("%s: the service was not sent its secrets: %+v", route.Name, got)
				}
			}
			noMarker(t, "the log", b.log.String())
			noMarker(t, "the metrics", metricsText(t, b))
			if !strings.Contains(b.log.String(), `"access token not fetched"`) {
				t.Errorf("log:\n%s", b.log.String())
			}
		})
	}
}

func stringsOf(texts [][]byte) []string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = string(text)
	}
	return all
}

func metricsText(t *testing.T, b *bench) string {
	t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}
