package sqlite

import (
	"context"
	"errors"
	"time"
)

// How long the writer waits after a failed commit: doubled from the first to
// the last.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// write is the writer: it alone holds a connection that writes.
func (s *Store) write(ctx context.Context) {
	defer close(s.done)
	var conn *connection
	defer func() { conn.close(s.logger) }()
	for {
		b, ok := s.queue.take(s.delay)
		if !ok {
			conn = s.leave(ctx, conn)
			<-s.quiet
			return
		}
		conn = s.persist(ctx, conn, &b)
	}
}

// leave marks a clean end, when all was written. A mark that cannot be written
// makes the next start more careful than it need be, and is no reason to wait.
func (s *Store) leave(ctx context.Context, conn *connection) *connection {
	if s.queue.lost() != nil || s.queue.condemned() != nil {
		return conn
	}
	var err error
	if conn == nil {
		conn, err = s.dial(ctx)
	}
	if err == nil {
		err = conn.leave(ctx)
	}
	if err != nil {
		s.logger.WarnContext(ctx, "journal could not note its clean end", "error", err)
	}
	return conn
}

// persist commits a batch, however long it takes: what was accepted is kept in
// memory over an outage, and only a process that ends gives it up. Each failure
// costs the connection, because its state is unknown.
func (s *Store) persist(ctx context.Context, conn *connection, b *batch) *connection {
	began, wait := time.Now(), firstRetry
	for {
		var lastID int64
		var err error
		if conn, lastID, err = s.attempt(ctx, conn, b); err == nil {
			s.finish(b, lastID, began)
			s.trim(ctx, conn)
			return conn
		}
		conn.close(s.logger)
		conn = nil
		isNew, giveUp := s.queue.failed(b, err)
		if isNew {
			s.logger.ErrorContext(ctx, "journal cannot be written", "path", s.path, "error", err, "rows", len(b.entries))
		}
		if giveUp {
			return nil
		}
		_ = s.queue.pause(wait)
		wait = min(2*wait, lastRetry)
	}
}

// attempt commits a batch once and sees that it went where it will be found. It
// returns the connection, which it may have made.
func (s *Store) attempt(ctx context.Context, conn *connection, b *batch) (_ *connection, lastID int64, err error) {
	if err := s.queue.condemned(); err != nil {
		return conn, 0, err
	}
	if conn == nil {
		if conn, err = s.dial(ctx); err != nil {
			return nil, 0, explain(err, s.path)
		}
	}
	if lastID, err = conn.commit(ctx, b, s.tally); err != nil {
		return conn, 0, explain(err, s.path)
	}
	return conn, lastID, s.inPlace(conn)
}

func (s *Store) finish(b *batch, lastID int64, began time.Time) {
	s.tally.committed(b, lastID)
	if s.queue.committed(b, time.Since(began)) {
		s.logger.Info("journal can be written again", "outage_ms", time.Since(began).Milliseconds())
	}
	for _, e := range b.entries {
		if e.err != nil && !e.overtaken && len(e.waiters) == 0 {
			s.logger.Warn("journal refused a row", "session_id", e.call.SessionID, "turn_id", e.call.TurnID,
				"call_id", e.call.CallID, "state", e.call.State, "error", e.err)
		}
	}
}

// pause waits; a stop cuts it short, and it returns false.
func (q *queue) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-q.stopped:
		return false
	}
}

// errDriver means that the driver lacks something that this package relies on.
var errDriver = errors.New("the driver lacks a method")
