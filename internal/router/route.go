// Package router maps a function name to a route: the HTTP request that runs
// the function, and how its reply is read. It parses and validates route
// tables and builds requests from arguments; it sends nothing, remembers nothing
// but the secret and certificate files that a table names, which it reads again
// when they changed, and imports nothing else of the bridge but what runs its jq
// programs.
package router

import (
	"encoding/json"
	"time"
)

// Route is one line of the table, complete: defaults and upstream applied.
// It is read-only after loading.
type Route struct {
	Name        string
	Description string
	// Parameters is the JSON Schema of the arguments as it stands in the file
	// (key order and number text kept), nil when there is none.
	Parameters json.RawMessage
	// Upstream is the name of the upstream, empty for a route with its own url, and
	// Service what all its routes share, then nil.
	Upstream string
	Service  *Service
	Method   string
	// Idempotent says that a request which may have been processed may be sent
	// again under the same Idempotency-Key.
	Idempotent bool

	// Timeout bounds the whole call, attempts and waiting included;
	// AttemptTimeout bounds one attempt, its body included.
	Timeout        time.Duration
	AttemptTimeout time.Duration
	Retry          Retry
	Result         Result
	// Limits are the route's own; those of Service hold besides.
	Limits Limits

	// Recover asks the service what became of a request whose reply was lost;
	// nil when it cannot be asked. See BuildRecover.
	Recover *Recover
	// HoldUnknown keeps a call of unknown outcome in doubt, for an operator to
	// resolve, instead of telling the agent (on_unknown_outcome: hold).
	HoldUnknown bool
	// Async: the agent goes on without the result, which is wanted also when its
	// turn has ended.
	Async bool
	// DeferLoading: the agent finds the tool by searching, and not in its context.
	DeferLoading bool

	request blueprint
	schema  *schema
}

// Retry says how often and how patiently a request is repeated.
type Retry struct {
	// Attempts counts the first one.
	Attempts         int
	MinWait, MaxWait time.Duration
	// On503 false makes a 503 final, with or without Retry-After.
	On503 bool
}

// Recover is a route's question about an earlier request.
type Recover struct {
	// Method is GET or HEAD.
	Method string

	request blueprint
}

// Result says how a reply becomes what the agent is told.
type Result struct {
	// MaxBytes bounds the decoded reply; MaxImageBytes does for images.
	MaxBytes, MaxImageBytes int64
	// Truncate cuts a text that is too long instead of failing the call.
	Truncate bool
	Expose   Expose
	// Content takes a reply that is itself a list of input_text and
	// input_image parts as the content array ("as: content").
	Content bool
	// HTML takes an HTML reply as text.
	HTML bool

	// SuccessWhen says of a 2xx reply whether the call succeeded, Output makes the
	// text for the agent of it. Error makes the text of a failure of any other reply,
	// and of one that SuccessWhen refuses. They see the JSON of the reply, the first
	// two null for an empty one; each is nil for none.
	SuccessWhen, Output, Error *Program
}

// Expose says how much of a failure's reply the agent is told.
type Expose string

// The values of result.expose. Unset means: the detail of a 4xx, of a 5xx the
// status only.
const (
	ExposeUnset  Expose = ""
	ExposeDetail Expose = "detail"
	ExposeStatus Expose = "status"
	ExposeNone   Expose = "none"
)

// Values are the bridge's own words for templates; no argument can supply or
// shadow them. They carry what `call.` and `session.` names stand for.
type Values struct {
	CallID, FunctionName, SessionID, TurnID, IdempotencyKey string

	AgentID  string
	Metadata map[string]string
}

// Request is a rendered request as it may be journaled and shown: whatever came
// from ${VAR} still stands there as ${VAR}, and no credential is in it. A
// literal dollar sign stands as $$. Table.Wire puts the values in.
type Request struct {
	// Route is the name of the route that built it.
	Route  string `json:"route"`
	Method string `json:"method"`
	// URL is the URL up to the query; Query holds the query's pairs, encoded but
	// for the marks, in the order in which they are sent.
	URL     string   `json:"url"`
	Query   []string `json:"query,omitempty"`
	Headers []Header `json:"headers,omitempty"`
	// Body is what is sent, nil for no body. BodyIsArguments says that it is the
	// arguments object itself, which the journal keeps already: then Body is
	// left out of the JSON.
	Body            []byte `json:"body,omitempty"`
	BodyIsArguments bool   `json:"body_is_arguments,omitempty"`
}

// Header is one request header.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ArgumentError says which argument cannot be used and why, in a sentence for
// the model; nothing was sent.
type ArgumentError struct{ Sentence string }

func (e *ArgumentError) Error() string { return e.Sentence }

// ValueError says that a value of the bridge's own (session metadata, say) is
// missing or cannot be used; it is the operator's fault, not the model's.
type ValueError struct {
	Name string
	// Reason says why a value that is there cannot be used; empty for a missing
	// one.
	Reason string
}

func (e *ValueError) Error() string {
	if e.Reason != "" {
		return "the value " + e.Name + " " + e.Reason
	}
	return "the value " + e.Name + " is missing"
}
