//nolint:thelper // these are tests: their failures are theirs
package journaltest

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"functionbridge/internal/journal"
)

func turnLists(t *testing.T, o Open) {
	s := open(t, o, "a")
	c := in(call("call_1"), journal.Answered)
	c.Outcome = journal.Failure(journal.Denied, "No.")
	c.Fence, c.Rev, c.SentAt, c.RetryAt, c.Reran, c.Crashes = 1, 2, moment(1), moment(2), true, 3
	other := call("call_2")
	other.TurnID = "turn_2"
	save(t, s, journal.Durable, c, other, call("call_0"))
	got, err := s.Turn(t.Context(), "sess_1", "turn_1")
	if err != nil || !slices.Equal(ids(got), []string{"call_1", "call_0"}) {
		t.Fatalf("turn has %v (%v), want call_1, call_0", ids(got), err)
	}
	c.Owner, c.Arguments, c.Outcome.Error = "a", nil, ""
	if !reflect.DeepEqual(got[0], c) {
		t.Errorf("got %+v, want %+v", got[0], c)
	}
	if got, err = s.Turn(t.Context(), "sess_1", "turn_3"); err != nil || len(got) != 0 {
		t.Errorf("an unknown turn has %v (%v)", ids(got), err)
	}
}

func sessionLists(t *testing.T, o Open) {
	s := open(t, o, "a")
	if got, all, err := s.Turns(t.Context(), "sess_1", 1); err != nil || !all || len(got) != 0 {
		t.Fatalf("an empty journal lists %v, all: %t (%v)", got, all, err)
	}
	for i, turn := range []string{"turn_2", "turn_1", "turn_2"} {
		c := in(call(strconv.Itoa(i)), journal.States()[i])
		c.TurnID = turn
		save(t, s, journal.Durable, c)
	}
	settled, other := in(call("settled"), journal.Confirmed), call("other")
	settled.TurnID, other.SessionID, other.TurnID = "turn_3", "sess_10", "turn_4"
	save(t, s, journal.Durable, settled, other)
	closeStore(t, s)
	got, all, err := open(t, o, "b").Turns(t.Context(), "sess_1", 4)
	slices.Sort(got)
	if err != nil || !all || !slices.Equal(got, []string{"turn_1", "turn_2", "turn_3"}) {
		t.Errorf("the session lists %v, all: %t (%v)", got, all, err)
	}
}

func tooManyTurns(t *testing.T, o Open) {
	s := open(t, o, "a")
	for i := range 10 {
		c := call(strconv.Itoa(i))
		c.TurnID = fmt.Sprintf("turn_%d", i/2)
		save(t, s, journal.Lazy, c)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int]bool{5: false, 9: false, 10: true, 11: true} {
		got, all, err := s.Turns(t.Context(), "sess_1", limit)
		if err != nil || all != want || (all && len(got) != 5) {
			t.Errorf("limit %d: %v, all: %t (%v)", limit, got, all, err)
		}
	}
}

func notFound(t *testing.T, o Open) {
	s := open(t, o, "a")
	if _, err := s.Call(t.Context(), call("call_1").Key); !errors.Is(err, journal.ErrNotFound) {
		t.Errorf("error %v, want not found", err)
	}
}

func listingSelects(t *testing.T, o Open) {
	s := open(t, o, "a")
	for i := range 24 {
		c := call(strconv.Itoa(i))
		c.SessionID = fmt.Sprintf("sess_%d", i%2)
		c.Function = fmt.Sprintf("f%d", i%3)
		c.State = []journal.State{journal.Pending, journal.Confirmed, journal.Abandoned, journal.InDoubt}[i/6]
		save(t, s, journal.Lazy, c)
	}
	for name, test := range map[string]struct {
		filter journal.Filter
		want   []string
	}{
		"session":   {journal.Filter{SessionID: "sess_1", Limit: 3}, []string{"23", "21", "19"}},
		"function":  {journal.Filter{Function: "f0", Limit: 3}, []string{"21", "18", "15"}},
		"unsettled": {journal.Filter{State: journal.Pending}, []string{"5", "4", "3", "2", "1", "0"}},
		"settled":   {journal.Filter{State: journal.Abandoned}, []string{"17", "16", "15", "14", "13", "12"}},
		"all three": {journal.Filter{SessionID: "sess_0", Function: "f0", State: journal.Pending}, []string{"0"}},
		"none":      {journal.Filter{SessionID: "sess_2"}, []string{}},
	} {
		calls, _, err := s.Calls(t.Context(), test.filter)
		if err != nil || !slices.Equal(ids(calls), test.want) {
			t.Errorf("%s: %v (%v), want %v", name, ids(calls), err, test.want)
		}
	}
}

