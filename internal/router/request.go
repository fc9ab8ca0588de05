package router

import (
	"errors"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// blueprint is what a route's requests are built from.
type blueprint struct {
	// fixed is the request as far as it is the same for every call: all but the
	// body when the blueprint is static.
	fixed   Request
	address address
	headers []headerTemplate
	// bodyless methods send arguments that no template uses as query.
	bodyless bool
	// body makes bodies; nil where the arguments are the body.
	body *bodyMaker
	// static says that only the body depends on the call.
	static bool
	// used are the arguments that templates name.
	used map[string]bool
	// taken are the names of query parameters that no argument can set.
	taken map[string]bool
}

// newBlueprint prepares requests of the route that is called so.
func newBlueprint(route, method string, base address, query []parameter, headers []headerTemplate) blueprint {
	b := blueprint{
		fixed:    Request{Route: route, Method: method},
		address:  address{head: base.head, query: slices.Clone(base.query)},
		headers:  headers,
		bodyless: method == "GET" || method == "HEAD" || method == "DELETE",
		used:     map[string]bool{},
		taken:    map[string]bool{},
	}
	for _, q := range query {
		b.address.query = append(b.address.query, queryPart(q))
	}
	b.static = !b.bodyless
	b.note(base.head)
	for _, name := range markedNames(base.head) {
		b.taken[name] = true
	}
	for _, q := range b.address.query {
		b.note(q.pieces)
		b.take(q)
	}
	for _, h := range headers {
		b.note(h.pieces)
	}
	if b.static {
		b.fixed, _ = b.render(&expansion{}) // without expressions nothing can fail
		b.fixed.BodyIsArguments = true
	}
	return b
}

// note remembers which arguments a template names.
func (b *blueprint) note(pieces []piece) {
	for _, p := range pieces {
		if p.expr == nil {
			continue
		}
		b.static = false
		for _, v := range p.expr.vars {
			if v.own == "" {
				b.used[v.path[0]] = true
			}
		}
	}
}

// take remembers the names of query parameters that no argument can set: those
// that the file writes, and the bridge's own values.
func (b *blueprint) take(q queryPart) {
	if q.name != "" {
		b.taken[q.name] = true
		return
	}
	for _, v := range q.variables() {
		if v.own != "" {
			b.taken[v.name] = true
		}
	}
}

// variables are those of {?…} or {&…}, none for a literal pair.
func (q queryPart) variables() []variable {
	if first := q.pieces[0].expr; first != nil && first.operator != 0 {
		return first.vars
	}
	return nil
}

// joinAddress puts a path after the URL of an upstream; the query of the URL
// comes first in the query.
func joinAddress(base, path address, env *environment) (address, error) {
	head := slices.Clone(base.head)
	if last := len(head) - 1; len(path.head) > 0 {
		head[last] = env.withoutSlash(head[last])
	}
	joined := address{head: slices.Concat(head, path.head), query: slices.Concat(base.query, path.query)}
	if problem := markedProblem(joined.head); problem != "" {
		return address{}, errors.New(problem)
	}
	return joined, nil
}

// Build makes the request of one call. args is one valid JSON object without
// duplicate keys, and is kept as the body where no program makes one; the caller changes neither it nor the
// slices of the result. The error is an *ArgumentError or a *ValueError.
func (r *Route) Build(args []byte, v Values) (Request, error) {
	b := &r.request
	if b.static {
		request := b.fixed
		return request, b.addBody(&request, args, v)
	}
	e := &expansion{args: gjson.ParseBytes(args), values: v}
	request, err := b.render(e)
	if err != nil {
		return Request{}, err
	}
	if !b.bodyless {
		return request, b.addBody(&request, args, v)
	}
	request.Query, err = b.appendUnused(request.Query, e)
	return request, err
}

// Constant returns the request of a route whose requests differ in nothing but
// the arguments, which are their body and are missing here; not ok for others.
func (r *Route) Constant() (Request, bool) {
	return r.request.fixed, r.request.static && r.request.body == nil
}

// addBody gives a request its body: what the route's program makes of the arguments,
// else the arguments as they are.
func (b *blueprint) addBody(to *Request, args []byte, v Values) error {
	if b.body == nil {
		to.Body, to.BodyIsArguments = args, true
		return nil
	}
	var err error
	to.Body, err = b.body.make(args, v)
	return err
}

// BuildRecover renders the question about an earlier request of the call, with
// the headers of the route and no body; Recover must be set. Errors are those of
// Build.
func (r *Route) BuildRecover(args []byte, v Values) (Request, error) {
	return r.Recover.request.render(&expansion{args: gjson.ParseBytes(args), values: v})
}

// render fills the templates in.
func (b *blueprint) render(e *expansion) (Request, error) {
	request := Request{Route: b.fixed.Route, Method: b.fixed.Method}
	var err error
	if request.URL, err = e.url(b.address.head); err != nil {
		return Request{}, err
	}
	for _, part := range b.address.query {
		if request.Query, err = b.appendPart(request.Query, part, e); err != nil {
			return Request{}, err
		}
	}
	for _, h := range b.headers {
		value, present, err := e.text(h.pieces, e.headerValue)
		if err != nil {
			return Request{}, err
		}
		if present {
			request.Headers = append(request.Headers, Header{Name: h.name, Value: value})
		}
	}
	return request, nil
}

// appendPart adds what one part of the query template makes.
func (b *blueprint) appendPart(query []string, part queryPart, e *expansion) ([]string, error) {
	if first := part.pieces[0].expr; first != nil && first.operator != 0 {
		pairs, err := e.pairs(first)
		if err != nil {
			return nil, err
		}
		for _, p := range pairs {
			if p.free && b.taken[p.name] {
				return nil, argumentErrorf("The argument %s sets the query parameter %s, which is fixed.", p.argument, quoteWord(p.name))
			}
			query = append(query, p.encoded)
		}
		return query, nil
	}
	value, present, err := e.text(part.pieces, e.queryValue)
	if err != nil || !present {
		return query, err
	}
	if name := decodeName(value); part.name == "" && b.taken[name] {
		return nil, argumentErrorf("The arguments set the query parameter %s, which is fixed.", quoteWord(name))
	}
	return append(query, value), nil
}

// appendUnused adds the arguments that no template names: arrays repeat the
// key, objects are JSON, null is left out.
func (b *blueprint) appendUnused(query []string, e *expansion) ([]string, error) {
	var failed error
	e.args.ForEach(func(key, value gjson.Result) bool {
		name := key.String()
		switch {
		case b.used[name]:
		case b.taken[name]:
			failed = argumentErrorf("The argument %s cannot be set: it is fixed for this function.", quoteWord(name))
		case value.IsArray():
			value.ForEach(func(_, item gjson.Result) bool {
				query = appendPair(query, name, item)
				return true
			})
		default:
			query = appendPair(query, name, value)
		}
		return failed == nil
	})
	return query, failed
}

func appendPair(query []string, name string, value gjson.Result) []string {
	if value.Type == gjson.Null {
		return query
	}
	return append(query, encodeValue(name)+"="+encodeValue(plain(value)))
}

// Wire is a request as it is sent, secrets and all. It is never stored.
type Wire struct {
	Method, URL string
	Headers     []Header
	// Host is the request's host when a header sets it, else empty.
	Host string
	Body []byte
}

// Wire puts this table's values of ${VAR} in. It fails when the request names a
// variable that is not set.
func (t *Table) Wire(r Request) (Wire, error) {
	w := Wire{Method: r.Method, Body: r.Body}
	var err error
	if w.URL, err = t.wireURL(r); err != nil {
		return Wire{}, err
	}
	w.Headers, w.Host, err = t.wireHeaders(r.Headers)
	return w, err
}

func (t *Table) wireURL(r Request) (string, error) {
	address, err := t.env.fill(r.URL, encodeURLText)
	if err != nil || len(r.Query) == 0 {
		return address, err
	}
	var out strings.Builder
	out.WriteString(address)
	separator := byte('?')
	if strings.IndexByte(address, '?') >= 0 {
		separator = '&'
	}
	for _, pair := range r.Query {
		text, err := t.env.fill(pair, encodeValue)
		if err != nil {
			return "", err
		}
		out.WriteByte(separator)
		out.WriteString(text)
		separator = '&'
	}
	return out.String(), nil
}

func (t *Table) wireHeaders(headers []Header) (wired []Header, host string, err error) {
	if len(headers) == 0 {
		return nil, "", nil
	}
	wired = make([]Header, 0, len(headers))
	for _, h := range headers {
		value, err := t.env.fill(h.Value, func(s string) string { return s })
		if err != nil {
			return nil, "", err
		}
		if strings.ContainsFunc(value, isControl) {
			return nil, "", errors.New("a value for the header " + h.Name + " holds a control character")
		}
		if strings.EqualFold(h.Name, "Host") {
			host = value
			continue
		}
		wired = append(wired, Header{Name: h.Name, Value: value})
	}
	return wired, host, nil
}
