package router

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

const (
	// maxComplaints bounds how many wrong arguments a sentence names.
	maxComplaints = 5
	// maxChoices bounds how many allowed values it lists.
	maxChoices = 12
	// maxClause bounds, in characters, what is said about one argument.
	maxClause = 500
	// maxParts bounds how many levels of a place it names.
	maxParts = 12
)

// complaint is one thing that is wrong with a value: "amount" "must be at least
// 1, got 0".
type complaint struct {
	location []string
	clause   string
}

func (c complaint) equal(other complaint) bool {
	return c.clause == other.clause && slices.Equal(c.location, other.location)
}

// sentence tells the model which arguments are wrong and why.
func sentence(all []complaint) string {
	if len(all) == 0 {
		return "The arguments do not fit the parameters of the function."
	}
	clauses := make([]string, 0, maxComplaints)
	for _, c := range all[:min(len(all), maxComplaints)] {
		subject := "the argument " + dotted(c.location)
		if len(c.location) == 0 {
			subject = "the arguments object"
		}
		clauses = append(clauses, subject+" "+cut(c.clause, maxClause))
	}
	text := strings.Join(clauses, "; ")
	if more := len(all) - maxComplaints; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// dotted names a place in the arguments: customer.emails[0]. Of a deep one it
// names the two ends.
func dotted(location []string) string {
	if len(location) > maxParts {
		return dotted(location[:maxParts/2]) + "…" + dotted(location[len(location)-maxParts/2:])
	}
	var out strings.Builder
	for i, part := range location {
		switch _, err := strconv.Atoi(part); {
		case err == nil && i > 0:
			out.WriteString("[" + part + "]")
		case i > 0:
			out.WriteString("." + quoteWord(part))
		default:
			out.WriteString(quoteWord(part))
		}
	}
	return out.String()
}

// complaints flattens a validation error into its leaves, in a fixed order. known
// are the names that an unknown top-level one may have been meant to be.
func complaints(e *jsonschema.ValidationError, known []string) []complaint {
	var all []complaint
	for _, leaf := range leaves(e) {
		all = append(all, describe(leaf, known)...)
	}
	slices.SortStableFunc(all, func(a, b complaint) int {
		return cmp.Or(slices.Compare(a.location, b.location), strings.Compare(a.clause, b.clause))
	})
	return slices.CompactFunc(all, complaint.equal)
}

// leaves are the errors that say something by themselves. A choice that fits
// none of its forms is a leaf: its causes contradict each other.
func leaves(e *jsonschema.ValidationError) []*jsonschema.ValidationError {
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf, *kind.Contains, *kind.MinContains, *kind.PropertyNames, *kind.ContentSchema:
		return []*jsonschema.ValidationError{e}
	}
	if len(e.Causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	var all []*jsonschema.ValidationError
	for _, cause := range e.Causes {
		all = append(all, leaves(cause)...)
	}
	return all
}

func describe(e *jsonschema.ValidationError, known []string) []complaint {
	at := e.InstanceLocation
	var all []complaint
	each := func(names []string, clause func(name string) string) []complaint {
		for _, name := range names {
			all = append(all, complaint{append(slices.Clone(at), name), clause(name)})
		}
		return all
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		return each(k.Missing, func(string) string { return "is missing" })
	case *kind.DependentRequired:
		return each(k.Missing, func(string) string { return "is missing: " + quoteWord(k.Prop) + " needs it" })
	case *kind.Dependency:
		return each(k.Missing, func(string) string { return "is missing: " + quoteWord(k.Prop) + " needs it" })
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		return each(k.Properties, func(name string) string {
			if len(at) > 0 {
				return "is not known"
			}
			return "is not known" + didYouMean(name, known)
		})
	case *kind.AnyOf:
		return []complaint{noneFits(e)}
	case *kind.OneOf:
		if k.Subschemas == nil {
			return []complaint{noneFits(e)}
		}
		return []complaint{{at, "fits more than one of its forms and must fit exactly one"}}
	}
	return []complaint{{at, clause(e.ErrorKind)}}
}

// noneFits says what the forms of a choice ask for; what all of them ask for
// stands for itself. A form that wants another type is left out when one of the
// right type is there.
func noneFits(e *jsonschema.ValidationError) complaint {
	var forms, otherTypes []complaint
	for _, cause := range e.Causes {
		leaf := leaves(cause)[0]
		c := describe(leaf, nil)[0]
		list := &forms
		if _, isType := leaf.ErrorKind.(*kind.Type); isType && len(c.location) == len(e.InstanceLocation) {
			list = &otherTypes
		}
		if !slices.ContainsFunc(*list, c.equal) {
			*list = append(*list, c)
		}
	}
	if len(forms) == 0 {
		forms = otherTypes
	}
	if len(forms) == 1 {
		return forms[0]
	}
	text := "fits none of its allowed forms"
	if len(forms) == 2 || len(forms) == 3 {
		text += " (" + strings.Join(wishes(forms, len(e.InstanceLocation)), ", or ") + ")"
	}
	return complaint{e.InstanceLocation, text}
}

// wishes words complaints about parts of a value that lies depth levels deep.
func wishes(forms []complaint, depth int) []string {
	texts := make([]string, len(forms))
	for i, c := range forms {
		texts[i] = c.clause
		if rest := c.location[min(depth, len(c.location)):]; len(rest) > 0 {
			texts[i] = dotted(rest) + " " + c.clause
		}
	}
	return texts
}

// clause is what a leaf asks for, in plain words.
func clause(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return "must be " + typeNames(k.Want) + ", got " + typeName(k.Got)
	case *kind.Enum:
		return "must be " + choices(k.Want) + ", got " + display(k.Got)
	case *kind.Const:
		return "must be " + display(k.Want) + ", got " + display(k.Got)
	case *kind.Format:
		return "must be a valid " + k.Want + formatExample(k.Want) + ", got " + display(k.Got)
	case *kind.Pattern:
		return "must match the pattern " + bounded(k.Want) + ", got " + display(k.Got)
	case *kind.UniqueItems:
		return fmt.Sprintf("must not hold the same item twice (items %d and %d)", k.Duplicates[0], k.Duplicates[1])
	case *kind.PropertyNames:
		return "holds the name " + quoteWord(k.Property) + ", which is not allowed"
	case *kind.Not, *kind.FalseSchema:
		return "has a value that is not allowed"
	case *kind.Contains:
		return "must hold an item of the kind that is asked for"
	case *kind.MinContains:
		return fmt.Sprintf("must hold at least %d items of the kind that is asked for", k.Want)
	case *kind.MaxContains:
		return fmt.Sprintf("must hold at most %d items of the kind that is asked for", k.Want)
	}
	if text := sizeClause(k); text != "" {
		return text
	}
	if text := numberClause(k); text != "" {
		return text
	}
	return "does not fit the schema"
}

