package jq

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/itchyny/gojq"
)

// guard reads the tree of a program, reports what cannot stand in one, and puts a
// count before each operation whose cost grows with what it is given:
//
//	.a + .b          (.b as $:1 | .a as $:0 | before:+($:0; $:1) | $:0 + $:1)
//	keys             (before:keys | keys)
//	map(.x)          map(.x | each:map)
//	test("a")        own:test("a")
//
// Names with a colon are of these counts and cannot be written in a program. They
// give their input back, so that an expression stays a path where it was one.
type guard struct {
	text     string
	problems []Problem
	failed   bool
	// defined are the functions of the program that can be seen: "name/arity".
	defined []string
	kinds   map[*gojq.Query]kind
	// products counts the signs of multiplication up to here, in the order of the
	// text.
	products int
	patterns map[patternKey]*pattern
	// used are the names of counts, and of functions of our own, in the program.
	used map[string]bool
}

func newGuard(text string) *guard {
	return &guard{text: text, kinds: map[*gojq.Query]kind{}, patterns: map[patternKey]*pattern{}, used: map[string]bool{}}
}

func (g *guard) mistakef(offset int, format string, args ...any) {
	g.mistake(Problem{Offset: offset, Message: fmt.Sprintf(format, args...)})
}

// mistake keeps a problem, once: a word is found where it stands first.
func (g *guard) mistake(p Problem) {
	g.failed = true
	known := func(other Problem) bool { return other.Offset == p.Offset && other.Message == p.Message }
	if !slices.ContainsFunc(g.problems, known) {
		g.problems = append(g.problems, p)
	}
}

func (g *guard) query(q *gojq.Query) {
	if q == nil {
		return
	}
	if q.Meta != nil || len(q.Imports) > 0 {
		g.mistakef(0, "a program cannot load modules")
		return
	}
	defer func(before int) { g.defined = g.defined[:before] }(len(g.defined))
	for _, f := range q.FuncDefs {
		g.definition(f)
	}
	switch {
	case q.Term != nil:
		g.term(q.Term)
	case q.Op != 0:
		g.operation(q)
	}
}

func (g *guard) definition(f *gojq.FuncDef) {
	g.defined = append(g.defined, arity(f.Name, len(f.Args)))
	before := len(g.defined)
	for _, arg := range f.Args {
		if arg[0] == '$' {
			arg = arg[1:]
		}
		g.defined = append(g.defined, arity(arg, 0))
	}
	g.query(f.Body)
	g.defined = g.defined[:before]
}

func arity(name string, args int) string { return name + "/" + strconv.Itoa(args) }

// operation reads two queries and what joins them.
func (g *guard) operation(q *gojq.Query) {
	left, right := g.kind(q.Left), g.kind(q.Right)
	repetition := g.repetition(q, left, right)
	g.query(q.Left)
	for _, p := range q.Patterns {
		g.pattern(p)
	}
	if q.Op == gojq.OpMul || q.Op == gojq.OpUpdateMul {
		g.products++
	}
	if repetition != "" {
		g.mistakef(nth(g.text, "*", g.products), "%s", repetition)
	}
	g.query(q.Right)
	switch q.Op {
	case gojq.OpAdd, gojq.OpSub, gojq.OpDiv, gojq.OpMod, gojq.OpMul,
		gojq.OpEq, gojq.OpNe, gojq.OpLt, gojq.OpLe, gojq.OpGt, gojq.OpGe:
		if needsCount(q.Op, left, right) {
			become(q, g.binary(q.Op, q.Left, q.Right))
		}
	case gojq.OpUpdateAdd, gojq.OpUpdateSub, gojq.OpUpdateMul, gojq.OpUpdateDiv, gojq.OpUpdateMod:
		become(q, g.update(q))
	case gojq.OpAssign, gojq.OpModify:
		become(q, pipe(g.ours("before:="), &gojq.Query{Left: q.Left, Op: q.Op, Right: q.Right}))
	default:
	}
}

// repetition says what is wrong with a product that repeats a text, or is empty.
func (g *guard) repetition(q *gojq.Query, left, right kind) string {
	if q.Op != gojq.OpMul && q.Op != gojq.OpUpdateMul {
		return ""
	}
	if (left != text || !right.mayVary()) && (right != text || !left.mayVary()) {
		return ""
	}
	return shorten(q.String()) + " repeats a text by a number that is not a constant: what it makes would have no bound"
}

