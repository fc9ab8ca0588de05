package forward

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxDetailBytes bounds what a service says about a failure.
	maxDetailBytes = 2 << 10
	// maxNameBytes bounds a name that a model chose.
	maxNameBytes = 100
)

// clean makes foreign text fit for a sentence: valid UTF-8, no control
// characters, runs of white space as one space, at most limit bytes.
func clean(text string, limit int) string {
	var b strings.Builder
	pause := false
	for _, r := range text {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			pause = b.Len() > 0
			continue
		}
		if pause {
			b.WriteByte(' ')
			pause = false
		}
		if b.WriteRune(r); b.Len() > limit {
			return cut(b.String(), limit) + "…"
		}
	}
	return b.String()
}

// cut shortens valid UTF-8 to at most limit bytes, at a character.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// sentence ends a text with a full stop unless it ends one already.
func sentence(text string) string {
	if text == "" || strings.HasSuffix(text, ".") || strings.HasSuffix(text, "!") || strings.HasSuffix(text, "?") {
		return text
	}
	return text + "."
}

// continued makes a sentence one that goes on after a colon.
func continued(text string) string {
	if rest, ok := strings.CutPrefix(text, "The "); ok {
		return "the " + rest
	}
	return text
}
