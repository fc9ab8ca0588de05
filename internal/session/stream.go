package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"functionbridge/internal/journal"
)

// listen keeps a stream open until the follower ends.
func (f *follower) listen() {
	failures := 0
	for {
		// The wait for a key that works is no silence of the stream.
		if f.m.cfg.Client.health.key.pass(f.ctx) != nil {
			return
		}
		opened := time.Now()
		reason, err := f.streamOnce()
		if f.ctx.Err() != nil {
			return
		}
		f.m.metrics.reconnects.WithLabelValues(reason).Inc()
		if time.Since(opened) >= healthyStream {
			failures = 0
		}
		failures++
		f.setStream(streamWaiting)
		f.logChange(failures, "stream ended; it is opened again", err, "reason", reason)
		if !sleep(f.ctx, streamBackoff(err, failures)) {
			return
		}
		f.setStream(streamConnecting)
	}
}

// streamBackoff lets the first reconnect follow at once, and slows down when
// streams keep failing.
func streamBackoff(err error, failures int) time.Duration {
	if status := statusOf(err); status == 0 && failures == 1 {
		return 50*time.Millisecond + rand.N(200*time.Millisecond) //nolint:gosec // jitter is no secret
	}
	return readBackoff(err, failures)
}

// streamOnce opens a stream and reads it to its end. The watchdog ends it after
// a time without a single byte, also while the headers are awaited.
func (f *follower) streamOnce() (reason string, err error) {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	dog := newWatchdog(f.m.cfg.IdleTimeout, cancel)
	defer dog.stop()
	defer func() {
		if reason == reasonIdle {
			err = fmt.Errorf("not a byte came for %s", f.m.cfg.IdleTimeout)
		}
	}()
	// The session is read once the subscription stands, or without it when the
	// headers are slow to come.
	early := time.AfterFunc(headersWait, func() { f.ask(priorityConnect) })
	defer early.Stop()
	var body io.ReadCloser
	f.m.errands.lend(func() { body, err = f.m.cfg.Client.Stream(ctx, f.id) })
	if err != nil {
		// A session that cannot be streamed can still be read.
		f.ask(priorityConnect)
		return dog.or(openReason(err)), err
	}
	defer body.Close()
	early.Stop()
	f.setStream(streamOpen)
	f.ask(priorityConnect)
	// The first read may be served a snapshot from before the subscription.
	f.askIn(snapshotLag)
	err = f.consume(&watched{Reader: body, dog: dog})
	if errors.Is(err, io.EOF) {
		return dog.or(reasonEOF), err
	}
	return dog.or(reasonError), err
}

func openReason(err error) string {
	switch {
	case errors.Is(err, errNotEventStream):
		return reasonContentType
	case statusOf(err) != 0:
		return reasonStatus
	}
	return reasonError
}

// watched tells the watchdog of all that arrives.
type watched struct {
	io.Reader
	dog *watchdog
	// at is when something last arrived. Events come several at a time, and one
	// look at the clock serves them all.
	at time.Time
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.at = time.Now()
		w.dog.heard(w.at)
	}
	return n, err
}

// consume hands the events of a stream to the reconciler. It returns the error
// that ended the stream.
func (f *follower) consume(body *watched) error {
	stream := newSSEReader(body, maxFrame)
	for {
		data, err := stream.next()
		if errors.Is(err, errFrameTooLong) {
			f.trouble(troubleTooLong)
			continue
		}
		if err != nil {
			return err
		}
		f.m.metrics.events.Inc()
		f.lastEvent.Store(body.at.UnixNano())
		f.handle(parseEvent(data), body.at)
	}
}

// handle acts on one event that arrived at a time.
func (f *follower) handle(e event, at time.Time) {
	switch e.kind {
	case eventNoise:
	case eventSnapshot:
		s, err := parseSnapshot(e.session, at, false, f.known())
		if err != nil || s.session.ID != f.id {
			f.trouble(troubleMalformed)
			return
		}
		f.apply(s)
	case eventCall:
		f.called(e.call, at)
	case eventOutput:
		f.outputSeen(journal.Key{SessionID: f.id, TurnID: e.turnID, CallID: e.callID})
	case eventTurnEnded:
		f.turnEnded(e.turnID)
	case eventError:
		f.trouble(troubleError)
	case eventGarbled:
		f.trouble(troubleMalformed)
	case eventUnknown:
		f.trouble(troubleUnknown)
	case eventEmpty:
		f.trouble(troubleEmpty)
	}
}

// trouble looks at the session itself, because the stream brought something that
// says too little: at once, but less and less often while it goes on so. The
// regular reads find what it misses then.
func (f *follower) trouble(reason string) {
	f.m.metrics.troubles.WithLabelValues(reason).Inc()
	f.mu.Lock()
	defer f.mu.Unlock()
	p := priorityConnect
	if reason == troubleUnknown || reason == troubleEmpty {
		p = priorityResync // probably nothing
	}
	wait := time.Until(f.troubledUntil)
	switch {
	case wait > 0 && f.troubled:
	case wait > 0:
		f.troubled = true
		time.AfterFunc(wait, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.lookAgain(p)
		})
	default:
		if -wait > calmAfter {
			f.troubles = 0
			f.log.Info("the stream brought what says too little; the session is read", "reason", reason)
		}
		f.lookAgain(p)
	}
}

// lookAgain reads the session and sets the pause before the next time. The lock
// is held.
func (f *follower) lookAgain(p priority) {
	f.troubles++
	f.troubledUntil, f.troubled = time.Now().Add(backoff(f.troubles)), false
	f.ask(p)
}

// calmAfter is how long a stream must have been without trouble for the next one
// to be logged and acted on as a first.
const calmAfter = time.Minute
