package session

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// gate holds requests back that are known to be refused, and lets one through
// now and then to find out whether they still are.
type gate struct {
	least, most time.Duration

	// closed spares every post the lock that all of them would share; it follows
	// opened.
	closed atomic.Bool

	mu sync.Mutex
	// opened is closed when the gate opens; nil while it is open.
	opened chan struct{}
	// tryAt is when the next request may find out, and wait how long the one
	// after it has to wait.
	tryAt time.Time
	wait  time.Duration
}

// shut closes the gate, or keeps it closed for longer than the last time. It
// reports whether the gate was open.
func (g *gate) shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := g.opened == nil
	if first {
		g.opened, g.wait = make(chan struct{}), g.least
		g.closed.Store(true)
	}
	// Of the requests that were under way when the gate closed, each is refused
	// too; they say nothing new.
	if now := time.Now(); first || !now.Before(g.tryAt) {
		g.delay(now)
	}
	return first
}

// delay sets the time of the next try. The caller holds the lock.
func (g *gate) delay(now time.Time) {
	g.tryAt = now.Add(jitter(g.wait))
	g.wait = min(2*g.wait, g.most)
}

// open lets everything through again and reports whether it was held back.
func (g *gate) open() bool {
	if !g.closed.Load() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		return false
	}
	close(g.opened)
	g.opened = nil
	g.closed.Store(false)
	return true
}

func (g *gate) isShut() bool { return g.closed.Load() }

// turn lets the caller go (wait is 0), or says when to ask again and which
// channel tells that the gate has opened before.
func (g *gate) turn() (wait time.Duration, opened <-chan struct{}) {
	if !g.closed.Load() {
		return 0, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		return 0, nil
	}
	now := time.Now()
	if wait = g.tryAt.Sub(now); wait > 0 {
		return wait, g.opened
	}
	g.delay(now)
	return 0, nil
}

// pass returns when the caller may go, or with the cause of the end of ctx.
func (g *gate) pass(ctx context.Context) error {
	for {
		wait, opened := g.turn()
		if wait == 0 {
			return nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-opened:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		timer.Stop()
	}
}
