package jq

import (
	"slices"
	"strings"

	"github.com/itchyny/gojq"
)

func (g *guard) isDefined(f *gojq.Func) bool {
	return slices.Contains(g.defined, arity(f.Name, len(f.Args)))
}

// function reads a call, or a variable.
func (g *guard) function(t *gojq.Term) {
	f := t.Func
	if g.isDefined(f) {
		g.arguments(f)
		return
	}
	if why, refused := refusals[f.Name]; refused {
		g.refuse(f.Name, why)
		return
	}
	if f.Name[0] == '$' {
		return // the library knows which there are
	}
	name := arity(f.Name, len(f.Args))
	r, known := rules[name]
	if !known {
		g.unknown(f)
		return
	}
	if r.pattern {
		g.checkPattern(f)
	}
	g.arguments(f)
	g.apply(t, name, r)
}

func (g *guard) arguments(f *gojq.Func) {
	for _, arg := range f.Args {
		g.query(arg)
	}
}

func (g *guard) refuse(name, why string) {
	g.mistakef(find(g.text, name), "%s: %s", name, why)
}

// unknown reports a function that is not there, or not with so many arguments.
func (g *guard) unknown(f *gojq.Func) {
	at := find(g.text, f.Name)
	var arities []string
	for args := range 10 {
		if _, known := rules[arity(f.Name, args)]; known {
			arities = append(arities, string(rune('0'+args)))
		}
	}
	if len(arities) > 0 {
		arguments := "arguments"
		if len(arities) == 1 && arities[0] == "1" {
			arguments = "argument"
		}
		g.mistakef(at, "the function %s takes %s %s, not %d", f.Name, strings.Join(arities, " or "), arguments, len(f.Args))
		return
	}
	g.mistake(Problem{Offset: at, Message: "there is no function " + shorten(f.Name), Word: f.Name, Known: names()})
}

// apply puts the counts of a rule around a call.
func (g *guard) apply(t *gojq.Term, name string, r rule) {
	f := &gojq.Func{Name: t.Func.Name, Args: t.Func.Args}
	if r.rewrite != nil {
		g.replace(t, r.rewrite(g, f))
		return
	}
	if r.own != nil {
		own := g.ours("own:"+name, f.Args...)
		if r.list {
			own = iterated(own)
		}
		g.replace(t, own)
		return
	}
	if r.each != "" {
		f.Args = append([]*gojq.Query{pipe(paren(f.Args[0]), g.ours(r.each))}, f.Args[1:]...)
	}
	made := call(f.Name, f.Args...)
	if r.before != nil {
		made = g.counted(name, r, f)
	}
	if r.made {
		made = pipe(made, g.ours("made:value"))
	}
	g.replace(t, made)
}

// counted is a call with its count before it. Arguments that are values are
// evaluated once, the last first, as the library does.
func (g *guard) counted(name string, r rule, f *gojq.Func) *gojq.Query {
	if valueArgs(r, len(f.Args)) == 0 {
		return pipe(g.ours("before:"+name), call(f.Name, f.Args...))
	}
	var values []*gojq.Query
	for i := range f.Args {
		values = append(values, variable(i))
	}
	body := pipe(g.ours("before:"+name, values...), call(f.Name, values...))
	for i, arg := range f.Args {
		body = bind(arg, i, body)
	}
	return body
}
