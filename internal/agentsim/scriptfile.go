package agentsim

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Script is what a script file sets: habits, the turns that user messages start, and faults.
type Script struct {
	// Options is nil where the file leaves them out.
	Options *Options
	// Turns are played one for each user message of a session, in order and whatever the message says. Messages
	// beyond them are read by [ParseMessage].
	Turns  []Turn
	Faults []Fault
}

// Turn is one turn of a script. Without Say the agent says what the functions answered.
type Turn struct {
	Steps []Step
	Say   string
}

// ParseScript reads a script in YAML, strictly:
//
//	options: hostile                # kind, hostile, hostile-other, or a mapping: base and single options
//	turns:
//	  - steps:
//	      - - call: get_weather     # a step is a list of actions
//	          arguments: '{"city":"Oslo"}'
//	          id: call_1            # optional, as is async: true
//	        - approval: true        # likewise connection, unknown
//	      - - text: 100
//	        - wait: 200ms
//	        - fault: {kind: cut}
//	        - call: get_time
//	    say: That is all.
//	  - message: |                  # or a turn in the language of messages
//	      call get_weather {"city":"Rome"}
//	faults:
//	  - {kind: status, on: post_events, status: 503, count: 2}
//
// The error holds every mistake, a line each: "file:line:column: message".
func ParseScript(file string, data []byte) (Script, error) {
	r := &scriptReader{file: file}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return Script{}, fmt.Errorf("%s: %w", file, err)
	}
	if len(doc.Content) == 0 {
		return Script{}, fmt.Errorf("%s:1:1: the script is empty", file)
	}
	var script Script
	r.object(doc.Content[0], map[string]func(*yaml.Node){
		"options": func(n *yaml.Node) { script.Options = r.options(n) },
		"turns":   func(n *yaml.Node) { r.list(n, func(n *yaml.Node) { script.Turns = append(script.Turns, r.turn(n)) }) },
		"faults": func(n *yaml.Node) {
			r.list(n, func(n *yaml.Node) { script.Faults = append(script.Faults, r.standing(n)) })
		},
	})
	return script, errors.Join(r.problems...)
}

// Load takes the turns and faults of a script. (Its options go to [New].)
func (s *Sim) Load(script Script) error {
	s.mu.Lock()
	s.turns = script.Turns
	s.mu.Unlock()
	for _, f := range script.Faults {
		if err := s.Fault(f); err != nil {
			return err
		}
	}
	return nil
}

// nextPlan is the script's turn for the session's next message, or what the message itself says.
func (s *Sim) nextPlan(ss *session, said turnPlan) turnPlan {
	s.mu.RLock()
	turns := s.turns
	s.mu.RUnlock()
	if ss.said >= len(turns) {
		return said
	}
	next := turns[ss.said]
	ss.said++
	return turnPlan{steps: next.Steps, say: next.Say, message: said.message}
}

// scriptReader walks YAML nodes and gathers what is wrong.
type scriptReader struct {
	file     string
	problems []error
}

func (r *scriptReader) bad(n *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf("%s:%d:%d: %s", r.file, n.Line, n.Column, fmt.Sprintf(format, args...)))
}

// object hands each value to the reader of its key.
func (r *scriptReader) object(n *yaml.Node, known map[string]func(*yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.bad(n, "want a mapping")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		read := known[key.Value]
		switch {
		case read == nil:
			r.bad(key, "unknown key %q; known are %s", key.Value, words(known))
		case seen[key.Value]:
			r.bad(key, "%s stands here twice", key.Value)
		default:
			read(value)
		}
		seen[key.Value] = true
	}
}

func words(known map[string]func(*yaml.Node)) string {
	names := make([]string, 0, len(known))
	for name := range known {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func (r *scriptReader) list(n *yaml.Node, each func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		r.bad(n, "want a list")
		return
	}
	for _, one := range n.Content {
		each(one)
	}
}

func (r *scriptReader) text(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		r.bad(n, "want a text")
		return ""
	}
	return n.Value
}

func (r *scriptReader) number(n *yaml.Node) int {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil {
		r.bad(n, "want a whole number")
	}
	return v
}

func (r *scriptReader) flag(n *yaml.Node) bool {
	var v bool
	if n.Decode(&v) != nil {
		r.bad(n, "want true or false")
	}
	return v
}

func (r *scriptReader) duration(n *yaml.Node) time.Duration {
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d < 0 {
		r.bad(n, "want a duration like 200ms")
	}
	return d
}

func (r *scriptReader) turn(n *yaml.Node) (t Turn) {
	var message *yaml.Node
	r.object(n, map[string]func(*yaml.Node){
		"message": func(n *yaml.Node) { message = n },
		"say":     func(n *yaml.Node) { t.Say = r.text(n) },
		"steps": func(n *yaml.Node) {
			r.list(n, func(n *yaml.Node) {
				var step Step
				r.list(n, func(n *yaml.Node) { step = append(step, r.action(n)) })
				t.Steps = append(t.Steps, step)
			})
		},
	})
	if message == nil {
		return t
	}
	steps, say, err := ParseMessage(r.text(message))
	switch {
	case err != nil:
		r.bad(message, "%v", err)
	case t.Steps != nil || t.Say != "":
		r.bad(message, "message stands alone; it holds steps and last words itself")
	}
	return Turn{Steps: steps, Say: say}
}

