// Package journaltest is the suite of behaviours that every store of the
// journal passes. It leaves out what only one store can show: locks, disks,
// settings of a database.
package journaltest

import (
	"context"
	"testing"
	"time"

	"functionbridge/internal/journal"
)

// Store is what the bridge as a whole uses of a journal.
type Store interface {
	Save(ctx context.Context, call journal.Call, d journal.Durability) error
	Flush(ctx context.Context) error
	Turn(ctx context.Context, sessionID, turnID string) ([]journal.Call, error)
	Turns(ctx context.Context, sessionID string, limit int) (ids []string, all bool, err error)
	Unsettled(ctx context.Context) ([]journal.Call, error)
	Dropped(ctx context.Context, known func(journal.Key) bool) ([]journal.Call, error)
	Call(ctx context.Context, key journal.Key) (journal.Call, error)
	Calls(ctx context.Context, f journal.Filter) (calls []journal.Call, next string, err error)
	SaveFollow(ctx context.Context, f journal.Follow) error
	Follows(ctx context.Context) ([]journal.Follow, error)
	Counts() map[journal.State]int64
	OldestUnanswered() time.Time
	Ready(ctx context.Context) error
	Unclean() bool
	Close() error
}

// Open opens a store on one journal under the name of an owner. The store that
// was opened before has been closed, or it belongs to a process that died.
type Open func(t *testing.T, owner string) Store

// Run runs the suite. Each test gets a journal of its own from create.
func Run(t *testing.T, create func(t *testing.T) Open) {
	t.Helper()
	for name, test := range tests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, create(t))
		})
	}
}

func tests() map[string]func(*testing.T, Open) {
	return map[string]func(*testing.T, Open){
		"a row comes back as it was saved":             rowComesBack,
		"bytes come back as they were":                 bytesComeBack,
		"arguments stay as first written":              argumentsStay,
		"an empty row comes back empty":                emptyRow,
		"a durable row is there after a reopen":        durableAfterReopen,
		"a lazy row is there after a close":            lazyAfterClose,
		"a flush writes what is queued":                flushWrites,
		"the last image of a call wins":                lastImageWins,
		"one call is one row":                          oneRow,
		"an older image does not replace a newer one":  olderImage,
		"states move forward only":                     statesMoveForward,
		"every pair of states is judged alike":         everyPair,
		"a state may be passed through unseen":         coalescedStates,
		"an abandoned call takes a late outcome":       lateOutcome,
		"a row of another owner is refused":            otherOwner,
		"a refused row spoils none of its neighbours":  refusedNeighbours,
		"unsettled calls are adopted, whole, in order": adoption,
		"a settled call is not adopted":                settledNotAdopted,
		"an image from before the adoption is refused": fencing,
		"revisions go on in the next process":          revisions,
		"an abandoned call goes on":                    reopening,
		"an abandoned call of an earlier process too":  reopeningAnothers,
		"dropped calls are found":                      droppedFound,
		"a call settled meanwhile is not dropped":      settledNotDropped,
		"dropped calls come in portions":               droppedPortions,
		"a turn lists its own calls":                   turnLists,
		"a session lists its own turns":                sessionLists,
		"the turns of a long session are too many":     tooManyTurns,
		"an unknown call is not found":                 notFound,
		"a listing selects":                            listingSelects,
		"pages do not move while calls are added":      pagesStay,
		"a bad cursor is an error of its own":          badCursor,
		"limits are bounded":                           limits,
		"counts follow the rows":                       countsFollow,
		"counts are the same after a reopen":           countsAfterReopen,
		"the oldest unanswered call is known":          oldestUnanswered,
		"follows are kept with their tombstones":       followsKept,
		"a bad row is refused at once":                 badRow,
		"many workers save at once":                    manyWorkers,
		"a write whose caller left is written":         callerLeft,
		"a healthy journal is ready":                   healthyReady,
		"a closed journal refuses":                     closedRefuses,
		"a closed journal ended cleanly":               cleanEnd,
	}
}

// call is a complete pending call; a number makes its key.
func call(id string) journal.Call {
	return journal.Call{
		Key:        journal.Key{SessionID: "sess_1", TurnID: "turn_1", CallID: id},
		Function:   "refund_order",
		Arguments:  []byte(`{"b":1, "a":2.50}`),
		State:      journal.Pending,
		Idempotent: true,
		CreatedAt:  moment(0),
	}
}

// moment is a time that every store can keep: whole microseconds, UTC.
func moment(seconds int) time.Time {
	return time.Date(2026, 8, 1, 12, 0, seconds, 123456000, time.UTC)
}

// in returns the call in another state.
func in(c journal.Call, s journal.State) journal.Call {
	c.State = s
	return c
}

func open(t *testing.T, o Open, owner string) Store {
	t.Helper()
	s := o(t, owner)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func save(t *testing.T, s Store, d journal.Durability, calls ...journal.Call) {
	t.Helper()
	for _, c := range calls {
		if err := s.Save(t.Context(), c, d); err != nil {
			t.Fatalf("save %s as %s: %v", c.CallID, c.State, err)
		}
	}
}

func get(t *testing.T, s Store, k journal.Key) journal.Call {
	t.Helper()
	c, err := s.Call(t.Context(), k)
	if err != nil {
		t.Fatalf("read %s: %v", k.CallID, err)
	}
	return c
}

func closeStore(t *testing.T, s Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func ids(calls []journal.Call) []string {
	out := make([]string, len(calls))
	for i, c := range calls {
		out[i] = c.CallID
	}
	return out
}
