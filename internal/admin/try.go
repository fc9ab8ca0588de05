package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

// maxTryBody bounds the body of a call by hand; its arguments may be large.
const maxTryBody = 8 << 20

// answerTime is how long a caller may take to read what it waited for.
const answerTime = 30 * time.Second

// Tryer runs one call by hand, through the code path of every call, and
// journals nothing.
type Tryer interface {
	Try(ctx context.Context, t forward.Trial) forward.Tried
}

type triedAnswer struct {
	Request  *forward.Shown `json:"request"`
	Result   *resultView    `json:"result"`
	Failure  *string        `json:"failure"`
	Attempts []attemptView  `json:"attempts"`
}

// resultView is the tool_result that the agent would get.
type resultView struct {
	Success bool            `json:"success"`
	Output  json.RawMessage `json:"output"`
	Error   *string         `json:"error"`
}

// Call runs the function of a route with the body's arguments.
func (rt *Routes) Call(w http.ResponseWriter, r *http.Request) {
	name := pathValue(r, "name")
	if _, ok := rt.Table().Lookup(name); !ok {
		problem(w, http.StatusNotFound, noRoute(rt.Table().Closest(name)))
		return
	}
	body, ok := readMembers(w, r, maxTryBody, "arguments", "metadata", "dry_run")
	if !ok {
		return
	}
	trial, err := readTrial(name, body)
	if err != nil {
		problem(w, http.StatusBadRequest, sentence(err))
		return
	}
	// The route's own timeout bounds the call, not the server's.
	connection := http.NewResponseController(w)
	_ = errors.Join(connection.SetReadDeadline(time.Time{}), connection.SetWriteDeadline(time.Time{}))
	tried := rt.Tryer.Try(r.Context(), trial)
	_ = connection.SetWriteDeadline(time.Now().Add(answerTime))
	answer(w, rt.Logger, http.StatusOK, viewTried(tried))
}

func readTrial(function string, body members) (forward.Trial, error) {
	t := forward.Trial{Function: function, Arguments: body["arguments"]}
	var metadata map[string]*string
	err := errors.Join(
		body.decode("metadata", &metadata, "an object of strings"),
		body.decode("dry_run", &t.DryRun, "true or false"),
	)
	t.Session = journal.Session{Metadata: make(map[string]string, len(metadata))}
	for name, value := range metadata {
		if value == nil {
			return t, errors.New("metadata must be an object of strings")
		}
		t.Session.Metadata[name] = *value
	}
	return t, err
}

func viewTried(t forward.Tried) triedAnswer {
	view := triedAnswer{Request: t.Request, Attempts: viewAttempts(t.Attempts)}
	if t.Outcome != nil {
		o := viewOutcome(*t.Outcome)
		view.Result = &resultView{Success: o.Success, Output: o.Output, Error: o.Error}
		view.Failure = o.Failure
	}
	return view
}

func noRoute(closest []string) string {
	if len(closest) == 0 {
		return "There is no such route."
	}
	return "There is no such route; the nearest are " + strings.Join(closest, ", ") + "."
}
