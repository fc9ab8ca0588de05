package router

import (
	"encoding/json"
	"maps"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// settings are the keys of a route, or of defaults, as far as they are set.
type settings struct {
	description *string
	parameters  *parameters
	target      target

	method         *string
	headers        []headerTemplate
	query          []parameter
	idempotent     *bool
	timeout        *time.Duration
	attemptTimeout *time.Duration
	retry          retrySettings
	result         resultSettings

	body         *program
	deferLoading *bool

	question  *question
	onUnknown *unknownOutcome
	async     *bool
	limits    limitSettings
}

// target is where a route sends: url, or upstream and path.
type target struct {
	url      *address
	upstream *upstreamName
	path     *address
	// broken says that a part was there and cannot be used.
	broken bool
}

// upstreamName is a reference to an upstream; path is where it stands, such as
// routes.refund.upstream.
type upstreamName struct {
	name, path string
	at         place
}

// parameters is a JSON Schema as it stands in the file.
type parameters struct {
	text   json.RawMessage
	schema *schema
}

type retrySettings struct {
	attempts         *int64
	minWait, maxWait *time.Duration
	on503            *bool
	at               place
}

type resultSettings struct {
	maxBytes   *int64
	onOversize *string
	expose     *string
	as         *string
	html       *bool

	successWhen, output, failure *program
}

// routeKeyPlaces says where the keys of a route belong that stand elsewhere.
func routeKeyPlaces() map[string]string {
	places := map[string]string{}
	known := routeKeys()
	for _, key := range known.now {
		places[key] = "routes or defaults"
	}
	maps.Copy(places, known.where)
	return places
}

func routeKeys() keys {
	return keys{
		now: []string{
			"url", "upstream", "path", "method", "headers", "query", "body", "description", "parameters", "idempotent",
			"timeout", "attempt_timeout", "retry", "result", "recover", "on_unknown_outcome", "async", "defer_loading",
			"max_concurrent", "max_queue", "rate_limit", "circuit_breaker",
		},
		where: map[string]string{
			"auth": "upstreams", "tls": "upstreams", "sign": "upstreams",
			"bearer": "auth", "bearer_file": "auth", "basic": "auth", "oauth2": "auth",
			"ca_file": "tls", "cert_file": "tls", "key_file": "tls", "server_name": "tls",
			"secret": "sign", "secret_file": "sign", "failures": "circuit_breaker", "open_for": "circuit_breaker",
			"attempts": "retry", "min_wait": "retry", "max_wait": "retry", "on_503": "retry",
			"max_bytes": "result", "on_oversize": "result", "expose": "result", "as": "result", "html": "result",
			"success_when": "result", "output": "result", "error": "result",
		},
	}
}

// settings reads the keys of a route or of defaults.
func (r *reader) settings(path string, n *yaml.Node, env *environment) (settings, bool) {
	o, ok := r.object(path, n, routeKeys())
	if !ok {
		return settings{target: target{broken: true}}, false
	}
	fields := o.fields
	s := settings{target: r.target(fields, env)}
	s.target.broken = s.target.broken || o.meant["url"] || o.meant["upstream"] || o.meant["path"]
	s.description = optional(fields, "description", r.optionalText)
	s.parameters = optional(fields, "parameters", r.parameters)
	s.method = optional(fields, "method", func(f field) *string { return r.word(f, "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE") })
	s.headers = optional(fields, "headers", func(f field) []headerTemplate { return r.headers(f, env) })
	s.query = optional(fields, "query", func(f field) []parameter { return r.query(f, env) })
	s.body = optional(fields, "body", func(f field) *program { return r.program(f, callVariable, sessionVariable) })
	s.idempotent = optional(fields, "idempotent", r.boolean)
	s.timeout = optional(fields, "timeout", r.duration)
	s.attemptTimeout = optional(fields, "attempt_timeout", r.duration)
	s.retry = optional(fields, "retry", r.retry)
	s.result = optional(fields, "result", r.result)
	s.question = optional(fields, "recover", func(f field) *question { return r.question(f, env) })
	s.onUnknown = optional(fields, "on_unknown_outcome", r.unknownOutcome)
	s.async = optional(fields, "async", r.boolean)
	s.deferLoading = optional(fields, "defer_loading", r.boolean)
	s.limits = r.limits(fields)
	return s, true
}

// optional reads a field when it is there.
func optional[T any](fields map[string]field, name string, read func(field) T) (value T) {
	if f, there := fields[name]; there {
		value = read(f)
	}
	return value
}

func (r *reader) optionalText(f field) *string {
	if text, ok := r.text(f); ok {
		return &text
	}
	return nil
}

// target reads url, upstream and path. In one mapping, url and the other two
// exclude each other.
func (r *reader) target(fields map[string]field, env *environment) target {
	var t target
	url, hasURL := fields["url"]
	upstream, hasUpstream := fields["upstream"]
	path, hasPath := fields["path"]
	if hasURL {
		t.url = r.url(url, env)
		t.broken = t.url == nil
	}
	if hasUpstream {
		if name, ok := r.text(upstream); ok {
			t.upstream = &upstreamName{name, upstream.path, r.at(upstream.value)}
		} else {
			t.broken = true
		}
	}
	if hasPath {
		t.path = r.path(path, env)
		t.broken = t.broken || t.path == nil
	}
	if hasURL && (hasUpstream || hasPath) {
		r.problems.addf(r.at(url.key), "%s: a route has url, or upstream and path, not both", url.path)
		t.broken = true
	}
	return t
}

// url reads a whole URL; nil means that it cannot be used.
func (r *reader) url(f field, env *environment) *address {
	a := r.address(f, env)
	if a == nil {
		return nil
	}
	if err := checkBase(withPlaceholders(a.head)); err != nil {
		r.wrongf(f, "bad URL: %s%s", err, broughtBy(f, a.head, err))
		return nil
	}
	r.warnOfOtherTemplates(f)
	a.head = env.hideUserinfo(f.path, a.head)
	return a
}

// broughtBy names the variables that a bad URL is made of, unless the error names
// the one that is at fault, and what was probably meant to be one.
func broughtBy(f field, head []piece, err error) string {
	_, rest := cutUserinfo(f.value.Value)
	if host, _ := cutAuthority(rest); len(bareNames(host)) > 0 {
		return "; write ${" + bareNames(host)[0] + "} for the variable"
	}
	var names []string
	for _, p := range head {
		if p.mark == nil || p.mark.unset {
			continue
		}
		name := showMark(p.mark.key)
		if strings.Contains(err.Error(), name) {
			return ""
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return ""
	}
	return "; it holds the value of " + strings.Join(names, " and of ")
}

// path reads what is put after the URL of an upstream.
func (r *reader) path(f field, env *environment) *address {
	if text, ok := r.text(f); ok && strings.Contains(strings.ReplaceAll(text, "$$", ""), "${") {
		r.wrongf(f, "${…} does not work in a path: put it into the url of the upstream")
		return nil
	}
	a := r.address(f, env)
	if a == nil {
		return nil
	}
	if len(a.head) > 0 && !strings.HasPrefix(a.head[0].literal, "/") && (a.head[0].expr == nil || a.head[0].expr.operator != '/') {
		r.wrongf(f, "must begin with /")
		return nil
	}
	if err := checkSegments(a.head); err != nil {
		r.wrongf(f, "%s", err)
		return nil
	}
	r.warnOfColons(f, f.value.Value)
	for _, name := range bareNames(dollarName.ReplaceAllString(f.value.Value, "")) {
		r.problems.warnf(r.at(f.value), "%s: $%s is sent as it stands; write $$%s if that is meant, and variables into the url of the upstream", f.path, name, name)
	}
	return a
}

func (r *reader) address(f field, env *environment) *address {
	if text, ok := r.text(f); !ok {
		return nil
	} else if text == "" {
		r.wrongf(f, "must not be empty")
		return nil
	}
	pieces, ok := r.pieces(f, env)
	if !ok {
		return nil
	}
	if name := optionalInPath(pieces); name != "" {
		r.wrongf(f, "%s: only a header or a query parameter can be left out", name)
		return nil
	}
	a, err := splitAddress(pieces)
	if err != nil {
		r.wrongf(f, "%s", err)
		return nil
	}
	return &a
}

// optionalInPath finds an optional name that would leave a hole in the path.
func optionalInPath(pieces []piece) string {
	for _, p := range pieces {
		if strings.Contains(p.literal, "?") || (p.expr != nil && p.expr.operator == '?') {
			return ""
		}
		if p.expr == nil {
			continue
		}
		for _, v := range p.expr.vars {
			if v.optional {
				return p.expr.text
			}
		}
	}
	return ""
}

func (r *reader) retry(f field) retrySettings {
	s := retrySettings{at: r.at(f.key)}
	o, ok := r.object(f.path, f.value, keys{now: []string{"attempts", "min_wait", "max_wait", "on_503"}})
	if !ok {
		return s
	}
	fields := o.fields
	s.attempts = optional(fields, "attempts", func(f field) *int64 { return r.number(f, 1, 100) })
	s.minWait = optional(fields, "min_wait", r.duration)
	s.maxWait = optional(fields, "max_wait", r.duration)
	s.on503 = optional(fields, "on_503", r.boolean)
	for _, name := range []string{"min_wait", "max_wait"} {
		if f, ok := fields[name]; ok {
			s.at = r.at(f.value)
		}
	}
	return s
}

// maxReply bounds max_bytes: a reply is held in memory.
const maxReply = 1 << 30

func (r *reader) result(f field) resultSettings {
	var s resultSettings
	o, ok := r.object(f.path, f.value, keys{
		now: []string{"success_when", "output", "error", "max_bytes", "on_oversize", "expose", "as", "html"},
	})
	if !ok {
		return s
	}
	fields := o.fields
	s.maxBytes = optional(fields, "max_bytes", func(f field) *int64 { return r.number(f, 1, maxReply) })
	s.onOversize = optional(fields, "on_oversize", func(f field) *string { return r.word(f, "fail", "truncate") })
	s.expose = optional(fields, "expose", func(f field) *string {
		return r.word(f, string(ExposeDetail), string(ExposeStatus), string(ExposeNone))
	})
	s.as = optional(fields, "as", func(f field) *string { return r.word(f, "content") })
	s.html = optional(fields, "html", r.boolean)
	whole := func(f field) *program { return r.program(f) }
	s.successWhen = optional(fields, "success_when", whole)
	s.output = optional(fields, "output", whole)
	s.failure = optional(fields, "error", whole)
	return s
}

// over puts s over the defaults, key by key.
func (s settings) over(d settings) settings {
	s.description = or(s.description, d.description)
	s.parameters = or(s.parameters, d.parameters)
	s.target = s.target.over(d.target)
	s.method = or(s.method, d.method)
	s.headers = overlayHeaders(d.headers, s.headers)
	s.query = overlayQuery(d.query, s.query)
	s.idempotent = or(s.idempotent, d.idempotent)
	s.timeout = or(s.timeout, d.timeout)
	s.attemptTimeout = or(s.attemptTimeout, d.attemptTimeout)
	if s.retry.at == (place{}) {
		s.retry.at = d.retry.at
	}
	s.retry.attempts = or(s.retry.attempts, d.retry.attempts)
	s.retry.minWait = or(s.retry.minWait, d.retry.minWait)
	s.retry.maxWait = or(s.retry.maxWait, d.retry.maxWait)
	s.retry.on503 = or(s.retry.on503, d.retry.on503)
	s.result.maxBytes = or(s.result.maxBytes, d.result.maxBytes)
	s.result.onOversize = or(s.result.onOversize, d.result.onOversize)
	s.result.expose = or(s.result.expose, d.result.expose)
	s.result.as = or(s.result.as, d.result.as)
	s.result.html = or(s.result.html, d.result.html)
	s.result.successWhen = or(s.result.successWhen, d.result.successWhen)
	s.result.output = or(s.result.output, d.result.output)
	s.result.failure = or(s.result.failure, d.result.failure)
	s.body = or(s.body, d.body)
	s.question = or(s.question, d.question)
	s.onUnknown = or(s.onUnknown, d.onUnknown)
	s.async = or(s.async, d.async)
	s.deferLoading = or(s.deferLoading, d.deferLoading)
	s.limits = s.limits.over(d.limits)
	return s
}

// over: a url takes the place of a default upstream and path, and the other
// way round.
func (t target) over(d target) target {
	if t.broken || t.url != nil {
		return t
	}
	if t.upstream == nil && t.path == nil {
		return d
	}
	t.upstream = or(t.upstream, d.upstream)
	t.path = or(t.path, d.path)
	return t
}

func or[T any](value, fallback *T) *T {
	if value != nil {
		return value
	}
	return fallback
}
