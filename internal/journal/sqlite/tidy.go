package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"functionbridge/internal/journal"
)

// Housekeeping goes over the calls in steps of so many rows, each a transaction
// that is to hold up nobody for longer than stepTime, and rests after each for
// restFactor times as long as it took.
const (
	minStep, firstStep, maxStep = 10, 50, 500

	stepTime   = 10 * time.Millisecond
	restFactor = 4
	minRest    = time.Millisecond
)

// Calls are looked through for those past their retention every maxRound, or
// ten times in the retention, but not more often than every minRound.
const (
	maxRound = 10 * time.Minute
	minRound = time.Second
)

// tidy does the housekeeping until there is none left or the store is closed.
func (s *Store) tidy(ctx context.Context) {
	defer close(s.tidied)
	if !s.inspected {
		s.report(ctx, "look for damage", s.inspect(ctx))
	}
	round := maxRound
	if s.keep > 0 {
		round = min(max(s.keep/10, minRound), maxRound)
	}
	for toErase := s.erase; toErase || s.keep > 0; {
		if toErase {
			toErase = !s.report(ctx, "erase payloads", s.eraseOld(ctx))
		}
		if s.keep > 0 {
			s.report(ctx, "delete old calls", s.expire(ctx))
		}
		if !s.queue.pause(round) {
			return
		}
	}
}

// report logs what did not go well, and returns whether it did.
func (s *Store) report(ctx context.Context, what string, err error) (done bool) {
	if err != nil && !errors.Is(err, errClosed) {
		s.logger.WarnContext(ctx, "journal housekeeping failed; it is tried again later", "task", what, "error", err)
	}
	return err == nil
}

// expire deletes the settled calls that are older than the retention. Ids follow
// the times of creation, so that it ends at the first page of younger calls.
func (s *Store) expire(ctx context.Context) error {
	cutoff := micros(time.Now().Add(-s.keep))
	return s.walk(ctx, 0, func(ctx context.Context, after int64, rows int) (p page, err error) {
		var oldest sql.NullInt64
		err = s.reader.QueryRowContext(ctx, expirePage, cutoff, after, rows).Scan(&p.upTo, &oldest, &p.hits)
		if oldest.Int64 >= cutoff {
			p.upTo.Valid = false
		}
		return p, err
	}, func(ctx context.Context, c *connection, after, upTo int64) (n tallied, err error) {
		for state, deleted := range map[journal.State]*int64{journal.Confirmed: &n.confirmed, journal.Abandoned: &n.abandoned} {
			result, err := c.bind(after, upTo, string(state), cutoff).exec(ctx, expireSQL)
			if err != nil {
				return n, err
			}
			if *deleted, err = result.RowsAffected(); err != nil {
				return n, err
			}
		}
		return n, nil
	})
}

const (
	lastTouched = "max(created_at, answered_at, submitted_at, confirmed_at)"
	expirePage  = `SELECT max(id), min(created_at), coalesce(sum(state IN ('confirmed', 'abandoned') AND ` + lastTouched + ` < ?), 0)
		FROM (SELECT id, state, created_at, answered_at, submitted_at, confirmed_at FROM calls WHERE id > ? ORDER BY id LIMIT ?)`
	// The last row stays: its id would be given to another call.
	expireSQL = "DELETE FROM calls WHERE id > ? AND id <= ? AND id < (SELECT max(id) FROM calls) AND state = ? AND " + lastTouched + " < ?"
)

// page is what a step looked at: its highest id, invalid at the end, and how
// many of its rows there is something to do for.
type page struct {
	upTo sql.NullInt64
	hits int64
}

// walk goes over the calls by their ids. look says what a page holds, and change
// does to its rows, in the writer's transaction, what is to be done.
func (s *Store) walk(ctx context.Context, after int64,
	look func(ctx context.Context, after int64, rows int) (page, error),
	change func(ctx context.Context, c *connection, after, upTo int64) (deleted tallied, err error),
) error {
	for rows := firstStep; ; {
		began := time.Now()
		p, err := look(ctx, after, rows)
		if err != nil {
			return s.unread(ctx, "look at calls", err)
		}
		if !p.upTo.Valid {
			return nil
		}
		took := time.Since(began)
		if p.hits > 0 {
			changing, err := s.step(ctx, func(ctx context.Context, c *connection) (tallied, error) {
				return change(ctx, c, after, p.upTo.Int64)
			})
			if err != nil {
				return err
			}
			took += changing
		}
		rows, after = nextStep(rows, took), p.upTo.Int64
		if !s.queue.pause(max(restFactor*took, minRest)) {
			return errClosed
		}
	}
}

