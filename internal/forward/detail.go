package forward

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

const redacted = "[redacted]"

// redactor replaces the exact values of a table's secrets, also as they stand
// escaped in JSON.
type redactor struct{ replacer *strings.Replacer }

func newRedactor(secrets []string) *redactor {
	if len(secrets) == 0 {
		return &redactor{}
	}
	var forms []string
	for _, s := range secrets {
		if s == "" {
			continue
		}
		forms = append(forms, s)
		if quoted, err := json.Marshal(s); err == nil {
			forms = append(forms, strings.Trim(string(quoted), `"`))
		}
	}
	// The longest first: a secret may be the beginning of another.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(forms))
	for _, form := range slices.Compact(forms) {
		pairs = append(pairs, form, redacted)
	}
	return &redactor{replacer: strings.NewReplacer(pairs...)}
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
	if member := memberOf(text); member != "" {
		found = member
	}
	if looksLikeHTML(found) {
		return ""
	}
	// Replaced before anything is cut, lest a part of a secret stays; and again
	// after white space was joined.
	return clean(r.text(clean(r.text(found), math.MaxInt)), maxDetailBytes)
}

// memberOf finds the member of a problem document that is meant for people. A
// member that is a list or an object is taken as its JSON text, as validation
// errors often are.
func memberOf(text string) string {
	if trimmed := strings.TrimLeft(text, jsonSpace); !strings.HasPrefix(trimmed, "{") || !gjson.Valid(trimmed) {
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

func looksLikeHTML(text string) bool {
	return strings.HasPrefix(http.DetectContentType([]byte(text)), "text/html")
}