func (r *scriptReader) action(n *yaml.Node) (a Action) {
	kinds := 0
	kind := func(k ActionKind, read func(*yaml.Node)) func(*yaml.Node) {
		return func(n *yaml.Node) {
			kinds++
			a.Kind = k
			read(n)
		}
	}
	marker := func(n *yaml.Node) {
		if !r.flag(n) {
			r.bad(n, "only true makes sense here")
		}
	}
	r.object(n, map[string]func(*yaml.Node){
		"call":       kind(ActionCall, func(n *yaml.Node) { a.Name = r.text(n) }),
		"approval":   kind(ActionApproval, marker),
		"connection": kind(ActionConnection, marker),
		"unknown":    kind(ActionUnknown, marker),
		"text":       kind(ActionText, func(n *yaml.Node) { a.N = r.number(n) }),
		"wait":       kind(ActionWait, func(n *yaml.Node) { a.Wait = r.duration(n) }),
		"fault":      kind(ActionFault, func(n *yaml.Node) { a.Fault = r.fault(n) }),
		"arguments":  func(n *yaml.Node) { a.Arguments = r.arguments(n) },
		"id":         func(n *yaml.Node) { a.CallID = r.text(n) },
		"async":      func(n *yaml.Node) { a.Async = r.flag(n) },
	})
	switch {
	case kinds != 1:
		r.bad(n, "an action is one of call, approval, connection, unknown, text, wait, fault")
	case a.Kind != ActionCall && (a.Arguments != nil || a.CallID != "" || a.Async):
		r.bad(n, "arguments, id and async belong to a call")
	case a.Kind != ActionFault: // the reader of faults has complained itself
		if err := (Step{a}).check(); err != nil {
			r.bad(n, "%v", err)
		}
	}
	return a
}

// arguments are JSON in a text, so that every byte of them is the author's.
func (r *scriptReader) arguments(n *yaml.Node) []byte {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		r.bad(n, "want JSON in quotes, like '{\"city\":\"Oslo\"}'")
		return nil
	}
	return []byte(n.Value)
}

func (r *scriptReader) fault(n *yaml.Node) Fault {
	before := len(r.problems)
	var spec faultSpec
	text := func(into *string) func(*yaml.Node) { return func(n *yaml.Node) { *into = r.text(n) } }
	number := func(into *int) func(*yaml.Node) { return func(n *yaml.Node) { *into = r.number(n) } }
	r.object(n, map[string]func(*yaml.Node){
		"kind": text(&spec.Kind), "on": text(&spec.On), "session_id": text(&spec.SessionID), "count": number(&spec.Count),
		"skip": number(&spec.Skip), "for": text(&spec.For), "status": number(&spec.Status),
		"retry_after": text(&spec.RetryAfter), "body": text(&spec.Body), "delay": text(&spec.Delay),
		"keep_key": func(n *yaml.Node) { spec.KeepKey = r.flag(n) }, "after": number(&spec.After), "n": number(&spec.N),
	})
	if len(r.problems) > before {
		return Fault{}
	}
	f, err := spec.fault()
	if err != nil {
		r.bad(n, "%v", err)
	}
	return f
}

// standing is a fault at the top of the file, where no session exists yet.
func (r *scriptReader) standing(n *yaml.Node) Fault {
	f := r.fault(n)
	if f.Kind.ofStream() || f.Kind == FaultStale || f.SessionID != "" {
		r.bad(n, "no session exists yet; put this fault into a step")
	}
	return f
}

func (r *scriptReader) options(n *yaml.Node) *Options {
	opts := Kind()
	if n.Kind == yaml.ScalarNode {
		opts = r.base(n)
		return &opts
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "base" {
			opts = r.base(n.Content[i+1])
		}
	}
	flag := func(into *bool) func(*yaml.Node) { return func(n *yaml.Node) { *into = r.flag(n) } }
	span := func(into *time.Duration) func(*yaml.Node) { return func(n *yaml.Node) { *into = r.duration(n) } }
	r.object(n, map[string]func(*yaml.Node){
		"base": func(*yaml.Node) {}, "lag": span(&opts.Lag), "repeat": flag(&opts.Repeat), "replay": flag(&opts.Replay),
		"late_headers": flag(&opts.LateHeaders), "register_delay": span(&opts.RegisterDelay),
		"late_status":  func(n *yaml.Node) { opts.LateStatus = r.number(n) },
		"quiet_status": flag(&opts.QuietStatus), "async_unlisted": flag(&opts.AsyncUnlisted),
		"keep_alive": span(&opts.KeepAlive), "event_line": flag(&opts.EventLine), "crlf": flag(&opts.CRLF),
		"done": flag(&opts.Done), "obfuscation": flag(&opts.Obfuscation), "noise": flag(&opts.Noise),
		"type_last": flag(&opts.TypeLast),
	})
	if !slices.Contains([]int{0, 202, 400, 409}, opts.LateStatus) {
		r.bad(n, "late_status is one of 202, 400, 409")
	}
	return &opts
}

func (r *scriptReader) base(n *yaml.Node) Options {
	opts, ok := Positions()[n.Value]
	if !ok {
		r.bad(n, "unknown options %q; known are kind, hostile, hostile-other", n.Value)
	}
	return opts
}
