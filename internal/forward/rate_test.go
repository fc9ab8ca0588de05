package forward_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

// hitsAt is when the service was asked.
func (c *crowd) hitsAt() []time.Duration {
	c.bubble.mu.Lock()
	defer c.bubble.mu.Unlock()
	return slices.Clone(c.hits)
}

func atOnce(*http.Request) {}

// ofRate is a route with a rate, or one of an upstream with it.
func ofRate(where, rate string) string {
	limits := map[string]string{where: "rate_limit: " + rate}
	return "upstreams:\n  u: { url: \"http://u.test\", " + limits["upstream"] + " }\nroutes:\n  act: { upstream: u, path: /, " + limits["route"] + " }\n"
}

// A rate lets its burst go at once and then one call after the other, and the
// wait takes nothing but time.
func TestARateSpacesCalls(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rate         string
		burst        int
		every, under time.Duration
	}{
		"seconds":      {"2/s", 1, 500 * time.Millisecond, time.Microsecond},
		"many":         {"30/s", 3, time.Second / 30, time.Microsecond},
		"minutes":      {"40/m", 4, 1500 * time.Millisecond, time.Microsecond},
		"hours":        {"7200/h", 720, 500 * time.Millisecond, time.Microsecond},
		"fraction":     {"0.1/s", 1, 10 * time.Second, time.Microsecond},
		"third":        {"0.3/s", 1, 10 * time.Second / 3, time.Microsecond},
		"microseconds": {"1000000/s", 100000, 0, 0},
	}
	for name, test := range tests {
		for _, where := range []string{"route", "upstream"} {
			t.Run(name+" of "+where, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c := gather(t, 16, patience+ofRate(where, test.rate), atOnce)
					defer c.end()
					n := min(test.burst+12, 1000)
					all := c.inSession(t.Context(), n, "act", "sess_1")
					c.calls.Wait()
					for i, at := range c.hitsAt() {
						want := test.every * time.Duration(max(0, i+1-test.burst))
						if at < want-test.under || at > want+test.under {
							t.Errorf("request %d at %s, want %s", i, at, want)
						}
					}
					for _, e := range all {
						if !e.Success {
							t.Fatalf("outcome = %+v", e)
						}
					}
				})
			})
		}
	}
}

// A call whose turn would come after its deadline is told so at once, and when
// to come back; it takes nothing from the others.
func TestACallWhoseTurnWouldComeTooLateEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"route", "upstream"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := gather(t, 16, "defaults: { timeout: 40s }\n"+ofRate(where, "4/m"), atOnce)
				defer c.end()
				all := c.inSession(t.Context(), 5, "act", "sess_1")
				const want = "act was not called, because its calls are limited, and its turn would not come within 40 s. Try again after 45 s."
				for i, e := range all[3:] {
					if e.Failure != journal.Timeout || e.Error != want || e.took != 0 || e.sendings != 0 {
						t.Errorf("late call %d: %+v", i, e)
					}
				}
				c.calls.Wait()
				if got, want := c.hitsAt(), []time.Duration{0, 15 * time.Second, 30 * time.Second}; !slices.Equal(got, want) {
					t.Errorf("requests at %v, want %v", got, want)
				}
			})
		})
	}
}

// A call in the queue that others overtake, since the sessions take turns, waits
// until its deadline.
func TestACallThatIsOvertakenWaitsUntilItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, "defaults: { timeout: 40s }\n"+ofRate("route", "4/m"), atOnce)
		defer c.end()
		all := c.inSession(t.Context(), 3, "act", "sess_1")
		other := c.come(t.Context(), "act", "sess_2")
		c.calls.Wait()
		if !other.Success || other.took != 30*time.Second {
			t.Errorf("the other session's call: %+v", other)
		}
		if e := all[2]; e.took != 40*time.Second || !strings.HasSuffix(e.Error, "its turn did not come within 40 s. Try again after 15 s.") {
			t.Errorf("the overtaken call: %+v", e)
		}
	})
}

// Told to come back after a while, a call that does so has its turn.
func TestTheTimeToComeBackIsRight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, "defaults: { timeout: 10s }\n"+ofRate("route", "1/h"), atOnce)
		defer c.end()
		c.come(t.Context(), "act", "sess_1")
		time.Sleep(90 * time.Second) // fake clock
		e := c.come(t.Context(), "act", "sess_1")
		if !strings.HasSuffix(e.Error, "Try again after 3600 s.") {
			t.Errorf("outcome = %+v", e)
		}
		time.Sleep(3510 * time.Second) // fake clock
		if e := c.come(t.Context(), "act", "sess_1"); !e.Success || e.took != 0 {
			t.Errorf("outcome = %+v", e)
		}
	})
}

