package session

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"functionbridge/internal/journal"
)

func TestSnapshotListsFunctionCallsAndNothingElse(t *testing.T) {
	t.Parallel()
	raw := `{"id":"s","status":"in_progress","agent":{"id":"a"},"metadata":{"k":"v"},"new":1,"required_actions":[
		{"type":"environment_connection","environment_id":"e"},
		{"type":"computer_use_approval_request","turn_id":"t","request_id":"r","request":{}},
		{"type":"mcp_approval_request","turn_id":"t","call_id":"c0","name":"f","arguments":{}},
		{"extra":{"type":"x"},"type":"function_call","turn_id":"t","call_id":"c1","name":"f","arguments":{"b": 9007199254740993, "a":1.10}},
		{"type":"function_call","turn_id":"t","call_id":"c2","name":"g","arguments":"{\"a\":1}"},
		{"type":"function_call","turn_id":"t","call_id":"c3","name":"h"}]}`
	s, err := parseSnapshot([]byte(raw), time.Now(), true, journal.Session{})
	if err != nil {
		t.Fatal(err)
	}
	if s.session.AgentID != "a" || s.session.Metadata["k"] != "v" || s.status != "in_progress" {
		t.Errorf("session is %+v, status %q", s.session, s.status)
	}
	want := []action{
		{journal.Key{SessionID: "s", TurnID: "t", CallID: "c1"}, "f", []byte(`{"b": 9007199254740993, "a":1.10}`)},
		{journal.Key{SessionID: "s", TurnID: "t", CallID: "c2"}, "g", []byte(`"{\"a\":1}"`)},
		{journal.Key{SessionID: "s", TurnID: "t", CallID: "c3"}, "h", nil},
	}
	if len(s.calls) != len(want) {
		t.Fatalf("calls are %+v, want %d of them", s.calls, len(want))
	}
	for i, a := range s.calls {
		if a.key != want[i].key || a.function != want[i].function || string(a.arguments) != string(want[i].arguments) {
			t.Errorf("call %d is %+v (%s), want %+v", i, a, a.arguments, want[i])
		}
	}
}

func TestWhatIsNoSessionIsRefused(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{``, `null`, `[]`, `{"id":"s"}`, `{"status":"idle"}`, `{"id":"s","status":"idle"`, `<html>`} {
		if s, err := parseSnapshot([]byte(raw), time.Now(), true, journal.Session{}); err == nil {
			t.Errorf("%q was taken for the session %+v", raw, s)
		}
	}
}

func TestSessionNestedBeyondTheStackIsRefused(t *testing.T) {
	t.Parallel()
	nested := func(n int) []byte {
		return []byte(`{"id":"s","status":"idle","x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`)
	}
	if _, err := parseSnapshot(nested(maxDepth-1), time.Now(), true, journal.Session{}); err != nil {
		t.Errorf("a session of %d levels is refused: %v", maxDepth, err)
	}
	if _, err := parseSnapshot(nested(20_000_000), time.Now(), true, journal.Session{}); !errors.Is(err, errTooDeepToRead) {
		t.Errorf("a session of 20 million levels gives %v, want that it is too deep", err)
	}
	quoted := []byte(`{"id":"s","status":"idle","x":"\\\"` + strings.Repeat("[", 2*maxDepth) + `"}`)
	if _, err := parseSnapshot(quoted, time.Now(), true, journal.Session{}); err != nil {
		t.Errorf("brackets in a string are counted: %v", err)
	}
}

