package router

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"functionbridge/internal/jq" //nolint:depguard // a leaf as well, which knows nothing of routes
)

// Program is a jq program of a route.
type Program = jq.Program

// program is one in a file.
type program struct {
	*Program

	// path is where it stands, such as routes.refund.body; its key is at at.
	path string
	at   place
}

// program reads and compiles a jq program with the variables that it may use; nil
// when it cannot be used.
func (r *reader) program(f field, variables ...string) *program {
	if f.value.Kind != yaml.ScalarNode || !isText(f.value) {
		r.wrongf(f, "must be a jq program in quotes, not %s", kindOf(f.value))
		return nil
	}
	compiled, problems := jq.Compile(f.value.Value, variables...)
	for _, p := range problems {
		r.programProblem(f, p)
	}
	if compiled == nil {
		return nil
	}
	r.warnOfVariables(f)
	return &program{compiled, f.path, r.at(f.key)}
}

func (r *reader) programProblem(f field, p jq.Problem) {
	at, inside := r.at(f.value), ""
	if p.Offset >= 0 {
		at, inside = r.within(f.value, p.Offset)
	}
	if p.Warning {
		r.problems.warnf(at, "%s: %s", f.path, p.Message)
		return
	}
	hint := didYouMean(p.Word, p.Known)
	if p.Word == callVariable || p.Word == sessionVariable {
		hint = ": only body has it"
	}
	r.problems.addf(at, "%s: bad jq program: %s%s%s", f.path, p.Message, hint, inside)
}

// variableInProgram matches what is a variable elsewhere.
var variableInProgram = regexp.MustCompile(`\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}`)

// warnOfVariables tells of ${VAR} in the strings of a program.
func (r *reader) warnOfVariables(f field) {
	for _, found := range variableInProgram.FindAllStringIndex(f.value.Value, -1) {
		at, inside := r.within(f.value, found[0])
		r.problems.warnf(at, "%s: %s stands for itself in a program%s", f.path, cut(f.value.Value[found[0]:found[1]], maxQuoted), inside)
	}
}

// within is the place of an offset in the text of a node. Where YAML writes that
// text in another way than it is, it is the place of the node, and inside says
// where in the text.
func (r *reader) within(n *yaml.Node, offset int) (at place, inside string) {
	line, column := jq.Position(n.Value, offset)
	at = r.at(n)
	if n.Style&yaml.LiteralStyle != 0 {
		written := lineOf(r.data, at.line+line)
		wanted := lineOf([]byte(n.Value), line)
		if strings.HasSuffix(written, wanted) {
			return place{at.file, at.line + line, utf8.RuneCountInString(written) - utf8.RuneCountInString(wanted) + column}, ""
		}
	} else if before, ok := asWritten(n, lineOf(r.data, at.line), at.column, offset); ok {
		return place{at.file, at.line, at.column + utf8.RuneCountInString(before)}, ""
	}
	return at, fmt.Sprintf(" (in line %d, column %d of the program)", line, column)
}

// asWritten is how a line of the file writes the text of a node up to an offset; not
// ok where it is written over several lines or with escapes that change it.
func asWritten(n *yaml.Node, line string, column, offset int) (before string, ok bool) {
	runes := []rune(line)
	rest := string(runes[min(column-1, len(runes)):])
	start := rest
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 && rest != "" {
		rest = rest[1:]
	}
	for _, c := range n.Value[:min(offset, len(n.Value))] {
		switch {
		case n.Style&yaml.SingleQuotedStyle != 0 && strings.HasPrefix(rest, "''"),
			n.Style&yaml.DoubleQuotedStyle != 0 && (strings.HasPrefix(rest, `\"`) || strings.HasPrefix(rest, `\\`)):
			rest = rest[1:]
		}
		var found bool
		if rest, found = strings.CutPrefix(rest, string(c)); !found {
			return "", false
		}
	}
	return start[:len(start)-len(rest)], true
}

