//nolint:thelper // these are tests: their failures are theirs
package journaltest

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"testing"

	"functionbridge/internal/journal"
)

// refused saves an image that must not be taken.
func refused(t *testing.T, s Store, what string, c journal.Call) {
	t.Helper()
	if err := s.Save(t.Context(), c, journal.Durable); !errors.Is(err, journal.ErrStale) {
		t.Errorf("%s: %v, want stale", what, err)
	}
}

// unsettled adopts what an earlier owner left, which must be n calls.
func unsettled(t *testing.T, s Store, n int) []journal.Call {
	t.Helper()
	calls, err := s.Unsettled(t.Context())
	if err != nil || len(calls) != n {
		t.Fatalf("%d unsettled (%v), want %d", len(calls), err, n)
	}
	return calls
}

// fencing: the token counts, not the name. A process that was frozen while
// another one had its calls, and is back under its name, is late all the same.
func fencing(t *testing.T, o Open) {
	s := open(t, o, "a")
	c := call("call_1")
	c.Rev = 5
	save(t, s, journal.Durable, c)
	closeStore(t, s)
	s = open(t, o, "b")
	adopted := unsettled(t, s, 1)[0]
	if again := unsettled(t, s, 1)[0]; again.Fence != adopted.Fence {
		t.Errorf("fence %d, then %d, although the owner is the same", adopted.Fence, again.Fence)
	}
	late := in(c, journal.Running)
	late.Rev = 6
	refused(t, s, "an image from before the adoption", late)
	adopted.Rev++
	save(t, s, journal.Lazy, in(adopted, journal.Running)) // waits in the queue
	refused(t, s, "an old image behind a new one", late)
	closeStore(t, s)
	s = open(t, o, "a")
	third := unsettled(t, s, 1)[0]
	if third.Fence <= adopted.Fence || third.Owner != "a" || third.State != journal.Running {
		t.Errorf("%s of %s under fence %d, want running of a, above %d", third.State, third.Owner, third.Fence, adopted.Fence)
	}
	late.Rev = 100
	refused(t, s, "an image of the same owner's earlier hand", late)
	save(t, s, journal.Durable, in(third, journal.Answered))
}

// revisions: what a process writes is judged by the images of the one before.
func revisions(t *testing.T, o Open) {
	s := open(t, o, "a")
	c := call("call_1")
	c.Rev = 7
	save(t, s, journal.Durable, c, c) // the same image twice is no fault
	closeStore(t, s)
	s = open(t, o, "b")
	c = unsettled(t, s, 1)[0]
	if turn, err := s.Turn(t.Context(), c.SessionID, c.TurnID); err != nil || turn[0].Rev != 7 || get(t, s, c.Key).Rev != 7 || c.Rev != 7 {
		t.Errorf("the revision is lost: %+v (%v)", turn, err)
	}
	c.Rev = 6
	refused(t, s, "an older revision", in(c, journal.Running))
	c.Rev = 8
	save(t, s, journal.Durable, in(c, journal.Answered))
	c.Rev = 7
	refused(t, s, "an older revision in a state that could follow", in(c, journal.Submitted))
	if got := get(t, s, c.Key); got.Rev != 8 || got.State != journal.Answered {
		t.Errorf("%s at %d, want answered at 8", got.State, got.Rev)
	}
}

// counted holds the counts to the rows, before and after a reopen.
func counted(t *testing.T, s Store, want map[journal.State]int64) {
	t.Helper()
	got := s.Counts()
	maps.DeleteFunc(got, func(_ journal.State, n int64) bool { return n == 0 })
	if !maps.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
}

