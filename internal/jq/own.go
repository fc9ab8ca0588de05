package jq

import (
	"encoding/json"
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/itchyny/gojq"
)

// rounded is a function that rounds. A whole number stays as it is, of whatever
// size: the library makes a float64 of it.
func rounded(name string, round func(float64) float64) func(*machine, any, []any) any {
	return func(_ *machine, in any, _ []any) any {
		switch v := in.(type) {
		case int, *big.Int:
			return v
		case json.Number:
			if !strings.ContainsAny(v.String(), ".eE") {
				return v
			}
		}
		if v, ok := gojq.ToFloat64(in); ok {
			return round(v)
		}
		return failf("%s cannot be applied to: %s", name, gojq.TypeOf(in))
	}
}

// keyedBy is INDEX, in which the library copies what it has for each row:
//
//	[rows | [(key | tostring), .] | each:element] | own:object
func keyedBy(g *guard, f *gojq.Func) *gojq.Query {
	rows, key := iterated(identity()), f.Args[len(f.Args)-1]
	if len(f.Args) > 1 {
		rows = paren(f.Args[0])
	}
	text := paren(pipe(paren(key), pipe(g.ours("before:text"), call("tostring"))))
	pair := listOf(&gojq.Query{Left: text, Op: gojq.OpComma, Right: identity()})
	return pipe(listOf(pipe(rows, pipe(pair, g.ours("each:entry")))), g.ours("own:object"))
}

// objectOf makes an object of names and values.
func objectOf(_ *machine, in any, _ []any) any {
	object := map[string]any{}
	for _, pair := range elements(in) {
		if pair := elements(pair); len(pair) == 2 {
			if name, isText := pair[0].(string); isText {
				object[name] = pair[1]
			}
		}
	}
	return object
}

// occurrences says which places are asked for.
type occurrences int

const (
	firstOnly occurrences = iota
	lastOnly
	allOfThem
)

// indexOf is index, rindex and indices. Places in a text are counted in letters.
func indexOf(which occurrences) func(*machine, any, []any) any {
	return func(m *machine, in any, args []any) any {
		var places []any
		var err error
		switch v := in.(type) {
		case nil:
			return nil
		case string:
			wanted, ok := args[0].(string)
			if !ok {
				return failf("index in a text takes a text, not: %s", gojq.TypeOf(args[0]))
			}
			places, err = m.placesInText(v, wanted, which)
		case []any:
			wanted, ok := args[0].([]any)
			if !ok {
				wanted = []any{args[0]}
			}
			places, err = m.placesInList(v, wanted)
		default:
			return failf("index cannot be applied to: %s", gojq.TypeOf(in))
		}
		switch {
		case err != nil:
			return err
		case which == allOfThem:
			return places
		case len(places) == 0:
			return nil
		case which == firstOnly:
			return places[0]
		default:
			return places[len(places)-1]
		}
	}
}

func (m *machine) placesInText(text, wanted string, which occurrences) ([]any, error) {
	places := []any{}
	if wanted == "" {
		return places, nil
	}
	if which == lastOnly {
		if at := strings.LastIndex(text, wanted); at >= 0 {
			places = append(places, utf8.RuneCountInString(text[:at]))
		}
		return places, m.charge(int64(len(text)))
	}
	letters := 0
	for {
		at := strings.Index(text, wanted)
		if at < 0 {
			return places, m.charge(int64(len(text)))
		}
		letters += utf8.RuneCountInString(text[:at])
		places = append(places, letters)
		if err := m.charge(perElement + int64(at+len(wanted)/16)); err != nil || which == firstOnly {
			return places, err
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		text, letters = text[at+size:], letters+1
	}
}

func (m *machine) placesInList(list, wanted []any) ([]any, error) {
	places := []any{}
	if len(wanted) == 0 {
		return places, nil
	}
	if err := m.product(list, wanted); err != nil {
		return nil, err
	}
	for i := range len(list) - len(wanted) + 1 {
		if gojq.Compare(list[i:i+len(wanted)], wanted) == 0 {
			places = append(places, i)
		}
	}
	return places, nil
}
