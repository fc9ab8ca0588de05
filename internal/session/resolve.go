package session

import (
	"context"
	"errors"
	"time"

	"functionbridge/internal/journal"
)

// ErrNotInDoubt means that a call has no outcome to be resolved.
var ErrNotInDoubt = errors.New("the call is not in doubt")

// Resolve gives a call that is in doubt the outcome that an operator found out,
// and has it posted. It returns the call as it is then. It fails with
// ErrNotInDoubt, also for a call that is not known, and with the journal's error
// when the outcome could not be saved; then the call is in doubt as before.
func (m *Manager) Resolve(ctx context.Context, key journal.Key, outcome journal.Outcome) (journal.Call, error) {
	m.mu.Lock()
	f := m.sessions[key.SessionID]
	m.mu.Unlock()
	if f == nil {
		return journal.Call{}, ErrNotInDoubt
	}
	t, image, err := f.resolve(key, outcome)
	if err != nil {
		return journal.Call{}, err
	}
	err = m.cfg.Journal.Save(ctx, image, journal.Durable)
	f.mu.Lock()
	defer f.mu.Unlock()
	t.idle()
	if err != nil {
		if t.call.State == journal.Answered {
			t.doubtAgain()
		}
		return journal.Call{}, err
	}
	if t.postable() {
		t.start(t.submit)
	}
	return t.call, nil
}

// resolve moves a call in doubt to answered, busy until that is saved.
func (f *follower) resolve(key journal.Key, outcome journal.Outcome) (*task, journal.Call, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tasks[key]
	if t == nil || t.busy || t.call.State != journal.InDoubt {
		return nil, journal.Call{}, ErrNotInDoubt
	}
	t.busy = true
	t.unresolved = t.call.Outcome
	t.call.Outcome, t.call.AnsweredAt, t.call.State = outcome, time.Now(), journal.Answered
	f.log.Info("a call in doubt was resolved", "turn_id", key.TurnID, "call_id", key.CallID, "outcome", outcome.Label())
	return t, t.changed(), nil
}

// doubtAgain takes back a resolution that is not on disk. The lock is held.
func (t *task) doubtAgain() {
	t.call.Outcome, t.call.AnsweredAt, t.call.State = t.unresolved, time.Time{}, journal.InDoubt
	t.call.Rev++
}
