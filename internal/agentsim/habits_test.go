package agentsim_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"functionbridge/internal/agentsim"
)

func TestEventsComeInTheDocumentedOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id := sim.CreateSession(agentsim.SessionSpec{})
		stream := openStream(t, client, id)
		turn := sim.Play(id, agentsim.Step{agentsim.Call("f", "{}").WithID("c1")})
		_ = postEvents(t, client, id, toolResult(turn, "c1", `"success":true,"output":"x"`))
		events := stream.until(t, "agent.session.idle")
		want := "turn.created in_progress turn.in_progress turn.item.added(message) turn.item.added(function_call) requires_action " +
			"turn.item.added(function_call_output) turn.item.done(function_call) in_progress turn.item.added(message) " +
			"turn.content_part.added turn.output_text.delta turn.output_text.delta turn.output_text.done turn.content_part.done " +
			"turn.item.done(message) turn.completed idle"
		if got := types(events); got != want {
			t.Errorf("events:\n got %s\nwant %s", got, want)
		}
		seen := map[string]bool{}
		for _, e := range events {
			if eventID := gjson.Get(e, "event_id").String(); eventID == "" || seen[eventID] {
				t.Errorf("event_id %q is missing or repeated", eventID)
			} else {
				seen[eventID] = true
			}
		}
	})
}

// Whatever a GET shows was true at some moment of the last two seconds, and over time it shows every age.
func TestSnapshotsLagButNotBeyondTheirLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opts := agentsim.Kind()
		opts.Lag = 2 * time.Second
		sim, client := serve(t, opts)
		id := sim.CreateSession(agentsim.SessionSpec{})
		steps := []agentsim.Step{{agentsim.Call("f", "{}").WithID("c0")}}
		turn := sim.Play(id, steps...)
		time.Sleep(10 * time.Second) // fake clock
		_ = postEvents(t, client, id, toolResult(turn, "c0", `"success":true,"output":"x"`))
		counts := map[string]int{}
		for range 200 {
			counts[get(t, client, "/v1/agents/sessions/"+id).get("status")]++
			time.Sleep(10 * time.Millisecond) // fake clock
		}
		if counts["requires_action"] < 20 || counts["idle"] < 20 {
			t.Errorf("in two seconds after the result the session showed %v", counts)
		}
		for range 50 {
			if got := get(t, client, "/v1/agents/sessions/"+id).get("status"); got != "idle" {
				t.Fatalf("beyond the lag it shows %s", got)
			}
			time.Sleep(10 * time.Millisecond) // fake clock
		}
	})
}

func TestHostileStreamsRepeatSnapshotsAndReplayPendingCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Hostile())
		id := sim.CreateSession(agentsim.SessionSpec{})
		turn := sim.Play(id, agentsim.Step{agentsim.Call("f", "{}").WithID("c1"), agentsim.Call("f", "{}").WithID("c2")})
		time.Sleep(time.Second) // fake clock
		stream := openStream(t, client, id)
		idle := stream.until(t, "agent.session.idle")
		if len(idle) != 1 {
			t.Errorf("before the old idle came %s", types(idle))
		}
		calls := stream.until(t, "agent.session.turn.item.added")
		calls = append(calls, stream.until(t, "agent.session.turn.item.added")...)
		for i, e := range calls {
			if got, want := gjson.Get(e, "item.call_id").String(), fmt.Sprint("c", i+1); got != want {
				t.Errorf("replayed %s, want %s", got, want)
			}
		}
		_ = postEvents(t, client, id, toolResult(turn, "c1", `"success":true,"output":"x"`))
		lists := map[string]bool{}
		deadline := time.Now().Add(4 * time.Second)
		for time.Now().Before(deadline) {
			e, err := stream.next()
			if err != nil {
				t.Fatal(err)
			}
			if gjson.Get(e, "type").String() == "agent.session.requires_action" {
				lists[gjson.Get(e, "session.required_actions.#.call_id").Raw] = true
			}
			if lists[`["c1","c2"]`] && lists[`["c2"]`] {
				return
			}
		}
		t.Errorf("snapshots listed %v, want the answered call once more and the remaining one", lists)
	})
}

func TestFramingFollowsTheOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		query string
		opts  agentsim.Options
		want  func(raw string) bool
	}{
		{"plain", "", agentsim.Options{}, func(raw string) bool {
			return strings.HasPrefix(raw, `data: {"event_id":"evt_`) && !strings.Contains(raw, "\r") && !strings.Contains(raw, "event:") && strings.HasSuffix(raw, "}\n\n")
		}},
		{"event lines", "", agentsim.Options{EventLine: true}, func(raw string) bool {
			return strings.HasPrefix(raw, "event: agent.session.turn.created\ndata: {")
		}},
		{"CR LF", "", agentsim.Options{CRLF: true}, func(raw string) bool {
			return strings.Count(raw, "\n") == strings.Count(raw, "\r\n")
		}},
		{"type last", "", agentsim.Options{TypeLast: true}, func(raw string) bool {
			return strings.Contains(raw, `"type":"agent.session.idle"}`+"\n\n")
		}},
		{"done", "", agentsim.Options{Done: true}, func(raw string) bool { return strings.HasSuffix(raw, "\n\ndata: [DONE]\n\n") }},
		{"obfuscation", "", agentsim.Options{Obfuscation: true}, func(raw string) bool {
			return strings.Count(raw, `,"obfuscation":"`) == strings.Count(raw, "data: ")
		}},
		{"obfuscation not wanted", "?include_obfuscation=false", agentsim.Options{Obfuscation: true}, func(raw string) bool {
			return !strings.Contains(raw, "obfuscation")
		}},
		{"noise", "", agentsim.Options{Noise: true}, func(raw string) bool {
			return strings.Contains(raw, "unheard_of") && strings.Contains(raw, ": noise\n") && strings.Contains(raw, "turn_of_subagent")
		}},
		{"keep-alive", "", agentsim.Options{KeepAlive: time.Second}, func(raw string) bool { return strings.Contains(raw, ": keep-alive\n\n") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sim, client := serve(t, tt.opts)
				id := sim.CreateSession(agentsim.SessionSpec{})
				got := make(chan answer)
				go func() { got <- get(t, client, "/v1/agents/sessions/"+id+"/events"+tt.query) }()
				if err := sim.WaitStreams(t.Context(), id, 1); err != nil {
					t.Error(err)
				}
				sim.Say(id, "Hello.")
				time.Sleep(3 * time.Second) // fake clock
				sim.Delete(id)
				if raw := (<-got).body; !tt.want(raw) {
					t.Errorf("stream:\n%s", raw)
				}
			})
		})
	}
}

func TestLateHeadersWaitForTheFirstFrame(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			opts := agentsim.Kind()
			opts.LateHeaders = late
			sim, client := serve(t, opts)
			id := sim.CreateSession(agentsim.SessionSpec{})
			before := time.Now()
			time.AfterFunc(5*time.Second, func() { sim.Say(id, "Hello.") })
			openStream(t, client, id).until(t, "agent.session.turn.created")
			openStream(t, client, id)
			want := 5 * time.Second
			if late { // the second stream has no event to wait for, only the comment
				want += opts.KeepAlive
			}
			if got := time.Since(before); got != want {
				t.Errorf("late=%v: both streams were open after %v, want %v", late, got, want)
			}
		})
	}
}

func TestFailedSessionsSayWhyAndTakeNoInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id, result := pending(sim)
		stream := openStream(t, client, id)
		sim.FailTurn(id)
		if got := types(stream.until(t, "agent.session.idle")); got != "error turn.failed idle" {
			t.Errorf("a failed turn sends %s", got)
		}
		turn := sim.Play(id, agentsim.Step{agentsim.Call("f", "{}")})
		queued := sim.Say(id, "Next.")
		stream.until(t, "agent.session.requires_action")
		sim.Fail(id)
		if got := types(stream.until(t, "agent.session.failed")); got != "turn.failed error failed" {
			t.Errorf("a failed session sends %s", got)
		}
		for _, id2 := range []string{turn, queued} {
			if status, err := sim.WaitTurn(t.Context(), id, id2); status != "failed" || err != nil {
				t.Errorf("turn ended %q, %v", status, err)
			}
		}
		session := get(t, client, "/v1/agents/sessions/"+id)
		if session.get("status") != "failed" || session.get("error") == "" || session.get("required_actions.#") != "0" {
			t.Errorf("session = %s", session.body)
		}
		if got := postEvents(t, client, id, result); got.status != 409 {
			t.Errorf("result for it: %d", got.status)
		}
	})
}

func TestQuietStatusListsCallsWhileInProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opts := agentsim.Kind()
		opts.QuietStatus = true
		sim, client := serve(t, opts)
		id, result := pending(sim)
		session := get(t, client, "/v1/agents/sessions/"+id)
		if session.get("status") != "in_progress" || session.get("required_actions.0.call_id") != "c1" {
			t.Errorf("session = %s", session.body)
		}
		if got := postEvents(t, client, id, result); got.status != 202 || sim.Status(id) != "idle" {
			t.Errorf("result: %d, status %s", got.status, sim.Status(id))
		}
	})
}

func TestTurnsQueueAndOldOnesAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Bench())
		id, result := pending(sim)
		second := sim.Say(id, "Second.")
		if got := get(t, client, "/v1/agents/sessions/"+id+"/turns/"+second).get("status"); got != "queued" {
			t.Errorf("the second turn is %s", got)
		}
		_ = postEvents(t, client, id, result)
		if err := sim.WaitIdle(t.Context(), id); err != nil {
			t.Error(err)
		}
		for range 20 {
			sim.Say(id, "More.")
		}
		if n := get(t, client, "/v1/agents/sessions/"+id+"/turns?limit=100").get("data.#"); n != "5" {
			t.Errorf("%s turns are kept, want 4 and the newest", n)
		}
		if sim.ResultCount() != 1 {
			t.Errorf("the count of results is %d", sim.ResultCount())
		}
	})
}

// Over TCP, streams end with the Sim, so that a server shuts down at once.
func TestCloseEndsStreams(t *testing.T) {
	t.Parallel()
	sim := agentsim.New(agentsim.Hostile())
	server := httptest.NewServer(sim)
	defer server.Close()
	id := sim.CreateSession(agentsim.SessionSpec{})
	sim.Play(id, agentsim.Step{agentsim.Call("f", "{}")})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1/agents/sessions/"+id+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sim")
	req.Header.Set("OpenAI-Beta", "agents=v1")
	res, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	sim.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Errorf("the stream ended with %v", err)
	}
}
