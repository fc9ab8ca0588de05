package router

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v4"
)

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// json writes a node as JSON: keys in file order, numbers as they are written,
// dates as strings. It reports what JSON cannot say.
func (r *reader) json(path string, n *yaml.Node) (json.RawMessage, bool) {
	var out bytes.Buffer
	ok := r.writeJSON(&out, path, n)
	return out.Bytes(), ok
}

func (r *reader) writeJSON(out *bytes.Buffer, path string, n *yaml.Node) bool {
	good := true
	switch n.Kind {
	case yaml.MappingNode:
		out.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				out.WriteByte(',')
			}
			writeString(out, n.Content[i].Value)
			out.WriteByte(':')
			good = r.writeJSON(out, join(path, n.Content[i].Value), n.Content[i+1]) && good
		}
		out.WriteByte('}')
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			good = r.writeJSON(out, path, item) && good
		}
		out.WriteByte(']')
	default:
		return r.writeScalar(out, path, n)
	}
	return good
}

func (r *reader) writeScalar(out *bytes.Buffer, path string, n *yaml.Node) bool {
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0
	switch {
	// The library takes a number that it cannot hold for text.
	case !quoted && jsonNumber.MatchString(n.Value):
		if tooLarge([]byte(n.Value)) {
			r.problems.addf(r.at(n), "%s: the number %s is too large", path, quoteWord(n.Value))
			return false
		}
		out.WriteString(n.Value)
	case n.Tag == "!!null":
		out.WriteString("null")
	case n.Tag == "!!bool":
		value, ok := boolean(n)
		if !ok {
			r.problems.addf(r.at(n), "%s: must be true or false, got %s", path, quoteWord(n.Value))
			return false
		}
		out.WriteString(strconv.FormatBool(value))
	case n.Tag == "!!int" || n.Tag == "!!float":
		if !jsonNumber.MatchString(n.Value) {
			r.problems.addf(r.at(n), "%s: %s is not a number in JSON: write it in plain decimal, or in quotes", path, quoteWord(n.Value))
			return false
		}
		out.WriteString(n.Value)
	case plainTag(n):
		writeString(out, n.Value)
	default:
		r.problems.addf(r.at(n), "%s: the tag %s is not supported", path, quoteWord(n.Tag))
		return false
	}
	return true
}

func writeString(out *bytes.Buffer, text string) {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) //nolint:errchkjson // a string always encodes
	out.Truncate(out.Len() - 1)
}
