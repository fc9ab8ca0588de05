package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// textEvent has the Go benchmark run that skips the same text event as the bridge does and decodes it as the SDK does.
type textEvent struct {
	bridge, sdk []float64 // ns an event
}

func (m *textEvent) round(ctx context.Context, r *rig, n int) error {
	test := exec.CommandContext(ctx, "go", "test", "-run=^$", "-bench=^BenchmarkTextEvent$", //nolint:gosec // our own package
		"-benchtime="+r.benchTime.String(), "functionbridge/internal/session")
	said, err := test.CombinedOutput()
	if err != nil {
		return fmt.Errorf("run the benchmark of a text event: %w\n%s", err, said)
	}
	bridge, err := nanoseconds(said, "client=bridge")
	if err != nil {
		return err
	}
	sdk, err := nanoseconds(said, "client=sdk")
	if err != nil {
		return err
	}
	m.bridge, m.sdk = append(m.bridge, bridge), append(m.sdk, sdk)
	r.say("round %d  event     %.0f ns to skip, %.0f ns to decode", n+1, bridge, sdk)
	return nil
}

// nanoseconds finds the result of a sub-benchmark of BenchmarkTextEvent.
func nanoseconds(said []byte, name string) (float64, error) {
	line := regexp.MustCompile(`(?m)^BenchmarkTextEvent/` + regexp.QuoteMeta(name) + `(?:-\d+)?\s+\d+\s+([0-9.]+) ns/op`)
	found := line.FindSubmatch(said)
	if found == nil {
		return 0, fmt.Errorf("no result of %s in:\n%s", name, said)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

func (m *textEvent) report() report {
	var ratios []float64
	for i := range m.bridge {
		ratios = append(ratios, m.bridge[i]/m.sdk[i])
	}
	return report{
		tables: []table{{
			title: "A text event", header: []string{"what", "time (range)"}, left: 1,
			rows: [][]string{
				{"read and skipped by the bridge", spread(m.bridge, "ns")},
				{"read and decoded by the SDK", spread(m.sdk, "ns")},
			},
		}},
		goals: []goal{atMost("a text event that is skipped, against the SDK's typed decoding", 1.0/20, "×", ratios...)},
	}
}
