package router

import (
	"strings"
	"unicode/utf8"
)

const upperHex = "0123456789ABCDEF"

func isUnreserved(c byte) bool {
	return isAlphanumeric(rune(c)) || c == '-' || c == '.' || c == '_' || c == '~'
}

// isReserved covers what RFC 3986 gives a meaning to.
func isReserved(c byte) bool { return strings.IndexByte(":/?#[]@!$&'()*+,;=", c) >= 0 }

// encodeValue percent-encodes all but unreserved characters, as UTF-8 bytes
// (RFC 6570, simple expansion).
func encodeValue(text string) string {
	return encodeExcept(strings.ToValidUTF8(text, "\uFFFD"), isUnreserved)
}

// encodeURLText percent-encodes what cannot stand in a URL and leaves the rest,
// percent-encoded text too.
func encodeURLText(text string) string {
	return encodeExcept(text, func(c byte) bool { return isUnreserved(c) || isReserved(c) || c == '%' })
}

func encodeExcept(text string, keep func(byte) bool) string {
	clean := true
	for i := range len(text) {
		clean = clean && keep(text[i])
	}
	if clean {
		return text
	}
	out := make([]byte, 0, 3*len(text))
	for i := range len(text) {
		if c := text[i]; keep(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(out)
}

// decode undoes percent-encoding once; ok is false for a broken one.
func decode(text string) (decoded string, ok bool) {
	if strings.IndexByte(text, '%') < 0 {
		return text, true
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			out = append(out, text[i])
			continue
		}
		if i+2 >= len(text) {
			return "", false
		}
		high, low := strings.IndexByte(upperHex, upper(text[i+1])), strings.IndexByte(upperHex, upper(text[i+2]))
		if high < 0 || low < 0 {
			return "", false
		}
		out = append(out, byte(high<<4|low)) //nolint:gosec // two digits of four bits
		i += 2
	}
	return string(out), true
}

func upper(c byte) byte {
	if c >= 'a' && c <= 'f' {
		return c - 'a' + 'A'
	}
	return c
}

// leavesPath says that a path, or a value for one, has a part . or .. (a
// backslash is a slash to some services) or holds U+0000.
func leavesPath(decoded string) bool {
	if strings.IndexByte(decoded, 0) >= 0 {
		return true
	}
	if strings.IndexByte(decoded, '.') < 0 {
		return false
	}
	for part := range strings.FieldsFuncSeq(decoded, func(r rune) bool { return r == '/' || r == '\\' }) {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// literalProblem says what keeps a text from standing in a URL, or is empty.
func literalProblem(text string) string {
	if !utf8.ValidString(text) {
		return "it is not UTF-8"
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c <= ' ' || c == 0x7f:
			return "spaces and control characters must be percent-encoded"
		case strings.IndexByte("\"<>\\^`|", c) >= 0:
			return "the character " + string(c) + " must be percent-encoded"
		}
	}
	if _, ok := decode(text); !ok {
		return "a % must be followed by two hexadecimal digits (%25 is a percent sign)"
	}
	return ""
}
