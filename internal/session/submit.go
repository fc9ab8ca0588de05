package session

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"functionbridge/internal/journal"
)

const (
	// maxRefusals is how often a result is offered that the API will not take,
	// and refusalGap how far apart, before a short failure takes its place.
	maxRefusals = 3
	refusalGap  = 10 * time.Second
	// parkAfter is the wait from which on a result waits without a goroutine.
	parkAfter = 10 * time.Second
	// raceMessage is how the API answers a result whose call it has not
	// registered yet (openai-go v3.99.0, agents_stream.go).
	raceMessage = "Unknown pending tool call"
)

// raceWaits are the SDK helper's waits for a call to be registered.
func raceWaits() []time.Duration {
	return []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond}
}

// submit posts the outcome until the API has it or no longer wants it. It runs
// in the task's goroutine, which a long wait does not keep: then it ends, and a
// timer starts another.
func (t *task) submit() {
	var wait time.Duration
	for races := 0; t.pauseShort(wait) && t.admitted(); {
		key, body, ok := t.submission()
		if !ok {
			break
		}
		err := t.f.m.cfg.Client.Submit(t.f.m.working, t.f.id, key, body)
		if err == nil {
			t.submitted()
			break
		}
		if t.f.m.working.Err() != nil {
			break
		}
		t.f.m.metrics.results.WithLabelValues(resultRetried).Inc()
		if isRace(err) && races < len(raceWaits()) {
			wait = raceWaits()[races]
			races++
			continue
		}
		wait = t.failed(err)
	}
	t.park(wait)
}

// pauseShort waits, unless that is too long for a goroutine.
func (t *task) pauseShort(wait time.Duration) bool {
	return wait == 0 || (wait < parkAfter && t.pause(wait))
}

// admitted waits while the API refuses the key, or this session. It reports
// false when there is nothing more to post.
func (t *task) admitted() bool {
	for _, g := range []*gate{&t.f.forbidden, &t.f.m.cfg.Client.health.key} {
		for {
			wait, opened := g.turn()
			if wait == 0 {
				break
			}
			if !t.await(wait, opened) {
				return false
			}
		}
	}
	return true
}

// failed finds out what a failed post means and how long to wait for the next.
// What the API asks for is kept in the journal when it is long.
func (t *task) failed(err error) time.Duration {
	t.failures++
	t.f.log.Debug("posting the result failed", "error", err, "turn_id", t.call.TurnID, "call_id", t.call.CallID, "failures", t.failures)
	wait := t.afterFailure(err, t.failures)
	if e, ok := errors.AsType[*APIError](err); ok && wait >= parkAfter && e.RetryAfter >= parkAfter {
		t.f.mu.Lock()
		t.call.RetryAt = time.Now().Add(wait)
		image := t.changed()
		t.f.mu.Unlock()
		// A lost row only means that the API is asked too early.
		_ = t.f.m.cfg.Journal.Save(t.f.m.working, image, journal.Lazy)
	}
	return wait
}

// park ends the task's goroutine; what is left to post is posted after the wait.
func (t *task) park(wait time.Duration) {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	t.idle()
	if wait >= parkAfter && !t.call.State.Settled() {
		t.wakeIn(wait)
	}
}

// wakeIn posts the result after a while. The lock is held.
func (t *task) wakeIn(wait time.Duration) {
	t.notBefore = time.Now().Add(wait)
	if t.timer != nil {
		t.timer.Stop()
	}
	t.timer = time.AfterFunc(wait, func() {
		t.f.mu.Lock()
		defer t.f.mu.Unlock()
		if t.postable() {
			t.start(t.submit)
		}
	})
}

// postable reports whether the result waits for nothing but a goroutine. The
// lock is held.
func (t *task) postable() bool {
	outcome := t.call.State == journal.Answered || t.call.State == journal.Submitted
	return outcome && !t.busy && !t.f.draining && !time.Now().Before(t.notBefore)
}

// resubmit posts again what the API accepted and forgot; after a few times
// under another key, in case the API drops repeats of the old one. The lock is held.
func (t *task) resubmit() {
	t.f.m.metrics.results.WithLabelValues(resultRetried).Inc()
	t.f.log.Warn("an accepted result is still asked for; it is posted again", "turn_id", t.call.TurnID, "call_id", t.call.CallID)
	t.start(t.submit)
}

// keyGeneration is the generation of the submission key after so many posts that
// came to nothing.
func keyGeneration(submissions int) int { return submissions / maxFruitless }

