package session

import (
	"hash/maphash"
	"slices"
	"time"

	"functionbridge/internal/journal"
)

const (
	// keptTurns is how many turns a follower remembers at least, and keptFor for how
	// long after their last mention; older ones are read back from the journal when
	// the API should mention them again.
	keptTurns = 8
	keptFor   = 2 * snapshotLag
	// maxOlder is of how many older turns a follower knows that the journal has
	// calls of them; beyond it the journal is asked for every turn.
	maxOlder = 4096
	// maxEnded is how many sessions that were followed before a manager knows;
	// beyond it every session may be one.
	maxEnded = 1 << 16
)

// turn is what a follower knows of a turn: the calls that were ever taken.
// Whatever a snapshot repeats of them is not a new call.
type turn struct {
	taken map[string]*taken
	used  time.Time
	// more is remembered than the journal could tell: when a call was abandoned, or
	// how often the API was reminded of one.
	more bool
}

// taken is a call that was taken at some time.
type taken struct {
	// quietUntil keeps reads that began before it from waking a settled call.
	quietUntil time.Time
	// reminders counts the posts that answered a settled call's being listed again.
	reminders int
}

// turnOf returns what is known of a turn. The lock is held.
func (f *follower) turnOf(id string) (*turn, error) {
	now := time.Now()
	if tn, ok := f.turns[id]; ok {
		tn.used = now
		return tn, nil
	}
	calls, err := f.recorded(id)
	if err != nil {
		return nil, err
	}
	tn := &turn{taken: make(map[string]*taken, len(calls)), used: now}
	for _, c := range calls {
		// An earlier process may have settled it just now, as this one's settled does.
		tn.taken[c.CallID] = &taken{quietUntil: c.ConfirmedAt.Add(f.quiet())}
		if until, just := f.settledBefore[c.Key]; just {
			tn.taken[c.CallID].quietUntil = until
			tn.more = true
			delete(f.settledBefore, c.Key)
		}
	}
	f.forgetTurns(now)
	f.turns[id] = tn
	return tn, nil
}

// recorded returns what the journal knows of a turn that is not remembered. It is
// asked only for a turn of which it may know something: nearly every turn that a
// follower does not remember is a new one. The lock is held.
func (f *follower) recorded(id string) ([]journal.Call, error) {
	if err := f.listOlder(); err != nil {
		return nil, err
	}
	if !f.older.has(id) {
		return nil, nil
	}
	return f.m.cfg.Journal.Turn(f.ctx, f.id, id)
}

// listOlder learns from the journal which turns were before this follower. Once
// is enough: from then on it is the only one who takes calls of the session, in
// whichever process. Whoever takes a session over makes a new follower, and calls
// that somebody else had are resumed, which has it list again. The lock is held.
func (f *follower) listOlder() error {
	if f.listed || f.older.full {
		return nil
	}
	ids, all, err := f.m.cfg.Journal.Turns(f.ctx, f.id, maxOlder)
	if err != nil {
		return err
	}
	if f.listed = true; !all {
		f.older.fill()
	}
	for _, id := range ids {
		f.older.add(id)
	}
	return nil
}

// forgetTurns drops the turns that have no task and have not been mentioned for a
// while: the journal knows their calls, and when they were confirmed. Of those of
// which more is remembered, no snapshot can be on its way any more. The lock is held.
func (f *follower) forgetTurns(now time.Time) {
	if len(f.turns) < keptTurns {
		return
	}
	live := make(map[string]bool, len(f.tasks))
	for key := range f.tasks {
		live[key.TurnID] = true
	}
	for id, tn := range f.turns {
		kept := keptFor
		if tn.more {
			kept = 2 * f.quiet() // and the next read has come
		}
		if !live[id] && now.Sub(tn.used) > kept {
			delete(f.turns, id)
			f.older.add(id)
		}
	}
}

// idSet holds ids in eight bytes each. It may be said to have one that it has
// not, but is never said not to have one that it has: two ids may look alike, and
// a full one has every id.
type idSet struct {
	seed   maphash.Seed
	limit  int
	hashes []uint64 // ascending
	full   bool
}

func newIDSet(limit int) idSet { return idSet{seed: maphash.MakeSeed(), limit: limit} }

// add takes an id in; with one more than the limit the set is full.
func (s *idSet) add(id string) {
	if s.full {
		return
	}
	hash := maphash.String(s.seed, id)
	at, found := slices.BinarySearch(s.hashes, hash)
	switch {
	case found:
	case len(s.hashes) == s.limit:
		s.fill()
	default:
		s.hashes = slices.Insert(s.hashes, at, hash)
	}
}

// fill takes every id in.
func (s *idSet) fill() { s.full, s.hashes = true, nil }

func (s *idSet) has(id string) bool {
	if s.full {
		return true
	}
	_, found := slices.BinarySearch(s.hashes, maphash.String(s.seed, id))
	return found
}
