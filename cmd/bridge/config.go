package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"

	"functionbridge/internal/router"
)

// environment is what the process was started with, as text: envconfig reads
// it, parse makes settings of it. Every field is a string, because envconfig's
// own conversion stops at the first mistake and prints the value, which may be
// a secret. The field names give the variables: BRIDGE_ and the words of the
// name; about is what the help says of each that is not refused.
type environment struct {
	Routes            string `split_words:"true" default:"routes.yaml" about:"the route table: a file, or a directory of *.yaml files"`
	Sessions          string `split_words:"true" about:"ids of sessions to follow, separated by commas"`
	Agents            string `split_words:"true" about:"ids of agents whose sessions are followed, likewise"`
	SessionMetadata   string `split_words:"true"`
	DiscoverInterval  string `split_words:"true" default:"15s" about:"how often the sessions of these agents are listed"`
	DatabaseURL       string `split_words:"true" default:"sqlite:bridge.db" about:"the journal, sqlite:PATH"`
	Addr              string `split_words:"true" default:":8080" about:"listens for /healthz and /readyz"`
	AdminAddr         string `split_words:"true" default:"127.0.0.1:8081" about:"listens for the admin API and metrics; off turns it off"`
	AdminToken        string `split_words:"true" about:"bearer token of the admin listener; required unless that is on loopback"`
	MetricsAddr       string `split_words:"true" about:"serves /metrics alone, without a token"`
	MaxCalls          string `split_words:"true" default:"256" about:"requests to services at once"`
	APIRate           string `split_words:"true" default:"20" about:"requests a second to the Agents API, streams and results apart"`
	StreamIdleTimeout string `split_words:"true" default:"60s" about:"a stream without a byte for so long is opened again"`
	ResyncInterval    string `split_words:"true" default:"30s" about:"how often a followed session is read besides its stream"`
	DrainTimeout      string `split_words:"true" default:"40s" about:"how long a stop waits for calls in flight"`
	Retention         string `split_words:"true" default:"720h" about:"settled calls older than this leave the journal"`
	JournalPayloads   string `split_words:"true" default:"keep" about:"keep, or pending: arguments and outputs are erased once a call is confirmed"`
	LogLevel          string `split_words:"true" default:"info" about:"debug, info, warn or error"`
	LogFormat         string `split_words:"true" about:"json or text; unset, text on a terminal"`
}

// apiEnvironment holds the variables that the SDK's users know: OPENAI_ and the
// words of the field's name. The address has a default here, because the SDK
// takes a variable that is set to nothing for an address.
type apiEnvironment struct {
	APIKey        string `split_words:"true" about:"the API key; required"`
	BaseURL       string `split_words:"true" default:"https://api.openai.com/v1" about:"the API's address"`
	OrgID         string `split_words:"true" about:"organization, sent with every request"`
	ProjectID     string `split_words:"true" about:"project, sent with every request"`
	WebhookSecret string `split_words:"true"`
}

// settings are the parsed and checked environment.
type settings struct {
	APIKey    string
	BaseURL   string
	OrgID     string
	ProjectID string

	Routes            string
	Sessions          []string
	Agents            []string
	DiscoverInterval  time.Duration
	DatabasePath      string
	Addr              string
	AdminAddr         string // empty when the admin listener is off
	AdminToken        string
	MetricsAddr       string // empty when /metrics has no listener of its own
	MaxCalls          int
	APIRate           float64
	StreamIdleTimeout time.Duration
	ResyncInterval    time.Duration
	DrainTimeout      time.Duration
	Retention         time.Duration
	ErasePayloads     bool
	LogLevel          slog.Level
	LogFormat         string
	// LookupEnv is where the route table's ${VAR}s come from; nil means that
	// none is set.
	LookupEnv func(name string) (value string, ok bool)

	// Warnings are about variables that look like a mistake; they stop nothing.
	Warnings []string
}

// routesPath is the route table that a command uses when none is named.
func routesPath() string {
	if p, _ := lookupEnv("BRIDGE_ROUTES"); strings.TrimSpace(p) != "" {
		return p
	}
	return "routes.yaml"
}

