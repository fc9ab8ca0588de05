package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"functionbridge/internal/journal"
)

// What a call of a function brings on the stream of its session, in order.
const (
	outputEvent = `{"event_id":"evt_00000010","type":"agent.session.turn.item.added","session_id":"sess_00000001","turn_id":"turn_00000002",` +
		`"output_index":null,"item":{"type":"function_call_output","id":"fco_0000000f","turn_id":"turn_00000002","call_id":"call_0000000c",` +
		`"status":"completed","output":"x","error":null}}`
	doneEvent = `{"event_id":"evt_00000011","type":"agent.session.turn.item.done","session_id":"sess_00000001","turn_id":"turn_00000002",` +
		`"output_index":null,"item":{"type":"function_call_output","id":"fco_0000000f","turn_id":"turn_00000002","call_id":"call_0000000c",` +
		`"status":"completed","output":"x","error":null}}`
	callEvent = `{"event_id":"evt_00000013","type":"agent.session.turn.item.added","session_id":"sess_00000001","turn_id":"turn_00000002",` +
		`"output_index":1,"item":{"type":"function_call","id":"fc_00000013","turn_id":"turn_00000002","call_id":"call_00000014",` +
		`"status":"completed","name":"f","arguments":{"a":1}}}`
)

// sessionEvent is an event that brings a session, with so much said to the agent and so many required actions.
func sessionEvent(status, instructions, actions string) string {
	return `{"event_id":"evt_00000016","type":"agent.session.` + status + `","session":{"id":"sess_00000001","object":"agent.session",` +
		`"agent":{"id":"agent_bench","instructions":"` + instructions + `","model":"gpt-simulated","multi_agent":{"enabled":false,` +
		`"max_concurrent_subagents":null},"name":null,"reasoning":{"effort":"medium","summary":null},"service_tier":"auto",` +
		`"text":{"format":{"type":"text"},"verbosity":"medium"},"compaction":{"async":true},"experimental":{"time_awareness":false},"tools":[]},` +
		`"created_at":1796008093,"environment":{"type":"none"},"metadata":{},"usage":null,"vault_ids":[],"status":"` + status + `","error":null,` +
		`"last_active_at":1796008093,"required_actions":[` + actions + `]}}`
}

const requiredAction = `{"type":"function_call","turn_id":"turn_00000002","call_id":"call_00000014","name":"f","arguments":{"a":1}}`

// callEvents are the events that one call brings.
func callEvents() []string {
	return []string{
		outputEvent, doneEvent, sessionEvent("in_progress", "", ""), callEvent, sessionEvent("requires_action", "", requiredAction),
	}
}

// BenchmarkEvents reads the events of one call, without what is done about them and with the reader of the stream.
func BenchmarkEvents(b *testing.B) {
	b.Run("what=parse", func(b *testing.B) {
		size, events := 0, [][]byte{}
		for _, e := range callEvents() {
			events = append(events, []byte(e))
			size += len(e)
		}
		b.SetBytes(int64(size))
		b.ReportAllocs()
		for b.Loop() {
			for _, e := range events {
				parsed(b, e)
			}
		}
	})
	b.Run("what=stream", func(b *testing.B) {
		frames := "data: " + strings.Join(callEvents(), "\n\ndata: ") + "\n\n"
		b.SetBytes(int64(len(frames)))
		b.ReportAllocs()
		s := newSSEReader(repeat(frames, b.N), maxFrame)
		b.ResetTimer()
		for range b.N * len(callEvents()) {
			data, err := s.next()
			if err != nil {
				b.Fatal(err)
			}
			parsed(b, data)
		}
	})
}

// parsed reads an event and the snapshot in it.
func parsed(b *testing.B, data []byte) {
	b.Helper()
	e := parseEvent(data)
	if e.kind == eventGarbled || e.kind == eventUnknown {
		b.Fatalf("%s: %+v", data, e)
	}
	if e.kind == eventSnapshot {
		if s, err := parseSnapshot(e.session, time.Time{}, false, journal.Session{}); err != nil || s.session.ID == "" {
			b.Fatalf("%s: %v", data, err)
		}
	}
}

// BenchmarkLargeSnapshot is a session whose agent was told much: words in lines, as instructions are.
func BenchmarkLargeSnapshot(b *testing.B) {
	line := `Answer in short sentences, and look up what you are not sure of.\n`
	event := []byte(sessionEvent("requires_action", strings.Repeat(line, 30<<10/len(line)), requiredAction))
	b.Run(fmt.Sprintf("size=%d", len(event)), func(b *testing.B) {
		benchmarkSnapshot(b, len(event), 1, func() (snapshot, error) {
			return parseSnapshot(parseEvent(event).session, time.Time{}, false, journal.Session{})
		})
	})
}
