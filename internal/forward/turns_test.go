package forward_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// crowd is a forwarder in a bubble whose table may change, and many calls.
type crowd struct {
	*bubble

	mu      sync.Mutex
	current *router.Table
	calls   sync.WaitGroup
	made    int
	// inside counts the requests at the service, by function too.
	inside     gauge
	byFunction map[string]*gauge
	// order lists the sessions in the order in which they were served.
	order []string
}

// gather starts a crowd under a table of routes and, above them, whatever else;
// its service keeps each request for as long as hold says, which may be as long
// as the request is waited for.
func gather(t *testing.T, maxCalls int, yaml string, hold func(*http.Request)) *crowd {
	t.Helper()
	c := &crowd{byFunction: map[string]*gauge{}}
	c.load(t, yaml)
	c.bubble = startBubble(t, "version: 1\n"+yaml, c.handler(hold), func(config *forward.Config) {
		config.MaxCalls = maxCalls
		config.Table = c.table
	})
	return c
}

func (c *crowd) handler(hold func(*http.Request)) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		function := r.Header.Get("Bridge-Function")
		c.mu.Lock()
		c.order = append(c.order, r.Header.Get("Bridge-Session-Id"))
		of := c.byFunction[function]
		if of == nil {
			of = &gauge{}
			c.byFunction[function] = of
		}
		c.mu.Unlock()
		for _, g := range []*gauge{&c.inside, of} {
			g.in()
			defer g.now.Add(-1)
		}
		hold(r)
	}
}

func (c *crowd) load(t *testing.T, yaml string) {
	t.Helper()
	table := parse(t, "version: 1\n"+yaml)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = table
}

func (c *crowd) table() *router.Table {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// now is how many requests of a function are at the service.
func (c *crowd) now(function string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of := c.byFunction[function]; of != nil {
		return of.now.Load()
	}
	return 0
}

// served are the sessions that were served so far.
func (c *crowd) served() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.order, " ")
}

// ended is what became of a call.
type ended struct {
	journal.Outcome

	err      error
	took     time.Duration
	sendings int
}

// come makes a call of a session; the result is there when it has ended. All that
// follows from its coming has happened when come returns.
func (c *crowd) come(ctx context.Context, function, session string) *ended {
	call := c.call(function, `{}`)
	c.made++
	call.SessionID, call.CallID = session, fmt.Sprintf("call_%d", c.made)
	e := &ended{}
	began := time.Now()
	c.calls.Go(func() {
		rec := &recorder{}
		e.Outcome, e.err = c.Forward(ctx, call, journal.Session{}, rec)
		e.took, e.sendings = time.Since(began), rec.sendings
	})
	synctest.Wait()
	return e
}

// inSession makes n calls of a session and returns them in order.
func (c *crowd) inSession(ctx context.Context, n int, function, session string) []*ended {
	all := make([]*ended, n)
	for i := range all {
		all[i] = c.come(ctx, function, session)
	}
	return all
}

func (c *crowd) end() {
	c.calls.Wait()
	c.stop()
}

// lasting and forever are how long a service keeps a request that is waited for.
func lasting(d time.Duration) func(*http.Request) {
	return func(r *http.Request) {
		select {
		case <-time.After(d):
		case <-r.Context().Done():
		}
	}
}

func forever(r *http.Request) { <-r.Context().Done() }

const (
	refusedFor = "act was not called, because it is overloaded: "
	patience   = "defaults: { timeout: 300s }\n"
)

