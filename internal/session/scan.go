package session

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/tidwall/gjson"
)

// jsonText is JSON whose parts are known by their places. Its methods take the
// place where something begins and return the place behind it, which is negative
// when it is not there.
type jsonText []byte

const (
	notThere = -1
	// tooDeep is returned for a value that is nested deeper than was allowed.
	tooDeep = -2
)

// byteAt is the byte at a place. Behind the end, and where nothing was found, it
// is 0, which no JSON contains.
func (t jsonText) byteAt(i int) byte {
	if uint(i) < uint(len(t)) {
		return t[i]
	}
	return 0
}

// space passes blanks, of which there are mostly none.
func (t jsonText) space(i int) int {
	if t.byteAt(i) > ' ' {
		return i
	}
	return t.blanks(i)
}

func (t jsonText) blanks(i int) int {
	for 0 <= i && i < len(t) && (t[i] == ' ' || t[i] == '\n' || t[i] == '\r' || t[i] == '\t') {
		i++
	}
	return i
}

// find is where the value of the first member of a name begins, in the object
// that the text is.
func (t jsonText) find(name string) int {
	i := t.space(0)
	if t.byteAt(i) != '{' {
		return notThere
	}
	for i = t.space(i + 1); ; i = t.space(i + 1) {
		end, escaped := t.quoted(i)
		value := t.colon(end)
		if value < 0 || unquote(t[i:end], escaped) == name {
			return value
		}
		if i = t.space(t.value(value, maxDepth)); t.byteAt(i) != ',' {
			return notThere
		}
	}
}

// value passes a value that may be nested so deep.
func (t jsonText) value(i, depth int) int {
	switch t.byteAt(i) {
	case '"':
		i, _ = t.quoted(i)
		return i
	case '{', '[':
		return t.nested(i, depth)
	}
	return t.scalar(i)
}

// nested passes an object or a list and all that is in it.
func (t jsonText) nested(i, depth int) int {
	if depth == 0 {
		return tooDeep
	}
	closing := t[i] + 2 // of both kinds: { and }, [ and ]
	i = t.space(i + 1)
	if t.byteAt(i) == closing {
		return i + 1
	}
	for {
		if closing == '}' {
			i = t.name(i)
		}
		if i = t.value(i, depth-1); i < 0 {
			return i
		}
		i = t.space(i)
		switch t.byteAt(i) {
		case closing:
			return i + 1
		case ',':
			i = t.space(i + 1)
		default:
			return notThere
		}
	}
}

// name passes a name and its colon, up to the value.
func (t jsonText) name(i int) int {
	i, _ = t.quoted(i)
	return t.colon(i)
}

// colon passes the colon behind a name.
func (t jsonText) colon(i int) int {
	if i = t.space(i); t.byteAt(i) != ':' {
		return notThere
	}
	return t.space(i + 1)
}

// quoted passes a string, eight bytes at a time, and tells whether it has escapes.
func (t jsonText) quoted(i int) (end int, escaped bool) {
	if t.byteAt(i) != '"' {
		return notThere, false
	}
	for i++; i+8 <= len(t); {
		marks := special(binary.LittleEndian.Uint64(t[i:]))
		if marks == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(marks) / 8
		if t[i] == '"' {
			return i + 1, escaped
		}
		if i, escaped = t.escape(i), true; i < 0 {
			return i, true
		}
	}
	return t.ending(i, escaped)
}

// ending passes the rest of a string that ends within the last bytes of the text.
func (t jsonText) ending(i int, escaped bool) (int, bool) {
	for {
		switch b := t.byteAt(i); {
		case b == '"':
			return i + 1, escaped
		case b >= ' ' && b != '\\':
			i++
		default:
			if i, escaped = t.escape(i), true; i < 0 {
				return i, true
			}
		}
	}
}

// special marks the high bit of bytes that are a quote, a backslash or a control
// character. A byte behind the first mark may be marked wrongly, by a borrow.
func special(eight uint64) uint64 {
	const each = 0x0101010101010101
	// With its second bit flipped a quote is less than 0x21, as the control
	// characters are, and nothing else is.
	low := eight ^ each*0x02
	low = (low - each*0x21) &^ low
	backslash := eight ^ each*'\\'
	backslash = (backslash - each) &^ backslash
	return (low | backslash) & (each * 0x80)
}

// escape passes a backslash and what belongs to it.
func (t jsonText) escape(i int) int {
	if t.byteAt(i) != '\\' {
		return notThere
	}
	switch t.byteAt(i + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		for k := i + 2; k < i+6; k++ {
			if !isHex(t.byteAt(k)) {
				return notThere
			}
		}
		return i + 6
	}
	return notThere
}

// scalar passes a number, true, false or null.
func (t jsonText) scalar(i int) int {
	switch t.byteAt(i) {
	case 't':
		return t.word(i, "true")
	case 'f':
		return t.word(i, "false")
	case 'n':
		return t.word(i, "null")
	}
	return t.number(i)
}

func (t jsonText) word(i int, word string) int {
	if end := i + len(word); end <= len(t) && string(t[i:end]) == word {
		return end
	}
	return notThere
}

// number passes a number: -12.5e+3.
func (t jsonText) number(i int) int {
	if t.byteAt(i) == '-' {
		i++
	}
	if t.byteAt(i) == '0' {
		i++
	} else if i = t.digits(i); i < 0 {
		return i
	}
	if t.byteAt(i) == '.' {
		if i = t.digits(i + 1); i < 0 {
			return i
		}
	}
	if b := t.byteAt(i); b != 'e' && b != 'E' {
		return i
	}
	i++
	if b := t.byteAt(i); b == '+' || b == '-' {
		i++
	}
	return t.digits(i)
}

// digits passes one digit or more.
func (t jsonText) digits(i int) int {
	if !isDigit(t.byteAt(i)) {
		return notThere
	}
	for isDigit(t.byteAt(i)) {
		i++
	}
	return i
}

func isDigit(b byte) bool {
	return b >= '0' && b <= '9'
}

func isHex(b byte) bool {
	return isDigit(b) || (b|0x20 >= 'a' && b|0x20 <= 'f')
}

// unquoted is the string that valid JSON stands for, a view of it unless it has
// escapes, and empty for any other value.
func unquoted(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	return unquote(raw, bytes.IndexByte(raw, '\\') >= 0)
}

func unquote(raw []byte, escaped bool) string {
	if escaped {
		return gjson.Parse(view(raw)).Str
	}
	return view(raw[1 : len(raw)-1])
}

// view reads bytes as a string without a copy: a snapshot is a few kilobytes and
// little of it is kept. What outlives the bytes must be cloned.
func view(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // read only, and cloned where kept
}
