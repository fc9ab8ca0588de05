package router

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// reader reads typed values from the nodes of one file. Every getter reports
// a value of the wrong kind and then says false.
type reader struct {
	file     string
	data     []byte
	problems *collector
}

// field is one key of a mapping with its value; path is its full name, such as
// routes.refund.timeout.
type field struct {
	name, path string
	key, value *yaml.Node
}

func (r *reader) at(n *yaml.Node) place { return place{r.file, max(1, n.Line), max(1, n.Column)} }

// wrongf reports a problem with the value of a field.
func (r *reader) wrongf(f field, format string, args ...any) {
	r.problems.addf(r.at(f.value), "%s: %s", f.path, fmt.Sprintf(format, args...))
}

func join(path, key string) string {
	if path == "" {
		return quoteWord(key)
	}
	return path + "." + quoteWord(key)
}

// mapping returns the fields of a mapping in file order.
func (r *reader) mapping(path string, n *yaml.Node) ([]field, bool) {
	if n.Kind != yaml.MappingNode {
		r.problems.addf(r.at(n), "%s must be a mapping, not %s%s", orTable(path), kindOf(n), howToWrite(path))
		return nil, false
	}
	fields := make([]field, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		fields = append(fields, field{key.Value, join(path, key.Value), key, n.Content[i+1]})
	}
	return fields, true
}

// howToWrite shows the two mappings that every table begins with.
func howToWrite(path string) string {
	switch path {
	case "routes":
		return "; write routes: and under it NAME: URL"
	case "upstreams":
		return "; write upstreams: and under it NAME: { url: URL }"
	}
	return ""
}

func orTable(path string) string {
	if path == "" {
		return "the route table"
	}
	return path
}

// keys says which keys an object has, and of others where they belong.
type keys struct {
	now   []string
	where map[string]string
}

// object is a mapping with known keys.
type object struct {
	fields map[string]field
	// meant are the keys that a misspelt one probably is: that they are missing
	// is then no second mistake.
	meant map[string]bool
}

// missing says that a key is not there, misspelt neither.
func (o object) missing(key string) bool {
	_, there := o.fields[key]
	return !there && !o.meant[key]
}

// object reads a mapping; unknown keys are reported.
func (r *reader) object(path string, n *yaml.Node, known keys) (object, bool) {
	fields, ok := r.mapping(path, n)
	if !ok {
		return object{}, false
	}
	o := object{make(map[string]field, len(fields)), map[string]bool{}}
	for _, f := range fields {
		switch {
		case slices.Contains(known.now, f.name):
			o.fields[f.name] = f
		case known.where[f.name] != "":
			r.problems.addf(r.at(f.key), "%s: unknown key: it belongs to %s", f.path, known.where[f.name])
		default:
			hint := ""
			if meant := meantKey(f.name, known.now); meant != "" {
				o.meant[meant] = true
				hint = " (did you mean " + meant + "?)"
			}
			r.problems.addf(r.at(f.key), "%s: unknown key%s", f.path, hint)
		}
	}
	return o, true
}

// text reads a string. A number or a boolean must be put in quotes.
func (r *reader) text(f field) (string, bool) {
	if f.value.Kind != yaml.ScalarNode || !isText(f.value) {
		r.wrongf(f, "must be text, not %s%s", kindOf(f.value), quoteIt(f.value))
		return "", false
	}
	return f.value.Value, true
}

// isScalar allows text, numbers and booleans, which count as the text that they
// are written as.
func (r *reader) isScalar(f field) bool {
	if f.value.Kind != yaml.ScalarNode || f.value.Tag == "!!null" || !plainTag(f.value) {
		r.wrongf(f, "must be text, not %s%s", kindOf(f.value), quoteIt(f.value))
		return false
	}
	return true
}

// quoteIt is what to write when a template without quotes, which YAML takes for a
// mapping, stands where a text must.
func quoteIt(n *yaml.Node) string {
	if template := unquotedTemplate(n); template != "" {
		return "; quote it: " + strconv.Quote(template)
	}
	return ""
}