func TestRouteAndUpstreamBoundRequestsAtOnce(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		yaml string
		// most is how many requests of a, of b and of both there are at once.
		most [3]int64
	}{
		"route": {
			"routes:\n  a: { url: \"http://a.test\", max_concurrent: 3 }\n  b: { url: \"http://b.test\", max_concurrent: 2 }\n",
			[3]int64{3, 2, 5},
		},
		"more than half": {
			"routes:\n  a: { url: \"http://a.test\", max_concurrent: 12 }\n  b: { url: \"http://b.test\", max_concurrent: 1 }\n",
			[3]int64{12, 1, 13},
		},
		"more than all": {
			"routes:\n  a: { url: \"http://a.test\", max_concurrent: 99 }\n  b: { url: \"http://b.test\", max_concurrent: 1 }\n",
			[3]int64{16, 1, 16},
		},
		"upstream": {
			"upstreams:\n  u: { url: \"http://u.test\", max_concurrent: 5 }\nroutes:\n  a: { upstream: u, path: / }\n  b: { upstream: u, path: / }\n",
			[3]int64{5, 5, 5},
		},
		"both": {
			"upstreams:\n  u: { url: \"http://u.test\", max_concurrent: 5 }\nroutes:\n  a: { upstream: u, path: /, max_concurrent: 2 }\n  b: { upstream: u, path: / }\n",
			[3]int64{2, 5, 5},
		},
		"upstream without": {
			"upstreams:\n  u: { url: \"http://u.test\" }\nroutes:\n  a: { upstream: u, path: / }\n  b: { upstream: u, path: / }\n",
			[3]int64{8, 8, 8},
		},
		"upstream without, route with": {
			"upstreams:\n  u: { url: \"http://u.test\" }\nroutes:\n  a: { upstream: u, path: /, max_concurrent: 11 }\n  b: { upstream: u, path: / }\n",
			[3]int64{11, 8, 16},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := gather(t, 16, patience+test.yaml, lasting(time.Second))
				defer c.end()
				for i, functions := range [][]string{{"a"}, {"b"}, {"a", "b"}} {
					c.inside.most.Store(0)
					var all []*ended
					for _, function := range functions {
						all = append(all, c.inSession(t.Context(), 30, function, "sess_1")...)
					}
					c.calls.Wait()
					if got := c.inside.most.Load(); got != test.most[i] {
						t.Errorf("%d requests of %s at once, want %d", got, functions, test.most[i])
					}
					for _, e := range all {
						if !e.Success {
							t.Fatalf("outcome = %+v", e)
						}
					}
				}
			})
		})
	}
}

// A call that finds the queue full is told so at once, with the time that the
// queue needs at the pace of the last turns.
func TestAFullQueueTurnsCallsAway(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string][2]string{
		"route":    {"", "max_concurrent: 2, max_queue: 3"},
		"upstream": {"max_concurrent: 2, max_queue: 3", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			yaml := patience + "upstreams:\n  u: { url: \"http://u.test\", " + limits[0] + " }\nroutes:\n  act: { upstream: u, path: /, " + limits[1] + " }\n"
			synctest.Test(t, func(t *testing.T) {
				c := gather(t, 16, yaml, lasting(8*time.Second))
				defer c.end()
				taken := c.inSession(t.Context(), 5, "act", "sess_1")
				e := c.come(t.Context(), "act", "sess_1")
				if want := refusedFor + "3 calls wait already. Try again after 1 s."; e.Failure != journal.Unavailable || e.Error != want || e.took != 0 || e.sendings != 0 {
					t.Errorf("outcome = %+v, want %s", e, want)
				}
				time.Sleep(9 * time.Second) // fake clock
				taken = append(taken, c.inSession(t.Context(), 2, "act", "sess_1")...)
				e = c.come(t.Context(), "act", "sess_1")
				// Two turns in 8 s, the second at once after the first.
				if want := refusedFor + "3 calls wait already. Try again after 21 s."; e.Error != want {
					t.Errorf("outcome = %+v, want %s", e, want)
				}
				c.calls.Wait()
				for _, e := range taken {
					if !e.Success {
						t.Errorf("outcome = %+v", e)
					}
				}
			})
		})
	}
}

func TestNobodyWaitsInAQueueOfNone(t *testing.T) {
	t.Parallel()
	yaml := patience + "routes:\n  act: { url: \"http://u.test\", max_concurrent: 1, max_queue: 0 }\n"
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, yaml, lasting(time.Second))
		defer c.end()
		first := c.come(t.Context(), "act", "sess_1")
		e := c.come(t.Context(), "act", "sess_2")
		if want := refusedFor + "no more calls can be taken, and none may wait. Try again after 1 s."; e.Failure != journal.Unavailable || e.Error != want {
			t.Errorf("outcome = %+v, want %s", e, want)
		}
		c.calls.Wait()
		later := c.come(t.Context(), "act", "sess_2")
		c.calls.Wait()
		if !first.Success || !later.Success {
			t.Errorf("first = %+v, later %+v", first, later)
		}
	})
}

// At most the time that the oldest waiting call has left is told: after it
// nobody waits any more.
func TestAHungServiceIsComeBackToWhenNobodyWaitsAnyMore(t *testing.T) {
	t.Parallel()
	yaml := "defaults: { timeout: 40s }\nroutes:\n  act: { url: \"http://u.test\", max_concurrent: 1, max_queue: 5 }\n"
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, yaml, forever)
		defer c.end()
		c.inSession(t.Context(), 6, "act", "sess_1")
		time.Sleep(10 * time.Second) // fake clock
		e := c.come(t.Context(), "act", "sess_1")
		if want := refusedFor + "5 calls wait already. Try again after 40 s."; e.Error != want {
			t.Errorf("outcome = %+v, want %s", e, want)
		}
	})
}

