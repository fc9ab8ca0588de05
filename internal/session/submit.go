package session

import (
	"bytes"
	"encoding/json"
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
	// raceMessage is how the API answers a result whose call it has not
	// registered yet (openai-go v3.99.0, agents_stream.go).
	raceMessage = "Unknown pending tool call"
)

// raceWaits are the SDK helper's waits for a call to be registered.
func raceWaits() []time.Duration {
	return []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond}
}

// submit posts the outcome until the API has it or no longer wants it. It runs
// in the task's goroutine.
func (t *task) submit() {
	defer func() {
		t.f.mu.Lock()
		t.idle()
		t.f.mu.Unlock()
	}()
	races, failures := 0, 0
	for {
		key, body, ok := t.submission()
		if !ok {
			return
		}
		err := t.f.m.cfg.Client.Submit(t.f.m.working, t.f.id, key, body)
		if err == nil {
			t.submitted()
			return
		}
		if t.f.m.working.Err() != nil {
			return
		}
		t.f.m.metrics.results.WithLabelValues(resultRetried).Inc()
		if isRace(err) && races < len(raceWaits()) {
			races++
			if !t.pause(raceWaits()[races-1]) {
				return
			}
			continue
		}
		failures++
		t.f.log.Debug("posting the result failed", "error", err, "turn_id", t.call.TurnID, "call_id", t.call.CallID, "failures", failures)
		if !t.pause(t.afterFailure(err, failures)) {
			return
		}
	}
}

// resubmit posts again what the API accepted and forgot; after a few times
// under another key, in case the API drops repeats of the old one. The lock is held.
func (t *task) resubmit() {
	t.f.m.metrics.results.WithLabelValues(resultRetried).Inc()
	t.renewKey()
	t.f.log.Warn("an accepted result is still asked for; it is posted again", "turn_id", t.call.TurnID, "call_id", t.call.CallID)
	t.start(t.submit)
}

// renewKey changes the submission key once it was used for nothing a few times.
// The lock is held.
func (t *task) renewKey() {
	if t.fruitless >= maxFruitless {
		t.call.Generation++
		t.fruitless = 0
	}
}

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
	return journal.SubmissionKey(call.CallKey(), call.Outcome, call.Generation), resultBody(call), true
}

// submitted notes that the API accepted the result.
func (t *task) submitted() {
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	if t.call.State.Settled() {
		return
	}
	t.fruitless++
	t.call.State, t.call.SubmittedAt = journal.Submitted, time.Now()
	// A lost row only means that the same result is posted again under its key.
	_ = t.f.m.cfg.Journal.Save(t.f.m.working, t.changed(), journal.Lazy)
	if t.ended {
		t.search()
	}
}

// afterFailure finds out what a failed post means and how long to wait before
// the next one.
func (t *task) afterFailure(err error, failures int) time.Duration {
	switch status := statusOf(err); status {
	case 0, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return retryWait(err, failures)
	case http.StatusUnauthorized, http.StatusForbidden:
		return refusedWait
	default:
		if status >= 500 {
			return retryWait(err, failures)
		}
		return t.afterRefusal(err, failures)
	}
}

func retryWait(err error, failures int) time.Duration {
	return max(readBackoff(err, failures), backoff(min(failures, 3))/4)
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
		t.fruitless++
		t.renewKey()
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
	if t.refused < maxRefusals {
		return refusalGap
	}
	t.refused, t.fruitless, t.call.Generation = 0, 0, 0
	t.call.Outcome = refusedOutcome(t.call, status)
	t.call.State = journal.Answered
	t.f.m.metrics.results.WithLabelValues(resultRejected).Inc()
	t.f.log.Error("the API does not take the result; the agent is told so instead", "status", status, "turn_id", t.call.TurnID, "call_id", t.call.CallID)
	t.replaced = true
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

// toolResult is the input event that answers a function call
// (openai-go v3.99.0, AgentSessionInputParamAgentSessionInputToolResult).
type toolResult struct {
	Type    string `json:"type"`
	TurnID  string `json:"turn_id"`
	CallID  string `json:"call_id"`
	Success bool   `json:"success"`
	Output  any    `json:"output,omitempty"` // a string, or the JSON of content parts
	Error   string `json:"error,omitempty"`
}

// resultBody is the body that posts a call's outcome: one result to a request,
// so that one that is refused holds back no other.
func resultBody(call journal.Call) []byte {
	r := toolResult{
		Type: "agent.session.input.tool_result", TurnID: call.TurnID, CallID: call.CallID,
		Success: call.Outcome.Success, Error: call.Outcome.Error,
	}
	switch {
	case !r.Success:
	case call.Outcome.Content:
		r.Output = json.RawMessage(call.Outcome.Output)
	default:
		r.Output = call.Outcome.Output
	}
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	// Escapes that only a web page needs make six bytes of each < > &, and the
	// API limits the body: a reply in XML must not outgrow it for them.
	enc.SetEscapeHTML(false)
	err := enc.Encode(struct {
		Events []toolResult `json:"events"`
	}{[]toolResult{r}})
	if err != nil {
		// Only content parts that are no JSON can do this; the agent must hear something.
		call.Outcome = refusedOutcome(call, http.StatusBadRequest)
		return resultBody(call)
	}
	return body.Bytes()
}
