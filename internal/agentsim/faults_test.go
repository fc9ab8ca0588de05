package agentsim_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"functionbridge/internal/agentsim"
)

func set(t *testing.T, sim *agentsim.Sim, f agentsim.Fault) {
	t.Helper()
	if err := sim.Fault(f); err != nil {
		t.Fatal(err)
	}
}

// pending starts a session with one call that waits for its result.
func pending(sim *agentsim.Sim) (session, result string) {
	id := sim.CreateSession(agentsim.SessionSpec{})
	turn := sim.Play(id, agentsim.Step{agentsim.Call("f", "{}").WithID("c1")})
	return id, toolResult(turn, "c1", `"success":true,"output":"x"`)
}

func TestStatusFaultsStrikeAsOftenAsToldAndNothingHappens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id, result := pending(sim)
		other, otherResult := pending(sim)
		set(t, sim, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.PostEvents, SessionID: id, Skip: 0, Count: 2, Status: 429, RetryAfter: "7"})
		if got := postEvents(t, client, other, otherResult); got.status != 202 {
			t.Errorf("the other session is struck: %d", got.status)
		}
		for range 2 {
			if got := postEvents(t, client, id, result, "Idempotency-Key: k"); got.status != 429 || got.header.Get("Retry-After") != "7" {
				t.Errorf("got %d, Retry-After %q", got.status, got.header.Get("Retry-After"))
			}
		}
		if len(sim.Results(id)) != 0 {
			t.Error("a refused result took effect")
		}
		if got := postEvents(t, client, id, result, "Idempotency-Key: k"); got.status != 202 || len(sim.Results(id)) != 1 {
			t.Errorf("after the fault: %d, %d results", got.status, len(sim.Results(id)))
		}
	})
}

// Every kind in the help can be set as it says there, and no constant is left out.
func TestFaultHelpListsEveryKindThatCanBeSet(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("faults.go")
	if err != nil {
		t.Fatal(err)
	}
	sim, client := serve(t, agentsim.Kind())
	constants := regexp.MustCompile(`(?m)^\tFault\w+ +FaultKind = "(\w+)"`).FindAllSubmatch(source, -1)
	listed := regexp.MustCompile(`(?m)^    (\w+)  +\S`).FindAllStringSubmatch(agentsim.FaultHelp(), -1)
	if len(constants) < 19 || len(listed) != len(constants) {
		t.Fatalf("%d kinds, %d are listed", len(constants), len(listed))
	}
	for _, constant := range constants {
		kind := string(constant[1])
		alone := regexp.MustCompile(`(?m)^    ` + kind + ` +(\w+) alone: `).FindStringSubmatch(agentsim.FaultHelp())
		fault, wrong := `{"kind":"`+kind+`","on":"list_turns"}`, 204
		if alone != nil {
			wrong = 400
			if got := request(t, client, http.MethodPost, "/_sim/faults", `{"kind":"`+kind+`","on":"`+alone[1]+`"}`); got.status != 204 {
				t.Errorf("%s on %s: %d %s", kind, alone[1], got.status, got.body)
			}
		}
		if got := request(t, client, http.MethodPost, "/_sim/faults", fault); got.status != wrong {
			t.Errorf("%s on list_turns: %d, want %d", kind, got.status, wrong)
		}
	}
	sim.ClearFaults()
}

func TestUnknownFaultsAreToldWithTheKnownOnes(t *testing.T) {
	t.Parallel()
	_, client := serve(t, agentsim.Kind())
	for fault, want := range map[string]string{
		`{"kind":"explode"}`: "unknown fault 'explode'; one of status, html, drop, hang, delay, lost_reply, forget, mute, stale, cut, eof, ",
		`{"on":"get_agent"}`: "the kind of the fault is missing; one of status, html, ",
		`{"kind":"status"}`:  "fault status: on is missing; one of create_session, ",
	} {
		got := request(t, client, http.MethodPost, "/_sim/faults", fault)
		if message := strings.ReplaceAll(gjson.Get(got.body, "error.message").String(), `"`, "'"); got.status != 400 || !strings.HasPrefix(message, want) {
			t.Errorf("%s: %d %s", fault, got.status, message)
		}
	}
}

func TestFaultWithADurationLapses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id, _ := pending(sim)
		set(t, sim, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.GetSession, For: time.Minute, Status: 503, Body: "<html>bad gateway"})
		for range 5 {
			if got := get(t, client, "/v1/agents/sessions/"+id); got.status != 503 || got.body != "<html>bad gateway" {
				t.Errorf("within the minute: %d %s", got.status, got.body)
			}
		}
		time.Sleep(time.Minute + time.Second) // fake clock
		if got := get(t, client, "/v1/agents/sessions/"+id); got.status != 200 {
			t.Errorf("after it: %d", got.status)
		}
	})
}

func TestLostReplyTakesEffectAndAnswersNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id, result := pending(sim)
		set(t, sim, agentsim.Fault{Kind: agentsim.FaultLostReply, On: agentsim.PostEvents})
		if got := postEvents(t, client, id, result, "Idempotency-Key: k", "Expect: "); got.err == nil {
			t.Errorf("answered %d", got.status)
		}
		if got := sim.Results(id); len(got) != 1 {
			t.Fatalf("results = %+v", got)
		}
		if got := postEvents(t, client, id, result, "Idempotency-Key: k"); got.status != 202 {
			t.Errorf("the same key again: %d %s", got.status, got.body)
		}
		if got := postEvents(t, client, id, result); got.status != 400 {
			t.Errorf("without the key: %d", got.status)
		}
	})
}

func TestForgottenResultsAreAcceptedAndNeverLand(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			sim, client := serve(t, agentsim.Kind())
			id, result := pending(sim)
			set(t, sim, agentsim.Fault{Kind: agentsim.FaultForget, On: agentsim.PostEvents, KeepKey: keep})
			_ = postEvents(t, client, id, result, "Idempotency-Key: k")
			if got := sim.Pending(id); len(got) != 1 || len(sim.Results(id)) != 0 {
				t.Fatalf("pending %v, results %v", got, sim.Results(id))
			}
			got := postEvents(t, client, id, result, "Idempotency-Key: k")
			if landed := len(sim.Results(id)) == 1; got.status != 202 || landed == keep {
				t.Errorf("keep_key=%v: the same key again: %d, landed %v", keep, got.status, landed)
			}
			if keep {
				_ = postEvents(t, client, id, result, "Idempotency-Key: k2")
			}
			if got := sim.Results(id); len(got) != 1 || len(got[0].Posts) < 2 {
				t.Errorf("keep_key=%v: results %+v", keep, got)
			}
		})
	}
}

func TestStaleSessionIsTheOneOfWhenTheFaultWasSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id, result := pending(sim)
		set(t, sim, agentsim.Fault{Kind: agentsim.FaultStale, On: agentsim.GetSession, SessionID: id, Count: 2})
		_ = postEvents(t, client, id, result)
		for i, want := range []string{"requires_action 1", "requires_action 1", "idle 0"} {
			got := get(t, client, "/v1/agents/sessions/"+id)
			if state := got.get("status") + " " + got.get("required_actions.#"); state != want {
				t.Errorf("read %d: %s, want %s", i, state, want)
			}
		}
	})
}

func TestFaultsOfRequestsThatGetNoAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id, _ := pending(sim)
		path := "/v1/agents/sessions/" + id
		set(t, sim, agentsim.Fault{Kind: agentsim.FaultDrop, On: agentsim.UpdateSession})
		if got := request(t, client, http.MethodPost, path, `{"metadata":{"a":"b"}}`); got.err == nil {
			t.Errorf("drop: %d", got.status)
		}
		set(t, sim, agentsim.Fault{Kind: agentsim.FaultHTML, On: agentsim.OpenStream})
		if got := get(t, client, path+"/events"); got.status != 200 || got.header.Get("Content-Type") != "text/html" {
			t.Errorf("html: %d %v", got.status, got.header)
		}
		set(t, sim, agentsim.Fault{Kind: agentsim.FaultDelay, On: agentsim.GetSession, Delay: time.Hour})
		before := time.Now()
		if got := get(t, client, path); got.status != 200 || time.Since(before) != time.Hour {
			t.Errorf("delay: %d after %v", got.status, time.Since(before))
		}
		set(t, sim, agentsim.Fault{Kind: agentsim.FaultHang, On: agentsim.GetSession})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://sim"+path, nil)
		req.Header.Set("Authorization", "Bearer sim")
		req.Header.Set("OpenAI-Beta", "agents=v1")
		if _, err := client.Do(req); !errors.Is(err, context.DeadlineExceeded) { //nolint:bodyclose // there is none
			t.Errorf("hang: %v", err)
		}
		set(t, sim, agentsim.Fault{Kind: agentsim.FaultMute, On: agentsim.OpenStream})
		stream := openStream(t, client, id)
		sim.Cancel(id)
		if data, err := stream.next(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("mute stream brought %q, %v", data, err)
		}
	})
}

