package session

import (
	"sync"
	"time"
)

// watchdog ends a stream that is silent for too long. It looks at the time only
// when that time is over, and goes on when it has heard something since: a timer
// that is set anew with all that arrives costs a busy stream more than the look
// at what arrived.
type watchdog struct {
	patience time.Duration
	end      func()

	mu    sync.Mutex
	last  time.Time
	fired bool
	timer *time.Timer // nil once stopped
}

// newWatchdog calls end once when nothing was heard for a time.
func newWatchdog(patience time.Duration, end func()) *watchdog {
	w := &watchdog{patience: patience, end: end, last: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(patience, w.look)
	return w
}

func (w *watchdog) heard(at time.Time) {
	w.mu.Lock()
	w.last = at
	w.mu.Unlock()
}

// look ends the stream, or comes back when there would be reason to.
func (w *watchdog) look() {
	if w.lost() {
		w.end()
	}
}

// lost reports whether the stream is to be ended.
func (w *watchdog) lost() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		return false
	}
	left := time.Until(w.last.Add(w.patience))
	if left > 0 {
		w.timer.Reset(left)
		return false
	}
	w.fired = true
	return true
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.timer = nil
}

// or returns reasonIdle where it was the watchdog who ended the stream, else a
// reason.
func (w *watchdog) or(reason string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fired {
		return reasonIdle
	}
	return reason
}
