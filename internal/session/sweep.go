package session

import (
	"context"

	"functionbridge/internal/journal"
)

// sweep looks again and again for unsettled calls that nobody works on, and has
// them taken up: memory is the fast lane, but the journal is the truth.
func (m *Manager) sweep(ctx context.Context) {
	// A call that has just been settled, or taken, may be on disk as it was
	// before, so a call must be found twice as it is.
	suspects := map[journal.Key]int64{}
	for sleep(ctx, jitter(m.cfg.ResyncInterval)) {
		dropped, err := m.cfg.Journal.Dropped(ctx, m.carries)
		if err != nil {
			if ctx.Err() == nil {
				m.cfg.Logger.WarnContext(ctx, "looking for dropped calls failed; it is tried again", "error", err)
			}
			continue
		}
		found := make(map[journal.Key]int64, len(dropped))
		for _, call := range dropped {
			found[call.Key] = call.Rev
			if rev, again := suspects[call.Key]; again && rev == call.Rev {
				m.takeUp(ctx, call)
			}
		}
		suspects = found
	}
}

// carries reports whether somebody works on a call. One that was settled a moment
// ago is on disk as it was before, which is why sweep looks twice.
func (m *Manager) carries(key journal.Key) bool {
	m.mu.Lock()
	f := m.sessions[key.SessionID]
	m.mu.Unlock()
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	_, live := f.tasks[key]
	return live
}

// takeUp resumes a dropped call.
func (m *Manager) takeUp(ctx context.Context, call journal.Call) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		return
	}
	m.cfg.Logger.WarnContext(ctx, "an unsettled call that nobody worked on is taken up again", "state", call.State,
		"session_id", call.SessionID, "turn_id", call.TurnID, "call_id", call.CallID)
	if f, ok := m.sessions[call.SessionID]; ok {
		f.resume([]journal.Call{call})
		return
	}
	m.start(call.SessionID, SourceJournal, []journal.Call{call})
}