// Variables of the program of a body.
const (
	callVariable    = "$call"
	sessionVariable = "$session"
)

// bodyMaker makes bodies of arguments.
type bodyMaker struct {
	program *Program
	// text says that a string is sent as it is, and not as JSON: the route sends
	// another type than JSON.
	text bool
	// limit bounds the arguments, in bytes.
	limit int64
}

// make runs the program on the arguments of a call. The error is an
// *ArgumentError.
func (m *bodyMaker) make(args []byte, v Values) ([]byte, error) {
	if int64(len(args)) > m.limit {
		return nil, argumentErrorf("The arguments are larger than %d bytes.", m.limit)
	}
	var body []byte
	var failed error
	if err := jq.Read(args, func(in jq.Input) { body, failed = m.run(in, v) }); err != nil {
		return nil, unusableArguments(err)
	}
	return body, unusableArguments(failed)
}

func (m *bodyMaker) run(in jq.Input, v Values) ([]byte, error) {
	output, err := m.program.Run(in, v.call(), v.session())
	if err != nil {
		return nil, err
	}
	if m.text && output.IsText() {
		text, err := output.Text()
		if text == "" {
			return nil, err // no body: an empty one would not outlast the journal
		}
		return []byte(text), err
	}
	return output.JSON()
}

// maxTold bounds, in letters, what a program says of a call.
const maxTold = 300

// unusableArguments words why no body can be made; nil for no error.
func unusableArguments(err error) error {
	if err == nil {
		return nil
	}
	said := "The arguments cannot be used: "
	if failed, ok := errors.AsType[*jq.RunError](err); ok && failed.Told == "" {
		said = "The arguments cannot be made into a request: "
	} else if !ok {
		said = "The arguments object "
	}
	why := strings.Join(strings.Fields(strings.Map(oneLine, err.Error())), " ")
	why = strings.TrimSuffix(cut(why, maxTold), ".")
	return &ArgumentError{Sentence: said + why + "."}
}

// call is what $call is.
func (v Values) call() map[string]any {
	return map[string]any{
		"id": v.CallID, "name": v.FunctionName, "session_id": v.SessionID, "turn_id": v.TurnID, "idempotency_key": v.IdempotencyKey,
	}
}

// session is what $session is. Metadata that is not there is null to a program.
func (v Values) session() map[string]any {
	metadata := make(map[string]any, len(v.Metadata))
	for key, value := range v.Metadata {
		metadata[key] = value
	}
	return map[string]any{"agent_id": v.AgentID, "metadata": metadata}
}

// body gives a route what makes its bodies.
func (b *builder) body(d *draft, route *Route, p *program) {
	switch {
	case p == nil:
	case !route.request.bodyless:
		limit := max(route.Result.MaxBytes, defaultMaxBytes)
		route.request.body = &bodyMaker{p.Program, !sendsJSON(route.request.headers), limit}
		route.request.fixed.BodyIsArguments = false
	case d.settings.body != nil:
		b.addf(p.at, "%s: %s sends no body: arguments that no template uses become query parameters", p.path, route.Method)
	}
}

// sendsJSON says that no header of a route names another type for its bodies.
func sendsJSON(headers []headerTemplate) bool {
	i := indexHeader(headers, "Content-Type")
	return i < 0 || strings.Contains(strings.ToLower(show(headers[i].pieces)), "json")
}

// warnOfCutting tells of programs that never see a reply which is cut.
func (b *builder) warnOfCutting(s resultSettings) {
	if value(s.onOversize, "") != "truncate" {
		return
	}
	for _, p := range []*program{s.successWhen, s.output} {
		if p != nil {
			b.warnf(p.at, "%s: on_oversize: truncate has no effect: a program needs the whole reply", p.path)
		}
	}
}

func (p *program) compiled() *Program {
	if p == nil {
		return nil
	}
	return p.Program
}

// text is the program as it is written, empty for none.
func textOfProgram(p *Program) string {
	if p == nil {
		return ""
	}
	return p.String()
}
