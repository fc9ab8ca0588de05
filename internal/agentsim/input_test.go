package agentsim_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"functionbridge/internal/agentsim"
)

func TestRequestsThatBreakTheRulesAreRefused(t *testing.T) {
	t.Parallel()
	const ok = `"success":true,"output":"x"`
	for _, tt := range []struct {
		name    string
		method  string
		path    string // %s: the session
		body    string
		headers []string
		status  int
		message string
	}{
		{name: "no beta header", path: "/%s", headers: []string{"OpenAI-Beta: "}, status: 400, message: "OpenAI-Beta: agents=v1"},
		{name: "no key", path: "/%s", headers: []string{"Authorization: "}, status: 401},
		{name: "empty key", path: "/%s", headers: []string{"Authorization: Bearer "}, status: 401},
		{name: "unknown session", path: "/nope", status: 404, message: "Session not found: nope"},
		{name: "unknown session's events", path: "/nope/events", status: 404},
		{name: "unknown turn", path: "/%s/turns/nope", status: 404},
		{name: "limit out of range", path: "?limit=101", status: 400},
		{name: "unknown cursor", path: "/%s/turns?after=nope", status: 400},
		{name: "wrong turn", method: "POST", path: "/%s/events", body: toolResult("turn_x", "c1", ok), status: 400, message: "Unknown pending tool call: c1"},
		{name: "unknown call", method: "POST", path: "/%s/events", body: toolResult("TURN", "c9", ok), status: 400, message: "Unknown pending tool call: c9"},
		{name: "output is an object", method: "POST", path: "/%s/events", body: toolResult("TURN", "c1", `"success":true,"output":{"a":1}`), status: 400, message: "output"},
		{name: "output is a number", method: "POST", path: "/%s/events", body: toolResult("TURN", "c1", `"success":true,"output":5`), status: 400},
		{name: "content part of an unknown type", method: "POST", path: "/%s/events", body: toolResult("TURN", "c1", `"success":true,"output":[{"type":"input_file"}]`), status: 400},
		{name: "no success", method: "POST", path: "/%s/events", body: toolResult("TURN", "c1", `"output":"x"`), status: 400, message: "success"},
		{name: "error is no string", method: "POST", path: "/%s/events", body: toolResult("TURN", "c1", `"success":false,"error":{}`), status: 400},
		{name: "unknown field", method: "POST", path: "/%s/events", body: toolResult("TURN", "c1", ok+`,"extra":1`), status: 400, message: "extra"},
		{name: "unknown event", method: "POST", path: "/%s/events", body: `{"type":"agent.session.input.nudge"}`, status: 400},
		{name: "no events", method: "POST", path: "/%s/events", status: 400},
		{name: "one bad event of two", method: "POST", path: "/%s/events", body: toolResult("TURN", "c1", ok) + "," + toolResult("TURN", "c9", ok), status: 400},
		{name: "message whose call is not JSON", method: "POST", path: "/%s/events", body: message("call f {oops"), status: 400, message: "line 1"},
		{name: "approval nobody asked for", method: "POST", path: "/%s/events", body: `{"type":"agent.session.input.computer_use_approval_request_result","request_id":"r","response":{"type":"browser_origin_access","decision":"allow"}}`, status: 400},
		{name: "delete while running", method: "DELETE", path: "/%s", status: 409},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sim, client := serve(t, agentsim.Kind())
				id := sim.CreateSession(agentsim.SessionSpec{})
				turn := sim.Play(id, agentsim.Step{agentsim.Call("f", "{}").WithID("c1")})
				path := "/v1/agents/sessions" + strings.ReplaceAll(tt.path, "%s", id)
				body := ""
				if tt.method == "POST" {
					body = `{"events":[` + strings.ReplaceAll(tt.body, "TURN", turn) + `]}`
				}
				got := request(t, client, tt.method, path, body, tt.headers...)
				if got.status != tt.status || !strings.Contains(got.get("error.message"), tt.message) {
					t.Errorf("got %d %s, want %d with %q", got.status, got.body, tt.status, tt.message)
				}
				if got.get("error.type") == "" || !gjson.Get(got.body, "error.code").Exists() {
					t.Errorf("no error envelope: %s", got.body)
				}
				if n := len(sim.Results(id)); n != 0 {
					t.Errorf("%d results took effect", n)
				}
			})
		})
	}
}

