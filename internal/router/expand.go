package router

import (
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
)

// expansion fills the templates of one call.
type expansion struct {
	args   gjson.Result
	values Values
}

func argumentErrorf(format string, args ...any) *ArgumentError {
	return &ArgumentError{Sentence: fmt.Sprintf(format, args...)}
}

// operand is the value of a variable: text, a list or an object of texts, or
// nothing.
type operand struct {
	kind operandKind
	text string
	list []string
	// names are those of an object's members, whose values are in list.
	names []string
	// problem says why there is nothing: missing, null or empty.
	problem string
}

type operandKind int

const (
	nothing operandKind = iota
	aText
	aList
	anObject
)

// url renders scheme, host and path, and checks that the path stays in place.
func (e *expansion) url(head []piece) (string, error) {
	var request, sent strings.Builder
	templated := false
	for _, p := range head {
		switch {
		case p.mark != nil:
			request.WriteString("${" + p.mark.key + "}")
			sent.WriteString(plainText(p))
		case p.expr == nil:
			request.WriteString(p.literal)
			sent.WriteString(p.literal)
		default:
			templated = true
			text, err := e.pathText(p.expr)
			if err != nil {
				return "", err
			}
			request.WriteString(text)
			sent.WriteString(text)
		}
	}
	if templated && !staysInPlace(sent.String()) {
		return "", argumentErrorf("The arguments make a path that leaves its place.")
	}
	return request.String(), nil
}

// staysInPlace checks a finished URL: decoded, its path has no dot segments and
// no U+0000.
func staysInPlace(address string) bool {
	_, rest, _ := strings.Cut(address, "://")
	path, _, _ := strings.Cut(rest, "?")
	decoded, ok := decode(path)
	return ok && !leavesPath(decoded)
}

// pathText renders {x} or {/x}.
func (e *expansion) pathText(expr *expression) (string, error) {
	separator := ","
	if expr.operator == '/' {
		separator = "/"
	}
	parts := make([]string, 0, len(expr.vars))
	for _, v := range expr.vars {
		o, err := e.required(v)
		if err != nil {
			return "", err
		}
		if err := v.checkPath(o); err != nil {
			return "", err
		}
		parts = append(parts, o.join(v.explode, separator))
	}
	text := strings.Join(parts, separator)
	if expr.operator == '/' {
		text = "/" + text
	}
	return text, nil
}

// checkPath refuses values that could move the path.
func (v variable) checkPath(o operand) error {
	values := append(append([]string{o.text}, o.list...), o.names...)
	if o.kind != aText {
		values = values[1:]
	}
	for _, value := range values {
		if value == "" {
			return v.errorf("holds an empty part, which a path cannot have")
		}
		if leavesPath(value) {
			return v.errorf("cannot stand in a path: it holds . or .. as a part, or U+0000")
		}
	}
	return nil
}

// join is the simple expansion of RFC 6570.
func (o operand) join(explode bool, separator string) string {
	if o.kind == aText {
		return encodeValue(o.text)
	}
	if !explode {
		separator = ","
	}
	var out strings.Builder
	for i, item := range o.list {
		if i > 0 {
			out.WriteString(separator)
		}
		if o.kind == anObject {
			out.WriteString(encodeValue(o.names[i]))
			if explode {
				out.WriteByte('=')
			} else {
				out.WriteByte(',')
			}
		}
		out.WriteString(encodeValue(item))
	}
	return out.String()
}

// pair is one query pair that an expression made.
type pair struct {
	encoded string
	// name is free when it is the caller's choice, as in an exploded object.
	name     string
	free     bool
	argument string
}

// pairs renders {?x} or {&x}; what is missing, null or empty is left out.
func (e *expansion) pairs(expr *expression) ([]pair, error) {
	var pairs []pair
	for _, v := range expr.vars {
		o, err := e.operand(v)
		if err != nil {
			return nil, err
		}
		if o.kind == nothing {
			continue
		}
		name := escapeDollar(v.name)
		switch {
		case !v.explode || o.kind == aText:
			pairs = append(pairs, pair{encoded: name + "=" + o.join(false, ",")})
		case o.kind == aList:
			for _, item := range o.list {
				pairs = append(pairs, pair{encoded: name + "=" + encodeValue(item)})
			}
		default:
			for i, item := range o.list {
				pairs = append(pairs, pair{encodeValue(o.names[i]) + "=" + encodeValue(item), o.names[i], true, v.name})
			}
		}
	}
	return pairs, nil
}

