package router_test

import (
	"strings"
	"testing"
)

// What a warning says of a missing argument is what happens without it.
func TestArgumentsThatTemplatesNeedFailTheCallWhenTheyAreMissing(t *testing.T) {
	t.Parallel()
	table, err := parseFixture(t, "testdata/odd/template-argument-not-required.yaml")
	if err != nil {
		t.Fatal(err)
	}
	route := lookup(t, table, "get_customer")
	for args, want := range map[string]string{
		`{"customer_id":1}`:                                     "The argument part is missing.",
		`{"customer_id":1,"part":"p","text":"t"}`:               "The argument trace is missing.",
		`{"customer_id":1,"part":"p","trace":"r"}`:              "The argument text is missing.",
		`{"customer_id":1,"part":"p","trace":"r","text":"t"}`:   "",
		`{"customer_id":1,"part":"p","trace":"r","text":""}`:    "The argument text is empty.",
		`{"customer_id":1,"part":null,"trace":"r","text":"t"}`:  "The argument part is null.",
		`{"part":"p","trace":"r","text":"t","expand":"orders"}`: "The argument customer_id is missing.",
	} {
		err := route.Check([]byte(args))
		if strings.Contains(args, "customer_id") && err != nil {
			t.Errorf("%s: the parameters refuse it: %v", args, err)
		}
		if err == nil {
			_, err = route.Build([]byte(args), values())
		}
		if got := sentenceOf(t, err); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: got %q, want %q", args, got, want)
		}
	}
}

// A name that the parameters do not allow is a mistake only where the request needs
// it: the rest of this table can be called.
func TestArgumentsThatAreLeftOutDoNotFailTheCall(t *testing.T) {
	t.Parallel()
	table, err := parseFixture(t, "testdata/odd/template-argument-left-out.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := wired(t, table, "find", `{"a":1}`).URL; got != "http://host/x?a=1" {
		t.Errorf("find: %s", got)
	}
	if got := sentenceOf(t, lookup(t, table, "find").Check([]byte(`{"a":1,"b":2}`))); !strings.HasPrefix(got, "The argument b is not known") {
		t.Errorf("find with b: %q", got)
	}
	if err := lookup(t, table, "patterns").Check([]byte(`{"x-a":1,"b":2}`)); err != nil {
		t.Errorf("patterns: %v", err)
	}
	if got := wired(t, table, "patterns", `{"x-a":1,"b":2}`).URL; got != "http://host/1/2" {
		t.Errorf("patterns: %s", got)
	}
}
