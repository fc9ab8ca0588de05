package session

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"functionbridge/internal/journal"
)

// What is read here by hand is read again with gjson: slower, in a pass for each question, and by other people.

// plainSnapshot is parseSnapshot.
func plainSnapshot(raw string, fresh bool) (s snapshot, ok bool) {
	if !gjson.Valid(raw) {
		return s, false
	}
	gjson.Parse(raw).ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "id":
			s.session.ID = value.Str
		case "status":
			s.status = value.Str
		case "agent":
			s.session.AgentID, s.tools = value.Get("id").Str, nil
			if fresh {
				s.tools = []byte(value.Get("tools").Raw)
			}
		case "metadata":
			s.session.Metadata = plainMetadata(value)
		case "required_actions":
			s.calls = plainCalls(value)
		}
		return true
	})
	for i := range s.calls {
		s.calls[i].key.SessionID = s.session.ID
	}
	return s, s.session.ID != "" && s.status != ""
}

func plainMetadata(object gjson.Result) map[string]string {
	m := map[string]string{}
	if object.IsObject() {
		object.ForEach(func(key, value gjson.Result) bool {
			m[key.Str] = value.String()
			return true
		})
	}
	return m
}

func plainCalls(list gjson.Result) (calls []action) {
	if !list.IsArray() {
		return nil
	}
	list.ForEach(func(_, entry gjson.Result) bool {
		var a action
		kind := ""
		entry.ForEach(func(key, value gjson.Result) bool {
			switch key.Str {
			case "type":
				kind = value.Str
			case "turn_id":
				a.key.TurnID = value.Str
			case "call_id":
				a.key.CallID = value.Str
			case "name":
				a.function = value.Str
			case "arguments":
				a.arguments = []byte(value.Raw)
			}
			return true
		})
		if kind == "function_call" && a.key.TurnID != "" && a.key.CallID != "" {
			calls = append(calls, a)
		}
		return true
	})
	return calls
}

// plainEvent is parseEvent, of JSON.
func plainEvent(text string) event {
	switch kind := gjson.Get(text, "type").Str; kind {
	case "agent.session.created", "agent.session.in_progress", "agent.session.idle", "agent.session.requires_action", "agent.session.failed":
		if session := gjson.Get(text, "session"); session.IsObject() {
			return event{kind: eventSnapshot, session: []byte(session.Raw)}
		}
		return event{kind: eventGarbled}
	case "agent.session.turn.item.added":
		return plainItem(text)
	case "agent.session.turn.completed", "agent.session.turn.failed", "agent.session.turn.cancelled":
		return event{kind: eventTurnEnded, turnID: gjson.Get(text, "turn_id").Str}
	case "error":
		return event{kind: eventError}
	case "":
		return withoutType([]byte(text))
	default:
		if isNoise(kind) {
			return event{}
		}
		return event{kind: eventUnknown}
	}
}

func plainItem(text string) event {
	it := gjson.Get(text, "item")
	turnID, callID := it.Get("turn_id").Str, it.Get("call_id").Str
	if turnID == "" {
		turnID = gjson.Get(text, "turn_id").Str
	}
	switch it.Get("type").Str {
	case "function_call_output":
		return event{kind: eventOutput, turnID: turnID, callID: callID}
	case "function_call":
		return event{kind: eventCall, call: action{
			key: journal.Key{TurnID: turnID, CallID: callID}, function: it.Get("name").Str, arguments: []byte(it.Get("arguments").Raw),
		}}
	}
	return event{}
}

func sameAction(a, b action) bool {
	return a.key == b.key && a.function == b.function && string(a.arguments) == string(b.arguments)
}

func sameSession(a, b journal.Session) bool {
	return a.ID == b.ID && a.AgentID == b.AgentID && maps.Equal(a.Metadata, b.Metadata)
}

