package agentsim_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"functionbridge/internal/agentsim"
)

func TestControlListsCallsWithAndWithoutResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id := sim.CreateSession(agentsim.SessionSpec{})
		other := sim.CreateSession(agentsim.SessionSpec{})
		turn := sim.Play(id, agentsim.Step{
			agentsim.Call("f", `{ "a": 1.0, "b": "<&>" }`).WithID("c1"), agentsim.Call("g", "").WithID("c2"),
		})
		sim.Play(other, agentsim.Step{agentsim.Call("h", "{}").WithID("c3")})
		for _, key := range []string{"k1", "k1", "k2"} {
			_ = postEvents(t, client, id, toolResult(turn, "c1", `"success":true,"output":"x"`), "Idempotency-Key: "+key)
		}
		_ = postEvents(t, client, id, toolResult(turn, "c1", `"success":true,"output":"y"`), "Idempotency-Key: k3")

		got := get(t, client, "/_sim/calls?session_id="+id)
		for path, want := range map[string]string{
			"calls.#": "2", "calls.0.call_id": "c1", "calls.0.turn_id": turn, "calls.0.session_id": id, "calls.0.name": "f",
			"calls.0.arguments": `{ "a": 1.0, "b": "<&>" }`, "calls.0.pending": "false", "calls.0.result.output": "x",
			"calls.0.posts.#": "4", "calls.0.posts.1.replayed": "true", "calls.1.call_id": "c2", "calls.1.arguments": "",
			"calls.1.pending": "true", "calls.1.result": "",
		} {
			if got.get(path) != want {
				t.Errorf("%s = %q, want %q", path, got.get(path), want)
			}
		}
		same, differs := got.get("calls.0.posts.0.body_hash"), got.get("calls.0.posts.3.body_hash")
		if same != got.get("calls.0.posts.2.body_hash") || same == differs {
			t.Errorf("hashes %s and %s do not tell bodies apart: %s", same, differs, got.body)
		}
		if all := get(t, client, "/_sim/calls"); all.get("calls.#") != "3" {
			t.Errorf("calls of all sessions: %s", all.body)
		}
	})
}

func TestControlMessageIsHeardPastFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id := sim.CreateSession(agentsim.SessionSpec{ID: "sess/1"})
		set(t, sim, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.PostEvents, Status: 503})
		say := func(session, words string) answer {
			return request(t, client, http.MethodPost, "/_sim/sessions/"+session+"/message", words, "Authorization: ")
		}
		got := say("sess%2F1", "call f {\"a\":1}\n\ncall g {}\nThat is all.")
		if got.status != 202 || got.get("turn_id") == "" || len(sim.Pending(id)) != 1 {
			t.Errorf("message: %d %s, pending %v", got.status, got.body, sim.Pending(id))
		}
		if got := postEvents(t, client, "sess%2F1", toolResult(got.get("turn_id"), sim.Pending(id)[0], `"success":true`)); got.status != 503 {
			t.Errorf("the message took the fault of the next post, which got %d", got.status)
		}
		_ = say("sess%2F1", "call h {}")
		busy := get(t, client, "/_sim/sessions")
		if busy.get("sessions.0.session_id") != id || busy.get("sessions.0.open_turns") != "2" || busy.get("sessions.0.status") != "requires_action" {
			t.Errorf("sessions: %s", busy.body)
		}
		if got := say("sess%2F1", "call f {"); got.status != 400 {
			t.Errorf("arguments that are not JSON: %d", got.status)
		}
		if got := say("nope", "call f {}"); got.status != 404 {
			t.Errorf("unknown session: %d", got.status)
		}
	})
}
