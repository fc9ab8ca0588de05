package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
)

// failing answers /fail with a detail and everything else with a text.
func failing(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/fail") {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"detail":"no such <order>"}`))
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte("hello & <welcome>"))
}

func TestOperatorSeesACallFromTheSessionToTheService(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, failing, nil)
	o := newOperator(t, b.daemon)
	id := b.sim.CreateSession(agentsim.SessionSpec{ID: "s/1 ü%2F", AgentID: "agent_x"})

	followed := o.post(t, "/admin/sessions", `{"session_id":"s/1 ü%2F"}`).want(t, http.StatusOK).decode(t)
	if followed["session_id"] != id || followed["source"] != "admin" {
		t.Errorf("POST answered %v", followed)
	}
	turn := b.sim.Play(id,
		agentsim.Step{agentsim.Call("greet", `{"n":9007199254740993,"x":1e400,"z":1,"a":2}`).WithID("c/1")},
		agentsim.Step{agentsim.Call("fail", `"{\"order\": \"<1>\"}"`).WithID("c?2")},
		agentsim.Step{agentsim.Call("greet", `"not JSON"`).WithID("c 3")})
	b.waitState(t, journal.Key{SessionID: id, TurnID: turn, CallID: "c/1"}, journal.Confirmed)
	b.waitState(t, journal.Key{SessionID: id, TurnID: turn, CallID: "c?2"}, journal.Confirmed)
	b.waitState(t, journal.Key{SessionID: id, TurnID: turn, CallID: "c 3"}, journal.Confirmed)

	first := o.get(t, "/admin/calls/"+pathOf(id, turn, "c/1")).want(t, http.StatusOK)
	if raw := `"arguments":{"n":9007199254740993,"x":1e400,"z":1,"a":2}`; !strings.Contains(string(first.body), raw) {
		t.Errorf("the arguments are not as they were sent: %s", first.body)
	}
	wantMembers(t, first.decode(t), map[string]any{
		"session_id": id, "turn_id": turn, "call_id": "c/1", "function": "greet", "state": "confirmed",
		"success": true, "output": "hello & <welcome>", "error": nil, "failure": nil, "late_outcome": nil,
		"idempotency_key": journal.Key{SessionID: id, TurnID: turn, CallID: "c/1"}.CallKey(),
	})
	wantTimes(t, first.decode(t))

	second := o.get(t, "/admin/calls/"+pathOf(id, turn, "c?2")).want(t, http.StatusOK).decode(t)
	wantMembers(t, second, map[string]any{"success": false, "output": nil, "failure": "not_found"})
	if detail, _ := second["error"].(string); !strings.Contains(detail, "no such <order>") {
		t.Errorf("the error is %q", detail)
	}
	wantMembers(t, second.at("arguments"), map[string]any{"order": "<1>"})
	attempts := second.list("attempts")
	if len(attempts) != 1 {
		t.Fatalf("attempts are %v, want one", attempts)
	}
	wantMembers(t, attempts[0], map[string]any{"status": json.Number("404")})

	third := o.get(t, "/admin/calls/"+pathOf(id, turn, "c 3")).want(t, http.StatusOK).decode(t)
	wantMembers(t, third, map[string]any{"arguments": "not JSON", "success": false, "failure": "invalid_arguments"})

	one := o.get(t, "/admin/sessions/"+pathOf(id)).want(t, http.StatusOK).decode(t)
	wantMembers(t, one, map[string]any{"session_id": id, "agent_id": "agent_x", "source": "admin", "stream": "open"})
	if one["last_event_at"] == nil {
		t.Error("last_event_at is null after events")
	}
}

func wantMembers(t *testing.T, got, want map[string]any) {
	t.Helper()
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %#v, want %#v", name, got[name], value)
		}
	}
}

// wantTimes demands that the times of a confirmed call are there and in order.
func wantTimes(t *testing.T, call map[string]any) {
	t.Helper()
	var before time.Time
	for _, name := range []string{"created_at", "answered_at", "submitted_at", "confirmed_at"} {
		shown, _ := call[name].(string)
		at, err := time.Parse(time.RFC3339Nano, shown)
		if err != nil || at.Before(before) || time.Since(at).Abs() > time.Minute {
			t.Errorf("%s is %v (after %v): %v", name, call[name], before, err)
		}
		before = at
	}
}

// An encoded slash and a real one lead to different calls, and each id is
// decoded once.
func TestIDsInPathsAreDecodedOnce(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	o := newOperator(t, b.daemon)
	for _, id := range []string{"plain", "a/b", "a%2Fb", "a%252Fb", "..", ".", "a b", "a+b", "ü", "?", "#", "%", "a;b", "100%", "日本/語"} {
		key := journal.Key{SessionID: id, TurnID: "t" + id, CallID: id + "c"}
		save(t, b.daemon, journal.Call{Key: key, Function: "greet", State: journal.Pending, CreatedAt: time.Now()})
		got := o.get(t, "/admin/calls/"+escapeAll(key.SessionID)+"/"+escapeAll(key.TurnID)+"/"+escapeAll(key.CallID)).
			want(t, http.StatusOK).decode(t)
		wantMembers(t, got, map[string]any{"session_id": key.SessionID, "turn_id": key.TurnID, "call_id": key.CallID})
	}
	o.get(t, "/admin/calls/a/b/t/c").want(t, http.StatusNotFound)
	o.get(t, "/admin/calls//t/c").want(t, http.StatusNotFound)
}

