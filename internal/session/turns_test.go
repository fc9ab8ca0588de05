package session

import (
	"strconv"
	"testing"
)

// Whatever is put into a set is in it for ever, also when there is too much of it.
func TestSetOfIDsNeverDeniesOneThatItHas(t *testing.T) {
	t.Parallel()
	s := newIDSet(100)
	for i := range 200 {
		for range 2 { // a repeat counts once
			s.add(strconv.Itoa(i))
		}
		if i < 100 && (s.full || s.has("another")) {
			t.Fatalf("with %d of 100 ids the set has others too", i+1)
		}
		for j := range i + 1 {
			if !s.has(strconv.Itoa(j)) {
				t.Fatalf("of %d ids the set has lost %d", i+1, j)
			}
		}
	}
	if !s.full || !s.has("another") || s.hashes != nil {
		t.Error("a set of more ids than it can hold denies one")
	}
}

// BenchmarkSetOfIDs takes a whole listing of turns in.
func BenchmarkSetOfIDs(b *testing.B) {
	ids := make([]string, maxOlder)
	for i := range ids {
		ids[i] = "turn_" + strconv.Itoa(i)
	}
	for b.Loop() {
		s := newIDSet(maxOlder)
		for _, id := range ids {
			s.add(id)
		}
		if s.full {
			b.Fatal("the set is full")
		}
	}
}