// submission is what to post now; false when the call is settled. An outcome that
// took another's place is saved first, as every outcome is.
func (t *task) submission() (key string, body []byte, ok bool) {
	t.f.mu.Lock()
	call, replaced := t.call, t.replaced
	t.replaced = false
	t.f.mu.Unlock()
	if call.State.Settled() {
		return "", nil, false
	}
	if replaced && t.save(t.f.m.working, call, t.durability()) != nil {
		return "", nil, false // it was settled, or the bridge stops
	}
	return journal.SubmissionKey(t.callKey, call.Outcome, keyGeneration(call.Submissions)), resultBody(call), true
}

// submitted notes that the API accepted the result.
func (t *task) submitted() {
	if t.f.forbidden.open() {
		t.f.log.Info("the API takes results of the session again")
	}
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	if t.call.State.Settled() {
		return
	}
	t.call.Submissions++
	t.failures = 0
	t.call.State, t.call.SubmittedAt, t.call.RetryAt = journal.Submitted, time.Now(), time.Time{}
	// A lost row only means that the same result is posted again under its key.
	_ = t.f.m.cfg.Journal.Save(t.f.m.working, t.changed(), journal.Lazy)
	if t.ended {
		t.search()
	}
}

// afterFailure sorts a failed post by what it means for the next one.
func (t *task) afterFailure(err error, failures int) time.Duration {
	switch status := statusOf(err); status {
	case 0, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return retryWait(err, failures)
	case http.StatusUnauthorized:
		return backoff(failures) // the gate of the key holds it for longer
	case http.StatusForbidden:
		if t.f.forbidden.shut() {
			t.f.log.Warn("the API forbids to post results in this session; its results wait: check the rights and the project of OPENAI_API_KEY", "error", err)
		}
		return 0
	default:
		if status >= 500 {
			return retryWait(err, failures)
		}
		return t.afterRefusal(err, failures)
	}
}

// retryWait is for as long as the API asks, or a backoff.
func retryWait(err error, failures int) time.Duration {
	if e, ok := errors.AsType[*APIError](err); ok && e.RetryAfter > 0 {
		return max(e.RetryAfter, backoff(min(failures, 3))/4)
	}
	return backoff(failures)
}

// afterRefusal reads the session to see whether it still wants the result. When
// it does and will not take this one, a short failure takes its place.
func (t *task) afterRefusal(err error, failures int) time.Duration {
	s, readErr := t.f.refresh(t.f.m.working, priorityConnect)
	if readErr != nil {
		return backoff(failures)
	}
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	listed := t.round == t.f.round && s.fresh
	status := statusOf(err)
	switch {
	case t.call.State.Settled():
		return 0
	case !listed:
		t.search()
		return backoff(failures)
	case status == http.StatusConflict:
		// The call is asked for, so the conflict may lie in the key: the API
		// remembers another body under it.
		t.call.Submissions++
		t.f.log.Warn("the API sees a conflict in a result that it asks for; it is posted again", "error", err, "turn_id", t.call.TurnID, "call_id", t.call.CallID)
		return backoff(failures)
	case isRace(err), status != http.StatusBadRequest && status != http.StatusRequestEntityTooLarge:
		return backoff(failures)
	}
	return t.refuse(status)
}

// refuse counts a refusal of a result that is still asked for. The lock is held.
func (t *task) refuse(status int) time.Duration {
	now := time.Now()
	if t.refused == 0 || now.Sub(t.refusedAt) >= refusalGap {
		t.refused++
		t.refusedAt = now
	}
	switch {
	case t.substitute:
		// What the API does not take in any form is offered less and less often.
		return min(refusalGap<<min(t.refused, 6), maxReadWait)
	case t.refused < maxRefusals:
		return refusalGap
	}
	t.refused, t.call.Submissions = 0, 0
	t.call.Outcome = refusedOutcome(t.call, status)
	t.call.State = journal.Answered
	t.f.m.metrics.results.WithLabelValues(resultRejected).Inc()
	t.f.log.Error("the API does not take the result; the agent is told so instead", "status", status, "turn_id", t.call.TurnID, "call_id", t.call.CallID)
	t.replaced, t.substitute = true, true
	t.call.Rev++
	return 0
}

// refusedOutcome is what the agent is told in place of a result that the API
// will not take.
func refusedOutcome(call journal.Call, status int) journal.Outcome {
	kind, what, advice := journal.BadReply, "gave a result that cannot be passed on", "Do not try again."
	if status == http.StatusRequestEntityTooLarge {
		kind, what, advice = journal.TooLarge, "gave a result that is too large to be passed on", "Ask for less and call again."
	}
	if call.Outcome.Success && !call.Idempotent {
		advice = "It was carried out; do not call it again."
	}
	return journal.Failure(kind, "The function "+call.Function+" "+what+". "+advice)
}

// isRace recognises the answer to a result that came before its call was
// registered. The same words stand for a call that is settled, so it is taken
// for a race a few times only.
func isRace(err error) bool {
	return statusOf(err) == http.StatusBadRequest && strings.Contains(err.Error(), raceMessage)
}