func TestEventsAreKnownByTheirType(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data string
		want event
	}{
		"text":               {`{"type":"agent.session.turn.output_text.delta","delta":"\"type\":\"error\""}`, event{kind: eventNoise}},
		"type at the end":    {`{"event_id":"e","session":{"type":"x"},"type":"agent.session.idle"}`, event{kind: eventSnapshot, session: []byte(`{"type":"x"}`)}},
		"error member null":  {`{"error":null,"type":"agent.session.idle","session":{}}`, event{kind: eventSnapshot, session: []byte(`{}`)}},
		"error event":        {`{"type":"error","error":{"code":"stream_interrupted"}}`, event{kind: eventError}},
		"output":             {`{"type":"agent.session.turn.item.added","turn_id":"t","item":{"type":"function_call_output","call_id":"c","turn_id":"t"}}`, event{kind: eventOutput, turnID: "t", callID: "c"}},
		"output by envelope": {`{"type":"agent.session.turn.item.added","turn_id":"t","item":{"type":"function_call_output","call_id":"c"}}`, event{kind: eventOutput, turnID: "t", callID: "c"}},
		"call":               {`{"type":"agent.session.turn.item.added","turn_id":"t","item":{"type":"function_call","call_id":"c"}}`, event{kind: eventCall}},
		"message":            {`{"type":"agent.session.turn.item.added","turn_id":"t","item":{"type":"message"}}`, event{kind: eventNoise}},
		"turn end":           {`{"type":"agent.session.turn.cancelled","turn_id":"t","turn":{}}`, event{kind: eventTurnEnded, turnID: "t"}},
		"unknown":            {`{"type":"agent.session.future_thing"}`, event{kind: eventUnknown}},
		"unknown of a turn":  {`{"type":"agent.session.turn.future_thing"}`, event{kind: eventNoise}},
		"empty":              {` `, event{kind: eventEmpty}},
		"done":               {`[DONE]`, event{kind: eventNoise}},
		"not JSON":           {`: keepalive`, event{kind: eventGarbled}},
		"cut JSON":           {`{"event_id":"e","type`, event{kind: eventGarbled}},
		"no session":         {`{"type":"agent.session.idle"}`, event{kind: eventGarbled}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := parseEvent([]byte(c.data))
			if got.kind != c.want.kind || got.turnID != c.want.turnID || got.callID != c.want.callID || string(got.session) != string(c.want.session) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"type":"agent.session.requires_action","session":{"id":"s","status":"idle","required_actions":[{"type":"function_call"}]}}`))
	f.Add([]byte(`{"type":"agent.session.turn.item.added","item":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e := parseEvent(data)
		if e.kind != eventSnapshot {
			return
		}
		s, err := parseSnapshot(e.session, time.Now(), false, journal.Session{})
		if err != nil {
			return
		}
		for _, a := range s.calls {
			if a.arguments != nil && !json.Valid(a.arguments) {
				t.Fatalf("arguments %q are no JSON", a.arguments)
			}
		}
	})
}

func TestResultBodyIsOneToolResult(t *testing.T) {
	t.Parallel()
	key := journal.Key{SessionID: "s", TurnID: "t", CallID: "c"}
	for name, c := range map[string]struct {
		outcome journal.Outcome
		want    string
	}{
		"text":         {journal.Success("{\"a\":1}\x00<&>\u2028é"), `{"type":"agent.session.input.tool_result","turn_id":"t","call_id":"c","success":true,"output":"{\"a\":1}\u0000<&>\u2028é"}`},
		"empty text":   {journal.Success(""), `{"type":"agent.session.input.tool_result","turn_id":"t","call_id":"c","success":true,"output":""}`},
		"content":      {journal.Outcome{Success: true, Content: true, Output: `[{"type":"input_text","text":"x"}]`}, `{"type":"agent.session.input.tool_result","turn_id":"t","call_id":"c","success":true,"output":[{"type":"input_text","text":"x"}]}`},
		"failure":      {journal.Failure(journal.Timeout, "No."), `{"type":"agent.session.input.tool_result","turn_id":"t","call_id":"c","success":false,"error":"No."}`},
		"broken parts": {journal.Outcome{Success: true, Content: true, Output: `[`}, `{"type":"agent.session.input.tool_result","turn_id":"t","call_id":"c","success":false,"error":"The function f gave a result that cannot be passed on. It was carried out; do not call it again."}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got, want any
			body := resultBody(journal.Call{Key: key, Function: "f", Outcome: c.outcome})
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			if err := json.Unmarshal([]byte(`{"events":[`+c.want+`]}`), &want); err != nil {
				t.Fatal(err)
			}
			if g, w := mustJSON(t, got), mustJSON(t, want); g != w {
				t.Errorf("got %s, want %s", g, w)
			}
		})
	}
}

// The API limits what is posted, so nothing is escaped that need not be.
func TestResultBodyIsHardlyLargerThanTheOutput(t *testing.T) {
	t.Parallel()
	output := strings.Repeat("<a href=/?x=1&y=2>é</a> ", 1000)
	for name, outcome := range map[string]journal.Outcome{
		"text":    journal.Success(output),
		"content": {Success: true, Content: true, Output: `[{"type":"input_text","text":"` + output + `"}]`},
	} {
		body := resultBody(journal.Call{Key: journal.Key{SessionID: "s", TurnID: "t", CallID: "c"}, Function: "f", Outcome: outcome})
		if most := len(outcome.Output) + len(outcome.Output)/4; len(body) > most {
			t.Errorf("%s: the body has %d bytes, want at most %d", name, len(body), most)
		}
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	var b strings.Builder
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
