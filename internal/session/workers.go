package session

import (
	"slices"
	"sync"
	"time"
)

// workers run functions side by side in goroutines that are used again: one
// that has run a call has a stack as large as the next call needs, and the one
// that ended last has it in the processor's cache. There is no limit to their
// number; what waits for something is to wait elsewhere.
type workers struct {
	// patience is how long a goroutine waits for its next piece of work, at least;
	// twice as long at most.
	patience time.Duration

	work       sync.WaitGroup
	goroutines sync.WaitGroup

	mu sync.Mutex
	// idle are those that wait for work, the last one for the shortest time; spare
	// is how many of them were never needed since the last trim.
	idle  []chan func()
	spare int
	// trimmer ends the spare ones; nil while none is idle.
	trimmer *time.Timer
	closed  bool
}

func newWorkers(patience time.Duration) *workers { return &workers{patience: patience} }

// Go runs f at once.
func (w *workers) Go(f func()) {
	w.work.Add(1)
	if worker := w.hire(); worker != nil {
		worker <- f
		return
	}
	w.goroutines.Go(func() { w.run(f) })
}

// lend does work in one of the goroutines and returns when it is done: what needs
// a deep stack for a moment does not leave it to a goroutine that waits for hours.
func (w *workers) lend(work func()) {
	done := make(chan struct{})
	w.Go(func() {
		defer close(done)
		work()
	})
	<-done
}

// hire takes an idle worker, nil when there is none.
func (w *workers) hire() chan func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := len(w.idle) - 1
	if last < 0 {
		return nil
	}
	worker := w.idle[last]
	w.idle = w.idle[:last]
	w.spare = min(w.spare, last)
	return worker
}

// run works until nothing comes for a while.
func (w *workers) run(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f()
		w.work.Done()
		if !w.rest(next) {
			return
		}
		f = <-next
	}
}

// rest makes a worker idle; false when it is to end.
func (w *workers) rest(worker chan func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.idle = append(w.idle, worker)
	if w.trimmer == nil {
		w.spare = len(w.idle)
		w.trimmer = time.AfterFunc(w.patience, w.trim)
	}
	return true
}

// trim ends the workers that were not needed since the last time: those that
// have waited for longest.
func (w *workers) trim() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	for _, worker := range w.idle[:w.spare] {
		close(worker)
	}
	w.idle = slices.Delete(w.idle, 0, w.spare)
	w.spare = len(w.idle)
	w.trimmer = nil
	if len(w.idle) > 0 {
		w.trimmer = time.AfterFunc(w.patience, w.trim)
	}
}

// wait returns when no function runs.
func (w *workers) wait() { w.work.Wait() }

// close ends the idle goroutines; no function runs any more.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	if w.trimmer != nil {
		w.trimmer.Stop()
	}
	for _, worker := range w.idle {
		close(worker)
	}
	w.idle = nil
	w.mu.Unlock()
	w.goroutines.Wait()
}
