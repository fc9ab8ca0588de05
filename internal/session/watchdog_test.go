package session

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWatchdogEndsAStreamAfterSilenceAloneAndOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var ended atomic.Int64
		w := newWatchdog(time.Minute, func() { ended.Store(int64(time.Since(began))) })
		for range 10 {
			time.Sleep(50 * time.Second) // fake clock
			w.heard(time.Now())
		}
		synctest.Wait()
		if reason := w.or(reasonEOF); reason != reasonEOF || ended.Load() != 0 {
			t.Fatalf("ended after %s for %s, with something every 50 s", time.Duration(ended.Load()), reason)
		}
		time.Sleep(time.Hour) // fake clock
		synctest.Wait()
		if want := 560 * time.Second; time.Duration(ended.Load()) != want || w.or(reasonEOF) != reasonIdle {
			t.Errorf("ended after %s for %s, want %s for %s", time.Duration(ended.Load()), w.or(reasonEOF), want, reasonIdle)
		}
		w.stop()
	})
}

func TestStoppedWatchdogEndsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWatchdog(time.Minute, func() { t.Error("a stopped watchdog ended a stream") })
		time.Sleep(30 * time.Second) // fake clock
		w.heard(time.Now())
		w.stop()
		time.Sleep(time.Hour) // fake clock
	})
}

func TestEachPostHasItsTimeAndNoneIsEndless(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(t.Context())
		var p patience
		for range 7 {
			ctx := p.within(parent, time.Now())
			deadline, ok := ctx.Deadline()
			if left := time.Until(deadline); !ok || ctx.Err() != nil || left < submitTimeout || left > 2*submitTimeout {
				t.Errorf("a post has %s, want between %s and twice that", left, submitTimeout)
			}
			time.Sleep(50 * time.Second) // fake clock
		}
		last := p.within(parent, time.Now())
		cancel()
		if last.Err() == nil {
			t.Error("a post outlives the bridge's work")
		}
		p.close()
	})
}
