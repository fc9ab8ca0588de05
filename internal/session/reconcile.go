package session

import (
	"context"
	"net/http"
	"time"

	"functionbridge/internal/journal"
)

const (
	// snapshotLag is how much older than its arrival a snapshot may be. Within
	// it, a call that is missing from one proves nothing.
	snapshotLag = 5 * time.Second
	// journalRetry is when a session is looked at again after the journal could
	// not be read.
	journalRetry = time.Second
)

// apply compares the calls that a snapshot lists with the tasks at hand: new
// ones are taken, known ones go on, and those that are listed no more are
// settled. It does not matter which event brought the snapshot, nor how often.
func (f *follower) apply(s snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return
	}
	f.setStatus(s.status)
	f.session, f.missingSince = s.session, time.Time{}
	f.round++
	for _, a := range s.calls {
		if t, ok := f.tasks[a.key]; ok {
			t.round = f.round
			t.listedAt = s.begun
			f.stillListed(t, s)
		} else {
			f.take(a, s)
		}
	}
	for _, t := range f.tasks {
		if t.round != f.round {
			f.notListed(t, s)
		}
	}
	if s.status == sessionFailed {
		f.sessionFailed()
	}
}

// take makes a task of a call that is seen for the first time; a may be a view of
// what was read. The lock is held.
func (f *follower) take(a action, s snapshot) {
	if f.closing || f.draining {
		return
	}
	a = a.clone()
	plan := f.m.cfg.Forwarder.Plan(a.function)
	if plan.Ignore {
		return
	}
	tn, err := f.turnOf(a.key.TurnID)
	if err != nil {
		if !f.looksSoon {
			f.journalFailures++
			f.logChange(f.journalFailures, "reading the journal failed; the session's new calls wait", err, "turn_id", a.key.TurnID)
		}
		f.lookSoon()
		return
	}
	f.journalFailures = 0
	known := tn.taken[a.key.CallID]
	if known != nil {
		f.listedAgain(tn, known, a.key, s)
		return
	}
	known = &taken{}
	tn.taken[a.key.CallID] = known
	t := newTask(f, journal.Call{
		Key: a.key, Function: a.function, Arguments: a.arguments, State: journal.Pending,
		Owner: f.m.cfg.Owner, Idempotent: plan.Idempotent, CreatedAt: time.Now(),
	})
	t.async, t.turn, t.known = plan.Async, tn, known
	t.round, t.listedAt = f.round, t.call.CreatedAt
	f.tasks[a.key] = t
	t.run()
}

