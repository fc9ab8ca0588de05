package forward_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

// gauge counts who is inside, and the most there were.
type gauge struct{ now, most atomic.Int64 }

func (g *gauge) in() {
	n := g.now.Add(1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
}

func TestRequestsAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		maxCalls, routes int
		most             int64
	}{
		"one route takes at most half":  {8, 1, 4},
		"all together take all":         {8, 3, 8},
		"one call at a time":            {1, 2, 1},
		"an odd number is rounded down": {5, 1, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var inside gauge
				b := newManyBubble(t, test.maxCalls, test.routes, func(http.ResponseWriter, *http.Request) {
					inside.in()
					time.Sleep(time.Second) // fake clock
					inside.now.Add(-1)
				})
				defer b.stop()
				var calls sync.WaitGroup
				for i := range 48 {
					calls.Go(func() {
						if o, _ := b.run(t, fmt.Sprintf("r%d", i%test.routes), `{}`); !o.Success {
							t.Errorf("outcome = %+v", o)
						}
					})
				}
				calls.Wait()
				if got := inside.most.Load(); got != test.most {
					t.Errorf("%d requests at once, want %d", got, test.most)
				}
				if took, want := time.Since(b.began), time.Duration(48/test.most)*time.Second; took < want || took > want+time.Second {
					t.Errorf("took %s, want %s: a slot was held by a call that waited", took, want)
				}
			})
		})
	}
}

// newManyBubble is newBubble with routes r0, r1, … and a limit.
func newManyBubble(t *testing.T, maxCalls, routes int, handler http.HandlerFunc) *bubble {
	t.Helper()
	var yaml strings.Builder
	yaml.WriteString("version: 1\ndefaults: { timeout: 300s }\nroutes:\n")
	for i := range routes {
		fmt.Fprintf(&yaml, "  r%d: \"http://upstream.test\"\n", i)
	}
	return startBubble(t, yaml.String(), handler, func(c *forward.Config) { c.MaxCalls = maxCalls })
}

// A slow service delays no call of another, and a call whose turn does not
// come ends at its deadline without having been sent.
func TestACallWhoseTurnDoesNotComeEndsUnsent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const yaml = `
version: 1
routes:
  slow: { url: "http://upstream.test", timeout: 300s }
  more: { url: "http://upstream.test", timeout: 300s }
  late: { url: "http://upstream.test", timeout: 10s }
`
		b := startBubble(t, yaml, func(_ http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Bridge-Function") != "late" {
				<-r.Context().Done()
			}
		}, func(c *forward.Config) { c.MaxCalls = 2 })
		defer b.stop()
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		hold := func(function string) {
			calls.Go(func() { _, _ = b.Forward(ctx, b.call(function, `{}`), journal.Session{}, &recorder{}) })
			synctest.Wait()
		}

		hold("slow")
		hold("slow") // waits for the route's one slot
		if o, _ := b.run(t, "late", `{}`); !o.Success || time.Since(b.began) != 0 {
			t.Errorf("another route's call: %+v after %s", o, time.Since(b.began))
		}
		hold("more")
		o, rec := b.run(t, "late", `{}`)
		if o.Failure != journal.Timeout || !strings.Contains(o.Error, "its turn did not come within 10 s") ||
			rec.sendings != 0 || time.Since(b.began) != 10*time.Second {
			t.Errorf("outcome = %+v after %s, %+v", o, time.Since(b.began), rec)
		}
		cancel()
		calls.Wait()
		if o, _ := b.run(t, "late", `{}`); !o.Success {
			t.Errorf("after the others have ended: %+v", o)
		}
	})
}

// What an attempt found out is told when the turn of the next does not come.
func TestTheLastReplyIsToldWhenTheNextTurnDoesNotCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startBubble(t, "version: 1\nroutes:\n  act: { url: \"http://upstream.test\", timeout: 10s }\n", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Bridge-Call-Id") == "call_1" {
				busy(429, "2")(w, r)
				return
			}
			<-r.Context().Done()
		}, func(c *forward.Config) { c.MaxCalls = 2 })
		defer b.stop()
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		calls.Go(func() {
			// In the pause of the first call.
			time.Sleep(time.Second) // fake clock
			other := b.call("act", `{}`)
			other.CallID = "call_2"
			_, _ = b.Forward(ctx, other, journal.Session{}, &recorder{})
		})
		o, rec := b.run(t, "act", `{}`)
		if o.Failure != journal.RateLimited || !strings.HasSuffix(o.Error, "Try again after 2 s.") || len(rec.attempts) != 1 || time.Since(b.began) != 10*time.Second {
			t.Errorf("outcome = %+v after %s and %d attempts", o, time.Since(b.began), len(rec.attempts))
		}
		cancel()
		calls.Wait()
	})
}
