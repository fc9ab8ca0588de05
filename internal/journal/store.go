package journal

import (
	"errors"
	"slices"
)

// ErrUnavailable means that the journal cannot be written at the moment. The
// store goes on trying by itself, unless what it writes to is damaged or was
// taken away; nothing that it accepted before is lost as long as it is open.
var ErrUnavailable = errors.New("the journal cannot be written")

// ErrCursor means that Filter.After did not come from this journal.
var ErrCursor = errors.New("not a cursor of the journal")

// Durability says how long a Save waits.
type Durability int

const (
	// Lazy queues the row and returns at once. A crash may lose it.
	Lazy Durability = iota
	// Durable returns when the row is on disk, safe from a crash and a power cut.
	Durable
)

// Known reports whether s is one of the states.
func (s State) Known() bool {
	switch s {
	case Pending, Running, Answered, Submitted, Confirmed, InDoubt, Abandoned:
		return true
	}
	return false
}

// CanReach reports whether a call may get from one state to another in any
// number of moves; none is one, because attempts and late outcomes are added to
// a call that stays where it is. It is what a store checks, because it sees only the last of
// the moves that were made between two writes. A call that was abandoned can go on
// when the session lists it again, but no walk passes through there: an outcome
// is not taken back.
func CanReach(from, to State) bool {
	seen := []State{from}
	for i := 0; i < len(seen); i++ {
		if i > 0 && seen[i] == Abandoned {
			continue
		}
		for _, s := range next(seen[i]) {
			if !slices.Contains(seen, s) {
				seen = append(seen, s)
			}
		}
	}
	return slices.Contains(seen, to)
}