// sameSnapshot reads a text both ways, with and without something from before.
func sameSnapshot(t *testing.T, raw, wanted []byte, fresh bool) {
	t.Helper()
	want, ok := plainSnapshot(string(wanted), fresh)
	for _, previous := range []journal.Session{
		{},
		{ID: "s", AgentID: "a", Metadata: map[string]string{"k": "v"}},
		{ID: strings.Clone(want.session.ID), AgentID: strings.Clone(want.session.AgentID), Metadata: maps.Clone(want.session.Metadata)},
	} {
		got, err := parseSnapshot(raw, time.Time{}, fresh, previous)
		if (err == nil) != ok {
			t.Fatalf("%q: %v, want that it is read: %v", raw, err, ok)
		}
		if !ok {
			return
		}
		if !sameSession(got.session, want.session) || got.status != want.status || string(got.tools) != string(want.tools) {
			t.Fatalf("%q is read as %+v, want %+v", raw, got, want)
		}
		if len(got.calls) != len(want.calls) {
			t.Fatalf("%q has %d calls, want %d", raw, len(got.calls), len(want.calls))
		}
		for i, a := range got.calls {
			if !sameAction(a, want.calls[i]) || !sameAction(a.clone(), a) {
				t.Fatalf("%q: call %d is %+v, want %+v", raw, i, a, want.calls[i])
			}
		}
	}
}

func FuzzSnapshotIsReadAsGJSONReadsIt(f *testing.F) {
	for _, seed := range hardTexts() {
		f.Add([]byte(seed), true)
		f.Add([]byte(`{"id":"s","status":"idle","agent":{"id":"a","tools":`+seed+`},"metadata":{"k":"v","x":`+seed+`},"required_actions":[`+seed+
			`,{"type":"function_call","turn_id":"t","call_id":"c","name":"f","arguments":`+seed+`}]}`), false)
	}
	for _, e := range callEvents() {
		f.Add([]byte(gjson.Get(e, "session").Raw), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, fresh bool) {
		if !fresh && !gjson.ValidBytes(raw) {
			return // further members may follow
		}
		sameSnapshot(t, raw, raw, fresh)
	})
}

