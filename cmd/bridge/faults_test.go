package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// faultTests are the files whose every test is a row of the fault matrix.
var faultTests = []string{
	"cmd/bridge/line_outage_test.go", "cmd/bridge/line_recovery_test.go", "cmd/bridge/kill_test.go", "cmd/bridge/diskfull_test.go",
	"cmd/bridge/synced_test.go", "cmd/bridge/cases_faults_test.go", "cmd/bridge/cases_outage_test.go", "internal/journal/sqlite/damage_test.go", "internal/forward/once_test.go",
}

// needNoRow are tests in these files that are no fault of their own.
func needNoRow() []string {
	return []string{
		"TestEmptyFileOfTheFirstStartIsFine", "TestForeigner", "TestLargeFileIsLookedThroughWhileItIsUsed", "TestLogWithoutItsFileIsKept",
		"TestIdempotentCallIsSentAgainUnderItsKey", "TestRefusedKeyIsSaidAndHeals",
	}
}

// testNames finds the tests in a file.
func testNames(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, m[1])
	}
	return names
}

// Every row of the fault matrix names a test that there is, and every test of a fault has its row.
func TestFaultMatrixAndTestsAreInStep(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	err = filepath.WalkDir("../..", func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			all = append(all, testNames(t, path)...)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| fault |") {
			continue
		}
		rows++
		if len(cells) != 5 {
			t.Errorf("a row has %d cells, want 5: %s", len(cells), line)
			continue
		}
		name := strings.Trim(cells[4], "`| ")
		if !slices.Contains(all, name) {
			t.Errorf("there is no test %q, which this row names: %s", name, line)
		}
	}
	if rows < 40 {
		t.Errorf("the matrix has %d rows", rows)
	}
	for _, path := range faultTests {
		for _, name := range testNames(t, filepath.Join("../..", path)) {
			if !strings.Contains(string(text), "`"+name+"`") && !slices.Contains(needNoRow(), name) {
				t.Errorf("the matrix has no row for %s", name)
			}
		}
	}
}
