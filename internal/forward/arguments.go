package forward

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep arguments may nest; encoding/json has the same bound.
const maxDepth = 10000

// manyKeys is from how many keys on an object's keys are looked up in a map
// instead of one by one.
const manyKeys = 16

// noArguments is what absent, null, empty and blank arguments stand for. It is
// never written to.
const noArguments = "{}"

// argumentsError says why arguments cannot be used, as the end of a sentence
// that begins with "The arguments".
type argumentsError struct{ why string }

func (e *argumentsError) Error() string { return "the arguments " + e.why }

// object turns the API's "arguments" value into the text of exactly one JSON
// object, byte for byte as it was sent, without white space around it.
//
// A string is unwrapped once. Absent, null, empty and blank arguments are {}.
// Anything else, and an object in which a key stands twice at any depth, is an
// *argumentsError.
//
// What encoding/json takes as valid is taken. Invalid UTF-8 and lone surrogates
// therefore pass as they are; in the comparison of keys each counts as U+FFFD,
// so that two keys which some reader would take for one are one.
func object(raw []byte) ([]byte, error) {
	text := bytes.Trim(raw, jsonSpace)
	if len(text) > 0 && text[0] == '"' {
		var inner string
		if err := json.Unmarshal(text, &inner); err != nil {
			return nil, &argumentsError{"are not valid JSON"}
		}
		if strings.TrimSpace(inner) == "" {
			return []byte(noArguments), nil
		}
		text = bytes.Trim([]byte(inner), jsonSpace)
	}
	if len(text) == 0 || string(text) == "null" {
		return []byte(noArguments), nil
	}
	s := scanner{data: text}
	if err := s.document(); err != nil {
		return nil, err
	}
	return text, nil
}

const jsonSpace = " \t\r\n"

// scanner checks one JSON text in one pass. Its own, because encoding/json
// keeps silent about keys that stand twice.
type scanner struct {
	data  []byte
	pos   int
	depth int
	// open is how many keys the objects have that are open. few and then more
	// hold them, outer ones first: in one slice they would all be on the heap,
	// 384 bytes a call.
	open int
	few  [manyKeys][]byte
	more [][]byte
}

func (s *scanner) document() error {
	if c := s.peek(); c != '{' {
		if err := s.value(); err != nil {
			return err
		}
		return &argumentsError{"are " + kindOf(c) + ", not a JSON object"}
	}
	if err := s.value(); err != nil {
		return err
	}
	s.space()
	if s.pos < len(s.data) {
		return s.fail("hold more than one JSON object: there is further text")
	}
	return nil
}

func kindOf(first byte) string {
	switch first {
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// fail names the position, counted in bytes from 1.
func (s *scanner) fail(why string) error {
	return &argumentsError{fmt.Sprintf("%s at position %d", why, s.pos+1)}
}

// invalid is the error for what stands, or is missing, at the position.
func (s *scanner) invalid() error {
	if s.pos >= len(s.data) {
		return s.fail("are not valid JSON: the text ends")
	}
	return s.fail("are not valid JSON: there is an unexpected character")
}

// peek returns the byte at the position, or 0 at the end; 0 is valid nowhere
// outside the cases that look for it.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) value() error {
	switch c := s.peek(); {
	case c == '{', c == '[':
		return s.nested(c)
	case c == '"':
		_, _, err := s.str()
		return err
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	case c == '-' || isDigit(c):
		return s.number()
	}
	return s.invalid()
}

// nested reads an object or a list one level deeper.
func (s *scanner) nested(first byte) (err error) {
	if s.depth++; s.depth > maxDepth {
		return s.fail("are nested too deeply")
	}
	s.pos++
	s.space()
	if first == '{' {
		err = s.object()
	} else {
		err = s.array()
	}
	s.depth--
	return err
}

func (s *scanner) array() error {
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		s.space()
		if err := s.value(); err != nil {
			return err
		}
		if more, err := s.next(']'); !more {
			return err
		}
	}
}

func (s *scanner) object() error {
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	seen := keySet{base: s.open}
	for {
		s.space()
		if err := s.key(&seen); err != nil {
			return err
		}
		s.space()
		if s.peek() != ':' {
			return s.invalid()
		}
		s.pos++
		s.space()
		if err := s.value(); err != nil {
			return err
		}
		if more, err := s.next('}'); !more {
			s.open = seen.base
			return err
		}
	}
}

