package router_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"functionbridge/internal/router"
)

var update = flag.Bool("update", false, "rewrite the *.golden files in testdata")

// fixtureEnv are the variables that the fixtures use.
func fixtureEnv() router.Env {
	return envOf(map[string]string{
		"SET":            "s3cret-value",
		"EMPTY":          "",
		"BROKEN":         "s3cret\nvalue",
		"FRAGMENT":       "s3cret#value",
		"BASE_URL":       "http://s3cret-host/base/",
		"HOST_ONLY":      "http://s3cret-host",
		"HOST_ONLY_NAME": "s3cret-host",
		"WITH_QUERY":     "https://s3cret-host/hook?token=s3cret",
		"WITH_USER":      "https://bob:s3cret@host/",
		"HEADER":         "X-Api-Key",
		"SIGNING":        signingSecret(32),
		"FILES":          fixtureDir,
	})
}

func envOf(values map[string]string) router.Env {
	return router.Env{Lookup: func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}}
}

func fixtures(t *testing.T, kind string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", kind, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no fixtures of kind %s: %v", kind, err)
	}
	return paths
}

func parseFixture(t *testing.T, path string) (*router.Table, error) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return router.Parse(filepath.Base(path), data, fixtureEnv())
}

func TestGoodFixturesAreValid(t *testing.T) {
	t.Parallel()
	for _, path := range fixtures(t, "good") {
		table, err := parseFixture(t, path)
		if err != nil {
			t.Errorf("%s:\n%v", path, err)
			continue
		}
		if len(table.Warnings()) > 0 {
			t.Errorf("%s: warnings %v", path, table.Warnings())
		}
	}
}

// Each bad fixture holds the mistake that its name says; problems.golden has
// what is said about it, with its place.
func TestBadFixturesTellEveryMistakeWithItsPlace(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, path := range fixtures(t, "bad") {
		_, err := parseFixture(t, path)
		problems, ok := errors.AsType[router.Problems](err)
		if !ok {
			t.Errorf("%s: want problems, got %v", path, err)
			continue
		}
		got.WriteString(problems.Error() + "\n")
		if strings.Contains(problems.Error(), "s3cret") {
			t.Errorf("%s: a secret is in the problems:\n%v", path, problems)
		}
	}
	compareGolden(t, "problems.golden", got.String())
}

// Each odd fixture is valid and does what its name says; warnings.golden has what is
// said about it, with its place.
func TestOddFixturesAreValidAndWarnedAbout(t *testing.T) {
	t.Parallel()
	var got strings.Builder
	for _, path := range fixtures(t, "odd") {
		table, err := parseFixture(t, path)
		if err != nil {
			t.Errorf("%s:\n%v", path, err)
			continue
		}
		if len(table.Warnings())+len(table.ToolWarnings()) == 0 {
			t.Errorf("%s: no warning", path)
		}
		for _, w := range table.Warnings() {
			got.WriteString(w.String() + "\n")
		}
		for _, w := range table.ToolWarnings() {
			got.WriteString(w.String() + " (tools)\n")
		}
	}
	if strings.Contains(got.String(), "s3cret") {
		t.Errorf("a secret is in the warnings:\n%s", got.String())
	}
	compareGolden(t, "warnings.golden", got.String())
}

// compareGolden compares lines with those of a file, which -update writes.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	compareLines(t, string(want), got)
}

func compareLines(t *testing.T, want, got string) {
	t.Helper()
	known := map[string]bool{}
	for line := range strings.Lines(want) {
		known[line] = true
	}
	for line := range strings.Lines(got) {
		if !known[line] {
			t.Errorf("new: %s", line)
		}
		delete(known, line)
	}
	for line := range known {
		t.Errorf("gone: %s", line)
	}
}
