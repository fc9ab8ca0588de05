package session

import (
	"sync"
	"time"
)

// workerIdle is how long a goroutine waits for its next piece of work.
const workerIdle = 5 * time.Second

// workers run functions side by side in goroutines that are used again: one
// that has run a call has a stack as large as the next call needs. There is no
// limit to their number; what waits for something is to wait elsewhere.
type workers struct {
	// idle hands work to a goroutine that waits for some.
	idle chan func()
	// stop ends those that wait.
	stop       chan struct{}
	work       sync.WaitGroup
	goroutines sync.WaitGroup
}

func newWorkers() *workers {
	return &workers{idle: make(chan func()), stop: make(chan struct{})}
}

// Go runs f at once.
func (w *workers) Go(f func()) {
	w.work.Add(1)
	select {
	case w.idle <- f:
	default:
		w.goroutines.Go(func() { w.run(f) })
	}
}

func (w *workers) run(f func()) {
	timer := time.NewTimer(workerIdle)
	defer timer.Stop()
	for {
		f()
		w.work.Done()
		timer.Reset(workerIdle)
		select {
		case f = <-w.idle:
		case <-timer.C:
			return
		case <-w.stop:
			return
		}
	}
}

// wait returns when no function runs.
func (w *workers) wait() { w.work.Wait() }

// close ends the idle goroutines; no function runs any more.
func (w *workers) close() {
	close(w.stop)
	w.goroutines.Wait()
}