// unquotedTemplate is {x} as it was written, when YAML made a mapping of it; else
// empty.
func unquotedTemplate(n *yaml.Node) string {
	if n.Kind != yaml.MappingNode || n.Style&yaml.FlowStyle == 0 || len(n.Content) == 0 {
		return ""
	}
	var names []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		if value := n.Content[i+1]; value.Kind != yaml.ScalarNode || value.Tag != "!!null" || value.Value != "" {
			return ""
		}
		names = append(names, n.Content[i].Value)
	}
	return cut("{"+strings.Join(names, ",")+"}", maxQuoted)
}

func isText(n *yaml.Node) bool { return n.Tag == "!!str" || n.Tag == "!!timestamp" }

func plainTag(n *yaml.Node) bool {
	switch n.Tag {
	case "!!str", "!!timestamp", "!!int", "!!float", "!!bool", "!!null", "!!merge":
		return true
	}
	return false
}

func (r *reader) boolean(f field) *bool {
	if f.value.Kind != yaml.ScalarNode || f.value.Tag != "!!bool" {
		r.wrongf(f, "must be true or false, %s", notThis(f.value, "true", "false"))
		return nil
	}
	value, ok := boolean(f.value)
	if !ok {
		r.wrongf(f, "must be true or false, got %s", quoteWord(f.value.Value))
		return nil
	}
	return &value
}

// notThis says what stands where something else must: a text as it is, for YAML
// may take as text what other readers do not, and else its kind.
func notThis(n *yaml.Node, allowed ...string) string {
	switch {
	case n.Kind != yaml.ScalarNode || n.Tag != "!!str":
		return "not " + kindOf(n)
	case slices.Contains(allowed, n.Value):
		return "not text: remove the quotes"
	}
	return "got " + quoteWord(n.Value)
}

// boolean is the value of a node tagged !!bool. The tag may have been written by
// hand, before anything.
func boolean(n *yaml.Node) (value, ok bool) {
	switch strings.ToLower(n.Value) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// duration reads a positive duration such as 30s or 1m30s.
func (r *reader) duration(f field) *time.Duration {
	if f.value.Kind != yaml.ScalarNode || (f.value.Tag != "!!str" && f.value.Tag != "!!int" && f.value.Tag != "!!float") {
		r.wrongf(f, "must be a duration such as 30s, not %s", kindOf(f.value))
		return nil
	}
	d, err := time.ParseDuration(f.value.Value)
	switch {
	case err != nil:
		r.wrongf(f, "must be a duration with its unit, such as 500ms, 30s or 2m, got %s", quoteWord(f.value.Value))
		return nil
	case d <= 0:
		r.wrongf(f, "must be positive, got %s", f.value.Value)
		return nil
	}
	return &d
}

// number reads a whole number from low to high.
func (r *reader) number(f field, low, high int64) *int64 {
	n, err := strconv.ParseInt(f.value.Value, 10, 64)
	if f.value.Kind != yaml.ScalarNode || (f.value.Tag != "!!int" && f.value.Tag != "!!float") {
		unquoted := ""
		if err == nil {
			unquoted = f.value.Value
		}
		r.wrongf(f, "must be a whole number, %s", notThis(f.value, unquoted))
		return nil
	}
	if err != nil || n < low || n > high {
		r.wrongf(f, "must be a whole number from %d to %d, got %s", low, high, quoteWord(f.value.Value))
		return nil
	}
	return &n
}

// word reads one of the allowed words.
func (r *reader) word(f field, allowed ...string) *string {
	if f.value.Kind != yaml.ScalarNode || !isText(f.value) {
		r.wrongf(f, "must be %s, not %s", orList(allowed), kindOf(f.value))
		return nil
	}
	if !slices.Contains(allowed, f.value.Value) {
		r.wrongf(f, "must be %s, got %s", orList(allowed), quoteWord(f.value.Value))
		return nil
	}
	return &f.value.Value
}

// orList is "a, b or c".
func orList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
