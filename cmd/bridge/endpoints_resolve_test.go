package main

import (
	"net/http"
	"strings"
	"testing"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
)

// An operator finds a held call, tells what came of it, and the agent gets that.
func TestOperatorResolvesACallInDoubt(t *testing.T) {
	t.Parallel()
	const table = "version: 1\nroutes:\n  pay: {url: SERVICE/lost, on_unknown_outcome: hold}\n  look: SERVICE/look\n"
	b := startBridge(t, agentsim.Kind(), table, losing, nil)
	o := newOperator(t, b.daemon)
	id := b.sim.CreateSession(agentsim.SessionSpec{})
	o.post(t, "/admin/sessions", `{"session_id":"`+id+`"}`).want(t, http.StatusOK)
	turn := b.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1"), agentsim.Call("look", `{}`).WithID("c2")})
	b.waitState(t, journal.Key{SessionID: id, TurnID: turn, CallID: "c1"}, journal.InDoubt)
	b.waitState(t, journal.Key{SessionID: id, TurnID: turn, CallID: "c2"}, journal.Confirmed)

	held := o.get(t, "/admin/calls?state=in_doubt").want(t, http.StatusOK).decode(t).list("calls")
	if len(held) != 1 || held[0]["failure"] != "unknown_outcome" || held[0]["answered_at"] != nil {
		t.Fatalf("the calls in doubt are %v", held)
	}
	resolve := func(call string) string { return "/admin/calls/" + pathOf(id, turn, call) + "/resolve" }
	for body, says := range map[string]string{
		`{}`: "success is missing", `{"success":true}`: "needs its output", `{"success":false}`: "needs an error",
		`{"success":false,"error":" "}`: "needs an error", `{"success":true,"output":"","error":"x"}`: "no error",
		`{"success":false,"output":"x","error":"y"}`: "no output", `{"success":1}`: "true or false", `{"success":true,"output":{}}`: "a string",
	} {
		answer := o.post(t, resolve("c1"), body).want(t, http.StatusBadRequest)
		if !strings.Contains(string(answer.body), says) {
			t.Errorf("%s is answered with %s", body, answer.body)
		}
	}
	o.post(t, resolve("c2"), `{"success":true,"output":"x"}`).want(t, http.StatusConflict)
	o.post(t, resolve("c9"), `{"success":true,"output":"x"}`).want(t, http.StatusNotFound)

	resolved := o.post(t, resolve("c1"), `{"success":true,"output":"paid <once> & for all"}`).want(t, http.StatusOK).decode(t)
	wantMembers(t, resolved, map[string]any{"success": true, "output": "paid <once> & for all", "failure": nil})
	b.waitState(t, journal.Key{SessionID: id, TurnID: turn, CallID: "c1"}, journal.Confirmed)
	o.post(t, resolve("c1"), `{"success":true,"output":"x"}`).want(t, http.StatusConflict)
	results := b.sim.Results(id)
	if len(results) != 2 {
		t.Fatalf("the agent got %+v", results)
	}
	for _, r := range results {
		if text, _ := r.Text(); r.CallID == "c1" && text != "paid <once> & for all" {
			t.Errorf("the agent got %q", text)
		}
	}
}
