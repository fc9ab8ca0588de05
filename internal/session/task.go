package session

import (
	"context"
	"errors"
	"time"

	"functionbridge/internal/journal"
)

// task is one call on its way. Its fields are guarded by the follower's lock;
// one goroutine at a time works on it (busy).
type task struct {
	f    *follower
	call journal.Call
	// callKey is the call's idempotency key.
	callKey string
	// session is what the call may use of its session, as it was when taken.
	session journal.Session
	// ctx ends the run of the function.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// done is closed when the call is settled.
	done chan struct{}
	// turn and known are what is remembered of a call that a snapshot listed; nil
	// of any other.
	turn  *turn
	known *taken

	busy bool
	// async: the result is wanted also when the turn is over.
	async bool
	// careful: the call may be what brought an earlier process down, so its row
	// is on disk before it is sent, also where it could be sent again.
	careful bool
	// resumed: an earlier process had the call, and may have posted a result
	// and died before the row said so.
	resumed bool
	// ended: the turn is over and nobody waits for the result.
	ended bool
	// settling and probing keep a question to the API from being asked twice at once.
	settling, probing bool
	// round is the last round of the reconciler that listed the call, and
	// listedAt when that snapshot was begun.
	round    uint64
	listedAt time.Time

	// refused counts the posts of the present result that the API would not take.
	refused   int
	refusedAt time.Time
	// replaced: the outcome took the place of a refused one and is not saved yet;
	// substitute: it did so at some time.
	replaced, substitute bool
	// unresolved is the outcome that a resolution is about to replace.
	unresolved journal.Outcome
	// failures counts the posts in a row that failed, and notBefore is when the
	// next one is due; timer brings it about without a goroutine.
	failures  int
	notBefore time.Time
	timer     *time.Timer
}

// maxFruitless is how many submissions may come to nothing under one key before
// the result is posted under another.
const maxFruitless = 3

func newTask(f *follower, call journal.Call) *task {
	return &task{
		f: f, call: call, callKey: call.CallKey(), session: f.session, done: make(chan struct{}), cancel: func(error) {},
		careful: f.m.careful(), notBefore: call.RetryAt,
	}
}

// start gives the task a goroutine. The lock is held.
func (t *task) start(work func()) {
	t.busy = true
	t.f.m.tasks.Go(work)
}

// run gives the task a goroutine that runs the function, with a context of its
// own; stopWork ends it. The lock is held.
func (t *task) run() {
	t.ctx, t.cancel = context.WithCancelCause(context.Background()) // a child of working would take a lock that all calls share
	t.session = t.f.session
	t.start(t.work)
}

// idle says that the goroutine is about to end. The lock is held.
func (t *task) idle() { t.busy = false }

// lastSeen is when the call was last known to be pending.
func (t *task) lastSeen() time.Time {
	if t.listedAt.After(t.call.CreatedAt) {
		return t.listedAt
	}
	return t.call.CreatedAt
}

// finishes reports whether the function runs and is to come to its end, turn or
// no turn: a side effect that may have happened must have an outcome.
func (t *task) finishes() bool {
	return t.busy && t.call.State == journal.Running && !t.call.Idempotent
}

// changed returns an image of the call for the journal. The lock is held.
func (t *task) changed() journal.Call {
	t.call.Rev++
	return t.call
}

// save puts an image into the journal without waiting for the disk; when the
// journal is broken it waits until it is not, so that nothing runs ahead.
func (t *task) save(ctx context.Context, image journal.Call, d journal.Durability) error {
	err := t.f.m.cfg.Journal.Save(ctx, image, d)
	if errors.Is(err, journal.ErrUnavailable) {
		err = t.f.m.cfg.Journal.Save(ctx, image, journal.Durable)
	}
	return err
}

// durability is what a write needs before the next step may be taken.
func (t *task) durability() journal.Durability {
	if t.call.Idempotent && !t.careful {
		return journal.Lazy
	}
	return journal.Durable
}

