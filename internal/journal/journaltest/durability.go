//nolint:thelper // these are tests: their failures are theirs
package journaltest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"functionbridge/internal/journal"
)

func durableAfterReopen(t *testing.T, o Open) {
	s := open(t, o, "a")
	save(t, s, journal.Durable, call("call_1"))
	// Read past the store's own memory: a turn is not flushed for.
	calls, err := s.Turn(t.Context(), "sess_1", "turn_1")
	if err != nil || len(calls) != 1 {
		t.Fatalf("%d calls on disk (%v), want 1", len(calls), err)
	}
	closeStore(t, s)
	get(t, open(t, o, "b"), call("call_1").Key)
}

func lazyAfterClose(t *testing.T, o Open) {
	s := open(t, o, "a")
	save(t, s, journal.Lazy, call("call_1"))
	closeStore(t, s)
	get(t, open(t, o, "b"), call("call_1").Key)
}

func flushWrites(t *testing.T, o Open) {
	s := open(t, o, "a")
	for i := range 2000 {
		save(t, s, journal.Lazy, call(strconv.Itoa(i)))
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls, err := s.Turn(t.Context(), "sess_1", "turn_1")
	if err != nil || len(calls) != 2000 {
		t.Errorf("%d calls on disk (%v), want 2000", len(calls), err)
	}
}

func callerLeft(t *testing.T, o Open) {
	s := open(t, o, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.Save(ctx, call("call_1"), journal.Durable)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's or none", err)
	}
	get(t, s, call("call_1").Key)
}

// manyWorkers carries calls through their lives side by side; run with -race.
func manyWorkers(t *testing.T, o Open) {
	const workers, each = 8, 1000
	s := open(t, o, "a")
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				if err := live(t.Context(), s, fmt.Sprintf("call_%d_%d", w, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts := s.Counts()
	if counts[journal.Confirmed] != workers*each {
		t.Errorf("counts %v, want %d confirmed", counts, workers*each)
	}
	if calls, err := s.Turn(t.Context(), "sess_1", "turn_1"); err != nil || len(calls) != workers*each {
		t.Errorf("%d rows (%v), want %d", len(calls), err, workers*each)
	}
}

func live(ctx context.Context, s Store, id string) error {
	for _, step := range []struct {
		state journal.State
		d     journal.Durability
	}{
		{journal.Pending, journal.Lazy},
		{journal.Running, journal.Durable},
		{journal.Answered, journal.Lazy},
		{journal.Submitted, journal.Lazy},
		{journal.Confirmed, journal.Lazy},
	} {
		if err := s.Save(ctx, in(call(id), step.state), step.d); err != nil {
			return fmt.Errorf("%s as %s: %w", id, step.state, err)
		}
	}
	return nil
}

func healthyReady(t *testing.T, o Open) {
	s := open(t, o, "a")
	for range 3 {
		if err := s.Ready(t.Context()); err != nil {
			t.Errorf("not ready: %v", err)
		}
	}
}

func closedRefuses(t *testing.T, o Open) {
	s := open(t, o, "a")
	closeStore(t, s)
	for _, d := range []journal.Durability{journal.Lazy, journal.Durable} {
		if err := s.Save(t.Context(), call("call_1"), d); !errors.Is(err, journal.ErrUnavailable) {
			t.Errorf("save after close: %v, want unavailable", err)
		}
	}
	if err := s.Ready(t.Context()); !errors.Is(err, journal.ErrUnavailable) {
		t.Errorf("ready after close: %v, want unavailable", err)
	}
	closeStore(t, s)
}

// cleanEnd: a call that is running when the journal is closed is no crash.
func cleanEnd(t *testing.T, o Open) {
	for i, owner := range []string{"a", "b", "c"} {
		s := open(t, o, owner)
		if s.Unclean() {
			t.Errorf("%s takes the end before for unclean", owner)
		}
		if i == 0 {
			save(t, s, journal.Durable, in(call("call_1"), journal.Running))
		}
		if c := unsettled(t, s, 1)[0]; c.Crashes != 0 {
			t.Errorf("%d crashes, want none", c.Crashes)
		}
		closeStore(t, s)
	}
}
