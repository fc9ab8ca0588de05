package jq

import (
	"encoding/json"
	"math/big"
	"strings"

	"github.com/itchyny/gojq"
)

// What is counted, in bytes: about what it takes in memory, rounded up. An element
// is its place in a list that has just grown, and the number or string in it.
const (
	perElement = 40
	perMember  = 48
	// An object has room for eight members from the start.
	perObject     = 320
	perMoreMember = 80
	// An entry of to_entries is an object of two.
	perEntry = perObject + perElement
)

// count counts what a function is about to make of its input and arguments. Its
// error ends the run, or says that the arguments cannot be used.
type count func(m *machine, in any, args []any) error

// flat is what a value takes without what is in it.
func flat(v any) int64 {
	switch v := v.(type) {
	case string:
		return int64(len(v))
	case json.Number:
		return int64(len(v))
	case []any:
		return 16 * int64(len(v))
	case map[string]any:
		return perMember * int64(len(v)+1)
	case *big.Int:
		return int64(v.BitLen()) / 8
	}
	return 0
}

// deep counts a value with all that is in it, so many times over. What stands in
// several places counts in each of them.
func (m *machine) deep(v any, times int64) error {
	w := weigher{left: m.left / times}
	if !w.add(v, 0) {
		if w.tooDeep {
			return failf("a value nests too deep")
		}
		return m.charge(m.left + 1)
	}
	return m.charge((m.left/times - w.left) * times)
}

// work counts a value with all that is in it where nothing is made of it, but all
// of it is looked at: a quarter.
func (m *machine) work(values ...any) error {
	for _, v := range values {
		w := weigher{left: m.left * 4}
		switch {
		case w.add(v, 0):
		case w.tooDeep:
			return failf("a value nests too deep")
		}
		if err := m.charge((m.left*4-w.left)/4 + 1); err != nil {
			return err
		}
	}
	return nil
}

// worked counts the input so.
func worked(m *machine, in any, _ []any) error { return m.work(in) }

// weigher adds values up until there is nothing left.
type weigher struct {
	left    int64
	tooDeep bool
}

func (w *weigher) add(v any, depth int) bool {
	if w.left -= 8 + flat(v); w.left < 0 {
		return false
	}
	if depth > maxDepth {
		w.tooDeep = true
		return false
	}
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if !w.add(item, depth+1) {
				return false
			}
		}
	case map[string]any:
		for name, member := range v {
			if w.left -= int64(len(name)); w.left < 0 || !w.add(member, depth+1) {
				return false
			}
		}
	}
	return true
}

// deeply counts the input and the arguments whole, so many times over.
func deeply(times int64) count {
	return func(m *machine, in any, args []any) error {
		for _, v := range append([]any{in}, args...) {
			if err := m.deep(v, times); err != nil {
				return err
			}
		}
		return nil
	}
}

// flatly counts the input without what is in it, so many times over, and so much
// for each of its parts.
func flatly(times, each int64) count {
	return func(m *machine, in any, _ []any) error {
		return m.charge(times*flat(in) + each*int64(length(in)))
	}
}

// sorted counts lists that are sorted, or searched, by their values.
func sorted(m *machine, in any, _ []any) error {
	if err := m.charge(perElement * int64(length(in))); err != nil {
		return err
	}
	return m.deep(in, 2)
}

func length(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case []any:
		return len(v)
	case map[string]any:
		return len(v)
	}
	return 0
}

// elements are the values of a list or an object.
func elements(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case map[string]any:
		values := make([]any, 0, len(v))
		for _, member := range v {
			values = append(values, member)
		}
		return values
	}
	return nil
}

// summed counts add and join.
func summed(m *machine, in any, args []any) error {
	size := int64(0)
	for _, v := range elements(in) {
		size += 8 + flat(v)
	}
	for _, separator := range args {
		size += int64(length(in)) * flat(separator)
	}
	return m.charge(size)
}

// multiplied counts what compares all parts of two values with each other.
func multiplied(m *machine, in any, args []any) error {
	other := args[0]
	if _, ok := in.(string); ok {
		return m.charge(flat(in) + flat(other))
	}
	return m.product(in, other)
}

