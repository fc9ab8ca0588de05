package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// take waits for n turns of the pacer and returns how long it took.
func take(t *testing.T, p *pacer, n int) time.Duration {
	t.Helper()
	begun := time.Now()
	for range n {
		if err := p.wait(t.Context(), priorityResync); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(begun)
}

func TestPacerAllowsABurstAndThenItsRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(20)
		if d := take(t, p, pacerBurst); d != 0 {
			t.Errorf("the burst took %s", d)
		}
		if d := take(t, p, 200); d < 9*time.Second || d > 11*time.Second {
			t.Errorf("200 requests at 20 a second took %s", d)
		}
	})
}

func TestPacerLetsReconnectsGoFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(20)
		take(t, p, pacerBurst)
		var mu sync.Mutex
		var order []priority
		var waiting sync.WaitGroup
		for _, prio := range []priority{priorityResync, priorityDiscover, priorityConnect, priorityResync, priorityConnect} {
			waiting.Go(func() {
				if p.wait(t.Context(), prio) == nil {
					mu.Lock()
					order = append(order, prio)
					mu.Unlock()
				}
			})
			synctest.Wait()
		}
		waiting.Wait()
		if !slices.IsSorted(order) || len(order) != 5 {
			t.Errorf("the order was %v", order)
		}
	})
}

func TestPacerSlowsDownAtA429AndRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(20)
		take(t, p, pacerBurst)
		p.limited(30 * time.Second)
		if d := take(t, p, 1); d < 30*time.Second {
			t.Errorf("the next request went after %s, asked were 30 s", d)
		}
		take(t, p, pacerBurst)
		if d := take(t, p, 20); d < 1900*time.Millisecond {
			t.Errorf("20 requests took %s at half the rate", d)
		}
		for range 100 {
			p.succeeded()
		}
		take(t, p, pacerBurst)
		if d := take(t, p, 20); d > 1100*time.Millisecond {
			t.Errorf("20 requests took %s after many successes", d)
		}
	})
}

func TestPacerForgetsWhoLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(1)
		take(t, p, pacerBurst)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- p.wait(ctx, priorityConnect) }()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the one who left got %v", err)
		}
		if d := take(t, p, 1); d > time.Second {
			t.Errorf("the next one waited %s for somebody who left", d)
		}
	})
}
