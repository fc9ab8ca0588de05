package router

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"
)

// What a route has when neither it nor defaults say otherwise.
const (
	defaultTimeout       = 30 * time.Second
	defaultAttempts      = 3
	defaultMinWait       = 200 * time.Millisecond
	defaultMaxWait       = 5 * time.Second
	defaultMaxBytes      = 256 << 10
	defaultMaxImageBytes = 4 << 20
)

// builder puts the files of a table together.
type builder struct {
	collector
	env       *environment
	upstreams map[string]*upstream
	defaults  settings
	// defaultsAt and unknownAt are where defaults and unknown_function stand.
	defaultsAt, unknownAt place
	ignoreUnknown         bool
	routes                []*draft
	byName                map[string]*draft
	hasRoutes             bool
	// partial says that a part of the table could not be read: what seems to be
	// missing may stand there.
	partial bool
}

type upstream struct {
	name    string
	at      place
	url     *address
	headers []headerTemplate
	service *Service
	// signAt is where sign stands, and unsigned are the routes that send requests
	// without a body, of which a signature covers nothing.
	signAt   place
	unsigned []string
}

// draft is a route before its defaults and upstream are applied.
type draft struct {
	name     string
	path     string
	at       place
	settings settings
	ok       bool
}

func newBuilder(env Env) *builder {
	return &builder{env: newEnvironment(env), upstreams: map[string]*upstream{}, byName: map[string]*draft{}}
}

// file reads one file of the table.
func (b *builder) file(name string, data []byte) {
	root := readDocument(name, data, &b.collector)
	if root == nil {
		b.partial = true
		return
	}
	r := &reader{file: name, data: bytes.TrimPrefix(data, []byte(byteOrderMark)), problems: &b.collector}
	o, ok := r.object("", root, keys{
		now:   []string{"version", "upstreams", "defaults", "routes", "unknown_function"},
		where: routeKeyPlaces(),
	})
	if !ok {
		b.partial = true
		return
	}
	r.version(root, o)
	fields := o.fields
	_, hasRoutes := fields["routes"]
	b.hasRoutes = b.hasRoutes || hasRoutes
	b.partial = b.partial || o.meant["routes"] || o.meant["defaults"] || o.meant["upstreams"]
	if f, ok := fields["defaults"]; ok {
		b.readDefaults(r, f)
	}
	if f, ok := fields["unknown_function"]; ok {
		b.readUnknown(r, f)
	}
	if f, ok := fields["upstreams"]; ok {
		b.readUpstreams(r, f)
	}
	if f, ok := fields["routes"]; ok {
		b.readRoutes(r, f)
	}
}

func (r *reader) version(root *yaml.Node, o object) {
	f, ok := o.fields["version"]
	switch {
	case !ok && o.meant["version"]:
	case !ok:
		r.problems.addf(r.at(root), "version is missing: write version: 1")
	case f.value.Kind != yaml.ScalarNode || (f.value.Tag != "!!int" && f.value.Tag != "!!float"):
		r.wrongf(f, "must be the number 1, not %s", kindOf(f.value))
	case f.value.Value != "1":
		r.wrongf(f, "must be 1, got %s", quoteWord(f.value.Value))
	}
}

func (b *builder) readDefaults(r *reader, f field) {
	if b.defaultsAt != (place{}) {
		b.addf(r.at(f.key), "defaults stand at %s already", b.defaultsAt)
		return
	}
	b.defaultsAt = r.at(f.key)
	defaults, ok := r.settings(f.path, f.value, b.env)
	b.defaults, b.partial = defaults, b.partial || !ok
}

func (b *builder) readUnknown(r *reader, f field) {
	if b.unknownAt != (place{}) {
		b.addf(r.at(f.key), "unknown_function stands at %s already", b.unknownAt)
		return
	}
	b.unknownAt = r.at(f.key)
	if word := r.word(f, "fail", "ignore"); word != nil {
		b.ignoreUnknown = *word == "ignore"
	}
}

func (b *builder) readUpstreams(r *reader, f field) {
	fields, ok := r.mapping(f.path, f.value)
	b.partial = b.partial || !ok
	for _, u := range fields {
		if first, twice := b.upstreams[u.name]; twice {
			b.addf(r.at(u.key), "upstream %s stands at %s too", quoteWord(u.name), first.at)
			continue
		}
		b.upstreams[u.name] = b.readUpstream(r, u)
	}
}

