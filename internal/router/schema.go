package router

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"go.yaml.in/yaml/v4"
)

// schema checks arguments against a JSON Schema, several at a time.
type schema struct {
	text []byte
	// names are the arguments that the schema knows, sorted.
	names []string
	// closed says that no other arguments are allowed, whatever else the schema
	// says.
	closed bool
	// required are the arguments that must be there; nil when that takes more than
	// the list of this name to tell.
	required []string
	// free are the checkers that nobody uses; when there is none, another is
	// compiled.
	free chan *checker
}

// maxFree is how many checkers of a schema are kept.
const maxFree = 8

// checker is a compiled schema that counts its work: a schema that describes a
// nested value in several ways can make each level double what is to be done.
type checker struct {
	compiled *jsonschema.Schema
	// spent counts the schemas that were held against a value, limit bounds them.
	spent, limit int
}

const (
	// freeEffort and effortByByte bound the work of one check: no sensible schema
	// comes near.
	freeEffort   = 50_000
	effortByByte = 10
)

var errTooMuchEffort = errors.New("too much effort")

// Validate is called for every schema that is held against a value. A panic is
// the only way out of the library.
func (c *checker) Validate(*jsonschema.ValidatorContext, any) {
	if c.spent++; c.spent > c.limit {
		panic(errTooMuchEffort)
	}
}

const (
	// schemaURL is the base that a schema's own references resolve against.
	schemaURL = "routes:///parameters"
	draftURL  = "https://json-schema.org/draft/2020-12/schema"
)

// noLoader refuses every reference that leaves a schema, without any access to
// files or hosts.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errors.New("not loaded") }

// parameters reads and compiles a JSON Schema; nil when it cannot be used.
func (r *reader) parameters(f field) *parameters {
	if f.value.Kind != yaml.MappingNode {
		r.wrongf(f, "must be a JSON Schema (a mapping), not %s", kindOf(f.value))
		return nil
	}
	text, ok := r.json(f.path, f.value)
	if !ok || !r.describesObject(f) {
		return nil
	}
	if tooLarge(text) {
		r.wrongf(f, "bad JSON Schema: a number in it is too large")
		return nil
	}
	c, err := compileSchema(text)
	if err != nil {
		r.schemaProblems(f, err)
		return nil
	}
	if c.refersToItself() {
		r.wrongf(f, "bad JSON Schema: a reference leads back to itself, so nothing ever fits")
		return nil
	}
	s := &schema{text: text, names: slices.Sorted(maps.Keys(c.compiled.Properties)), free: make(chan *checker, maxFree)}
	s.closed = c.compiled.AdditionalProperties == false && len(c.compiled.PatternProperties) == 0
	s.required = c.required()
	s.free <- c
	return &parameters{text: text, schema: s}
}

// required lists the arguments that must be there, nil when other parts of the
// schema may demand some too.
func (c *checker) required() []string {
	s := c.compiled
	if s.Ref != nil || s.DynamicRef != nil || s.Not != nil || s.If != nil || s.MinProperties != nil ||
		len(s.AllOf)+len(s.AnyOf)+len(s.OneOf)+len(s.DependentRequired)+len(s.DependentSchemas) > 0 {
		return nil
	}
	return append([]string{}, s.Required...)
}

// describesObject checks the two things that a schema of arguments must say, if
// it says anything about them: the draft, and that arguments are an object.
func (r *reader) describesObject(f field) bool {
	if draft := child(f.value, "$schema"); draft != nil && strings.TrimSuffix(draft.Value, "#") != draftURL {
		r.problems.addf(r.at(draft), "%s.$schema: must be %s", f.path, draftURL)
		return false
	}
	types := child(f.value, "type")
	if types == nil || types.Value == "object" {
		return true
	}
	for _, item := range types.Content {
		if item.Value == "object" {
			return true
		}
	}
	r.problems.addf(r.at(types), "%s.type: must be object: arguments are one", f.path)
	return false
}