func sizeClause(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %s, has %d", count(k.Want, "character"), k.Got)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %s, has %d", count(k.Want, "character"), k.Got)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %s, has %d", count(k.Want, "item"), k.Got)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %s, has %d", count(k.Want, "item"), k.Got)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %s, has %d", count(k.Want, "member"), k.Got)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %s, has %d", count(k.Want, "member"), k.Got)
	}
	return ""
}

func numberClause(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Minimum:
		return "must be at least " + decimal(k.Want) + ", got " + decimal(k.Got)
	case *kind.Maximum:
		return "must be at most " + decimal(k.Want) + ", got " + decimal(k.Got)
	case *kind.ExclusiveMinimum:
		return "must be more than " + decimal(k.Want) + ", got " + decimal(k.Got)
	case *kind.ExclusiveMaximum:
		return "must be less than " + decimal(k.Want) + ", got " + decimal(k.Got)
	case *kind.MultipleOf:
		return "must be a multiple of " + decimal(k.Want) + ", got " + decimal(k.Got)
	}
	return ""
}

func count(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return strconv.Itoa(n) + " " + word + "s"
}

func typeNames(types []string) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = typeName(t)
	}
	return orList(names)
}

func typeName(t string) string {
	switch t {
	case "null":
		return "null"
	case "array", "integer", "object":
		return "an " + t
	default:
		return "a " + t
	}
}

func choices(values []any) string {
	words := make([]string, 0, len(values))
	for _, v := range values[:min(len(values), maxChoices)] {
		words = append(words, display(v))
	}
	if more := len(values) - maxChoices; more > 0 {
		return "one of " + strings.Join(words, ", ") + fmt.Sprintf(" and %d more", more)
	}
	if len(words) == 1 {
		return words[0]
	}
	return "one of " + strings.Join(words, ", ")
}

func formatExample(format string) string {
	switch format {
	case "regex":
		return " (RE2, without lookaround)"
	case "date":
		return " (such as 2026-01-31)"
	case "date-time":
		return " (such as 2026-01-31T12:00:00Z)"
	case "time":
		return " (such as 12:00:00Z)"
	case "duration":
		return " (such as P3DT12H)"
	}
	return ""
}

// display shows a value as JSON, never long.
func display(value any) string {
	switch v := value.(type) {
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	case json.Number:
		return bounded(v.String())
	case string:
		return strconv.Quote(bounded(v))
	}
	return fmt.Sprint(value)
}

func bounded(text string) string { return cut(text, maxQuoted) }

// decimal shows a number without an exponent, never long.
func decimal(r *big.Rat) string {
	if r == nil {
		return "another number"
	}
	if r.IsInt() {
		return bounded(r.Num().String())
	}
	return bounded(strings.TrimRight(r.FloatString(20), "0"))
}