func message(text string) string {
	return `{"type":"agent.session.input.message","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":` + quote(text) + `}]}]}`
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(s) + `"`
}

func TestIdempotencyKeyReplaysTheSameBodyAndRefusesAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id := sim.CreateSession(agentsim.SessionSpec{})
		turn := sim.Play(id, agentsim.Step{agentsim.Call("f", "{}").WithID("c1"), agentsim.Call("f", "{}").WithID("c2")})
		first := toolResult(turn, "c1", `"success":true,"output":"one"`)
		for i, want := range []int{202, 202} {
			if got := postEvents(t, client, id, first, "Idempotency-Key: k"); got.status != want || got.body != "" {
				t.Errorf("post %d: %d %q, want %d and no body", i, got.status, got.body, want)
			}
		}
		if got := postEvents(t, client, id, toolResult(turn, "c2", `"success":true,"output":"two"`), "Idempotency-Key: k"); got.status != 409 {
			t.Errorf("the key with another body: %d, want 409", got.status)
		}
		results := sim.Results(id)
		if len(results) != 1 || len(results[0].Posts) != 2 || !results[0].Posts[1].Replayed || results[0].Key != "k" {
			t.Errorf("results = %+v", results)
		}
		if got := sim.Pending(id); len(got) != 1 || got[0] != "c2" {
			t.Errorf("pending = %v, want c2", got)
		}
	})
}

// An error is not remembered under the key: the race is ridden out with one key.
func TestRegistrationRaceAnswers400UntilTheCallIsPending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opts := agentsim.Kind()
		opts.RegisterDelay = 150 * time.Millisecond
		sim, client := serve(t, opts)
		id := sim.CreateSession(agentsim.SessionSpec{})
		stream := openStream(t, client, id)
		turn := sim.Play(id, agentsim.Step{agentsim.Call("f", "{}").WithID("c1")})
		for range 2 { // the user message is an item too
			stream.until(t, "agent.session.turn.item.added")
		}
		result := toolResult(turn, "c1", `"success":true,"output":""`)
		got := postEvents(t, client, id, result, "Idempotency-Key: k")
		if got.status != 400 || got.get("error.code") != "invalid_request_error" || got.get("error.message") != "Unknown pending tool call: c1" {
			t.Errorf("early result: %d %s", got.status, got.body)
		}
		if listed := get(t, client, "/v1/agents/sessions/"+id).get("required_actions.#"); listed != "0" {
			t.Errorf("the call is listed before it is registered")
		}
		time.Sleep(200 * time.Millisecond) // fake clock
		if got := postEvents(t, client, id, result, "Idempotency-Key: k"); got.status != 202 {
			t.Errorf("result after registration: %d %s", got.status, got.body)
		}
		stream.until(t, "agent.session.turn.completed")
	})
}

func TestLateResultsAreAnsweredAsTheOptionsSay(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 409, 202} {
		synctest.Test(t, func(t *testing.T) {
			opts := agentsim.Kind()
			opts.LateStatus = status
			sim, client := serve(t, opts)
			id := sim.CreateSession(agentsim.SessionSpec{})
			turn := sim.Play(id, agentsim.Step{agentsim.Call("f", "{}").WithID("c1"), agentsim.Call("f", "{}").WithID("c2")})
			_ = postEvents(t, client, id, toolResult(turn, "c1", `"success":true,"output":"one"`))
			if got := postEvents(t, client, id, toolResult(turn, "c1", `"success":true,"output":"again"`)); got.status != status {
				t.Errorf("second result: %d, want %d", got.status, status)
			}
			if got := postEvents(t, client, id, `{"type":"agent.session.input.cancel"}`); got.status != 202 {
				t.Errorf("cancel: %d", got.status)
			}
			if got := postEvents(t, client, id, toolResult(turn, "c2", `"success":true,"output":"late"`)); got.status != status {
				t.Errorf("result after cancel: %d, want %d", got.status, status)
			}
			if got := sim.Results(id); len(got) != 1 || string(got[0].Output) != `"one"` {
				t.Errorf("results = %+v, want only the first", got)
			}
			if ended, err := sim.WaitTurn(t.Context(), id, turn); ended != "cancelled" || err != nil {
				t.Errorf("turn ended %q, %v", ended, err)
			}
		})
	}
}

