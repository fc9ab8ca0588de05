package router_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"functionbridge/internal/router"
)

// Whatever a file holds, it is judged quickly, and the mistake has its place.
func TestHostileFilesAreJudgedQuickly(t *testing.T) {
	t.Parallel()
	const head = "version: 1\nroutes:\n"
	oneLine := `{"version":1,"routes":{` + strings.Repeat(`"f":"http://host/",`, 10_000)
	for name, c := range map[string]struct{ text, want string }{
		"nested too deep for the library": {head + "  f: " + strings.Repeat("[", 100_000), "f.yaml:3:10006: not valid YAML: exceeded max depth of 10000"},
		"nested too deep":                 {head + "  f: " + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000), "f.yaml:3:105: nested deeper than 100 levels"},
		"nested and not closed":           {head + "  f: " + strings.Repeat("[", 9_000), "f.yaml:4:1: not valid YAML: did not find expected node content"},
		"a mistake in one long line":      {oneLine + `"g" "h"}}`, fmt.Sprintf("f.yaml:1:%d: not valid YAML: did not find expected ',' or '}': inside { }, commas stand between the entries, and a value that holds { } , or \": \" in quotes", len(oneLine)+5)},
		"one long line that is not ended": {oneLine, "f.yaml:2:1: not valid YAML: did not find expected node content"},
		"one long text":                   {head + "  f: \"" + strings.Repeat("ü", 1<<20) + "\"", "f.yaml:3:6: routes.f: bad URL: must begin with http:// or https:// and a host"},
		"a control character far along":   {head + "  f: " + strings.Repeat("ü", 1<<20) + "\x01", fmt.Sprintf("f.yaml:3:%d: the control character U+0001 is not allowed", 1<<20+6)},
		"a mistake after many lines":      {head + strings.Repeat("# a comment\n", 100_000) + "  f: a: b\n", "f.yaml:100003:7: not valid YAML: mapping values are not allowed in this context: quote a value that holds \": \""},
		"a text that many lines leave open": {
			head + strings.Repeat("# a comment\n", 50_000) + "  f: \"a\n" + strings.Repeat("  b\n", 50_000), "f.yaml:50003:6: not valid YAML: found unexpected end of stream",
		},
		"aliases of aliases": {
			aliasesOfAliases(140), "f.yaml:112:561: the aliases up to here stand for more than 1000000 values",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			_, err := router.Parse("f.yaml", []byte(c.text), envOf(nil))
			if err == nil || err.Error() != c.want {
				t.Errorf("got %.300v", err)
			}
			if took := time.Since(start); took > 20*time.Second { // a tenth of this is much; the race detector is slow
				t.Errorf("took %v", took)
			}
		})
	}
}

// aliasesOfAliases nests each of n anchored values in the next one: small to
// write, and both large and deep once it is unfolded.
func aliasesOfAliases(n int) string {
	var out strings.Builder
	out.WriteString("version: 1\nroutes:\n  f:\n    url: http://h/\n    parameters:\n      $defs:\n")
	inner := "{}"
	for i := range n {
		fmt.Fprintf(&out, "        a%d: &a%d %s%s%s\n", i, i, strings.Repeat("{not: ", 90), inner, strings.Repeat("}", 90))
		inner = fmt.Sprintf("*a%d", i)
	}
	return out.String()
}

func TestTableOfManyMistakesTellsThemAll(t *testing.T) {
	t.Parallel()
	const n = 5_000
	_, err := router.Parse("f.yaml", []byte("version: 1\nroutes:\n"+manyBadRoutes(n)), envOf(nil))
	if err == nil {
		t.Fatal("it is taken")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 2*n || lines[2*n-1] != fmt.Sprintf("f.yaml:%d:%d: routes.f%d.metod: unknown key (did you mean method?)", n+2, len(fmt.Sprintf("  f%d: { url: x, m", n-1)), n-1) {
		t.Errorf("%d lines, the last is %s", len(lines), lines[len(lines)-1])
	}
}

func manyBadRoutes(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "  f%d: { url: x, metod: GET }\n", i)
	}
	return out.String()
}
