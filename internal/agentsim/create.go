package agentsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/tidwall/gjson"
)

// createRequest is what of a session's creation matters here; other fields are taken without effect.
type createRequest struct {
	AgentID     string            `json:"agent_id"`
	Metadata    map[string]string `json:"metadata"`
	Stream      bool              `json:"stream"`
	Environment json.RawMessage   `json:"environment"`
	Input       json.RawMessage   `json:"input"`
	Agent       struct {
		Model string          `json:"model"`
		Tools json.RawMessage `json:"tools"`
	} `json:"agent"`
}

// serveCreate answers POST /agents/sessions: 201 with the session, or its event stream.
func (s *Sim) serveCreate(w http.ResponseWriter, r *http.Request) {
	body, apiErr := s.readBody(r)
	if apiErr != nil {
		writeError(w, apiErr)
		return
	}
	var request createRequest
	if err := json.Unmarshal(body, &request); err != nil {
		writeError(w, badRequest("invalid body: "+err.Error()))
		return
	}
	plan, tools, err := request.read()
	if err != nil {
		writeError(w, badRequest(err.Error()))
		return
	}
	ss, err := s.addSession(SessionSpec{AgentID: request.AgentID, Metadata: request.Metadata}, tools)
	if err != nil {
		writeError(w, badRequest(err.Error()))
		return
	}
	if request.Stream {
		s.serveCreation(w, r, ss, plan)
		return
	}
	ss.lock()
	if plan != nil {
		ss.startTurn(s.nextPlan(ss, *plan))
	}
	b := ss.snapshot(nil)
	ss.unlock()
	writeJSON(w, http.StatusCreated, b)
}

// read checks the request; plan is nil without input.
func (c *createRequest) read() (plan *turnPlan, tools []toolDef, err error) {
	environment := gjson.GetBytes(c.Environment, "type").String()
	switch {
	case environment == "":
		return nil, nil, errors.New("missing required parameter: 'environment'")
	case c.AgentID == "" && c.Agent.Model == "":
		return nil, nil, errors.New("missing required parameter: 'agent_id' or 'agent.model'")
	case len(c.Input) == 0 && (environment == "none" || (c.Stream && environment != "self_hosted")):
		return nil, nil, errors.New("missing required parameter: 'input'")
	}
	if tools, err = parseTools(c.Agent.Tools); err != nil {
		return nil, nil, err
	}
	if len(c.Input) == 0 {
		return nil, tools, nil
	}
	plan, err = readInput(c.Input)
	return plan, tools, err
}

// readInput takes a string or a list of messages.
func readInput(raw json.RawMessage) (*turnPlan, error) {
	if raw[0] != '"' {
		e := inputEvent{Input: raw}
		err := e.parseMessage()
		return &e.plan, err
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	plan := &turnPlan{}
	return plan, plan.parse(text)
}

// serveCreation streams the new session until its first turn is over.
func (s *Sim) serveCreation(w http.ResponseWriter, r *http.Request, ss *session, plan *turnPlan) {
	st := s.newStream(r)
	st.untilIdle = plan != nil
	ss.lock()
	ss.streams = append(ss.streams, st)
	ss.sendSnapshot("agent.session.created", ss.snapshot(nil))
	if plan != nil {
		ss.startTurn(s.nextPlan(ss, *plan))
	}
	ss.unlock()
	defer ss.detach(st)
	s.runStream(w, r, st)
}
