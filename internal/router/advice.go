package router

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxListed bounds how many names a message lists.
const maxListed = 12

// use is an expression in a request; left says that an argument which is missing
// there is left out.
type use struct {
	expr *expression
	left bool
}

// uses are the expressions of a request.
func (b *blueprint) uses() []use {
	parts := [][]piece{b.address.head}
	for _, q := range b.address.query {
		parts = append(parts, q.pieces)
	}
	for _, h := range b.headers {
		parts = append(parts, h.pieces)
	}
	var uses []use
	for _, p := range slices.Concat(parts...) {
		if e := p.expr; e != nil {
			uses = append(uses, use{e, e.operator == '?' || e.operator == '&'})
		}
	}
	return uses
}

// checkNames holds the names in a route's templates against its parameters. A
// request that needs an argument which they refuse can never be made.
func (b *builder) checkNames(d *draft, route *Route) {
	s := route.schema
	if s == nil {
		return
	}
	b.checkUses(d, s, route.request.uses(), "a call without it fails")
	if route.Recover != nil && (d.settings.question != nil || !route.Idempotent) {
		b.checkUses(d, s, route.Recover.request.uses(), "a call without it cannot be asked about")
	}
}

func (b *builder) checkUses(d *draft, s *schema, uses []use, without string) {
	for _, u := range uses {
		parameters := "parameters"
		if !strings.HasPrefix(u.expr.path, d.path) {
			parameters = "the parameters of " + d.path
		}
		for _, v := range u.expr.vars {
			if v.own != "" {
				continue
			}
			name := v.path[0]
			known := slices.Contains(s.names, name)
			switch {
			case s.closed && !known && u.left:
				b.warnf(u.expr.at, "%s: %s is always left out of %s: %s do not allow it%s", u.expr.path, quoteWord(name), u.expr.text, parameters, s.instead(name))
			case s.closed && !known:
				b.addf(u.expr.at, "%s: %s needs %s, which %s do not allow%s", u.expr.path, u.expr.text, quoteWord(name), parameters, s.instead(name))
			case known && !u.left && s.required != nil && !slices.Contains(s.required, name):
				b.warnf(u.expr.at, "%s: %s needs %s, which %s do not require: %s", u.expr.path, u.expr.text, quoteWord(name), parameters, without)
			}
		}
	}
}

// instead names what a closed schema allows in the place of a name that it does
// not.
func (s *schema) instead(name string) string {
	if near := didYouMean(name, s.names); near != "" {
		return near
	}
	if len(s.names) == 0 {
		return "; they allow nothing"
	}
	return "; they know " + listed(s.names)
}

// listed is "a, b, c", cut when there are many.
func listed(names []string) string {
	quoted := make([]string, 0, maxListed)
	for _, name := range names[:min(len(names), maxListed)] {
		quoted = append(quoted, quoteWord(name))
	}
	more := ""
	if len(names) > maxListed {
		more = ", …"
	}
	return strings.Join(quoted, ", ") + more
}

// dollarOrBraces matches what has a meaning in a value, and a dollar with a name,
// which has none.
var dollarOrBraces = regexp.MustCompile(`\$\$|\$?\{[^}]*\}|\$([A-Za-z_][A-Za-z0-9_]*)`)

// bareNames are the names in a value that were probably meant to be variables.
func bareNames(text string) []string {
	var names []string
	for _, found := range dollarOrBraces.FindAllStringSubmatch(text, -1) {
		if found[1] != "" {
			names = append(names, cut(found[1], maxQuoted))
		}
	}
	return names
}

// warnOfDollars tells of such names.
func (r *reader) warnOfDollars(f field, text string) {
	for _, name := range bareNames(text) {
		r.problems.warnf(r.at(f.value), "%s: $%s is sent as it stands; write ${%s} for the variable, or $$%s", f.path, name, name, name)
	}
}

// dollarName matches a query parameter that is called $NAME, as in OData.
var dollarName = regexp.MustCompile(`[?&]\$[A-Za-z]\w*=`)

// colonSegment matches a segment such as :id, which other tools take for a
// template.
var colonSegment = regexp.MustCompile(`/:([A-Za-z_][A-Za-z0-9_-]*)`)

// warnOfColons tells of such segments.
func (r *reader) warnOfColons(f field, text string) {
	path, _, _ := strings.Cut(text, "?")
	for _, found := range colonSegment.FindAllStringSubmatch(path, -1) {
		name := cut(found[1], maxQuoted)
		r.problems.warnf(r.at(f.value), "%s: :%s is sent as it stands; write {%s}", f.path, name, name)
	}
}

// warnOfOtherTemplates tells of $NAME and /:name in a URL. User and password are not
// repeated.
func (r *reader) warnOfOtherTemplates(f field) {
	userinfo, rest := cutUserinfo(f.value.Value)
	if len(bareNames(userinfo)) > 0 {
		r.problems.warnf(r.at(f.value), "%s: a dollar sign before the @ is sent as it stands; write ${NAME} for a variable, or $$", f.path)
	}
	r.warnOfDollars(f, dollarName.ReplaceAllString(rest, ""))
	r.warnOfColons(f, rest)
}

// cutUserinfo splits the text of a URL, its scheme left out, after user and password.
func cutUserinfo(text string) (userinfo, rest string) {
	_, afterScheme, found := strings.Cut(text, "://")
	if !found {
		afterScheme = text
	}
	authority, _ := cutAuthority(afterScheme)
	i := strings.LastIndexByte(authority, '@')
	return authority[:max(i, 0)], strings.TrimPrefix(afterScheme[max(i, 0):], "@")
}

// maxFunctionName is how long, in characters, a function's name may be for OpenAI's
// API, which takes the letters of functionName in it.
const maxFunctionName = 64

var functionName = regexp.MustCompile(`^[A-Za-z0-9_-]*$`)

// toolWarnings says what keeps a route from being a tool.
func toolWarnings(route *Route, d *draft) Problems {
	var warnings collector
	if size := utf8.RuneCountInString(route.Name); size > maxFunctionName {
		warnings.warnf(d.at, "%s: the name has %d characters: the API takes %d in the name of a function", d.path, size, maxFunctionName)
	}
	if !functionName.MatchString(route.Name) {
		warnings.warnf(d.at, "%s: the API takes letters, digits, _ and - in the name of a function, nothing else", d.path)
	}
	switch {
	case route.Description != "" && route.Parameters == nil:
		warnings.warnf(d.at, "%s: has a description and no parameters: bridge tools leaves it out", d.path)
	case route.Description == "" && route.Parameters != nil:
		warnings.warnf(d.at, "%s: has parameters and no description: bridge tools leaves it out", d.path)
	}
	if value(d.settings.deferLoading, false) && !route.IsTool() {
		warnings.warnf(d.at, "%s: defer_loading has no effect: bridge tools leaves the route out", d.path)
	}
	return warnings.problems
}