// Waiting for all calls together is bounded by nothing but the deadline: the
// table sets no limit.
func TestWithoutLimitsAnyNumberWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, patience+"routes:\n  act: \"http://u.test\"\n", lasting(time.Second))
		defer c.end()
		var all []*ended
		for i := range 1600 {
			all = append(all, c.come(t.Context(), "act", fmt.Sprintf("sess_%d", i%7)))
		}
		c.calls.Wait()
		for _, e := range all {
			if !e.Success {
				t.Fatalf("outcome = %+v", e)
			}
		}
		if took := time.Since(c.began); took != 200*time.Second {
			t.Errorf("took %s with 8 at once", took)
		}
	})
}

// One session with many calls keeps another waiting for a turn or two, and takes
// it no place in the queue: its last calls make room.
func TestSessionsTakeTurns(t *testing.T) {
	t.Parallel()
	yaml := patience + "routes:\n  act: { url: \"http://u.test\", max_concurrent: 1, max_queue: 6 }\n"
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, yaml, lasting(time.Second))
		defer c.end()
		many := c.inSession(t.Context(), 7, "act", "many")
		c.inSession(t.Context(), 3, "act", "some")
		one := c.come(t.Context(), "act", "one")
		c.calls.Wait()
		// The first was under way when the others came.
		if got, want := c.served(), "many many some one many some some"; got != want {
			t.Errorf("served %s, want %s", got, want)
		}
		if !one.Success || one.took != 4*time.Second {
			t.Errorf("the one call: %+v", one)
		}
		for i, e := range many[3:] {
			if e.Success || e.Failure != journal.Unavailable || e.sendings != 0 {
				t.Errorf("call %d of many: %+v", i+3, e)
			}
		}
	})
}

// What waits for its own route takes no place in the queue of the upstream, and
// makes no room there.
func TestTheQueueOfAnUpstreamIsForThoseWhoWaitForIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		yaml := patience + "upstreams:\n  u: { url: \"http://u.test\", max_concurrent: 2, max_queue: 3 }\nroutes:\n  a: { upstream: u, path: /, max_concurrent: 1 }\n  b: { upstream: u, path: / }\n"
		c := gather(t, 16, yaml, lasting(time.Second))
		defer c.end()
		a := c.inSession(t.Context(), 9, "a", "sess_1")
		b := c.inSession(t.Context(), 4, "b", "sess_1")
		e := c.come(t.Context(), "b", "sess_1")
		if want := "b was not called, because it is overloaded: 3 calls wait already. "; e.Failure != journal.Unavailable || !strings.HasPrefix(e.Error, want) {
			t.Errorf("outcome = %+v, want %s", e, want)
		}
		b = append(b, c.come(t.Context(), "b", "sess_2")) // in the place of one of sess_1
		c.calls.Wait()
		for i, e := range append(a, b...) {
			if e.Success != (i != 9+3) {
				t.Errorf("call %d: %+v", i, e)
			}
		}
	})
}

// Where the table's limits would let a call go, it waits for BRIDGE_MAX_CALLS, and
// max_queue does not count it.
func TestMaxQueueCountsWhoWaitsForTheTablesLimits(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string][2]string{
		"route":    {"", "max_concurrent: 5, max_queue: 0"},
		"upstream": {"max_concurrent: 5, max_queue: 0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				yaml := patience + "upstreams:\n  u: { url: \"http://u.test\", " + limits[0] + " }\nroutes:\n  act: { upstream: u, path: /, " + limits[1] + " }\n"
				c := gather(t, 2, yaml, lasting(time.Second))
				defer c.end()
				all := c.inSession(t.Context(), 7, "act", "sess_1")
				c.calls.Wait()
				for i, e := range all {
					if e.Success != (i < 5) {
						t.Errorf("call %d: %+v", i, e)
					}
				}
			})
		})
	}
}

// Where the sessions have equally many calls in a full queue, nobody makes room.
func TestAFullQueueOfEqualsStaysAsItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, patience+"routes:\n  act: { url: \"http://u.test\", max_concurrent: 1, max_queue: 3 }\n", lasting(time.Second))
		defer c.end()
		var all []*ended
		for i := range 4 {
			all = append(all, c.come(t.Context(), "act", fmt.Sprintf("sess_%d", i)))
		}
		for i := range 5 {
			if e := c.come(t.Context(), "act", fmt.Sprintf("sess_%d", i)); e.Failure != journal.Unavailable {
				t.Errorf("outcome = %+v", e)
			}
		}
		c.calls.Wait()
		for i, e := range all {
			if want := time.Duration(i+1) * time.Second; !e.Success || e.took != want {
				t.Errorf("call %d: %+v", i, e)
			}
		}
	})
}

