package main

import (
	"context"
	"fmt"
)

// manySessions measures whether a call costs more when more sessions are followed, of which the same few play.
type manySessions struct {
	sizes

	samples [][]sample // by round, and as in followed
}

func (m *manySessions) round(ctx context.Context, r *rig, n int) error {
	samples := make([]sample, len(m.followed))
	for k := range m.followed {
		i := (k + n) % len(m.followed) // another is the first in each round
		sessions := m.followed[i]
		settings := apiSettings{sessions: sessions, active: m.active, keepAlive: keepAlive}
		err := r.play(ctx, fmt.Sprintf("followed-%d-%d", n+1, sessions), settings, func(ctx context.Context, s *stage) error {
			if err := s.askForAll(ctx); err != nil {
				return err
			}
			b, err := s.startBridge(ctx, true)
			if err != nil {
				return err
			}
			if err := s.api.tell("follow"); err != nil {
				return b.blame("follow", err)
			}
			if err := wait(ctx, r.settle); err != nil { // thousands of streams that open at once are not the load
				return err
			}
			calls, err := s.measure(ctx, b.process, s.api, &samples[i])
			if err != nil {
				return err
			}
			return s.checkJournal(ctx, b, calls)
		})
		if err != nil {
			return err
		}
		r.say("round %d  followed  %6d  %s", n+1, sessions, samples[i])
	}
	m.samples = append(m.samples, samples)
	return nil
}

func (m *manySessions) report() report {
	t := table{
		title:  fmt.Sprintf("Calls of %d sessions among many that are followed", m.active),
		header: []string{"followed", "calls/s", "CPU a call", "CPU a call, against " + thousands(m.followed[0]), "p50", "p99", "peak memory", "open files"}, left: 1,
	}
	var goals []goal
	for i, sessions := range m.followed {
		var all []sample
		var ratios []float64
		for _, round := range m.samples {
			all = append(all, round[i])
			ratios = append(ratios, cpuOf(round[i])/cpuOf(round[0]))
		}
		s := typical(all)
		t.rows = append(t.rows, append([]string{thousands(sessions), thousands(int(s.callsPerSecond)), fmt.Sprintf("%.1f µs", micros(s.cpu)), spread(ratios, "×")}, s.cells()[2:]...))
		if i > 0 {
			what := fmt.Sprintf("CPU a call with %s followed sessions, against %s", thousands(sessions), thousands(m.followed[0]))
			goals = append(goals, atMost(what, 1.2, "×", ratios...))
		}
	}
	return report{tables: []table{t}, goals: goals}
}