// work runs the function and posts what came of it.
func (t *task) work() {
	defer t.cancel(nil)
	t.f.mu.Lock()
	before := t.call
	image := t.changed()
	t.f.mu.Unlock()
	if err := t.save(t.ctx, image, journal.Lazy); err != nil {
		t.stopped(err)
		return
	}
	outcome, err := t.f.m.cfg.Forwarder.Forward(t.ctx, before, t.session, t)
	if err != nil {
		t.stopped(err)
		return
	}
	if t.answered(outcome) {
		t.submit()
	}
}

// Sending implements journal.Recorder: the call is running before its request leaves.
func (t *task) Sending(ctx context.Context, request []byte) error {
	image, err := t.begin(request)
	if err != nil {
		return err
	}
	err = t.save(ctx, image, t.durability())
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	if err == nil && (t.ended || t.call.State.Settled()) {
		err = errTurnEnded
	}
	if err != nil && t.call.State == journal.Running {
		t.call.State, t.call.SentAt = journal.Pending, time.Time{}
		_ = t.f.m.cfg.Journal.Save(ctx, t.changed(), journal.Lazy)
	}
	return err
}

// begin moves the call to running, unless it must not be sent any more.
func (t *task) begin(request []byte) (journal.Call, error) {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	switch {
	case t.ended || t.call.State.Settled():
		return journal.Call{}, errTurnEnded
	case t.f.draining:
		return journal.Call{}, errDraining
	}
	if len(t.call.Request) == 0 {
		t.call.Request = request
	}
	t.call.State, t.call.SentAt = journal.Running, time.Now()
	return t.changed(), nil
}

// NeverRan implements journal.Recorder. The next Sending saves it.
func (t *task) NeverRan() {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	if t.call.State == journal.Running {
		t.call.State, t.call.SentAt, t.call.Reran = journal.Pending, time.Time{}, true
	}
}

// Sent implements journal.Recorder.
func (t *task) Sent(attempt journal.Attempt, unprocessed bool) {
	t.f.mu.Lock()
	t.call.Attempts = append(t.call.Attempts, attempt)
	if unprocessed && t.call.State == journal.Running {
		t.call.State, t.call.SentAt = journal.Pending, time.Time{}
	}
	if attempt.Status/100 == 2 && !attempt.Recover {
		t.f.mu.Unlock()
		return // the outcome is next, and its image carries this attempt
	}
	image := t.changed()
	t.f.mu.Unlock()
	// A broken journal is noticed by the next write that somebody waits for.
	_ = t.f.m.cfg.Journal.Save(t.f.m.working, image, journal.Lazy)
}

// stopped ends a run that came to no outcome. What is still wanted is left as
// it is: the next snapshot, or the next process, takes it up.
func (t *task) stopped(err error) {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	t.idle()
	switch {
	case t.call.State.Settled():
	case t.ended && t.resumed:
		t.search()
	case t.ended:
		t.settle(journal.Abandoned)
	case t.f.draining || t.ctx.Err() != nil:
	default:
		t.f.log.Warn("the call was stopped before its request left; it is taken up again", "error", err, "turn_id", t.call.TurnID, "call_id", t.call.CallID)
		t.f.lookSoon()
	}
}

// answered keeps the outcome, and reports whether it is to be posted. An outcome
// that nobody waits for stays with the call.
func (t *task) answered(outcome journal.Outcome) bool {
	t.f.mu.Lock()
	post := false
	switch {
	case t.call.State.Settled():
		t.call.LateOutcome = &outcome
		t.idle()
	case t.ended:
		t.call.Outcome, t.call.AnsweredAt = outcome, time.Now()
		t.idle()
		t.settle(journal.Abandoned)
	case outcome.Hold:
		t.call.Outcome, t.call.State = outcome, journal.InDoubt
		t.idle()
		t.f.log.Warn("the outcome of a call is unknown; it is held until it is resolved through the admin API",
			"function", t.call.Function, "turn_id", t.call.TurnID, "call_id", t.call.CallID)
	default:
		t.call.Outcome, t.call.AnsweredAt = outcome, time.Now()
		t.call.State = journal.Answered
		post = true
	}
	image, durability := t.changed(), t.durability()
	t.f.mu.Unlock()
	switch err := t.save(t.f.m.working, image, durability); {
	case errors.Is(err, journal.ErrStale):
		// It was settled in the meantime, and the row says so.
		return post
	case err != nil:
		t.f.log.Error("the outcome could not be saved", "error", err, "turn_id", t.call.TurnID, "call_id", t.call.CallID)
		return false
	}
	return post
}