// called takes a call of an async function when the agent makes it: its turn may
// go on without the session's ever listing it. Of any other call the session's
// required actions tell.
func (f *follower) called(a action, at time.Time) {
	if !f.m.cfg.Forwarder.Plan(a.function).Async {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a.key.SessionID = f.id
	if _, live := f.tasks[a.key]; live || f.gone || a.key.TurnID == "" || a.key.CallID == "" {
		return
	}
	f.take(a, snapshot{begun: at})
}

// resume makes tasks of the calls that an earlier process left unsettled. What
// needs no word from the session goes on at once; the rest waits until a
// snapshot says whether it is still wanted.
func (f *follower) resume(unsettled []journal.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(unsettled) > 0 {
		f.listed = false // somebody else may have had more calls of the session
	}
	for _, call := range unsettled {
		if _, live := f.tasks[call.Key]; live {
			continue
		}
		call.Owner = f.m.cfg.Owner
		t := newTask(f, call)
		t.resumed, t.async = true, f.m.cfg.Forwarder.Plan(call.Function).Async
		f.tasks[call.Key] = t
		t.suspect()
		switch {
		case t.call.State == journal.Answered:
			t.resumePost()
		case call.State == journal.Running && !call.Idempotent:
			t.run()
		}
	}
}

// resumePost posts the result that an earlier process left, when it is due. The
// lock is held.
func (t *task) resumePost() {
	if wait := time.Until(t.notBefore); wait > 0 {
		t.wakeIn(wait)
		return
	}
	t.start(t.submit)
}

// maxCrashes is at how many unclean ends of the process a call may have been the
// only one running.
const maxCrashes = 3

// suspect looks at a resumed call that may be what brings the process down: it
// is run with care, and not for ever. The lock is held.
func (t *task) suspect() {
	c := &t.call
	if c.Crashes == 0 || !c.Idempotent || c.State != journal.Running {
		return
	}
	t.careful = true
	if c.Crashes < maxCrashes {
		return
	}
	t.f.log.Error("the process ended three times while this call alone was running; it is not run again", "function", c.Function, "turn_id", c.TurnID, "call_id", c.CallID)
	c.Outcome = journal.Failure(journal.Internal, "The function "+c.Function+" could not be run: the bridge failed three times while it ran. Do not try again.")
	c.State, c.AnsweredAt = journal.Answered, time.Now()
	if err := t.f.m.cfg.Journal.Save(t.f.m.working, t.changed(), journal.Lazy); err != nil {
		t.f.log.Warn("the outcome could not be saved", "error", err, "call_id", c.CallID)
	}
}

// stillListed goes on with a task that the session still waits for. The lock is held.
func (f *follower) stillListed(t *task, s snapshot) {
	if t.busy || f.draining {
		return
	}
	switch t.call.State {
	case journal.Pending, journal.Running:
		t.run()
	case journal.Answered:
		if t.postable() {
			t.start(t.submit)
		}
	case journal.Submitted:
		if t.postable() && s.begun.Sub(t.call.SubmittedAt) >= f.m.cfg.ResyncInterval {
			t.resubmit()
		}
	case journal.InDoubt, journal.Confirmed, journal.Abandoned:
	}
}

// notListed settles a task that the session no longer lists: an accepted result
// has landed; for anything else the turn is asked. Only a read proves it: the
// snapshot of an event may be one of long ago, sent again to a new stream. The
// lock is held.
func (f *follower) notListed(t *task, s snapshot) {
	switch {
	case !s.fresh:
	case t.call.State == journal.Submitted:
		if s.begun.Sub(t.call.SubmittedAt) > snapshotLag {
			t.settle(journal.Confirmed)
		}
	case t.async: // its turn may be over
	case s.begun.Sub(t.lastSeen()) > snapshotLag:
		f.probe(t)
	}
}

// outputSeen confirms a call whose output the session shows.
func (f *follower) outputSeen(key journal.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t, ok := f.tasks[key]; ok {
		t.settle(journal.Confirmed)
	}
}

// turnEnded ends the tasks of a turn, but for those whose agent went on without
// waiting for them.
func (f *follower) turnEnded(turnID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, t := range f.tasks {
		if key.TurnID == turnID && !t.async {
			t.end()
		}
	}
}

// sessionFailed ends every task and then the follower: a failed session takes
// no more input. The lock is held.
func (f *follower) sessionFailed() {
	f.log.Info("session failed; it is no longer followed")
	f.closing, f.gone = true, true
	for _, t := range f.tasks {
		t.end()
	}
	f.endIfDone()
}

// sessionGone abandons what is left of a session that does not exist any more.
func (f *follower) sessionGone() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return
	}
	f.log.Info("session is gone; it is no longer followed")
	f.closing, f.gone = true, true
	for _, t := range f.tasks {
		if t.finishes() {
			t.end()
		} else {
			t.settle(journal.Abandoned)
		}
	}
	f.endIfDone()
}

// probe asks whether the turn of an unlisted task has ended, once at a time.
// The lock is held.
func (f *follower) probe(t *task) {
	if t.probing {
		return
	}
	t.probing = true
	f.m.followers.Go(func() {
		over, err := f.turnOver(f.ctx, t.call.TurnID)
		if err != nil {
			f.log.Debug("reading the turn failed; it is asked again", "error", err, "turn_id", t.call.TurnID)
		}
		f.mu.Lock()
		t.probing = false
		f.mu.Unlock()
		if over {
			f.turnEnded(t.call.TurnID)
		}
	})
}

// turnOver reports whether a turn has come to its end. Where the API has no
// turns to read, a call that is no longer listed is over.
func (f *follower) turnOver(ctx context.Context, turnID string) (bool, error) {
	status, err := f.m.cfg.Client.Turn(ctx, f.id, turnID)
	if code := statusOf(err); code == http.StatusNotFound || code == http.StatusMethodNotAllowed || code == http.StatusNotImplemented {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return status == "completed" || status == "failed" || status == "cancelled", nil
}

// stopWork ends the runs of functions; drain was called before.
func (f *follower) stopWork() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.tasks {
		t.cancel(errDraining)
	}
}

// drain starts nothing new and stops what was not sent yet.
func (f *follower) drain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.draining = true
	close(f.drained)
	for _, t := range f.tasks {
		if t.busy && t.call.State == journal.Pending {
			t.cancel(errDraining)
		}
	}
}