func (b *builder) readUpstream(r *reader, f field) *upstream {
	u := &upstream{name: f.name, at: r.at(f.key), service: &Service{Name: f.name}}
	if f.name == "" {
		b.addf(u.at, "the name of an upstream is empty")
	}
	o, ok := r.object(f.path, f.value, keys{
		now:   append([]string{"url", "headers", "auth", "tls", "sign"}, limitKeys()...),
		where: routeKeyPlaces(),
	})
	if !ok {
		return u
	}
	if headers, ok := o.fields["headers"]; ok {
		u.headers = r.headers(headers, b.env)
	}
	if url, ok := o.fields["url"]; ok {
		u.url = r.url(url, b.env)
	} else if o.missing("url") {
		b.addf(u.at, "%s: url is missing", f.path)
	}
	b.readService(r, u, o, f.path)
	return u
}

// readService reads what the routes of an upstream share.
func (b *builder) readService(r *reader, u *upstream, o object, path string) {
	u.service.Limits = r.limits(o.fields).limits()
	if f, ok := o.fields["auth"]; ok {
		u.service.Auth = r.auth(f, b.env)
		b.checkAuth(u, path, r.at(f.key))
	}
	if f, ok := o.fields["sign"]; ok {
		u.service.Sign, u.signAt = r.sign(f, b.env), r.at(f.key)
	}
	if f, ok := o.fields["tls"]; ok {
		u.service.TLS = r.tls(f, b.env)
		b.warnOfUselessTLS(u, path, r.at(f.key))
	}
}

func (b *builder) readRoutes(r *reader, f field) {
	fields, _ := r.mapping(f.path, f.value)
	for _, route := range fields {
		at := r.at(route.key)
		if first, twice := b.byName[route.name]; twice {
			b.addf(at, "route %s stands at %s too", quoteWord(route.name), first.at)
			continue
		}
		if route.name == "" {
			b.addf(at, "the name of a route is empty")
		}
		d := &draft{name: route.name, path: route.path, at: at}
		d.settings, d.ok = b.readRoute(r, route)
		b.byName[d.name] = d
		b.routes = append(b.routes, d)
	}
}

// readRoute reads a route: a plain URL, or its keys.
func (b *builder) readRoute(r *reader, f field) (settings, bool) {
	if f.value.Kind == yaml.ScalarNode && isText(f.value) {
		url := r.url(f, b.env)
		return settings{target: target{url: url, broken: url == nil}}, url != nil
	}
	if f.value.Kind != yaml.MappingNode {
		r.wrongf(f, "must be a URL or a mapping, not %s", kindOf(f.value))
		return settings{}, false
	}
	return r.settings(f.path, f.value, b.env)
}

// finish applies defaults and upstreams and returns the table, or its problems.
func (b *builder) finish(file string) (*Table, error) {
	if !b.hasRoutes && !b.partial {
		b.addf(place{file, 1, 1}, "routes are missing%s", howToWrite("routes"))
	}
	if u := b.defaults.target.upstream; u != nil && b.upstreams[u.name] == nil {
		b.unknownUpstream(u)
	}
	t := &Table{byName: make(map[string]*Route, len(b.routes)), env: b.env, ignoreUnknown: b.ignoreUnknown}
	for _, d := range b.routes {
		if !d.ok {
			continue
		}
		route := b.route(d)
		t.routes = append(t.routes, route)
		t.byName[route.Name] = route
		t.toolWarnings = append(t.toolWarnings, toolWarnings(route, d)...)
	}
	b.warnOfLiteralSecrets()
	b.warnOfUnsigned()
	mistakes, warnings := b.split()
	if len(mistakes) > 0 {
		return nil, mistakes
	}
	t.warnings = warnings
	slices.SortStableFunc(t.toolWarnings, Problem.Compare)
	return t, nil
}

func (b *builder) route(d *draft) *Route {
	s := d.settings.over(b.defaults)
	method := value(s.method, "POST")
	route := &Route{
		Name:        d.name,
		Description: value(s.description, ""),
		Method:      method,
		Idempotent:  value(s.idempotent, method != "POST" && method != "PATCH"),
		Timeout:     value(s.timeout, defaultTimeout),
		Retry:       b.retry(d, s.retry),
		Result:      result(s.result),
	}
	route.AttemptTimeout = min(value(s.attemptTimeout, route.Timeout), route.Timeout)
	if s.parameters != nil {
		route.Parameters, route.schema = s.parameters.text, s.parameters.schema
	}
	to := b.resolve(d, s.target)
	if s.target.upstream != nil {
		route.Upstream = s.target.upstream.name
	}
	headers := overlayHeaders(to.headers, s.headers)
	route.request = newBlueprint(route.Name, route.Method, to.address, s.query, headers)
	route.Limits = s.limits.limits()
	route.HoldUnknown = s.onUnknown != nil && s.onUnknown.hold
	route.Async, route.DeferLoading = value(s.async, false), value(s.deferLoading, false)
	route.Recover = b.recovery(route, s.question, to, headers)
	b.warnOfNeverAsked(d, route)
	b.body(d, route, s.body)
	b.warnOfCutting(s.result)
	b.join(route, to.upstream, s.headers)
	b.checkNames(d, route)
	return route
}

