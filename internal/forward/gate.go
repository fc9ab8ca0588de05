package forward

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"functionbridge/internal/router"
)

// unbounded is the most of a gate that counts only.
const unbounded = math.MaxInt

// gate holds the limits of a route, of an upstream, or of all requests. Whoever
// uses it holds the lock of limits.
type gate struct {
	limits *limits
	// function or upstream is whose gate it is.
	function, upstream string

	// inUse counts the requests under way, most bounds them.
	inUse, most int
	// queued says that maxQueue bounds the calls that wait: the table limits the
	// requests of this gate. Waiting for BRIDGE_MAX_CALLS has no such bound.
	queued   bool
	maxQueue int
	pace     *pace
	breaker  *breaker

	// passages are those with calls that wait, waiting is how many these are.
	passages []*passage
	waiting  int
	drain    drain
	// waker is set while a token of the rate is waited for.
	waker *time.Timer
}

// set gives the gate the numbers of a table. Without max_concurrent most is unset.
func (g *gate) set(limits router.Limits, unset int) {
	g.most = unset
	if limits.MaxConcurrent > 0 {
		g.most = limits.MaxConcurrent
	}
	g.queued = limits.MaxConcurrent > 0 || limits.Rate.Events > 0
	g.maxQueue = limits.MaxQueue
	if g.pace = g.pace.with(limits.Rate); g.waker != nil {
		g.waker.Stop()
		g.waker = nil
	}
	g.breaker = g.breaker.with(limits.Breaker, g)
}

// free is how many requests the gate would let through now.
func (g *gate) free(now time.Time) int {
	n := max(0, g.most-g.inUse)
	if n > 0 && g.pace != nil {
		n = min(n, g.pace.tokens(now))
	}
	return n
}

func (g *gate) take(now time.Time) {
	g.inUse++
	if g.pace != nil {
		g.pace.take(now)
	}
}

// next is the passage whose turn it is, nil when none can go.
func (g *gate) next(now time.Time) *passage {
	var next *passage
	for _, p := range g.passages {
		if shut := p.shut(now); shut != nil {
			shut.wakeLater(now)
			continue
		}
		if next == nil || p.served < next.served {
			next = p
		}
	}
	return next
}

// wakeLater lets calls go when the rate does so again, if that is what they wait
// for.
func (g *gate) wakeLater(now time.Time) {
	if g.pace == nil || g.inUse >= g.most || g.waker != nil {
		return
	}
	var waker *time.Timer
	waker = time.AfterFunc(g.pace.until(1, now), func() {
		g.limits.mu.Lock()
		defer g.limits.unlock()
		if g.waker == waker {
			g.waker = nil
			g.limits.dispatch(g)
		}
	})
	g.waker = waker
}

// turnAway refuses all that wait, because the circuit is open or probed.
func (g *gate) turnAway() {
	refused := g.breaker.refusal()
	for _, p := range slices.Clone(g.passages) {
		for p.size > 0 {
			p.pop(time.Time{}).settle(turn{}, refused)
		}
	}
}

// breakers is how many gates of a passage may have one: the first ones.
const breakers = 2

// passage is the gates that the requests of a route pass, and the calls that wait
// before them. A route that has moved to another upstream has two of them, until
// the calls of the old table have ended.
type passage struct {
	queue

	// gates are that of the route, that of its upstream if it has one, that of
	// the upstream's share, and last that of all requests. The share bounds the
	// routes without max_concurrent of an upstream without it.
	gates []*gate
	// hasService says that the second gate is the upstream's.
	hasService bool
	// served is when the passage had its last turn, as a number of limits.served.
	served uint64
}

type passageKey struct {
	function, upstream string
	shared             bool
}

// limited are the gates but the last.
func (p *passage) limited() []*gate { return p.gates[:len(p.gates)-1] }

// shut is the first gate that lets no request through, nil when all do.
func (p *passage) shut(now time.Time) *gate {
	for _, g := range p.gates {
		if g.inUse >= g.most || g.pace != nil && g.pace.tokens(now) < 1 {
			return g
		}
	}
	return nil
}

