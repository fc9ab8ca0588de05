package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/router"
)

// variants are tables between which a bridge may be thrown: other numbers, no
// limits, other upstreams, routes that are gone.
func variants(t *testing.T) []*router.Table {
	t.Helper()
	texts := []string{`
upstreams:
  u: { url: "http://u.test", max_concurrent: 4, max_queue: 20, circuit_breaker: { failures: 3, open_for: 1s } }
  v: { url: "http://v.test" }
routes:
  r0: { upstream: u, path: /, max_concurrent: 2, max_queue: 5 }
  r1: { upstream: u, path: /, rate_limit: 20/s }
  r2: { upstream: v, path: / }
  r3: { upstream: v, path: /, circuit_breaker: { failures: 2, open_for: 500ms } }
`, `
upstreams:
  u: { url: "http://u.test", max_concurrent: 3, rate_limit: 50/s, circuit_breaker: { failures: 5, open_for: 2s } }
  v: { url: "http://v.test", max_concurrent: 2 }
routes:
  r0: { upstream: v, path: /, max_concurrent: 4 }
  r1: { upstream: u, path: /, rate_limit: 5/s, circuit_breaker: { failures: 1, open_for: 100ms } }
  r2: { upstream: u, path: / }
`, `
routes:
  r0: "http://w.test"
  r3: { url: "http://w.test", max_concurrent: 3 }
`}
	tables := make([]*router.Table, len(texts))
	for i, text := range texts {
		var err error
		if tables[i], err = router.Parse("routes.yaml", []byte("version: 1\n"+text), router.Env{}); err != nil {
			t.Fatal(err)
		}
	}
	return tables
}

// stress is calls that come, stop, fail and end at random under tables that
// change.
type stress struct {
	*limits

	tables []*router.Table
	force  atomic.Pointer[router.Table]
	group  sync.WaitGroup
	inside atomic.Int64
	ends   [5]atomic.Int64
}

func (s *stress) call(t *testing.T, r *rand.Rand) {
	t.Helper()
	table := s.force.Load()
	if r.IntN(8) == 0 {
		table = s.tables[r.IntN(len(s.tables))] // a call of another table
	}
	routes := table.Routes()
	route := routes[r.IntN(len(routes))]
	session := fmt.Sprintf("sess_%d", min(r.IntN(9), 3))
	// Few moments, so that many things come together.
	const moment = 50 * time.Millisecond
	patience, stop := moment*time.Duration(1+r.IntN(60)), moment*time.Duration(r.IntN(400))
	lasts, fails, judged := moment*time.Duration(r.IntN(6)), r.IntN(4) == 0, r.IntN(10) > 0
	s.group.Go(func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		stopping := time.AfterFunc(stop, cancel)
		defer stopping.Stop()
		turn, err := s.enter(ctx, route, session)
		s.count(err)
		if err != nil {
			return
		}
		defer s.leave(&turn)
		if n := s.inside.Add(1); n > int64(s.all.most) {
			t.Errorf("%d requests at once", n)
		}
		defer s.inside.Add(-1)
		time.Sleep(lasts) // fake clock
		var finding error
		if fails {
			finding = errFailing
		}
		if judged {
			s.judge(&turn, finding)
		}
	})
}

func (s *stress) count(err error) {
	e, ok := errors.AsType[*turnError](err)
	switch {
	case err == nil:
		s.ends[0].Add(1)
	case !ok:
	case e.cause == causeQueueFull:
		s.ends[1].Add(1)
	case e.cause == causeCircuitOpen:
		s.ends[2].Add(1)
	case e.cause == causeTooLate:
		s.ends[3].Add(1)
	case e.cause == causeOutOfTime:
		s.ends[4].Add(1)
	}
}

// check finds who waits though nothing is in the way, and counts that are wrong.
func (s *stress) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.unlock()
	now := time.Now()
	waiting := 0
	for _, p := range s.passages {
		waiting += p.size
		if p.size == 0 {
			continue
		}
		shut := p.shut(now)
		if shut == nil || shut.inUse < shut.most && shut.waker == nil {
			t.Errorf("%d calls wait for nothing", p.size)
		}
	}
	if s.all.waiting != waiting || int64(s.all.inUse) != s.inside.Load() {
		t.Errorf("%d wait and %d are under way; counted are %d and %d", waiting, s.inside.Load(), s.all.waiting, s.all.inUse)
	}
}

// empty finds what is left when all have gone.
func (s *stress) empty(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.unlock()
	gates := []*gate{s.all}
	for _, some := range []map[string]*gate{s.routes, s.services, s.shares} {
		for _, g := range some {
			gates = append(gates, g)
		}
	}
	for _, g := range gates {
		if g.inUse != 0 || g.waiting != 0 || len(g.passages) != 0 || g.waker != nil {
			t.Errorf("left: %+v", g)
		}
		if b := g.breaker; b != nil && !b.closed() && time.Until(b.until) <= 0 && b.refuses() {
			t.Errorf("a probe is left: %s%s", g.function, g.upstream)
		}
	}
}

// Whatever comes together, nobody waits for nothing, nobody is let through who may
// not, and nothing is left in the end.
func TestNothingIsLeftOfManyTurns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 1))
				s := &stress{tables: variants(t)}
				s.force.Store(s.tables[0])
				s.limits = newLimits(2+r.IntN(9), s.force.Load, slog.New(slog.DiscardHandler))
				for i := range 1500 {
					s.call(t, r)
					switch r.IntN(12) {
					case 0:
						s.force.Store(s.tables[r.IntN(len(s.tables))])
						s.takeUp()
					case 1, 2, 3:
						time.Sleep(time.Duration(r.IntN(4)) * 50 * time.Millisecond) // fake clock
					}
					if i%10 == 0 {
						synctest.Wait()
						s.check(t)
					}
				}
				s.group.Wait()
				time.Sleep(time.Minute) // fake clock
				s.empty(t)
				for i := range s.ends {
					if s.ends[i].Load() == 0 {
						t.Errorf("no call had end %d: %v", i, &s.ends)
					}
				}
			})
		})
	}
}

// A turn that comes together with the end of its call is given back.
func TestATurnThatComesWithTheEndIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		table := variants(t)[0]
		l := newLimits(1, func() *router.Table { return table }, slog.New(slog.DiscardHandler))
		route := table.Routes()[2]
		for i := range 2000 {
			first, err := l.enter(t.Context(), route, "sess_1")
			if err != nil {
				t.Fatalf("turn %d: %v", i, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			var second turn
			var group sync.WaitGroup
			group.Go(func() { second, err = l.enter(ctx, route, "sess_2") })
			synctest.Wait()
			steps := []func(){cancel, func() { l.leave(&first) }}
			steps[i%2]()
			steps[(i+1)%2]()
			group.Wait()
			if err == nil {
				l.leave(&second)
			}
			if l.all.inUse != 0 || l.all.waiting != 0 {
				t.Fatalf("turn %d: %d under way, %d wait", i, l.all.inUse, l.all.waiting)
			}
		}
	})
}
