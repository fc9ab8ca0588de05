package admin

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// Problem is the body of every error (RFC 9457).
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func newProblem(status int, detail string) Problem {
	return Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

// problem answers with an error; detail is a sentence for the operator.
func problem(w http.ResponseWriter, status int, detail string) {
	body, err := json.Marshal(newProblem(status, detail))
	if err != nil {
		body = []byte("{}")
	}
	send(w, status, "application/problem+json", append(body, '\n'))
}

// NotFound answers requests for paths that are not served.
func NotFound(w http.ResponseWriter, _ *http.Request) {
	problem(w, http.StatusNotFound, "There is no such endpoint.")
}

// MethodNotAllowed answers requests whose path is served with other methods,
// and names those in Allow.
func MethodNotAllowed(w http.ResponseWriter, r *http.Request) {
	allowed := allowedMethods(r)
	if len(allowed) == 0 { // a method that the router does not know, on a path that it does not know
		NotFound(w, r)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	problem(w, http.StatusMethodNotAllowed, "Allowed here: "+strings.Join(allowed, ", ")+".")
}

func allowedMethods(r *http.Request) []string {
	routes := chi.RouteContext(r.Context()).Routes
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if routes.Match(chi.NewRouteContext(), method, r.URL.EscapedPath()) {
			allowed = append(allowed, method)
		}
	}
	if slices.Contains(allowed, http.MethodGet) {
		allowed = slices.Insert(allowed, 1, http.MethodHead)
	}
	return allowed
}

// journalProblem answers for a journal that failed or did not answer in time.
func journalProblem(w http.ResponseWriter, log *slog.Logger, doing string, err error) {
	log.Error("journal failed an operator's request", "doing", doing, "error", err)
	w.Header().Set("Retry-After", "5")
	problem(w, http.StatusServiceUnavailable, "The journal cannot be used at the moment; the log says why.")
}
