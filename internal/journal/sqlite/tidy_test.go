package sqlite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/journal"
)

// aged is a call in a state whose last time is age ago.
func aged(id string, state journal.State, age time.Duration) journal.Call {
	c := pending(id)
	c.State, c.CreatedAt = state, time.Now().Add(-age)
	return c
}

// left returns the ids of the turn's calls on disk.
func left(t *testing.T, s *Store) (ids []string) {
	t.Helper()
	calls, err := s.Turn(t.Context(), "sess_1", "turn_1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range calls {
		ids = append(ids, c.CallID)
	}
	return ids
}

func TestOldSettledCallsLeaveTheJournal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, path, Options{Owner: "a"})
		const (
			old, young = 800 * time.Hour, 700 * time.Hour
			inDoubt    = 4 * firstStep
		)
		for i := range inDoubt { // more than a page of old calls that must stay
			save(t, s, aged(fmt.Sprintf("in doubt %d", i), journal.InDoubt, old))
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		saveAll(t, s, aged("old 1", journal.Confirmed, old), aged("old 2", journal.Abandoned, old),
			aged("submitted", journal.Submitted, old), aged("young", journal.Confirmed, young))
		for name, set := range map[string]func(*journal.Call, time.Time){
			"answered":  func(c *journal.Call, at time.Time) { c.AnsweredAt = at },
			"posted":    func(c *journal.Call, at time.Time) { c.SubmittedAt = at },
			"confirmed": func(c *journal.Call, at time.Time) { c.ConfirmedAt = at },
		} {
			c := aged(name, journal.Confirmed, old)
			set(&c, time.Now().Add(-young))
			saveAll(t, s, c)
		}
		saveAll(t, s, aged("last", journal.Abandoned, time.Hour))
		closeIt(t, s)

		s = openStore(t, path, Options{Owner: "b", Retention: 720 * time.Hour})
		time.Sleep(time.Minute) // fake clock
		want := map[string]bool{"submitted": true, "young": true, "answered": true, "posted": true, "confirmed": true, "last": true}
		got := map[string]bool{}
		for _, id := range left(t, s) {
			if !strings.HasPrefix(id, "in doubt") {
				got[id] = true
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("left are %v, want %v", got, want)
		}
		time.Sleep(30 * time.Hour) // fake clock
		if got := len(left(t, s)) - inDoubt; got != 2 {
			t.Errorf("%d calls are left 30 hours later, want 2: the one that is submitted, and the last", got)
		}
		recount(t, s)
		closeIt(t, s)
		recount(t, openStore(t, path, Options{Owner: "c"}))
	})
}

func closeIt(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// recount holds the tally to the rows.
func recount(t *testing.T, s *Store) {
	t.Helper()
	for state, n := range s.Counts() {
		var rows int64
		if err := s.reader.QueryRowContext(t.Context(), "SELECT count(*) FROM calls WHERE state = ?", string(state)).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		if n != rows {
			t.Errorf("%d calls are counted as %s, the journal has %d", n, state, rows)
		}
	}
}

// TestIdsAreNotUsedAgain: a cursor stands for a place among the ids.
func TestIdsAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, path, Options{Owner: "a", Retention: time.Hour})
		for round := range 3 {
			for i := range 10 {
				saveAll(t, s, aged(fmt.Sprintf("%d %d", round, i), journal.Confirmed, 0))
			}
			time.Sleep(3 * time.Hour) // fake clock
		}
		if got := left(t, s); !reflect.DeepEqual(got, []string{"2 9"}) {
			t.Errorf("left are %v, want the last", got)
		}
		if id := s.tally.highest(); id != 30 {
			t.Errorf("the highest id is %d, want 30", id)
		}
	})
}

// TestFileStopsGrowing: the room of deleted rows is used again.
func TestFileStopsGrowing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, path, Options{Owner: "a", Retention: 10 * time.Hour})
		var pages []int64
		for hour := range 60 {
			for i := range 100 {
				c := aged(fmt.Sprintf("%d %d", hour, i), journal.Confirmed, 0)
				c.Outcome.Output = strings.Repeat("o", 1000+60*i)
				save(t, s, c)
			}
			time.Sleep(time.Hour) // fake clock
			pages = append(pages, pageCount(t, s))
		}
		if pages[59] > pages[14]*11/10 {
			t.Errorf("the file grew from %d to %d pages in 45 hours of the same load", pages[14], pages[59])
		}
		if n := s.Counts()[journal.Confirmed]; n > 12*100 {
			t.Errorf("%d calls are kept, want those of ten hours", n)
		}
		recount(t, s)
	})
}

