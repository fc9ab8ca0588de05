package router

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a route table. Line and column count from 1; a
// warning does not make the table bad.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Warning bool   `json:"warning,omitempty"`
}

// String is "file:line:column: message".
func (p Problem) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Compare orders problems as they stand in the files.
func (p Problem) Compare(other Problem) int {
	return place{p.File, p.Line, p.Column}.compare(place{other.File, other.Line, other.Column})
}

// Problems is every mistake of a table, in the order of the file.
type Problems []Problem //nolint:errname // it is a list of mistakes first, and an error so that Load can return it

// Error gives all problems, one a line.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.String()
	}
	return strings.Join(lines, "\n")
}

// place is where something stands in the files of a table.
type place struct {
	file         string
	line, column int
}

func (p place) String() string { return fmt.Sprintf("%s:%d:%d", p.file, p.line, p.column) }

func (p place) compare(other place) int {
	return cmp.Or(strings.Compare(p.file, other.file), p.line-other.line, p.column-other.column)
}

// collector gathers problems, so that all are told at once. The same problem
// at the same place is kept once: a node that is used through an alias is read
// several times.
type collector struct {
	problems Problems
	seen     map[Problem]struct{}
}

func (c *collector) report(p Problem) {
	p.Message = strings.Map(oneLine, p.Message)
	if c.seen == nil {
		c.seen = map[Problem]struct{}{}
	}
	if _, known := c.seen[p]; known {
		return
	}
	c.seen[p] = struct{}{}
	c.problems = append(c.problems, p)
}

// oneLine keeps a message, which may repeat words of the file, on its line.
func oneLine(r rune) rune {
	if isControl(r) || r == '\u2028' || r == '\u2029' {
		return ' '
	}
	return r
}

func (c *collector) addf(at place, format string, args ...any) {
	c.report(Problem{File: at.file, Line: at.line, Column: at.column, Message: fmt.Sprintf(format, args...)})
}

func (c *collector) warnf(at place, format string, args ...any) {
	c.report(Problem{File: at.file, Line: at.line, Column: at.column, Message: fmt.Sprintf(format, args...), Warning: true})
}

// split returns the mistakes and the warnings, each in file order.
func (c *collector) split() (mistakes, warnings Problems) {
	slices.SortStableFunc(c.problems, Problem.Compare)
	for _, p := range c.problems {
		if p.Warning {
			warnings = append(warnings, p)
		} else {
			mistakes = append(mistakes, p)
		}
	}
	return mistakes, warnings
}
