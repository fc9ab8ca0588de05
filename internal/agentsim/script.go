package agentsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ActionKind says what an [Action] does.
type ActionKind string

// The kinds of actions. The first four become entries of required_actions and hold the step until they are answered.
const (
	ActionCall       ActionKind = "call"       // a function call
	ActionApproval   ActionKind = "approval"   // a computer_use_approval_request
	ActionConnection ActionKind = "connection" // an environment_connection
	ActionUnknown    ActionKind = "unknown"    // an entry of a type that nobody knows
	ActionText       ActionKind = "text"       // N output_text.delta events
	ActionWait       ActionKind = "wait"       // a pause
	ActionFault      ActionKind = "fault"      // a mishap, at this very place
)

// Action is one thing that the agent does within a step. The constructors [Call], [AsyncCall], [Approval],
// [Connection], [Unknown], [Text], [Wait] and [Mishap] fill it.
type Action struct {
	Kind ActionKind
	// Name, CallID and Arguments belong to a call. Arguments is raw JSON, of any type, and is sent byte for byte; nil
	// leaves the key out. (A carriage return between tokens does not survive an event stream, whose lines it ends.)
	Name      string
	CallID    string // made up when empty
	Arguments []byte
	Async     bool // the agent goes on without the result
	N         int
	Wait      time.Duration
	Fault     Fault
}

// Step is what the agent does at once. The next step begins when all its required actions are answered.
type Step []Action

// Call is a function call; arguments is raw JSON, "" leaves the key out.
func Call(name, arguments string) Action {
	a := Action{Kind: ActionCall, Name: name}
	if arguments != "" {
		a.Arguments = []byte(arguments)
	}
	return a
}

// AsyncCall is a function call whose result the agent does not wait for.
func AsyncCall(name, arguments string) Action {
	a := Call(name, arguments)
	a.Async = true
	return a
}

// WithID gives the call an id of the script's choice.
func (a Action) WithID(callID string) Action {
	a.CallID = callID
	return a
}

// Approval asks a person for leave to open a web origin.
func Approval() Action { return Action{Kind: ActionApproval} }

// Connection asks for a self-hosted environment to be connected again.
func Connection() Action { return Action{Kind: ActionConnection} }

// Unknown is a required action of an unknown type that looks like a call in every other field.
func Unknown() Action { return Action{Kind: ActionUnknown} }

// Text sends n output_text.delta events.
func Text(n int) Action { return Action{Kind: ActionText, N: n} }

// Wait pauses the step.
func Wait(d time.Duration) Action { return Action{Kind: ActionWait, Wait: d} }

// Mishap sets a fault when the step comes to it; an empty SessionID means the session that plays the step.
func Mishap(f Fault) Action { return Action{Kind: ActionFault, Fault: f} }

func (s Step) check() error {
	for _, a := range s {
		switch a.Kind {
		case ActionCall:
			if a.Name == "" {
				return errors.New("a call needs a name")
			}
			if a.Arguments != nil && !json.Valid(a.Arguments) {
				return fmt.Errorf("call %s: arguments are not JSON: %.60q", a.Name, a.Arguments)
			}
		case ActionFault:
			if err := a.Fault.check(); err != nil {
				return err
			}
		case ActionApproval, ActionConnection, ActionUnknown, ActionText, ActionWait:
		default:
			return fmt.Errorf("unknown action %q", a.Kind)
		}
	}
	return nil
}

// ParseMessage reads the small language of user messages, line by line (LF or CR LF):
//
//	call NAME {json}     a function call of the current step; the arguments are what follows the one blank after
//	                     NAME, byte for byte, and may be any JSON value; without them the call has no arguments key
//	@async NAME {json}   the same, but the agent does not wait for the result
//	@text N              N text events
//	@wait 200ms          a pause (Go duration)
//	@approval            a computer-use approval request
//	@connection          an environment connection
//	@unknown             a required action of an unknown type
//	(a blank line)       the next step begins
//
// The first line that is none of these ends the steps: it and all that follows is what the agent says at the end of
// the turn. Without such text the agent says what the functions answered. Arguments that are not JSON are an error.
func ParseMessage(text string) (steps []Step, say string, err error) {
	var step Step
	rest := text
	for n := 1; rest != ""; n++ {
		line, tail, _ := strings.Cut(rest, "\n")
		action, known, err := parseLine(strings.TrimSuffix(line, "\r"))
		switch {
		case err != nil:
			return nil, "", fmt.Errorf("line %d: %w", n, err)
		case strings.TrimSpace(line) == "":
			steps, step = appendStep(steps, step), nil
		case known:
			step = append(step, action)
		default:
			return appendStep(steps, step), strings.TrimSpace(rest), nil
		}
		rest = tail
	}
	return appendStep(steps, step), "", nil
}

func appendStep(steps []Step, step Step) []Step {
	if len(step) == 0 {
		return steps
	}
	return append(steps, step)
}

// parseLine reads one directive; known is false for a line of plain text.
func parseLine(line string) (a Action, known bool, err error) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "call", "@async":
		a, known = parseCall(rest)
		a.Async = word == "@async"
		if known {
			err = Step{a}.check()
		}
		return a, known, err
	case "@text":
		n, err := strconv.Atoi(rest)
		if err != nil || n < 0 {
			return a, false, fmt.Errorf("@text wants a number, got %q", rest)
		}
		return Text(n), true, nil
	case "@wait":
		d, err := time.ParseDuration(rest)
		if err != nil {
			return a, false, fmt.Errorf("@wait wants a duration like 200ms, got %q", rest)
		}
		return Wait(d), true, nil
	case "@approval":
		return Approval(), true, nil
	case "@connection":
		return Connection(), true, nil
	case "@unknown":
		return Unknown(), true, nil
	}
	return a, false, nil
}

// parseCall splits "NAME {json}" at the first blank; "call" alone is plain text.
func parseCall(rest string) (Action, bool) {
	name, arguments, _ := strings.Cut(rest, " ")
	if name == "" {
		return Action{}, false
	}
	return Call(name, arguments), true
}
