package forward

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

const redacted = "[redacted]"

// redactor replaces the exact values of a table's secrets, also in the forms
// in which a service may repeat them: as a JSON string, for JSON may be cut or
// be a part of a text, and percent-encoded.
type redactor struct{ replacer *strings.Replacer }

func newRedactor(secrets []string) *redactor {
	var forms []string
	for _, s := range secrets {
		forms = append(append(forms, jsonForms(s)...), s,
			url.PathEscape(s), url.QueryEscape(s), strings.ReplaceAll(url.QueryEscape(s), "+", "%20"))
	}
	// The longest first: a secret may be the beginning of another.
	slices.SortFunc(forms, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	// What is replaced already stays: a secret may be a part of the mark.
	pairs := []string{redacted, redacted}
	for _, form := range slices.Compact(forms) {
		if form != "" {
			pairs = append(pairs, form, redacted)
		}
	}
	if len(pairs) == 2 {
		return &redactor{}
	}
	return &redactor{replacer: strings.NewReplacer(pairs...)}
}

// jsonForms are the ways in which usual encoders write a string: with the
// fewest escapes, as Go for HTML, as PHP with \/, and as Python in ASCII.
func jsonForms(s string) []string {
	plain := string(jsonString(s))
	slashes := strings.ReplaceAll(plain, "/", `\/`)
	forms := []string{plain, slashes, inASCII(plain), inASCII(slashes)}
	if forHTML, err := json.Marshal(s); err == nil {
		forms = append(forms, string(forHTML))
	}
	for i, form := range forms {
		forms[i] = form[1 : len(form)-1]
	}
	return forms
}

// inASCII escapes the characters of a JSON text that are not ASCII.
func inASCII(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// jsonString writes a string literal with no more escapes than JSON needs.
func jsonString(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return []byte(`""`)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// plainEscapes rewrites the strings of a valid JSON text with no more escapes
// than needed: PHP writes \/ and Python \u00e9, and a secret is to be found.
func plainEscapes(text string) string {
	var b strings.Builder
	s := scanner{data: []byte(text)}
	for s.pos < len(s.data) {
		start := s.pos
		if s.data[start] != '"' {
			b.WriteByte(s.data[start])
			s.pos++
			continue
		}
		if _, _, err := s.str(); err != nil {
			return text
		}
		literal := s.data[start:s.pos]
		if bytes.IndexByte(literal, '\\') >= 0 {
			literal = jsonString(string(unescaped(literal)))
		}
		b.Write(literal)
	}
	return b.String()
}

func (r *redactor) text(s string) string {
	if r.replacer == nil {
		return s
	}
	return r.replacer.Replace(s)
}

// detail returns what a service says about a failure, empty when it says
// nothing that a model can use: of a JSON object its detail, title,
// error.message, message or error, else the text itself; never HTML.
func detail(text string, isText bool, r *redactor) string {
	if !isText {
		return ""
	}
	found := text
	if gjson.Valid(text) {
		found = plainEscapes(text)
		if member := memberOf(found); member != "" {
			found = member
		}
	}
	return presentable(found, r)
}

// presentable makes what a service says fit for a sentence; of HTML nothing is
// left.
func presentable(found string, r *redactor) string {
	if looksLikeHTML(found) {
		return ""
	}
	// Replaced before anything is cut, lest a part of a secret stays; and again
	// after white space was joined.
	return clean(r.text(clean(r.text(found), math.MaxInt)), maxDetailBytes)
}

// memberOf finds the member of a problem document that is meant for people,
// empty when there is none. A member that is a list or an object is taken as
// its JSON text, as validation errors often are.
func memberOf(text string) string {
	if !strings.HasPrefix(strings.TrimLeft(text, jsonSpace), "{") {
		return ""
	}
	for _, path := range []string{"detail", "title", "error.message", "message", "error"} {
		switch m := gjson.Get(text, path); m.Type {
		case gjson.String:
			if strings.TrimSpace(m.Str) != "" {
				return m.Str
			}
		case gjson.JSON:
			return m.Raw
		case gjson.Null, gjson.False, gjson.True, gjson.Number:
		}
	}
	return ""
}

// looksLikeHTML also finds a page after an XML declaration or a sentence.
func looksLikeHTML(text string) bool {
	if strings.HasPrefix(http.DetectContentType([]byte(text)), "text/html") {
		return true
	}
	lower := strings.ToLower(text)
	return strings.Contains(lower, "<html") || strings.Contains(lower, "<!doctype html")
}