// text renders a header or query value; present is false when an optional name
// leaves it out.
func (e *expansion) text(pieces []piece, render func(*expression) (string, bool, error)) (text string, present bool, err error) {
	var out strings.Builder
	for _, p := range pieces {
		switch {
		case p.mark != nil:
			out.WriteString("${" + p.mark.key + "}")
		case p.expr == nil:
			out.WriteString(p.literal)
		default:
			text, present, err := render(p.expr)
			if err != nil || !present {
				return "", false, err
			}
			out.WriteString(text)
		}
	}
	return out.String(), true, nil
}

// queryValue renders {x} in a query value.
func (e *expansion) queryValue(expr *expression) (string, bool, error) {
	parts := make([]string, 0, len(expr.vars))
	for _, v := range expr.vars {
		o, err := e.required(v)
		if err != nil {
			return "", false, err
		}
		if o.kind == nothing {
			return "", false, nil
		}
		parts = append(parts, o.join(v.explode, ","))
	}
	return strings.Join(parts, ","), true, nil
}

// headerValue renders {name} in a header: as it is.
func (e *expansion) headerValue(expr *expression) (string, bool, error) {
	v := expr.vars[0]
	o, err := e.required(v)
	switch {
	case err != nil:
		return "", false, err
	case o.kind == nothing:
		return "", false, nil
	case o.kind != aText:
		return "", false, v.errorf("must be text, a number or a boolean")
	case strings.ContainsFunc(o.text, isControl):
		return "", false, v.errorf("holds a line break or another control character")
	}
	return escapeDollar(strings.ToValidUTF8(o.text, "\uFFFD")), true, nil
}

// required is the value of a variable that must be there, unless it is
// optional.
func (e *expansion) required(v variable) (operand, error) {
	o, err := e.operand(v)
	if err == nil && o.kind == nothing && !v.optional {
		return o, v.errorf("is %s", o.problem)
	}
	return o, err
}

// operand finds the value of a variable.
func (e *expansion) operand(v variable) (operand, error) {
	if v.own != "" {
		text := e.values.own(v)
		if text == "" && !v.optional {
			return operand{}, &ValueError{Name: v.name}
		}
		return textOperand(text), nil
	}
	value := e.args
	for i, name := range v.path {
		if i > 0 && value.Type == gjson.Null {
			break
		}
		if !value.IsObject() {
			return operand{}, argumentErrorf("The argument %s must be an object.", strings.Join(v.path[:i], "."))
		}
		value = member(value, name)
	}
	return v.read(value)
}

// own is the bridge's value for a name, empty when there is none.
func (v Values) own(name variable) string {
	switch name.own {
	case ownMetadata:
		return v.Metadata[name.key]
	case ownAgentID:
		return v.AgentID
	case ownCallID:
		return v.CallID
	case ownName:
		return v.FunctionName
	case ownSession:
		return v.SessionID
	case ownTurn:
		return v.TurnID
	case ownKey:
		return v.IdempotencyKey
	}
	return ""
}

// member is the member of an object with exactly this name.
func member(object gjson.Result, name string) gjson.Result {
	var found gjson.Result
	object.ForEach(func(key, value gjson.Result) bool {
		if key.String() == name {
			found = value
			return false
		}
		return true
	})
	return found
}

func textOperand(text string) operand {
	if text == "" {
		return operand{problem: "empty"}
	}
	return operand{kind: aText, text: text}
}

// read turns a JSON value into an operand. Lists and objects hold texts,
// numbers and booleans; null in them is left out.
func (v variable) read(value gjson.Result) (operand, error) {
	switch {
	case !value.Exists():
		return operand{problem: "missing"}, nil
	case value.Type == gjson.Null:
		return operand{problem: "null"}, nil
	case value.Type != gjson.JSON:
		return textOperand(plain(value)), nil
	}
	o := operand{kind: aList}
	if value.IsObject() {
		o.kind = anObject
	}
	var failed error
	value.ForEach(func(key, item gjson.Result) bool {
		switch item.Type {
		case gjson.Null:
			return true
		case gjson.JSON:
			failed = v.errorf("must hold only texts, numbers and booleans")
			return false
		default:
		}
		o.list = append(o.list, plain(item))
		if o.kind == anObject {
			o.names = append(o.names, key.String())
		}
		return true
	})
	if len(o.list) == 0 && failed == nil {
		return operand{problem: "empty"}, nil
	}
	return o, failed
}

// plain is the text of a value: a number as it was sent, an object or array as
// JSON.
func plain(value gjson.Result) string {
	if value.Type == gjson.String {
		return value.Str
	}
	return value.Raw
}

// errorf blames the argument, or the operator for a value of the bridge's own.
func (v variable) errorf(format string, args ...any) error {
	reason := fmt.Sprintf(format, args...)
	if v.own != "" {
		return &ValueError{Name: v.name, Reason: reason}
	}
	return argumentErrorf("The argument %s %s.", v.name, reason)
}
