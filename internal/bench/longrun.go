package main

import (
	"context"
	"fmt"
	"strconv"
)

// longRun measures whether memory and open files grow with the number of calls.
type longRun struct {
	sizes

	early, late resting
}

func (m *longRun) round(ctx context.Context, r *rig, _ int) error {
	settings := apiSettings{sessions: m.sessions, active: m.sessions}
	err := r.play(ctx, "memory", settings, func(ctx context.Context, s *stage) error {
		b, err := s.startBridge(ctx, true, s.followAll())
		if err != nil {
			return err
		}
		if err := s.api.tell("follow"); err != nil {
			return b.blame("follow", err)
		}
		if m.early, err = s.playAndRest(ctx, b, m.sizes.early); err != nil {
			return err
		}
		if m.late, err = s.playAndRest(ctx, b, m.calls-m.sizes.early); err != nil {
			return err
		}
		calls, err := s.finish(b.process)
		if err != nil {
			return err
		}
		return s.checkJournal(ctx, b, calls)
	})
	r.say("memory    %.1f MiB after %d calls, %.1f MiB after %d", mebibytes(m.early.memory), m.sizes.early, mebibytes(m.late.memory), m.calls)
	return err
}

// playAndRest plays so many calls and reads what the bridge holds once it has come to rest.
func (s *stage) playAndRest(ctx context.Context, b *bridge, calls int) (resting, error) {
	if err := s.api.tell(fmt.Sprintf("play %d", calls)); err != nil {
		return resting{}, b.blame("play", err)
	}
	if err := wait(ctx, s.settle); err != nil {
		return resting{}, err
	}
	return s.resting(ctx, b)
}

func (m *longRun) report() report {
	row := func(calls int, r resting) []string {
		return []string{thousands(calls), inMebibytes(r.memory), inMebibytes(r.peak), inMebibytes(r.heap), strconv.Itoa(r.files)}
	}
	calls, early := thousands(m.calls), thousands(m.sizes.early)
	return report{
		tables: []table{{
			title:  fmt.Sprintf("A long run of %d sessions, %s after the last call", m.sessions, seconds(m.settle)),
			header: []string{"calls", "memory", "peak", "Go heap in use", "open files"}, left: 1,
			rows: [][]string{row(m.sizes.early, m.early), row(m.calls, m.late)},
		}},
		goals: []goal{
			atMost(fmt.Sprintf("memory after %s calls, more than after %s", calls, early), 60, "MiB", mebibytes(m.late.memory-m.early.memory)),
			m.files(calls, early),
		},
	}
}

// moreFiles is by how many the connections of the calls that are in flight differ by chance.
const moreFiles = 16

func (m *longRun) files(calls, early string) goal {
	growth := m.late.files - m.early.files
	return goal{
		what:     fmt.Sprintf("open files after %s calls, more than after %s", calls, early),
		measured: strconv.Itoa(growth), limit: fmt.Sprintf("at most %d", moreFiles), met: growth <= moreFiles,
	}
}
