package main

import (
	"context"
	"fmt"
	"time"
)

// keepAlive is how often the API writes to an idle stream. The bridge opens a stream anew that is silent for a minute.
const keepAlive = 15 * time.Second

// idleSessions measures the memory of sessions that are followed and do nothing: a bridge that follows many against one
// that follows a single one.
type idleSessions struct {
	sizes

	one, many resting
}

// resting is what a bridge holds while nothing happens.
type resting struct {
	holding

	heap int64
}

func (m *idleSessions) round(ctx context.Context, r *rig, _ int) (err error) {
	if m.one, err = r.rest(ctx, "idle-one", 1); err != nil {
		return err
	}
	m.many, err = r.rest(ctx, "idle-many", m.idle)
	r.say("idle      %d sessions: %.1f KiB and %.1f KiB of heap each", m.idle, kibibytes(m.each(m.one.memory, m.many.memory)),
		kibibytes(m.each(m.one.heap, m.many.heap)))
	return err
}

// each is the share of one session.
func (m *idleSessions) each(one, many int64) int64 { return (many - one) / int64(m.idle-1) }

// rest lets a bridge follow idle sessions until all are read, and then come to rest.
func (r *rig) rest(ctx context.Context, name string, sessions int) (held resting, err error) {
	err = r.play(ctx, name, apiSettings{sessions: sessions, keepAlive: keepAlive}, func(ctx context.Context, s *stage) error {
		if err := s.askForAll(ctx); err != nil {
			return err
		}
		b, err := s.startBridge(ctx, true, "BRIDGE_API_RATE=200") // at 20 a second the reads take minutes
		if err != nil {
			return err
		}
		// A session is read when its stream stands, and once more soon after.
		for _, command := range []string{"follow", "read 2"} {
			if err := s.api.tell(command); err != nil {
				return b.blame(command, err)
			}
		}
		if err := wait(ctx, r.settle); err != nil {
			return err
		}
		held, err = s.resting(ctx, b)
		return err
	})
	return held, err
}

// resting reads memory before the metrics, whose reading takes some too.
func (s *stage) resting(ctx context.Context, b *bridge) (r resting, err error) {
	if r.holding, err = b.holding(); err != nil {
		return r, err
	}
	r.heap, err = s.metric(ctx, b, heapInUse)
	return r, err
}

func (m *idleSessions) report() report {
	memory, heap := kibibytes(m.each(m.one.memory, m.many.memory)), kibibytes(m.each(m.one.heap, m.many.heap))
	return report{
		tables: []table{{
			title:  fmt.Sprintf("Idle sessions, %s after all were read", seconds(m.settle)),
			header: []string{"followed", "memory", "Go heap in use", "memory each", "Go heap each", "open files"}, left: 1,
			rows: [][]string{
				{"1", inMebibytes(m.one.memory), inMebibytes(m.one.heap), "", "", thousands(m.one.files)},
				{
					thousands(m.idle), inMebibytes(m.many.memory), inMebibytes(m.many.heap),
					fmt.Sprintf("%.1f KiB", memory), fmt.Sprintf("%.1f KiB", heap), thousands(m.many.files),
				},
			},
		}},
		goals: []goal{atMost("a followed, idle session", 60, "KiB", memory)},
	}
}
