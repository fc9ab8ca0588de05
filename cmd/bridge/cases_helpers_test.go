package main

import (
	"testing"

	"functionbridge/internal/router"
)

func parseTable(t *testing.T, text string) *router.Table {
	t.Helper()
	table, err := router.Parse("routes.yaml", []byte(text), router.Env{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// metric adds up what a metric counts where one of its labels has a value.
func (l *line) metric(t *testing.T, name, label string) (sum float64) {
	t.Helper()
	families, err := l.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, pair := range m.GetLabel() {
				if pair.GetValue() == label {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}
