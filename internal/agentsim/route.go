package agentsim

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Endpoint is one kind of request, for counting and for faults.
type Endpoint int

// The endpoints, in the words that faults and counts use.
const (
	CreateSession Endpoint = iota
	ListSessions
	GetSession
	UpdateSession
	DeleteSession
	OpenStream
	PostEvents
	ListItems
	ListTurns
	GetTurn
	ListTurnItems
	GetAgent
	otherEndpoint
	endpointCount
)

func endpointNames() [endpointCount]string {
	return [endpointCount]string{
		"create_session", "list_sessions", "get_session", "update_session", "delete_session", "open_stream",
		"post_events", "list_items", "list_turns", "get_turn", "list_turn_items", "get_agent", "other",
	}
}

func (e Endpoint) String() string { return endpointNames()[e] }

// target is a parsed request.
type target struct {
	endpoint                 Endpoint
	session, turnID, agentID string
}

// route checks what every request must carry, counts it, lets faults act and serves the rest.
func (s *Sim) route(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if control, ok := strings.CutPrefix(path, "/_sim/"); ok {
		s.serveControl(w, r, control)
		return
	}
	rest, ok := strings.CutPrefix(path, s.opts.BasePath+"/")
	if !ok {
		writeError(w, &apiError{status: http.StatusNotFound, code: "not_found", message: "Unknown path: " + path})
		return
	}
	to := parseTarget(r.Method, rest)
	s.calls[to.endpoint].Add(1)
	if err := s.admit(r); err != nil {
		writeError(w, err)
		return
	}
	if fault, ok := s.faults.take(to.endpoint, to.session); ok {
		s.misbehave(w, r, to, fault)
		return
	}
	s.serve(w, r, to, nil)
}

// admit checks key and beta header.
func (s *Sim) admit(r *http.Request) *apiError {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || key == "" || (s.opts.Key != "" && key != s.opts.Key) {
		return &apiError{status: http.StatusUnauthorized, code: "invalid_api_key", message: "Incorrect API key provided."}
	}
	if r.Header.Get("OpenAI-Beta") != "agents=v1" {
		return badRequest("This endpoint needs the header 'OpenAI-Beta: agents=v1'.")
	}
	return nil
}

// serve answers a request; fault, when not nil, is one that acts inside of the handler.
func (s *Sim) serve(w http.ResponseWriter, r *http.Request, to target, fault *Fault) {
	switch to.endpoint {
	case CreateSession:
		s.serveCreate(w, r)
		return
	case ListSessions:
		s.serveList(w, r)
		return
	case GetAgent:
		s.serveAgent(w, to.agentID)
		return
	case otherEndpoint:
		writeError(w, &apiError{status: http.StatusNotFound, code: "not_found", message: fmt.Sprintf("Unknown request: %s %s", r.Method, r.URL.Path)})
		return
	default:
	}
	ss := s.find(to.session)
	if ss == nil {
		writeError(w, notFound(to.session))
		return
	}
	s.serveSession(w, r, to, ss, fault)
}

func (s *Sim) serveSession(w http.ResponseWriter, r *http.Request, to target, ss *session, fault *Fault) {
	switch to.endpoint {
	case GetSession:
		ss.mu.Lock()
		b := ss.read(nil)
		ss.mu.Unlock()
		writeJSON(w, http.StatusOK, b)
	case UpdateSession:
		s.serveUpdate(w, r, ss)
	case DeleteSession:
		s.serveDelete(w, ss)
	case OpenStream:
		s.serveStream(w, r, ss)
	case PostEvents:
		s.servePost(w, r, ss, fault)
	case ListItems:
		serveItems(w, r, ss, "")
	case ListTurnItems:
		serveItems(w, r, ss, to.turnID)
	case ListTurns:
		serveTurns(w, r, ss)
	default:
		serveTurn(w, ss, to.turnID)
	}
}

// parseTarget reads method and path; ids may be percent-encoded.
func parseTarget(method, path string) target {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if plain, err := url.PathUnescape(part); err == nil {
			parts[i] = plain
		}
	}
	if len(parts) < 2 || parts[0] != "agents" || parts[len(parts)-1] == "" {
		return target{endpoint: otherEndpoint}
	}
	if parts[1] != "sessions" {
		if len(parts) == 2 && method == http.MethodGet {
			return target{endpoint: GetAgent, agentID: parts[1]}
		}
		return target{endpoint: otherEndpoint}
	}
	to := target{}
	if len(parts) > 2 {
		to.session = parts[2]
	}
	if len(parts) > 4 {
		to.turnID = parts[4]
	}
	to.endpoint = endpointOf(method, parts)
	return to
}

func endpointOf(method string, parts []string) Endpoint {
	get, post := method == http.MethodGet, method == http.MethodPost
	shape := ""
	switch len(parts) {
	case 4:
		shape = parts[3]
	case 5:
		shape = parts[3] + "/*"
	case 6:
		shape = parts[3] + "/*/" + parts[5]
	}
	switch {
	case len(parts) == 2 && post:
		return CreateSession
	case len(parts) == 2 && get:
		return ListSessions
	case len(parts) == 3 && get:
		return GetSession
	case len(parts) == 3 && post:
		return UpdateSession
	case len(parts) == 3 && method == http.MethodDelete:
		return DeleteSession
	case shape == "events" && get:
		return OpenStream
	case shape == "events" && post:
		return PostEvents
	case shape == "items" && get:
		return ListItems
	case shape == "turns" && get:
		return ListTurns
	case shape == "turns/*" && get:
		return GetTurn
	case shape == "turns/*/items" && get:
		return ListTurnItems
	}
	return otherEndpoint
}

// apiError is an answer in the API's error envelope.
type apiError struct {
	status        int
	code, message string
	retryAfter    string
}

func badRequest(message string) *apiError {
	return &apiError{status: http.StatusBadRequest, code: "invalid_request_error", message: message}
}

func conflict(code, message string) *apiError {
	return &apiError{status: http.StatusConflict, code: code, message: message}
}

func notFound(session string) *apiError {
	return &apiError{status: http.StatusNotFound, code: "not_found", message: "Session not found: " + session}
}

// kind is the error's type, by its status.
func (e *apiError) kind() string {
	switch {
	case e.status == http.StatusConflict:
		return "conflict_error"
	case e.status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case e.status >= 500:
		return "server_error"
	}
	return "invalid_request_error"
}

func writeError(w http.ResponseWriter, e *apiError) {
	b := appendString([]byte(`{"error":{"message":`), e.message)
	b = appendString(append(b, `,"type":`...), e.kind())
	b = appendString(append(b, `,"param":null,"code":`...), e.code)
	if e.retryAfter != "" {
		w.Header().Set("Retry-After", e.retryAfter)
	}
	writeJSON(w, e.status, append(b, "}}"...))
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec // JSON, never shown as a page
}