// clock is the time where that matters.
func (p *passage) clock() time.Time {
	for _, g := range p.limited() {
		if g.pace != nil {
			return time.Now()
		}
	}
	return time.Time{}
}

// undisturbed reports whether nobody waits whom a newcomer could overtake: in its
// own queue, or for the next token of a rate.
func (p *passage) undisturbed() bool {
	for _, g := range p.limited() {
		if g.waiting > 0 && g.pace != nil {
			return false
		}
	}
	return p.size == 0
}

// push queues a call.
func (p *passage) push(session string, w *waiter) {
	first := p.size == 0
	p.queue.push(session, w)
	for _, g := range p.gates {
		if g.waiting++; g.waiting == 1 {
			g.drain.begin(time.Now())
		}
		if first {
			g.passages = append(g.passages, p)
		}
	}
}

// pop takes the call whose turn it is out of the queue; now is zero when it goes
// unserved.
func (p *passage) pop(now time.Time) *waiter {
	w := p.front()
	if !now.IsZero() {
		for _, g := range p.gates {
			g.drain.served(now)
		}
	}
	p.remove(w)
	p.endTurn(w.session)
	return w
}

// remove takes a call out of the queue.
func (p *passage) remove(w *waiter) {
	p.queue.remove(w)
	for _, g := range p.gates {
		g.waiting--
		if p.size == 0 {
			i := slices.Index(g.passages, p)
			g.passages = slices.Delete(g.passages, i, i+1)
		}
		if g.waiting == 0 && g.waker != nil {
			g.waker.Stop()
			g.waker = nil
		}
	}
}

// circuitOpen refuses a call while a circuit is open, or probed by another.
func (p *passage) circuitOpen() *turnError {
	for _, g := range p.limited() {
		if g.breaker != nil && g.breaker.refuses() {
			return g.breaker.refusal()
		}
	}
	return nil
}

// tooLate refuses a call whose turn would not come before its deadline, at the
// rates that hold and behind those who wait.
func (p *passage) tooLate(ctx context.Context, session string, now time.Time) *turnError {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	var wait time.Duration
	for _, g := range p.limited() {
		if g.pace != nil {
			wait = max(wait, g.pace.until(p.ahead(g, session, now)+1, now))
		}
	}
	if wait > 0 && !now.Add(wait).Before(deadline) {
		return &turnError{cause: causeTooLate, comeBack: wait}
	}
	return nil
}

// ahead is how many of those who wait for a gate are served before one more call
// of a session.
func (p *passage) ahead(g *gate, session string, now time.Time) int {
	own := p.before(session)
	n := own
	for _, other := range g.passages {
		if other != p {
			n += min(other.waitsAt(g, now), own+1)
		}
	}
	return n
}

// waitsAt is how many calls of the passage wait for a gate: those that its route
// itself would let go.
func (p *passage) waitsAt(g *gate, now time.Time) int {
	if route := p.gates[0]; route != g && route.queued {
		return min(p.size, route.free(now))
	}
	return p.size
}

// makeRoom refuses a call, or sends away another of a session that has more in
// the queue, when as many wait already as may.
func (p *passage) makeRoom(session string, now time.Time, patience time.Duration) *turnError {
	full, waiting := p.fullGate(now)
	if full == nil {
		return nil
	}
	refused := &turnError{cause: causeQueueFull, waiting: waiting, comeBack: full.drain.estimate(waiting, now, patience)}
	if w := full.greediest(p.of(session)+1, now); w != nil {
		w.passage.remove(w)
		w.settle(turn{}, refused)
		return nil
	}
	return refused
}

// fullGate is the gate at which one more call cannot wait, nil when it can, and
// how many wait there: those whom the gate itself does not let go. A call waits
// for its upstream when its route would let it go.
func (p *passage) fullGate(now time.Time) (*gate, int) {
	for i, g := range p.limited() {
		if !g.queued {
			continue
		}
		waiting := g.waiting
		if i > 0 {
			waiting = 0
			for _, other := range g.passages {
				waiting += other.waitsAt(g, now)
			}
		}
		if waiting -= g.free(now); waiting >= g.maxQueue {
			return g, max(waiting, 0)
		}
	}
	return nil, 0
}

