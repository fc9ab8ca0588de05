package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"functionbridge/internal/journal"
	"functionbridge/internal/journal/sqlite"
)

// pendingPerSession is how many unfinished calls a session has at a start.
const pendingPerSession = 25

// fullStart measures how long a bridge with a full journal takes from its first instruction until it is ready, and until
// the calls are answered that an earlier process left.
type fullStart struct {
	sizes

	ready, answered []float64 // ms
}

func (m *fullStart) round(ctx context.Context, r *rig, n int) error {
	settings := apiSettings{sessions: max(1, m.unfinished/pendingPerSession), pending: pendingPerSession}
	return r.play(ctx, fmt.Sprintf("start-%d", n+1), settings, func(ctx context.Context, s *stage) error {
		if err := fillJournal(ctx, s.journal(), m.journaled-len(s.at.Pending), s.at.Pending); err != nil {
			return err
		}
		b, err := s.startBridge(ctx, true, s.followAll())
		if err != nil {
			return err
		}
		ready, err := s.awaitReady(ctx, b)
		if err != nil {
			return err
		}
		if err := s.api.tell("settle"); err != nil {
			return b.blame("answer what was left", err)
		}
		answered := time.Since(b.started)
		m.ready, m.answered = append(m.ready, millis(ready)), append(m.answered, millis(answered))
		r.say("start     ready after %.0f ms, all answered after %.0f ms", millis(ready), millis(answered))
		return s.checkStart(ctx, b, m.journaled)
	})
}

// awaitReady asks the bridge again and again until it says that it is ready, and gives the time since its start.
func (s *stage) awaitReady(ctx context.Context, b *bridge) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		res, err := s.get(ctx, b.public+"/readyz")
		took := time.Since(b.started)
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return took, nil
			}
		}
		if err := wait(ctx, time.Millisecond); err != nil {
			return 0, b.blame("await /readyz", err)
		}
	}
}

// fillJournal writes calls as an earlier process would have left them: settled ones, and the given ones, of which a third
// each was not sent, was on its way, and has a result that was not posted.
func fillJournal(ctx context.Context, path string, settled int, unfinished []journal.Key) (err error) {
	store, err := sqlite.Open(ctx, path, sqlite.Options{Owner: "earlier"})
	if err != nil {
		return fmt.Errorf("fill a journal: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	for i := range settled + len(unfinished) {
		key, state := journal.Key{
			SessionID: fmt.Sprintf("sess_%032d", i%64), TurnID: fmt.Sprintf("turn_%032d", i/(64*stepsPerTurn)), CallID: fmt.Sprintf("call_%032d", i),
		}, journal.Confirmed
		if i >= settled {
			key, state = unfinished[i-settled], []journal.State{journal.Pending, journal.Running, journal.Answered}[i%3]
		}
		how := journal.Lazy
		if i%1000 == 999 {
			how = journal.Durable // so that not too many rows wait
		}
		if err := store.Save(ctx, callIn(state, key), how); err != nil {
			return fmt.Errorf("fill a journal: %w", err)
		}
	}
	return nil
}

// callIn is a call that has got as far as the state.
func callIn(state journal.State, key journal.Key) journal.Call {
	now := time.Now()
	c := journal.Call{
		Key: key, Function: function, Arguments: []byte(arguments), State: state, Owner: "earlier", Rev: 1, Idempotent: true, CreatedAt: now,
	}
	if state == journal.Pending {
		return c
	}
	c.SentAt = now
	if state == journal.Running {
		return c
	}
	c.Outcome, c.AnsweredAt = journal.Success(reply), now
	c.Attempts = []journal.Attempt{{StartedAt: now, Duration: time.Millisecond, Status: http.StatusOK}}
	if state == journal.Confirmed {
		c.SubmittedAt, c.ConfirmedAt = now, now
	}
	return c
}

// checkStart demands that every call that was left got its result, and that all are confirmed. A result may be posted
// again under its key after a crash, and no call is run that had one.
func (s *stage) checkStart(ctx context.Context, b *bridge, journaled int) error {
	var t totals
	if err := s.api.ask("stop", &t); err != nil {
		return b.blame("stop", err)
	}
	if left := int64(len(s.at.Pending)); t.Results != left || t.Posts < left || t.Upstream > left || t.Wrong > 0 {
		return fmt.Errorf("%d calls were left, but it came to %+v", left, t)
	}
	return s.checkJournal(ctx, b, int64(journaled))
}

func (m *fullStart) report() report {
	unfinished := thousands(max(1, m.unfinished/pendingPerSession) * pendingPerSession)
	size := fmt.Sprintf("%s journaled calls, %s of them unfinished", thousands(m.journaled), unfinished)
	return report{
		tables: []table{{
			title: "A start with " + size, header: []string{"from the start of the process", "median (range)"}, left: 1,
			rows: [][]string{{"ready", spread(m.ready, "ms")}, {"all unfinished calls answered", spread(m.answered, "ms")}},
		}},
		goals: []goal{atMost("a start with "+size+": ready after", 500, "ms", m.ready...)},
	}
}
