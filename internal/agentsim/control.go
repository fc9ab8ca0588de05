package agentsim

import (
	"net/http"
	"net/url"
	"strings"
)

// serveControl serves what lies below /_sim/, without a key:
//
//	GET    /_sim/results?session_id=       the tool results that took effect
//	GET    /_sim/requests                  counts of requests by kind, of results and of open streams
//	GET    /_sim/faults                    the faults of requests that have not struck yet
//	POST   /_sim/faults                    sets one fault, or a list
//	DELETE /_sim/faults                    takes all back
//	POST   /_sim/sessions/{id}/{action}    cancel, fail, fail_turn, settle, delete
//	GET    /_sim/calls?session_id=         the calls that were made, answered or not
//	GET    /_sim/sessions                  status and number of open turns of every session
//	POST   /_sim/sessions/{id}/message     a user message, as plain text; no fault strikes it
func (s *Sim) serveControl(w http.ResponseWriter, r *http.Request, path string) {
	switch r.Method + " " + path {
	case "GET results":
		s.showResults(w, r)
	case "GET calls":
		s.showCalls(w, r)
	case "GET sessions":
		s.showSessions(w)
	case "GET requests":
		writeJSON(w, http.StatusOK, encode(s.counts()))
	case "GET faults":
		s.showFaults(w)
	case "POST faults":
		s.postFaults(w, r)
	case "DELETE faults":
		s.ClearFaults()
		w.WriteHeader(http.StatusNoContent)
	default:
		if !s.hear(w, r, path) && !s.steer(w, r, path) {
			writeError(w, &apiError{status: http.StatusNotFound, code: "not_found", message: "Unknown control request: " + r.Method + " /_sim/" + path})
		}
	}
}

func (s *Sim) showResults(w http.ResponseWriter, r *http.Request) {
	results := s.Results(r.URL.Query().Get("session_id"))
	if results == nil {
		results = []Result{}
	}
	writeJSON(w, http.StatusOK, encode(struct {
		Results []Result `json:"results"`
	}{results}))
}

func (s *Sim) showFaults(w http.ResponseWriter) {
	specs := []faultSpec{}
	for _, f := range s.faults.waiting() {
		specs = append(specs, f.spec())
	}
	writeJSON(w, http.StatusOK, encode(struct {
		Faults []faultSpec `json:"faults"`
	}{specs}))
}

func (s *Sim) postFaults(w http.ResponseWriter, r *http.Request) {
	body, apiErr := s.readBody(r)
	if apiErr != nil {
		writeError(w, apiErr)
		return
	}
	faults, err := parseFaults(body)
	if err != nil {
		writeError(w, badRequest(err.Error()))
		return
	}
	for _, f := range faults {
		if err := s.Fault(f); err != nil {
			writeError(w, badRequest(err.Error()))
			return
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// counts are the numbers of requests by kind, and two more.
func (s *Sim) counts() map[string]map[string]int64 {
	requests := map[string]int64{}
	for e := range endpointCount {
		requests[e.String()] = s.Count(e)
	}
	open := int64(0)
	for _, ss := range s.snapshotSessions() {
		ss.mu.Lock()
		open += int64(len(ss.streams))
		ss.mu.Unlock()
	}
	return map[string]map[string]int64{
		"requests": requests,
		"state":    {"results": s.ResultCount(), "streams_open": open},
	}
}

// steer does to a session what tests do through the Go methods; it is false for a path of another shape.
func (s *Sim) steer(w http.ResponseWriter, r *http.Request, path string) bool {
	rest, ok := strings.CutPrefix(path, "sessions/")
	escaped, action, _ := strings.Cut(rest, "/")
	id, err := url.PathUnescape(escaped)
	do := map[string]func(string){
		"cancel": s.Cancel, "fail": s.Fail, "fail_turn": s.FailTurn, "settle": s.Settle, "delete": s.Delete,
	}[action]
	if !ok || err != nil || do == nil || r.Method != http.MethodPost {
		return false
	}
	if s.find(id) == nil {
		writeError(w, notFound(id))
		return true
	}
	do(id)
	w.WriteHeader(http.StatusNoContent)
	return true
}
