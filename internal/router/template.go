package router

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// piece is a part of a value: literal text, a mark or an expression.
type piece struct {
	literal string
	mark    *mark
	expr    *expression
}

// expression is one {…} of RFC 6570.
type expression struct {
	// operator is 0 for {x}, or one of / ? &.
	operator byte
	vars     []variable
	// text is the expression as it stands in the file; path and at say where.
	text, path string
	at         place
}

// variable is one name in an expression.
type variable struct {
	name string
	// path leads to the argument, from the outermost object inwards; nil for a
	// value of the bridge's own.
	path []string
	// own names the bridge's value: call.id, say, or session.metadata. with key.
	own string
	key string
	// explode is *, optional is ? (of session.metadata.KEY alone).
	explode, optional bool
}

// The values that templates have from the bridge.
const (
	ownMetadata = "session.metadata."
	ownAgentID  = "session.agent_id"
	ownCallID   = "call.id"
	ownName     = "call.name"
	ownSession  = "call.session_id"
	ownTurn     = "call.turn_id"
	ownKey      = "call.idempotency_key"
)

func ownNames() []string {
	return []string{ownAgentID, ownCallID, ownName, ownSession, ownTurn, ownKey, ownMetadata + "KEY"}
}

// rawPiece is what scan finds; offset counts bytes in the value.
type rawPiece struct {
	literal    string
	variable   string // between ${ and }
	expression string // between { and }
	isMark     bool
	isExpr     bool
}

// scan splits a value into literal text, ${…} and {…}. $$ is a dollar sign, and
// so is one that no brace follows.
func scan(text string) ([]rawPiece, error) {
	var pieces []rawPiece
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			pieces = append(pieces, rawPiece{literal: literal.String()})
			literal.Reset()
		}
	}
	for {
		i := strings.IndexAny(text, "${}")
		if i < 0 {
			literal.WriteString(text)
			flush()
			return pieces, nil
		}
		literal.WriteString(text[:i])
		p, size, err := scanPiece(text[i:])
		switch {
		case err != nil:
			return nil, err
		case p.isMark || p.isExpr:
			flush()
			pieces = append(pieces, p)
		default:
			literal.WriteString(p.literal)
		}
		text = text[i+size:]
	}
}

// scanPiece reads what begins with a dollar sign or a brace; size is how long
// it is in the text.
func scanPiece(text string) (p rawPiece, size int, err error) {
	switch {
	case strings.HasPrefix(text, "$$"):
		return rawPiece{literal: "$"}, len("$$"), nil
	case strings.HasPrefix(text, "${"):
		inner, _, closed := strings.Cut(text[len("${"):], "}")
		if !closed {
			return p, 0, errors.New("${ without its }")
		}
		return rawPiece{variable: inner, isMark: true}, len(inner) + len("${}"), nil
	case text[0] == '$':
		return rawPiece{literal: "$"}, len("$"), nil
	case text[0] == '}':
		return p, 0, errors.New("} without its {")
	}
	inner, _, closed := strings.Cut(text[len("{"):], "}")
	if name, doubled := strings.CutPrefix(inner, "{"); doubled && closed && !strings.Contains(name, "{") {
		return p, 0, fmt.Errorf("{{%s}}: write {%s}, with one brace", short(name), short(strings.TrimSpace(name)))
	}
	if !closed || strings.Contains(inner, "{") {
		return p, 0, errors.New("{ without its }")
	}
	return rawPiece{expression: inner, isExpr: true}, len(inner) + len("{}"), nil
}

// parseExpression reads what stands between { and }.
func parseExpression(inner string) (*expression, error) {
	e := &expression{text: "{" + inner + "}"}
	if inner == "" {
		return nil, errors.New("{} names no argument")
	}
	switch c := inner[0]; c {
	case '/', '?', '&':
		e.operator, inner = c, inner[1:]
	case '+', '#', '.', ';', '=', ',', '!', '@', '|':
		return nil, fmt.Errorf("the operator %c in %s is not supported: use {x}, {/x}, {?x} or {&x}", c, e.text)
	}
	for word := range strings.SplitSeq(inner, ",") {
		v, err := parseVariable(word, e.text)
		if err != nil {
			return nil, err
		}
		e.vars = append(e.vars, v)
	}
	return e, nil
}

