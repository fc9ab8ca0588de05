// Package journal holds the nouns of the bridge's memory: a call, its key, its
// states and its outcome. It knows neither where calls come from nor where they
// go; the stores that keep them are in its sub-packages, and each consumer
// declares the few methods of a store that it uses.
package journal

import (
	"context"
	"errors"
	"time"
)

// ErrStale means that a write was refused because the row belongs to another
// owner by now, carries a higher fence or a later revision, or has moved past the
// state that the write came from.
var ErrStale = errors.New("the call belongs to another owner or has moved on")

// ErrNotFound means that the journal has no such row.
var ErrNotFound = errors.New("not in the journal")

// Call is one function call of an agent, as the journal keeps it: one row for
// each (session, turn, call). A zero time means "not yet".
type Call struct {
	Key

	Function string
	// Arguments is the JSON value of the action's "arguments" member, byte for
	// byte as the API sent it (an object, or a string that holds one); empty
	// when the member was absent.
	Arguments []byte

	State State
	// Owner is the process that may move the call.
	Owner string
	// Fence is the fencing token: a store raises it when a process takes the call
	// of another over, and refuses an image that carries an older one. An abandoned
	// call has nobody to be taken from.
	Fence int64
	// Rev is raised with every change of the call, so that of two images that
	// are saved at once the newer one stays, whichever comes last.
	Rev int64
	// Idempotent is what the route said when the call was claimed: whether a
	// request that may have been processed can be sent again under its key.
	Idempotent bool
	// Request is the first attempt's request in the router's own JSON, without
	// any secret; empty until something was about to be sent.
	Request []byte
	// SentAt is when a request last left that may have been processed; zero when
	// there is none.
	SentAt time.Time
	// Reran says that the service was asked about a lost request, did not know
	// it, and that the call was allowed to be sent once more for that.
	Reran bool
	// Crashes counts the unclean ends of the process at which this call was the
	// only one running: it may be what brings the process down.
	Crashes int

	// Outcome is what the agent is told; its zero value until State is answered.
	Outcome Outcome
	// LateOutcome is the real outcome that became known after another one had
	// been submitted, or after the call was abandoned.
	LateOutcome *Outcome
	Attempts    []Attempt
	// Erased says that Arguments, Request and the texts of the outcomes were taken
	// off on purpose, so that their being empty says nothing.
	Erased bool

	// Submissions counts the posts of the present result that the API accepted, or
	// answered with a conflict: more than one means that it keeps forgetting it.
	// The submission key changes with them; see SubmissionKey.
	Submissions int
	// RetryAt is when the API wants to see the result again, as its Retry-After
	// said; zero for "any time".
	RetryAt time.Time

	CreatedAt   time.Time
	AnsweredAt  time.Time
	SubmittedAt time.Time
	ConfirmedAt time.Time
}

// Attempt is one request that left, or tried to leave, for the upstream.
type Attempt struct {
	StartedAt time.Time
	Duration  time.Duration
	// Status is the HTTP status of the reply, 0 when there was none.
	Status int
	// Error says in the bridge's own words why there was no usable reply; it
	// holds no URL, address or secret.
	Error string
	// Recover marks a question to the service about an earlier attempt.
	Recover bool
}

// Outcome is what became of a call: the result that the agent gets.
type Outcome struct {
	Success bool
	// Output is the text of a success, or, with Content, a JSON array of
	// input_text and input_image parts.
	Output  string
	Content bool
	// Error is the sentence for the model, and Failure its kind; both are set
	// exactly when Success is false.
	Error   string
	Failure Kind
	// Hold asks to keep a call of unknown outcome in doubt, for an operator to
	// resolve, instead of telling the agent. It is not kept.
	Hold bool
}

// Kind says why a call failed; the journal, the metrics and the admin API
// carry the same word.
type Kind string

// The kinds of failure.
const (
	InvalidArguments Kind = "invalid_arguments"
	NotFound         Kind = "not_found"
	Denied           Kind = "denied"
	Conflict         Kind = "conflict"
	RateLimited      Kind = "rate_limited"
	Rejected         Kind = "rejected"
	Unavailable      Kind = "unavailable"
	UpstreamError    Kind = "upstream_error"
	Timeout          Kind = "timeout"
	BadReply         Kind = "bad_reply"
	TooLarge         Kind = "too_large"
	UnknownFunction  Kind = "unknown_function"
	UnknownOutcome   Kind = "unknown_outcome"
	Internal         Kind = "internal"
)

// Kinds lists every kind, so that metrics can create their series up front.
func Kinds() []Kind {
	return []Kind{
		InvalidArguments, NotFound, Denied, Conflict, RateLimited, Rejected, Unavailable,
		UpstreamError, Timeout, BadReply, TooLarge, UnknownFunction, UnknownOutcome, Internal,
	}
}

// Success returns the outcome of a call whose service answered with text.
func Success(text string) Outcome { return Outcome{Success: true, Output: text} }

// Failure returns the outcome of a call that failed: its kind, and the one or
// two plain sentences that the model is told.
func Failure(kind Kind, sentence string) Outcome {
	return Outcome{Failure: kind, Error: sentence}
}

// Label is the outcome's value in metrics: "success" or the kind of failure.
func (o Outcome) Label() string {
	if o.Success {
		return "success"
	}
	return string(o.Failure)
}

// Session is what a call may use of its session: the bridge's own words in
// templates, never a value that the model supplied.
type Session struct {
	ID       string
	AgentID  string
	Metadata map[string]string
}

// Plan is how a call is to be handled, known from its function before it is
// journaled.
type Plan struct {
	// Ignore leaves the call, unjournaled, to somebody else.
	Ignore bool
	// Idempotent: see Call.Idempotent.
	Idempotent bool
	// Async: the agent goes on without the result, which is wanted also when the
	// turn has ended.
	Async bool
}

// Recorder writes down what happens to one call while its function is run.
type Recorder interface {
	// Sending is called before each attempt, when nothing holds the request back
	// any more. It returns nil once the request may leave: the call is running,
	// on disk where it is not idempotent. request is what Call.Request keeps,
	// nil when that is set already. After an error nothing may be sent.
	Sending(ctx context.Context, request []byte) error
	// Sent adds a finished attempt. unprocessed says that the request was
	// certainly not processed, which makes the call pending again.
	Sent(attempt Attempt, unprocessed bool)
	// NeverRan is called when the service, asked about a request whose reply was
	// lost, said that it does not know it: the call is pending again, and Reran.
	NeverRan()
}

// Follow is one row of the sessions that were asked for by hand.
type Follow struct {
	SessionID string
	// Followed is false for a session that was told to be left alone, also
	// against discovery.
	Followed  bool
	UpdatedAt time.Time
}

// Filter selects calls for a listing, newest first. Empty fields select all.
type Filter struct {
	SessionID string
	Function  string
	State     State
	// Limit is the most rows returned; a store caps it at 1000 and takes 0 as 100.
	Limit int
	// After is the cursor that the page before returned as next.
	After string
}
