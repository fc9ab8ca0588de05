package admin

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"functionbridge/internal/journal"
	"functionbridge/internal/session"
)

// maxResolveBody bounds the body of a resolution: an output may be long.
const maxResolveBody = 8 << 20

// Resolver gives calls in doubt their outcome.
type Resolver interface {
	// Resolve fails with session.ErrNotInDoubt when there is nothing to resolve.
	Resolve(ctx context.Context, key journal.Key, outcome journal.Outcome) (journal.Call, error)
}

// Resolve gives a call in doubt the outcome that the body tells, and answers
// with the call.
func (c *Calls) Resolve(w http.ResponseWriter, r *http.Request) {
	body, ok := readMembers(w, r, maxResolveBody, "success", "output", "error")
	if !ok {
		return
	}
	outcome, err := readResolution(body)
	if err != nil {
		problem(w, http.StatusBadRequest, sentence(err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), journalTimeout)
	defer cancel()
	key := callKey(r)
	call, err := c.Resolver.Resolve(ctx, key, outcome)
	switch {
	case errors.Is(err, session.ErrNotInDoubt):
		c.notInDoubt(ctx, w, key)
	case err != nil:
		journalProblem(w, c.Logger, "resolve a call", err)
	default:
		answer(w, c.Logger, http.StatusOK, viewCall(call))
	}
}

// notInDoubt tells a call that is in another state from one that there is not.
func (c *Calls) notInDoubt(ctx context.Context, w http.ResponseWriter, key journal.Key) {
	call, err := c.Journal.Call(ctx, key)
	switch {
	case errors.Is(err, journal.ErrNotFound):
		problem(w, http.StatusNotFound, noCall)
	case err != nil:
		journalProblem(w, c.Logger, "read a call", err)
	default:
		problem(w, http.StatusConflict, "The call is "+string(call.State)+", and only one that is in_doubt can be resolved.")
	}
}

// readResolution reads what an operator found out: a success with its output, or
// a failure with what the agent is to be told.
func readResolution(body members) (journal.Outcome, error) {
	var success *bool
	var output, failure *string
	if err := errors.Join(
		body.decode("success", &success, "true or false"),
		body.decode("output", &output, "a string"),
		body.decode("error", &failure, "a string"),
	); err != nil {
		return journal.Outcome{}, err
	}
	switch {
	case success == nil:
		return journal.Outcome{}, errors.New(`success is missing: send {"success": true, "output": "…"} or {"success": false, "error": "…"}`)
	case *success && failure != nil:
		return journal.Outcome{}, errors.New("a success has an output and no error")
	case *success && output == nil:
		return journal.Outcome{}, errors.New(`a success needs its output, which may be ""`)
	case *success:
		return journal.Success(*output), nil
	case output != nil:
		return journal.Outcome{}, errors.New("a failure has an error and no output")
	case failure == nil || strings.TrimSpace(*failure) == "":
		return journal.Outcome{}, errors.New("a failure needs an error: what the agent is to be told")
	}
	return journal.Failure(journal.Rejected, *failure), nil
}

// noCall is the answer about a call that the journal does not know.
const noCall = "There is no such call in the journal."