// lookupEnv reads one variable; it is how route tables get theirs.
func lookupEnv(name string) (string, bool) { return os.LookupEnv(name) }

// loadSettings reads and checks every variable that serve uses. The error is a
// usageError with one line for each mistake.
func loadSettings() (settings, error) {
	var e environment
	var api apiEnvironment
	if err := errors.Join(envconfig.Process("bridge", &e), envconfig.Process("openai", &api)); err != nil {
		return settings{}, usagef("read the environment: %w", err)
	}
	emptyIsDefault(&e)
	emptyIsDefault(&api)
	s, err := e.parse(api)
	if err != nil {
		return settings{}, usageError{err}
	}
	s.LookupEnv = lookupEnv
	s.Warnings = append(environmentWarnings(os.Environ()), s.warnings()...)
	return s, nil
}

// apiSettings reads and checks only what reaches the Agents API.
func apiSettings() (settings, error) {
	var api apiEnvironment
	if err := envconfig.Process("openai", &api); err != nil {
		return settings{}, usagef("read the environment: %w", err)
	}
	emptyIsDefault(&api)
	var p parser
	s := p.api(api)
	if err := errors.Join(p.errs...); err != nil {
		return settings{}, usageError{err}
	}
	return s, nil
}

// api checks what reaches the Agents API.
func (p *parser) api(api apiEnvironment) settings {
	return settings{
		APIKey:    p.required("OPENAI_API_KEY", api.APIKey),
		BaseURL:   p.baseURL("OPENAI_BASE_URL", api.BaseURL),
		OrgID:     strings.TrimSpace(api.OrgID),
		ProjectID: strings.TrimSpace(api.ProjectID),
	}
}

// warnings are about settings that are right each and do nothing together.
func (s settings) warnings() []string {
	if len(s.Sessions) > 0 || len(s.Agents) > 0 {
		return nil
	}
	return []string{"neither BRIDGE_AGENTS nor BRIDGE_SESSIONS is set; only sessions that POST /admin/sessions names are followed"}
}

// emptyIsDefault gives the default to variables that are set to nothing;
// envconfig does so for unset ones only.
func emptyIsDefault[T environment | apiEnvironment](e *T) {
	v := reflect.ValueOf(e).Elem()
	for i := range v.NumField() {
		if strings.TrimSpace(v.Field(i).String()) == "" {
			v.Field(i).SetString(v.Type().Field(i).Tag.Get("default"))
		}
	}
}

// parse checks every value and reports all mistakes, a line each.
func (e environment) parse(api apiEnvironment) (settings, error) {
	var p parser
	p.notYet("OPENAI_WEBHOOK_SECRET", api.WebhookSecret)
	p.notYet("BRIDGE_SESSION_METADATA", e.SessionMetadata)
	reach := p.api(api)
	s := settings{
		APIKey:            reach.APIKey,
		BaseURL:           reach.BaseURL,
		OrgID:             reach.OrgID,
		ProjectID:         reach.ProjectID,
		Routes:            e.Routes,
		Sessions:          list(e.Sessions),
		Agents:            list(e.Agents),
		DiscoverInterval:  p.duration("BRIDGE_DISCOVER_INTERVAL", e.DiscoverInterval, time.Second),
		DatabasePath:      p.database("BRIDGE_DATABASE_URL", e.DatabaseURL),
		Addr:              p.address("BRIDGE_ADDR", e.Addr),
		AdminToken:        strings.TrimSpace(e.AdminToken),
		MaxCalls:          p.integer("BRIDGE_MAX_CALLS", e.MaxCalls, 1, 100_000),
		APIRate:           p.number("BRIDGE_API_RATE", e.APIRate, 0.1, 100_000),
		StreamIdleTimeout: p.duration("BRIDGE_STREAM_IDLE_TIMEOUT", e.StreamIdleTimeout, time.Second),
		ResyncInterval:    p.duration("BRIDGE_RESYNC_INTERVAL", e.ResyncInterval, time.Second),
		DrainTimeout:      p.duration("BRIDGE_DRAIN_TIMEOUT", e.DrainTimeout, 0),
		Retention:         p.duration("BRIDGE_RETENTION", e.Retention, time.Minute),
		ErasePayloads:     p.oneOf("BRIDGE_JOURNAL_PAYLOADS", e.JournalPayloads, "keep", "pending") == "pending",
		LogLevel:          p.logLevel("BRIDGE_LOG_LEVEL", e.LogLevel),
		LogFormat:         p.oneOf("BRIDGE_LOG_FORMAT", e.LogFormat, "", "json", "text"),
	}
	if strings.TrimSpace(e.AdminAddr) != "off" {
		s.AdminAddr = p.address("BRIDGE_ADMIN_ADDR", e.AdminAddr)
	}
	if s.AdminAddr != "" && s.AdminToken == "" && !isLoopback(s.AdminAddr) {
		p.fail("BRIDGE_ADMIN_ADDR is %q, which others can reach: set BRIDGE_ADMIN_TOKEN, or use a loopback address such as 127.0.0.1:8081, or off", s.AdminAddr)
	}
	if e.MetricsAddr != "" {
		s.MetricsAddr = p.address("BRIDGE_METRICS_ADDR", e.MetricsAddr)
	}
	return s, errors.Join(p.errs...)
}

