package forward_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/journal"
)

// slowJournal is a recorder whose disk takes its time, from the n-th record on.
type slowJournal struct {
	diary

	from int
	wait time.Duration
}

func (s *slowJournal) Sending(ctx context.Context, request []byte) error {
	if err := s.diary.Sending(ctx, request); err != nil || s.sendings < s.from {
		return err
	}
	select {
	case <-time.After(s.wait):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A call that stands on disk only after its time is over has timed out and is
// not sent. One that a broken journal does not take is not answered: it is
// still to be run when the journal can be written again.
func TestACallWhoseTimeEndsWhileItIsRecorded(t *testing.T) {
	t.Parallel()
	const late = "act failed, and nothing was carried out: its time of 1 s was over before it could be sent. Try again later."
	for name, test := range map[string]struct {
		timeout  string
		handler  http.HandlerFunc
		from     int
		wait     time.Duration
		want     journal.Outcome
		took     time.Duration
		requests int
		entries  []string
		stopped  bool
	}{
		"in time": {
			"10s", receipt, 1, 9 * time.Second,
			journal.Success(`{"receipt":7}`), 9 * time.Second, 1,
			[]string{"sending", "sent 200"},
			false,
		},
		"late": {
			"1s", receipt, 1, 1500 * time.Millisecond,
			journal.Failure(journal.Timeout, late), 1500 * time.Millisecond, 0,
			[]string{"sending", "sent 0 unprocessed"},
			false,
		},
		"late for the second attempt": {
			"10s", busy(429, "9"), 2, 1500 * time.Millisecond,
			journal.Failure(journal.RateLimited, "act failed with status 429 (Too Many Requests) and asks to wait 9 s. Try again after 9 s."),
			10500 * time.Millisecond, 1,
			[]string{"sending", "sent 429 unprocessed", "sending", "sent 0 unprocessed"},
			false,
		},
		"not recorded at all":                     {"10s", receipt, 1, time.Hour, journal.Outcome{}, 10 * time.Second, 0, []string{"sending"}, true},
		"not recorded at all, with little time":   {"1s", receipt, 1, time.Hour, journal.Outcome{}, 2 * time.Second, 0, []string{"sending"}, true},
		"recorded by a journal that did not work": {"10s", receipt, 1, 10001 * time.Millisecond, journal.Outcome{}, 10 * time.Second, 0, []string{"sending"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, ", timeout: "+test.timeout, test.handler)
				defer b.stop()
				rec := &slowJournal{from: test.from, wait: test.wait}
				o, err := b.Forward(t.Context(), b.call("act", `{}`), journal.Session{}, rec)
				if stopped := errors.Is(err, context.DeadlineExceeded); stopped != test.stopped || (!stopped && o != test.want) {
					t.Errorf("outcome %+v, error %v", o, err)
				}
				if took := time.Since(b.began); took != test.took || len(b.hits) != test.requests {
					t.Errorf("took %s, requests at %v", took, b.hits)
				}
				if !slices.Equal(rec.entries, test.entries) {
					t.Errorf("the recorder was told %q", rec.entries)
				}
				if test.requests == 0 && strings.Contains(b.log.String(), "call forwarded") {
					t.Errorf("log = %s", b.log.String())
				}
			})
		})
	}
}

// A stop while the call is recorded ends it unsent.
func TestAStopWhileACallIsRecorded(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"recorded at the same time": 3 * time.Second, "not recorded": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, "", receipt)
				defer b.stop()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				rec := &stoppable{slowJournal: slowJournal{from: 1, wait: wait}, done: ctx.Done(), whole: wait < time.Hour}
				o, err := b.Forward(ctx, b.call("act", `{}`), journal.Session{}, rec)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(b.began) != 3*time.Second || len(b.hits) != 0 {
					t.Errorf("outcome %+v, error %v after %s, requests at %v", o, err, time.Since(b.began), b.hits)
				}
				if rec.whole && !slices.Equal(rec.entries, []string{"sending", "sent 0 unprocessed"}) {
					t.Errorf("the recorder was told %q", rec.entries)
				}
			})
		})
	}
}

// stoppable takes the record just when the call is stopped, where whole says so.
type stoppable struct {
	slowJournal

	done  <-chan struct{}
	whole bool
}

func (s *stoppable) Sending(ctx context.Context, request []byte) error {
	if !s.whole {
		return s.slowJournal.Sending(ctx, request)
	}
	<-s.done
	return s.diary.Sending(ctx, request)
}