func pagesStay(t *testing.T, o Open) {
	s := open(t, o, "a")
	var want []string
	for i := range 10 {
		want = append(want, strconv.Itoa(i))
		save(t, s, journal.Lazy, call(strconv.Itoa(i)))
	}
	slices.Reverse(want)
	var got []string
	f := journal.Filter{Limit: 3}
	for page := range 4 {
		calls, next, err := s.Calls(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		got, f.After = append(got, ids(calls)...), next
		if (next == "") != (page == 3) {
			t.Errorf("page %d: next is %q", page, next)
		}
		// New calls, and new states of old ones, move nothing.
		save(t, s, journal.Lazy, call(fmt.Sprintf("new %d", page)), in(call("0"), journal.Running), in(call("9"), journal.Running))
	}
	if !slices.Equal(got, want) {
		t.Errorf("pages hold %v, want %v", got, want)
	}
}

func badCursor(t *testing.T, o Open) {
	s := open(t, o, "a")
	for _, after := range []string{"x", "1", "Yw", "Y!!", "' OR 1=1 --", "\x00"} {
		if _, _, err := s.Calls(t.Context(), journal.Filter{After: after}); !errors.Is(err, journal.ErrCursor) {
			t.Errorf("cursor %q: %v, want its own error", after, err)
		}
	}
}

func limits(t *testing.T, o Open) {
	s := open(t, o, "a")
	for i := range 1002 {
		save(t, s, journal.Lazy, call(strconv.Itoa(i)))
	}
	for limit, want := range map[int]int{0: 100, -1: 100, 1: 1, 1000: 1000, 5000: 1000} {
		calls, next, err := s.Calls(t.Context(), journal.Filter{Limit: limit})
		if err != nil || len(calls) != want || next == "" {
			t.Errorf("limit %d: %d calls, next %q (%v), want %d", limit, len(calls), next, err, want)
		}
	}
}

func countsFollow(t *testing.T, o Open) {
	s := open(t, o, "a")
	want := map[journal.State]int64{}
	for _, state := range journal.States() {
		want[state] = 0
	}
	if got := s.Counts(); !maps.Equal(got, want) {
		t.Errorf("an empty journal counts %v", got)
	}
	c := call("call_1")
	for _, state := range []journal.State{
		journal.Pending, journal.Running, journal.Pending, journal.Running, journal.Running,
		journal.Answered, journal.Submitted, journal.Confirmed, journal.Confirmed,
	} {
		save(t, s, journal.Durable, in(c, state))
		clear(want)
		for _, other := range journal.States() {
			want[other] = 0
		}
		want[state] = 1
		if got := s.Counts(); !maps.Equal(got, want) {
			t.Fatalf("counts %v, want one %s", got, state)
		}
	}
}

func countsAfterReopen(t *testing.T, o Open) {
	s := open(t, o, "a")
	for i := range 300 {
		save(t, s, journal.Lazy, in(call(strconv.Itoa(i)), journal.States()[i%7]))
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 300 { // the settled ones a second time, some of the others settle
		state := journal.States()[i%7]
		if i%2 == 0 && !state.Settled() {
			state = journal.Abandoned
		}
		save(t, s, journal.Lazy, in(call(strconv.Itoa(i)), state))
	}
	for i := range 70 {
		save(t, s, journal.Lazy, in(call(fmt.Sprintf("new %d", i)), journal.Confirmed))
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := s.Counts()
	listed := map[journal.State]int64{}
	for _, state := range journal.States() {
		calls, _, err := s.Calls(t.Context(), journal.Filter{State: state, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		listed[state] = int64(len(calls))
	}
	if !maps.Equal(before, listed) {
		t.Errorf("counts %v, rows %v", before, listed)
	}
	closeStore(t, s)
	if after := open(t, o, "b").Counts(); !reflect.DeepEqual(after, before) {
		t.Errorf("counts %v after the reopen, %v before", after, before)
	}
}

func oldestUnanswered(t *testing.T, o Open) {
	s := open(t, o, "a")
	if got := s.OldestUnanswered(); !got.IsZero() {
		t.Errorf("an empty journal has an oldest call of %s", got)
	}
	for i, state := range []journal.State{
		journal.Confirmed, journal.Submitted, journal.Answered, journal.InDoubt, journal.Running, journal.Pending,
	} {
		c := in(call(strconv.Itoa(i)), state)
		c.CreatedAt = moment(i)
		save(t, s, journal.Durable, c)
	}
	for i := 3; i < 6; i++ {
		if got := s.OldestUnanswered(); !got.Equal(moment(i)) {
			t.Errorf("oldest %s, want %s", got, moment(i))
		}
		save(t, s, journal.Durable, in(call(strconv.Itoa(i)), journal.Answered))
	}
	if got := s.OldestUnanswered(); !got.IsZero() {
		t.Errorf("oldest %s, want none", got)
	}
}

func followsKept(t *testing.T, o Open) {
	s := open(t, o, "a")
	for _, f := range []journal.Follow{
		{SessionID: "sess_2", Followed: true, UpdatedAt: moment(1)},
		{SessionID: "sess_1", Followed: true, UpdatedAt: moment(2)},
		{SessionID: "sess_2", Followed: false, UpdatedAt: moment(3)},
	} {
		if err := s.SaveFollow(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	got, err := open(t, o, "b").Follows(t.Context())
	want := []journal.Follow{
		{SessionID: "sess_1", Followed: true, UpdatedAt: moment(2)},
		{SessionID: "sess_2", Followed: false, UpdatedAt: moment(3)},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("follows %v (%v), want %v", got, err, want)
	}
}