// next reads what follows an element: a comma, or the end.
func (s *scanner) next(end byte) (more bool, err error) {
	s.space()
	switch s.peek() {
	case ',':
		s.pos++
		return true, nil
	case end:
		s.pos++
		return false, nil
	}
	return false, s.invalid()
}

// keySet is where the keys of one object are.
type keySet struct {
	// base is where they begin among the keys of the scanner.
	base int
	// many replaces the search from the manyKeys-th key on.
	many map[string]struct{}
}

// key reads a key and fails when the object has it already.
func (s *scanner) key(of *keySet) error {
	start := s.pos
	if s.peek() != '"' {
		return s.invalid()
	}
	key, plain, err := s.str()
	if err != nil {
		return err
	}
	if !plain {
		key = unescaped(s.data[start:s.pos])
	}
	if !s.add(of, key) {
		s.pos = start
		return s.fail("hold the key " + quoted(key) + " twice, the second time")
	}
	return nil
}

// add reports whether the key is new to its object.
func (s *scanner) add(to *keySet, key []byte) bool {
	if to.many == nil && s.open-to.base >= manyKeys {
		to.many = make(map[string]struct{}, 4*manyKeys)
		for i := to.base; i < s.open; i++ {
			to.many[string(s.keyAt(i))] = struct{}{}
		}
	}
	if to.many != nil {
		_, twice := to.many[string(key)]
		to.many[string(key)] = struct{}{}
		return !twice
	}
	for i := to.base; i < s.open; i++ {
		if bytes.Equal(s.keyAt(i), key) {
			return false
		}
	}
	s.push(key)
	return true
}

func (s *scanner) keyAt(i int) []byte {
	if i < manyKeys {
		return s.few[i]
	}
	return s.more[i-manyKeys]
}

func (s *scanner) push(key []byte) {
	if s.open < manyKeys {
		s.few[s.open] = key
	} else {
		s.more = append(s.more[:s.open-manyKeys], key)
	}
	s.open++
}

// unescaped returns the value of a string literal that is known to be valid.
func unescaped(literal []byte) []byte {
	var text string
	if json.Unmarshal(literal, &text) != nil {
		return literal
	}
	return []byte(text)
}

// quoted shows a key in a sentence.
func quoted(key []byte) string {
	return `"` + clean(string(key), maxNameBytes) + `"`
}

// str reads a string literal and returns what stands between its quotes; plain
// says that this is already its value.
func (s *scanner) str() (raw []byte, plain bool, err error) {
	s.pos++
	start, ascii, escaped := s.pos, true, false
	for s.pos < len(s.data) {
		switch c := s.data[s.pos]; {
		case c == '"':
			raw = s.data[start:s.pos]
			s.pos++
			return raw, !escaped && (ascii || utf8.Valid(raw)), nil
		case c == '\\':
			escaped = true
			if err := s.escape(); err != nil {
				return nil, false, err
			}
		case c < ' ':
			return nil, false, s.invalid()
		default:
			ascii = ascii && c < utf8.RuneSelf
			s.pos++
		}
	}
	return nil, false, s.invalid()
}

func (s *scanner) escape() error {
	s.pos++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
		s.pos++
		for range 4 {
			if !isHex(s.peek()) {
				return s.invalid()
			}
			s.pos++
		}
		return nil
	}
	return s.invalid()
}

func (s *scanner) word(word string) error {
	for i := range len(word) {
		if s.peek() != word[i] {
			return s.invalid()
		}
		s.pos++
	}
	return nil
}

func (s *scanner) number() error {
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if err := s.digits(); err != nil {
		return err
	}
	if s.peek() == '.' {
		s.pos++
		if err := s.digits(); err != nil {
			return err
		}
	}
	if c := s.peek(); c != 'e' && c != 'E' {
		return nil
	}
	s.pos++
	if c := s.peek(); c == '+' || c == '-' {
		s.pos++
	}
	return s.digits()
}

func (s *scanner) digits() error {
	if !isDigit(s.peek()) {
		return s.invalid()
	}
	for isDigit(s.peek()) {
		s.pos++
	}
	return nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
