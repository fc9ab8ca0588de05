package router

import (
	"slices"
	"strings"
)

// headerTemplate is one header of a route; pieces hold only literals, marks and
// plain expressions of one name.
type headerTemplate struct {
	name   string
	pieces []piece
	at     place
}

// headers reads a headers mapping.
func (r *reader) headers(f field, env *environment) []headerTemplate {
	fields, ok := r.mapping(f.path, f.value)
	if !ok {
		return nil
	}
	var headers []headerTemplate
	for _, h := range fields {
		if problem := headerNameProblem(h.name); problem != "" {
			r.problems.addf(r.at(h.key), "%s: %s", h.path, problem)
			continue
		}
		if i := indexHeader(headers, h.name); i >= 0 {
			r.problems.addf(r.at(h.key), "%s: duplicate header: it stands at %s too (case makes no difference)", h.path, headers[i].at)
			continue
		}
		pieces, ok := r.headerPieces(h, env)
		if !ok {
			// It is kept, so that a second one is still seen as a duplicate.
			pieces = nil
		}
		headers = append(headers, headerTemplate{name: h.name, pieces: pieces, at: r.at(h.key)})
	}
	return headers
}

func (r *reader) headerPieces(h field, env *environment) ([]piece, bool) {
	if !r.isScalar(h) {
		return nil, false
	}
	pieces, good := r.pieces(h, env)
	for i, p := range pieces {
		if problem := headerProblem(p); problem != "" {
			r.wrongf(h, "%s", problem)
			good = false
		}
		pieces[i].literal = escapeDollar(p.literal)
	}
	r.warnOfDollars(h, h.value.Value)
	if problem := hostProblem(pieces); good && strings.EqualFold(h.name, "Host") && problem != "" {
		r.wrongf(h, "%s", problem)
		good = false
	}
	return pieces, good
}

// headerProblem says why a piece cannot stand in a header, or is empty.
func headerProblem(p piece) string {
	switch {
	case p.expr != nil && (p.expr.operator != 0 || len(p.expr.vars) != 1 || p.expr.vars[0].explode):
		return p.expr.text + ": a header knows only {name}"
	case p.mark != nil && strings.ContainsFunc(p.mark.value, isControl):
		return "the value of " + showMark(p.mark.key) + " holds a line break or another control character"
	case strings.ContainsFunc(p.literal, isControl):
		return "a header holds no line break or other control character"
	}
	return ""
}

// hostProblem says why a value cannot be the request's host, or is empty.
func hostProblem(pieces []piece) string {
	var host strings.Builder
	for _, p := range pieces {
		switch {
		case p.expr != nil:
			return p.expr.text + ": no template can change the host"
		case p.mark != nil && p.mark.unset:
			return ""
		case p.mark != nil:
			host.WriteString(p.mark.value)
		default:
			host.WriteString(p.literal)
		}
	}
	if strings.Contains(host.String(), "@") || checkAuthority("http", host.String()) != nil {
		return "must be a host, with a port or without"
	}
	return ""
}

// headerNameProblem says why a route cannot set a header, or is empty.
func headerNameProblem(name string) string {
	if name == "" || strings.IndexFunc(name, func(r rune) bool { return !isTokenChar(r) }) >= 0 {
		return "not a header name"
	}
	lower := strings.ToLower(name)
	switch {
	case lower == "idempotency-key" || strings.HasPrefix(lower, "bridge-"):
		return "the bridge sets this header itself"
	case strings.HasPrefix(lower, "webhook-"):
		return "webhook-* headers are set by signing"
	case lower == "content-length" || slices.Contains(hopByHop(), lower):
		return "this header belongs to the connection and cannot be set"
	}
	return ""
}

// isTokenChar: RFC 9110, section 5.6.2.
func isTokenChar(r rune) bool {
	return isAlphanumeric(r) || (r < 0x80 && strings.ContainsRune("!#$%&'*+-.^_`|~", r))
}

// hopByHop: RFC 9110, section 7.6.1, and what older software knows.
func hopByHop() []string {
	return []string{
		"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
		"te", "trailer", "transfer-encoding", "upgrade",
	}
}

func indexHeader(headers []headerTemplate, name string) int {
	return slices.IndexFunc(headers, func(h headerTemplate) bool { return strings.EqualFold(h.name, name) })
}

// overlayHeaders puts the upper headers over the lower ones, by name.
func overlayHeaders(lower, upper []headerTemplate) []headerTemplate {
	if len(lower) == 0 {
		return upper
	}
	merged := slices.Clone(lower)
	for _, h := range upper {
		if i := indexHeader(merged, h.name); i >= 0 {
			merged[i] = h
		} else {
			merged = append(merged, h)
		}
	}
	return merged
}

// parameter is one entry of a query mapping.
type parameter struct {
	name   string
	pieces []piece
}

// query reads a query mapping.
func (r *reader) query(f field, env *environment) []parameter {
	fields, ok := r.mapping(f.path, f.value)
	if !ok {
		return nil
	}
	var parameters []parameter
	for _, q := range fields {
		if q.name == "" {
			r.problems.addf(r.at(q.key), "%s: the name of a query parameter is empty", q.path)
			continue
		}
		if !r.isScalar(q) {
			continue
		}
		if pieces, ok := r.queryPieces(q, env); ok {
			parameters = append(parameters, parameter{q.name, pieces})
		}
	}
	return parameters
}

func (r *reader) queryPieces(q field, env *environment) ([]piece, bool) {
	values, good := r.pieces(q, env)
	pieces := []piece{{literal: encodeValue(q.name) + "="}}
	for _, p := range values {
		switch {
		case p.expr != nil && p.expr.operator != 0:
			r.wrongf(q, "%s: a query value knows {x} only", p.expr.text)
			good = false
		case p.expr == nil && p.mark == nil:
			p.literal = encodeValue(p.literal)
		}
		pieces = append(pieces, p)
	}
	r.warnOfDollars(q, q.value.Value)
	return pieces, good
}

func overlayQuery(lower, upper []parameter) []parameter {
	merged := slices.Clone(lower)
	for _, q := range upper {
		i := slices.IndexFunc(merged, func(m parameter) bool { return m.name == q.name })
		if i >= 0 {
			merged[i] = q
		} else {
			merged = append(merged, q)
		}
	}
	return merged
}