// end is told that nobody waits for the result any more. What was not sent, or
// can be repeated, stops; a side effect under way comes to its end; an outcome
// that was posted, or was about to be, is looked for in the turn. The lock is held.
func (t *task) end() {
	t.ended = true
	switch {
	case t.finishes():
	case t.call.State == journal.Pending, t.call.State == journal.Running:
		if t.busy {
			t.cancel(errTurnEnded)
		} else {
			t.search() // only a resumed call is not busy here
		}
	case t.call.State == journal.InDoubt:
		t.settle(journal.Abandoned)
	case t.call.State == journal.Answered, t.call.State == journal.Submitted:
		t.search()
	}
}

// settle ends the call's life. The lock is held.
func (t *task) settle(state journal.State) {
	now := time.Now()
	if state == journal.Confirmed {
		t.call.ConfirmedAt = now
		if t.call.SubmittedAt.IsZero() && t.call.State == journal.Answered {
			t.call.SubmittedAt = now
		}
		t.f.m.metrics.confirmed.Inc()
	} else {
		t.f.m.metrics.results.WithLabelValues(resultAbandoned).Inc()
	}
	if !t.finishes() {
		t.cancel(errTurnEnded)
	}
	t.call.State = state
	if t.timer != nil {
		t.timer.Stop()
	}
	close(t.done)
	delete(t.f.tasks, t.call.Key)
	t.keepQuiet(now)
	if err := t.f.m.cfg.Journal.Save(t.f.m.working, t.changed(), journal.Lazy); err != nil {
		t.saveLater()
	}
	t.f.endIfDone()
}

// saveLater keeps trying to write a settled call while the journal is broken.
func (t *task) saveLater() {
	image := t.call
	t.f.m.followers.Go(func() {
		if err := t.f.m.cfg.Journal.Save(t.f.m.following, image, journal.Durable); err != nil {
			t.f.log.Warn("a settled call could not be saved; the next start settles it again", "error", err, "call_id", image.CallID)
		}
	})
}

// search looks for the call's output in its turn: proof that the result landed.
// Without it the call is confirmed when its result was accepted and is not
// listed any more, else abandoned. The lock is held.
func (t *task) search() {
	if t.settling {
		return
	}
	t.settling = true
	t.f.m.followers.Go(func() {
		for failures := 1; ; failures++ {
			found, err := t.f.m.cfg.Client.Delivered(t.f.m.following, t.f.id, t.call.TurnID, t.call.CallID)
			if err == nil || statusOf(err) == 404 || t.f.m.following.Err() != nil {
				t.searched(found, err)
				return
			}
			if !sleep(t.f.m.following, backoff(failures)) {
				return
			}
		}
	})
}

// searched settles a call by what the turn's items say.
func (t *task) searched(found bool, err error) {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	t.settling = false
	switch {
	case t.call.State.Settled() || t.f.m.following.Err() != nil:
	case found:
		t.settle(journal.Confirmed)
	case t.call.State == journal.Submitted && !t.f.gone:
		// The next read of the session decides; see notListed.
		t.f.askIn(snapshotLag + time.Second)
	default:
		t.f.log.Debug("no output of the call was found", "error", err, "call_id", t.call.CallID)
		t.settle(journal.Abandoned)
	}
}

// pause waits before the next post. It reports false when there is nothing more
// to do: the call is settled, or the bridge stops.
func (t *task) pause(d time.Duration) bool {
	return t.await(d, nil)
}

// await is pause, cut short by another channel.
func (t *task) await(d time.Duration, short <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-short:
		return true
	case <-t.done:
	case <-t.f.drained:
	case <-t.f.m.working.Done():
	}
	return false
}
