package session

import (
	"bytes"
	"errors"
	"strings"
	"time"

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

// clone makes an action that is a view of bytes outlive them.
func (a action) clone() action {
	turn, call := len(a.key.TurnID), len(a.key.CallID)
	words := a.key.TurnID + a.key.CallID + a.function
	a.key.TurnID, a.key.CallID, a.function = words[:turn], words[turn:turn+call], words[turn+call:]
	a.arguments = bytes.Clone(a.arguments)
	return a
}

// The statuses of a session. A failed one takes no more input.
const (
	sessionIdle           = "idle"
	sessionInProgress     = "in_progress"
	sessionRequiresAction = "requires_action"
	sessionFailed         = "failed"
)

var (
	errNotASession   = errors.New("the answer is not a session")
	errAnotherOne    = errors.New("the answer is another session")
	errTooDeepToRead = errors.New("the answer is nested too deeply")
)

// parseSnapshot reads a session object. What is as it was in the previous one is
// not copied again, and the calls, of which most are known, are views of raw, but
// for their SessionID; whoever keeps one clones it.
func parseSnapshot(raw []byte, begun time.Time, fresh bool, previous journal.Session) (snapshot, error) {
	s := snapshot{fresh: fresh, begun: begun}
	c := read(raw)
	if c.enter('{') {
		s.read(&c, previous)
	}
	switch {
	case errors.Is(c.err, errTooDeepToRead):
		return snapshot{}, errTooDeepToRead
	case !c.end() && (fresh || !c.comma()), s.session.ID == "", s.status == "":
		return snapshot{}, errNotASession
	}
	for i := range s.calls {
		s.calls[i].key.SessionID = s.session.ID
	}
	return s, nil
}

// read reads the members of a session.
func (s *snapshot) read(c *cursor, previous journal.Session) {
	for c.member() {
		switch c.name {
		case "id":
			s.session.ID = keep(c.str(), previous.ID)
		case "status":
			s.status = keep(c.str(), sessionIdle, sessionInProgress, sessionRequiresAction, sessionFailed)
		case "agent":
			id, tools := readAgent(c)
			s.session.AgentID = keep(id, previous.AgentID)
			if s.fresh {
				s.tools = append([]byte{}, tools...)
			}
		case "metadata":
			s.session.Metadata = readMetadata(c.value(), previous.Metadata)
		case "required_actions":
			s.calls = readCalls(c)
		default:
			c.pass()
		}
	}
}

// readAgent reads an agent: its id, and the JSON of its tools, nil without any.
func readAgent(c *cursor) (string, []byte) {
	var id, tools []byte
	if !c.enter('{') {
		return "", nil
	}
	for c.member() {
		switch c.name {
		case "id":
			c.first(&id)
		case "tools":
			c.first(&tools)
		default:
			c.pass()
		}
	}
	return unquoted(id), tools
}

// readMetadata reads an object of strings, nil when it is empty. What is the
// same as the previous is the previous, which nobody changes.
func readMetadata(raw []byte, previous map[string]string) map[string]string {
	if sameMetadata(raw, previous) {
		return previous
	}
	var m map[string]string
	c := read(raw)
	if !c.enter('{') {
		return nil
	}
	for c.member() {
		if m == nil {
			m = map[string]string{}
		}
		m[strings.Clone(c.name)] = strings.Clone(plainText(c.value()))
	}
	return m
}

func sameMetadata(raw []byte, previous map[string]string) bool {
	c := read(raw)
	if len(previous) == 0 || !c.enter('{') {
		return false
	}
	n := 0
	for c.member() {
		value, ok := previous[c.name]
		if !ok || plainText(c.value()) != value {
			return false
		}
		n++
	}
	return n == len(previous)
}

// plainText is a value as a text: a string without its quotes, anything else
// much as it is written.
func plainText(raw []byte) string {
	if len(raw) > 0 && raw[0] == '"' {
		return unquoted(raw)
	}
	return gjson.Parse(view(raw)).String()
}

// readCalls takes the function calls of a list of required actions and leaves
// everything else alone: approvals and environments are for others.
func readCalls(c *cursor) []action {
	var calls []action
	if !c.enter('[') {
		return nil
	}
	for c.element() {
		if a, ok := readCall(c); ok {
			calls = append(calls, a)
		}
	}
	return calls
}

// readCall reads a required action and reports whether it is a function call.
func readCall(c *cursor) (a action, isCall bool) {
	if !c.enter('{') {
		return a, false
	}
	for c.member() {
		switch c.name {
		case "type":
			isCall = c.str() == itemCall
		case "turn_id":
			a.key.TurnID = c.str()
		case "call_id":
			a.key.CallID = c.str()
		case "name":
			a.function = c.str()
		case "arguments":
			a.arguments = c.value()
		default:
			c.pass()
		}
	}
	return a, isCall && a.key.TurnID != "" && a.key.CallID != ""
}