// step makes one change when nobody else writes, and says how long it took.
func (s *Store) step(ctx context.Context, change func(context.Context, *connection) (tallied, error)) (took time.Duration, err error) {
	t := &task{}
	t.run = func(ctx context.Context, c *connection) (err error) {
		began := time.Now()
		t.deleted, err = change(ctx, c)
		took = time.Since(began)
		return err
	}
	return took, s.tidyUp(ctx, t)
}

// nextStep is how many rows the next step may have after one that took so long.
func nextStep(rows int, took time.Duration) int {
	switch {
	case took > stepTime:
		return max(rows/2, minStep)
	case took < stepTime/2:
		return min(rows*2, maxStep)
	}
	return rows
}

// inspect looks through a file that is too large to be read at the start, and
// ends the writing when it finds damage. That calls and their index agree is what
// keeps a call from being taken for a new one.
func (s *Store) inspect(ctx context.Context) error {
	return s.walk(ctx, 0, func(ctx context.Context, after int64, rows int) (p page, err error) {
		var lost int64
		if err = s.reader.QueryRowContext(ctx, inspectPage, after, rows).Scan(&p.upTo, &lost); lost > 0 {
			err = damaged(fmt.Sprintf("%d calls are missing from the index", lost), nil)
		}
		return p, err
	}, nil)
}

const inspectPage = `SELECT max(c.id), coalesce(sum(i.id IS NOT c.id), 0)
	FROM (SELECT id, session_id, turn_id, call_id FROM calls NOT INDEXED WHERE id > ? ORDER BY id LIMIT ?) c
	LEFT JOIN calls i INDEXED BY sqlite_autoindex_calls_1
	ON i.session_id = c.session_id AND i.turn_id = c.turn_id AND i.call_id = c.call_id`

// erased returns the call without its payload. What attempts say is in the
// bridge's own words.
func erased(c journal.Call) journal.Call {
	c.Arguments, c.Request = nil, nil
	c.Outcome.Output, c.Outcome.Error = "", ""
	if c.LateOutcome != nil {
		late := *c.LateOutcome
		late.Output, late.Error = "", ""
		c.LateOutcome = &late
	}
	c.Erased = true
	return c
}

// eraseOld erases the calls that were confirmed while the store erased nothing,
// from where it was left.
func (s *Store) eraseOld(ctx context.Context) error {
	var from int64
	if err := s.reader.QueryRowContext(ctx, "SELECT erased_to FROM process").Scan(&from); err != nil {
		return fmt.Errorf("read how far it is: %w", err)
	}
	last := s.tally.highest() // what is confirmed from now on is erased as it is written
	return s.walk(ctx, from, func(ctx context.Context, after int64, rows int) (p page, err error) {
		p.hits = 1 // each step writes how far it is
		return p, s.reader.QueryRowContext(ctx, erasePage, after, last, rows).Scan(&p.upTo)
	}, func(ctx context.Context, c *connection, after, upTo int64) (none tallied, err error) {
		if _, err := c.bind(after, upTo).exec(ctx, eraseSQL); err != nil {
			return none, err
		}
		_, err = c.bind(upTo).exec(ctx, "UPDATE process SET erased_to = ?")
		return none, err
	})
}

const (
	erasePage = "SELECT max(id) FROM (SELECT id FROM calls WHERE id > ? AND id <= ? ORDER BY id LIMIT ?)"
	eraseSQL  = `UPDATE calls SET arguments = NULL, request = NULL, output = NULL, error = NULL, erased = 1,
		late_outcome = CAST(json_remove(CAST(late_outcome AS TEXT), '$.output', '$.error') AS BLOB)
		WHERE id > ? AND id <= ? AND state = 'confirmed' AND erased = 0`
)
