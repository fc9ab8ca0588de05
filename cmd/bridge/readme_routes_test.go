package main

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// example is a route table of the README and the calls that stand below it.
type example struct {
	table string
	calls []exampleCall
}

// exampleCall is one call as the README tells it: what it is, the request that
// the service sees, what it replies to each, and what the agent gets.
type exampleCall struct {
	env, metadata       map[string]string
	function, arguments string
	// requests are what the service sees, the last one as often as there are more replies.
	requests []exampleRequest
	replies  []string
	result   string
}

// exampleRequest is one request as the README writes it down: target is method
// and URL, headers are lines.
type exampleRequest struct {
	target  string
	headers []string
	body    string
}

// examples finds the route tables, the blocks of YAML with a version, and the
// text that follows each.
func examples(t *testing.T) []example {
	t.Helper()
	var found []example
	blocks := regexp.MustCompile("(?s)```yaml\n(version: 1\n.*?)```\n\n```text\n(.*?)```").FindAllStringSubmatch(readme(t), -1)
	for _, b := range blocks {
		e := example{table: b[1]}
		for call := range strings.SplitSeq(strings.TrimSpace(b[2]), "\n\n") {
			c := readCall(t, call)
			if len(c.env) == 0 && len(e.calls) > 0 {
				c.env = e.calls[0].env
			}
			e.calls = append(e.calls, c)
		}
		found = append(found, e)
	}
	if n := strings.Count(readme(t), "```yaml\nversion: 1\n"); n != len(found) || n == 0 {
		t.Fatalf("the README has %d route tables, and %d of them have calls", n, len(found))
	}
	return found
}

// readCall reads the lines of a call: a word and what belongs to it; lines
// without a word go on with the request.
func readCall(t *testing.T, text string) exampleCall {
	t.Helper()
	c := exampleCall{env: map[string]string{}, metadata: map[string]string{}}
	for line := range strings.SplitSeq(text, "\n") {
		word, rest := strings.TrimSpace(line[:min(10, len(line))]), line[min(10, len(line)):]
		switch word {
		case "env":
			name, value, _ := strings.Cut(rest, "=")
			c.env[name] = value
		case "metadata":
			name, value, _ := strings.Cut(rest, "=")
			c.metadata[name] = value
		case "call":
			c.function, c.arguments, _ = strings.Cut(rest, " ")
		case "request":
			if rest != "none" {
				c.requests = append(c.requests, exampleRequest{target: rest})
			}
		case "":
			last := &c.requests[len(c.requests)-1]
			if strings.Contains(rest, ": ") && !strings.HasPrefix(rest, "{") {
				last.headers = append(last.headers, rest)
			} else {
				last.body = rest
			}
		case "reply":
			c.replies = append(c.replies, rest)
		case "result":
			c.result = rest
		default:
			t.Fatalf("the README's %q begins with no word that is known", line)
		}
	}
	return c
}

func TestReadmeRouteTablesDoWhatTheReadmeSays(t *testing.T) {
	t.Parallel()
	for _, e := range examples(t) {
		var called []string
		for _, c := range e.calls {
			called = append(called, c.function)
			t.Run(c.function+c.arguments, func(t *testing.T) {
				t.Parallel()
				c.check(t, e.table)
			})
		}
		table := loadExample(t, t.TempDir(), e.table, router.Env{AllowUnset: true})
		for _, route := range table.Routes() {
			if !slices.Contains(called, route.Name) {
				t.Errorf("the README does not show a call of %s", route.Name)
			}
		}
	}
}

// check runs the call against a service that replies as the README says.
func (c exampleCall) check(t *testing.T, text string) {
	t.Helper()
	dir := t.TempDir()
	service := &exampleService{replies: c.replies, secret: c.env["SIGNING_SECRET"]}
	dial := service.start(t, dir)
	table := loadExample(t, dir, text, router.Env{Lookup: func(name string) (string, bool) {
		value, ok := c.env[name]
		return value, ok
	}})
	forwarder := forward.New(forward.Config{
		Table: func() *router.Table { return table }, Logger: slog.New(slog.DiscardHandler), Transport: forward.Transport{Dial: dial},
	})
	t.Cleanup(forwarder.Close)
	tried := forwarder.Try(t.Context(), forward.Trial{
		Function: c.function, Arguments: []byte(c.arguments), Session: journal.Session{ID: "sess_1", Metadata: c.metadata},
	})
	c.compareRequests(t, service.received())
	o := tried.Outcome
	got := strings.TrimSpace(o.Label() + " " + strings.ReplaceAll(o.Output, "\n", `\n`) + o.Error)
	if got != c.result {
		t.Errorf("the result is\n%s\nand the README says\n%s", got, c.result)
	}
}

