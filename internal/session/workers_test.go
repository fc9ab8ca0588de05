package session

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWorkersRunEverythingAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(time.Second)
		began := time.Now()
		var ran atomic.Int64
		for range 100 {
			w.Go(func() {
				time.Sleep(time.Second) // fake clock
				ran.Add(1)
			})
		}
		w.wait()
		if took := time.Since(began); ran.Load() != 100 || took != time.Second {
			t.Errorf("%d ran in %s, want 100 in 1s", ran.Load(), took)
		}
		w.close()
	})
}

func TestWorkersUseGoroutinesAgainAndLetThemGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorkers(time.Second)
		var goroutines []uint64
		for range 10 {
			w.Go(func() { goroutines = append(goroutines, goroutine()) })
			synctest.Wait()
		}
		if first := goroutines[0]; goroutines[9] != first {
			t.Errorf("goroutines are %v, want one", goroutines)
		}
		time.Sleep(2 * w.patience) // fake clock
		synctest.Wait()
		w.Go(func() { goroutines = append(goroutines, goroutine()) })
		synctest.Wait()
		if goroutines[10] == goroutines[0] {
			t.Error("an idle goroutine is kept for ever")
		}
		w.close()
	})
}

// goroutine is the number in the first line of the goroutine's own stack.
func goroutine() (id uint64) {
	var stack [64]byte
	n := runtime.Stack(stack[:], false)
	for _, c := range stack[len("goroutine "):n] {
		if c < '0' || c > '9' {
			break
		}
		id = 10*id + uint64(c-'0')
	}
	return id
}
