package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// The goals for loads on an idempotent route.
const (
	cpuGoal   = 1.4 // times the CPU a call of the bare client, at most
	speedGoal = 0.8 // times its calls a second, at least
)

// percentile gives the p-th percentile of sorted durations, by nearest rank; 0 without any.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

// median of values in any order; the mean of the middle two when their number is even.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func (s sample) String() string {
	return fmt.Sprintf("%7.0f calls/s  %6.1f µs CPU a call  p50 %6.2f ms  p99 %6.2f ms",
		s.callsPerSecond, micros(s.cpu), millis(s.p50), millis(s.p99))
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// typical takes the median of each number by itself.
func (r result) typical(c client) sample {
	of := func(number func(sample) float64) float64 {
		var values []float64
		for _, p := range r.rounds {
			values = append(values, number(p[c]))
		}
		return median(values)
	}
	return sample{
		callsPerSecond: of(func(s sample) float64 { return s.callsPerSecond }),
		cpu:            time.Duration(of(func(s sample) float64 { return float64(s.cpu) })),
		p50:            time.Duration(of(func(s sample) float64 { return float64(s.p50) })),
		p99:            time.Duration(of(func(s sample) float64 { return float64(s.p99) })),
	}
}

// ratios are the bridge's numbers over the bare client's, a round each.
func (r result) ratios() (cpu, speed []float64) {
	for _, p := range r.rounds {
		cpu = append(cpu, float64(p[bridgeClient].cpu)/float64(p[bareClient].cpu))
		speed = append(speed, p[bridgeClient].callsPerSecond/p[bareClient].callsPerSecond)
	}
	return cpu, speed
}

// writeReport prints a table and the ratios for each load.
func writeReport(out io.Writer, opts options, results []result) error {
	_, err := fmt.Fprintf(out, "\n%d sessions, one call a step, %d rounds of %s; medians\n", opts.sessions, opts.rounds, opts.duration)
	for _, r := range results {
		if err == nil {
			err = r.write(out)
		}
	}
	if err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}

func (r result) write(out io.Writer) error {
	if _, err := fmt.Fprintf(out, "\n%s: %s\n", r.scenario.name, r.scenario.title); err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	if _, err := fmt.Fprintln(table, "\tcalls/s\tCPU a call\tp50\tp99\t"); err != nil {
		return err
	}
	for _, c := range []client{bareClient, bridgeClient} {
		s := r.typical(c)
		if _, err := fmt.Fprintf(table, "%s\t%.0f\t%.1f µs\t%.2f ms\t%.2f ms\t\n",
			c, s.callsPerSecond, micros(s.cpu), millis(s.p50), millis(s.p99)); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	cpu, speed := r.ratios()
	_, err := fmt.Fprintf(out, "  CPU a call %s; calls a second %s\n",
		r.judge(cpu, median(cpu) <= cpuGoal, fmt.Sprintf("at most %.1f ×", cpuGoal)),
		r.judge(speed, median(speed) >= speedGoal, fmt.Sprintf("at least %.1f ×", speedGoal)))
	return err
}

// judge prints the median of ratios, with the rounds' own, and what the goal says to it.
func (r result) judge(ratios []float64, met bool, goal string) string {
	var each []string
	for _, ratio := range ratios {
		each = append(each, fmt.Sprintf("%.2f", ratio))
	}
	text := fmt.Sprintf("%.2f × (%s)", median(ratios), strings.Join(each, " "))
	switch {
	case !r.scenario.goal:
		return text
	case met:
		return text + ", goal " + goal + ": met"
	}
	return text + ", goal " + goal + ": MISSED"
}
