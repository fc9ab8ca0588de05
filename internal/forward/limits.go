package forward

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"functionbridge/internal/router"
)

// limits gives requests their turn. A request passes gates: its route's, its
// upstream's, and last that of all requests together. It passes all of them at
// once or waits before all of them, so that a call which waits holds nothing: no
// slot, no token of a rate, no probe of a circuit breaker. That is why one lock
// guards them all.
//
// What is free goes to the route that was served least lately, within it to the
// sessions in rounds, and within a session to the first that came. At most
// half of all requests are those of one route, or of one upstream, for which the
// table sets no max_concurrent: so a service that hangs leaves room for others.
//
// Gates outlive tables: a new table changes their numbers, and the requests
// under way keep counting.
type limits struct {
	table func() *router.Table
	log   *slog.Logger
	half  int

	mu  sync.Mutex
	all *gate
	// routes, services and shares are the gates by the name of their route or
	// upstream; see passage for the shares.
	routes, services, shares map[string]*gate
	passages                 map[passageKey]*passage
	// applied is the table that the numbers are from, and current its passages.
	applied *router.Table
	current map[*router.Route]*passage
	// served counts the turns that were given.
	served uint64
	// changes are those of circuits that the log is to be told.
	changes []circuitChange
}

func newLimits(maxCalls int, table func() *router.Table, log *slog.Logger) *limits {
	l := &limits{
		table: table, log: log, half: max(1, maxCalls/2),
		routes: make(map[string]*gate), services: make(map[string]*gate), shares: make(map[string]*gate),
		passages: make(map[passageKey]*passage),
	}
	l.all = &gate{limits: l, most: maxCalls}
	return l
}

// turn is what a request holds from enter to leave.
type turn struct {
	passage *passage
	// report tells the circuit breakers of the first gates, where they have one.
	report [breakers]func(error)
}

// enter waits for the turn of a request of a route, which lasts until leave. The
// error is a *turnError, or that of a context that has ended before or was
// canceled; it is one also when a turn and the end of ctx come together.
func (l *limits) enter(ctx context.Context, route *router.Route, session string) (turn, error) {
	if err := ctx.Err(); err != nil {
		return turn{}, err
	}
	t, w, refused := l.approach(ctx, route, session)
	switch {
	case refused != nil:
		return turn{}, refused
	case w != nil:
		return l.await(ctx, w)
	}
	return t, nil
}

// approach gives a turn, a place in the queue, or the reason for neither.
func (l *limits) approach(ctx context.Context, route *router.Route, session string) (turn, *waiter, *turnError) {
	l.mu.Lock()
	defer l.unlock()
	l.follow()
	p := l.passageOf(route)
	if now := p.clock(); p.undisturbed() && p.shut(now) == nil {
		t, refused := l.pass(p, now)
		return t, nil, refused
	}
	w, refused := l.join(ctx, p, route, session)
	return turn{}, w, refused
}

// join puts a call into its queue, unless it is of no use to wait. Its turn may
// have come already when join returns.
func (l *limits) join(ctx context.Context, p *passage, route *router.Route, session string) (*waiter, *turnError) {
	now := time.Now()
	if refused := p.circuitOpen(); refused != nil {
		return nil, refused
	}
	if refused := p.tooLate(ctx, session, now); refused != nil {
		return nil, refused
	}
	if refused := p.makeRoom(session, now, route.Timeout); refused != nil {
		return nil, refused
	}
	w := &waiter{passage: p, patience: route.Timeout, ready: make(chan struct{})}
	p.push(session, w)
	if shut := p.shut(now); shut != nil {
		shut.wakeLater(now)
		return w, nil
	}
	l.dispatchAll(p.limited())
	return w, nil
}

// await waits for the turn of a call in a queue.
func (l *limits) await(ctx context.Context, w *waiter) (turn, error) {
	select {
	case <-w.ready:
		if w.refused != nil {
			return turn{}, w.refused
		}
	case <-ctx.Done():
	}
	if ctx.Err() == nil {
		return w.turn, nil
	}
	return turn{}, l.giveUp(ctx, w)
}

// giveUp takes a call whose context has ended out of its queue, or gives its
// turn back, and says why it had none.
func (l *limits) giveUp(ctx context.Context, w *waiter) error {
	l.mu.Lock()
	defer l.unlock()
	refused := w.passage.outOfTime(time.Now(), w.patience)
	switch {
	case !w.settled:
		w.passage.remove(w)
	case w.refused == nil:
		l.free(&w.turn)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return refused
}

// leave ends a turn. A circuit breaker that was told nothing by judge learns that
// nothing came of the request.
func (l *limits) leave(t *turn) {
	l.mu.Lock()
	defer l.unlock()
	l.follow()
	l.free(t)
}

// free makes the places of a turn those of calls that wait.
func (l *limits) free(t *turn) {
	t.tell(errNothingLearned)
	full := l.all.inUse >= l.all.most
	for _, g := range t.passage.gates {
		g.inUse--
	}
	freed := t.passage.gates
	if !full {
		// Nobody waits for the last gate.
		freed = t.passage.limited()
	}
	l.dispatchAll(freed)
}

// judge tells the circuit breakers what came of a request: nil, errFailing or
// errNothingLearned. It returns how long the route's circuit stays open, 0 when
// it is not.
func (l *limits) judge(t *turn, result error) time.Duration {
	if t.report[0] == nil && t.report[1] == nil {
		return 0
	}
	l.mu.Lock()
	defer l.unlock()
	t.tell(result)
	for _, g := range t.passage.limited() {
		if g.breaker != nil && g.breaker.refuses() {
			g.turnAway()
		}
	}
	if refused := t.passage.circuitOpen(); refused != nil {
		return refused.comeBack
	}
	return 0
}

func (t *turn) tell(result error) {
	for i, report := range t.report {
		if report != nil {
			report(result)
			t.report[i] = nil
		}
	}
}

// pass lets a request through gates that are known to let it through, but for
// their circuit breakers.
func (l *limits) pass(p *passage, now time.Time) (turn, *turnError) {
	t := turn{passage: p}
	for i, g := range p.limited() {
		if g.breaker == nil {
			continue
		}
		if t.report[i] = g.breaker.allow(); t.report[i] == nil {
			t.tell(errNothingLearned) // to the first, if this is the second
			return turn{}, g.breaker.refusal()
		}
	}
	l.served++
	p.served = l.served
	for _, g := range p.gates {
		g.take(now)
	}
	for _, g := range p.limited() {
		// A probe goes alone.
		if g.waiting > 0 && g.breaker != nil && !g.breaker.closed() {
			g.turnAway()
		}
	}
	return t, nil
}

// dispatchAll lets go who waits at the gates of a passage and can go. The later
// a gate, the more routes have a turn there.
func (l *limits) dispatchAll(gates []*gate) {
	for _, g := range slices.Backward(gates) {
		l.dispatch(g)
	}
}

// dispatch lets go who waits at a gate and can go.
func (l *limits) dispatch(g *gate) {
	for g.waiting > 0 {
		now := time.Now()
		p := g.next(now)
		if p == nil {
			return
		}
		w := p.pop(now)
		t, refused := l.pass(p, now)
		w.settle(t, refused)
	}
}

// unlock logs what has changed, without the lock.
func (l *limits) unlock() {
	changes := l.changes
	l.changes = nil
	l.mu.Unlock()
	for _, c := range changes {
		c.log(l.log)
	}
}