func parseVariable(word, in string) (variable, error) {
	v := variable{name: word}
	v.name, v.explode = strings.CutSuffix(v.name, "*")
	v.name, v.optional = strings.CutSuffix(v.name, "?")
	if strings.Contains(v.name, ":") {
		return v, fmt.Errorf("the prefix in %s is not supported", in)
	}
	parts := strings.Split(v.name, ".")
	if slices.ContainsFunc(parts, func(p string) bool { return !isName(p) }) {
		return v, fmt.Errorf("bad name in %s: letters, digits, - _ $, and dots between them", in)
	}
	reserved := len(parts) > 1 && (parts[0] == "call" || parts[0] == "session")
	if !reserved {
		v.path = parts
		if v.optional {
			return v, fmt.Errorf("%s: only {session.metadata.KEY?} can be optional; {?x} leaves a missing argument out", in)
		}
		return v, nil
	}
	return reservedVariable(v, in)
}

// reservedVariable binds a call. or session. name, which no argument can be.
func reservedVariable(v variable, in string) (variable, error) {
	if key, ok := strings.CutPrefix(v.name, ownMetadata); ok {
		v.own, v.key = ownMetadata, key
		return v, nil
	}
	if !slices.Contains(ownNames(), v.name) {
		near := didYouMean(v.name, ownNames())
		return v, fmt.Errorf("unknown name %s in %s%s: call. and session. are reserved", v.name, in, near)
	}
	if v.optional {
		return v, fmt.Errorf("%s: only {session.metadata.KEY?} can be optional", in)
	}
	v.own = v.name
	return v, nil
}

func isName(part string) bool {
	return part != "" && strings.IndexFunc(part, func(r rune) bool {
		return !isAlphanumeric(r) && r != '-' && r != '_' && r != '$'
	}) < 0
}

func isAlphanumeric(r rune) bool {
	return (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9')
}

// pieces reads a value: the marks resolved, the expressions parsed, the literal
// text still as it is in the file. Every problem is reported.
func (r *reader) pieces(f field, env *environment) ([]piece, bool) {
	raw, err := scan(f.value.Value)
	if err != nil {
		r.wrongf(f, "%s", err)
		return nil, false
	}
	pieces, good := make([]piece, 0, len(raw)), true
	for _, p := range raw {
		switch {
		case p.isMark:
			m, ok := r.mark(f, p.variable, env)
			good = good && ok
			pieces = append(pieces, piece{mark: m})
		case p.isExpr:
			e, err := parseExpression(p.expression)
			if err != nil {
				r.wrongf(f, "%s", err)
				good = false
			} else {
				e.path, e.at = f.path, r.at(f.value)
			}
			pieces = append(pieces, piece{expr: e})
		default:
			pieces = append(pieces, piece{literal: p.literal})
		}
	}
	return pieces, good
}

func (r *reader) mark(f field, inner string, env *environment) (*mark, bool) {
	name, fallback, hasFallback, err := parseMark(inner)
	if err != nil {
		r.wrongf(f, "%s", err)
		return nil, false
	}
	m, ok := env.resolve(name, fallback, hasFallback)
	switch {
	case ok && m.value == "" && !hasFallback:
		r.problems.warnf(r.at(f.value), "%s: the variable %s is set, but empty; write ${%s:-} if that is meant", f.path, name, name)
	case ok:
	case env.env.AllowUnset:
		r.problems.warnf(r.at(f.value), "%s: the variable %s is not set", f.path, name)
	default:
		r.wrongf(f, "the variable %s is not set", name)
	}
	return &m, ok || env.env.AllowUnset
}

// withPlaceholders gives the variables of a URL that are not set a value that
// fits where they stand, so that the rest of the URL can be checked.
func withPlaceholders(head []piece) []piece {
	filled := slices.Clone(head)
	for i, p := range filled {
		if p.mark == nil || !p.mark.unset {
			continue
		}
		m := mark{key: p.mark.key, value: "1"} // good as a host, a port and in a path
		switch {
		case i == 0 && len(head) > 1 && strings.HasPrefix(head[1].literal, "://"):
			m.value = "http"
		case i == 0:
			m.value = "http://1"
		}
		filled[i].mark = &m
	}
	return filled
}
