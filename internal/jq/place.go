package jq

import (
	"errors"
	"strings"

	"github.com/itchyny/gojq"
)

// Problem is what is wrong with a program, or odd.
type Problem struct {
	// Offset is where, in bytes from the start of the text, -1 when that is not known.
	Offset  int
	Message string
	// Word is not known, and one of Known may have been meant.
	Word    string
	Known   []string
	Warning bool
}

// syntaxProblem words an error of the library's parser. Its offset is behind the
// token that does not fit.
func syntaxProblem(text string, err error) Problem {
	bad, ok := errors.AsType[*gojq.ParseError](err)
	switch {
	case !ok:
		return Problem{Offset: -1, Message: err.Error()}
	case bad.Token == "":
		return Problem{Offset: len(strings.TrimRight(text, " \t\r\n")), Message: "the program ends too early: " + bad.Error()}
	}
	at := min(bad.Offset, len(text))
	if start := strings.LastIndex(text[:at], bad.Token); start >= 0 {
		at = start
	}
	return Problem{Offset: at, Message: bad.Error()}
}

// compileProblem words an error of the library's compiler.
func compileProblem(text string, variables []string, err error) Problem {
	message := err.Error()
	if name, found := strings.CutPrefix(message, "variable not defined: "); found {
		return Problem{Offset: find(text, name), Message: "there is no variable " + shorten(name), Word: name, Known: variables}
	}
	if name, found := strings.CutPrefix(message, "label not defined: "); found {
		return Problem{Offset: find(text, name), Message: "there is no label " + shorten(name)}
	}
	if strings.HasPrefix(message, "missing query") {
		return Problem{Offset: 0, Message: "the program is empty: . gives the input back"}
	}
	return Problem{Offset: -1, Message: message}
}

// maxShown bounds, in letters, what a message repeats of a program.
const maxShown = 60

func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if letters := []rune(text); len(letters) > maxShown {
		return string(letters[:maxShown]) + "…"
	}
	return text
}

// find is the offset of the first token that is a word, -1 when there is none.
func find(text, word string) int { return nth(text, word, 1) }

// nth is the offset of the n-th token that is a word or an operator. *= counts as *.
func nth(text, word string, n int) int {
	t := tokens{text: text}
	for t.next() {
		if token := text[t.start:t.end]; token == word {
			if n--; n == 0 {
				return t.start
			}
		}
	}
	return -1
}

// tokens cuts a program into words, signs and strings, as far as it takes to find
// a word again. Expressions inside strings are cut too.
type tokens struct {
	text       string
	start, end int
	// open are the brackets that are open inside each string that an expression stands
	// in.
	open []int
}

func (t *tokens) next() bool {
	t.skip()
	if t.start = t.end; t.start >= len(t.text) {
		return false
	}
	c := t.text[t.start]
	switch {
	case c == '"':
		t.end++
		t.string()
	case isWord(c) || ((c == '.' || c == '$' || c == '@') && t.start+1 < len(t.text) && isWord(t.text[t.start+1])):
		for t.end++; t.end < len(t.text) && (isWord(t.text[t.end]) || t.text[t.end] == ':' && strings.HasPrefix(t.text[t.end:], "::")); t.end++ {
		}
	default:
		t.end++
		t.bracket(c)
	}
	return true
}

func isWord(c byte) bool {
	return c == '_' || ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9')
}

// skip leaves out blanks and comments.
func (t *tokens) skip() {
	for t.end < len(t.text) {
		switch c := t.text[t.end]; {
		case c == '#':
			line := strings.IndexAny(t.text[t.end:], "\r\n")
			if line < 0 {
				line = len(t.text) - t.end
			}
			t.end += line
		case c <= ' ':
			t.end++
		default:
			return
		}
	}
}

// bracket goes back into a string at the end of an expression in it.
func (t *tokens) bracket(c byte) {
	last := len(t.open) - 1
	if last < 0 {
		return
	}
	switch c {
	case '(':
		t.open[last]++
	case ')':
		if t.open[last]--; t.open[last] == 0 {
			t.open = t.open[:last]
			t.string()
		}
	}
}

// string goes to the end of a string, or to an expression in it.
func (t *tokens) string() {
	for ; t.end < len(t.text); t.end++ {
		switch t.text[t.end] {
		case '"':
			t.end++
			return
		case '\\':
			if t.end++; t.end < len(t.text) && t.text[t.end] == '(' {
				t.open = append(t.open, 1)
				t.end++
				return
			}
		}
	}
	t.end = min(t.end, len(t.text))
}

// Position is the line and the column, in letters, of an offset in a text, both
// from 1.
func Position(text string, offset int) (line, column int) {
	before := text[:min(max(offset, 0), len(text))]
	start := strings.LastIndexByte(before, '\n') + 1
	return strings.Count(before, "\n") + 1, len([]rune(before[start:])) + 1
}
