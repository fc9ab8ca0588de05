package main

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"functionbridge/internal/agentsim"
)

// The help is made from the settings: each stands there with its default, but for
// those that are refused whatever they hold.
func TestServeHelpListsEverySettingWithItsDefault(t *testing.T) {
	t.Parallel()
	_, out, _ := command(t, "", "serve", "--help")
	lines := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^  ((?:BRIDGE|OPENAI)_[A-Z_]+)  +(\S.*)$`).FindAllStringSubmatch(out, -1) {
		lines[line[1]] = line[2]
	}
	for prefix, fields := range map[string]reflect.Type{"BRIDGE_": reflect.TypeFor[environment](), "OPENAI_": reflect.TypeFor[apiEnvironment]()} {
		for field := range fields.Fields() {
			name := prefix + strings.ToUpper(splitWords(field.Name))
			line, listed := lines[name]
			delete(lines, name)
			refused := strings.Contains(withValues(t, map[string]string{name: "x"}), "is not supported yet: unset it")
			if listed == refused {
				t.Errorf("%s: listed %t, refused %t", name, listed, refused)
			}
			preset := field.Tag.Get("default")
			if listed && (preset != "") != strings.HasSuffix(line, " (default "+preset+")") {
				t.Errorf("%s has the default %q, the help says %s", name, preset, line)
			}
		}
	}
	for name := range lines {
		t.Errorf("the help lists %s, which is no setting", name)
	}
	if _, out, _ := command(t, "", "--help"); !strings.Contains(out, "environment variables: `bridge serve --help`") {
		t.Errorf("the help of the program does not point to the settings:\n%s", out)
	}
}

// setEnvironment sets these variables and unsets every other one that is ours.
func setEnvironment(t *testing.T, values map[string]string) {
	t.Helper()
	for _, pair := range os.Environ() { //nolint:forbidigo // what the machine has set must not disturb
		if name, _, _ := strings.Cut(pair, "="); isSetting(pair) {
			t.Setenv(name, "")
			_ = os.Unsetenv(name)
		}
	}
	for name, value := range values {
		t.Setenv(name, value)
	}
}

// isSetting reports whether a variable, with its value, is one that a bridge looks at.
func isSetting(pair string) bool {
	return strings.HasPrefix(pair, "BRIDGE_") || strings.HasPrefix(pair, "OPENAI_") || strings.HasPrefix(pair, "OTEL_")
}

// load loads settings from these variables, which must be right.
func load(t *testing.T, values map[string]string) settings {
	t.Helper()
	setEnvironment(t, values)
	s, err := loadSettings()
	if err != nil {
		t.Fatal(err)
	}
	s.LookupEnv = nil
	return s
}

// following are the least settings that nothing is to be said about.
func following(more map[string]string) map[string]string {
	all := map[string]string{"OPENAI_API_KEY": "sk-1", "BRIDGE_SESSIONS": "sess_1"}
	maps.Copy(all, more)
	return all
}

// refusal is what `bridge serve` says of these variables, which must be bad
// usage; each line without its "bridge: ".
func refusal(t *testing.T, values map[string]string) []string {
	t.Helper()
	setEnvironment(t, values)
	code, out, errOut := command(t, "", "serve")
	if code != 2 || out != "" || !strings.HasSuffix(errOut, "\n") {
		t.Fatalf("exit code %d, printed %q and %q; want 2 and lines on standard error", code, out, errOut)
	}
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSuffix(errOut, "\n"), "\n") {
		text, ok := strings.CutPrefix(line, "bridge: ")
		if !ok {
			t.Errorf("the line %q does not begin with bridge:", line)
		}
		lines = append(lines, text)
	}
	return lines
}

func TestEmptySettingsHaveTheirDefaults(t *testing.T) {
	want := settings{
		APIKey: "sk-1", BaseURL: "https://api.openai.com/v1", Routes: "routes.yaml", Sessions: []string{"sess_1"}, DiscoverInterval: 15 * time.Second, DatabasePath: "bridge.db",
		Addr: ":8080", AdminAddr: "127.0.0.1:8081", MaxCalls: 256, APIRate: 20, StreamIdleTimeout: time.Minute,
		ResyncInterval: 30 * time.Second, DrainTimeout: 40 * time.Second, Retention: 720 * time.Hour, LogLevel: slog.LevelInfo,
	}
	if got := load(t, following(nil)); !reflect.DeepEqual(got, want) {
		t.Errorf("unset: %+v", got)
	}
	for _, nothing := range []string{"", "  "} {
		values := following(map[string]string{
			"OPENAI_BASE_URL": nothing, "OPENAI_ORG_ID": nothing, "OPENAI_PROJECT_ID": nothing, "OPENAI_WEBHOOK_SECRET": nothing,
		})
		for _, name := range variableNames() {
			if name != "BRIDGE_SESSIONS" {
				values[name] = nothing
			}
		}
		if got := load(t, values); !reflect.DeepEqual(got, want) {
			t.Errorf("set to %q: %+v", nothing, got)
		}
	}
}

// An orchestrator often sets what nobody filled in to nothing.
func TestOrganizationAndProjectAreSentWhenThereAreAny(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"none":  {nil, ""},
		"empty": {[]string{"OPENAI_ORG_ID=", "OPENAI_PROJECT_ID= "}, ""},
		"set":   {[]string{"OPENAI_ORG_ID=id_1", "OPENAI_PROJECT_ID=id_1 "}, "id_1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := make(chan http.Header, 100)
			r := newServeRig(t)
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				select {
				case seen <- req.Header:
				default: // there is enough to look at
				}
				r.sim.ServeHTTP(w, req)
			}))
			t.Cleanup(api.Close)
			turn := r.sim.Play(r.session, agentsim.Step{agentsim.Call("quick", `{}`)})
			env := append(r.env, "OPENAI_BASE_URL="+api.URL+"/v1", "BRIDGE_AGENTS=agent_1", "OPENAI_ADMIN_KEY=of_another_api")
			startServe(t, append(env, c.env...)...)
			if _, err := r.sim.WaitTurn(t.Context(), r.session, turn); err != nil {
				t.Fatal(err)
			}
			for range 4 { // the stream, a read, a list and a result
				header := <-seen
				for _, name := range []string{"Openai-Organization", "Openai-Project"} {
					if value, sent := header[name]; sent != (c.want != "") || header.Get(name) != c.want {
						t.Errorf("%s is sent: %t, as %q; want %q", name, sent, value, c.want)
					}
				}
				if got := header.Get("Authorization"); got != "Bearer test" {
					t.Errorf("Authorization is %q", got)
				}
			}
		})
	}
}

func TestSettingsAreRead(t *testing.T) {
	got := load(t, map[string]string{
		"OPENAI_API_KEY": " sk-1\n", "OPENAI_BASE_URL": "http://localhost:8090/v1", "OPENAI_ORG_ID": "org ", "OPENAI_PROJECT_ID": "proj",
		"BRIDGE_ROUTES": "a dir/t.yaml", "BRIDGE_SESSIONS": "sess_1, sess_2,,sess_1", "BRIDGE_AGENTS": "agent_1",
		"BRIDGE_DISCOVER_INTERVAL": "1m30s", "BRIDGE_DATABASE_URL": "sqlite:/data/b.db", "BRIDGE_ADDR": "[::1]:0", "BRIDGE_ADMIN_ADDR": " off ",
		"BRIDGE_ADMIN_TOKEN": "token ", "BRIDGE_METRICS_ADDR": ":9090", "BRIDGE_MAX_CALLS": " 8 ", "BRIDGE_API_RATE": "0.5",
		"BRIDGE_STREAM_IDLE_TIMEOUT": "5s", "BRIDGE_RESYNC_INTERVAL": "1h", "BRIDGE_DRAIN_TIMEOUT": "0s", "BRIDGE_LOG_LEVEL": "DEBUG",
		"BRIDGE_LOG_FORMAT": "Text", "BRIDGE_RETENTION": "48h", "BRIDGE_JOURNAL_PAYLOADS": "Pending",
	})
	want := settings{
		APIKey: "sk-1", BaseURL: "http://localhost:8090/v1", OrgID: "org", ProjectID: "proj", Routes: "a dir/t.yaml",
		Sessions: []string{"sess_1", "sess_2"}, Agents: []string{"agent_1"}, DiscoverInterval: 90 * time.Second, DatabasePath: "/data/b.db",
		Addr: "[::1]:0", AdminToken: "token", MetricsAddr: ":9090", MaxCalls: 8, APIRate: 0.5, StreamIdleTimeout: 5 * time.Second,
		ResyncInterval: time.Hour, Retention: 48 * time.Hour, ErasePayloads: true, LogLevel: slog.LevelDebug, LogFormat: "text",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestBadSettingsAreNamedWithWhatIsAllowed(t *testing.T) {
	const duration, address = "it must be a duration of at least 1s, such as 30s or 2m", "it must be an address to listen on, such as :8080 or 127.0.0.1:8081"
	const database, api = "it must be sqlite:PATH, such as sqlite:/data/bridge.db", "it must be an http or https URL, such as https://api.openai.com/v1"
	for _, c := range []struct {
		variable, allowed string
		values            []string
	}{
		{"BRIDGE_DISCOVER_INTERVAL", duration, []string{"15", "0s", "-3s", "999ms", "soon", "99999999h"}},
		{"BRIDGE_STREAM_IDLE_TIMEOUT", duration, []string{"60", "0"}},
		{"BRIDGE_RESYNC_INTERVAL", duration, []string{"half an hour"}},
		{"BRIDGE_RETENTION", "it must be a duration of at least 1m0s, such as 30s or 2m", []string{"30 days", "0", "59s"}},
		{"BRIDGE_JOURNAL_PAYLOADS", "it must be one of keep, pending", []string{"erase", "none"}},
		{"BRIDGE_DRAIN_TIMEOUT", "it must be a duration of at least 0s, such as 30s or 2m", []string{"-1s", "40"}},
		{"BRIDGE_MAX_CALLS", "it must be a whole number from 1 to 100000", []string{"0", "-1", "many", "1.5", "100001", "99999999999999999999"}},
		{"BRIDGE_API_RATE", "it must be a number from 0.1 to 100000", []string{"0", "-1", "fast", "NaN", "inf", "1e9"}},
		{"BRIDGE_ADDR", address, []string{"8080", "localhost", ":http", ":65536", "http://localhost:8080", "::1:8080"}},
		{"BRIDGE_ADMIN_ADDR", address, []string{"8081", "on", ":"}},
		{"BRIDGE_METRICS_ADDR", address, []string{"9090", "off"}},
		{"BRIDGE_DATABASE_URL", database, []string{"bridge.db", "sqlite", "sqlite:", "mysql://h/d", "sqlite://bridge.db", "/data/bridge.db"}},
		{"BRIDGE_DATABASE_URL", "a journal in memory would lose calls: name a file, such as sqlite:bridge.db", []string{"sqlite::memory:"}},
		{"OPENAI_BASE_URL", api, []string{"api.openai.com/v1", "ftp://h/v1", "http://", "https:///v1", "//h/v1", "http://h:65536/v1"}},
		{"BRIDGE_LOG_LEVEL", "it must be one of debug, info, warn, error", []string{"verbose", "0"}},
		{"BRIDGE_LOG_FORMAT", "it must be one of json, text", []string{"xml"}},
	} {
		for _, value := range c.values {
			want := fmt.Sprintf("%s is %q: %s", c.variable, value, c.allowed)
			if got := refusal(t, following(map[string]string{c.variable: value})); len(got) != 1 || got[0] != want {
				t.Errorf("%s=%q:\n got %q\nwant %q", c.variable, value, got, want)
			}
		}
	}
}

func TestAllBadSettingsAreReportedAtOnce(t *testing.T) {
	got := refusal(t, map[string]string{
		"BRIDGE_MAX_CALLS": "0", "BRIDGE_ADDR": "8080", "BRIDGE_DATABASE_URL": "x", "BRIDGE_LOG_LEVEL": "loud", "BRIDGE_RETENTION": "1s",
	})
	for _, name := range []string{"OPENAI_API_KEY", "BRIDGE_MAX_CALLS", "BRIDGE_ADDR", "BRIDGE_DATABASE_URL", "BRIDGE_LOG_LEVEL", "BRIDGE_RETENTION"} {
		if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, name+" ") }) {
			t.Errorf("no line for %s in %q", name, got)
		}
	}
	if len(got) != 6 {
		t.Errorf("%d lines, want 6", len(got))
	}
}

func TestMissingKeyIsAskedFor(t *testing.T) {
	const want = "OPENAI_API_KEY is missing or empty: set it to the key of the project whose sessions are followed"
	for _, values := range []map[string]string{{}, {"OPENAI_API_KEY": ""}, {"OPENAI_API_KEY": " \n"}} {
		if got := refusal(t, values); len(got) != 1 || got[0] != want {
			t.Errorf("%v: %q", values, got)
		}
	}
}

func TestKeyThatNoHeaderCanCarryIsRefusedUnshown(t *testing.T) {
	for _, key := range []string{"sk-s3cret\nsecond line", "sk-s3cret and more", "sk-s3cret…"} {
		got := refusal(t, map[string]string{"OPENAI_API_KEY": key})
		if len(got) != 1 || !strings.HasPrefix(got[0], "OPENAI_API_KEY holds ") || strings.Contains(got[0], "s3cret") {
			t.Errorf("%q: %q", key, got)
		}
	}
}

func TestSecretsInBadURLsAreMasked(t *testing.T) {
	for value, shown := range map[string]string{
		"mysql://user:s3cret@host/db":          "mysql://…@host/db",
		"mysql://user:s3cret?x@host/db":        "mysql://…@host/db",
		"mysql://user:s3cret@1@host:nonsense/": "mysql://…@host:nonsense/",
		"user:s3cret@host/v1":                  "…@host/v1",
		"s3cret@host":                          "…@host",
		"ftp://host/v1?key=s3cret":             "ftp://host/v1?…",
		"ftp://host/%zz?key=s3cret":            "ftp://host/%zz?…",
		"ftp://s3cret%zz@host":                 "ftp://…@host",
	} {
		for _, name := range []string{"BRIDGE_DATABASE_URL", "OPENAI_BASE_URL"} {
			got := refusal(t, following(map[string]string{name: value}))
			if len(got) != 1 || !strings.HasPrefix(got[0], fmt.Sprintf("%s is %q: ", name, shown)) {
				t.Errorf("%s=%s: %q, want it shown as %s", name, value, got, shown)
			}
		}
	}
	got := refusal(t, following(map[string]string{"BRIDGE_DATABASE_URL": "postgres://user:s3cret@host/db"}))
	if len(got) != 1 || strings.Contains(got[0], "s3cret") {
		t.Errorf("postgres: %q", got)
	}
}

func TestSettingsWithoutAPartBehindThemAreRefused(t *testing.T) {
	for name, value := range map[string]string{
		"OPENAI_WEBHOOK_SECRET": "whsec_s3cret", "BRIDGE_SESSION_METADATA": "team=a",
		"BRIDGE_DATABASE_URL": "postgres://host/s3cret",
	} {
		got := refusal(t, following(map[string]string{name: value}))
		if len(got) != 1 || !strings.HasPrefix(got[0], name) || !strings.Contains(got[0], "not supported yet") || strings.Contains(got[0], "s3cret") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestTracingVariablesAreWarnedAbout(t *testing.T) {
	got := load(t, following(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:s3cret@collector", "OTEL_SERVICE_NAME": ""}))
	want := []string{"OTEL_EXPORTER_OTLP_ENDPOINT is set, but tracing is not supported yet; it is ignored"}
	if !slices.Equal(got.Warnings, want) {
		t.Errorf("%q, want %q", got.Warnings, want)
	}
}

// What Kubernetes sets for a Service called bridge is neither ours nor a mistake.
func TestVariablesOfAKubernetesServiceMeanNothing(t *testing.T) {
	plain := load(t, following(nil))
	got := load(t, following(map[string]string{
		"BRIDGE_PORT": "tcp://10.0.0.1:8080", "BRIDGE_SERVICE_HOST": "10.0.0.1", "BRIDGE_SERVICE_PORT": "8080", "BRIDGE_SERVICE_PORT_HEALTH": "8080",
		"BRIDGE_PORT_8080_TCP": "tcp://10.0.0.1:8080", "BRIDGE_PORT_8080_TCP_PROTO": "tcp", "BRIDGE_PORT_8080_TCP_PORT": "8080",
		"BRIDGE_PORT_8080_TCP_ADDR": "10.0.0.1",
	}))
	if !reflect.DeepEqual(got, plain) {
		t.Errorf("got  %+v\nwant %+v", got, plain)
	}
}

func TestMisspeltVariablesAreWarnedAbout(t *testing.T) {
	got := load(t, following(map[string]string{
		"BRIDGE_AGENT": "s3cret", "BRIDGE_DATABSE_URL": "s3cret", "BRIDGE_LOGLEVEL": "s3cret", "BRIDGE_TOLL": "10 EUR", "BRIDGE_ADDR": ":0",
	}))
	want := []string{
		"BRIDGE_AGENT is not a setting; BRIDGE_AGENTS was probably meant",
		"BRIDGE_DATABSE_URL is not a setting; BRIDGE_DATABASE_URL was probably meant",
		"BRIDGE_LOGLEVEL is not a setting; BRIDGE_LOG_LEVEL was probably meant",
	}
	if !slices.Equal(got.Warnings, want) {
		t.Errorf("%q, want %q", got.Warnings, want)
	}
}

// Only the whole name counts: many programs have an ADDR.
func TestVariablesWithoutThePrefixMeanNothing(t *testing.T) {
	plain := load(t, following(nil))
	values := following(map[string]string{"API_KEY": "other", "BASE_URL": "http://other"})
	for _, name := range variableNames() {
		values[strings.TrimPrefix(name, "BRIDGE_")] = "7"
	}
	if got := load(t, values); !reflect.DeepEqual(got, plain) {
		t.Errorf("got  %+v\nwant %+v", got, plain)
	}
}

func TestBridgeThatFollowsNothingSaysSo(t *testing.T) {
	for name, want := range map[string]int{"BRIDGE_LOG_LEVEL": 1, "BRIDGE_AGENTS": 0, "BRIDGE_SESSIONS": 0} {
		got := load(t, map[string]string{"OPENAI_API_KEY": "k", name: "info"}).Warnings
		if len(got) != want || (want == 1 && !strings.Contains(got[0], "BRIDGE_AGENTS")) {
			t.Errorf("with %s: %q", name, got)
		}
	}
}

func TestAdminAddressThatOthersReachNeedsAToken(t *testing.T) {
	for _, addr := range []string{":8081", "0.0.0.0:8081", "[::]:8081", "10.0.0.1:8081", "bridge.internal:8081", "localhost.example:8081"} {
		want := fmt.Sprintf("BRIDGE_ADMIN_ADDR is %q, which others can reach: set BRIDGE_ADMIN_TOKEN, or use a loopback address such as 127.0.0.1:8081, or off", addr)
		if got := refusal(t, following(map[string]string{"BRIDGE_ADMIN_ADDR": addr, "BRIDGE_ADMIN_TOKEN": " "})); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q", addr, got)
		}
		if got := load(t, following(map[string]string{"BRIDGE_ADMIN_ADDR": addr, "BRIDGE_ADMIN_TOKEN": "t"})); got.AdminAddr != addr {
			t.Errorf("%s with a token: %q", addr, got.AdminAddr)
		}
	}
	for _, addr := range []string{"127.0.0.1:8081", "127.1.2.3:0", "[::1]:8081", "localhost:8081"} {
		if got := load(t, following(map[string]string{"BRIDGE_ADMIN_ADDR": addr})); got.AdminAddr != addr {
			t.Errorf("%s: %q", addr, got.AdminAddr)
		}
	}
}

// A real bridge logs all that it can, works, fails and stops; none of its
// secrets is in the log.
func TestNoSecretIsLogged(t *testing.T) {
	t.Parallel()
	const key, token, user, password, variable = "sk-s3cret-key", "s3cret-admin-token", "s3cret-user", "s3cret-password", "s3cret-variable"
	sim := agentsim.New(agentsim.Kind())
	t.Cleanup(sim.Close)
	var asked atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1)%2 == 1 && r.Method == http.MethodGet {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":{"message":"Incorrect API key provided: ` + key + `"}}`))
			return
		}
		sim.ServeHTTP(w, r)
	}))
	t.Cleanup(api.Close)
	dir := t.TempDir()
	routes := filepath.Join(dir, "routes.yaml")
	table := "version: 1\nroutes:\n  gone: {url: \"http://u:${SECRET_OF_A_TEST}@127.0.0.1:1/${SECRET_OF_A_TEST}\", headers: {X-Key: \"${SECRET_OF_A_TEST}\"}, timeout: 1s}\n"
	if err := os.WriteFile(routes, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	id := sim.CreateSession(agentsim.SessionSpec{})
	turn := sim.Play(id, agentsim.Step{agentsim.Call("gone", `{"a":1}`)})
	p := startServe(t,
		"OPENAI_API_KEY="+key, "OPENAI_BASE_URL="+strings.Replace(api.URL, "http://", "http://"+user+":"+password+"@", 1)+"/v1",
		"BRIDGE_ADMIN_TOKEN="+token, "BRIDGE_ROUTES="+routes, "BRIDGE_DATABASE_URL=sqlite:"+filepath.Join(dir, "bridge.db"),
		"BRIDGE_SESSIONS="+id, "BRIDGE_AGENTS=agent_unknown", "BRIDGE_LOG_LEVEL=debug", "SECRET_OF_A_TEST="+variable, "BRIDGE_RESYNC_INTERVAL=1s",
	)
	if status, err := sim.WaitTurn(t.Context(), id, turn); err != nil || status != "completed" {
		t.Fatalf("turn %s: %v\n%s", status, err, p.logs.String())
	}
	api.CloseClientConnections()
	api.Close()
	p.logs.waitFor(t, `"level":"DEBUG".*dial tcp`)
	if code := p.signalAndWait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	logs := p.logs.String()
	for _, secret := range []string{key, token, user, password, variable} {
		if strings.Contains(logs, secret) {
			t.Errorf("the log holds %s:\n%s", secret, logs)
		}
	}
	if !strings.Contains(logs, "call forwarded") || !strings.Contains(logs, "Incorrect API key provided") {
		t.Errorf("the log says too little for this test:\n%s", logs)
	}
}
