package session

import (
	"context"
	"sync"
	"time"
)

// patience lends one context with a deadline to all posts that begin within
// submitTimeout of each other: one of its own for each costs 2 µs, more than its
// body and its headers together, to bound what hardly ever has to be bounded.
type patience struct {
	mu     sync.Mutex
	parent context.Context
	lent   context.Context
	cancel context.CancelFunc
	// until is when another one is made.
	until time.Time
}

// within returns a context that ends with parent, or between one and two
// submitTimeout from now.
func (p *patience) within(parent context.Context, now time.Time) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.parent != parent || now.After(p.until) {
		// What was lent before is still in use, and ends by itself.
		p.lent, p.cancel = context.WithDeadline(parent, now.Add(2*submitTimeout))
		p.parent, p.until = parent, now.Add(submitTimeout)
	}
	return p.lent
}

// close ends what is lent now.
func (p *patience) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		p.cancel()
	}
}
