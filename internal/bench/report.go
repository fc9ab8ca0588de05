package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
)

// goal is one of those that this project has set itself, with what was measured.
type goal struct {
	what, measured, limit string
	met                   bool
}

// atMost judges the median of values.
func atMost(what string, limit float64, unit string, values ...float64) goal {
	return goal{what: what, measured: spread(values, unit), limit: "at most " + round(limit) + " " + unit, met: median(values) <= limit}
}

func atLeast(what string, limit float64, unit string, values ...float64) goal {
	return goal{what: what, measured: spread(values, unit), limit: "at least " + round(limit) + " " + unit, met: median(values) >= limit}
}

// writeReport prints where this ran, the tables and the goals, as Markdown or in plain columns.
func writeReport(out io.Writer, o options, list []chosen) error {
	var tables []table
	goals := table{title: "Goals", header: []string{"goal", "measured", "limit", "met"}, left: 1}
	for _, c := range list {
		r := c.report()
		tables = append(tables, r.tables...)
		for _, g := range r.goals {
			goals.rows = append(goals.rows, []string{g.what, g.measured, g.limit, map[bool]string{true: "yes", false: "NO"}[g.met]})
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s/%s, %s, %d processors (%s); rounds: %d, of %s\n", runtime.GOOS, runtime.GOARCH, runtime.Version(),
		runtime.NumCPU(), processorName(), o.rounds, seconds(o.duration))
	for _, t := range append(tables, goals) {
		if len(t.rows) > 0 {
			text.WriteString(t.text(o.markdown))
		}
	}
	if _, err := io.WriteString(out, text.String()); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}
