package router

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// RouteInfo is a route as operators see it. ${VAR} stands as it is written, and
// a password in a URL is masked; durations are like 30s.
type RouteInfo struct {
	Name           string          `json:"name"`
	Description    string          `json:"description,omitempty"`
	Parameters     json.RawMessage `json:"parameters,omitempty"`
	Upstream       string          `json:"upstream,omitempty"`
	Method         string          `json:"method"`
	URL            string          `json:"url"`
	Body           string          `json:"body,omitempty"`
	Headers        []Header        `json:"headers,omitempty"`
	Idempotent     bool            `json:"idempotent"`
	Timeout        string          `json:"timeout"`
	AttemptTimeout string          `json:"attempt_timeout"`
	Retry          RetryInfo       `json:"retry"`
	Result         ResultInfo      `json:"result"`
	Recover        *RecoverInfo    `json:"recover,omitempty"`
	// OnUnknownOutcome is hold, or left out for fail.
	OnUnknownOutcome string `json:"on_unknown_outcome,omitempty"`
	Async            bool   `json:"async,omitempty"`
	DeferLoading     bool   `json:"defer_loading,omitempty"`
	// Limits are the route's own, Service is what it shares with the other routes of
	// its upstream; each is left out when the table says nothing of it.
	Limits  *LimitsInfo  `json:"limits,omitempty"`
	Service *ServiceInfo `json:"service,omitempty"`
}

// ServiceInfo is Service as operators see it. What auth and sign hold is masked
// but for ${VAR}.
type ServiceInfo struct {
	// Auth has dotted keys: basic.username, say.
	Auth   map[string]string `json:"auth,omitempty"`
	Sign   []string          `json:"sign,omitempty"`
	TLS    map[string]string `json:"tls,omitempty"`
	Limits *LimitsInfo       `json:"limits,omitempty"`
}

// LimitsInfo is Limits as operators see it.
type LimitsInfo struct {
	MaxConcurrent  int          `json:"max_concurrent,omitempty"`
	MaxQueue       int          `json:"max_queue"`
	RateLimit      string       `json:"rate_limit,omitempty"`
	CircuitBreaker *BreakerInfo `json:"circuit_breaker,omitempty"`
}

// BreakerInfo is Breaker as operators see it.
type BreakerInfo struct {
	Failures int    `json:"failures"`
	OpenFor  string `json:"open_for"`
}

// RecoverInfo is Recover as operators see it.
type RecoverInfo struct {
	Method string `json:"method"`
	URL    string `json:"url"`
}

// RetryInfo is Retry as operators see it.
type RetryInfo struct {
	Attempts int    `json:"attempts"`
	MinWait  string `json:"min_wait"`
	MaxWait  string `json:"max_wait"`
	On503    bool   `json:"on_503"`
}

// ResultInfo is Result as operators see it.
type ResultInfo struct {
	MaxBytes   int64  `json:"max_bytes"`
	OnOversize string `json:"on_oversize"`
	Expose     string `json:"expose,omitempty"`
	As         string `json:"as,omitempty"`
	HTML       bool   `json:"html,omitempty"`
	// The programs as they are written.
	SuccessWhen string `json:"success_when,omitempty"`
	Output      string `json:"output,omitempty"`
	Error       string `json:"error,omitempty"`
}

// masked stands where something secret is not shown.
const masked = "[redacted]"

// Describe lists the routes in file order, complete with defaults and upstream.
// It holds no secret.
func (t *Table) Describe() []RouteInfo {
	infos := make([]RouteInfo, 0, len(t.routes))
	for _, r := range t.routes {
		infos = append(infos, r.describe())
	}
	return infos
}

func (r *Route) describe() RouteInfo {
	info := RouteInfo{
		Name: r.Name, Description: r.Description, Parameters: r.Parameters, Upstream: r.Upstream,
		Method: r.Method, URL: r.request.address.show(), Idempotent: r.Idempotent,
		Timeout: r.Timeout.String(), AttemptTimeout: r.AttemptTimeout.String(),
		Retry: RetryInfo{r.Retry.Attempts, r.Retry.MinWait.String(), r.Retry.MaxWait.String(), r.Retry.On503},
		Result: ResultInfo{
			MaxBytes: r.Result.MaxBytes, OnOversize: "fail", Expose: string(r.Result.Expose), HTML: r.Result.HTML,
			SuccessWhen: textOfProgram(r.Result.SuccessWhen), Output: textOfProgram(r.Result.Output), Error: textOfProgram(r.Result.Error),
		},
		Async: r.Async, DeferLoading: r.DeferLoading, Limits: r.Limits.describe(), Service: r.Service.describe(),
	}
	if r.request.body != nil {
		info.Body = r.request.body.program.String()
	}
	if r.Recover != nil {
		info.Recover = &RecoverInfo{r.Recover.Method, r.Recover.request.address.show()}
	}
	if r.HoldUnknown {
		info.OnUnknownOutcome = "hold"
	}
	if r.Result.Truncate {
		info.Result.OnOversize = "truncate"
	}
	if r.Result.Content {
		info.Result.As = "content"
	}
	for _, h := range r.request.headers {
		info.Headers = append(info.Headers, Header{Name: h.name, Value: show(h.pieces)})
	}
	return info
}

