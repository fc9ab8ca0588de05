package session

import (
	"sync"
	"time"
)

// reads has a session read whenever somebody asks, and every resync interval, by
// one errand at a time: between two reads it is a timer.
type reads struct {
	f *follower

	mu sync.Mutex
	// busy: a read is under way; asked: another one is to follow it, as urgent as
	// next says.
	busy, asked bool
	next        priority
	// timer brings about the next regular read; nil before the first is due.
	timer *time.Timer
	// ended: there are no more reads.
	ended    bool
	errands  sync.WaitGroup
	failures int // in a row
}

// ask requests a read. One that is asked for already is enough, but becomes as
// urgent as this one.
func (r *reads) ask(p priority) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
	case !r.busy:
		r.busy = true
		r.errands.Add(1)
		r.f.m.errands.Go(func() {
			defer r.errands.Done()
			r.run(p)
		})
	case r.asked:
		r.next = min(r.next, p)
	default:
		r.asked, r.next = true, p
	}
}

// after sets when the next regular read is due.
func (r *reads) after(wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.schedule(wait)
}

// schedule is after; the lock is held.
func (r *reads) schedule(wait time.Duration) {
	switch {
	case r.ended:
	case r.timer == nil:
		r.timer = time.AfterFunc(wait, func() { r.ask(priorityResync) })
	default:
		r.timer.Reset(wait)
	}
}

// run reads until nobody has asked meanwhile.
func (r *reads) run(p priority) {
	for more := true; more; {
		wait := r.read(p)
		p, more = r.done(wait)
	}
}

// read reads once and returns when to read again.
func (r *reads) read(p priority) time.Duration {
	f := r.f
	wait := f.m.cfg.ResyncInterval
	if _, err := f.refresh(f.ctx, p); err != nil && f.ctx.Err() == nil {
		r.failures++
		wait = min(wait, readBackoff(err, r.failures))
		f.logChange(r.failures, "reading the session failed; it is tried again", err)
	} else {
		r.failures = 0
	}
	return jitter(wait)
}

// done ends a read, and reports whether and how urgently another one is to follow.
func (r *reads) done(wait time.Duration) (priority, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked && !r.ended {
		r.asked = false
		return r.next, true
	}
	r.busy = false
	r.schedule(wait)
	return 0, false
}

// end waits for a read that is under way, which the end of the follower's
// context cuts short; there are none after it.
func (r *reads) end() {
	r.mu.Lock()
	r.ended = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	r.errands.Wait()
}
