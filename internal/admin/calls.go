package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"functionbridge/internal/journal"
)

// The number of rows on a page.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// JournalReader reads calls.
type JournalReader interface {
	// Calls returns a page, newest first, and the cursor of the next one, empty
	// on the last; journal.ErrCursor when the filter's cursor is none.
	Calls(ctx context.Context, f journal.Filter) (calls []journal.Call, next string, err error)
	// Call returns one call; journal.ErrNotFound when there is none.
	Call(ctx context.Context, key journal.Key) (journal.Call, error)
}

// Calls answers about the calls in the journal.
type Calls struct {
	Journal  JournalReader
	Resolver Resolver
	Logger   *slog.Logger
}

type callPage struct {
	Calls []callView `json:"calls"`
	Next  *string    `json:"next"`
}

// List answers with a page of the calls, newest first.
func (c *Calls) List(w http.ResponseWriter, r *http.Request) {
	filter, err := readFilter(r)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), journalTimeout)
	defer cancel()
	calls, next, err := c.Journal.Calls(ctx, filter)
	switch {
	case errors.Is(err, journal.ErrCursor):
		problem(w, http.StatusBadRequest, errAfter.Error())
	case err != nil:
		journalProblem(w, c.Logger, "list calls", err)
	default:
		page := callPage{Calls: make([]callView, len(calls)), Next: text(next)}
		for i, call := range calls {
			page.Calls[i] = viewCall(call)
		}
		answer(w, c.Logger, http.StatusOK, page)
	}
}

// One answers with one call and its attempts.
func (c *Calls) One(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), journalTimeout)
	defer cancel()
	call, err := c.Journal.Call(ctx, callKey(r))
	switch {
	case errors.Is(err, journal.ErrNotFound):
		problem(w, http.StatusNotFound, noCall)
	case err != nil:
		journalProblem(w, c.Logger, "read a call", err)
	default:
		answer(w, c.Logger, http.StatusOK, viewCall(call))
	}
}

// callKey is the key that the path names.
func callKey(r *http.Request) journal.Key {
	return journal.Key{SessionID: pathValue(r, "session_id"), TurnID: pathValue(r, "turn_id"), CallID: pathValue(r, "call_id")}
}

// errAfter is a cursor that no page gave out.
var errAfter = errors.New("the parameter after must be what a page had as next")

func readFilter(r *http.Request) (journal.Filter, error) {
	q, err := readQuery(r, "session_id", "function", "state", "limit", "after")
	if err != nil {
		return journal.Filter{}, err
	}
	f := journal.Filter{
		SessionID: q.Get("session_id"), Function: q.Get("function"), State: journal.State(q.Get("state")), After: q.Get("after"),
	}
	if f.State != "" && !f.State.Known() {
		return f, fmt.Errorf("the parameter state must be one of %s", joined(journal.States()))
	}
	f.Limit, err = readLimit(q)
	return f, err
}

// readQuery refuses what would be ignored otherwise: a misspelt filter would
// look like one that selects all.
func readQuery(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errors.New("the query is not well formed")
	}
	for name, values := range q {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("the parameter %q is not known here, only %s", name, joined(known))
		}
		if len(values) > 1 {
			return nil, fmt.Errorf("the parameter %s stands twice", name)
		}
	}
	return q, nil
}

func readLimit(q url.Values) (int, error) {
	if !q.Has("limit") {
		return defaultLimit, nil
	}
	limit, err := strconv.Atoi(q.Get("limit"))
	if err != nil || limit < 1 || limit > maxLimit {
		return 0, fmt.Errorf("the parameter limit must be a whole number from 1 to %d", maxLimit)
	}
	return limit, nil
}

func joined[T ~string](words []T) string {
	plain := make([]string, len(words))
	for i, w := range words {
		plain[i] = string(w)
	}
	return strings.Join(plain, ", ")
}
