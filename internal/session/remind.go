package session

import (
	"log/slog"
	"time"

	"functionbridge/internal/journal"
)

// listedAgain is told that the session lists a call that was settled. Right
// after that a snapshot may be an old one; a read that begins a while later says
// that the settlement was wrong: the API has lost what it had taken, or the
// session was only away. Then an abandoned call goes on where it was left, and
// the result of a confirmed one is posted again. The lock is held.
func (f *follower) listedAgain(tn *turn, known *taken, key journal.Key, s snapshot) {
	if !s.fresh || s.begun.Before(known.quietUntil) {
		return
	}
	known.quietUntil = s.begun.Add(f.quiet())
	known.reminders++
	tn.more = true
	generation := (known.reminders - 1) / maxFruitless
	f.m.tasks.Go(func() { f.reconsider(key, generation) })
}

// quiet is for how long after an event a read of the session may be too old, or
// the API too slow, to contradict it.
func (f *follower) quiet() time.Duration { return max(f.m.cfg.ResyncInterval, snapshotLag) }

// keepQuiet keeps snapshots that are on their way from waking a call that was
// settled now. The lock is held.
func (t *task) keepQuiet(now time.Time) {
	until := now.Add(t.f.quiet())
	if t.known == nil { // it was not taken from a snapshot, but resumed or reopened
		t.turn = t.f.turns[t.call.TurnID]
		if t.turn == nil { // an earlier process took it, and the turn was not read yet
			t.f.settledBefore[t.call.Key] = until
			return
		}
		t.known = t.turn.taken[t.call.CallID]
	}
	if t.known != nil {
		t.known.quietUntil, t.turn.used = until, now
		t.turn.more = t.turn.more || t.call.State != journal.Confirmed
	}
}

// reconsider reads a settled call that is listed again and goes on with it.
func (f *follower) reconsider(key journal.Key, generation int) {
	log := f.log.With("turn_id", key.TurnID, "call_id", key.CallID)
	call, err := f.m.cfg.Journal.Call(f.m.working, key)
	switch {
	case err != nil:
		log.Warn("a settled call is listed again and cannot be read", "error", err)
	case call.State == journal.Abandoned:
		log.Warn("an abandoned call is listed again; it goes on")
		f.reopen(call)
	case call.State == journal.Confirmed:
		f.remind(call, generation, log)
	default: // it has been reopened already
	}
}

// reopen makes a task of an abandoned call. One with a result posts it; one that
// may have been processed is of unknown outcome; any other is run.
func (f *follower) reopen(call journal.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, live := f.tasks[call.Key]; live || f.closing || f.draining {
		return
	}
	if call.AnsweredAt.IsZero() && call.LateOutcome != nil {
		call.Outcome, call.AnsweredAt, call.LateOutcome = *call.LateOutcome, time.Now(), nil
	}
	switch {
	case !call.AnsweredAt.IsZero():
		call.State = journal.Answered
	case !call.SentAt.IsZero():
		call.State = journal.Running
	default:
		call.State = journal.Pending
	}
	t := newTask(f, call)
	t.async = f.m.cfg.Forwarder.Plan(call.Function).Async
	t.round, t.listedAt = f.round, time.Now()
	f.tasks[call.Key] = t
	if call.State == journal.Answered {
		t.replaced = true // save the state before the post
		t.resumePost()
		return
	}
	t.run()
}

// remind posts the result of a confirmed call again, a few times under its key
// and then under others, in case the API drops repeats. The row stays as it is.
func (f *follower) remind(call journal.Call, generation int, log *slog.Logger) {
	log.Warn("a settled call is listed again; its result is posted again", "state", call.State)
	if call.Erased {
		call.Outcome = erasedOutcome(call)
	}
	f.m.metrics.results.WithLabelValues(resultRetried).Inc()
	submission := journal.SubmissionKey(call.CallKey(), call.Outcome, keyGeneration(max(call.Submissions-1, 0))+generation)
	if err := f.m.cfg.Client.Submit(f.m.working, f.id, submission, resultBody(call)); err != nil {
		log.Debug("posting the result failed; the next read tries again", "error", err)
	}
}

// erasedOutcome stands for a result whose text is no longer kept.
func erasedOutcome(call journal.Call) journal.Outcome {
	if call.Outcome.Success {
		return journal.Failure(journal.Internal, "The function "+call.Function+" was carried out, but its result is no longer kept. Do not call it again.")
	}
	return journal.Failure(journal.Internal, "The function "+call.Function+" failed, and why is no longer kept. Try again later.")
}
