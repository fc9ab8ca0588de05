package jq

import (
	"reflect"
	"testing"
	"time"
)

// The stacks are found by the names that the library has for them: a new version of
// it may have others.
func TestStacksOfTheInterpreterAreMeasured(t *testing.T) {
	t.Parallel()
	p, problems := Compile(`def f: if . > 0 then 1 + (. - 1 | f) else 0 end; f`)
	if p == nil {
		t.Fatal(problems)
	}
	m, err := p.build()
	if err != nil {
		t.Fatal(err)
	}
	m.begin(1 << 20)
	m.deadline = m.deadline.Add(time.Minute)
	m.running = m.code.RunWithContext(m, 20_000)
	if value, _ := m.running.Next(); value != 20_000 {
		t.Fatal(value)
	}
	size := m.stackSize()
	if len(m.stacks) != 5 || size < 20_000*48 || size > 20_000*1000 {
		t.Errorf("%d stacks of %d bytes", len(m.stacks), size)
	}
	for i, s := range m.stacks {
		if s.Kind() != reflect.Slice {
			t.Errorf("stack %d is a %v", i, s.Kind())
		}
	}
}

func TestLearnedRegularExpressionsAreBounded(t *testing.T) {
	t.Parallel()
	m := &machine{lately: map[patternKey]*pattern{}}
	for i := range 100 {
		m.begin(0)
		if _, err := m.pattern(patternKey{text: "a" + string(rune('a'+i%26)) + string(rune('a'+i/26))}); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.lately) > maxLately {
		t.Errorf("%d are kept", len(m.lately))
	}
	m.begin(0)
	if _, err := m.pattern(patternKey{text: string(make([]byte, maxPattern+1))}); err == nil {
		t.Error("a long one is taken")
	}
}
