package session

import (
	"slices"
	"time"

	"functionbridge/internal/journal"
)

func (f *follower) setStream(state string) {
	f.mu.Lock()
	f.stream = state
	f.mu.Unlock()
}

// setStatus keeps the API's status and the gauge in step. The lock is held.
func (f *follower) setStatus(status string) {
	if status == f.status {
		return
	}
	f.m.metrics.state(f.status).Dec()
	f.m.metrics.state(status).Inc()
	f.status = status
}

// known is the session as it was last read.
func (f *follower) known() journal.Session {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.session
}

// info is the follower as the admin API shows it.
func (f *follower) info() Info {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := Info{
		SessionID: f.id, AgentID: f.session.AgentID, Status: f.status, Source: f.source,
		Stream: f.stream, Drift: f.drift,
	}
	if at := f.lastEvent.Load(); at != 0 {
		i.LastEventAt = time.Unix(0, at).UTC()
	}
	for _, t := range f.tasks {
		i.Pending = append(i.Pending, t.call)
	}
	slices.SortFunc(i.Pending, func(a, b journal.Call) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return i
}