func TestBytesOfArgumentsAndOutputsAreKept(t *testing.T) {
	t.Parallel()
	big := `{"pad":"` + strings.Repeat("x", 200_000) + `"}`
	for _, arguments := range []string{
		`{"id":9007199254740993}`, `{"n":1e400,"m":1.10}`, `{ "z" : 1,	"a":{"b" : [ ] } }`, `{"s":"<&>\u2028\u00e9\/é\u0000"}`,
		"{\n  \"a\": 1\n}", `"{\"a\": 1}"`, `[1]`, `null`, `{"a":1,"a":2}`, big,
	} {
		for name, opts := range agentsim.Positions() {
			synctest.Test(t, func(t *testing.T) {
				opts.Lag = 0
				sim, client := serve(t, opts)
				id := sim.CreateSession(agentsim.SessionSpec{})
				opened := make(chan *frames)
				go func() { opened <- openStream(t, client, id) }()
				synctest.Wait()
				turn := sim.Play(id, agentsim.Step{agentsim.Call("f", arguments).WithID("c1")})
				stream := <-opened
				stream.until(t, "agent.session.turn.item.added") // the user's message
				events := stream.until(t, "agent.session.turn.item.added")
				if got := gjson.Get(events[len(events)-1], "item.arguments").Raw; got != arguments {
					t.Errorf("%s: item.added carries %.80q, want %.80q", name, got, arguments)
				}
				time.Sleep(time.Second) // fake clock
				if got := gjson.Get(get(t, client, "/v1/agents/sessions/"+id).body, "required_actions.0.arguments").Raw; got != arguments {
					t.Errorf("%s: the session lists %.80q, want %.80q", name, got, arguments)
				}
				output := quote(arguments)
				if got := postEvents(t, client, id, toolResult(turn, "c1", `"success":true,"output":`+output)); got.status != http.StatusAccepted {
					t.Fatalf("%s: result: %d %s", name, got.status, got.body)
				}
				if text, ok := sim.Results(id)[0].Text(); !ok || text != arguments {
					t.Errorf("%s: result text %.80q", name, text)
				}
				if got := string(sim.Results(id)[0].Output); got != output {
					t.Errorf("%s: result %.80q, want %.80q", name, got, output)
				}
			})
		}
	}
}

func TestTurnWaitsForTheApprovalToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id := sim.CreateSession(agentsim.SessionSpec{})
		turn := sim.Play(id, agentsim.Step{agentsim.Approval(), agentsim.Call("f", "").WithID("c1")})
		session := get(t, client, "/v1/agents/sessions/"+id)
		if gjson.Get(session.body, "required_actions.1.arguments").Exists() {
			t.Errorf("a call without arguments has the key: %s", session.body)
		}
		_ = postEvents(t, client, id, toolResult(turn, "c1", `"success":false,"error":"no"`))
		if got := sim.Status(id); got != "requires_action" {
			t.Errorf("status = %s while the approval is open", got)
		}
		approval := `{"type":"agent.session.input.computer_use_approval_request_result","request_id":"` +
			session.get("required_actions.0.request_id") + `","response":{"type":"browser_origin_access","decision":"allow"}}`
		if got := postEvents(t, client, id, approval); got.status != 202 {
			t.Errorf("approval: %d %s", got.status, got.body)
		}
		if ended, err := sim.WaitTurn(t.Context(), id, turn); ended != "completed" || err != nil {
			t.Errorf("turn ended %q, %v", ended, err)
		}
	})
}

func TestAsyncCallsDoNotHoldTheTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id := sim.CreateSession(agentsim.SessionSpec{Tools: []byte(`[{"type":"function","name":"slow","async":true}]`)})
		turn := sim.Say(id, "call slow {}")
		if ended, err := sim.WaitTurn(t.Context(), id, turn); ended != "completed" || err != nil {
			t.Fatalf("turn ended %q, %v", ended, err)
		}
		session := get(t, client, "/v1/agents/sessions/"+id)
		if session.get("status") != "idle" || session.get("required_actions.0.name") != "slow" {
			t.Errorf("idle session does not list the open call: %s", session.body)
		}
		if got := postEvents(t, client, id, toolResult(turn, sim.Pending(id)[0], `"success":true,"output":"done"`)); got.status != 202 {
			t.Errorf("result after the turn: %d %s", got.status, got.body)
		}
		if len(sim.Results(id)) != 1 || sim.Status(id) != "idle" {
			t.Errorf("results %+v, status %s", sim.Results(id), sim.Status(id))
		}
	})
}
