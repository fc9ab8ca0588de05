package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/go-chi/chi/v5"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"functionbridge/api"
	"functionbridge/internal/agentsim"
)

// readDocument loads api/openapi.yaml and demands that it is valid.
func readDocument(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	return doc
}

// documentURL is the document's name among the schemas.
const documentURL = "file:///openapi.yaml"

// compileDocument makes every schema of the document available by its JSON
// pointer. kin-openapi v0.153 knows OpenAPI 3.1 but silently falls back to the
// rules of 3.0 where a schema has references, so bodies are validated here.
func compileDocument(t *testing.T) *jsonschema.Compiler {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal(api.OpenAPI, &tree); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource(documentURL, document); err != nil {
		t.Fatal(err)
	}
	return compiler
}

// operator speaks to the bridge's endpoints and holds every answer against the
// document.
type operator struct {
	doc     *openapi3.T
	find    routers.Router
	mu      sync.Mutex
	schemas *jsonschema.Compiler

	client *http.Client
	public string
	admin  string
	token  string
}

func newOperator(t *testing.T, d *daemon) *operator {
	t.Helper()
	doc := readDocument(t)
	doc.Servers = nil // else the router would match on the host
	find, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	o := &operator{
		doc: doc, find: find, schemas: compileDocument(t), client: &http.Client{Transport: &http.Transport{}},
		public: "http://" + d.addr, admin: "http://" + d.adminAddr, token: d.settings.AdminToken,
	}
	t.Cleanup(o.client.CloseIdleConnections)
	return o
}

// matches holds a body against the schema at the pointer's steps.
func (o *operator) matches(body []byte, steps ...string) error {
	for i, step := range steps {
		steps[i] = url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(step))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	schema, err := o.schemas.Compile(documentURL + "#/" + strings.Join(steps, "/"))
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// reply is a checked answer.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// decode reads the answer's JSON, numbers as they are written.
func (r reply) decode(t *testing.T) object {
	t.Helper()
	var v object
	decoder := json.NewDecoder(bytes.NewReader(r.body))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("answer %q: %v", r.body, err)
	}
	return v
}

// object is a decoded JSON object; what is missing reads as empty.
type object map[string]any

func (o object) at(name string) object {
	member, _ := o[name].(map[string]any)
	return member
}

func (o object) list(name string) []object {
	items, _ := o[name].([]any)
	list := make([]object, len(items))
	for i, item := range items {
		list[i], _ = item.(map[string]any)
	}
	return list
}

func (o object) text(name string) string {
	s, _ := o[name].(string)
	return s
}

// want demands a status; an error must say so in its body too.
func (r reply) want(t *testing.T, status int) reply {
	t.Helper()
	if r.status != status {
		t.Fatalf("answered %d %s, want %d", r.status, r.body, status)
	}
	return r
}

func (o *operator) get(t *testing.T, path string) reply {
	t.Helper()
	return o.do(t, http.MethodGet, path, "")
}

func (o *operator) post(t *testing.T, path, body string) reply {
	t.Helper()
	return o.do(t, http.MethodPost, path, body, "Content-Type", "application/json")
}

// do sends one request, to the public listener where the path is served there
// alone, and checks the answer. header holds names and values in turn.
func (o *operator) do(t *testing.T, method, path, body string, header ...string) reply {
	t.Helper()
	base := o.admin
	if path == "/healthz" || path == "/readyz" {
		base = o.public
	}
	return o.send(t, method, base+path, body, header...)
}

func (o *operator) send(t *testing.T, method, target, body string, header ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if o.token != "" {
		r.Header.Set("Authorization", "Bearer "+o.token)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
		r.Header.Set(header[i], header[i+1])
	}
	res, err := o.client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	r.Body = io.NopCloser(strings.NewReader(body))
	answer := reply{res.StatusCode, res.Header, got}
	if err := o.check(r, answer); err != nil {
		t.Errorf("%s %s answered %d %s, which openapi.yaml does not allow: %v", method, target, res.StatusCode, got, err)
	}
	return answer
}