func TestStreamFaultsStrikeOpenStreams(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind  agentsim.FaultKind
		first string // type or text of what the stream brings next
		err   error  // how it ends then; nil: it goes on with the turn's end
	}{
		{agentsim.FaultCut, "", io.ErrUnexpectedEOF},
		{agentsim.FaultEOF, "", io.EOF},
		{agentsim.FaultSilence, "", context.DeadlineExceeded},
		{agentsim.FaultDuplicate, "agent.session.requires_action", nil},
		{agentsim.FaultError, "error", nil},
		{agentsim.FaultMalformed, `{"event_id":"evt_bad","type":`, nil},
		{agentsim.FaultEmptyData, "", nil},
		{agentsim.FaultLongLine, "agent.session.turn.long", nil},
		{agentsim.FaultComment, "agent.session.turn.cancelled", nil},
		{agentsim.FaultErrorNull, "agent.session.turn.cancelled", nil},
	} {
		t.Run(string(tt.kind), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sim, client := serve(t, agentsim.Kind())
				id := sim.CreateSession(agentsim.SessionSpec{})
				stream := openStream(t, client, id)
				sim.Play(id, agentsim.Step{agentsim.Call("f", "{}").WithID("c1")})
				events := stream.until(t, "agent.session.requires_action")
				set(t, sim, agentsim.Fault{Kind: tt.kind, SessionID: id})
				sim.Cancel(id)
				data, err := stream.next()
				if tt.err != nil {
					if !errors.Is(err, tt.err) || strings.Contains(data, "cancelled") {
						t.Errorf("stream brought %q, %v; want %v", data, err, tt.err)
					}
					return
				}
				if err != nil || (gjson.Get(data, "type").String() != tt.first && data != tt.first) {
					t.Fatalf("stream brought %.100q, %v; want %s", data, err, tt.first)
				}
				if tt.kind == agentsim.FaultDuplicate && data != events[len(events)-1] {
					t.Errorf("the duplicate differs: %s", data)
				}
				if got := gjson.Get(data, "error").Raw; tt.kind == agentsim.FaultErrorNull && got != "null" {
					t.Errorf("error = %q", got)
				}
				if tt.kind == agentsim.FaultLongLine && len(data) < 1<<20 {
					t.Errorf("the long line has %d bytes", len(data))
				}
				stream.until(t, "agent.session.idle")
			})
		})
	}
}

func TestStreamFaultsWaitForTheirEventAndScriptsPlaceThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id := sim.CreateSession(agentsim.SessionSpec{})
		set(t, sim, agentsim.Fault{Kind: agentsim.FaultEOF, SessionID: id, After: 2})
		stream := openStream(t, client, id)
		sim.Play(id,
			agentsim.Step{agentsim.Mishap(agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.GetSession, Status: 404}), agentsim.Call("f", "{}")})
		var events []string
		for {
			data, err := stream.next()
			if err != nil {
				break
			}
			events = append(events, data)
		}
		if got := types(events); got != "turn.created in_progress" {
			t.Errorf("before the end came %s", got)
		}
		if got := get(t, client, "/v1/agents/sessions/"+id); got.status != 404 {
			t.Errorf("the step's fault did not strike: %d", got.status)
		}
	})
}

func TestControlEndpointsSetAndShow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		id, result := pending(sim)
		post := func(path, body string) answer {
			return request(t, client, http.MethodPost, path, body, "Authorization: ")
		}

		fault := `[{"kind":"status","on":"get_session","status":503,"count":2,"for":"1m"},{"kind":"eof","session_id":"` + id + `"}]`
		if got := post("/_sim/faults", fault); got.status != 204 {
			t.Errorf("set faults: %d %s", got.status, got.body)
		}
		if got := get(t, client, "/v1/agents/sessions/"+id); got.status != 503 {
			t.Errorf("the fault does not strike: %d", got.status)
		}
		want := `{"faults":[{"kind":"status","on":"get_session","count":1,"for":"1m0s","status":503}]}`
		if got := get(t, client, "/_sim/faults"); strings.TrimSpace(got.body) != want {
			t.Errorf("faults = %s, want %s", got.body, want)
		}
		if got := request(t, client, http.MethodDelete, "/_sim/faults", ""); got.status != 204 {
			t.Errorf("clear: %d", got.status)
		}
		for _, bad := range []string{``, `{}`, `{"kind":"status"}`, `{"kind":"status","on":"x"}`, `{"kind":"eof","x":1}`, `{"kind":"eof","session_id":"nope"}`, `{"kind":"forget","on":"get_session"}`, `{"kind":"stale","for":"soon"}`} {
			if got := post("/_sim/faults", bad); got.status != 400 {
				t.Errorf("fault %s: %d", bad, got.status)
			}
		}
		_ = postEvents(t, client, id, result, "Idempotency-Key: k<&>")
		results := get(t, client, "/_sim/results?session_id="+id)
		if results.get("results.#") != "1" || results.get("results.0.output") != "x" || !strings.Contains(results.body, `"idempotency_key":"k<&>"`) {
			t.Errorf("results = %s", results.body)
		}
		requests := get(t, client, "/_sim/requests")
		if requests.get("requests.post_events") != "1" || requests.get("requests.get_session") != "1" || requests.get("state.results") != "1" {
			t.Errorf("requests = %s", requests.body)
		}
		if got := post("/_sim/sessions/"+id+"/fail", ""); got.status != 204 || sim.Status(id) != "failed" {
			t.Errorf("fail: %d, status %s", got.status, sim.Status(id))
		}
		if got := post("/_sim/nothing", ""); got.status != 404 {
			t.Errorf("unknown control path: %d", got.status)
		}
	})
}
