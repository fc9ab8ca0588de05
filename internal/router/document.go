package router

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

const (
	// maxDepth bounds how deep a file nests.
	maxDepth = 100
	// maxAliased bounds the nodes that the aliases of a file stand for, all
	// together, against a small file that unfolds to gigabytes.
	maxAliased = 1_000_000
)

// byteOrderMark is what some editors begin a file with.
const byteOrderMark = "\uFEFF"

// document reads one YAML file into a tree without aliases and merge keys.
type document struct {
	file     string
	problems *collector
	done     map[*yaml.Node]flat
	open     map[*yaml.Node]bool
	overflow bool
	// aliased counts the nodes that aliases stand for.
	aliased int
}

// flat is a node whose aliases are replaced, and how many nodes it then has.
type flat struct {
	node *yaml.Node
	size int
}

// readDocument parses the bytes of a file. It returns nil when nothing can be
// made of them; the problems say why.
func readDocument(file string, data []byte, problems *collector) *yaml.Node {
	d := &document{file: file, problems: problems, done: map[*yaml.Node]flat{}, open: map[*yaml.Node]bool{}}
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	if !d.readable(data) {
		return nil
	}
	root := d.decode(data)
	if root == nil {
		return nil
	}
	top := d.flatten(root, 0).node
	if d.overflow {
		return nil
	}
	return top
}

// readable reports bytes that YAML does not allow, which its parser would
// report without a place.
func (d *document) readable(data []byte) bool {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			d.problems.addf(placeAt(d.file, data, i), "the file is not UTF-8")
			return false
		case (r < ' ' && r != '\t' && r != '\n' && r != '\r') || r == 0x7f:
			d.problems.addf(placeAt(d.file, data, i), "the control character U+%04X is not allowed", r)
			return false
		}
		i += size
	}
	return true
}

// decode returns the root of the only document.
func (d *document) decode(data []byte) *yaml.Node {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var first, second yaml.Node
	err := decodeNode(decoder, &first)
	if errors.Is(err, io.EOF) {
		d.problems.addf(place{d.file, 1, 1}, "the file is empty: a route table begins with version: 1")
		return nil
	}
	if err != nil {
		d.syntaxError(data, err)
		return nil
	}
	err = decodeNode(decoder, &second)
	switch {
	case errors.Is(err, io.EOF):
	case err != nil:
		d.syntaxError(data, err)
		return nil
	default:
		d.problems.addf(d.at(&second), "a second YAML document: a file holds one")
		return nil
	}
	root := first.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		d.problems.addf(place{d.file, 1, 1}, "the file is empty: a route table begins with version: 1")
		return nil
	}
	return root
}

// decodeNode turns a panic of the YAML library into an error: the file may be
// anything.
func decodeNode(decoder *yaml.Decoder, node *yaml.Node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return decoder.Decode(node)
}

// syntaxError reports why the library cannot read the file: where it stopped, or
// where what is left open begins, when that is the end of the file or a key
// without its colon.
func (d *document) syntaxError(data []byte, err error) {
	at, message, hint := place{d.file, 1, 1}, err.Error(), ""
	if e, ok := errors.AsType[*yaml.LoadError](err); ok {
		mark := e.Mark
		if e.ContextMark.Line > 0 && (e.ContextMsg == "while scanning a simple key" || onlyBlankFrom(data, mark.Line)) {
			mark = e.ContextMark
		}
		at, message = place{d.file, max(1, mark.Line), max(1, mark.Column)}, e.Message
		hint = syntaxHint(message, lineOf(data, at.line), at.column)
	}
	d.problems.addf(at, "not valid YAML: %s%s", message, hint)
}

// syntaxHint says what is usually wrong where the library stops with this message,
// in this line and column.
func syntaxHint(message, line string, column int) string {
	runes := []rune(line)
	at := min(column-1, len(runes))
	before, after := string(runes[:at]), string(runes[at:])
	indentation := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	switch {
	case strings.Contains(indentation, "\t"):
		return ": the line begins with a tab, and YAML is indented with blanks"
	case strings.Contains(message, "',' or '}'"):
		return `: inside { }, commas stand between the entries, and a value that holds { } , or ": " in quotes`
	case strings.Contains(message, "',' or ']'"):
		return `: inside [ ], commas stand between the entries, and a value that holds [ ] { } , or ": " in quotes`
	case strings.Contains(message, "did not find expected key") && strings.HasSuffix(before, "}"):
		return ": quote a value that begins with {"
	case strings.Contains(message, "cannot start any token") && strings.HasSuffix(before, " ") && after != "" && after[0] != '\t':
		return ": quote a value that begins with " + after[:1]
	case strings.Contains(message, "mapping values are not allowed") && strings.Contains(before, ": "):
		return `: quote a value that holds ": "`
	case strings.Contains(message, "mapping values are not allowed"):
		return ": compare its indentation with the line before, and look there for an open bracket"
	}
	return ""
}