// pageCount is the size of the file, with what is still in its log.
func pageCount(t *testing.T, s *Store) (n int64) {
	t.Helper()
	if err := s.reader.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWritesGoBeforeHousekeeping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q queue
		q.init()
		chore := func() *task { return &task{since: time.Now(), done: make(chan struct{})} }
		take := func() (rows, tasks int) {
			b, _, _ := q.ready(time.Hour)
			return len(b.entries), len(b.tasks)
		}
		if err := q.addChore(chore()); err != nil {
			t.Fatal(err)
		}
		if _, err := q.addDurable(pending("durable")); err != nil {
			t.Fatal(err)
		}
		if err := q.addLazy(pending("lazy")); err != nil {
			t.Fatal(err)
		}
		if rows, tasks := take(); rows != 1 || tasks != 0 {
			t.Errorf("%d rows and %d tasks come first, want the durable row", rows, tasks)
		}
		if rows, tasks := take(); rows != 0 || tasks != 1 {
			t.Errorf("%d rows and %d tasks come next, want the chore; the lazy row waits for company", rows, tasks)
		}
		if err := q.addChore(chore()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(choreAge) // fake clock
		if _, err := q.addDurable(pending("durable")); err != nil {
			t.Fatal(err)
		}
		if rows, tasks := take(); rows != 1 || tasks != 1 {
			t.Errorf("%d rows and %d tasks, want the chore too, which has waited long enough", rows, tasks)
		}
	})
}

// TestHousekeepingTakesSmallSteps saves durable rows while old ones go.
func TestHousekeepingTakesSmallSteps(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	s := openStore(t, path, Options{Owner: "a"})
	const old = 1500
	for i := range old {
		save(t, s, aged(strconv.Itoa(i), journal.Confirmed, 2*time.Hour))
	}
	closeIt(t, s)
	s = openStore(t, path, Options{Owner: "b", Retention: time.Hour})
	steps := map[int64]bool{}
	for i := 0; s.Counts()[journal.Confirmed] > 0; i++ {
		saveAll(t, s, pending(fmt.Sprintf("new %d", i)))
		steps[s.Counts()[journal.Confirmed]] = true
	}
	if len(steps) < old/maxStep {
		t.Errorf("the rows went in %d steps, want at least %d", len(steps), old/maxStep)
	}
	recount(t, s)
}

const secret = "card 4111-1111-1111-1111"

// payload is a call that says the secret wherever one can.
func payload(id string, state journal.State) journal.Call {
	c := pending(id)
	c.State, c.Submissions, c.CreatedAt, c.ConfirmedAt = state, 2, time.Unix(1, 0).UTC(), time.Unix(2, 0).UTC()
	c.Arguments, c.Request = []byte(secret), []byte(secret)
	c.Outcome = journal.Failure(journal.Denied, secret)
	c.Outcome.Output = secret + strings.Repeat(" large", 1000)
	late := journal.Success(secret)
	late.Error, late.Content = secret, true
	c.LateOutcome = &late
	c.Attempts = []journal.Attempt{{StartedAt: time.Unix(1, 0).UTC(), Status: 403}}
	return c
}

// withoutPayload is what is to be left of it.
func withoutPayload(c journal.Call, owner string) journal.Call {
	c.Owner, c.Erased, c.Arguments, c.Request = owner, true, nil, nil
	c.Outcome.Output, c.Outcome.Error = "", ""
	c.LateOutcome = &journal.Outcome{Success: true, Content: true}
	return c
}

func TestConfirmedCallsLoseTheirPayloads(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	s := openStore(t, path, Options{Owner: "a", ErasePayloads: true})
	want := map[string]journal.Call{}
	for _, state := range journal.States() {
		c := payload(string(state), state)
		c.Owner = "a"
		want[c.CallID] = c
		saveAll(t, s, c)
	}
	for _, state := range []journal.State{journal.Confirmed, journal.Submitted} {
		c := payload(string(state), journal.Confirmed) // the first a second time
		want[c.CallID] = withoutPayload(c, "a")
		saveAll(t, s, c)
	}
	for _, c := range want {
		if got, err := s.Call(t.Context(), c.Key); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s (%v): got\n%+v, want\n%+v", c.CallID, err, got, c)
		}
	}
}

