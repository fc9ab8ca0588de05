package session

import (
	"bytes"

	"functionbridge/internal/router"
)

// checkTools compares the tools of the session's agent with the route table,
// when either has changed since the last time. What would make calls fail is
// warned about once.
func (f *follower) checkTools(tools []byte) {
	if f.m.cfg.Table == nil || tools == nil {
		return
	}
	table := f.m.cfg.Table()
	f.mu.Lock()
	same := f.driftOf == table && bytes.Equal(f.tools, tools)
	f.mu.Unlock()
	if same {
		return
	}
	drift := table.Drift(tools)
	f.mu.Lock()
	f.driftOf, f.tools, f.drift = table, tools, &drift
	f.mu.Unlock()
	f.report(drift)
}

// report warns of what a session's agent may call in vain, once a session.
func (f *follower) report(d router.Drift) {
	for _, name := range d.Missing {
		if f.warnOnce("no route", name) {
			f.m.metrics.drift.WithLabelValues(driftMissing).Inc()
			f.log.Warn("the agent has a function that has no route", "function", name)
		}
	}
	for _, c := range d.Changed {
		if f.warnOnce("changed", c.Function) {
			f.m.metrics.drift.WithLabelValues(driftChanged).Inc()
			f.log.Warn("the agent's definition of a function differs from the route table", "function", c.Function, "differences", c.Differences)
		}
	}
}

// warnOnce reports whether a warning was not given in this session before.
func (f *follower) warnOnce(what, name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := what + "\x00" + name
	if f.warned[key] || len(f.warned) >= maxWarned {
		return false
	}
	if f.warned == nil {
		f.warned = map[string]bool{}
	}
	f.warned[key] = true
	return true
}

// maxWarned bounds what one session is warned about: names come from the agent.
const maxWarned = 100
