package forward

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"

	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// Trial is a call that an operator makes by hand.
type Trial struct {
	Function string
	// Arguments is the JSON value of the arguments, as in journal.Call.
	Arguments []byte
	// Session may set an agent and metadata. Ids that are empty here, in it and
	// below are made at random.
	Session        journal.Session
	TurnID, CallID string
	// IdempotencyKey is sent instead of the call's own key when it is set.
	IdempotencyKey string
	// DryRun builds the request and sends nothing.
	DryRun bool
}

// Tried is what became of a Trial.
type Tried struct {
	// Request is the request as it may be shown, nil when none could be made.
	Request *Shown
	// Outcome is what the agent would be told; a dry run has one only when no
	// request could be made.
	Outcome  *journal.Outcome
	Attempts []journal.Attempt
	// Stopped is the cause of the end of ctx when that came before an outcome.
	Stopped error
}

// Shown is a request without secrets: whatever comes from ${VAR} stands as
// ${VAR}, and no credential is in it.
type Shown struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	// Body is JSON as it is sent, a JSON string where it is not JSON, and null
	// without a body.
	Body json.RawMessage `json:"body"`
}

// Try runs a call as Forward does, from the arguments to the outcome, and
// journals nothing.
func (f *Forwarder) Try(ctx context.Context, t Trial) Tried {
	call, session := t.call()
	notes := &notebook{}
	if route, ok := f.table().Lookup(t.Function); ok {
		call.Idempotent = route.Idempotent
	}
	d := &delivery{f: f, call: call, session: session, rec: notes, key: t.IdempotencyKey, dryRun: t.DryRun}
	if d.key == "" {
		d.key = call.CallKey()
	}
	outcome, err := d.run(ctx)
	tried := Tried{Request: d.shown(), Attempts: notes.attempts, Stopped: err}
	if err == nil && (!t.DryRun || tried.Request == nil) {
		tried.Outcome = &outcome
	}
	return tried
}

func (t Trial) call() (journal.Call, journal.Session) {
	session := t.Session
	for _, id := range []*string{&session.ID, &t.TurnID, &t.CallID} {
		if *id == "" {
			*id = "try_" + strings.ToLower(rand.Text())
		}
	}
	return journal.Call{
		Key:       journal.Key{SessionID: session.ID, TurnID: t.TurnID, CallID: t.CallID},
		Function:  t.Function,
		Arguments: t.Arguments,
		State:     journal.Pending,
	}, session
}

// notebook is the journal.Recorder of a Trial.
type notebook struct{ attempts []journal.Attempt }

func (*notebook) Sending(context.Context, []byte) error { return nil }

func (*notebook) NeverRan() {}

func (n *notebook) Sent(a journal.Attempt, _ bool) { n.attempts = append(n.attempts, a) }

// shown is the request of the delivery, nil when there is none.
func (d *delivery) shown() *Shown {
	if d.rendered == nil {
		return nil
	}
	r := d.rendered.Shown()
	s := &Shown{Method: r.Method, URL: r.URL, Headers: make(map[string]string)}
	if len(r.Query) > 0 {
		s.URL += "?" + strings.Join(r.Query, "&")
	}
	body := r.Body
	if body == nil {
		body = d.message.body
	}
	for _, h := range callHeaders(bridgeHeaders(nil, d.f.agent, body != nil), d.key, &d.call) {
		s.Headers[h.Name] = h.Value
	}
	for _, h := range d.shownAuth() {
		s.set(h)
	}
	for _, h := range r.Headers {
		s.set(h)
	}
	s.Body = shownBody(body)
	return s
}

// set puts a route's header in the place of the bridge's.
func (s *Shown) set(h router.Header) {
	for name := range s.Headers {
		if strings.EqualFold(name, h.Name) {
			delete(s.Headers, name)
		}
	}
	s.Headers[h.Name] = h.Value
}

func shownBody(body []byte) json.RawMessage {
	switch {
	case body == nil:
		return json.RawMessage("null")
	case json.Valid(body):
		return body
	}
	quoted, err := json.Marshal(string(body))
	if err != nil {
		return json.RawMessage("null")
	}
	return quoted
}