func reopening(t *testing.T, o Open) {
	s := open(t, o, "a")
	for i, to := range journal.States() {
		c := in(call(strconv.Itoa(i)), journal.Abandoned)
		save(t, s, journal.Durable, c)
		if to == journal.Confirmed {
			c.ConfirmedAt = moment(1)
		}
		c.Rev++
		save(t, s, journal.Lazy, in(c, to))
	}
	want := map[journal.State]int64{}
	for _, state := range journal.States() {
		want[state] = 1
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	counted(t, s, want)
	closeStore(t, s)
	s = open(t, o, "b")
	counted(t, s, want)
	for _, c := range unsettled(t, s, len(journal.States())-2) {
		c.Rev++
		save(t, s, journal.Durable, in(c, journal.Confirmed))
	}
	counted(t, s, map[journal.State]int64{journal.Confirmed: int64(len(want)) - 1, journal.Abandoned: 1})
}

// reopeningAnothers: nobody works on an abandoned call, so that it needs no
// adoption; but it has one owner again from then on.
func reopeningAnothers(t *testing.T, o Open) {
	s := open(t, o, "a")
	c := in(call("call_1"), journal.Abandoned)
	save(t, s, journal.Durable, c)
	closeStore(t, s)
	s = open(t, o, "b")
	reopened := get(t, s, c.Key)
	reopened.Rev++
	save(t, s, journal.Durable, in(reopened, journal.Running))
	if got := get(t, s, c.Key); got.Owner != "b" || got.State != journal.Running {
		t.Errorf("%s of %s, want running of b", got.State, got.Owner)
	}
	counted(t, s, map[journal.State]int64{journal.Running: 1})
	closeStore(t, s)
	s = open(t, o, "c")
	refused(t, s, "a call that is being worked on", in(reopened, journal.Answered))
}

func knows(ids ...string) func(journal.Key) bool {
	return func(k journal.Key) bool { return slices.Contains(ids, k.CallID) }
}

func droppedFound(t *testing.T, o Open) {
	s := open(t, o, "a")
	for i, state := range journal.States() {
		c := in(call(string(state)), state)
		c.CreatedAt, c.Request = moment(60-i), []byte(`{"n":1}`)
		save(t, s, journal.Durable, c)
	}
	closeStore(t, s)
	s = open(t, o, "b")
	got, err := s.Dropped(t.Context(), knows("pending", "in_doubt"))
	if err != nil || !slices.Equal(ids(got), []string{"submitted", "answered", "running"}) {
		t.Fatalf("dropped %v (%v), want what is not known, oldest first", ids(got), err)
	}
	if c := got[0]; c.Owner != "b" || c.Fence != 1 || string(c.Request) != `{"n":1}` {
		t.Errorf("%+v is not adopted whole", c)
	}
	for _, c := range got {
		save(t, s, journal.Durable, in(c, journal.Confirmed))
	}
	if got, err = s.Dropped(t.Context(), knows("pending", "in_doubt")); err != nil || len(got) > 0 {
		t.Errorf("dropped %v (%v), want none", ids(got), err)
	}
}

// settledNotDropped: a call that is done is forgotten before its row says so.
func settledNotDropped(t *testing.T, o Open) {
	s := open(t, o, "a")
	save(t, s, journal.Durable, call("done"), call("taken up"))
	save(t, s, journal.Lazy, in(call("done"), journal.Confirmed))
	asked := 0
	got, err := s.Dropped(t.Context(), func(k journal.Key) bool {
		asked++
		return k.CallID == "taken up" && asked > 2
	})
	if err != nil || len(got) != 0 {
		t.Errorf("dropped %v (%v), want none", ids(got), err)
	}
}

func droppedPortions(t *testing.T, o Open) {
	s := open(t, o, "a")
	for i := range 1001 {
		save(t, s, journal.Lazy, call(strconv.Itoa(i)))
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[journal.Key]bool{}
	for _, want := range []int{1000, 1, 0} {
		got, err := s.Dropped(t.Context(), func(k journal.Key) bool { return seen[k] })
		if err != nil || len(got) != want {
			t.Errorf("%d dropped (%v), want %d", len(got), err, want)
		}
		for _, c := range got {
			seen[c.Key] = true
		}
	}
}
