package agentsim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Result is a tool result that took effect, once for each call.
type Result struct {
	SessionID string          `json:"session_id"`
	TurnID    string          `json:"turn_id"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Success   bool            `json:"success"`
	Output    json.RawMessage `json:"output,omitempty"` // as posted, byte for byte; nil when there was none
	Error     string          `json:"error,omitempty"`
	Key       string          `json:"idempotency_key,omitempty"`
	At        time.Time       `json:"received_at"`
	Posts     []Post          `json:"posts"` // every post that named the call, in order, refused and repeated ones too
}

// Post is one request that carried a result for a call.
type Post struct {
	At       time.Time `json:"at"`
	Key      string    `json:"idempotency_key,omitempty"`
	BodyHash uint64    `json:"body_hash"` // the same for the same bytes, within one Sim
	Status   int       `json:"status"`    // as answered, also when the answer was lost on the way
	Replayed bool      `json:"replayed,omitempty"`
}

// Text is the output when it is a string; false when it is a list of content parts or missing.
func (r Result) Text() (string, bool) {
	var text string
	if len(r.Output) == 0 || r.Output[0] != '"' || json.Unmarshal(r.Output, &text) != nil {
		return "", false
	}
	return text, true
}

// Results lists the results that the session took, in the order in which they came; of all sessions for "".
func (s *Sim) Results(sessionID string) []Result {
	var list []Result
	for _, ss := range s.snapshotSessions() {
		if sessionID != "" && ss.id != sessionID {
			continue
		}
		ss.mu.Lock()
		for _, t := range ss.turns {
			for _, c := range t.calls {
				if c.result != nil {
					r := *c.result
					r.Posts = slices.Clone(c.posts)
					list = append(list, r)
				}
			}
		}
		ss.mu.Unlock()
	}
	slices.SortStableFunc(list, func(a, b Result) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.CallID, b.CallID)) })
	return list
}

// Posts lists every post that named the call, also one that the session never took.
func (s *Sim) Posts(sessionID, callID string) []Post {
	ss := s.find(sessionID)
	if ss == nil {
		return nil
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if c := ss.calls[callID]; c != nil {
		return slices.Clone(c.posts)
	}
	return nil
}

// Pending lists the ids of the calls that wait for a result in the session, in order.
func (s *Sim) Pending(sessionID string) []string {
	ss := s.find(sessionID)
	if ss == nil {
		return nil
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	var ids []string
	for _, t := range ss.turns {
		for _, c := range t.calls {
			if c.registered && !c.over {
				ids = append(ids, c.id)
			}
		}
	}
	return ids
}

// Status is the session's status of this moment, "" for an unknown session.
func (s *Sim) Status(sessionID string) string {
	ss := s.find(sessionID)
	if ss == nil {
		return ""
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.status
}

// WaitTurn waits until the turn has ended and gives its status: completed, failed or cancelled. The error is the
// context's, or says that session or turn are unknown.
func (s *Sim) WaitTurn(ctx context.Context, sessionID, turnID string) (status string, err error) {
	ss := s.find(sessionID)
	if ss == nil {
		return "", fmt.Errorf("wait for turn: unknown session %q", sessionID)
	}
	ss.mu.Lock()
	t := ss.turn(turnID)
	ss.mu.Unlock()
	if t == nil {
		return "", fmt.Errorf("wait for turn: unknown turn %q", turnID)
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		return "", fmt.Errorf("wait for turn %s: %w", turnID, context.Cause(ctx))
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return t.status, nil
}

// WaitIdle waits until no turn of the session runs or is queued.
func (s *Sim) WaitIdle(ctx context.Context, sessionID string) error {
	ss := s.find(sessionID)
	if ss == nil {
		return fmt.Errorf("wait for idle: unknown session %q", sessionID)
	}
	if !ss.wait(ctx.Done(), func() bool { return ss.active == nil && len(ss.queue) == 0 }) {
		return fmt.Errorf("wait for idle: %w", context.Cause(ctx))
	}
	return nil
}

// WaitResults waits until the session took n results.
func (s *Sim) WaitResults(ctx context.Context, sessionID string, n int) error {
	ss := s.find(sessionID)
	if ss == nil {
		return fmt.Errorf("wait for results: unknown session %q", sessionID)
	}
	if !ss.wait(ctx.Done(), func() bool { return ss.answered >= n }) {
		return fmt.Errorf("wait for %d results: %w", n, context.Cause(ctx))
	}
	return nil
}

// WaitStreams waits until n streams of the session are open.
func (s *Sim) WaitStreams(ctx context.Context, sessionID string, n int) error {
	ss := s.find(sessionID)
	if ss == nil {
		return fmt.Errorf("wait for streams: unknown session %q", sessionID)
	}
	if !ss.wait(ctx.Done(), func() bool { return len(ss.streams) >= n }) {
		return fmt.Errorf("wait for %d streams: %w", n, context.Cause(ctx))
	}
	return nil
}

// Count is how many requests of the kind have come, refused ones too.
func (s *Sim) Count(e Endpoint) int64 { return s.calls[e].Load() }

// ResultCount is how many tool results have taken effect, in all sessions, forgotten turns too.
func (s *Sim) ResultCount() int64 { return s.results.Load() }

func (ss *session) turn(id string) *turn {
	for _, t := range slices.Backward(ss.turns) {
		if t.id == id {
			return t
		}
	}
	return nil
}
