package session

import (
	"context"
	"errors"
	"time"

	"github.com/tidwall/gjson"
)

// discover lists the sessions of an agent again and again and follows those
// that it finds. There is no way to ask the API for sessions with pending
// calls, and an old session can get a new call: so all pages are read.
func (m *Manager) discover(ctx context.Context, agentID string) {
	failing := false
	for {
		err := m.cfg.Client.List(ctx, agentID, func(raw []byte) {
			session := gjson.ParseBytes(raw)
			if id := session.Get("id").Str; id != "" && session.Get("status").Str != sessionFailed {
				m.found(id)
			}
		})
		if err != nil && !errors.Is(err, context.Canceled) && !failing {
			m.cfg.Logger.WarnContext(ctx, "listing sessions failed; it is tried again", "agent_id", agentID, "error", err)
		}
		failing = err != nil
		if !sleep(ctx, jitter(m.cfg.DiscoverInterval)) {
			return
		}
	}
}

// sleep waits, and reports whether it did so to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
