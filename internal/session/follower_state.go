package session

import (
	"slices"
	"sync/atomic"
	"time"

	"functionbridge/internal/journal"
)

// idleFlag remembers that it was the watchdog who ended a stream.
type idleFlag struct{ fired atomic.Bool }

func (i *idleFlag) set() { i.fired.Store(true) }

func (i *idleFlag) or(reason string) string {
	if i.fired.Load() {
		return reasonIdle
	}
	return reason
}

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
	f.m.metrics.sessions.WithLabelValues(stateLabel(f.status)).Dec()
	f.m.metrics.sessions.WithLabelValues(stateLabel(status)).Inc()
	f.status = status
}

// stateLabel keeps a status that the bridge does not know out of the metrics.
func stateLabel(status string) string {
	if slices.Contains(sessionStates(), status) {
		return status
	}
	return statusUnknown
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
