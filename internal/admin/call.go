package admin

import (
	"bytes"
	"encoding/json"
	"time"
	"unicode/utf8"

	"functionbridge/internal/journal"
)

// callView is a call as operators see it. What is not known yet is null.
type callView struct {
	SessionID      string          `json:"session_id"`
	TurnID         string          `json:"turn_id"`
	CallID         string          `json:"call_id"`
	Function       string          `json:"function"`
	Arguments      json.RawMessage `json:"arguments"`
	State          journal.State   `json:"state"`
	Success        *bool           `json:"success"`
	Output         json.RawMessage `json:"output"`
	Error          *string         `json:"error"`
	Failure        *string         `json:"failure"`
	LateOutcome    *outcomeView    `json:"late_outcome"`
	IdempotencyKey string          `json:"idempotency_key"`
	Attempts       []attemptView   `json:"attempts"`
	Erased         bool            `json:"erased"`
	CreatedAt      *time.Time      `json:"created_at"`
	SentAt         *time.Time      `json:"sent_at"`
	AnsweredAt     *time.Time      `json:"answered_at"`
	SubmittedAt    *time.Time      `json:"submitted_at"`
	ConfirmedAt    *time.Time      `json:"confirmed_at"`
}

// outcomeView is what the agent was or would have been told.
type outcomeView struct {
	Success bool            `json:"success"`
	Output  json.RawMessage `json:"output"`
	Error   *string         `json:"error"`
	Failure *string         `json:"failure"`
}

// attemptView is one request; its duration is in milliseconds, with fractions.
type attemptView struct {
	StartedAt  *time.Time `json:"started_at"`
	DurationMS float64    `json:"duration_ms"`
	Status     *int       `json:"status"`
	Error      *string    `json:"error"`
	Recover    bool       `json:"recover"`
}

func viewCall(c journal.Call) callView {
	view := callView{
		SessionID: c.SessionID, TurnID: c.TurnID, CallID: c.CallID, Function: c.Function,
		Arguments: viewArguments(c.Arguments), State: c.State,
		IdempotencyKey: c.CallKey(), Attempts: viewAttempts(c.Attempts), Erased: c.Erased,
		CreatedAt: moment(c.CreatedAt), SentAt: moment(c.SentAt), AnsweredAt: moment(c.AnsweredAt),
		SubmittedAt: moment(c.SubmittedAt), ConfirmedAt: moment(c.ConfirmedAt),
	}
	if known(c.Outcome) {
		o := viewOutcome(c.Outcome)
		view.Success, view.Output, view.Error, view.Failure = &o.Success, o.Output, o.Error, o.Failure
	}
	if c.LateOutcome != nil {
		o := viewOutcome(*c.LateOutcome)
		view.LateOutcome = &o
	}
	return view
}

// known reports whether there is an outcome: a failure has a kind, and the zero
// value is neither.
func known(o journal.Outcome) bool { return o.Success || o.Failure != "" }

func viewOutcome(o journal.Outcome) outcomeView {
	view := outcomeView{Success: o.Success, Error: text(o.Error), Failure: text(o.Failure)}
	switch {
	case o.Success && o.Content:
		view.Output = jsonOrString([]byte(o.Output))
	case o.Success:
		view.Output = quoted(o.Output)
	}
	return view
}

func viewAttempts(attempts []journal.Attempt) []attemptView {
	views := make([]attemptView, 0, len(attempts))
	for _, a := range attempts {
		view := attemptView{
			StartedAt: moment(a.StartedAt), DurationMS: float64(a.Duration.Microseconds()) / 1000, Error: text(a.Error),
			Recover: a.Recover,
		}
		if a.Status != 0 {
			view.Status = &a.Status
		}
		views = append(views, view)
	}
	return views
}

// viewArguments shows arguments as the function got them. The API may send them
// as a string that holds JSON, and leave them out; both mean what stands in it,
// and the empty object.
func viewArguments(raw []byte) json.RawMessage {
	var inner string
	if json.Unmarshal(raw, &inner) == nil && !bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		raw = []byte(inner)
	}
	if trimmed := bytes.TrimSpace(raw); len(trimmed) == 0 || string(trimmed) == "null" {
		return json.RawMessage("{}")
	}
	return jsonOrString(raw)
}

// jsonOrString passes JSON on as it is, and everything else as a JSON string.
func jsonOrString(raw []byte) json.RawMessage {
	if utf8.Valid(raw) && json.Valid(raw) {
		return raw
	}
	return quoted(string(raw))
}

func quoted(s string) json.RawMessage {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		return json.RawMessage(`""`) // cannot be: a string always encodes
	}
	return out.Bytes()
}
