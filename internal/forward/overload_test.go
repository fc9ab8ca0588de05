package forward_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

// crew makes calls as fast as they end.
type crew struct {
	*bench

	failed atomic.Int64
}

func hire(tb testing.TB, yaml string, maxCalls int) *crew {
	tb.Helper()
	return &crew{bench: newBench(tb, yaml, func(c *forward.Config) {
		c.MaxCalls = maxCalls
		c.Logger = slog.New(slog.DiscardHandler)
	})}
}

// work makes n calls, by so many at a time, each of these a session, and returns
// how long each call took, sorted.
func (c *crew) work(ctx context.Context, n, workers int, function string) []time.Duration {
	took := make([]time.Duration, n)
	var next atomic.Int64
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				call := c.call(function, `{}`)
				call.SessionID, call.CallID = fmt.Sprintf("sess_%d", w), fmt.Sprintf("call_%d", i)
				began := time.Now()
				if o, err := c.Forward(ctx, call, journal.Session{}, silent{}); !o.Success || err != nil {
					c.failed.Add(1)
				}
				took[i] = time.Since(began)
			}
		})
	}
	group.Wait()
	slices.Sort(took)
	return took
}

func openFiles(tb testing.TB) int {
	tb.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Skip("no /proc here:", err)
	}
	return len(entries)
}

// Not in parallel with others, whose sockets would count.
func TestAHundredThousandCallsNeverMoreThanEightAtOnce(t *testing.T) {
	const most, workers = 8, 400
	calls := 100_000 / slowness
	if testing.Short() {
		calls = 5_000
	}
	var inside, connections gauge
	var opened, came atomic.Int64
	full, patience := make(chan struct{}), 10*time.Second
	hold := lasting(100 * time.Microsecond)
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inside.in()
		if came.Add(1) == most {
			close(full)
		}
		select { // the first ones stay until as many have come as may
		case <-full:
		case <-time.After(patience):
		}
		hold(r)
		inside.now.Add(-1)
	}))
	up.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			opened.Add(1)
			connections.in()
		case http.StateClosed, http.StateHijacked:
			connections.now.Add(-1)
		case http.StateActive, http.StateIdle:
		}
	}
	up.Start()
	defer up.Close()
	c := hire(t, fmt.Sprintf("version: 1\nroutes:\n  act: { url: %s, max_concurrent: %d, timeout: 300s }\n", up.URL, most), 256)

	c.work(t.Context(), calls/100, workers, "act")
	before := openFiles(t)
	began := time.Now()
	c.work(t.Context(), calls-calls/100, workers, "act")
	after := openFiles(t)

	t.Logf("%d calls in %s: at most %d at once, %d connections at once, %d opened, %d open files after a hundredth, %d at the end",
		calls, time.Since(began).Round(time.Millisecond), inside.most.Load(), connections.most.Load(), opened.Load(), before, after)
	if got := inside.most.Load(); got != most {
		t.Errorf("%d requests at once, want %d", got, most)
	}
	if n := c.failed.Load(); n > 0 {
		t.Errorf("%d calls failed", n)
	}
	if after > before+2 || connections.most.Load() > 2*most {
		t.Errorf("open files grew from %d to %d, with %d connections at once", before, after, connections.most.Load())
	}
}

// Three hundred calls that hang take no place of another route's. How long that
// one's calls take is logged: it says something on a quiet machine only.
func TestCallsThatHangTakeNoPlaceOfAnotherRoute(t *testing.T) {
	const hung = 300
	calls := 20_000 / slowness
	if testing.Short() {
		calls = 1_000
	}
	var inside gauge
	arrived, release := make(chan struct{}, hung), make(chan struct{})
	mute := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inside.in()
		defer inside.now.Add(-1)
		arrived <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer mute.Close()
	quick := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer quick.Close()
	c := hire(t, fmt.Sprintf("version: 1\ndefaults: { timeout: 300s }\nroutes:\n  hung: %s\n  steady: %s\n", mute.URL, quick.URL), 256)

	c.work(t.Context(), calls/10, 4, "steady")
	alone := c.work(t.Context(), calls, 4, "steady")
	var hanging sync.WaitGroup
	hanging.Go(func() { c.work(t.Context(), hung, hung, "hung") })
	for range 128 {
		<-arrived
	}
	beside := c.work(t.Context(), calls, 4, "steady")
	stillHung := inside.now.Load()
	close(release)
	hanging.Wait()

	p := func(of []time.Duration, percent int) time.Duration { return of[len(of)*percent/100] }
	t.Logf("alone: p50 %s, p99 %s; beside %d calls that hang: p50 %s, p99 %s",
		p(alone, 50), p(alone, 99), hung, p(beside, 50), p(beside, 99))
	if n := c.failed.Load(); n > 0 || stillHung != 128 || inside.most.Load() != 128 {
		t.Errorf("%d calls failed; %d hung at the end and %d at most, want half of 256", n, stillHung, inside.most.Load())
	}
}
