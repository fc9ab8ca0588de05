package router_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"functionbridge/internal/router"
)

const orderParameters = `
version: 1
routes:
  f:
    url: http://host/
    parameters:
      type: object
      additionalProperties: false
      required: [order_id]
      properties:
        order_id: { type: integer, minimum: 1, maximum: 9007199254740993 }
        amount: { type: number, exclusiveMinimum: 0, maximum: 99.95, multipleOf: 0.01 }
        currency: { enum: [EUR, USD] }
        kind: { const: refund }
        email: { type: string, format: email }
        day: { type: string, format: date }
        code: { type: string, pattern: "^[A-Z]{3}$", minLength: 1, maxLength: 5 }
        tags: { type: array, items: { type: string }, minItems: 1, maxItems: 2, uniqueItems: true }
        customer: { type: object, required: [name], properties: { name: { type: string }, emails: { type: array, items: { type: string } } }, maxProperties: 2 }
        phone: { type: [string, "null"] }
        contact: { anyOf: [{ type: string, minLength: 3 }, { type: "null" }] }
        either: { oneOf: [{ type: integer }, { type: number, minimum: 10 }] }
        never: false
        not: { not: { const: 1 } }
      dependentRequired: { amount: [currency] }
`

func TestWrongArgumentsAreNamedWithTheReason(t *testing.T) {
	t.Parallel()
	route := lookup(t, parse(t, orderParameters, nil), "f")
	for args, want := range map[string]string{
		`{"order_id":9007199254740993}`:                           "",
		`{"order_id":1.0}`:                                        "",
		`{"order_id":9007199254740994}`:                           "The argument order_id must be at most 9007199254740993, got 9007199254740994.",
		`{}`:                                                      "The argument order_id is missing.",
		`{"order_id":null}`:                                       "The argument order_id must be an integer, got null.",
		`{"order_id":"7"}`:                                        "The argument order_id must be an integer, got a string.",
		`{"order_id":1.5}`:                                        "The argument order_id must be an integer, got a number.",
		`{"order_id":0}`:                                          "The argument order_id must be at least 1, got 0.",
		`{"order_id":1,"order":2}`:                                "The argument order is not known.",
		`{"order_id":1,"orderid":2}`:                              "The argument orderid is not known (did you mean order_id?).",
		`{"order_id":1,"amount":0,"currency":"EUR"}`:              "The argument amount must be more than 0, got 0.",
		`{"order_id":1,"amount":99.951,"currency":"EUR"}`:         "The argument amount must be a multiple of 0.01, got 99.951; the argument amount must be at most 99.95, got 99.951.",
		`{"order_id":1,"amount":0.07,"currency":"EUR"}`:           "",
		`{"order_id":1,"amount":5}`:                               "The argument currency is missing: amount needs it.",
		`{"order_id":1,"currency":"GBP"}`:                         `The argument currency must be one of "EUR", "USD", got "GBP".`,
		`{"order_id":1,"kind":"x"}`:                               `The argument kind must be "refund", got "x".`,
		`{"order_id":1,"email":"nobody"}`:                         `The argument email must be a valid email, got "nobody".`,
		`{"order_id":1,"day":"31.01.2026"}`:                       `The argument day must be a valid date (such as 2026-01-31), got "31.01.2026".`,
		`{"order_id":1,"code":"abc"}`:                             `The argument code must match the pattern ^[A-Z]{3}$, got "abc".`,
		`{"order_id":1,"tags":[]}`:                                "The argument tags must have at least 1 item, has 0.",
		`{"order_id":1,"tags":["a",7]}`:                           "The argument tags[1] must be a string, got a number.",
		`{"order_id":1,"tags":["a","a"]}`:                         "The argument tags must not hold the same item twice (items 0 and 1).",
		`{"order_id":1,"customer":{}}`:                            "The argument customer.name is missing.",
		`{"order_id":1,"customer":{"name":"n","emails":["a",1]}}`: "The argument customer.emails[1] must be a string, got a number.",
		`{"order_id":1,"phone":5}`:                                "The argument phone must be null or a string, got a number.",
		`{"order_id":1,"phone":null}`:                             "",
		`{"order_id":1,"contact":"a"}`:                            "The argument contact must have at least 3 characters, has 1.",
		`{"order_id":1,"contact":[]}`:                             "The argument contact fits none of its allowed forms (must be a string, got an array, or must be null, got an array).",
		`{"order_id":1,"either":12}`:                              "The argument either fits more than one of its forms and must fit exactly one.",
		`{"order_id":1,"never":1}`:                                "The argument never has a value that is not allowed.",
		`{"order_id":1,"not":1}`:                                  "The argument not has a value that is not allowed.",
	} {
		err := route.Check([]byte(args))
		if got := sentenceOf(t, err); got != want {
			t.Errorf("%s:\n got %q\nwant %q", args, got, want)
		}
	}
}