// compileSchema contains what the library may do with a hostile schema.
func compileSchema(text []byte) (made *checker, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it cannot be compiled: %v", r)
		}
	}()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	made = &checker{limit: freeEffort}
	c := jsonschema.NewCompiler()
	c.RegisterVocabulary(&jsonschema.Vocabulary{
		URL:     "routes:///effort",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) { return made, nil },
	})
	c.AssertVocabs()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(noLoader{})
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, err
	}
	made.compiled, err = c.Compile(schemaURL)
	return made, err
}

// refersToItself says that following the references of a schema never ends,
// which the library finds only when a value is checked.
func (c *checker) refersToItself() bool {
	invalid, ok := errors.AsType[*jsonschema.ValidationError](c.validate(map[string]any{}))
	return ok && slices.ContainsFunc(leaves(invalid), func(e *jsonschema.ValidationError) bool {
		_, cycle := e.ErrorKind.(*kind.RefCycle)
		return cycle
	})
}

// schemaProblems reports why a schema does not compile, each mistake at the node
// that holds it.
func (r *reader) schemaProblems(f field, err error) {
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if e, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			for _, c := range complaints(e, nil) {
				node, path := follow(f, c.location)
				r.problems.addf(r.at(node), "%s: bad JSON Schema: %s", path, c.clause)
			}
			return
		}
	}
	if bad, ok := errors.AsType[*jsonschema.InvalidRegexError](err); ok {
		_, pointer, _ := strings.Cut(bad.URL, "#")
		node, path := follow(f, append(pointerParts(pointer), "pattern"))
		r.problems.addf(r.at(node), "%s: bad JSON Schema: the pattern %s is not one of RE2: %s", path, quoteWord(bad.Regex), bad.Err)
		return
	}
	if target, reason := badReference(err); reason != "" {
		node, path := findReference(f, target)
		r.problems.addf(r.at(node), "%s: bad JSON Schema: %s", path, reason)
		return
	}
	r.wrongf(f, "bad JSON Schema: %s", strings.ReplaceAll(err.Error(), schemaURL, "parameters"))
}

// badReference says which reference is at fault and why.
func badReference(err error) (target, reason string) {
	if e, ok := errors.AsType[*jsonschema.LoadURLError](err); ok {
		return e.URL, "a reference stays inside the schema: files and hosts are not read"
	}
	if e, ok := errors.AsType[*jsonschema.JSONPointerNotFoundError](err); ok {
		return e.URL, "the reference leads nowhere"
	}
	if e, ok := errors.AsType[*jsonschema.AnchorNotFoundError](err); ok {
		return e.Reference, "the reference leads nowhere"
	}
	return "", ""
}

// findReference finds the $ref that resolved to target; the schema itself when
// there is none.
func findReference(f field, target string) (*yaml.Node, string) {
	node, path := f.value, f.path
	var walk func(n *yaml.Node, at string) bool
	walk = func(n *yaml.Node, at string) bool {
		if n.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(n.Content); i += 2 {
				key, value := n.Content[i].Value, n.Content[i+1]
				if strings.HasPrefix(key, "$") && strings.HasSuffix(key, "ef") && refersTo(value.Value, target) {
					node, path = value, join(at, key)
					return true
				}
				if walk(value, join(at, key)) {
					return true
				}
			}
			return false
		}
		for i, item := range n.Content {
			if walk(item, at+"."+strconv.Itoa(i)) {
				return true
			}
		}
		return false
	}
	walk(f.value, f.path)
	return node, path
}

// refersTo says that a reference as it is written may resolve to target, which
// has no fragment when a whole document was asked for.
func refersTo(reference, target string) bool {
	document, _, _ := strings.Cut(reference, "#")
	return (reference != "" && strings.HasSuffix(target, reference)) || (document != "" && strings.HasSuffix(target, document))
}

