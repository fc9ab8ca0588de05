package sqlite

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestDurableRowsOfManyWaitForCompanyAndThoseOfFewDoNot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		callers    int
		took, wait time.Duration
	}{
		{1, time.Second, 0},
		{crowd - 1, time.Second, 0}, // alone
		{crowd, time.Millisecond, time.Millisecond},
		{64, time.Second, mostGather}, // a slow disk gathers by itself
	} {
		t.Run(fmt.Sprintf("%d callers, %s", c.callers, c.took), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var q queue
				q.init()
				ask := func(callers int) {
					for i := range callers {
						if _, err := q.addDurable(pending(fmt.Sprint("call_", i))); err != nil {
							t.Fatal(err)
						}
					}
				}
				ask(c.callers)
				b, _, ok := q.ready(flushDelay)
				if !ok || len(b.entries) != c.callers {
					t.Fatalf("the first %d callers wait", c.callers)
				}
				q.committed(&b, c.took)
				ask(1)
				if _, wait, ok := q.ready(flushDelay); ok != (c.wait == 0) || wait != c.wait {
					t.Fatalf("the next caller waits %s, want %s", wait, c.wait)
				}
				time.Sleep(c.wait) // fake clock
				if c.wait > 0 {
					ask(c.callers)
					if b, _, ok := q.ready(flushDelay); !ok || len(b.entries) != c.callers {
						t.Errorf("then %d rows go together, want %d", len(b.entries), c.callers)
					}
				}
			})
		})
	}
}
