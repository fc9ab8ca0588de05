package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// follower follows one session.
type follower struct {
	m   *Manager
	id  string
	log *slog.Logger
	// ctx ends when the session is no longer followed.
	ctx    context.Context
	cancel context.CancelFunc
	reads  reads

	// lastEvent is when the last event arrived, in Unix nanoseconds; 0 before.
	lastEvent atomic.Int64

	// forbidden holds the results back while the API forbids them.
	forbidden gate

	mu     sync.Mutex
	source Source
	// draining starts nothing more; drained is closed then.
	draining bool
	drained  chan struct{}
	// closing takes no new calls and ends the follower when the last task is
	// settled; gone also says that the session itself has ended.
	closing, gone bool
	// missingSince is when the API began to answer 404 for the session.
	missingSince time.Time
	// again is the source that asked for the session while it was being left.
	again   Source
	session journal.Session
	status  string
	stream  string
	tasks   map[journal.Key]*task
	turns   map[string]*turn
	// older are the turns that are not in turns and of which the journal may know
	// calls; listed says that those from before this follower are among them.
	older  idSet
	listed bool
	// settledBefore are the calls that were settled before their turn was read,
	// with the end of the time in which a snapshot may still list them.
	settledBefore map[journal.Key]time.Time
	// round marks the tasks that a snapshot lists.
	round uint64
	// troubles counts the looks at the session that bad events led to, with
	// troubledUntil the end of the pause before the next; troubled says that one
	// is asked for then.
	troubles      int
	troubledUntil time.Time
	troubled      bool
	// drift is how tools differ from the table driftOf; warned are the warnings
	// that were given.
	drift   *router.Drift
	driftOf *router.Table
	tools   []byte
	warned  map[string]bool
	// looksSoon: a look is due for what waits for the journal, which
	// journalFailures looks in a row found away.
	looksSoon       bool
	journalFailures int
}

func newFollower(m *Manager, id string, source Source) *follower {
	f := &follower{
		m: m, id: id, source: source, closing: source == SourceJournal,
		log: m.cfg.Logger.With("session_id", id), drained: make(chan struct{}),
		session: journal.Session{ID: id}, status: statusUnknown, stream: streamConnecting,
		tasks: map[journal.Key]*task{}, turns: map[string]*turn{}, settledBefore: map[journal.Key]time.Time{}, older: newIDSet(maxOlder),
		forbidden: gate{least: refusedWait, most: maxReadWait},
	}
	f.ctx, f.cancel = context.WithCancel(m.following)
	f.reads.f = f
	m.metrics.state(f.status).Inc()
	return f
}

// The words for the state of a stream.
const (
	streamConnecting = "connecting"
	streamOpen       = "open"
	streamWaiting    = "waiting"
)

// run follows the session until it is no longer wanted or the manager stops.
func (f *follower) run() {
	f.log.Info("session followed", "source", f.source)
	f.reads.after(jitter(f.m.cfg.ResyncInterval))
	f.listen()
	f.reads.end()
	f.mu.Lock()
	f.m.metrics.state(f.status).Dec()
	forget := f.gone && f.source == SourceAdmin && f.again == ""
	f.mu.Unlock()
	if forget {
		f.forget()
	}
	f.m.remove(f)
	f.log.Info("session left")
}

// forget takes a session that has ended off the list of those that were asked
// for, so that the next start does not look for it.
func (f *follower) forget() {
	row := journal.Follow{SessionID: f.id, UpdatedAt: time.Now()}
	if err := f.m.cfg.Journal.SaveFollow(f.m.following, row); err != nil {
		f.log.Warn("the ended session could not be taken off the list", "error", err)
	}
}

// wanted makes a follower that was about to end go on, for a source that wants
// the session's new calls.
func (f *follower) wanted(source Source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case source == SourceJournal || !f.closing:
	case f.gone || f.ctx.Err() != nil:
		f.again = source
	default:
		f.source, f.closing = source, false
		f.ask(priorityConnect)
	}
}

func (f *follower) askedAgain() Source {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.again
}

// unwanted takes no new calls and ends the follower once the taken ones are settled.
func (f *follower) unwanted() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closing = true
	f.endIfDone()
}

// endIfDone ends a closing follower that has nothing left to settle. The lock is held.
func (f *follower) endIfDone() {
	if f.closing && len(f.tasks) == 0 {
		f.cancel()
	}
}

// ask requests a read of the session.
func (f *follower) ask(p priority) { f.reads.ask(p) }

