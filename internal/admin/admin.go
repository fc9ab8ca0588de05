// Package admin answers operators over HTTP: health, metrics, and what the
// bridge follows, knows and has done. It reads the other parts through small
// interfaces and decides nothing for them; which path leads to which handler is
// left to the command that mounts them.
package admin

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/go-chi/chi/v5"
)

// journalTimeout bounds what one request may wait for the journal.
const journalTimeout = 10 * time.Second

// answer writes v as JSON. Characters such as < stay as they are: what agents
// and services sent is shown as it was sent.
func answer(w http.ResponseWriter, log *slog.Logger, status int, v any) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		log.Error("answer not encoded", "error", err)
		problem(w, http.StatusInternalServerError, "The answer could not be encoded.")
		return
	}
	send(w, status, "application/json", body.Bytes())
}

func send(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// pathValue returns a path parameter, percent-decoded; EscapedPath has seen to
// it that the router found it encoded.
func pathValue(r *http.Request, name string) string {
	raw := chi.URLParam(r, name)
	if value, err := url.PathUnescape(raw); err == nil {
		return value
	}
	return raw
}

// moment is a time as answers show it: RFC 3339 in UTC, null for "not yet".
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// text is a string as answers show it, null when there is none.
func text[T ~string](s T) *string {
	if s == "" {
		return nil
	}
	plain := string(s)
	return &plain
}
