package session

import (
	"bytes"
	"strings"

	"functionbridge/internal/journal"
)

// event is one event of a stream, as far as the bridge cares. All of it is a
// view of the event's bytes; whoever keeps something clones it.
type event struct {
	kind eventKind
	// session is the raw session object of an eventSnapshot. Further members of
	// the event may stand behind it.
	session []byte
	// turnID and callID are set for eventOutput, turnID for eventTurnEnded.
	turnID, callID string
	// call is set for eventCall, without the session's id.
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
	c := readAt(data, jsonText(data).find("type"))
	switch kind := c.str(); kind {
	case "agent.session.created", "agent.session.in_progress", "agent.session.idle",
		"agent.session.requires_action", "agent.session.failed":
		return parseSession(data, c.at)
	case "agent.session.turn.item.added":
		return parseItem(data)
	case "agent.session.turn.completed", "agent.session.turn.failed", "agent.session.turn.cancelled":
		return event{kind: eventTurnEnded, turnID: stringOf(data, "turn_id")}
	case "error":
		return event{kind: eventError}
	case "":
		return withoutType(data)
	default:
		if isNoise(kind) {
			return event{}
		}
		return event{kind: eventUnknown}
	}
}

// parseSession finds the session in an event whose type ends at a place.
func parseSession(data []byte, typeEnd int) event {
	c := readAt(data, jsonText(data).find("session"))
	if c.text.byteAt(c.at) != '{' {
		return event{kind: eventGarbled}
	}
	if c.at < typeEnd {
		return event{kind: eventSnapshot, session: c.value()}
	}
	// It is the last member of every event so far, and is not read twice to find
	// its end.
	end := bytes.LastIndexByte(data, '}')
	return event{kind: eventSnapshot, session: data[c.at:max(c.at, end)]}
}

// stringOf is the string that a member is, empty when there is none.
func stringOf(object []byte, name string) string {
	c := readAt(object, jsonText(object).find(name))
	return c.str()
}

// withoutType is what has no type and may still be meant.
func withoutType(data []byte) event {
	switch string(bytes.TrimSpace(data)) {
	case "[DONE]":
		return event{}
	case "":
		return event{kind: eventEmpty}
	}
	return event{kind: eventGarbled}
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

// The types of the items that say something of a call.
const (
	itemCall   = "function_call"
	itemOutput = "function_call_output"
)

// parseItem reads the item that was added to a turn.
func parseItem(data []byte) event {
	at := jsonText(data).find("item")
	if at < 0 {
		return event{}
	}
	c := readAt(data, at)
	var it item
	if c.enter('{') {
		it.read(&c)
	}
	if c.err != nil {
		return event{kind: eventGarbled}
	}
	if it.kind == eventNoise {
		return event{}
	}
	turnID, callID := unquoted(it.turnID), unquoted(it.callID)
	if turnID == "" {
		turnID = stringOf(data, "turn_id")
	}
	if it.kind == eventOutput {
		return event{kind: eventOutput, turnID: turnID, callID: callID}
	}
	return event{kind: eventCall, call: action{
		key: journal.Key{TurnID: turnID, CallID: callID}, function: unquoted(it.function), arguments: it.arguments,
	}}
}

// item has the raw values of an item's members, nil where there are none.
type item struct {
	typed                               bool
	kind                                eventKind
	turnID, callID, function, arguments []byte
}

// read reads no further than needed: an output can be long, and stands last.
func (it *item) read(c *cursor) {
	for !it.complete() && c.member() {
		switch c.name {
		case "type":
			it.is(c.str())
		case "turn_id":
			c.first(&it.turnID)
		case "call_id":
			c.first(&it.callID)
		case "name":
			c.first(&it.function)
		case "arguments":
			c.first(&it.arguments)
		default:
			c.pass()
		}
	}
}

// is notes the type of an item.
func (it *item) is(kind string) {
	switch {
	case it.typed:
	case kind == itemCall:
		it.kind = eventCall
	case kind == itemOutput:
		it.kind = eventOutput
	}
	it.typed = true
}

// complete reports whether there is nothing left to learn of an item.
func (it *item) complete() bool {
	identified := it.turnID != nil && it.callID != nil
	switch it.kind {
	case eventOutput:
		return identified
	case eventCall:
		return identified && it.function != nil && it.arguments != nil
	default:
		return it.typed
	}
}