// askIn requests a read after a while.
func (f *follower) askIn(d time.Duration) {
	time.AfterFunc(d, func() {
		if f.ctx.Err() == nil {
			f.ask(priorityResync)
		}
	})
}

// lookSoon requests a read after a while, one for all calls that wait for the
// journal: each read finds all of them, and must not lead to as many others. The
// lock is held.
func (f *follower) lookSoon() {
	if f.looksSoon {
		return
	}
	f.looksSoon = true
	time.AfterFunc(journalRetry, func() {
		f.mu.Lock()
		f.looksSoon = false
		f.mu.Unlock()
		f.ask(priorityConnect)
	})
}

// refresh reads the session and reconciles with what it says. The error of a
// session that has ceased to exist is nil: that is an answer too.
func (f *follower) refresh(ctx context.Context, p priority) (snapshot, error) {
	begun := time.Now()
	raw, err := f.m.cfg.Client.Session(ctx, f.id, p)
	if statusOf(err) == http.StatusNotFound {
		return snapshot{}, f.notFound(err)
	}
	if err != nil {
		return snapshot{}, err
	}
	s, err := parseSnapshot(raw, begun, true, f.known())
	if err == nil && s.session.ID != f.id {
		err = errAnotherOne // a cache's mistake: its calls are for another follower
	}
	if err != nil {
		return snapshot{}, err
	}
	f.apply(s)
	f.checkTools(s.tools)
	return s, nil
}

const (
	// goneAfter is how long a session must be missing before it counts as
	// deleted: what is abandoned then is not taken up again, and a proxy or a
	// lagging replica answers 404 for a moment too.
	goneAfter = time.Minute
	// neverSeenAfter is the same for a session that this process has not read
	// yet: a wrong address or project answers 404 for every session, and is to
	// cost no call before somebody can correct it.
	neverSeenAfter = 10 * time.Minute
)

// notFound gives a session up that has been missing for long enough; until then
// it returns the error of a failed read.
func (f *follower) notFound(err error) error {
	f.mu.Lock()
	now := time.Now()
	if f.missingSince.IsZero() {
		f.missingSince = now
	}
	missing, patience := now.Sub(f.missingSince), goneAfter
	if f.status == statusUnknown {
		patience = neverSeenAfter
		err = fmt.Errorf("%w; if the session exists, check OPENAI_BASE_URL, OPENAI_PROJECT_ID and the rights of OPENAI_API_KEY", err)
	}
	f.mu.Unlock()
	if missing < patience {
		return err
	}
	f.sessionGone()
	return nil
}

// readBackoff is how long to wait after a failed read: a forbidden session does
// not heal in seconds, and a refused key holds everything at its gate.
func readBackoff(err error, failures int) time.Duration {
	e, ok := errors.AsType[*APIError](err)
	switch {
	case ok && e.Status == http.StatusForbidden:
		return refusedWait
	case ok && e.RetryAfter > 0:
		return min(e.RetryAfter, maxReadWait)
	}
	return backoff(failures)
}

const (
	// refusedWait is the pace of tries while the key or the session is refused.
	refusedWait = 30 * time.Second
	// headersWait is how long a stream may hold back its headers before the
	// session is read without it; some servers send them with the first event.
	headersWait = time.Second
	// healthyStream is how long a stream must have lived for the next one to be
	// opened at once.
	healthyStream = 5 * time.Second
	// maxReadWait bounds how long the API may ask to leave a session alone: agents
	// wait for calls that only a read finds.
	maxReadWait = 10 * time.Minute
	// maxBackoff bounds the wait between tries of anything on the API.
	maxBackoff = 30 * time.Second
)

// backoff is the wait before try n+1: a second, doubled each time, with jitter.
func backoff(failures int) time.Duration {
	d := maxBackoff
	if failures < 6 {
		d = time.Second << max(failures-1, 0)
	}
	return d/2 + rand.N(d/2) //nolint:gosec // jitter is no secret
}

// jitter spreads a period by a tenth either way, so that sessions do not march in step.
func jitter(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5+1) //nolint:gosec // jitter is no secret
}

// logChange logs the first failure of a row, and then every tenth.
func (f *follower) logChange(failures int, message string, err error, args ...any) {
	if failures > 1 && failures%10 != 0 {
		f.log.Debug("still failing", "error", err, "failures", failures)
		return
	}
	f.log.Log(f.ctx, slog.LevelWarn, message, append(args, "error", err, "failures", failures)...) //nolint:sloglint // the callers' messages are constants
}