// needsCount is false where one side is a number or another constant with which
// the operation costs nothing.
func needsCount(op gojq.Operator, left, right kind) bool {
	switch op {
	case gojq.OpMul:
		return !left.isNumber() || !right.isNumber()
	case gojq.OpEq, gojq.OpNe, gojq.OpLt, gojq.OpLe, gojq.OpGt, gojq.OpGe:
		return !left.isScalar() && !right.isScalar()
	default:
		return !left.isNumber() && !right.isNumber()
	}
}

// binary is the operation with its count before it. The right side is evaluated
// first, as the library does.
func (g *guard) binary(op gojq.Operator, left, right *gojq.Query) *gojq.Query {
	counted := pipe(g.ours("before:"+op.String(), variable(0), variable(1)), &gojq.Query{Left: variable(0), Op: op, Right: variable(1)})
	return bind(right, 1, bind(left, 0, counted))
}

// update is a += b as what it stands for: b as $x | a |= . + $x.
func (g *guard) update(q *gojq.Query) *gojq.Query {
	op := map[gojq.Operator]gojq.Operator{
		gojq.OpUpdateAdd: gojq.OpAdd, gojq.OpUpdateSub: gojq.OpSub, gojq.OpUpdateMul: gojq.OpMul,
		gojq.OpUpdateDiv: gojq.OpDiv, gojq.OpUpdateMod: gojq.OpMod,
	}[q.Op]
	changed := &gojq.Query{Left: q.Left, Op: gojq.OpModify, Right: paren(g.binary(op, identity(), variable(2)))}
	return bind(q.Right, 2, pipe(g.ours("before:="), changed))
}

func (g *guard) term(t *gojq.Term) {
	g.own(t)
	for _, s := range t.SuffixList {
		if s.Index != nil {
			g.index(s.Index)
		}
	}
}

// own reads a term without what follows it.
func (g *guard) own(t *gojq.Term) {
	switch t.Type {
	case gojq.TermTypeIndex:
		g.index(t.Index)
	case gojq.TermTypeFunc:
		g.function(t)
	case gojq.TermTypeObject:
		g.object(t)
	case gojq.TermTypeArray:
		g.array(t)
	case gojq.TermTypeUnary:
		g.term(t.Unary.Term)
	case gojq.TermTypeFormat:
		g.format(t)
	case gojq.TermTypeString:
		g.string(t.Str)
	case gojq.TermTypeQuery:
		g.query(t.Query)
	default:
		g.control(t)
	}
}

// control reads what has clauses.
func (g *guard) control(t *gojq.Term) {
	switch t.Type {
	case gojq.TermTypeIf:
		g.query(t.If.Cond)
		g.query(t.If.Then)
		for _, e := range t.If.Elif {
			g.query(e.Cond)
			g.query(e.Then)
		}
		g.query(t.If.Else)
	case gojq.TermTypeTry:
		g.query(t.Try.Body)
		g.query(t.Try.Catch)
	case gojq.TermTypeReduce:
		g.loop(t.Reduce.Query, t.Reduce.Patterns, t.Reduce.Start, t.Reduce.Update)
	case gojq.TermTypeForeach:
		g.loop(t.Foreach.Query, t.Foreach.Patterns, t.Foreach.Start, t.Foreach.Update)
		g.query(t.Foreach.Extract)
	case gojq.TermTypeLabel:
		g.query(t.Label.Body)
	default:
	}
}

func (g *guard) loop(over *gojq.Query, patterns []*gojq.Pattern, start, next *gojq.Query) {
	g.query(over)
	for _, p := range patterns {
		g.pattern(p)
	}
	g.query(start)
	g.query(next)
}

func (g *guard) pattern(p *gojq.Pattern) {
	if p == nil {
		return
	}
	for _, item := range p.Array {
		g.pattern(item)
	}
	for _, member := range p.Object {
		g.string(member.KeyString)
		g.query(member.KeyQuery)
		g.pattern(member.Val)
	}
}

// maxIndex bounds an index: setting an element makes all before it.
const maxIndex = 1 << 20

// index reads .x, .[x] and .[x:y].
func (g *guard) index(i *gojq.Index) {
	g.string(i.Str)
	switch {
	case i.IsSlice:
		g.query(i.Start)
		g.query(i.End)
	case i.Start != nil && isWritten(i.Start):
		if n, known := number(i.Start); known && n > maxIndex {
			g.mistakef(-1, ".[%s]: no array is so long here", shorten(i.Start.String()))
		}
	case i.Start != nil:
		g.query(i.Start)
		i.Start = pipe(paren(i.Start), g.ours("before:index"))
	}
}

// string reads a string with \(…) in it.
func (g *guard) string(s *gojq.String) {
	if s == nil {
		return
	}
	for i, part := range s.Queries {
		if isWritten(part) {
			continue
		}
		g.query(part)
		s.Queries[i] = paren(pipe(part, g.ours("before:text")))
	}
}