// The routes of an upstream take turns as well.
func TestRoutesOfAnUpstreamTakeTurns(t *testing.T) {
	t.Parallel()
	yaml := patience + "upstreams:\n  u: { url: \"http://u.test\", max_concurrent: 1 }\nroutes:\n  a: { upstream: u, path: / }\n  b: { upstream: u, path: / }\n"
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, yaml, lasting(time.Second))
		defer c.end()
		c.inSession(t.Context(), 5, "a", "a")
		c.inSession(t.Context(), 2, "b", "b")
		c.calls.Wait()
		if got, want := c.served(), "a b a b a a a"; got != want {
			t.Errorf("served %s, want %s", got, want)
		}
	})
}

// However many routes lead to a service that hangs, others are called at once.
func TestAHungUpstreamLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	yaml := patience + `upstreams:
  hung: { url: "http://hung.test" }
  well: { url: "http://well.test" }
routes:
  h1: { upstream: hung, path: / }
  h2: { upstream: hung, path: / }
  h3: { upstream: hung, path: / }
  well: { upstream: well, path: / }
`
	hold := func(r *http.Request) {
		if r.Host == "hung.test" {
			forever(r)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, yaml, hold)
		defer c.end()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for i := range 99 {
			c.come(ctx, fmt.Sprintf("h%d", i%3+1), "sess_1")
		}
		for range 20 {
			if e := c.come(t.Context(), "well", "sess_1"); !e.Success || e.took != 0 {
				t.Errorf("outcome = %+v", e)
			}
		}
		if got := c.inside.most.Load(); got != 9 {
			t.Errorf("%d requests at once, want 8 that hang and one other", got)
		}
	})
}

// A route whose own limits keep its calls waiting takes nothing from the other
// routes of its upstream.
func TestWhoWaitsForItsRouteHoldsNothingOfItsUpstream(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{"slots": "max_concurrent: 1", "rate": "rate_limit: 1/m"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			yaml := patience + "upstreams:\n  u: { url: \"http://u.test\", max_concurrent: 2, max_queue: 0, rate_limit: 1000/s }\nroutes:\n  slow: { upstream: u, path: /, " + limit + " }\n  fast: { upstream: u, path: / }\n"
			hold := func(r *http.Request) {
				if r.Header.Get("Bridge-Function") == "slow" {
					forever(r)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				c := gather(t, 4, yaml, hold)
				defer c.end()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c.inSession(ctx, 4, "slow", "sess_1")
				for range 20 {
					if e := c.come(t.Context(), "fast", "sess_1"); !e.Success || e.took != 0 {
						t.Errorf("outcome = %+v", e)
					}
				}
			})
		})
	}
}

// A call that is stopped while it waits has no outcome and was never recorded;
// its place is free for others.
func TestACallThatIsStoppedWhileItWaitsIsLeftPending(t *testing.T) {
	t.Parallel()
	yaml := patience + "routes:\n  act: { url: \"http://u.test\", max_concurrent: 1, max_queue: 1 }\n"
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, yaml, lasting(time.Second))
		defer c.end()
		c.come(t.Context(), "act", "sess_1")
		ctx, cancel := context.WithCancelCause(t.Context())
		waits := c.come(ctx, "act", "sess_2")
		cancel(http.ErrServerClosed)
		synctest.Wait()
		if !errors.Is(waits.err, http.ErrServerClosed) || waits.sendings != 0 || waits.took != 0 {
			t.Errorf("stopped = %+v", waits)
		}
		last := c.come(t.Context(), "act", "sess_3")
		c.calls.Wait()
		if !last.Success || last.took != 2*time.Second {
			t.Errorf("the next = %+v", last)
		}
	})
}

// A call is told when to come back that its deadline met in the queue.
func TestACallThatRanOutOfTimeIsToldWhenToComeBack(t *testing.T) {
	t.Parallel()
	yaml := patience + "upstreams:\n  u: { url: \"http://u.test\", max_concurrent: 1 }\nroutes:\n  long: { upstream: u, path: / }\n  short: { upstream: u, path: /, timeout: 10s }\n"
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 4, yaml, lasting(16*time.Second))
		defer c.end()
		c.come(t.Context(), "long", "sess_1")
		e := c.come(t.Context(), "short", "sess_1")
		c.calls.Wait()
		want := "short failed, and nothing was carried out: too many calls were waiting, and its turn did not come within 10 s. Try again after 10 s."
		if e.Failure != journal.Timeout || e.Error != want || e.sendings != 0 || e.took != 10*time.Second {
			t.Errorf("outcome = %+v, want %s", e, want)
		}
	})
}