func (m *machine) product(a, b any) error {
	before := m.left
	if err := m.deep(a, 1); err != nil {
		return err
	}
	size := before - m.left
	if err := m.deep(b, 1); err != nil {
		return err
	}
	nodes := (before - m.left - size) / 8
	if size > 0 && nodes > m.left/size {
		return m.charge(m.left + 1)
	}
	return m.charge(nodes * size / 8)
}

// splitted counts the parts of a text.
func splitted(m *machine, in any, args []any) error {
	text, ok := in.(string)
	separator, ok2 := args[0].(string)
	if !ok || !ok2 {
		return nil
	}
	return m.charge((perElement + 16) * int64(strings.Count(text, separator)+1))
}

// transposed counts a table with as many rows as the longest has columns.
func transposed(m *machine, in any, _ []any) error {
	longest := 0
	for _, row := range elements(in) {
		longest = max(longest, length(row))
	}
	rows := int64(length(in))
	if rows > 0 && int64(longest) > m.left/(16*rows) {
		return m.charge(m.left + 1)
	}
	return m.charge((16*rows + perElement) * int64(longest))
}

// decoded counts fromjson.
func decoded(m *machine, in any, _ []any) error {
	text, ok := in.(string)
	if !ok {
		return nil
	}
	if err := fits([]byte(text)); err != nil {
		return failf("fromjson: the text %s", err)
	}
	return m.charge(workByByte * int64(len(text)))
}

// digits refuses texts that are too long for a number.
func digits(_ *machine, in any, _ []any) error {
	if text, ok := in.(string); ok && len(text) > maxDigits {
		return failf("tonumber: the text %s", errBigNumber)
	}
	return nil
}

// indexed counts the elements before one that may be set.
func indexed(m *machine, in any, _ []any) error {
	if _, isList := in.([]any); isList {
		return failf("a list is no index")
	}
	i, isNumber := gojq.ToInt(in)
	if !isNumber || i <= m.highest {
		return nil
	}
	if i > maxIndex {
		return failf("an index is too large")
	}
	more := i - m.highest
	m.highest = i
	return m.charge(16 * int64(more))
}

// pathed counts the indices of a path.
func pathed(m *machine, in any, args []any) error {
	for _, path := range args {
		for _, step := range elements(path) {
			if err := indexed(m, step, nil); err != nil {
				return err
			}
		}
	}
	return m.extend(flat(in), 0)
}

// assigned counts the copy that setting a part of a value makes.
func assigned(m *machine, in any, _ []any) error { return m.extend(flat(in), perElement) }

// calculated counts what an operator makes.
func calculated(op gojq.Operator) count {
	return func(m *machine, _ any, args []any) error {
		left, right := args[0], args[1]
		switch op {
		case gojq.OpAdd:
			return m.extend(flat(left), flat(right))
		case gojq.OpMul:
			return m.multiply(left, right)
		case gojq.OpDiv:
			return splitted(m, left, []any{right})
		case gojq.OpSub:
			return m.subtract(left, right)
		case gojq.OpMod:
			return m.charge(flat(left) + flat(right))
		default:
			return m.compare(left, right)
		}
	}
}

func (m *machine) compare(left, right any) error {
	if length(left) == 0 || length(right) == 0 {
		return nil
	}
	return m.work(left, right)
}

func (m *machine) subtract(left, right any) error {
	if _, isList := left.([]any); isList {
		return m.product(left, right)
	}
	return m.charge(flat(left) + flat(right))
}

// multiply counts products: of numbers, of a text and a number, which repeats it,
// and of objects, which are joined.
func (m *machine) multiply(left, right any) error {
	if _, isText := right.(string); isText {
		left, right = right, left
	}
	if text, isText := left.(string); isText {
		return m.repeat(text, right)
	}
	if _, isObject := left.(map[string]any); isObject {
		return deeply(1)(m, left, []any{right})
	}
	a, b := flat(left), flat(right)
	return m.charge(a + b + a*b/16)
}

func (m *machine) repeat(text string, by any) error {
	times, isNumber := gojq.ToFloat64(by)
	switch size := float64(len(text)) * times; {
	case !isNumber || text == "" || !(size > 0):
		return nil
	case size > float64(m.left):
		return m.charge(m.left + 1)
	default:
		return m.charge(int64(size))
	}
}