// Attempts have the time that the wait has left.
func TestWaitingForTheRateCountsAgainstTheTimeout(t *testing.T) {
	t.Parallel()
	yaml := "routes:\n  act: { url: \"http://u.test\", rate_limit: 0.2/s, timeout: 12s, idempotent: true }\n"
	hold := func(r *http.Request) {
		if r.Header.Get("Bridge-Session-Id") == "slow" {
			forever(r)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, yaml, hold)
		defer c.end()
		c.inSession(t.Context(), 2, "act", "quick")
		e := c.come(t.Context(), "act", "slow")
		c.calls.Wait()
		if e.Failure != journal.Timeout || e.took != 12*time.Second || e.sendings != 1 || c.hitsAt()[2] != 10*time.Second {
			t.Errorf("outcome = %+v, requests at %v", e, c.hitsAt())
		}
	})
}

// Retries take tokens like first attempts.
func TestRetriesKeepToTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outcome, _, hits := inBubble(t, ", rate_limit: 1/s, timeout: 60s, retry: { attempts: 4, min_wait: 1ms, max_wait: 1ms }", busy(429, ""))
		want := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}
		if outcome.Failure != journal.RateLimited || !slices.Equal(hits, want) {
			t.Errorf("outcome = %+v, hits at %v, want %v", outcome, hits, want)
		}
	})
}

// A call that waits for a place has taken no token: when the place is free, calls
// do not go faster than the rate.
func TestAWaitForAPlaceSavesUpNoTokens(t *testing.T) {
	t.Parallel()
	yaml := patience + "upstreams:\n  u: { url: \"http://u.test\", max_concurrent: 1 }\nroutes:\n  block: { upstream: u, path: / }\n  act: { upstream: u, path: /, rate_limit: 2/s }\n"
	hold := func(r *http.Request) {
		if r.Header.Get("Bridge-Function") == "block" {
			time.Sleep(20 * time.Second) // fake clock
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, yaml, hold)
		defer c.end()
		c.come(t.Context(), "block", "sess_1")
		c.inSession(t.Context(), 10, "act", "sess_1")
		c.calls.Wait()
		for i, at := range c.hitsAt()[1:] {
			if want := 20*time.Second + time.Duration(i)*500*time.Millisecond; at != want {
				t.Errorf("request %d at %s, want %s", i, at, want)
			}
		}
	})
}

// The smaller of two rates holds, and the greater loses no tokens to those who
// wait for the smaller.
func TestTheRatesOfRouteAndUpstreamBothHold(t *testing.T) {
	t.Parallel()
	yaml := patience + "upstreams:\n  u: { url: \"http://u.test\", rate_limit: 2/s }\nroutes:\n  slow: { upstream: u, path: /, rate_limit: 0.25/s }\n  act: { upstream: u, path: / }\n"
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, yaml, atOnce)
		defer c.end()
		c.inSession(t.Context(), 6, "slow", "slow")
		c.inSession(t.Context(), 35, "act", "act")
		c.calls.Wait()
		hits := c.hitsAt()
		for i, at := range hits {
			if want := time.Duration(i) * 500 * time.Millisecond; at != want {
				t.Errorf("request %d at %s, want %s", i, at, want)
			}
		}
		served := strings.Fields(c.served())
		for i, session := range served {
			if (session == "slow") != (i%8 == 0) {
				t.Fatalf("served %v", served)
			}
		}
	})
}

// A new rate holds for those who wait already, and gives no burst anew.
func TestANewRateHoldsForThoseWhoWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, patience+ofRate("route", "0.1/s"), atOnce)
		defer c.end()
		c.inSession(t.Context(), 9, "act", "sess_1")
		for _, rate := range []string{"1/s", "0.5/s"} {
			time.Sleep(2 * time.Second) // fake clock
			c.load(t, patience+ofRate("route", rate))
			c.TakeUpLimits()
		}
		c.calls.Wait()
		s := func(of ...float64) (all []time.Duration) {
			for _, n := range of {
				all = append(all, time.Duration(n*float64(time.Second)))
			}
			return all
		}
		// A fifth of a token had come within 2 s.
		want := s(0, 2.8, 3.8, 5.6, 7.6, 9.6, 11.6, 13.6, 15.6)
		for i, at := range c.hitsAt() {
			if d := at - want[i]; d < -time.Microsecond || d > time.Microsecond {
				t.Errorf("request %d at %s, want %s", i, at, want[i])
			}
		}
	})
}