// escapeAll encodes every byte that is no letter or digit, dots too, which a
// client would otherwise take for a step up.
func escapeAll(id string) string {
	var out strings.Builder
	for _, c := range []byte(id) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

func save(t *testing.T, d *daemon, calls ...journal.Call) {
	t.Helper()
	for _, c := range calls {
		if err := d.journal.Save(t.Context(), c, journal.Durable); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCallsAreListedInPagesNewestFirst(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	o := newOperator(t, b.daemon)
	if got := o.get(t, "/admin/calls").want(t, http.StatusOK).decode(t); len(got.list("calls")) != 0 || got["next"] != nil {
		t.Errorf("an empty journal lists %v", got)
	}
	began := time.Now().Add(-time.Hour)
	for i := range 7 {
		call := journal.Call{
			Key:      journal.Key{SessionID: fmt.Sprintf("s%d", i%2), TurnID: "t", CallID: strconv.Itoa(i)},
			Function: "greet", State: journal.Pending, CreatedAt: began.Add(time.Duration(i) * time.Second),
		}
		if i == 3 {
			call.State, call.Function = journal.InDoubt, "fail"
		}
		save(t, b.daemon, call)
	}
	var seen []string
	pages := 0
	for after := ""; ; pages++ {
		page := o.get(t, "/admin/calls?limit=3&after="+after).want(t, http.StatusOK).decode(t)
		for _, c := range page.list("calls") {
			seen = append(seen, c.text("call_id"))
		}
		next, more := page["next"].(string)
		if !more {
			break
		}
		after = next
		save(t, b.daemon, journal.Call{
			Key:      journal.Key{SessionID: "new", TurnID: "t", CallID: fmt.Sprint("new", pages)},
			Function: "greet", State: journal.Pending, CreatedAt: time.Now(),
		})
	}
	if got := strings.Join(seen, ""); got != "6543210" || pages != 2 {
		t.Errorf("the pages listed %s after %d cursors, want 6543210 after 2", got, pages)
	}
	for query, want := range map[string]int{
		"session_id=s1": 3, "function=fail": 1, "state=in_doubt": 1, "state=pending&session_id=s0": 4, "state=confirmed": 0,
		"session_id=s%2F1": 0, "limit=1000": 9, "state=&session_id=&function=&after=": 9,
	} {
		got := o.get(t, "/admin/calls?"+query).want(t, http.StatusOK)
		if calls := got.decode(t).list("calls"); len(calls) != want {
			t.Errorf("%s selects %d calls, want %d", query, len(calls), want)
		}
	}
}

func TestBadQueriesAreRefused(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	o := newOperator(t, b.daemon)
	for _, path := range []string{
		"/admin/calls?state=lost", "/admin/calls?state=PENDING", "/admin/calls?limit=0", "/admin/calls?limit=1001", "/admin/calls?limit=-1",
		"/admin/calls?limit=ten", "/admin/calls?limit=", "/admin/calls?limit=1.0", "/admin/calls?limit=99999999999999999999", "/admin/calls?after=x",
		"/admin/calls?after=Y1%27", "/admin/calls?sesion_id=s", "/admin/calls?state=pending&state=running", "/admin/calls?limit=%zz",
		"/admin/calls?a;b", "/admin/sessions?limit=0", "/admin/sessions?after=x", "/admin/sessions?state=idle",
	} {
		o.get(t, path).want(t, http.StatusBadRequest)
	}
}

func TestOutcomesAreShownAsTheyAre(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	o := newOperator(t, b.daemon)
	now := time.Now()
	call := func(id string, state journal.State, change func(*journal.Call)) journal.Call {
		c := journal.Call{Key: journal.Key{SessionID: "s", TurnID: "t", CallID: id}, Function: "f", State: state, CreatedAt: now}
		change(&c)
		return c
	}
	save(t, b.daemon,
		call("running", journal.Running, func(*journal.Call) {}),
		call("content", journal.Submitted, func(c *journal.Call) {
			c.Outcome = journal.Outcome{Success: true, Content: true, Output: `[{"type":"input_text","text":"a<b"}]`}
		}),
		call("empty", journal.Answered, func(c *journal.Call) { c.Outcome = journal.Success("") }),
		call("jsontext", journal.Answered, func(c *journal.Call) { c.Outcome = journal.Success(`{"a":1}`) }),
		call("late", journal.Abandoned, func(c *journal.Call) {
			c.Outcome = journal.Failure(journal.UnknownOutcome, "It may have run.")
			late := journal.Success("it ran")
			c.LateOutcome = &late
		}),
		call("attempts", journal.Running, func(c *journal.Call) {
			c.Attempts = []journal.Attempt{
				{StartedAt: now, Duration: 1500 * time.Microsecond, Error: "The connection was reset."},
				{StartedAt: now, Duration: 2 * time.Second, Status: 503},
			}
		}),
	)
	show := func(id string) object {
		return o.get(t, "/admin/calls/s/t/"+id).want(t, http.StatusOK).decode(t)
	}
	wantMembers(t, show("running"), map[string]any{"success": nil, "output": nil, "error": nil, "failure": nil, "answered_at": nil})
	wantMembers(t, show("empty"), map[string]any{"success": true, "output": ""})
	wantMembers(t, show("jsontext"), map[string]any{"output": `{"a":1}`})
	part := show("content").list("output")[0]
	wantMembers(t, part, map[string]any{"type": "input_text", "text": "a<b"})
	late := show("late")
	wantMembers(t, late, map[string]any{"state": "abandoned", "success": false, "failure": "unknown_outcome"})
	wantMembers(t, late.at("late_outcome"), map[string]any{"success": true, "output": "it ran", "error": nil, "failure": nil})
	attempts := show("attempts").list("attempts")
	wantMembers(t, attempts[0], map[string]any{
		"status": nil, "error": "The connection was reset.", "duration_ms": json.Number("1.5"),
	})
	wantMembers(t, attempts[1], map[string]any{"status": json.Number("503"), "error": nil, "duration_ms": json.Number("2000")})
}