func (s *Service) describe() *ServiceInfo {
	if s == nil {
		return nil
	}
	info := ServiceInfo{Auth: s.Auth.shown, TLS: s.TLS.shown, Limits: s.Limits.describe()}
	for _, secret := range s.Sign.secrets {
		info.Sign = append(info.Sign, secret.show())
	}
	if len(info.Auth)+len(info.Sign)+len(info.TLS) == 0 && info.Limits == nil {
		return nil
	}
	return &info
}

// describe is nil when the table says nothing of limits.
func (l Limits) describe() *LimitsInfo {
	if l == (limitSettings{}).limits() {
		return nil
	}
	info := &LimitsInfo{MaxConcurrent: l.MaxConcurrent, MaxQueue: l.MaxQueue, RateLimit: l.Rate.String()}
	if l.Breaker.Failures > 0 {
		info.CircuitBreaker = &BreakerInfo{l.Breaker.Failures, l.Breaker.OpenFor.String()}
	}
	return info
}

// show writes a template as it stands in the file; what follows {?…} needs no
// separator.
func (a address) show() string {
	var out strings.Builder
	out.WriteString(userinfo.ReplaceAllString(show(a.head), "${1}"+masked+"@"))
	separator := "?"
	for _, part := range a.query {
		if first := part.pieces[0].expr; first == nil || first.operator == 0 {
			out.WriteString(separator)
		}
		out.WriteString(show(part.pieces))
		separator = "&"
	}
	return out.String()
}

var userinfo = regexp.MustCompile(`^(?i)(https?://)[^/?]*@`)

func show(pieces []piece) string {
	var out strings.Builder
	for _, p := range pieces {
		switch {
		case p.mark != nil:
			out.WriteString(showMark(p.mark.key))
		case p.expr != nil:
			out.WriteString(p.expr.text)
		default:
			out.WriteString(p.literal)
		}
	}
	return out.String()
}

// Shown is the request for people: marks stand as ${VAR}, a user and password of
// the URL is masked, and a dollar sign is one. It is for reading only: Wire cannot
// take it.
func (r Request) Shown() Request {
	r.URL = showMarks(r.URL)
	query := make([]string, len(r.Query))
	for i, pair := range r.Query {
		query[i] = showMarks(pair)
	}
	headers := make([]Header, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = Header{Name: h.Name, Value: showMarks(h.Value)}
	}
	r.Query, r.Headers = query, headers
	return r
}

// markOrDollar matches what has a meaning in the texts of a Request.
var markOrDollar = regexp.MustCompile(`\$\$|\$\{[^}]*\}`)

func showMarks(text string) string {
	return markOrDollar.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		return showMark(found[len("${") : len(found)-len("}")])
	})
}

// showMark is ${VAR} for the key of a mark.
func showMark(key string) string {
	if strings.HasPrefix(key, hiddenUserinfo) {
		return masked
	}
	name, _, _ := strings.Cut(key, ":")
	return "${" + name + "}"
}

// tool is one entry of agent.tools.
type tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Async       bool            `json:"async,omitempty"`
	// DeferLoading needs an entry of type tool_search.
	DeferLoading bool `json:"defer_loading,omitempty"`
}

// IsTool says that the route can be published: the API wants both.
func (r *Route) IsTool() bool { return r.Description != "" && r.Parameters != nil }

// Tools is the agent.tools JSON array: the routes that have a description and
// parameters, in file order, the parameters as they are written, and the search for
// those that are not loaded.
func (t *Table) Tools() []byte {
	tools, deferred := []any{}, false
	for _, r := range t.routes {
		if r.IsTool() {
			tools = append(tools, tool{"function", r.Name, r.Description, r.Parameters, r.Async, r.DeferLoading})
			deferred = deferred || r.DeferLoading
		}
	}
	if deferred {
		tools = append(tools, map[string]string{"type": "tool_search"})
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(tools); err != nil {
		return []byte("[]") // parameters are valid JSON: they were compiled
	}
	return bytes.TrimRight(out.Bytes(), "\n")
}