// TestErasedPayloadsAreNotInTheFile looks for the bytes, in the free room too.
func TestErasedPayloadsAreNotInTheFile(t *testing.T) {
	t.Parallel()
	for _, erase := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "bridge.db")
		s := openStore(t, path, Options{Owner: "a", ErasePayloads: erase})
		for i := range 100 {
			for _, state := range []journal.State{journal.Pending, journal.Submitted, journal.Confirmed} {
				saveAll(t, s, payload(strconv.Itoa(i), state))
			}
		}
		closeIt(t, s)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if kept := strings.Contains(string(b), "4111"); kept == erase {
			t.Errorf("erase %t: the file holds the payload: %t", erase, kept)
		}
	}
}

// stillKept counts the confirmed calls that have a payload.
func stillKept(t *testing.T, s *Store) (n int) {
	t.Helper()
	if err := s.reader.QueryRowContext(t.Context(), "SELECT count(*) FROM calls WHERE state = 'confirmed' AND erased = 0").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestEarlierPayloadsAreErased: also those that were confirmed while the option
// was off for a while.
func TestEarlierPayloadsAreErased(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	synctest.Test(t, func(t *testing.T) {
		want := map[string]journal.Call{}
		for round, erase := range []bool{false, true, false, true} {
			owner := strconv.Itoa(round)
			s := openStore(t, path, Options{Owner: owner, ErasePayloads: erase})
			for i := range 4*firstStep + 7 {
				c := payload(fmt.Sprintf("%d %d", round, i), journal.Confirmed)
				if err := s.Save(t.Context(), c, journal.Lazy); err != nil {
					t.Fatal(err)
				}
				want[c.CallID] = withoutPayload(c, owner)
			}
			switch round {
			case 0:
				c := payload("abandoned", journal.Abandoned)
				c.Owner = owner
				want[c.CallID] = c
				saveAll(t, s, c, payload("long", journal.Submitted))
			case 2: // it was passed over in round 1
				long, err := s.Unsettled(t.Context())
				if err != nil || len(long) != 1 {
					t.Fatal(long, err)
				}
				long[0].State = journal.Confirmed
				want["long"] = withoutPayload(long[0], owner)
				saveAll(t, s, long[0])
			}
			time.Sleep(time.Minute) // fake clock
			if n := stillKept(t, s); (n == 0) != erase {
				t.Errorf("erase %t: %d confirmed calls have their payload", erase, n)
			}
			closeIt(t, s)
		}
		s := openStore(t, path, Options{Owner: "z"})
		for _, c := range want {
			if got, err := s.read(t.Context(), c.Key); err != nil || !reflect.DeepEqual(got, c) {
				t.Fatalf("%s (%v): got\n%+v, want\n%+v", c.CallID, err, got, c)
			}
		}
	})
}

// TestErasingGoesOnAfterAnInterruption closes the store in the middle.
func TestErasingGoesOnAfterAnInterruption(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bridge.db")
	s := openStore(t, path, Options{Owner: "a"})
	for i := range 600 {
		if err := s.Save(t.Context(), payload(strconv.Itoa(i), journal.Confirmed), journal.Lazy); err != nil {
			t.Fatal(err)
		}
	}
	closeIt(t, s)
	n := 600
	for starts := 1; n > 0; starts++ {
		s = openStore(t, path, Options{Owner: "b", ErasePayloads: true})
		began := n
		until(t, "some are erased", func() bool { n = stillKept(t, s); return n < began })
		closeIt(t, s)
		if starts > 100 {
			t.Fatalf("%d calls are left after 100 starts", n)
		}
	}
	s = openStore(t, path, Options{Owner: "c", ErasePayloads: true})
	until(t, "the end is noted", func() bool {
		var to int64
		err := s.reader.QueryRowContext(context.Background(), "SELECT erased_to FROM process").Scan(&to)
		return err == nil && to == 600
	})
}