// compareRequests demands one request for each reply, each as the README says.
func (c exampleCall) compareRequests(t *testing.T, got []seenRequest) {
	t.Helper()
	if len(got) != len(c.replies) || (len(c.requests) == 0) != (len(got) == 0) {
		t.Fatalf("the service got %d requests, want %d", len(got), len(c.replies))
	}
	for i, r := range got {
		want := c.requests[min(i, len(c.requests)-1)]
		if r.target != want.target || r.body != want.body {
			t.Errorf("the service got\n%s\n%s\nand the README says\n%s\n%s", r.target, r.body, want.target, want.body)
		}
		for _, line := range want.headers {
			name, value, _ := strings.Cut(line, ": ")
			if have := r.header.Get(name); have != value && (value != "…" || have == "") {
				t.Errorf("the service got %s: %s, and the README says %s", name, have, value)
			}
		}
	}
}

// exampleService gives its replies in turn: a status, and a body.
type exampleService struct {
	replies []string
	// secret, when there is one, is what requests are signed with.
	secret string
	mu     sync.Mutex
	seen   []seenRequest
}

// seenRequest is a request as the README writes it down.
type seenRequest struct {
	target, body string
	header       http.Header
}

func (s *exampleService) received() []seenRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func (s *exampleService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	s.seen = append(s.seen, seenRequest{r.Method + " " + scheme + r.Host + r.RequestURI, string(body), r.Header})
	if r.Header.Get("Webhook-Id") != "" && !signed(s.secret, body, r.Header) {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if len(s.seen) > len(s.replies) {
		w.WriteHeader(http.StatusTeapot) // one too many, which is counted
		return
	}
	status, text, _ := strings.Cut(s.replies[len(s.seen)-1], " ")
	code, _ := strconv.Atoi(status)
	switch {
	case json.Valid([]byte(text)):
		w.Header().Set("Content-Type", "application/json")
	case strings.HasPrefix(text, "image/"):
		kind, image, _ := strings.Cut(text, " ")
		w.Header().Set("Content-Type", kind)
		bytes, _ := base64.StdEncoding.DecodeString(image)
		text = string(bytes)
	}
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text)
}

// schemaKeys are the names that the editors' schema knows for a part of the table.
func schemaKeys(t *testing.T, part string) []string {
	t.Helper()
	text, err := os.ReadFile("../../api/routes.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type object struct {
		Properties map[string]any
	}
	var schema struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	properties := schema.Properties
	if part != "" {
		properties = schema.Defs[part].Properties
	}
	var names []string
	for name := range properties {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Every key that a table may have stands in an example, and those of result are explained.
func TestReadmeShowsEveryKeyOfARouteTable(t *testing.T) {
	t.Parallel()
	shown := map[string]bool{}
	for _, e := range examples(t) {
		var root yaml.Node
		if err := yaml.Unmarshal([]byte(e.table), &root); err != nil {
			t.Fatal(err)
		}
		collectKeys(&root, shown)
	}
	for _, part := range []string{"", "upstream", "settings", "retry", "result"} {
		keys := schemaKeys(t, part)
		if len(keys) == 0 {
			t.Errorf("the schema has no part %q", part)
		}
		for _, key := range keys {
			if !shown[key] {
				t.Errorf("the README shows no %s", key)
			}
		}
	}
	var explained []string
	for _, row := range readmeTable(t, "Everything a route can say", "key of `result`") {
		explained = append(explained, code(row[0]))
	}
	slices.Sort(explained)
	if want := schemaKeys(t, "result"); !slices.Equal(explained, want) {
		t.Errorf("the README explains %v of result, and there is %v", explained, want)
	}
}

func collectKeys(n *yaml.Node, into map[string]bool) {
	if n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			into[n.Content[i].Value] = true
		}
	}
	for _, child := range n.Content {
		collectKeys(child, into)
	}
}

// Docker and Kubernetes must wait longer for a stop than the bridge does.
func TestReadmeManifestsGiveADrainItsTime(t *testing.T) {
	t.Parallel()
	drain, err := time.ParseDuration(environmentDefault(t, "BRIDGE_DRAIN_TIMEOUT"))
	if err != nil {
		t.Fatal(err)
	}
	text := section(t, "The image")
	for _, pattern := range []string{`--stop-timeout (\d+)`, `stop_grace_period: (\d+)s`, `terminationGracePeriodSeconds: (\d+)`} {
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			t.Errorf("no %s", pattern)
			continue
		}
		if n, err := strconv.Atoi(m[1]); err != nil || time.Duration(n)*time.Second <= drain {
			t.Errorf("%s is not longer than %s", m[0], drain)
		}
	}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(# .*?)```").FindAllStringSubmatch(text, -1) {
		var manifest map[string]any
		if err := yaml.Unmarshal([]byte(block[1]), &manifest); err != nil || len(manifest) == 0 {
			t.Errorf("%v in\n%s", err, block[1])
		}
	}
}
