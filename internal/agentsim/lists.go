package agentsim

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// page is what the query asks of a list.
type page struct {
	after string
	limit int
	desc  bool
}

func parsePage(q url.Values) (page, *apiError) {
	p := page{after: q.Get("after"), limit: 20, desc: true}
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 100 {
			return p, badRequest("Invalid 'limit': expected a number from 1 to 100.")
		}
		p.limit = n
	}
	switch q.Get("order") {
	case "", "desc":
	case "asc":
		p.desc = false
	default:
		return p, badRequest("Invalid 'order': expected 'asc' or 'desc'.")
	}
	return p, nil
}

// pick chooses from n elements in creation order, whose ids id gives, those of the page. more says that others follow.
func (p page) pick(n int, id func(int) string) (chosen []int, more bool, apiErr *apiError) {
	index := func(i int) int {
		if p.desc {
			return n - 1 - i
		}
		return i
	}
	start := 0
	if p.after != "" {
		for start < n && id(index(start)) != p.after {
			start++
		}
		if start == n {
			return nil, false, badRequest("Unknown 'after': " + p.after)
		}
		start++
	}
	for i := start; i < n; i++ {
		if len(chosen) == p.limit {
			return chosen, true, nil
		}
		chosen = append(chosen, index(i))
	}
	return chosen, false, nil
}

func writeRows(w http.ResponseWriter, rows []row, more bool) {
	b := []byte(`{"object":"list","data":[`)
	for i, r := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, r.json...)
	}
	b = append(b, `],"first_id":`...)
	first, last := "", ""
	if len(rows) > 0 {
		first, last = rows[0].id, rows[len(rows)-1].id
	}
	b = appendNullable(b, first)
	b = appendNullable(append(b, `,"last_id":`...), last)
	b = append(b, `,"has_more":`...)
	writeJSON(w, http.StatusOK, append(strconv.AppendBool(b, more), '}'))
}

// serveList lists sessions in order of creation.
func (s *Sim) serveList(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p, apiErr := parsePage(q)
	if apiErr != nil {
		writeError(w, apiErr)
		return
	}
	wanted := slices.DeleteFunc(s.snapshotSessions(), func(ss *session) bool { return !ss.matches(q) })
	chosen, more, apiErr := p.pick(len(wanted), func(i int) string { return wanted[i].id })
	if apiErr != nil {
		writeError(w, apiErr)
		return
	}
	rows := make([]row, 0, len(chosen))
	for _, i := range chosen {
		ss := wanted[i]
		ss.mu.Lock()
		rows = append(rows, row{id: ss.id, json: ss.read(nil)})
		ss.mu.Unlock()
	}
	writeRows(w, rows, more)
}

// matches holds agent_id and every metadata[key]=value of the query against the session.
func (ss *session) matches(q url.Values) bool {
	if id := q.Get("agent_id"); id != "" && id != ss.agentID {
		return false
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for name, values := range q {
		key, ok := strings.CutPrefix(name, "metadata[")
		if !ok || !strings.HasSuffix(key, "]") {
			continue
		}
		have, exists := ss.metadata[strings.TrimSuffix(key, "]")]
		if !exists || have != values[0] {
			return false
		}
	}
	return true
}

// serveItems lists the items of one turn, or of all turns for an empty turnID.
func serveItems(w http.ResponseWriter, r *http.Request, ss *session, turnID string) {
	items, apiErr := ss.listItems(turnID)
	if apiErr != nil {
		writeError(w, apiErr)
		return
	}
	serveRows(w, r, items)
}

func (ss *session) listItems(turnID string) ([]row, *apiError) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	turns := ss.turns
	if turnID != "" {
		t := ss.turn(turnID)
		if t == nil {
			return nil, unknownTurn(turnID)
		}
		turns = []*turn{t}
	}
	var items []row
	for _, t := range turns {
		items = append(items, t.items...)
	}
	return items, nil
}

func serveTurns(w http.ResponseWriter, r *http.Request, ss *session) {
	ss.mu.Lock()
	rows := make([]row, 0, len(ss.turns))
	for _, t := range ss.turns {
		rows = append(rows, row{id: t.id, json: t.append(nil, ss)})
	}
	ss.mu.Unlock()
	serveRows(w, r, rows)
}

func serveTurn(w http.ResponseWriter, ss *session, turnID string) {
	var b []byte
	ss.mu.Lock()
	if t := ss.turn(turnID); t != nil {
		b = t.append(nil, ss)
	}
	ss.mu.Unlock()
	if b == nil {
		writeError(w, unknownTurn(turnID))
		return
	}
	writeJSON(w, http.StatusOK, b)
}

// serveRows writes the page of all rows, given in order of creation, that the query asks for.
func serveRows(w http.ResponseWriter, r *http.Request, all []row) {
	p, apiErr := parsePage(r.URL.Query())
	if apiErr != nil {
		writeError(w, apiErr)
		return
	}
	chosen, more, apiErr := p.pick(len(all), func(i int) string { return all[i].id })
	if apiErr != nil {
		writeError(w, apiErr)
		return
	}
	rows := make([]row, 0, len(chosen))
	for _, i := range chosen {
		rows = append(rows, all[i])
	}
	writeRows(w, rows, more)
}

func unknownTurn(id string) *apiError {
	return &apiError{status: http.StatusNotFound, code: "not_found", message: "Turn not found: " + id}
}

func (s *Sim) serveAgent(w http.ResponseWriter, id string) {
	s.mu.RLock()
	saved := s.agents[id]
	s.mu.RUnlock()
	if saved == nil {
		writeError(w, &apiError{status: http.StatusNotFound, code: "not_found", message: "Agent not found: " + id})
		return
	}
	writeJSON(w, http.StatusOK, saved.append(nil))
}

// serveUpdate replaces metadata and agent.tools where they are given; other known fields are taken without effect.
func (s *Sim) serveUpdate(w http.ResponseWriter, r *http.Request, ss *session) {
	body, apiErr := s.readBody(r)
	if apiErr != nil {
		writeError(w, apiErr)
		return
	}
	var update struct {
		Metadata *map[string]string `json:"metadata"`
		Agent    *struct {
			Tools json.RawMessage `json:"tools"`
		} `json:"agent"`
	}
	if err := json.Unmarshal(body, &update); err != nil {
		writeError(w, badRequest("invalid body: "+err.Error()))
		return
	}
	var tools []toolDef
	replaceTools := update.Agent != nil && update.Agent.Tools != nil
	if replaceTools {
		var err error
		if tools, err = parseTools(update.Agent.Tools); err != nil {
			writeError(w, badRequest(err.Error()))
			return
		}
	}
	ss.lock()
	if update.Metadata != nil {
		ss.metadata = *update.Metadata
	}
	if replaceTools {
		ss.tools = tools
	}
	ss.head = nil
	ss.remember()
	b := ss.snapshot(nil)
	ss.unlock()
	writeJSON(w, http.StatusOK, b)
}

func (s *Sim) serveDelete(w http.ResponseWriter, ss *session) {
	ss.mu.Lock()
	running := ss.active != nil
	ss.mu.Unlock()
	if running {
		writeError(w, conflict("conflict_error", "Cancel the session's running turn before deleting it."))
		return
	}
	s.remove(ss)
	b := appendString([]byte(`{"object":"agent.session.deleted","deleted":true,"id":`), ss.id)
	writeJSON(w, http.StatusOK, append(b, '}'))
}