// parser collects the mistakes of all variables.
type parser struct{ errs []error }

func (p *parser) fail(format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf(format, args...))
}

func (p *parser) notYet(name, value string) {
	if strings.TrimSpace(value) != "" {
		p.fail("%s is not supported yet: unset it", name)
	}
}

func (p *parser) required(name, value string) string {
	value = strings.TrimSpace(value)
	switch {
	case value == "":
		p.fail("%s is missing or empty: set it to the key of the project whose sessions are followed", name)
	case strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }):
		p.fail("%s holds a blank, a line break or another character that no key has: set it to the key alone", name)
	}
	return value
}

func (p *parser) duration(name, value string, atLeast time.Duration) time.Duration {
	d, err := time.ParseDuration(strings.TrimSpace(value))
	if err != nil || d < atLeast {
		p.fail("%s is %q: it must be a duration of at least %s, such as 30s or 2m", name, value, atLeast)
	}
	return d
}

func (p *parser) integer(name, value string, low, high int) int {
	n, err := strconv.Atoi(strings.TrimSpace(value))
	if err != nil || n < low || n > high {
		p.fail("%s is %q: it must be a whole number from %d to %d", name, value, low, high)
	}
	return n
}

func (p *parser) number(name, value string, low, high float64) float64 {
	n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || !(n >= low && n <= high) {
		p.fail("%s is %q: it must be a number from %g to %g", name, value, low, high)
	}
	return n
}

func (p *parser) oneOf(name, value string, allowed ...string) string {
	value = strings.ToLower(strings.TrimSpace(value))
	if !slices.Contains(allowed, value) {
		p.fail("%s is %q: it must be one of %s", name, value, strings.TrimPrefix(strings.Join(allowed, ", "), ", "))
	}
	return value
}

func (p *parser) logLevel(name, value string) slog.Level {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	return levels[p.oneOf(name, value, "debug", "info", "warn", "error")]
}

// address checks a listen address: host:port, where the host may be empty.
func (p *parser) address(name, value string) string {
	value = strings.TrimSpace(value)
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		p.fail("%s is %q: it must be an address to listen on, such as :8080 or 127.0.0.1:8081", name, value)
		return ""
	}
	return value
}

// database returns the path in a sqlite: URL. sqlite:///data/bridge.db is
// /data/bridge.db too; sqlite://bridge.db would be a file in /, which nobody
// means.
func (p *parser) database(name, value string) string {
	value = strings.TrimSpace(value)
	switch scheme, rest, _ := strings.Cut(value, ":"); {
	case scheme == "sqlite" && strings.HasPrefix(rest, ":"):
		p.fail("%s is %q: a journal in memory would lose calls: name a file, such as sqlite:bridge.db", name, value)
	case scheme == "sqlite" && rest != "" && (!strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "///")):
		return rest
	case scheme == "postgres" || scheme == "postgresql":
		p.fail("%s: postgres:// is not supported yet: use sqlite:PATH", name)
	default:
		p.fail("%s is %q: it must be sqlite:PATH, such as sqlite:/data/bridge.db", name, maskURL(value))
	}
	return ""
}

