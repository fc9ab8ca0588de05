package jq

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/itchyny/gojq"
)

// Regular expressions are our own: the library counts the letters before each
// match from the start, so that a text full of matches takes minutes, and keeps
// each expression that it was ever given.

// patternKey is a regular expression and its flags.
type patternKey struct{ text, flags string }

// pattern is a compiled one; size is how many instructions it has.
type pattern struct {
	*regexp.Regexp

	size int
}

const (
	// maxPattern bounds an expression that a program is given, in bytes.
	maxPattern = 1000
	// maxLately bounds how many of those are kept.
	maxLately = 16
)

// compile reads an expression. The flag g is for the caller.
func compile(key patternKey) (*pattern, error) {
	for _, flag := range key.flags {
		if !strings.ContainsRune("gims", flag) {
			return nil, failf("the flag %q of a regular expression is not known: there are g, i and s", flag)
		}
	}
	prefix := ""
	if strings.Contains(key.flags, "i") {
		prefix = "(?i)"
	}
	if strings.ContainsAny(key.flags, "ms") { // in jq, m lets . match a line break
		prefix += "(?s)"
	}
	tree, err := syntax.Parse(prefix+key.text, syntax.Perl)
	if err != nil {
		return nil, patternError(err)
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, patternError(err)
	}
	compiled, err := regexp.Compile(prefix + key.text)
	return &pattern{compiled, len(program.Inst)}, err
}

// patternError is why an expression is not one, without the expression.
func patternError(err error) error {
	if bad, ok := errors.AsType[*syntax.Error](err); ok {
		return failf("not a regular expression of RE2: %s", bad.Code)
	}
	return failf("not a regular expression of RE2")
}

// checkPattern compiles the expression of a call that is written in the program.
func (g *guard) checkPattern(f *gojq.Func) {
	var key patternKey
	var known bool
	if key.text, known = literal(f.Args[0]); !known {
		return
	}
	if len(f.Args) > 1 && (f.Name == "test" || f.Name == "match" || f.Name == "capture" || f.Name == "scan" || strings.HasPrefix(f.Name, "split")) {
		if key.flags, known = literal(f.Args[1]); !known {
			return
		}
	}
	if len(f.Args) > 2 {
		if key.flags, known = literal(f.Args[2]); !known {
			return
		}
	}
	p, err := compile(key)
	if err != nil {
		g.mistakef(find(g.text, f.Name), "%s(%q): %s", f.Name, shorten(key.text), err)
		return
	}
	g.patterns[key] = p
}

// pattern finds or compiles an expression that a program uses.
func (m *machine) pattern(key patternKey) (*pattern, error) {
	for _, known := range []map[patternKey]*pattern{m.constant, m.lately} {
		if p := known[key]; p != nil {
			return p, nil
		}
	}
	if len(key.text) > maxPattern {
		return nil, failf("a regular expression is too long")
	}
	size := int64(len(key.text)) * 400
	if strings.Contains(key.text, "{") {
		size *= 100 // as x{1000} makes
	}
	if err := m.charge(size); err != nil {
		return nil, err
	}
	p, err := compile(key)
	if err != nil {
		return nil, err
	}
	if len(m.lately) >= maxLately {
		clear(m.lately)
	}
	m.lately[key] = p
	return p, nil
}

// search is a text with the matches in it.
type search struct {
	*pattern

	text    string
	matches [][]int
	global  bool
}

// find looks for an expression: args are it and its flags, or a list of both. Each
// match costs so much and, for each of its groups, so much more.
func (m *machine) find(name string, in any, args []any, all bool, cost, byGroup int64) (*search, error) {
	text, isText := in.(string)
	if !isText {
		return nil, failf("%s cannot be applied to: %s", name, gojq.TypeOf(in))
	}
	if list, isList := args[0].([]any); isList && len(args) == 1 && len(list) > 0 {
		args = list
	}
	var key patternKey
	var ok bool
	if key.text, ok = args[0].(string); !ok {
		return nil, failf("%s: a regular expression must be a text, not: %s", name, gojq.TypeOf(args[0]))
	}
	if len(args) > 1 && args[1] != nil {
		if key.flags, ok = args[1].(string); !ok {
			return nil, failf("%s: flags must be a text, not: %s", name, gojq.TypeOf(args[1]))
		}
	}
	p, err := m.pattern(key)
	if err != nil {
		return nil, err
	}
	if err := m.charge(int64(len(text)) * int64(p.size) / 2); err != nil {
		return nil, err
	}
	s := &search{pattern: p, text: text, global: all || strings.Contains(key.flags, "g")}
	return s, m.match(s, 64+cost+(16+byGroup)*int64(p.NumSubexp()+1))
}

// match finds as many matches as may be made.
func (m *machine) match(s *search, cost int64) error {
	most := 1
	if s.global {
		most = int(m.left/cost) + 1
	}
	s.matches = s.FindAllStringSubmatchIndex(s.text, most)
	return m.charge(cost * int64(len(s.matches)))
}

// group is the text of a group of a match, null where it took no part.
func (s *search) group(match []int, n int) any {
	if match[2*n] < 0 {
		return nil
	}
	return s.text[match[2*n]:match[2*n+1]]
}

// captures are the named groups of a match.
func (s *search) captures(match []int) map[string]any {
	all := map[string]any{}
	for n, name := range s.SubexpNames() {
		if name != "" {
			all[name] = s.group(match, n)
		}
	}
	return all
}

