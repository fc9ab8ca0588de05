package jq

import (
	"fmt"
	"reflect"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/itchyny/gojq"
)

// machine is compiled code with the meter of the run that uses it. It is the
// context of that run: the library asks whether it is done before each step.
type machine struct {
	code *gojq.Code
	// closed is what Done returns when the run is over.
	closed chan struct{}

	// left is how many bytes the run may still make.
	left     int64
	copied   int64
	steps    int
	deadline time.Time
	// stopped is why the run was ended.
	stopped *RunError
	// heap is what all memory of the process was when it was looked at first.
	heap uint64
	// highest is the highest index of an array that was counted.
	highest int
	running gojq.Iter
	stacks  []reflect.Value
	// constant are the regular expressions that the program holds, lately those that
	// it was given and that were compiled last.
	constant, lately map[patternKey]*pattern
}

const (
	// lookEvery is after how many steps the clock is looked at.
	lookEvery = 256
	// A stack that grows is there twice, the larger one with room to grow.
	stackTimes = 3
)

// build compiles the program.
func (p *Program) build() (*machine, error) {
	m := &machine{closed: make(chan struct{}), constant: p.patterns, lately: map[patternKey]*pattern{}}
	close(m.closed)
	code, err := gojq.Compile(p.query, append(m.options(p.used), gojq.WithVariables(p.variables))...)
	m.code = code
	return m, err
}

func (m *machine) begin(inputSize int) {
	m.left = freeWork + workByByte*int64(inputSize)
	m.steps, m.highest, m.copied, m.heap, m.stopped = 0, 0, 0, 0, nil
	m.deadline = time.Now().Add(MaxTime)
}

// release lets go of what the run used.
func (m *machine) release() { m.running, m.stacks = nil, nil }

// Done is called before each step.
func (m *machine) Done() <-chan struct{} {
	if m.steps++; m.steps%lookEvery == 0 {
		m.look()
	}
	if m.stopped != nil {
		return m.closed
	}
	return nil
}

// Err is why the run was ended.
func (m *machine) Err() error {
	if m.stopped != nil {
		return m.stopped
	}
	return nil
}

// Deadline is that of no timer: the run looks at the clock itself.
func (m *machine) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Value knows none.
func (m *machine) Value(any) any { return nil }

func (m *machine) look() {
	switch {
	case m.stopped != nil:
	case m.steps > maxSteps || time.Now().After(m.deadline):
		m.stopped = &RunError{Why: fmt.Sprintf("the program takes longer than %d ms", MaxTime.Milliseconds())}
	case stackTimes*m.stackSize() > m.left:
		m.stopped = tooMuch()
	}
}

func tooMuch() *RunError { return &RunError{Why: "the program takes too much memory"} }

// charge counts what an operation is about to make, in bytes.
func (m *machine) charge(size int64) error {
	if m.stopped != nil {
		return m.stopped
	}
	if m.left -= size; size < 0 || m.left < 0 {
		m.stopped = tooMuch()
		return m.stopped
	}
	return nil
}

const (
	// A copy that is extended takes the place of what it was made of, as a rule, so
	// that it counts by a sixteenth. Programs that keep each of them are found by the
	// memory of the process, which is looked at whenever so much was copied.
	copyShare  = 16
	copiedMuch = 32 << 20
	// maxGrowth is how much that memory may grow.
	maxGrowth = 96 << 20
)

// extend counts a copy of so many bytes with more added to it.
func (m *machine) extend(size, more int64) error {
	if m.copied += size; m.copied > copiedMuch {
		m.copied = 0
		m.lookAtMemory()
	}
	return m.charge(size/copyShare + more)
}

// lookAtMemory ends a run that keeps what it copies. The memory of the process is
// not this run's alone, but much that is alive after a collection and was not when
// the run had begun is.
func (m *machine) lookAtMemory() {
	size := heapSize()
	if m.heap == 0 {
		m.heap = size
	}
	if size < m.heap+maxGrowth {
		return
	}
	runtime.GC()
	if heapSize() > m.heap+maxGrowth && m.stopped == nil {
		m.stopped = tooMuch()
	}
}

func heapSize() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// watch finds the stacks of the interpreter, which grow with every recursion. The
// library does not show them, so they are read by reflection; their sizes are all
// that is looked at.
func (m *machine) watch() {
	env := reflect.Indirect(reflect.ValueOf(m.running))
	if env.Kind() != reflect.Struct {
		return
	}
	for _, name := range []string{"stack", "paths", "scopes"} {
		if stack := env.FieldByName(name); stack.Kind() == reflect.Pointer {
			m.stacks = append(m.stacks, stack.Elem().FieldByName("data"))
		}
	}
	m.stacks = append(m.stacks, env.FieldByName("values"), env.FieldByName("forks"))
}

// stackSize is what the stacks of the interpreter take, in bytes.
func (m *machine) stackSize() int64 {
	if m.stacks == nil {
		m.watch()
	}
	size := int64(0)
	for _, s := range m.stacks {
		if s.Kind() == reflect.Slice {
			size += int64(s.Cap()) * int64(s.Type().Elem().Size()) //nolint:gosec // the size of a type is small
		}
	}
	return size
}
