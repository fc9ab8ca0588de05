package router_test

import (
	"encoding/json"
	"testing"

	stduritemplate "github.com/std-uritemplate/std-uritemplate/go/v2"
)

// Where the rules of a route and RFC 6570 say the same, an implementation that
// nobody here wrote must agree.
func TestExpansionAgreesWithAnotherImplementation(t *testing.T) {
	t.Parallel()
	arguments := map[string]any{
		"s": "a b/c?d#e&f=g", "u": "José 日本 \u2e2e 🙂", "n": 5, "t": true, "pct": "50%25", "r": ":/?#[]@!$&'()*+,;=-._~",
		"l": []any{"x", "y z", "ü"}, "one": []any{"only"}, "o": map[string]any{"k": "v w"},
	}
	args, err := json.Marshal(arguments)
	if err != nil {
		t.Fatal(err)
	}
	operators := []string{"", "/", "?", "&"}
	lists := []string{"s", "u", "n", "t", "pct", "r", "l", "l*", "one*", "o", "o*", "s,u", "l,n", "l*,o*", "s,l*,t"}
	for _, operator := range operators {
		for _, list := range lists {
			template := "http://host/x{" + operator + list + "}"
			if operator == "&" {
				template = "http://host/x?fixed=1{&" + list + "}"
			}
			want, err := stduritemplate.Expand(template, arguments)
			if err != nil {
				t.Fatalf("%s: %v", template, err)
			}
			table := parse(t, "version: 1\nroutes:\n  f: \""+template+"\"\n", nil)
			if got := wired(t, table, "f", string(args)).URL; got != want {
				t.Errorf("%s:\n got %s\nwant %s", template, got, want)
			}
		}
	}
}
