package main

import (
	"fmt"
	"slices"
	"time"
)

// typical takes the median of each number by itself.
func typical(all []sample) sample {
	of := func(number func(sample) float64) float64 {
		var values []float64
		for _, s := range all {
			values = append(values, number(s))
		}
		return median(values)
	}
	return sample{
		callsPerSecond: of(func(s sample) float64 { return s.callsPerSecond }),
		cpu:            time.Duration(of(func(s sample) float64 { return float64(s.cpu) })),
		p50:            time.Duration(of(func(s sample) float64 { return float64(s.p50) })),
		p99:            time.Duration(of(func(s sample) float64 { return float64(s.p99) })),
		holding: holding{
			peak:  int64(of(func(s sample) float64 { return float64(s.holding.peak) })),
			files: int(of(func(s sample) float64 { return float64(s.holding.files) })),
		},
	}
}

// cells are the sample's numbers for a table: see sampleHeader.
func (s sample) cells() []string {
	return []string{
		thousands(int(s.callsPerSecond)), fmt.Sprintf("%.1f µs", micros(s.cpu)), fmt.Sprintf("%.2f ms", millis(s.p50)),
		fmt.Sprintf("%.2f ms", millis(s.p99)), inMebibytes(s.holding.peak), thousands(s.holding.files),
	}
}

func sampleHeader() []string {
	return []string{"calls/s", "CPU a call", "p50", "p99", "peak memory", "open files"}
}

// compare gives a number of one client over that of another, a ratio each round; none when one of them did not play.
func (c *contest) compare(load string, a, b client, number func(sample) float64) []float64 {
	var ratios []float64
	for _, round := range c.rounds {
		mine, played := round[load][a]
		others, playedToo := round[load][b]
		if played && playedToo {
			ratios = append(ratios, number(mine)/number(others))
		}
	}
	return ratios
}

func cpuOf(s sample) float64   { return float64(s.cpu) }
func speedOf(s sample) float64 { return s.callsPerSecond }

// addedP50 is what the bridge adds to the median time of a call, in ms, each round.
func (c *contest) addedP50(load string) []float64 {
	var added []float64
	for _, round := range c.rounds {
		mine, played := round[load][bridgeClient]
		bare, playedToo := round[load][bareClient]
		if played && playedToo {
			added = append(added, millis(mine.p50-bare.p50))
		}
	}
	return added
}

func (c *contest) report() report {
	return report{tables: []table{c.numbers(), c.ratios()}, goals: c.goals()}
}

func (c *contest) numbers() table {
	t := table{title: "Loads: medians of each number", header: append([]string{"load", "client"}, sampleHeader()...), left: 2}
	for _, l := range c.loads {
		for _, who := range c.clients {
			var all []sample
			for _, round := range c.rounds {
				all = append(all, round[l.name][who])
			}
			t.rows = append(t.rows, append([]string{l.describe(c.sizes), who.title()}, typical(all).cells()...))
		}
	}
	return t
}

func (c *contest) ratios() table {
	t := table{title: "Ratios: median (range) over the rounds", header: []string{"load", "of", "CPU a call", "calls/s"}, left: 2}
	for _, l := range c.loads {
		for _, who := range []client{bridgeClient, strictClient} {
			for _, other := range []client{bareClient, sdkClient} {
				cpu := c.compare(l.name, who, other, cpuOf)
				if len(cpu) > 0 {
					of := who.title() + " / " + other.title()
					t.rows = append(t.rows, []string{l.describe(c.sizes), of, spread(cpu, "×"), spread(c.compare(l.name, who, other, speedOf), "×")})
				}
			}
		}
	}
	return t
}

// goals judges what was played of the loads that goals were set for.
func (c *contest) goals() []goal {
	var goals []goal
	for _, set := range []struct {
		load, what string
		values     []float64
		judge      func(what string, limit float64, unit string, values ...float64) goal
		limit      float64
		unit       string
	}{
		{"plain", "CPU a call, bridge / bare loop", c.compare("plain", bridgeClient, bareClient, cpuOf), atMost, 1.4, "×"},
		{"plain", "calls/s, bridge / bare loop", c.compare("plain", bridgeClient, bareClient, speedOf), atLeast, 0.8, "×"},
		{"plain", "CPU a call, bridge, not idempotent / bare loop", c.compare("plain", strictClient, bareClient, cpuOf), atMost, 2.3, "×"},
		{"plain", "calls/s, bridge, not idempotent / bare loop", c.compare("plain", strictClient, bareClient, speedOf), atLeast, 0.5, "×"},
		{"text", "CPU a call, bridge / bare loop", c.compare("text", bridgeClient, bareClient, cpuOf), atMost, 1.35, "×"},
		{"text", "CPU a call, bridge / SDK helper", c.compare("text", bridgeClient, sdkClient, cpuOf), atMost, 1.0 / 12, "×"},
		{"single", "p50, bridge − bare loop", c.addedP50("single"), atMost, 1, "ms"},
	} {
		if len(set.values) > 0 {
			goals = append(goals, set.judge(c.describe(set.load)+": "+set.what, set.limit, set.unit, set.values...))
		}
	}
	return goals
}

// describe names a load that was played.
func (c *contest) describe(name string) string {
	i := slices.IndexFunc(c.loads, func(l load) bool { return l.name == name })
	return c.loads[i].describe(c.sizes)
}
