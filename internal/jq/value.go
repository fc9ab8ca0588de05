package jq

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"runtime"
	"slices"

	"github.com/itchyny/gojq"
)

// Input is a JSON value that programs can be run on. It is valid in the function
// that Read gives it to.
type Input struct {
	value any
	size  int
	turn  *turn
}

// turn is one use of an input.
type turn struct{ loans []loan }

// loan is compiled code that is used in a turn: what it gives may be a constant of
// it, so that nobody else may run it before that has been read.
type loan struct {
	of      *Program
	machine *machine
}

func (t *turn) end() {
	for _, l := range t.loans {
		l.of.machines.Put(l.machine)
	}
	<-turns
}

// What an input is refused for.
var (
	errNotJSON   = errors.New("is not JSON")
	errTooDeep   = errors.New("is nested too deep")
	errBigNumber = errors.New("holds a number that is too large")
)

// maxDigits bounds one number: calculating costs more than its digits.
const maxDigits = 5000

// turns lets as many inputs be used at once as there are processors: more would
// take each other's time, and each has its memory.
var turns = make(chan struct{}, max(2, runtime.GOMAXPROCS(0))) //nolint:gochecknoglobals // the processors are the whole process's

// Read waits for a turn, reads one JSON value and gives it to use, which may run
// programs on it and read what they make, and keeps nothing of the input. The error
// says why the text cannot be used, such as "is not JSON".
//
// Numbers keep their text: one that a program only passes along is written as it
// was.
func Read(text []byte, use func(Input)) error {
	if err := fits(text); err != nil {
		return err
	}
	turns <- struct{}{}
	t := &turn{}
	defer t.end()
	in, err := parse(text)
	if in.turn = t; err == nil {
		use(in)
	}
	return err
}

func parse(text []byte) (Input, error) {
	in := Input{size: len(text)}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&in.value) != nil || decoder.InputOffset() < int64(len(bytes.TrimRight(text, " \t\r\n"))) {
		return Input{}, errNotJSON
	}
	return in, nil
}

// fits looks at how deep a text nests and how long its numbers are.
func fits(text []byte) error {
	depth, digits, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		if quoted {
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			}
			continue
		}
		if c < '0' || c > '9' {
			digits = 0
		}
		switch c {
		case '"':
			quoted = true
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		default:
			digits++
		}
		switch {
		case depth > maxDepth:
			return errTooDeep
		case digits > maxDigits:
			return errBigNumber
		}
	}
	return nil
}

// Output is the one value that a program gave.
type Output struct{ value any }

// IsNull says that it is null.
func (o Output) IsNull() bool { return o.value == nil }

// True says that jq takes it for true: everything but false and null.
func (o Output) True() bool { return o.value != nil && o.value != false }

// Text is a string as it is, and anything else as JSON. The error is a *RunError.
func (o Output) Text() (string, error) {
	if text, ok := o.value.(string); ok {
		if len(text) > MaxOutput {
			return "", tooLong()
		}
		return text, nil
	}
	text, err := o.JSON()
	return string(text), err
}

// JSON is the value as compact JSON, members sorted by name. The error is a
// *RunError.
func (o Output) JSON() ([]byte, error) {
	w := &writer{}
	if err := w.value(o.value, 0); err != nil {
		return nil, err
	}
	return w.out, nil
}

// IsText says that it is a string.
func (o Output) IsText() bool {
	_, ok := o.value.(string)
	return ok
}

func tooLong() *RunError { return &RunError{Why: "the program makes more than 1 MiB of text"} }

// writer writes JSON up to MaxOutput bytes. The library's own writer has no end,
// and a small value may hold the same part a million times.
type writer struct{ out []byte }

func (w *writer) value(v any, depth int) error {
	if depth > maxDepth {
		return &RunError{Why: "the program makes a value that nests too deep"}
	}
	switch v := v.(type) {
	case []any:
		return w.array(v, depth)
	case map[string]any:
		return w.object(v, depth)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return &RunError{Why: "the program makes a number that JSON cannot write"}
		}
	case string:
		if len(v) > MaxOutput {
			return tooLong()
		}
	case *big.Int:
		if v.BitLen() > MaxOutput {
			return tooLong()
		}
	}
	text, err := gojq.Marshal(v)
	if err != nil {
		return err
	}
	return w.add(string(text))
}

func (w *writer) add(text string) error {
	if w.out = append(w.out, text...); len(w.out) > MaxOutput {
		return tooLong()
	}
	return nil
}

func (w *writer) array(items []any, depth int) error {
	separator := "["
	for _, item := range items {
		if err := w.add(separator); err != nil {
			return err
		}
		if err := w.value(item, depth+1); err != nil {
			return err
		}
		separator = ","
	}
	return w.end(separator, "[", "]")
}

func (w *writer) object(members map[string]any, depth int) error {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	separator := "{"
	for _, name := range names {
		if err := w.add(separator); err != nil {
			return err
		}
		if err := w.value(name, depth); err != nil {
			return err
		}
		if err := w.add(":"); err != nil {
			return err
		}
		if err := w.value(members[name], depth+1); err != nil {
			return err
		}
		separator = ","
	}
	return w.end(separator, "{", "}")
}

// end closes a list that begins with open, which an empty one has not written.
func (w *writer) end(separator, open, closing string) error {
	if separator == open {
		return w.add(open + closing)
	}
	return w.add(closing)
}