func FuzzEventIsReadAsGJSONReadsIt(f *testing.F) {
	for _, seed := range append(hardTexts(), callEvents()...) {
		f.Add([]byte(seed))
		f.Add([]byte(`{"turn_id":"t","item":` + seed + `,"session":` + seed + `,"type":"agent.session.turn.item.added"}`))
		f.Add([]byte(`{"type":"agent.session.idle","session":` + seed + `,"x":` + seed + `,"session":{}}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, want := parseEvent(data), plainEvent(string(data))
		if !gjson.ValidBytes(data) {
			// What is garbled leads to a read of the session, and so does a session that cannot be read.
			if got.kind != want.kind && got.kind != eventGarbled {
				t.Fatalf("%q is of the kind %d, want %d", data, got.kind, want.kind)
			}
			return
		}
		if got.kind != want.kind || got.turnID != want.turnID || got.callID != want.callID || !sameAction(got.call, want.call) {
			t.Fatalf("%q is read as %+v, want %+v", data, got, want)
		}
		if got.kind == eventSnapshot {
			sameSnapshot(t, got.session, want.session, false)
		}
	})
}

// hardTexts are JSON and what is nearly JSON.
func hardTexts() []string {
	return []string{
		`null`, `true`, `false`, `0`, `-0`, `1.5e+3`, `1E9`, `-`, `01`, `1.`, `.5`, `1e`, `+1`, `tru`, `nulll`, `NaN`, `"`, `""`, `"\"`, `"\\"`,
		`"\u00e9\ud83d\ude00\ud800"`, `"\u12g4"`, `"\x"`, "\"\x1f\"", "\"\x7f\"", "\"\xff\xc3\"", "\"a\x00\"", `"1234567"`, `"12345678"`, `"123456789\n"`,
		`"!!!!!!!"`, `"        "`, `"########"`, `"[[[[[[[["`, `[]`, `[,]`, `[1,]`, `[1 2]`, `[1]]`, `[[[]]]`, `[}`, `{]`, `{}`, `{"a"}`, `{"a":}`, `{"a":1,}`,
		`{"a":1 "b":2}`, `{,}`, `{a:1}`, `{"a":1,"a":2}`, ` { "a" : [ 1 , { } ] } `, "\t\n\r{}", "\v{}", "\u00a0{}", "\ufeff{}",
		`{"type":1,"type":"function_call","turn_id":"","call_id":null,"call_id":"c","name":"f","name":"g","arguments":1,"arguments":{}}`,
		`{"\u0069d":"s","status":"\u0069dle","id":"t","metadata":{"\u006b":"\n","k":1.10,"n":1e3,"o":{"a":[]},"t":true,"z":null},"agent":{"id":1,"id":"a"}}`,
		`{"\u0074ype":"function_call_output","call_id":"c\u0031"}`, `{"item":{"type":"function_call"},"type":"agent.session.turn.item.added"}`,
	}
}

// A quote, a backslash and every control character end the plain part of a string, wherever in it they stand.
func TestStringIsCheckedByteByByte(t *testing.T) {
	t.Parallel()
	for length := range 40 {
		for at := range length {
			for b := range 256 {
				text := []byte(`"` + strings.Repeat("x", length) + `"`)
				text[at+1] = byte(b)
				for _, behind := range []string{"", " , and so on"} {
					all := append(slices.Clip(text), behind...)
					end, _ := jsonText(all).quoted(0)
					want := len(text)
					switch {
					case b == '"':
						want = at + 2
					case b < ' ':
						want = notThere
					case b == '\\': // what is behind it is no escape, but for the quote at the end
						want = notThere
						if at == length-1 {
							continue
						}
					}
					if end != want {
						t.Fatalf("%q ends at %d, want %d", all, end, want)
					}
				}
			}
		}
	}
}

func TestDepthIsThatOfTheWholeSession(t *testing.T) {
	t.Parallel()
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	call := func(arguments string) []byte {
		return []byte(`{"id":"s","status":"idle","required_actions":[{"type":"function_call","turn_id":"t","call_id":"c","arguments":` + arguments + `}]}`)
	}
	if s, err := parseSnapshot(call(nested(maxDepth-3)), time.Time{}, true, journal.Session{}); err != nil || len(s.calls) != 1 {
		t.Errorf("a session of %d levels gives %v", maxDepth, err)
	}
	if _, err := parseSnapshot(call(nested(maxDepth-2)), time.Time{}, true, journal.Session{}); !errors.Is(err, errTooDeepToRead) {
		t.Errorf("a session of %d levels gives %v, want that it is too deep", maxDepth+1, err)
	}
	deep := parseEvent([]byte(`{"x":` + nested(20_000_000) + `,"type":"agent.session.idle","session":{}}`))
	if deep.kind != eventGarbled {
		t.Errorf("an event of 20 million levels is %+v, want that it is garbled", deep)
	}
}

// What most snapshots bring is known.
func TestUnchangedSnapshotIsReadWithoutACopy(t *testing.T) {
	raw := []byte(`{"id":"s","status":"in_progress","agent":{"id":"a"},"metadata":{"k":"v","l":"w"},"required_actions":[]}`)
	first, err := parseSnapshot(raw, time.Time{}, false, journal.Session{})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = parseSnapshot(raw, time.Time{}, false, first.session) }); n != 0 {
		t.Errorf("it takes %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { parseEvent([]byte(outputEvent)) }); n > 1 { // the bytes themselves
		t.Errorf("an output takes %v allocations", n)
	}
}

// A follower reads the next event into the bytes of this one.
func TestSnapshotOutlivesItsBytes(t *testing.T) {
	t.Parallel()
	raw := []byte(`{"id":"s","status":"odd","agent":{"id":"a","tools":[1]},"metadata":{"k":"v"},"required_actions":[{"type":"function_call",` +
		`"turn_id":"t","call_id":"c","name":"f","arguments":{"a":1}}]}`)
	want, _ := plainSnapshot(string(raw), true)
	got, err := parseSnapshot(raw, time.Time{}, true, journal.Session{})
	if err != nil {
		t.Fatal(err)
	}
	call := got.calls[0].clone()
	clear(raw)
	if !sameSession(got.session, want.session) || got.status != want.status || string(got.tools) != string(want.tools) || !sameAction(call, want.calls[0]) {
		t.Errorf("it became %+v, want %+v", got, want)
	}
}

func TestWhatStandsBehindASessionIsOfTheEvent(t *testing.T) {
	t.Parallel()
	event := parseEvent([]byte(`{"type":"agent.session.idle","session":{"id":"s","status":"idle"} , "x":{"y":1}} `))
	if s, err := parseSnapshot(event.session, time.Time{}, false, journal.Session{}); err != nil || s.session.ID != "s" {
		t.Errorf("%q is read as %+v (%v), want the session s", event.session, s, err)
	}
	for _, behind := range []string{`,"x":1`, `}`, `{}`, `x`, `"`} {
		if _, err := parseSnapshot([]byte(`{"id":"s","status":"idle"}`+behind), time.Time{}, true, journal.Session{}); !errors.Is(err, errNotASession) {
			t.Errorf("an answer with %q behind the session gives %v", behind, err)
		}
	}
}