const reloading = "routes:\n  act: { url: \"http://u.test\", max_concurrent: %d }\n"

// A new table changes the numbers; the requests under way count on.
func TestANewTableChangesTheNumbersOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 64, patience+fmt.Sprintf(reloading, 4), lasting(time.Second))
		defer c.end()
		c.inSession(t.Context(), 40, "act", "sess_1")
		reload := func(most int) {
			c.load(t, patience+fmt.Sprintf(reloading, most))
			c.TakeUpLimits()
			synctest.Wait()
		}
		atService := func(want int64) {
			t.Helper()
			if got := c.now("act"); got != want {
				t.Errorf("%d requests at once, want %d", got, want)
			}
		}
		atService(4)
		reload(7) // takes up three that waited
		atService(7)
		reload(2) // lets nobody go until five have ended
		atService(7)
		time.Sleep(time.Second) // fake clock
		synctest.Wait()
		atService(2)
		c.load(t, patience+fmt.Sprintf(reloading, 3))
		time.Sleep(time.Second) // fake clock
		synctest.Wait()
		atService(3) // taken up when a request ended
	})
}

// A route that goes and comes back finds the requests of its calls still there,
// also under another upstream; nobody who waits is forgotten.
func TestARouteThatGoesAndComesBackIsTheSame(t *testing.T) {
	t.Parallel()
	const (
		upstreams = "upstreams:\n  u: { url: \"http://u.test\", max_concurrent: 9 }\n  v: { url: \"http://v.test\", max_concurrent: 9 }\n"
		other     = "routes:\n  other: \"http://o.test\"\n"
		of        = upstreams + "routes:\n  act: { upstream: %s, path: /, max_concurrent: 2 }\n"
	)
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 64, patience+fmt.Sprintf(of, "u"), lasting(time.Second))
		defer c.end()
		all := c.inSession(t.Context(), 6, "act", "sess_1")
		for _, yaml := range []string{other, fmt.Sprintf(of, "v"), fmt.Sprintf(of, "u"), fmt.Sprintf(of, "v")} {
			c.load(t, patience+yaml)
			c.TakeUpLimits()
			if !strings.HasPrefix(yaml, other) {
				all = append(all, c.inSession(t.Context(), 4, "act", "sess_2")...)
			}
		}
		c.calls.Wait()
		if got := c.inside.most.Load(); got != 2 {
			t.Errorf("%d requests at once, want 2", got)
		}
		for i, e := range all {
			if !e.Success {
				t.Errorf("call %d: %+v", i, e)
			}
		}
		if took := time.Since(c.began); took != 9*time.Second {
			t.Errorf("18 calls took %s, want 9 s with two at once", took)
		}
	})
}

func TestMetricsOfCallsThatWait(t *testing.T) {
	t.Parallel()
	const header = "# HELP bridge_calls_waiting Calls that wait for their turn under the limits of their route, its upstream or all calls.\n# TYPE bridge_calls_waiting gauge\n"
	yaml := patience + "routes:\n  act: { url: \"http://u.test\", max_concurrent: 1 }\n  idle: \"http://u.test\"\n"
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, yaml, lasting(time.Second))
		defer c.end()
		shows := func(series string) {
			t.Helper()
			if err := testutil.GatherAndCompare(c.registry, strings.NewReader(header+series), "bridge_calls_waiting"); err != nil {
				t.Error(err)
			}
		}
		shows("bridge_calls_waiting{function=\"act\"} 0\nbridge_calls_waiting{function=\"idle\"} 0\n")
		c.inSession(t.Context(), 4, "act", "sess_1")
		shows("bridge_calls_waiting{function=\"act\"} 3\nbridge_calls_waiting{function=\"idle\"} 0\n")
		c.load(t, patience+"routes:\n  new: \"http://u.test\"\n")
		shows("bridge_calls_waiting{function=\"new\"} 0\n")
		c.load(t, yaml)
		shows("bridge_calls_waiting{function=\"act\"} 3\nbridge_calls_waiting{function=\"idle\"} 0\n")
		c.calls.Wait()
		shows("bridge_calls_waiting{function=\"act\"} 0\nbridge_calls_waiting{function=\"idle\"} 0\n")
	})
}
