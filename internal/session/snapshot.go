package session

import (
	"errors"
	"strings"
	"time"
	"unsafe"

	"github.com/tidwall/gjson"

	"functionbridge/internal/journal"
)

// snapshot is what the bridge reads of a session: its status and the function
// calls that wait for a result. The Agents API calls the list required_actions
// and carries it in every snapshot, whatever the status.
type snapshot struct {
	session journal.Session
	status  string
	calls   []action
	// tools is the JSON of the agent's tools, in a fresh snapshot that has any.
	tools []byte
	// fresh says that the session was read for this, beginning at begun; a
	// snapshot in a stream event may be older than it looks.
	fresh bool
	begun time.Time
}

// action is one pending function call. arguments are the bytes that the API
// sent, nil when there were none.
type action struct {
	key       journal.Key
	function  string
	arguments []byte
}

// sessionFailed is the status after which a session takes no more input.
const sessionFailed = "failed"

var (
	errNotASession   = errors.New("the answer is not a session")
	errAnotherOne    = errors.New("the answer is another session")
	errTooDeepToRead = errors.New("the answer is nested too deeply")
)

// maxDepth bounds how deep a session may be nested: the check of its JSON goes
// down a level with each, and ends the process when the stack is used up.
const maxDepth = 100_000

// deeperThan reports whether brackets stand deeper in each other than a limit.
func deeperThan(limit int, raw []byte) bool {
	if len(raw) <= limit {
		return false
	}
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth--
		}
		if depth > limit {
			return true
		}
	}
	return false
}

// view reads bytes as a string without a copy: a snapshot is a few kilobytes and
// little of it is kept. What outlives the bytes must be cloned.
func view(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // read only, and cloned where kept
}

// parseSnapshot reads a session object. It keeps nothing of raw but copies.
func parseSnapshot(raw []byte, begun time.Time, fresh bool) (snapshot, error) {
	s := snapshot{fresh: fresh, begun: begun}
	if deeperThan(maxDepth, raw) {
		return s, errTooDeepToRead
	}
	text := view(raw)
	if !gjson.Valid(text) {
		return s, errNotASession
	}
	gjson.Parse(text).ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "id":
			s.session.ID = strings.Clone(value.Str)
		case "status":
			s.status = strings.Clone(value.Str)
		case "agent":
			s.session.AgentID = strings.Clone(value.Get("id").Str)
			if fresh {
				s.tools = []byte(value.Get("tools").Raw)
			}
		case "metadata":
			s.session.Metadata = stringMap(value)
		case "required_actions":
			s.calls = functionCalls(value)
		}
		return true
	})
	if s.session.ID == "" || s.status == "" {
		return s, errNotASession
	}
	for i := range s.calls {
		s.calls[i].key.SessionID = s.session.ID
	}
	return s, nil
}

func stringMap(object gjson.Result) map[string]string {
	m := map[string]string{}
	object.ForEach(func(key, value gjson.Result) bool {
		m[strings.Clone(key.Str)] = strings.Clone(value.String())
		return true
	})
	return m
}

// functionCalls takes the function calls of a list of required actions and
// leaves everything else alone: approvals and environments are for others.
func functionCalls(list gjson.Result) []action {
	var calls []action
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
			a.key.TurnID, a.key.CallID = strings.Clone(a.key.TurnID), strings.Clone(a.key.CallID)
			a.function = strings.Clone(a.function)
			calls = append(calls, a)
		}
		return true
	})
	return calls
}

// event is one event of a stream, as far as the bridge cares.
type event struct {
	kind eventKind
	// session is the raw session object of an eventSnapshot, a part of the
	// event's bytes.
	session []byte
	// turnID and callID are set for eventOutput, turnID for eventTurnEnded.
	turnID, callID string
	// call is set for eventCall; it is a view of the event's bytes.
	call action
}

type eventKind int

const (
	eventNoise eventKind = iota
	// eventSnapshot carries the whole session.
	eventSnapshot
	// eventOutput says that a call has its result.
	eventOutput
	// eventCall says that the agent made a call, which need not be registered yet.
	eventCall
	// eventUnknown is of a type that is not known to be of no interest.
	eventUnknown
	// eventEmpty has no data; some proxies keep a connection alive so.
	eventEmpty
	// eventTurnEnded says that a turn completed, failed or was cancelled.
	eventTurnEnded
	// eventError is an error frame: not the end, but a reason to look.
	eventError
	// eventGarbled is a frame that is not the JSON of an event.
	eventGarbled
)

// parseEvent looks at the type first, because most events are text and need
// nothing more.
func parseEvent(data []byte) event {
	text := view(data)
	switch kind := gjson.Get(text, "type").Str; kind {
	case "agent.session.created", "agent.session.in_progress", "agent.session.idle",
		"agent.session.requires_action", "agent.session.failed":
		session := gjson.Get(text, "session")
		if !session.IsObject() {
			return event{kind: eventGarbled}
		}
		return event{kind: eventSnapshot, session: data[session.Index : session.Index+len(session.Raw)]}
	case "agent.session.turn.item.added":
		return parseItem(text)
	case "agent.session.turn.completed", "agent.session.turn.failed", "agent.session.turn.cancelled":
		return event{kind: eventTurnEnded, turnID: strings.Clone(gjson.Get(text, "turn_id").Str)}
	case "error":
		return event{kind: eventError}
	case "":
		switch strings.TrimSpace(text) {
		case "[DONE]":
			return event{}
		case "":
			return event{kind: eventEmpty}
		}
		return event{kind: eventGarbled}
	default:
		if isNoise(kind) {
			return event{}
		}
		return event{kind: eventUnknown}
	}
}

// isNoise reports whether events of a type say nothing about pending calls
// (openai-go v3.99.0, betaagent.go: the 33 types of the stream).
func isNoise(kind string) bool {
	for _, prefix := range []string{
		"agent.session.turn.", "agent.session.environment.", "agent.session.subagent.", "agent.output.",
	} {
		if strings.HasPrefix(kind, prefix) {
			return true
		}
	}
	return false
}

func parseItem(text string) event {
	item := gjson.Get(text, "item")
	kind := item.Get("type").Str
	if kind != "function_call_output" && kind != "function_call" {
		return event{}
	}
	turnID := item.Get("turn_id").Str
	if turnID == "" {
		turnID = gjson.Get(text, "turn_id").Str
	}
	callID := item.Get("call_id").Str
	if kind == "function_call_output" {
		return event{kind: eventOutput, turnID: strings.Clone(turnID), callID: strings.Clone(callID)}
	}
	return event{kind: eventCall, call: action{
		key: journal.Key{TurnID: turnID, CallID: callID}, function: item.Get("name").Str, arguments: []byte(item.Get("arguments").Raw),
	}}
}