// sentenceOf is what the model is told, empty for good arguments.
func sentenceOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	e, ok := errors.AsType[*router.ArgumentError](err)
	if !ok {
		t.Fatalf("want an ArgumentError, got %T: %v", err, err)
	}
	return e.Sentence
}

func TestManyWrongArgumentsGiveAShortList(t *testing.T) {
	t.Parallel()
	route := lookup(t, parse(t, orderParameters, nil), "f")
	const args = `{"a1":1,"b2":1,"c3":1,"order_id":"x","tags":7,"email":5,"day":5,"customer":5}`
	const want = "The argument a1 is not known; the argument b2 is not known; the argument c3 is not known; " +
		"the argument customer must be an object, got a number; the argument day must be a string, got a number; and 3 more."
	for range 20 { // the validator walks maps: the order must not change
		if got := sentenceOf(t, route.Check([]byte(args))); got != want {
			t.Fatalf("got %q", got)
		}
	}
	long := `{"order_id":1,"currency":"` + strings.Repeat("x", 1e6) + `","` + strings.Repeat("y", 1e5) + `":1}`
	if got := sentenceOf(t, route.Check([]byte(long))); len(got) > 1000 {
		t.Errorf("%d bytes long", len(got))
	}
}

func TestMistakesOfTheWholeObjectAndOfDeepValuesAreSentences(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  names: { url: "http://host/", parameters: { propertyNames: { pattern: "^a" }, minProperties: 1 } }
  forms: { url: "http://host/", parameters: { oneOf: [{ required: [a] }, { required: [b] }] } }
  deep: { url: "http://host/", parameters: { type: object, additionalProperties: { $ref: "#" } } }
  choices:
    url: http://host/
    parameters:
      properties: { n: { $ref: "#/$defs/tree" }, m: { $ref: "#/$defs/branches" } }
      $defs:
        tree: { type: object, properties: { n: { anyOf: [{ $ref: "#/$defs/tree" }, { $ref: "#/$defs/tree" }] } } }
        branches: { oneOf: [{ type: object, required: [a], properties: { m: { $ref: "#/$defs/branches" } } }, { type: object, required: [b], properties: { m: { $ref: "#/$defs/branches" } } }] }
`, nil)
	deep := strings.Repeat(`{"`+strings.Repeat("a", 80)+`":`, 2000) + "5" + strings.Repeat("}", 2000)
	part := strings.Repeat("a", 60) + "…"
	ends := strings.Repeat("."+part, 6)[1:]
	choices := strings.Repeat(`{"m":`, 8) + "{}" + strings.Repeat("}", 8)
	for _, c := range []struct{ name, args, want string }{
		{"names", `{}`, "The arguments object must have at least 1 member, has 0."},
		{"names", `{"b":1}`, "The arguments object holds the name b, which is not allowed."},
		{"forms", `{"a":1,"b":2}`, "The arguments object fits more than one of its forms and must fit exactly one."},
		{"forms", `{}`, "The arguments object fits none of its allowed forms (a is missing, or b is missing)."},
		{"deep", deep, "The argument " + ends + "…" + ends + " must be an object, got a number."},
		{"choices", `{"n":{"n":{"n":5}}}`, "The argument n.n.n must be an object, got a number."},
		{"choices", `{"m":{}}`, "The argument m fits none of its allowed forms (a is missing, or b is missing)."},
	} {
		if got := sentenceOf(t, lookup(t, table, c.name).Check([]byte(c.args))); got != c.want {
			t.Errorf("%s with %.40s: %s", c.name, c.args, got)
		}
	}
	if got := sentenceOf(t, lookup(t, table, "choices").Check([]byte(choices))); len(got) > 1000 {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

// The validator panics on numbers with huge exponents and works without bound
// on large ones; either way the call fails quickly and nothing else does.
func TestHugeNumbersAreRefusedQuickly(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  f:
    url: http://host/
    parameters:
      properties:
        n: { minimum: 0 }
        m: { multipleOf: 3 }
        i: { type: integer }
        e: { enum: [1, 2] }
        u: { uniqueItems: true }
  free: http://host/
`, nil)
	many := strings.Repeat("1e4000,", 50_000)
	for _, args := range []string{
		`{"n":1e4000000}`, `{"n":-1e4000000}`, `{"n":1e-4000000}`, `{"n":1e1000001}`, `{"n":1E+99999999999999999999}`, `{"m":1e4000000}`, `{"i":1e4000000}`,
		`{"e":1e4000000}`, `{"u":[1e4000000,1e4000000]}`, `{"m":[` + many + `0]}`, `{"other":1e4000000}`, `{"n":` + strings.Repeat("9", 1e6) + `}`,
	} {
		start := time.Now()
		if got := sentenceOf(t, lookup(t, table, "f").Check([]byte(args))); got != "The arguments hold a number that is too large." {
			t.Errorf("%.40s: %q", args, got)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("%.40s took %v", args, took)
		}
		if err := lookup(t, table, "free").Check([]byte(args)); err != nil {
			t.Errorf("%.40s without parameters: %v", args, err)
		}
	}
	for _, args := range []string{`{"n":1e400}`, `{"n":1e-400}`, `{"s":"1e4000000","n":5}`, `{"s":"\"1e4000000"}`} {
		if err := lookup(t, table, "f").Check([]byte(args)); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// A schema that describes a nested value in two ways doubles the work with each
// level of the value.
func TestNestedChoicesAreBounded(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  f:
    url: http://host/
    parameters:
      properties: { n: { $ref: "#/$defs/tree" } }
      $defs: { tree: { type: object, properties: { n: { anyOf: [{ $ref: "#/$defs/tree" }, { $ref: "#/$defs/tree" }] } } } }
`, nil)
	route := lookup(t, table, "f")
	nested := func(levels int) []byte {
		return []byte(strings.Repeat(`{"n":`, levels) + "5" + strings.Repeat("}", levels))
	}
	start := time.Now()
	if got := sentenceOf(t, route.Check(nested(200))); got != "The arguments take too much work to check: send simpler values." {
		t.Errorf("got %s", got)
	}
	if took := time.Since(start); took > 30*time.Second { // well under one is usual; the race detector is slow
		t.Errorf("took %v", took)
	}
	if got := sentenceOf(t, route.Check(nested(3))); got != "The argument n.n.n must be an object, got a number." {
		t.Errorf("after it: %s", got)
	}
	many := []byte(`{"other":[` + strings.Repeat(`{"a":1},`, 200_000) + `1],"n":{}}`)
	if err := route.Check(many); err != nil {
		t.Errorf("many values: %v", err)
	}
}

func TestChecksRunSideBySide(t *testing.T) {
	t.Parallel()
	route := lookup(t, parse(t, orderParameters, nil), "f")
	var group sync.WaitGroup
	for range 32 { // more than are kept ready
		group.Go(func() {
			for range 50 {
				if route.Check([]byte(`{"order_id":1,"tags":["a"]}`)) != nil || route.Check([]byte(`{}`)) == nil {
					t.Error("another verdict")
				}
			}
		})
	}
	group.Wait()
}

func TestSchemaOfSeveralHundredLevelsDoesNotCrash(t *testing.T) {
	t.Parallel()
	table := parse(t, `
version: 1
routes:
  f:
    url: http://host/
    parameters: { $ref: "#/$defs/node", $defs: { node: { properties: { next: { $ref: "#/$defs/node" } } } } }
`, nil)
	args := strings.Repeat(`{"next":`, 5000) + "{}" + strings.Repeat("}", 5000)
	if err := lookup(t, table, "f").Check([]byte(args)); err != nil {
		t.Errorf("%v", err)
	}
}