// join makes a route one of its upstream's; headers are those that it has besides.
func (b *builder) join(route *Route, u *upstream, headers []headerTemplate) {
	if u == nil {
		return
	}
	route.Service = u.service
	b.warnOfOwnCredential(u, headers)
	switch {
	case route.request.bodyless:
		u.unsigned = append(u.unsigned, route.Name)
	case route.Recover != nil && !route.Idempotent:
		u.unsigned = append(u.unsigned, route.Name+".recover")
	}
}

// destination is where a route sends.
type destination struct {
	address address
	// base is the URL that recover's path is put after: that of the upstream, or the
	// origin of a route's own. It is nil when the target cannot be used.
	base *address
	// upstream is nil for a route with its own url.
	upstream *upstream
	// headers are those of the upstream.
	headers []headerTemplate
}

// resolve joins upstream and path.
func (b *builder) resolve(d *draft, t target) destination {
	switch {
	case t.broken:
		if t.upstream != nil && b.upstreams[t.upstream.name] == nil {
			b.unknownUpstream(t.upstream)
		}
	case t.url != nil:
		return destination{address: *t.url, base: t.url}
	case t.upstream == nil && b.partial:
	case t.upstream == nil && t.path != nil:
		b.addf(d.at, "%s: path needs an upstream", d.path)
	case t.upstream == nil:
		b.addf(d.at, "%s: where to send is missing: url, or upstream and path", d.path)
	default:
		return b.resolveUpstream(d, t)
	}
	return destination{}
}

func (b *builder) resolveUpstream(d *draft, t target) destination {
	u, known := b.upstreams[t.upstream.name]
	switch {
	case !known:
		b.unknownUpstream(t.upstream)
	case t.path == nil && b.partial:
	case t.path == nil:
		b.addf(d.at, "%s: path is missing: an upstream needs one", d.path)
	case u.url != nil:
		joined, err := joinAddress(*u.url, *t.path, b.env)
		if err != nil {
			b.addf(d.at, "%s: %s", d.path, err)
			return destination{}
		}
		return destination{address: joined, base: u.url, upstream: u, headers: u.headers}
	}
	return destination{}
}

func (b *builder) unknownUpstream(u *upstreamName) {
	if b.partial {
		return
	}
	names := slices.Sorted(maps.Keys(b.upstreams))
	b.addf(u.at, "%s: unknown upstream %s%s", u.path, quoteWord(u.name), didYouMean(u.name, names))
}

func (b *builder) retry(d *draft, s retrySettings) Retry {
	r := Retry{
		Attempts: int(value(s.attempts, defaultAttempts)),
		MinWait:  value(s.minWait, defaultMinWait),
		MaxWait:  value(s.maxWait, defaultMaxWait),
		On503:    value(s.on503, true),
	}
	if r.MinWait > r.MaxWait {
		at := s.at
		path := "defaults.retry"
		if d.settings.retry.at == at {
			path = d.path + ".retry"
		}
		b.addf(at, "%s: min_wait %s is longer than max_wait %s", path, r.MinWait, r.MaxWait)
	}
	return r
}

func result(s resultSettings) Result {
	return Result{
		MaxBytes:      value(s.maxBytes, defaultMaxBytes),
		MaxImageBytes: value(s.maxBytes, defaultMaxImageBytes),
		Truncate:      value(s.onOversize, "") == "truncate",
		Expose:        Expose(value(s.expose, "")),
		Content:       value(s.as, "") == "content",
		HTML:          value(s.html, false),
		SuccessWhen:   s.successWhen.compiled(),
		Output:        s.output.compiled(),
		Error:         s.failure.compiled(),
	}
}

func value[T any](pointer *T, fallback T) T {
	if pointer != nil {
		return *pointer
	}
	return fallback
}

// Parse reads a table of one file. The error is of type Problems.
func Parse(file string, data []byte, env Env) (*Table, error) {
	return parseFiles([]source{{file, data}}, env)
}

// source is one file of a table.
type source struct {
	name string
	data []byte
}

func (s source) equal(other source) bool {
	return s.name == other.name && bytes.Equal(s.data, other.data)
}

func parseFiles(files []source, env Env) (*Table, error) {
	b := newBuilder(env)
	for _, f := range files {
		b.file(f.name, f.data)
	}
	t, err := b.finish(files[0].name)
	if err != nil {
		return nil, err
	}
	t.revision = revision(files)
	return t, nil
}