// baseURL checks the API's address. A user in it is dropped: requests carry the
// key in its place, and it would only be shown by the errors of the network.
func (p *parser) baseURL(name, value string) string {
	value = strings.TrimSpace(value)
	u, err := url.Parse(value)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || !isPort(u.Port()) {
		p.fail("%s is %q: it must be an http or https URL, such as https://api.openai.com/v1", name, maskURL(value))
		return ""
	}
	u.User = nil
	return u.String()
}

// isPort reports whether a URL's port is a number that a port can have; none is the scheme's.
func isPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil
}

// maskURL hides what may be a secret in what should be a URL: everything from
// the scheme to the last @, and the query. Nothing is parsed, because a bad
// value is what this is for.
func maskURL(value string) string {
	start := ""
	if at := strings.LastIndexByte(value, '@'); at >= 0 {
		if scheme, _, found := strings.Cut(value[:at], "://"); found {
			start = scheme + "://"
		}
		start, value = start+"…", value[at:]
	}
	if rest, _, found := strings.Cut(value, "?"); found {
		value = rest + "?…"
	}
	return start + value
}

// list splits at commas, trims, and drops empty and repeated words.
func list(value string) []string {
	var words []string
	for word := range strings.SplitSeq(value, ",") {
		if word = strings.TrimSpace(word); word != "" && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words
}

// isLoopback reports whether only this machine can reach a listen address.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// kubernetesService matches what Kubernetes injects for a Service called
// "bridge"; these variables are neither ours nor a mistake.
var kubernetesService = regexp.MustCompile(`^BRIDGE_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$`)

// environmentWarnings names the variables that look like a misspelt one of
// ours, and those of features that do not exist yet.
func environmentWarnings(environ []string) []string {
	known := variableNames()
	var warnings []string
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case strings.HasPrefix(name, "OTEL_") && value != "":
			warnings = append(warnings, name+" is set, but tracing is not supported yet; it is ignored")
		case !strings.HasPrefix(name, "BRIDGE_") || slices.Contains(known, name) || kubernetesService.MatchString(name):
		default:
			if meant := router.Nearest(name, known); meant != "" {
				warnings = append(warnings, name+" is not a setting; "+meant+" was probably meant")
			}
		}
	}
	slices.Sort(warnings)
	return warnings
}

// settingsHelp lists the settings that are not refused, each with its meaning and
// its default.
func settingsHelp() string {
	var out strings.Builder
	list := func(prefix string, t reflect.Type) {
		for field := range t.Fields() {
			about := field.Tag.Get("about")
			if about == "" {
				continue
			}
			if preset := field.Tag.Get("default"); preset != "" {
				about += " (default " + preset + ")"
			}
			fmt.Fprintf(&out, "  %-27s  %s\n", prefix+strings.ToUpper(splitWords(field.Name)), about)
		}
	}
	list("OPENAI_", reflect.TypeFor[apiEnvironment]())
	list("BRIDGE_", reflect.TypeFor[environment]())
	return strings.TrimSuffix(out.String(), "\n")
}

// variableNames lists every BRIDGE_ variable, derived from the struct as envconfig does.
func variableNames() []string {
	t := reflect.TypeFor[environment]()
	names := make([]string, 0, t.NumField())
	for field := range t.Fields() {
		names = append(names, "BRIDGE_"+strings.ToUpper(splitWords(field.Name)))
	}
	return names
}

// splitWords puts an underscore between the words of a Go name: APIRate is API_Rate.
func splitWords(name string) string {
	name = regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(name, "${1}_${2}")
	return regexp.MustCompile(`([A-Z]+)([A-Z][a-z])`).ReplaceAllString(name, "${1}_${2}")
}
