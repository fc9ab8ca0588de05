//nolint:thelper // these are tests: their failures are theirs
package journaltest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"functionbridge/internal/journal"
)

func statesMoveForward(t *testing.T, o Open) {
	s := open(t, o, "a")
	c := call("call_1")
	save(t, s, journal.Durable, in(c, journal.Confirmed))
	if err := s.Save(t.Context(), in(c, journal.Running), journal.Durable); !errors.Is(err, journal.ErrStale) {
		t.Errorf("confirmed to running: %v, want stale", err)
	}
	// A lazy one is refused without a word to the caller.
	save(t, s, journal.Lazy, in(c, journal.Running))
	if got := get(t, s, c.Key).State; got != journal.Confirmed {
		t.Errorf("state %s, want confirmed", got)
	}
}

// olderImage: images are made in order and may be saved in another one.
func olderImage(t *testing.T, o Open) {
	s := open(t, o, "a")
	older, newer := in(call("call_1"), journal.Answered), in(call("call_1"), journal.Confirmed)
	older.Rev, newer.Rev = 1, 2
	save(t, s, journal.Lazy, newer)
	save(t, s, journal.Lazy, older)
	if got := get(t, s, newer.Key).State; got != journal.Confirmed {
		t.Errorf("state %s, want confirmed", got)
	}
	save(t, s, journal.Lazy, older)
	if got := get(t, s, newer.Key).State; got != journal.Confirmed {
		t.Errorf("state %s after the newer one was on disk, want confirmed", got)
	}
}

// everyPair holds the store to the state table of package journal.
func everyPair(t *testing.T, o Open) {
	s := open(t, o, "a")
	for _, from := range journal.States() {
		for _, to := range journal.States() {
			c := call(fmt.Sprintf("%s to %s", from, to))
			save(t, s, journal.Durable, in(c, from))
			err := s.Save(t.Context(), in(c, to), journal.Durable)
			if allowed := journal.CanReach(from, to); (err == nil) != allowed {
				t.Errorf("%s: error %v, allowed %t", c.CallID, err, allowed)
			}
			if err != nil && !errors.Is(err, journal.ErrStale) {
				t.Errorf("%s: error %v, want stale", c.CallID, err)
			}
		}
	}
}

// coalescedStates: in doubt goes to running by way of pending, and a writer may
// see only the ends.
func coalescedStates(t *testing.T, o Open) {
	s := open(t, o, "a")
	c := call("call_1")
	save(t, s, journal.Durable, in(c, journal.InDoubt))
	save(t, s, journal.Lazy, in(c, journal.Pending))
	save(t, s, journal.Durable, in(c, journal.Running))
}

func lateOutcome(t *testing.T, o Open) {
	s := open(t, o, "a")
	c := in(call("call_1"), journal.Abandoned)
	save(t, s, journal.Durable, c)
	late := journal.Success("refunded")
	c.LateOutcome = &late
	c.Attempts = []journal.Attempt{{StartedAt: moment(1), Status: 200, Recover: true}}
	save(t, s, journal.Durable, c)
	got := get(t, s, c.Key)
	if got.LateOutcome == nil || *got.LateOutcome != late || !slices.Equal(got.Attempts, c.Attempts) {
		t.Errorf("late outcome %v, attempts %v", got.LateOutcome, got.Attempts)
	}
	if n := s.Counts()[journal.Abandoned]; n != 1 {
		t.Errorf("%d abandoned, want 1", n)
	}
}

func otherOwner(t *testing.T, o Open) {
	s := open(t, o, "a")
	c := call("call_1")
	save(t, s, journal.Durable, c)
	closeStore(t, s)
	s = open(t, o, "b")
	if err := s.Save(t.Context(), in(c, journal.Running), journal.Durable); !errors.Is(err, journal.ErrStale) {
		t.Errorf("save of another's row: %v, want stale", err)
	}
	save(t, s, journal.Lazy, in(c, journal.Answered))
	got := get(t, s, c.Key)
	if got.State != journal.Pending || got.Owner != "a" {
		t.Errorf("%s of %s, want pending of a", got.State, got.Owner)
	}
}

func refusedNeighbours(t *testing.T, o Open) {
	s := open(t, o, "a")
	for i := range 200 {
		if i%7 == 0 {
			save(t, s, journal.Lazy, in(call(strconv.Itoa(i)), journal.Confirmed))
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		save(t, s, journal.Lazy, in(call(strconv.Itoa(i)), journal.Running))
	}
	for i := range 200 {
		want := journal.Running
		if i%7 == 0 {
			want = journal.Confirmed
		}
		if got := get(t, s, call(strconv.Itoa(i)).Key).State; got != want {
			t.Errorf("row %d: %s, want %s", i, got, want)
		}
	}
	counts := s.Counts()
	if counts[journal.Confirmed] != 29 || counts[journal.Running] != 171 {
		t.Errorf("counts %v, want 29 confirmed and 171 running", counts)
	}
}

func adoption(t *testing.T, o Open) {
	s := open(t, o, "a")
	var want []journal.Call
	for i, state := range journal.States() {
		c := in(call(strconv.Itoa(i)), state)
		c.Request = []byte(`{"n":1}`)
		c.Outcome = journal.Success("out")
		save(t, s, journal.Lazy, c)
		if c.Owner, c.Fence = "b", 1; !state.Settled() {
			want = append(want, c)
		}
	}
	closeStore(t, s)
	s = open(t, o, "b")
	got, err := s.Unsettled(t.Context())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("adopted (%v)\n%+v, want\n%+v", err, got, want)
	}
	for _, c := range got {
		save(t, s, journal.Durable, in(c, journal.Confirmed))
	}
	if got, err = s.Unsettled(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("%d calls are left (%v), want none", len(got), err)
	}
}

func settledNotAdopted(t *testing.T, o Open) {
	s := open(t, o, "a")
	c := in(call("call_1"), journal.Abandoned)
	save(t, s, journal.Durable, c)
	closeStore(t, s)
	s = open(t, o, "b")
	if _, err := s.Unsettled(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), c, journal.Durable); !errors.Is(err, journal.ErrStale) {
		t.Errorf("save: %v, want stale", err)
	}
}