// check holds an answer against the document. A request that was taken must be
// one that the document allows, and one that the document does not know must
// have been refused.
func (o *operator) check(r *http.Request, got reply) error {
	if r.Method == http.MethodHead {
		if len(got.body) > 0 {
			return errors.New("HEAD has a body")
		}
		return nil
	}
	route, params, err := o.find.FindRoute(r)
	if err != nil {
		return o.checkUnknown(got, err)
	}
	request := &openapi3filter.RequestValidationInput{
		Request: r, Route: route, PathParams: params,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
	if got.status < 300 {
		if err := openapi3filter.ValidateRequest(r.Context(), request); err != nil {
			return fmt.Errorf("the request was taken: %w", err)
		}
	}
	err = openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: request, Status: got.status, Header: got.header, Body: io.NopCloser(bytes.NewReader(got.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
	if err != nil {
		return err
	}
	return o.checkBody(route, got)
}

// checkBody holds the body of an answer against the schema of its status.
func (o *operator) checkBody(route *routers.Route, got reply) error {
	kind, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
	if got.status == http.StatusNoContent {
		if len(got.body) > 0 || kind != "" {
			return errors.New("204 has content")
		}
		return nil
	}
	if kind == "text/plain" && route.Path == "/metrics" {
		return nil
	}
	status := strconv.Itoa(got.status)
	if route.Operation.Responses.Status(got.status) == nil {
		return o.matches(got.body, "components", "responses", "Problem", "content", kind, "schema")
	}
	return o.matches(got.body, "paths", route.Path, strings.ToLower(route.Method), "responses", status, "content", kind, "schema")
}

// checkUnknown holds the answer to a request that the document does not know
// against the schema of errors.
func (o *operator) checkUnknown(got reply, unknown error) error {
	if got.status < 400 {
		return fmt.Errorf("the document does not know the request: %w", unknown)
	}
	if kind := got.header.Get("Content-Type"); kind != "application/problem+json" {
		return fmt.Errorf("an error of type %q", kind)
	}
	return o.matches(got.body, "components", "schemas", "Problem")
}

// The check is worth as much as the validator behind it, so here it must refuse.
func TestAnswersThatBreakTheDocumentAreSeen(t *testing.T) {
	t.Parallel()
	o := newOperator(t, &daemon{})
	problem := `{"type":"about:blank","title":"Not Found","status":404,"detail":"No."}`
	call := `{"session_id":"s","turn_id":"t","call_id":"c","function":"f","arguments":{},"state":"running","success":null,
		"output":null,"error":null,"failure":null,"late_outcome":null,"idempotency_key":"k","attempts":[],"erased":false,
		"created_at":"2026-01-02T03:04:05.678Z","sent_at":null,"answered_at":null,"submitted_at":null,"confirmed_at":null}`
	for name, c := range map[string]struct {
		path, kind, body string
		status           int
		allowed          bool
	}{
		"right":                  {"/admin/calls/s/t/c", "application/json", call, 200, true},
		"right list":             {"/admin/calls", "application/json", `{"calls":[` + call + `],"next":null}`, 200, true},
		"right error":            {"/admin/calls/s/t/c", "application/problem+json", problem, 404, true},
		"right, unknown path":    {"/nowhere", "application/problem+json", problem, 404, true},
		"unknown state":          {"/admin/calls/s/t/c", "application/json", strings.Replace(call, "running", "lost", 1), 200, false},
		"unknown state, in list": {"/admin/calls", "application/json", `{"calls":[` + strings.Replace(call, "running", "lost", 1) + `],"next":null}`, 200, false},
		"member missing":         {"/admin/calls/s/t/c", "application/json", strings.Replace(call, `"attempts":[],`, "", 1), 200, false},
		"member too many":        {"/admin/calls/s/t/c", "application/json", strings.Replace(call, `"attempts"`, `"more":1,"attempts"`, 1), 200, false},
		"local time":             {"/admin/calls/s/t/c", "application/json", strings.Replace(call, "678Z", "678+02:00", 1), 200, false},
		"not a time":             {"/admin/calls/s/t/c", "application/json", strings.Replace(call, "2026-01-02", "2026-13-02", 1), 200, false},
		"attempt not whole":      {"/admin/calls/s/t/c", "application/json", strings.Replace(call, "[]", `[{"status":200}]`, 1), 200, false},
		"late outcome not whole": {"/admin/calls/s/t/c", "application/json", strings.Replace(call, `"late_outcome":null`, `"late_outcome":{"success":true}`, 1), 200, false},
		"null list":              {"/admin/calls", "application/json", `{"calls":null,"next":null}`, 200, false},
		"error as JSON":          {"/admin/calls", "application/json", problem, 404, false},
		"error without detail":   {"/admin/calls", "application/problem+json", `{"type":"about:blank","title":"x","status":404}`, 404, false},
		"unknown path served":    {"/nowhere", "application/json", `{}`, 200, false},
		"unknown path, no body":  {"/nowhere", "application/problem+json", `{}`, 404, false},
		"unknown reason":         {"/readyz", "application/json", `{"status":"not_ready","reasons":["tired"]}`, 503, false},
		"taken, bad query":       {"/admin/calls?limit=0", "application/json", `{"calls":[],"next":null}`, 200, false},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, http.NoBody)
		err := o.check(r, reply{c.status, http.Header{"Content-Type": {c.kind}}, []byte(c.body)})
		if (err == nil) != c.allowed {
			t.Errorf("%s: check says %v", name, err)
		}
	}
}

// What is mounted and what is described are the same, listener by listener.
func TestDocumentDescribesWhatIsMounted(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	doc := readDocument(t)
	for tag, mux := range map[string]*chi.Mux{
		"public": b.daemon.publicEndpoints(), "admin": b.daemon.adminEndpoints(), "metrics": b.daemon.metricsEndpoints(),
	} {
		var mounted, described []string
		err := chi.Walk(mux, func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			mounted = append(mounted, method+" "+path)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for path, item := range doc.Paths.Map() {
			for method, operation := range item.Operations() {
				if slices.Contains(operation.Tags, tag) {
					described = append(described, method+" "+path)
				}
			}
		}
		slices.Sort(mounted)
		slices.Sort(described)
		if !slices.Equal(mounted, described) {
			t.Errorf("the %s listener serves\n%s\nand openapi.yaml describes\n%s", tag, strings.Join(mounted, "\n"), strings.Join(described, "\n"))
		}
	}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for _, tag := range operation.Tags {
				if doc.Tags.Get(tag) == nil {
					t.Errorf("%s %s has the tag %q, which stands for no listener", method, path, tag)
				}
			}
			if len(operation.Tags) == 0 {
				t.Errorf("%s %s is on no listener", method, path)
			}
		}
	}
}

const plainTable = `version: 1
routes:
  greet: SERVICE/greet
  fail: SERVICE/fail
`

func TestUnknownPathsAndMethodsGetProblems(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	o := newOperator(t, b.daemon)
	for _, path := range []string{
		"/", "/admin", "/admin/", "/admin/sessions/", "/admin/calls/", "/admin/calls/s", "/admin/calls/s/t", "/admin/nothing", "/..%2F",
		"/admin/calls/a/b/c/d", "/webhooks/openai",
	} {
		o.get(t, path).want(t, http.StatusNotFound)
	}
	o.post(t, "/admin/routes/relod", "").want(t, http.StatusNotFound)
	o.post(t, "/admin/calls/s/t/c/resolve", `{"success":true,"output":""}`).want(t, http.StatusNotFound)
	o.send(t, http.MethodGet, o.public+"/metrics", "").want(t, http.StatusNotFound)
	o.send(t, http.MethodGet, o.public+"/admin/calls", "").want(t, http.StatusNotFound)
	for _, c := range []struct{ method, path, allow string }{
		{http.MethodPut, "/admin/sessions", "GET, HEAD, POST"},
		{http.MethodPost, "/admin/sessions/s%2F1", "GET, HEAD, DELETE"},
		{http.MethodGet, "/admin/routes/greet/call", "POST"},
		{http.MethodDelete, "/readyz", "GET, HEAD"},
		{http.MethodOptions, "/admin/calls", "GET, HEAD"},
		{"BREW", "/admin/tools", "GET, HEAD"},
	} {
		got := o.do(t, c.method, c.path, "").want(t, http.StatusMethodNotAllowed)
		if allow := got.header.Get("Allow"); allow != c.allow {
			t.Errorf("%s %s: Allow is %q, want %q", c.method, c.path, allow, c.allow)
		}
	}
	o.do(t, "BREW", "/nothing", "").want(t, http.StatusNotFound)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/admin/sessions", "/admin/calls"} {
		o.do(t, http.MethodHead, path, "").want(t, http.StatusOK)
	}
}

