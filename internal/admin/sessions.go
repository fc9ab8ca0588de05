package admin

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"functionbridge/internal/journal"
	"functionbridge/internal/router"
	"functionbridge/internal/session"
)

// maxSmallBody bounds the bodies that hold a few short words.
const maxSmallBody = 1 << 20

// maxSessionID bounds the ids that can be asked for; the API's are far shorter.
const maxSessionID = 512

// SessionManager follows sessions.
type SessionManager interface {
	Sessions() []session.Info
	Session(id string) (session.Info, bool)
	// Follow follows a session, now and after a restart.
	Follow(ctx context.Context, id string) error
	// Unfollow stops following a session, until Follow.
	Unfollow(ctx context.Context, id string) error
}

// Sessions answers about the followed sessions.
type Sessions struct {
	Manager SessionManager
	Logger  *slog.Logger
}

type sessionView struct {
	SessionID   string         `json:"session_id"`
	AgentID     *string        `json:"agent_id"`
	Status      string         `json:"status"`
	Source      session.Source `json:"source"`
	Stream      string         `json:"stream"`
	LastEventAt *time.Time     `json:"last_event_at"`
	Pending     []pendingView  `json:"pending"`
	// Drift is null until the session was read.
	Drift *router.Drift `json:"drift"`
}

// pendingView is a call on its way, without its payload.
type pendingView struct {
	TurnID    string        `json:"turn_id"`
	CallID    string        `json:"call_id"`
	Function  string        `json:"function"`
	State     journal.State `json:"state"`
	CreatedAt *time.Time    `json:"created_at"`
}

type sessionPage struct {
	Sessions []sessionView `json:"sessions"`
	Next     *string       `json:"next"`
}

func viewSession(i session.Info) sessionView {
	view := sessionView{
		SessionID: i.SessionID, AgentID: text(i.AgentID), Status: i.Status, Source: i.Source,
		Stream: i.Stream, LastEventAt: moment(i.LastEventAt), Pending: make([]pendingView, len(i.Pending)), Drift: i.Drift,
	}
	for n, c := range i.Pending {
		view.Pending[n] = pendingView{
			TurnID: c.TurnID, CallID: c.CallID, Function: c.Function, State: c.State, CreatedAt: moment(c.CreatedAt),
		}
	}
	return view
}

// List answers with a page of the followed sessions, by id.
func (s *Sessions) List(w http.ResponseWriter, r *http.Request) {
	limit, after, err := readPage(r)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	infos := s.Manager.Sessions()
	slices.SortFunc(infos, func(a, b session.Info) int { return cmp.Compare(a.SessionID, b.SessionID) })
	infos = slices.DeleteFunc(infos, func(i session.Info) bool { return i.SessionID <= after })
	page := sessionPage{Sessions: []sessionView{}}
	if len(infos) > limit {
		infos = infos[:limit]
		page.Next = text(sessionCursor(infos[limit-1].SessionID))
	}
	for _, i := range infos {
		page.Sessions = append(page.Sessions, viewSession(i))
	}
	answer(w, s.Logger, http.StatusOK, page)
}

func readPage(r *http.Request) (limit int, after string, err error) {
	q, err := readQuery(r, "limit", "after")
	if err != nil {
		return 0, "", err
	}
	if limit, err = readLimit(q); err != nil {
		return 0, "", err
	}
	if cursor := q.Get("after"); cursor != "" {
		after, err = fromSessionCursor(cursor)
	}
	return limit, after, err
}

// sessionCursor is the last id of a page in a form that promises nothing.
func sessionCursor(id string) string { return base64.RawURLEncoding.EncodeToString([]byte("s" + id)) }

func fromSessionCursor(cursor string) (string, error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	id, ok := strings.CutPrefix(string(raw), "s")
	if err != nil || !ok || id == "" {
		return "", errAfter
	}
	return id, nil
}

// One answers with one followed session.
func (s *Sessions) One(w http.ResponseWriter, r *http.Request) {
	info, ok := s.Manager.Session(pathValue(r, "id"))
	if !ok {
		problem(w, http.StatusNotFound, "This session is not followed.")
		return
	}
	answer(w, s.Logger, http.StatusOK, viewSession(info))
}

// Follow follows the session that the body names, and answers with it.
func (s *Sessions) Follow(w http.ResponseWriter, r *http.Request) {
	body, ok := readMembers(w, r, maxSmallBody, "session_id")
	if !ok {
		return
	}
	var id string
	if err := errors.Join(body.decode("session_id", &id, "a string"), checkSessionID(id)); err != nil {
		problem(w, http.StatusBadRequest, sentence(err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), journalTimeout)
	defer cancel()
	if err := s.Manager.Follow(ctx, id); err != nil {
		journalProblem(w, s.Logger, "follow a session", err)
		return
	}
	info, ok := s.Manager.Session(id)
	if !ok { // a bridge that drains remembers the session for the next process
		info = session.Info{SessionID: id, Source: session.SourceAdmin, Status: "unknown", Stream: "waiting"}
	}
	answer(w, s.Logger, http.StatusOK, viewSession(info))
}

// Unfollow stops following a session, one that was never followed too: then it
// is not discovered either.
func (s *Sessions) Unfollow(w http.ResponseWriter, r *http.Request) {
	id := pathValue(r, "id")
	if err := checkSessionID(id); err != nil {
		problem(w, http.StatusBadRequest, sentence(err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), journalTimeout)
	defer cancel()
	if err := s.Manager.Unfollow(ctx, id); err != nil {
		journalProblem(w, s.Logger, "stop following a session", err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func checkSessionID(id string) error {
	switch {
	case strings.TrimSpace(id) == "", id == ".", id == "..":
		return errors.New("session_id must be the id of a session")
	case len(id) > maxSessionID, !utf8.ValidString(id), strings.ContainsFunc(id, unicode.IsControl):
		return errors.New("session_id must be at most 512 bytes of UTF-8 without control characters")
	}
	return nil
}

// sentence takes the first of joined errors.
func sentence(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}