// format reads @base64 and @base64 "…".
func (g *guard) format(t *gojq.Term) {
	if t.Str != nil {
		g.string(t.Str)
		return
	}
	g.replace(t, pipe(g.ours("before:text"), &gojq.Query{Term: bare(t)}))
}

func (g *guard) object(t *gojq.Term) {
	constants := true
	for _, kv := range t.Object.KeyVals {
		constants = constants && kv.Key != "" && isWritten(kv.Val)
		g.string(kv.KeyString)
		g.query(kv.KeyQuery)
		g.query(kv.Val)
		if kv.Val == nil && kv.Key == environment {
			g.refuse(kv.Key, refusals[environment])
		}
	}
	if !constants {
		g.replace(t, pipe(&gojq.Query{Term: bare(t)}, g.ours("made:object")))
	}
}

func (g *guard) array(t *gojq.Term) {
	items := t.Array.Query
	if items == nil || allWritten(items) {
		return
	}
	g.warnOfLength(items)
	g.query(items)
	t.Array.Query = pipe(paren(items), g.ours("each:element"))
}

// allWritten says that a query is a list of constants, which costs nothing.
func allWritten(q *gojq.Query) bool {
	for q.Term == nil && q.Op == gojq.OpComma && len(q.FuncDefs) == 0 {
		if !isWritten(q.Right) {
			return false
		}
		q = q.Left
	}
	return isWritten(q)
}

// warnOfLength tells of [range(1000000000)], which is always stopped.
func (g *guard) warnOfLength(items *gojq.Query) {
	f := functionOf(items)
	if f == nil || (f.Name != "range" && f.Name != "limit") || len(f.Args) > 2 || len(f.Args) == 0 || slices.Contains(g.defined, arity(f.Name, len(f.Args))) {
		return
	}
	counted := f.Args[0]
	if f.Name == "range" {
		counted = f.Args[len(f.Args)-1]
	}
	if n, known := number(counted); known && n > freeWork/perElement {
		g.problems = append(g.problems, Problem{
			Offset: -1, Warning: true,
			Message: fmt.Sprintf("[%s] is too long: a program that makes so much is stopped", shorten(items.String())),
		})
	}
}

// replace puts a query in the place of a term, before what follows that.
func (g *guard) replace(t *gojq.Term, by *gojq.Query) {
	*t = gojq.Term{Type: gojq.TermTypeQuery, Query: by, SuffixList: t.SuffixList}
}

// become puts a query in the place of an operation, which keeps its definitions.
func become(q, by *gojq.Query) {
	*q = gojq.Query{FuncDefs: q.FuncDefs, Term: &gojq.Term{Type: gojq.TermTypeQuery, Query: by}}
}

// bare is a copy of a term without what follows it.
func bare(t *gojq.Term) *gojq.Term {
	clone := *t
	clone.SuffixList = nil
	return &clone
}

func identity() *gojq.Query { return &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeIdentity}} }

// ours is a call of a count, or of a function of our own.
func (g *guard) ours(name string, args ...*gojq.Query) *gojq.Query {
	g.used[name] = true
	return call(name, args...)
}

func call(name string, args ...*gojq.Query) *gojq.Query {
	return &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: name, Args: args}}}
}

func variable(n int) *gojq.Query { return call("$:" + strconv.Itoa(n)) }

func pipe(left, right *gojq.Query) *gojq.Query {
	return &gojq.Query{Left: left, Op: gojq.OpPipe, Right: right}
}

func paren(q *gojq.Query) *gojq.Query {
	return &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeQuery, Query: q}}
}

func listOf(q *gojq.Query) *gojq.Query {
	return &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeArray, Array: &gojq.Array{Query: q}}}
}

// iterated is q[].
func iterated(q *gojq.Query) *gojq.Query {
	q.Term.SuffixList = append(q.Term.SuffixList, &gojq.Suffix{Iter: true})
	return q
}

// bind is (value as $:n | body).
func bind(value *gojq.Query, n int, body *gojq.Query) *gojq.Query {
	name := "$:" + strconv.Itoa(n)
	return &gojq.Query{Left: paren(value), Op: gojq.OpPipe, Right: body, Patterns: []*gojq.Pattern{{Name: name}}}
}

// functionOf is the call that a query is, nil for anything else.
func functionOf(q *gojq.Query) *gojq.Func {
	if q == nil || q.Term == nil || q.Term.Type != gojq.TermTypeFunc || len(q.Term.SuffixList) > 0 || len(q.FuncDefs) > 0 {
		return nil
	}
	return q.Term.Func
}