func pointerParts(pointer string) []string {
	var parts []string
	for part := range strings.SplitSeq(strings.Trim(pointer, "/"), "/") {
		if part != "" {
			decoded, _ := decode(part)
			parts = append(parts, strings.NewReplacer("~1", "/", "~0", "~").Replace(decoded))
		}
	}
	return parts
}

// follow walks from a field along the parts of a JSON pointer, as far as they
// lead.
func follow(f field, parts []string) (*yaml.Node, string) {
	node, path := f.value, f.path
	for _, part := range parts {
		next := child(node, part)
		if node.Kind == yaml.SequenceNode {
			if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(node.Content) {
				next = node.Content[i]
			}
		}
		if next == nil {
			break
		}
		node, path = next, join(path, part)
	}
	return node, path
}

// child is the value of a key in a mapping, or nil.
func child(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// Check holds the arguments, one JSON object, against the route's parameters.
// The error is an *ArgumentError.
func (r *Route) Check(args []byte) error {
	if r.schema == nil {
		return nil
	}
	return r.schema.check(args)
}

// check contains what the library may do with hostile values: it panics, and
// works without bound, on numbers with huge exponents.
func (s *schema) check(args []byte) error {
	if tooLarge(args) {
		return &ArgumentError{Sentence: "The arguments hold a number that is too large."}
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(args))
	if err != nil {
		return &ArgumentError{Sentence: "The arguments must be one JSON object."}
	}
	c, err := s.checker()
	if err != nil {
		return &ArgumentError{Sentence: uncheckable}
	}
	defer s.release(c)
	c.spent, c.limit = 0, freeEffort+effortByByte*len(args)
	err = c.validate(value)
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	switch {
	case err == nil:
		return nil
	case ok:
		return &ArgumentError{Sentence: sentence(complaints(invalid, s.names))}
	case errors.Is(err, errTooMuchEffort):
		return &ArgumentError{Sentence: "The arguments take too much work to check: send simpler values."}
	}
	return &ArgumentError{Sentence: uncheckable}
}

const uncheckable = "The arguments cannot be checked against the parameters of the function."

// validate turns a panic of the library, or of the count of its work, into an
// error.
func (c *checker) validate(value any) (err error) {
	defer func() {
		if r := recover(); r != nil {
			if err, _ = r.(error); err == nil {
				err = fmt.Errorf("%v", r)
			}
		}
	}()
	return c.compiled.Validate(value)
}

func (s *schema) checker() (*checker, error) {
	select {
	case c := <-s.free:
		return c, nil
	default:
		return compileSchema(s.text)
	}
}

func (s *schema) release(c *checker) {
	select {
	case s.free <- c:
	default:
	}
}

const (
	// plainDigits is how many digits and powers of ten a number has for free.
	plainDigits = 40
	// maxDigits bounds one number, maxAllDigits all numbers of a text
	// together: exact arithmetic costs more than its digits.
	maxDigits    = 5_000
	maxAllDigits = 100_000
)

// tooLarge says that a JSON text holds numbers whose exact value takes too much
// work, such as 1e4000000.
func tooLarge(text []byte) bool {
	total := 0
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			i = afterString(text, i)
		case c == '-' || (c >= '0' && c <= '9'):
			end := i + 1
			for end < len(text) && strings.IndexByte("+-.eE0123456789", text[end]) >= 0 {
				end++
			}
			digits := digitsOf(text[i:end])
			if digits > maxDigits {
				return true
			}
			total += max(0, digits-plainDigits)
			i = end
		default:
			i++
		}
		if total > maxAllDigits {
			return true
		}
	}
	return false
}

func afterString(text []byte, start int) int {
	for i := start + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// digitsOf counts the digits of a number plus its power of ten.
func digitsOf(number []byte) int {
	i := bytes.IndexAny(number, "eE")
	if i < 0 {
		return len(number)
	}
	exponent, err := strconv.Atoi(string(number[i+1:]))
	if err != nil {
		return maxDigits + 1
	}
	return i + min(abs(exponent), maxDigits+1)
}