// Neither methods nor paths that a caller makes up become series.
func TestCallersCannotMakeSeries(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	o := newOperator(t, b.daemon)
	before := series(o.get(t, "/metrics").want(t, http.StatusOK).body)
	for i := range 300 {
		o.do(t, fmt.Sprintf("M%d", i), fmt.Sprintf("/p%d", i), "")
		o.get(t, fmt.Sprintf("/admin/sessions/s%d?x%d", i, i))
		o.get(t, fmt.Sprintf("/admin/calls?function=f%d&session_id=s%d", i, i))
		o.post(t, fmt.Sprintf("/admin/routes/r%d/call", i), `{}`)
	}
	after := series(o.get(t, "/metrics").want(t, http.StatusOK).body)
	if added := slices.Collect(missingFrom(before, after)); len(added) > 0 {
		t.Errorf("%d new series, such as %s", len(added), added[0])
	}
	for _, want := range []string{
		`bridge_journal_calls{state="pending"}`, `bridge_journal_calls{state="abandoned"}`, `bridge_oldest_unanswered_seconds`,
		`bridge_routes_reloads_total{outcome="success"}`, `bridge_routes_reloads_total{outcome="failure"}`,
		`bridge_routes_last_reload_timestamp_seconds`, `bridge_sessions{state="idle"}`, `go_goroutines`, `process_start_time_seconds`,
		`bridge_calls_in_flight`, `bridge_stream_events_total`, `bridge_results_total{outcome="confirmed"}`,
	} {
		if !before[want] {
			t.Errorf("no series %s", want)
		}
	}
}

// series are the names and labels of an exposition.
func series(exposition []byte) map[string]bool {
	found := map[string]bool{}
	for line := range strings.SplitSeq(string(exposition), "\n") {
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			found[line[:i]] = true
		}
	}
	return found
}

// missingFrom lists what after has and before has not, but for the runtime's
// own series, which come as it goes.
func missingFrom(before, after map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for name := range maps.Keys(after) {
			if !before[name] && strings.HasPrefix(name, "bridge_") && !yield(name) {
				return
			}
		}
	}
}

func pathOf(ids ...string) string {
	for i, id := range ids {
		ids[i] = url.PathEscape(id)
	}
	return strings.Join(ids, "/")
}
