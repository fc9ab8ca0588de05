package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
)

func TestSessionsAreFollowedAndLeft(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := startBridge(t, agentsim.Kind(), plainTable, func(w http.ResponseWriter, r *http.Request) { <-release; ok(w, r) }, nil)
	o := newOperator(t, b.daemon)
	if got := o.get(t, "/admin/sessions").want(t, http.StatusOK).decode(t); len(got.list("sessions")) != 0 || got["next"] != nil {
		t.Errorf("nothing is followed, and the list is %v", got)
	}
	o.get(t, "/admin/sessions/sess_1").want(t, http.StatusNotFound)
	id := b.sim.CreateSession(agentsim.SessionSpec{ID: "sess_1"})
	for range 2 {
		o.post(t, "/admin/sessions", `{"session_id":"sess_1"}`).want(t, http.StatusOK)
	}
	turn := b.sim.Play(id, agentsim.Step{agentsim.Call("greet", `{"a":1}`).WithID("call_1")})
	b.waitState(t, journal.Key{SessionID: id, TurnID: turn, CallID: "call_1"}, journal.Running)
	shown := o.get(t, "/admin/sessions/sess_1").want(t, http.StatusOK).decode(t)
	pending := shown.list("pending")
	if len(pending) != 1 {
		t.Fatalf("pending is %v, want one call", pending)
	}
	wantMembers(t, pending[0], map[string]any{
		"turn_id": turn, "call_id": "call_1", "function": "greet", "state": "running",
	})
	close(release)
	b.waitState(t, journal.Key{SessionID: id, TurnID: turn, CallID: "call_1"}, journal.Confirmed)

	if got := o.do(t, http.MethodDelete, "/admin/sessions/sess_1", "").want(t, http.StatusNoContent); len(got.body) != 0 {
		t.Errorf("204 has the body %q", got.body)
	}
	waitFor(t, "the session to be left", func() bool { return o.get(t, "/admin/sessions/sess_1").status == http.StatusNotFound })
	o.do(t, http.MethodDelete, "/admin/sessions/never%2Fseen", "").want(t, http.StatusNoContent)
	follows, err := b.daemon.journal.Follows(t.Context())
	if err != nil || len(follows) != 2 || follows[0].SessionID != "never/seen" || follows[0].Followed || follows[1].Followed {
		t.Errorf("the journal remembers %+v (%v), want both sessions left alone", follows, err)
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited too long for %s", what)
		}
	}
}

func TestSessionsAreListedInPages(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	o := newOperator(t, b.daemon)
	for _, i := range []int{3, 0, 4, 1, 2} {
		id := b.sim.CreateSession(agentsim.SessionSpec{ID: fmt.Sprintf("s/%d", i)})
		o.post(t, "/admin/sessions", `{"session_id":"`+id+`"}`).want(t, http.StatusOK)
	}
	var seen []string
	for after := ""; ; {
		page := o.get(t, "/admin/sessions?limit=2&after="+after).want(t, http.StatusOK).decode(t)
		for _, s := range page.list("sessions") {
			seen = append(seen, s.text("session_id"))
		}
		next, more := page["next"].(string)
		if !more {
			break
		}
		after = next
	}
	if got := strings.Join(seen, " "); got != "s/0 s/1 s/2 s/3 s/4" {
		t.Errorf("the pages list %q", got)
	}
	all := o.get(t, "/admin/sessions?limit=5").want(t, http.StatusOK).decode(t)
	if len(all.list("sessions")) != 5 || all["next"] != nil {
		t.Errorf("a page of exactly all is %v", all)
	}
}

func TestBadBodiesAreRefused(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	o := newOperator(t, b.daemon)
	for body, want := range map[string]int{
		``: 400, ` `: 400, `null`: 400, `[]`: 400, `"s"`: 400, `{`: 400, `{}`: 400, `{"session_id":"s"} {}`: 400, `{"session_id":"s"}x`: 400,
		`{"session_id":""}`: 400, `{"session_id":"  "}`: 400, `{"session_id":null}`: 400, `{"session_id":7}`: 400, `{"session_id":["s"]}`: 400,
		`{"session_id":"s","more":1}`: 400, `{"Session_ID":"s"}`: 400, `{"session_id":"s","session_id":"t"}`: 400,
		`{"session_id":"a\u0000b"}`: 400, `{"session_id":"a\nb"}`: 400, "{\"session_id\":\"\xff\"}": 400,
		`{"session_id":"` + strings.Repeat("s", 513) + `"}`:   400,
		`{"session_id":"` + strings.Repeat("s", 1<<20) + `"}`: 413,
	} {
		o.post(t, "/admin/sessions", body).want(t, want)
	}
	right := `{"session_id":"sess_1"}`
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/jsonx", "application/json, text/plain"} {
		o.do(t, http.MethodPost, "/admin/sessions", right, "Content-Type", kind).want(t, http.StatusUnsupportedMediaType)
	}
	o.do(t, http.MethodPost, "/admin/sessions", right, "Content-Type", "application/json", "Content-Encoding", "gzip").
		want(t, http.StatusUnsupportedMediaType)
	if got := b.daemon.sessions.Sessions(); len(got) != 0 {
		t.Errorf("a refused body was carried out: %+v", got)
	}
	o.do(t, http.MethodPost, "/admin/sessions", right, "Content-Type", "application/json; charset=utf-8").want(t, http.StatusOK)
}