// described is a match as jq shows it; start is how many letters come before it.
func (s *search) described(match []int, start int) map[string]any {
	captures := []any{}
	for n, name := range s.SubexpNames()[1:] {
		found := s.span(match, n+1, start)
		found["name"] = nil
		if name != "" {
			found["name"] = name
		}
		captures = append(captures, found)
	}
	whole := s.span(match, 0, start)
	whole["captures"] = captures
	return whole
}

func (s *search) span(match []int, n, start int) map[string]any {
	text := s.group(match, n)
	if text == nil {
		return map[string]any{"offset": -1, "length": 0, "string": nil}
	}
	from, to := match[2*n], match[2*n+1]
	return map[string]any{
		"offset": start + utf8.RuneCountInString(s.text[match[0]:from]),
		"length": utf8.RuneCountInString(s.text[from:to]), "string": text,
	}
}

func patternRules() map[string]rule {
	all := map[string]rule{}
	for name, r := range map[string]rule{
		"test":    {own: tested},
		"match":   {own: matched, list: true},
		"capture": {own: captured, list: true},
		"scan":    {own: scanned, list: true},
		"splits":  {own: divided, list: true},
	} {
		r.pattern = true
		all[name+"/1"], all[name+"/2"] = r, r
	}
	all["split/2"] = rule{own: divided, pattern: true}
	for _, name := range []string{"sub", "gsub"} {
		r := rule{rewrite: replaced, pattern: true}
		all[name+"/2"], all[name+"/3"] = r, r
	}
	return all
}

func tested(m *machine, in any, args []any) any {
	s, err := m.find("test", in, args, false, 0, 0)
	if err != nil {
		return err
	}
	return len(s.matches) > 0
}

func matched(m *machine, in any, args []any) any {
	s, err := m.find("match", in, args, false, perObject, perObject)
	if err != nil {
		return err
	}
	all, letters, at := make([]any, 0, len(s.matches)), 0, 0
	for _, match := range s.matches {
		letters += utf8.RuneCountInString(s.text[at:match[0]])
		at = match[0]
		all = append(all, s.described(match, letters))
	}
	return all
}

func captured(m *machine, in any, args []any) any {
	s, err := m.find("capture", in, args, false, perObject, perMoreMember)
	if err != nil {
		return err
	}
	all := make([]any, 0, len(s.matches))
	for _, match := range s.matches {
		all = append(all, s.captures(match))
	}
	return all
}

func scanned(m *machine, in any, args []any) any {
	s, err := m.find("scan", in, args, true, perElement, perElement)
	if err != nil {
		return err
	}
	all := make([]any, 0, len(s.matches))
	for _, match := range s.matches {
		if s.NumSubexp() == 0 {
			all = append(all, s.group(match, 0))
			continue
		}
		groups := []any{}
		for n := 1; n <= s.NumSubexp(); n++ {
			groups = append(groups, s.group(match, n))
		}
		all = append(all, groups)
	}
	return all
}

// divided is what lies between the matches.
func divided(m *machine, in any, args []any) any {
	s, err := m.find("split", in, args, true, perElement, 0)
	if err != nil {
		return err
	}
	all, at := make([]any, 0, len(s.matches)+1), 0
	for _, match := range s.matches {
		all = append(all, s.text[at:match[0]])
		at = match[1]
	}
	return append(all, s.text[at:])
}

// parted is a text in parts: those between the matches as texts, and each match as
// the object of its named groups.
func parted(m *machine, in any, args []any) any {
	s, err := m.find("sub", in, args[:2], args[2] == true, perElement, 0)
	if err != nil {
		return err
	}
	named := strings.Join(s.SubexpNames(), "") != ""
	none := map[string]any{}
	all, at := make([]any, 0, 2*len(s.matches)+1), 0
	for _, match := range s.matches {
		captures := none
		if named {
			if err := m.charge(perObject + perMoreMember*int64(s.NumSubexp())); err != nil {
				return err
			}
			captures = s.captures(match)
		}
		all = append(all, s.text[at:match[0]], captures)
		at = match[1]
	}
	return append(all, s.text[at:])
}

// replaced is sub and gsub:
//
//	[own:parts(re; flags; all) | .[] | if type == "object" then [replacement] else . end] | own:joined
func replaced(g *guard, f *gojq.Func) *gojq.Query {
	flags, all := constantTerm(gojq.TermTypeNull), constantTerm(gojq.TermTypeFalse)
	if len(f.Args) > 2 {
		flags = f.Args[2]
	}
	if f.Name == "gsub" {
		all = constantTerm(gojq.TermTypeTrue)
	}
	parts := iterated(g.ours("own:parts", f.Args[0], flags, all))
	replacement := listOf(paren(f.Args[1]))
	isMatch := &gojq.Query{Left: call("type"), Op: gojq.OpEq, Right: &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeString, Str: &gojq.String{Str: "object"}}}}
	each := &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeIf, If: &gojq.If{Cond: isMatch, Then: replacement, Else: identity()}}}
	return pipe(listOf(pipe(pipe(parts, each), g.ours("each:element"))), g.ours("own:joined"))
}

func constantTerm(t gojq.TermType) *gojq.Query { return &gojq.Query{Term: &gojq.Term{Type: t}} }

// joined puts the parts together.
func joined(m *machine, in any, _ []any) any {
	var out strings.Builder
	for _, part := range elements(in) {
		if replacement, isMatch := part.([]any); isMatch {
			if len(replacement) != 1 {
				return failf("sub: a match must be replaced by one text")
			}
			part = replacement[0]
		}
		text, isText := part.(string)
		if !isText {
			return failf("sub: a match must be replaced by a text, not: %s", gojq.TypeOf(part))
		}
		if err := m.charge(2 * int64(len(text))); err != nil {
			return err
		}
		out.WriteString(text)
	}
	return out.String()
}
