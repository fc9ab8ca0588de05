package session

import (
	"time"

	"functionbridge/internal/journal"
)

// listedAgain is told that the session lists a call that was settled. Right
// after that a snapshot may be an old one; a read that begins a while later says
// that the settlement was wrong: the API has lost what it had taken, or the
// session was only away. Then the result is posted again, if there is one. The
// row stays as it is, and the function is not run. The lock is held.
func (f *follower) listedAgain(known *taken, key journal.Key, s snapshot) {
	if !s.fresh || s.begun.Before(known.quietUntil) {
		return
	}
	known.quietUntil = s.begun.Add(f.quiet())
	known.reminders++
	generation := (known.reminders - 1) / maxFruitless
	f.m.tasks.Go(func() { f.remind(key, generation) })
}

// quiet is for how long after an event a read of the session may be too old, or
// the API too slow, to contradict it.
func (f *follower) quiet() time.Duration { return max(f.m.cfg.ResyncInterval, snapshotLag) }

// settled keeps snapshots that are on their way from waking a settled call. The
// lock is held.
func (f *follower) settled(key journal.Key) {
	if tn := f.turns[key.TurnID]; tn != nil && tn.taken[key.CallID] != nil {
		tn.taken[key.CallID].quietUntil = time.Now().Add(f.quiet())
	}
}

// remind posts the result of a settled call again, a few times under its key and
// then under others, in case the API drops repeats.
func (f *follower) remind(key journal.Key, generation int) {
	log := f.log.With("turn_id", key.TurnID, "call_id", key.CallID)
	call, err := f.m.cfg.Journal.Call(f.m.working, key)
	if err != nil {
		log.Warn("a settled call is listed again and cannot be read", "error", err)
		return
	}
	if call.AnsweredAt.IsZero() && call.LateOutcome != nil {
		call.Outcome, call.AnsweredAt = *call.LateOutcome, time.Now()
	}
	if call.AnsweredAt.IsZero() {
		log.Error("a settled call is listed again and has no result; the agent waits for it", "state", call.State)
		return
	}
	log.Warn("a settled call is listed again; its result is posted again", "state", call.State)
	f.m.metrics.results.WithLabelValues(resultRetried).Inc()
	submission := journal.SubmissionKey(call.CallKey(), call.Outcome, call.Generation+generation)
	if err := f.m.cfg.Client.Submit(f.m.working, f.id, submission, resultBody(call)); err != nil {
		log.Debug("posting the result failed; the next read tries again", "error", err)
	}
}
