package agentsim

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// MadeCall is a function call that an agent made, answered or not.
type MadeCall struct {
	SessionID string `json:"session_id"`
	TurnID    string `json:"turn_id"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // raw JSON, byte for byte as it was sent; "" when the key was left out
	Pending   bool   `json:"pending"`   // it waits for a result, or is about to
	// Result is nil while there is none. Its Posts are left out: they stand in Posts, which an unanswered call has too.
	Result *Result `json:"result,omitempty"`
	Posts  []Post  `json:"posts,omitempty"`
}

// Calls lists every call that the session's agent made, in order; those of all sessions for "".
func (s *Sim) Calls(sessionID string) []MadeCall {
	list := []MadeCall{}
	for _, ss := range s.snapshotSessions() {
		if sessionID != "" && ss.id != sessionID {
			continue
		}
		ss.mu.Lock()
		for _, t := range ss.turns {
			for _, c := range t.calls {
				list = append(list, c.show(ss.id))
			}
		}
		ss.mu.Unlock()
	}
	return list
}

func (c *call) show(sessionID string) MadeCall {
	return MadeCall{
		SessionID: sessionID, TurnID: c.turn.id, CallID: c.id, Name: c.name, Arguments: string(c.arguments),
		Pending: !c.over, Result: c.result, Posts: slices.Clone(c.posts),
	}
}

func (s *Sim) showCalls(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, encode(struct {
		Calls []MadeCall `json:"calls"`
	}{s.Calls(r.URL.Query().Get("session_id"))}))
}

// showSessions tells of each session how many turns it has before it, the running one included.
func (s *Sim) showSessions(w http.ResponseWriter) {
	type busy struct {
		SessionID string `json:"session_id"`
		Status    string `json:"status"`
		OpenTurns int    `json:"open_turns"`
	}
	list := []busy{}
	for _, ss := range s.snapshotSessions() {
		ss.mu.Lock()
		one := busy{SessionID: ss.id, Status: ss.status, OpenTurns: len(ss.queue)}
		if ss.active != nil {
			one.OpenTurns++
		}
		ss.mu.Unlock()
		list = append(list, one)
	}
	writeJSON(w, http.StatusOK, encode(struct {
		Sessions []busy `json:"sessions"`
	}{list}))
}

// hear takes a user message that no fault strikes; it is false for a path of another shape.
func (s *Sim) hear(w http.ResponseWriter, r *http.Request, path string) bool {
	rest, isSession := strings.CutPrefix(path, "sessions/")
	escaped, isMessage := strings.CutSuffix(rest, "/message")
	id, err := url.PathUnescape(escaped)
	if !isSession || !isMessage || err != nil || r.Method != http.MethodPost {
		return false
	}
	turnID, apiErr := s.listen(r, id)
	if apiErr != nil {
		writeError(w, apiErr)
		return true
	}
	writeJSON(w, http.StatusAccepted, encode(map[string]string{"turn_id": turnID}))
	return true
}

// listen starts the turn that the words in the body ask for.
func (s *Sim) listen(r *http.Request, id string) (turnID string, _ *apiError) {
	words, apiErr := s.readBody(r)
	if apiErr != nil {
		return "", apiErr
	}
	var plan turnPlan
	if err := plan.parse(string(words)); err != nil {
		return "", badRequest(err.Error())
	}
	ss := s.find(id)
	if ss == nil {
		return "", notFound(id)
	}
	ss.lock()
	defer ss.unlock()
	return ss.startTurn(s.nextPlan(ss, plan)).id, nil
}
