package session

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// priority orders the reads that wait for the API's rate: what a session needs
// after a (re)connect goes first, then discovery, then the regular resync.
type priority int

const (
	priorityConnect priority = iota
	priorityDiscover
	priorityResync
	priorities
)

// pacerBurst is how many requests may be made at once after a quiet time.
const pacerBurst = 100

// pacer keeps requests to the Agents API below a rate. It slows down when the
// API answers 429 and finds its way back with every success.
type pacer struct {
	mu      sync.Mutex
	limiter *rate.Limiter
	full    rate.Limit
	paused  time.Time
	waiting [priorities][]chan struct{}
	timer   *time.Timer
}

func newPacer(perSecond float64) *pacer {
	return &pacer{limiter: rate.NewLimiter(rate.Limit(perSecond), pacerBurst), full: rate.Limit(perSecond)}
}

// wait returns when a request may be made, or with the context's error.
func (p *pacer) wait(ctx context.Context, prio priority) error {
	turn := p.join(prio)
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		p.leave(prio, turn)
		return context.Cause(ctx)
	}
}

// join puts the caller in its queue and lets go whoever may go.
func (p *pacer) join(prio priority) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	turn := make(chan struct{})
	p.waiting[prio] = append(p.waiting[prio], turn)
	p.release()
	return turn
}

func (p *pacer) leave(prio priority, turn chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiting[prio], turn); i >= 0 {
		p.waiting[prio] = slices.Delete(p.waiting[prio], i, i+1)
	}
}

// release lets the first ones go for which there are tokens, and comes back
// when the next token is due. The caller holds the lock.
func (p *pacer) release() {
	for prio := range p.waiting {
		for len(p.waiting[prio]) > 0 {
			if wait := p.nextIn(); wait > 0 {
				p.comeBack(wait)
				return
			}
			close(p.waiting[prio][0])
			p.waiting[prio] = p.waiting[prio][1:]
		}
	}
}

// nextIn takes a token, or says how long until there is one.
func (p *pacer) nextIn() time.Duration {
	now := time.Now()
	if wait := p.paused.Sub(now); wait > 0 {
		return wait
	}
	if p.limiter.AllowN(now, 1) {
		return 0
	}
	missing := 1 - p.limiter.TokensAt(now)
	return max(time.Duration(missing/float64(p.limiter.Limit())*float64(time.Second)), time.Millisecond)
}

func (p *pacer) comeBack(after time.Duration) {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(after, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.release()
	})
}

// maxPause bounds how long one answer may hold the reads of every session: a
// call whose event was missed is found by nothing else.
const maxPause = time.Minute

// limited halves the rate and holds everything for as long as the API asks, up
// to maxPause.
func (p *pacer) limited(retryAfter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limiter.SetLimit(max(p.limiter.Limit()/2, p.full/20))
	if until := time.Now().Add(min(max(retryAfter, time.Second), maxPause)); until.After(p.paused) {
		p.paused = until
	}
}

// succeeded gives back a little of what limited took.
func (p *pacer) succeeded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if limit := p.limiter.Limit(); limit < p.full {
		p.limiter.SetLimit(min(limit+p.full/50, p.full))
	}
}
