package router_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// The patterns of the JSON Schema for editors are built here from named parts:
// JSON cannot put patterns together. They are held to what both RE2 and ECMAScript
// know, and so have no lookaround.
const (
	nameWord    = `[A-Za-z0-9_$-]+`
	dottedName  = nameWord + `(\.` + nameWord + `)*`
	optionalOwn = `session\.metadata\.` + dottedName + `\?`
	listed      = `(` + dottedName + `\*?|` + optionalOwn + `\*?)`
	listedNames = listed + `(,` + listed + `)*`

	envMark  = `\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}`
	anyMark  = `\$\{[^}]*\}`
	percent  = `%[0-9A-Fa-f][0-9A-Fa-f]`
	badInURL = `{}$#\x00-\x20\x7f"<>\\^` + "`" + `|%`

	hostName = `(\[[0-9A-Fa-f:.]+\]|([A-Za-z0-9._~!&'()*+,;=-]|` + envMark + `)+)`
	portText = `(:(0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])|[0-9]*` + envMark + `([0-9]|` + envMark + `)*))?`
	userText = `(([^` + badInURL + `/?\[\]]|` + percent + `|\$[^` + badInURL + `/?\[\]]|\$\$|` + envMark + `)*\$?@)?`
)

func editorPatterns() map[string]string {
	return map[string]string{
		"urlStart":     `^([Hh][Tt][Tt][Pp][Ss]?://` + userText + hostName + portText + `([/?]|\{[/?]|$)|\$\{)`,
		"urlText":      `^` + urlPattern(envMark) + `$`,
		"pathStart":    `^(/|\?|\{[/?])`,
		"pathText":     `^` + urlPattern("") + `$`,
		"host":         `^` + hostName + portText + `$`,
		"headerText":   `^([^{}$\x00-\x1f\x7f-\x9f]|\$[^{}\x00-\x1f\x7f-\x9f]|` + envMark + `|\{(` + dottedName + `|` + optionalOwn + `)\})*\$?$`,
		"queryText":    `^([^{}$]|\$[^{}]|` + envMark + `|\{` + listedNames + `\})*\$?$`,
		"dots":         `^[^?]*(/|%2[Ff]|%5[Cc])(\.|%2[Ee]){1,2}([/?]|%2[Ff]|%5[Cc]|\{[/?]|$)`,
		"reserved":     `^([^$]|\$[^{]|` + anyMark + `)*\{([^}]*,|[/?&])?(call\.` + otherThan("id", "name", "session_id", "turn_id", "idempotency_key") + `|session\.` + otherThan("agent_id", "metadata.") + `)`,
		"optionalPath": `^([^$?{]|\$[^{?]|` + anyMark + `|\{[^?}]*\})*\{/?[A-Za-z0-9_$-][^?}]*\?`,
		"plainText":    `^` + plainPattern("") + `*\$?$`,
		"username":     `^` + plainPattern(":") + `*\$?$`,
		"tokenURL":     `^([Hh][Tt][Tt][Pp][Ss]?://` + hostName + portText + `($|[/?])|` + envMark + `)([^` + badInURL + `]|` + percent + `|\$([^` + badInURL + `]|` + percent + `|\$)|` + envMark + `)*\$?$`,
		"scope":        `^([ !#%-\[\]-~]|\$[ !#-\[\]-z|}~]|` + envMark + `)*\$?$`,
		"signingKey":   `^whsec_([A-Za-z0-9+/]{4}){8,}([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$`,
		"hostText":     `^([A-Za-z0-9._-]|` + envMark + `)+$`,
		"headerName":   `^([A-Za-z0-9!#%&'*+.^_` + "`" + `|~-]|\$[A-Za-z0-9!#$%&'*+.^_` + "`" + `|~-]|` + envMark + `)*\$?$`,
		"ownHeader":    `^(` + anyCase("idempotency-key", "content-length", "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade", "bridge-", "webhook-") + `)$`,
	}
}

// plainPattern is one character or mark of a value without templates, bad
// characters besides those that no such value holds.
func plainPattern(bad string) string {
	const control = `\x00-\x1f\x7f-\x9f`
	return `([^$` + control + bad + `]|\$[^{` + control + bad + `]|` + envMark + `)`
}

// urlPattern follows the grammar of an address: a path, then a query of pairs
// and of {?…} and {&…}, after which only & goes on. variable is what ${…} may be,
// empty for nothing.
func urlPattern(variable string) string {
	text := func(bad, braces string) string {
		char := `[^` + badInURL + bad + `]|` + percent
		expression := `\{` + braces + listedNames + `\}`
		if variable != "" {
			expression += `|` + variable
		}
		return `(` + char + `|\$(` + char + `|\$)|` + expression + `)*`
	}
	more := `\{&` + listedNames + `\}`
	pairs := text("&", "") + `(\$?&` + text("&", "") + `)*`
	rest := pairs + `(` + `(` + more + `)+&` + pairs + `)*(\$?|(` + more + `)+)`
	return text("?", `/?`) + `(\$?|\$?\?` + rest + `|\{\?` + listedNames + `\}(` + more + `)*(&` + rest + `)?)`
}

// otherThan matches the beginning of any name but these words. A word that ends
// with a dot goes on as it likes.
func otherThan(words ...string) string {
	var next strings.Builder
	var longer []string
	for i, word := range words {
		if word == "" {
			next.WriteString("*,}")
			continue
		}
		if first := slices.IndexFunc(words, func(w string) bool { return w != "" && w[0] == word[0] }); first < i {
			continue
		}
		next.WriteByte(word[0])
		var tails []string
		for _, w := range words[i:] {
			if w != "" && w[0] == word[0] {
				tails = append(tails, w[1:])
			}
		}
		if word != "." {
			longer = append(longer, word[:1]+otherThan(tails...))
		}
	}
	return `(` + strings.Join(append([]string{`[^` + next.String() + `]`}, longer...), `|`) + `)`
}

// anyCase matches the words in upper and lower case; one that ends with - is only
// the beginning.
func anyCase(words ...string) string {
	for i, word := range words {
		var out strings.Builder
		for _, c := range word {
			if c == '-' {
				out.WriteByte('-')
			} else {
				out.WriteString("[" + strings.ToUpper(string(c)) + string(c) + "]")
			}
		}
		if strings.HasSuffix(word, "-") {
			out.WriteString(".*")
		}
		words[i] = out.String()
	}
	return strings.Join(words, "|")
}

func TestEditorSchemaHasThePatternsThatAreBuiltHere(t *testing.T) {
	t.Parallel()
	const path = "../../api/routes.schema.json"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Defs map[string]struct {
			Pattern string `json:"pattern"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for name, pattern := range editorPatterns() {
		if have := doc.Defs[name].Pattern; have != pattern {
			text = strings.Replace(text, `"pattern": `+quoteJSON(t, have), `"pattern": `+quoteJSON(t, pattern), 1)
			if !*update {
				t.Errorf("%s: have\n%s\nwant (go test -update writes it)\n%s", name, have, pattern)
			}
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func quoteJSON(t *testing.T, text string) string {
	t.Helper()
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}