// What a dry run and a call without usable arguments need is no turn.
func TestOnlyRequestsTakeTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, patience+ofRate("route", "1/h"), atOnce)
		defer c.end()
		for range 3 {
			if o, _ := c.run(t, "act", `[1]`); o.Failure != journal.InvalidArguments {
				t.Errorf("outcome = %+v", o)
			}
			if tried := c.Try(t.Context(), forward.Trial{Function: "act", DryRun: true}); tried.Request == nil {
				t.Errorf("tried = %+v", tried)
			}
		}
		if o, _ := c.run(t, "act", `{}`); !o.Success {
			t.Errorf("outcome = %+v", o)
		}
	})
}

// A call that comes at the moment of a token does not take it from one that waits.
func TestNobodyOvertakesAtTheMomentOfAToken(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"route", "upstream"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var served []string
				c := gather(t, 16, patience+ofRate(where, "1/s"), func(r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					served = append(served, r.Header.Get("Bridge-Call-Id"))
				})
				defer c.end()
				var come sync.WaitGroup
				for i := range 40 {
					come.Go(func() {
						time.Sleep(time.Duration(i/4) * time.Second) // fake clock
						call := c.call("act", `{}`)
						call.CallID = fmt.Sprintf("call_%d", i/4)
						if o, err := c.Forward(t.Context(), call, journal.Session{}, &recorder{}); !o.Success {
							t.Errorf("outcome = %+v, %v", o, err)
						}
					})
				}
				come.Wait()
				if !slices.IsSorted(served) {
					t.Errorf("served %s", served)
				}
			})
		})
	}
}

// Nor do the calls of another route that has just had its turn.
func TestRoutesTakeTurnsAtTheRateOfTheirUpstream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		yaml := patience + "upstreams:\n  u: { url: \"http://u.test\", rate_limit: 1/s }\nroutes:\n  waits: { upstream: u, path: / }\n  comes: { upstream: u, path: / }\n"
		c := gather(t, 16, yaml, atOnce)
		defer c.end()
		var come sync.WaitGroup
		for i := range 20 {
			come.Go(func() {
				time.Sleep(time.Duration(i) * time.Second) // fake clock
				c.run(t, "comes", `{}`)
			})
		}
		c.inSession(t.Context(), 8, "waits", "waiting")
		come.Wait()
		c.calls.Wait()
		if n := strings.Count(strings.Join(strings.Fields(c.served())[:16], " "), "waiting"); n < 7 {
			t.Errorf("%d of 16 turns for those who waited: %s", n, c.served())
		}
	})
}

// When the turn of a call would come depends on the turns of the other routes.
func TestATurnIsForetoldAmongTheRoutesOfAnUpstream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		yaml := "defaults: { timeout: 10s }\nupstreams:\n  u: { url: \"http://u.test\", rate_limit: 1/s }\nroutes:\n  a: { upstream: u, path: / }\n  b: { upstream: u, path: / }\n"
		c := gather(t, 16, yaml, atOnce)
		defer c.end()
		c.inSession(t.Context(), 10, "a", "a")
		b := c.inSession(t.Context(), 5, "b", "b")
		c.calls.Wait()
		for i, e := range b[:4] {
			if want := time.Duration(2*i+1) * time.Second; !e.Success || e.took != want {
				t.Errorf("call %d: %+v, want it after %s", i, e, want)
			}
		}
		if e := b[4]; !strings.HasSuffix(e.Error, "Try again after 10 s.") || e.took != 0 {
			t.Errorf("the last call: %+v", e)
		}
	})
}

// Sessions take turns at a rate, and a newcomer's turn is told by that.
func TestSessionsTakeTurnsAtARate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := gather(t, 16, "defaults: { timeout: 10s }\n"+ofRate("route", "1/s"), atOnce)
		defer c.end()
		c.inSession(t.Context(), 10, "act", "many")
		if e := c.come(t.Context(), "act", "many"); !strings.HasSuffix(e.Error, "Try again after 10 s.") {
			t.Errorf("outcome = %+v", e)
		}
		one := c.come(t.Context(), "act", "one")
		c.calls.Wait()
		if !one.Success || one.took != 2*time.Second {
			t.Errorf("the one call: %+v", one)
		}
		if got := c.served(); !strings.HasPrefix(got, "many many one many") {
			t.Errorf("served %s", got)
		}
	})
}
