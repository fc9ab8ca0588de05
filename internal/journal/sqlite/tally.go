package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"functionbridge/internal/journal"
)

// unsettled is the condition of the partial index; SQLite takes that index only
// when a query says it in the same words.
const unsettled = "state NOT IN ('confirmed', 'abandoned')"

// tally counts the rows on disk by state, so that a scrape costs no query. It
// remembers each unsettled call, because a write is told only the new state.
type tally struct {
	mu      sync.Mutex
	open    map[journal.Key]openCall
	numbers map[journal.State]int64
	lastID  int64 // the highest id that was ever in the table, since ids tell new rows from old
	refused int64 // rows that were not written because they were stale
}

// tallied are numbers of settled calls.
type tallied struct{ confirmed, abandoned int64 }

type openCall struct {
	state   journal.State
	created time.Time
}

// loadTally reads the unsettled calls and the stored numbers of the others.
func loadTally(ctx context.Context, db *sql.DB) (*tally, error) {
	t := &tally{open: map[journal.Key]openCall{}, numbers: map[journal.State]int64{}}
	for _, s := range journal.States() {
		t.numbers[s] = 0
	}
	var confirmed, abandoned int64
	err := db.QueryRowContext(ctx, "SELECT confirmed, abandoned, (SELECT coalesce(max(id), 0) FROM calls) FROM tally").
		Scan(&confirmed, &abandoned, &t.lastID)
	if err != nil {
		return nil, fmt.Errorf("read tally: %w", err)
	}
	t.numbers[journal.Confirmed], t.numbers[journal.Abandoned] = confirmed, abandoned
	if err := t.loadOpen(ctx, db); err != nil {
		return nil, fmt.Errorf("read unsettled calls: %w", err)
	}
	return t, nil
}

func (t *tally) loadOpen(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, "SELECT session_id, turn_id, call_id, state, created_at FROM calls WHERE "+unsettled)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var (
			k       journal.Key
			state   journal.State
			created int64
		)
		if err := rows.Scan(&k.SessionID, &k.TurnID, &k.CallID, &state, &created); err != nil {
			return err
		}
		t.open[k] = openCall{state: state, created: fromMicros(created)}
		t.numbers[state]++
	}
	return rows.Err()
}

// highest returns the highest id on disk.
func (t *tally) highest() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastID
}

// isOpen reports whether the call has an unsettled row on disk.
func (t *tally) isOpen(k journal.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.open[k]
	return ok
}

// committed takes over what a transaction wrote.
func (t *tally) committed(b *batch, lastID int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastID = lastID
	for _, e := range b.entries {
		t.move(e)
	}
	for _, task := range b.tasks {
		t.numbers[journal.Confirmed] -= task.deleted.confirmed
		t.numbers[journal.Abandoned] -= task.deleted.abandoned
	}
}

func (t *tally) move(e *entry) {
	if e.err != nil {
		if !e.overtaken {
			t.refused++
		}
		return
	}
	call := openCall{state: e.call.State, created: e.call.CreatedAt}
	if before, ok := t.open[e.call.Key]; ok {
		t.numbers[before.state]--
		call.created = before.created
	} else if e.before != "" {
		t.numbers[e.before]--
	}
	t.numbers[call.state]++
	if call.state.Settled() {
		delete(t.open, e.call.Key)
	} else {
		t.open[e.call.Key] = call
	}
}

// settledAfter returns the numbers of settled calls once the batch is committed.
func (t *tally) settledAfter(b *batch) tallied {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := tallied{t.numbers[journal.Confirmed], t.numbers[journal.Abandoned]}
	for _, e := range b.entries {
		if e.err != nil {
			continue
		}
		n.confirmed += is(e.call.State, journal.Confirmed) - is(e.before, journal.Confirmed)
		n.abandoned += is(e.call.State, journal.Abandoned) - is(e.before, journal.Abandoned)
	}
	for _, task := range b.tasks {
		n.confirmed -= task.deleted.confirmed
		n.abandoned -= task.deleted.abandoned
	}
	return n
}

func is(a, b journal.State) int64 { return flag(a == b) }

// waiting returns the unsettled calls that known does not know, oldest first.
// known is asked without the lock.
func (t *tally) waiting(known func(journal.Key) bool) []journal.Key {
	t.mu.Lock()
	open := maps.Clone(t.open)
	t.mu.Unlock()
	var keys []journal.Key
	for k := range open {
		if !known(k) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b journal.Key) int { return open[a].created.Compare(open[b].created) })
	return keys
}

func (t *tally) counts() map[journal.State]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.numbers)
}

func (t *tally) refusals() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.refused
}

func (t *tally) oldest() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	var oldest time.Time
	for _, c := range t.open {
		waiting := c.state == journal.Pending || c.state == journal.Running || c.state == journal.InDoubt
		if waiting && (oldest.IsZero() || c.created.Before(oldest)) {
			oldest = c.created
		}
	}
	return oldest
}