// lineOf is a line of a file, without its end.
func lineOf(data []byte, number int) string {
	for range number - 1 {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return strings.TrimSuffix(string(line), "\r")
}

// onlyBlankFrom says that a file holds nothing from a line on.
func onlyBlankFrom(data []byte, line int) bool {
	for range line - 1 {
		_, data, _ = bytes.Cut(data, []byte("\n"))
	}
	return len(bytes.TrimSpace(data)) == 0
}

// placeAt is the line and column of an offset.
func placeAt(file string, data []byte, offset int) place {
	before := data[:offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return place{file, bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[start:]) + 1}
}

func (d *document) at(n *yaml.Node) place { return place{d.file, max(1, n.Line), max(1, n.Column)} }

// flatten replaces aliases by what they stand for and merge keys by the keys
// that they bring. Each node is done once and shared, so that the work does not
// grow with the number of aliases; size counts as if it were copied.
func (d *document) flatten(n *yaml.Node, depth int) flat {
	if f, ok := d.done[n]; ok {
		return f
	}
	if d.open[n] {
		return d.stop(n, "this alias contains itself")
	}
	if depth > maxDepth {
		return d.stop(n, fmt.Sprintf("nested deeper than %d levels", maxDepth))
	}
	d.open[n] = true
	f := d.flattenKind(n, depth)
	delete(d.open, n)
	if n.Kind == yaml.AliasNode {
		if d.aliased += f.size; d.aliased > maxAliased {
			return d.stop(n, fmt.Sprintf("the aliases up to here stand for more than %d values", maxAliased))
		}
	}
	d.done[n] = f
	return f
}

// stop reports what makes the file unusable, once, and goes on with nothing.
func (d *document) stop(n *yaml.Node, message string) flat {
	if !d.overflow {
		d.problems.addf(d.at(n), "%s", message)
	}
	d.overflow = true
	return flat{&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line, Column: n.Column}, 1}
}

func (d *document) flattenKind(n *yaml.Node, depth int) flat {
	switch n.Kind {
	case yaml.AliasNode:
		return d.flatten(n.Alias, depth+1)
	case yaml.MappingNode:
		return d.flattenMapping(n, depth)
	case yaml.SequenceNode:
		clone, size := *n, 1
		clone.Content = make([]*yaml.Node, len(n.Content))
		for i, child := range n.Content {
			f := d.flatten(child, depth+1)
			clone.Content[i], size = f.node, size+f.size
		}
		return flat{&clone, size}
	default:
		return flat{n, 1}
	}
}

// flattenMapping reports duplicate keys and keys that are no strings. A key of
// its own wins over a merged one, an earlier merged one over a later.
func (d *document) flattenMapping(n *yaml.Node, depth int) flat {
	clone, size := *n, 1
	clone.Content = make([]*yaml.Node, 0, len(n.Content))
	own := map[string]*yaml.Node{}
	var merge *yaml.Node
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, f := n.Content[i], d.flatten(n.Content[i+1], depth+1)
		size += f.size + 1
		if key.Kind == yaml.ScalarNode && key.Tag == "!!merge" {
			if merge != nil {
				d.duplicate(key, merge)
			}
			merge = key
			merged = append(merged, d.mergeSources(f.node)...)
			continue
		}
		key = d.flatten(key, depth+1).node
		if !d.goodKey(key) {
			continue
		}
		if first, twice := own[key.Value]; twice {
			d.duplicate(key, first)
			continue
		}
		own[key.Value] = key
		clone.Content = append(clone.Content, key, f.node)
	}
	for _, source := range merged {
		for i := 0; i+1 < len(source.Content); i += 2 {
			if _, known := own[source.Content[i].Value]; !known {
				own[source.Content[i].Value] = source.Content[i]
				clone.Content = append(clone.Content, source.Content[i], source.Content[i+1])
			}
		}
	}
	return flat{&clone, size}
}

func (d *document) duplicate(key, first *yaml.Node) {
	d.problems.addf(d.at(key), "duplicate key %s: it stands at %s too", quoteWord(key.Value), d.at(first))
}

// mergeSources returns the mappings that a merge key brings.
func (d *document) mergeSources(n *yaml.Node) []*yaml.Node {
	sources := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		sources = n.Content
	}
	for _, s := range sources {
		if s.Kind != yaml.MappingNode {
			d.problems.addf(d.at(n), "<< takes a mapping or a list of mappings")
			return nil
		}
	}
	return sources
}

func (d *document) goodKey(key *yaml.Node) bool {
	if key.Kind != yaml.ScalarNode {
		hint := ""
		if template := unquotedTemplate(key); template != "" {
			hint = fmt.Sprintf("; write %q, in quotes and with one brace", template)
		}
		d.problems.addf(d.at(key), "a key must be a word, not %s%s", kindOf(key), hint)
		return false
	}
	switch key.Tag {
	case "!!str", "!!timestamp":
		return true
	}
	d.problems.addf(d.at(key), "the key %s must be a string: put it in quotes", quoteWord(key.Value))
	return false
}

// kindOf names what a node is, for a message.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default:
	}
	switch n.Tag {
	case "!!null":
		return "nothing"
	case "!!bool":
		return "a boolean"
	case "!!int", "!!float":
		return "a number"
	case "!!str", "!!timestamp", "!!merge":
		return "text"
	default:
		return "a value tagged " + quoteWord(n.Tag)
	}
}

// maxQuoted bounds, in characters, the words of a file that a message repeats.
const maxQuoted = 60

// quoteWord shows a word of the file in a message: as it is when it is plain,
// else quoted, and never long.
func quoteWord(word string) string {
	word = cut(word, maxQuoted)
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return r <= ' ' || r == '"' || r == ',' || !strconv.IsPrint(r) }) < 0 {
		return word
	}
	return strconv.Quote(word)
}

// cut shortens a text that is longer than so many characters.
func cut(text string, size int) string {
	if runes := []rune(text); len(runes) > size {
		return string(runes[:size]) + "…"
	}
	return text
}
