package agentsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// inputEvent is one event of a POST, of any type.
type inputEvent struct {
	Type      string          `json:"type"`
	TurnID    *string         `json:"turn_id"`
	CallID    *string         `json:"call_id"`
	Success   *bool           `json:"success"`
	Output    json.RawMessage `json:"output"`
	Error     *string         `json:"error"`
	Input     json.RawMessage `json:"input"`
	RequestID string          `json:"request_id"`
	Response  json.RawMessage `json:"response"`

	call    *call // found while checking
	plan    turnPlan
	dropped bool // late, accepted without effect
}

const (
	inputMessage  = "agent.session.input.message"
	inputCancel   = "agent.session.input.cancel"
	inputResult   = "agent.session.input.tool_result"
	inputApproval = "agent.session.input.computer_use_approval_request_result"
)

// servePost takes input events: all of a request or none.
func (s *Sim) servePost(w http.ResponseWriter, r *http.Request, ss *session, fault *Fault) {
	body, apiErr := s.readBody(r)
	if apiErr != nil {
		writeError(w, apiErr)
		return
	}
	events, apiErr := decodeEvents(body)
	if apiErr != nil {
		writeError(w, apiErr)
		return
	}
	in := input{
		sim: s, ss: ss, events: events, at: time.Now(), fault: fault,
		key: r.Header.Get("Idempotency-Key"), body: maphash.Bytes(s.seed, body),
	}
	ss.lock()
	apiErr = in.accept()
	ss.unlock()
	if apiErr != nil {
		writeError(w, apiErr)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (s *Sim) readBody(r *http.Request) ([]byte, *apiError) {
	body, err := io.ReadAll(io.LimitReader(r.Body, s.opts.MaxBody+1))
	if err != nil {
		return nil, badRequest("The request body could not be read.")
	}
	if int64(len(body)) > s.opts.MaxBody {
		return nil, &apiError{status: http.StatusRequestEntityTooLarge, code: "request_too_large", message: "The request body is too large."}
	}
	return body, nil
}

func decodeEvents(body []byte) ([]inputEvent, *apiError) {
	var request struct {
		Events []inputEvent `json:"events"`
	}
	if err := decodeStrict(body, &request); err != nil {
		return nil, badRequest(err.Error())
	}
	if len(request.Events) == 0 {
		return nil, badRequest("Missing required parameter: 'events'.")
	}
	for i := range request.Events {
		if err := request.Events[i].checkShape(); err != nil {
			return nil, badRequest(fmt.Sprintf("events[%d]: %v", i, err))
		}
	}
	return request.Events, nil
}

// decodeStrict refuses unknown fields and text after the value.
func decodeStrict(body []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("invalid body: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("invalid body: more than one JSON value")
	}
	return nil
}

// checkShape looks at what can be judged without the session.
func (e *inputEvent) checkShape() error {
	switch e.Type {
	case inputMessage:
		return e.parseMessage()
	case inputCancel:
		return nil
	case inputApproval:
		if e.RequestID == "" || len(e.Response) == 0 {
			return errors.New("'request_id' and 'response' are required")
		}
		return nil
	case inputResult:
		if e.TurnID == nil || e.CallID == nil || e.Success == nil {
			return errors.New("'turn_id', 'call_id' and 'success' are required")
		}
		return checkOutput(e.Output)
	}
	return fmt.Errorf("unknown type %q", e.Type)
}

// checkOutput holds the schema of an output: a string, a list of input_text and input_image parts, or null.
func checkOutput(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" || raw[0] == '"' {
		return nil
	}
	if raw[0] != '[' {
		return errors.New("invalid type for 'output': expected a string or an array of content parts")
	}
	_, err := contentText(raw)
	return err
}

// contentText checks a list of content parts and joins their texts with newlines.
func contentText(raw json.RawMessage) (string, error) {
	var parts []struct {
		Type     string  `json:"type"`
		Text     *string `json:"text"`
		ImageURL *string `json:"image_url"`
		Detail   *string `json:"detail"`
	}
	if err := decodeStrict(raw, &parts); err != nil {
		return "", err
	}
	var texts []string
	for i, part := range parts {
		switch {
		case part.Type == "input_text" && part.Text != nil:
			texts = append(texts, *part.Text)
		case part.Type == "input_image" && part.ImageURL != nil:
		default:
			return "", fmt.Errorf("content[%d]: expected an input_text or an input_image part", i)
		}
	}
	return strings.Join(texts, "\n"), nil
}

// parseMessage reads the user's words into the plan of a turn.
func (e *inputEvent) parseMessage() error {
	var messages []struct {
		Type    string          `json:"type"`
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := decodeStrict(e.Input, &messages); err != nil {
		return err
	}
	if len(messages) == 0 {
		return errors.New("'input' holds no message")
	}
	texts := make([]string, 0, len(messages))
	for _, m := range messages {
		text, err := contentText(m.Content)
		if err != nil {
			return err
		}
		texts = append(texts, text)
	}
	return e.plan.parse(strings.Join(texts, "\n"))
}

func (p *turnPlan) parse(text string) (err error) {
	p.message = text
	p.steps, p.say, err = ParseMessage(text)
	return err
}

// input is one POST of events on its way through the session, whose lock is held.
type input struct {
	sim    *Sim
	ss     *session
	events []inputEvent
	key    string
	body   uint64
	at     time.Time
	fault  *Fault
}

func (in *input) accept() *apiError {
	if in.ss.deleted {
		return notFound(in.ss.id)
	}
	if before, used := in.ss.keys[in.key]; used && in.key != "" {
		return in.repeat(before)
	}
	for i := range in.events {
		if apiErr := in.check(&in.events[i]); apiErr != nil {
			in.note(apiErr.status, false)
			return apiErr
		}
	}
	if in.fault != nil && in.fault.Kind == FaultForget {
		if in.fault.KeepKey {
			in.keep()
		}
		in.note(http.StatusAccepted, false)
		return nil
	}
	in.keep()
	for i := range in.events {
		in.apply(&in.events[i])
	}
	return nil
}

// repeat answers a key that was used before: the first answer for the same body, 409 for another one.
func (in *input) repeat(before posted) *apiError {
	for i := range in.events {
		in.events[i].find(in.ss)
	}
	if before.body != in.body {
		in.note(http.StatusConflict, false)
		return conflict("idempotency_conflict", "The Idempotency-Key was used with another body.")
	}
	in.note(before.status, true)
	return nil
}

// keep remembers the key of an accepted request. An error is not kept: a repeat under its key is judged anew.
func (in *input) keep() {
	if in.key == "" {
		return
	}
	in.ss.keys[in.key] = posted{body: in.body, status: http.StatusAccepted}
	for i := range in.events {
		if c := in.events[i].call; c != nil {
			c.turn.keys = append(c.turn.keys, in.key)
		}
	}
}

func (e *inputEvent) find(ss *session) {
	if e.CallID != nil {
		e.call = ss.calls[*e.CallID]
	}
}

// check judges one event against the state of the session.
func (in *input) check(e *inputEvent) *apiError {
	e.find(in.ss)
	switch {
	case in.ss.status == statusFailed:
		return conflict("conflict_error", "The session has failed and cannot accept input.")
	case e.Type == inputResult:
		return in.checkResult(e)
	case e.Type == inputApproval && !slices.ContainsFunc(in.ss.required, func(r *entry) bool { return r.call == nil && r.requestID() == e.RequestID }):
		return badRequest("Unknown pending approval request: " + e.RequestID)
	}
	return nil
}

func (in *input) checkResult(e *inputEvent) *apiError {
	c := e.call
	unknown := badRequest("Unknown pending tool call: " + *e.CallID)
	switch {
	case c == nil, c.turn.id != *e.TurnID, !c.registered && !c.over:
		return unknown
	case !c.over:
		return nil
	}
	switch in.sim.opts.LateStatus {
	case http.StatusConflict:
		return conflict("conflict_error", "The session cannot accept this input in its current state.")
	case http.StatusAccepted:
		e.dropped = true
		return nil
	}
	return unknown
}

// note writes the post down with every call that it names.
func (in *input) note(status int, replayed bool) {
	for i := range in.events {
		if c := in.events[i].call; c != nil && in.events[i].Type == inputResult {
			c.posts = append(c.posts, Post{At: in.at, Key: in.key, BodyHash: in.body, Status: status, Replayed: replayed})
		}
	}
}

func (in *input) apply(e *inputEvent) {
	ss := in.ss
	switch e.Type {
	case inputMessage:
		ss.startTurn(ss.sim.nextPlan(ss, e.plan))
	case inputCancel:
		ss.cancel()
	case inputApproval:
		ss.settleRequest(e.RequestID)
	case inputResult:
		c := e.call
		c.posts = append(c.posts, Post{At: in.at, Key: in.key, BodyHash: in.body, Status: http.StatusAccepted})
		if e.dropped || c.over {
			return
		}
		ss.answer(c, in.result(e))
	}
}

func (in *input) result(e *inputEvent) *Result {
	r := &Result{
		SessionID: in.ss.id, TurnID: *e.TurnID, CallID: *e.CallID, Name: e.call.name,
		Success: *e.Success, Output: e.Output, Key: in.key, At: in.at,
	}
	if e.Error != nil {
		r.Error = *e.Error
	}
	return r
}
