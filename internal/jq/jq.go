// Package jq runs the jq programs of a route table, within bounds. It compiles
// them with gojq, puts a count of what they make before every operation whose cost
// grows with its input, and knows nothing of routes.
//
// Programs are an operator's, and trusted not to be malicious; what they are run
// on may be anything. A run is given so much time and work, counted between steps
// and before each operation, and what it makes is bounded in size. What lies
// within one operation cannot be stopped, but is small by then.
package jq

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/itchyny/gojq"
)

const (
	// MaxTime is how long one run may take.
	MaxTime = 250 * time.Millisecond
	// MaxOutput bounds what a program makes, in bytes of text.
	MaxOutput = 1 << 20
	// MaxProgram bounds the text of a program, in bytes.
	MaxProgram = 64 << 10

	// maxSteps bounds a run where its clock stands still, as it does in some tests.
	maxSteps = 20_000_000
	// A run may make freeWork bytes, and workByByte more for each byte of its input:
	// an object of one member takes some 50 times its text.
	freeWork   = 16 << 20
	workByByte = 64
	// maxDepth bounds how deep values nest: operations on them recurse.
	maxDepth = 1000
)

// Program is a compiled jq program. It is safe for concurrent use.
type Program struct {
	text      string
	query     *gojq.Query
	variables []string
	patterns  map[patternKey]*pattern
	used      map[string]bool
	// machines keeps compiled code that nobody uses. Each run has its own: the library
	// writes to constants of the code that it deletes from.
	machines sync.Pool
}

// Compile reads a program that may use the named variables, such as $call. When it
// cannot be used the program is nil, and the problems say why; else they are
// warnings.
func Compile(text string, variables ...string) (*Program, []Problem) {
	if len(text) > MaxProgram {
		return nil, []Problem{{Offset: -1, Message: fmt.Sprintf("the program is larger than %d KiB", MaxProgram>>10)}}
	}
	query, err := gojq.Parse(text)
	if err != nil {
		return nil, []Problem{syntaxProblem(text, err)}
	}
	g := newGuard(text)
	g.query(query)
	if g.failed {
		return nil, g.problems
	}
	p := &Program{text: text, query: query, variables: variables, patterns: g.patterns, used: g.used}
	m, err := p.build()
	if err != nil {
		return nil, append(g.problems, compileProblem(text, variables, err))
	}
	p.machines.Put(m)
	return p, g.problems
}

// String is the text of the program.
func (p *Program) String() string { return p.text }

// RunError is why a run gives nothing.
type RunError struct {
	// Why is a few words in which nothing of the input is repeated.
	Why string
	// Told is what the program itself says with error("…"), else empty. It may hold
	// parts of the input.
	Told string
}

func (f *RunError) Error() string {
	if f.Told != "" {
		return f.Told
	}
	return f.Why
}

func failf(format string, args ...any) error { return &RunError{Why: fmt.Sprintf(format, args...)} }

// Run runs the program on an input, with the values of its variables in their
// order. It must give exactly one value. The error is a *RunError.
func (p *Program) Run(in Input, variables ...any) (Output, error) {
	m, ok := p.machines.Get().(*machine)
	if !ok {
		var err error
		if m, err = p.build(); err != nil {
			return Output{}, &RunError{Why: "the program cannot be compiled"}
		}
	}
	value, err := m.run(in, variables)
	if err != nil {
		return Output{}, failureOf(err)
	}
	in.turn.loans = append(in.turn.loans, loan{p, m})
	return Output{value}, nil
}

// run gives the one value of the program. A panic of the library is an error.
func (m *machine) run(in Input, variables []any) (value any, err error) {
	defer func() {
		m.release()
		if r := recover(); r != nil {
			err = &RunError{Why: "the program failed inside the library"}
		}
	}()
	m.begin(in.size)
	results := m.code.RunWithContext(m, in.value, variables...)
	m.running = results
	value, ok := results.Next()
	if err := m.check(value, ok); err != nil {
		return nil, err
	}
	if second, ok := results.Next(); ok {
		if err := m.check(second, true); err != nil {
			return nil, err
		}
		return nil, &RunError{Why: "the program gives more than one value"}
	}
	return value, nil
}

// check tells a value from the ends of a run.
func (m *machine) check(value any, ok bool) error {
	if m.stopped != nil {
		return m.stopped
	}
	if !ok {
		return &RunError{Why: "the program gives no value"}
	}
	if err, failed := value.(error); failed {
		return err
	}
	return nil
}

// failureOf words an error of the library.
func failureOf(err error) *RunError {
	if failure, ok := errors.AsType[*RunError](err); ok {
		return failure
	}
	if raised, ok := errors.AsType[gojq.ValueError](err); ok {
		return raisedFailure(raised.Value())
	}
	return &RunError{Why: withoutValues(err.Error())}
}

// raisedFailure is what error("…") or error({…}) says.
func raisedFailure(value any) *RunError {
	text, err := Output{value}.Text()
	if err != nil || strings.TrimSpace(text) == "" || value == nil {
		return &RunError{Why: "the program raised an error"}
	}
	return &RunError{Why: "the program raised an error", Told: text}
}

// withoutValues drops the values in an error of the library, which stand in it as
// the beginning of their JSON: cannot add: string ("a") and number (5).
func withoutValues(message string) string {
	var out strings.Builder
	depth, quoted := 0, false
	for i := 0; i < len(message); i++ {
		switch c := message[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case strings.IndexByte("([{", c) >= 0:
			depth++
		case strings.IndexByte(")]}", c) >= 0:
			depth = max(0, depth-1)
		case depth == 0 && strings.IndexByte("0123456789+-.", c) < 0:
			out.WriteByte(c)
		}
	}
	words := strings.Join(strings.Fields(out.String()), " ")
	return strings.TrimSuffix(strings.ReplaceAll(words, " :", ":"), ":")
}
