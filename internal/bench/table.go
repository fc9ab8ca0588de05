package main

import (
	"strings"
	"unicode/utf8"
)

// table is a part of the report. The first left columns are texts, the others numbers.
type table struct {
	title  string
	header []string
	left   int
	rows   [][]string
}

// text lays the table out in columns, with the marks of Markdown or without.
func (t table) text(markdown bool) string {
	widths := make([]int, len(t.header))
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	if markdown {
		out.WriteString("\n### " + t.title + "\n\n")
	} else {
		out.WriteString("\n" + t.title + "\n")
	}
	t.writeRow(&out, t.header, widths, markdown)
	if markdown {
		t.writeRule(&out, widths)
	}
	for _, row := range t.rows {
		t.writeRow(&out, row, widths, markdown)
	}
	return out.String()
}

func (t table) writeRow(out *strings.Builder, row []string, widths []int, markdown bool) {
	for i, cell := range row {
		out.WriteString(map[bool]string{true: "| ", false: "  "}[markdown])
		padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if i < t.left {
			out.WriteString(cell + padding)
		} else {
			out.WriteString(padding + cell)
		}
		if markdown {
			out.WriteString(" ")
		}
	}
	if markdown {
		out.WriteString("|")
	}
	out.WriteString("\n")
}

// writeRule writes the line below a header, which says how columns are aligned.
func (t table) writeRule(out *strings.Builder, widths []int) {
	for i, width := range widths {
		if i < t.left {
			out.WriteString("|" + strings.Repeat("-", width+2))
		} else {
			out.WriteString("|" + strings.Repeat("-", width+1) + ":")
		}
	}
	out.WriteString("|\n")
}