// greediest is the last call of the session that has most calls waiting in one
// queue, if that is more than fair.
func (g *gate) greediest(fair int, now time.Time) *waiter {
	var last *waiter
	for _, p := range g.passages {
		if n, w := p.longest(); n > fair && p.waitsAt(g, now) > 0 {
			fair, last = n, w
		}
	}
	return last
}

// outOfTime is what a call is told whose time was over while it waited.
func (p *passage) outOfTime(now time.Time, patience time.Duration) *turnError {
	e := &turnError{cause: causeOutOfTime}
	if g := p.shut(now); g != nil {
		e.comeBack = g.drain.estimate(g.waiting, now, patience)
	}
	return e
}

// passageOf is the passage of a route, which may be one of an earlier table.
func (l *limits) passageOf(route *router.Route) *passage {
	if p := l.current[route]; p != nil {
		return p
	}
	return l.makePassage(route)
}

// makePassage finds or makes what a route needs.
func (l *limits) makePassage(route *router.Route) *passage {
	key := passageKey{function: route.Name}
	if s := route.Service; s != nil {
		key.upstream = s.Name
		key.shared = route.Limits.MaxConcurrent == 0 && s.Limits.MaxConcurrent == 0
	}
	if p := l.passages[key]; p != nil {
		return p
	}
	p := &passage{hasService: route.Service != nil}
	p.gates = append(p.gates, l.gate(l.routes, gate{function: route.Name}, route.Limits, l.half))
	if p.hasService {
		p.gates = append(p.gates, l.gate(l.services, gate{upstream: key.upstream}, route.Service.Limits, unbounded))
	}
	if key.shared {
		p.gates = append(p.gates, l.gate(l.shares, gate{upstream: key.upstream}, router.Limits{}, l.half))
	}
	p.gates = append(p.gates, l.all)
	l.passages[key] = p
	return p
}

// gate finds a gate by its name, or makes it with the limits of the table that
// names it first.
func (l *limits) gate(among map[string]*gate, made gate, limits router.Limits, unset int) *gate {
	name := made.function + made.upstream
	if g := among[name]; g != nil {
		return g
	}
	made.limits = l
	made.set(limits, unset)
	among[name] = &made
	return &made
}

// follow takes up the numbers of the table in force when it is a new one.
func (l *limits) follow() {
	if t := l.table(); t != nil && t != l.applied {
		l.apply(t)
	}
}

// takeUp does so without a request.
func (l *limits) takeUp() {
	l.mu.Lock()
	defer l.unlock()
	l.follow()
}

func (l *limits) apply(t *router.Table) {
	l.applied = t
	l.current = make(map[*router.Route]*passage, len(t.Routes()))
	kept := map[*gate]bool{l.all: true}
	for _, route := range t.Routes() {
		p := l.makePassage(route)
		l.current[route] = p
		p.gates[0].set(route.Limits, l.half)
		if p.hasService && !kept[p.gates[1]] {
			p.gates[1].set(route.Service.Limits, unbounded)
		}
		for _, g := range p.gates {
			kept[g] = true
		}
	}
	l.sweep(kept)
	l.dispatch(l.all)
}

// sweep forgets what the table does not name and nobody uses.
func (l *limits) sweep(kept map[*gate]bool) {
	used := make(map[*passage]bool, len(l.current))
	for _, p := range l.current {
		used[p] = true
	}
	maps.DeleteFunc(l.passages, func(_ passageKey, p *passage) bool { return !used[p] && p.size == 0 })
	for _, gates := range []map[string]*gate{l.routes, l.services, l.shares} {
		maps.DeleteFunc(gates, func(_ string, g *gate) bool { return !kept[g] && g.inUse == 0 && g.waiting == 0 })
	}
}
