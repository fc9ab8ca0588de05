package sqlite

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"functionbridge/internal/journal"
)

// Limits of a listing; see journal.Filter.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

// Turn returns the calls of a turn that are on disk, oldest first, for telling
// what is known after a restart. Everything is filled but Arguments, Request,
// Attempts, LateOutcome and the outcome's texts (Output, Error), so what it
// returns is not to be saved.
func (s *Store) Turn(ctx context.Context, sessionID, turnID string) ([]journal.Call, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read turn: %w", err)
	}
	calls, err := brief(ctx, s.turn, scanBrief, sessionID, turnID)
	if err != nil {
		return nil, s.unread(ctx, "read turn", err)
	}
	return calls, nil
}

// Turns returns the ids of the turns of a session of which calls are on disk, in
// no order. It looks at no more than limit calls: when the session has more, all
// is false and some of the ids may be missing.
func (s *Store) Turns(ctx context.Context, sessionID string, limit int) (ids []string, all bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, fmt.Errorf("read turns: %w", err)
	}
	ids, err = brief(ctx, s.turns, scanText, sessionID, limit+1)
	if err != nil {
		return nil, false, s.unread(ctx, "read turns", err)
	}
	all = len(ids) <= limit
	return slices.Compact(ids), all, nil
}

// turnsSQL reads nothing but the index of the key, in whose order a turn's calls
// stand together.
const turnsSQL = "SELECT turn_id FROM calls WHERE session_id = ? ORDER BY turn_id LIMIT ?"

// brief runs a query that is made often and reads a few rows: a context that can
// end costs the driver a goroutine a query, and parsing the statement more than
// running it.
func brief[T any](ctx context.Context, query *sql.Stmt, scan func(scanner) (T, error), args ...any) ([]T, error) {
	rows, err := query.QueryContext(context.WithoutCancel(ctx), args...)
	if err != nil {
		return nil, err
	}
	return readAll(rows, scan)
}

const turnSQL = `SELECT session_id, turn_id, call_id, function, idempotent, created_at, state, owner, generation,
	answered_at, submitted_at, confirmed_at, success, content, failure, fence, rev, sent_at, retry_at, reran, crashes, erased
	FROM calls WHERE session_id = ? AND turn_id = ? ORDER BY id`

func scanBrief(row scanner) (journal.Call, error) {
	var (
		c                                     journal.Call
		created, answered, submitted, confirm int64
		sent, retry                           int64
	)
	err := row.Scan(&c.SessionID, &c.TurnID, &c.CallID, &c.Function, &c.Idempotent, &created, &c.State, &c.Owner, &c.Submissions,
		&answered, &submitted, &confirm, &c.Outcome.Success, &c.Outcome.Content, &c.Outcome.Failure,
		&c.Fence, &c.Rev, &sent, &retry, &c.Reran, &c.Crashes, &c.Erased)
	c.CreatedAt, c.AnsweredAt = fromMicros(created), fromMicros(answered)
	c.SubmittedAt, c.ConfirmedAt = fromMicros(submitted), fromMicros(confirm)
	c.SentAt, c.RetryAt = fromMicros(sent), fromMicros(retry)
	return c, err
}

// byKey selects one call.
const byKey = "session_id = ? AND turn_id = ? AND call_id = ?"

// Unsettled makes this process the owner of every call that is neither
// confirmed nor abandoned, under a higher fence where it belonged to another,
// and returns them whole, oldest first.
func (s *Store) Unsettled(ctx context.Context) ([]journal.Call, error) {
	if err := s.adoptUnsettled(ctx); err != nil {
		return nil, fmt.Errorf("take unsettled calls: %w", err)
	}
	calls, err := collect(ctx, s.reader, scanCall, "SELECT "+columnRead+" FROM calls WHERE "+unsettled+" ORDER BY id")
	if err != nil {
		return nil, s.unread(ctx, "read unsettled calls", err)
	}
	return calls, nil
}

func (s *Store) adoptUnsettled(ctx context.Context) error {
	return s.do(ctx, func(ctx context.Context, c *connection) error {
		c.bind(s.owner, s.owner)
		_, err := c.exec(ctx, "UPDATE calls SET owner = ?, fence = fence + 1 WHERE "+unsettled+" AND owner <> ?")
		return err
	})
}

// maxDropped is the most calls that Dropped returns.
const maxDropped = 1000

// Dropped makes this process the owner of the unsettled calls that known does
// not know and returns them whole, oldest first, at most 1000: what somebody let
// go of. It costs no query when there are none. known may be called more than
// once for a call. It fails with journal.ErrUnavailable while the journal cannot
// be written, since what was settled meanwhile is not on disk then.
func (s *Store) Dropped(ctx context.Context, known func(journal.Key) bool) ([]journal.Call, error) {
	keys := s.tally.waiting(known)
	if len(keys) == 0 {
		return nil, nil
	}
	if s.queue.outage() {
		return nil, fmt.Errorf("take dropped calls: %w", journal.ErrUnavailable)
	}
	// Also writes what was settled before known was asked.
	if err := s.adoptUnsettled(ctx); err != nil {
		return nil, fmt.Errorf("take dropped calls: %w", err)
	}
	var dropped []journal.Call
	for _, k := range keys {
		if len(dropped) == maxDropped {
			break
		}
		call, err := s.read(ctx, k)
		switch {
		case errors.Is(err, journal.ErrNotFound), err == nil && (call.State.Settled() || known(k)):
		case err != nil:
			return nil, err
		default:
			dropped = append(dropped, call)
		}
	}
	return dropped, nil
}

// Call returns one call, as of all that was saved before; journal.ErrNotFound
// when there is none. During an outage it shows what is on disk.
func (s *Store) Call(ctx context.Context, key journal.Key) (journal.Call, error) {
	if err := s.settle(ctx); err != nil {
		return journal.Call{}, err
	}
	return s.read(ctx, key)
}

// read returns one call as it is on disk.
func (s *Store) read(ctx context.Context, key journal.Key) (journal.Call, error) {
	call, err := scanCall(s.reader.QueryRowContext(ctx, "SELECT "+columnRead+" FROM calls WHERE "+byKey,
		key.SessionID, key.TurnID, key.CallID))
	if errors.Is(err, sql.ErrNoRows) {
		err = journal.ErrNotFound
	}
	if err != nil {
		return journal.Call{}, s.unread(ctx, "read call", err)
	}
	return call, nil
}

// unread is the error of a read that failed. What is damaged is written no more.
func (s *Store) unread(ctx context.Context, what string, err error) error {
	err = explain(err, s.path)
	if lasting(err) && s.queue.condemn(err) {
		s.logger.ErrorContext(ctx, "journal cannot be written", "path", s.path, "error", err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// settle flushes before a read, but for an outage, in which it would never end.
func (s *Store) settle(ctx context.Context) error {
	if s.queue.outage() {
		return nil
	}
	return s.Flush(ctx)
}

// Calls returns a page of the calls that f selects, newest first, as of all
// that was saved before, and the cursor of the next page, empty on the last.
// Calls that are added meanwhile move no page. It fails with journal.ErrCursor
// when f.After is not a cursor.
func (s *Store) Calls(ctx context.Context, f journal.Filter) (calls []journal.Call, next string, err error) {
	limit := f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	limit = min(limit, maxLimit)
	where, args, err := condition(f)
	if err != nil {
		return nil, "", fmt.Errorf("list calls: %w", err)
	}
	if err := s.settle(ctx); err != nil {
		return nil, "", err
	}
	// The ids first: sorting whole rows would carry their payloads along.
	query := "SELECT id, " + columnRead + " FROM calls WHERE id IN (SELECT id FROM calls" + where +
		" ORDER BY id DESC LIMIT ?) ORDER BY id DESC"
	page, err := collect(ctx, s.reader, scanListed, query, append(args, limit+1)...)
	if err != nil {
		return nil, "", s.unread(ctx, "list calls", err)
	}
	if len(page) > limit {
		page = page[:limit]
		next = cursor(page[limit-1].id)
	}
	calls = make([]journal.Call, len(page))
	for i, l := range page {
		calls[i] = l.call
	}
	return calls, next, nil
}

type listed struct {
	id   int64
	call journal.Call
}

func scanListed(row scanner) (l listed, err error) {
	l.call, err = scanCall(withID{row, &l.id})
	return l, err
}

// withID reads the id that stands before a row.
type withID struct {
	scanner
	id *int64
}

// Scan reads the id and then the destinations.
func (w withID) Scan(dest ...any) error {
	return w.scanner.Scan(append([]any{w.id}, dest...)...)
}

// condition turns a filter into SQL.
func condition(f journal.Filter) (where string, args []any, err error) {
	var parts []string
	add := func(part string, arg any) { parts, args = append(parts, part), append(args, arg) }
	if f.SessionID != "" {
		add("session_id = ?", f.SessionID)
	}
	if f.Function != "" {
		add("function = ?", f.Function)
	}
	if f.State != "" {
		add("state = ?", string(f.State))
		if !f.State.Settled() {
			parts = append(parts, unsettled) // so that the partial index serves
		}
	}
	if f.After != "" {
		id, err := fromCursor(f.After)
		if err != nil {
			return "", nil, err
		}
		add("id < ?", id)
	}
	if len(parts) == 0 {
		return "", nil, nil
	}
	return " WHERE " + strings.Join(parts, " AND "), args, nil
}

// cursor is a row's id in a form that promises nothing.
func cursor(id int64) string {
	return base64.RawURLEncoding.EncodeToString(strconv.AppendInt([]byte("c"), id, 36))
}

func fromCursor(s string) (int64, error) {
	text, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(text) < 2 || text[0] != 'c' {
		return 0, journal.ErrCursor
	}
	id, err := strconv.ParseInt(string(text[1:]), 36, 64)
	if err != nil {
		return 0, journal.ErrCursor
	}
	return id, nil
}

// SaveFollow writes one row of the sessions asked for by hand, and returns when
// it is on disk. An UpdatedAt of zero becomes now.
func (s *Store) SaveFollow(ctx context.Context, f journal.Follow) error {
	if f.SessionID == "" {
		return errors.New("save follow: the session id is empty")
	}
	if f.UpdatedAt.IsZero() {
		f.UpdatedAt = time.Now()
	}
	save := func(ctx context.Context, c *connection) error {
		c.bind(f.SessionID, flag(f.Followed), micros(f.UpdatedAt))
		_, err := c.exec(ctx, `INSERT INTO follows (session_id, followed, updated_at) VALUES (?, ?, ?)
			ON CONFLICT (session_id) DO UPDATE SET followed = excluded.followed, updated_at = excluded.updated_at`)
		return err
	}
	if err := s.do(ctx, save); err != nil {
		return fmt.Errorf("save follow: %w", err)
	}
	return nil
}

// Follows returns every row that SaveFollow wrote, the tombstones too, by session id.
func (s *Store) Follows(ctx context.Context) ([]journal.Follow, error) {
	follows, err := collect(ctx, s.reader, scanFollow, "SELECT session_id, followed, updated_at FROM follows ORDER BY session_id")
	if err != nil {
		return nil, s.unread(ctx, "read follows", err)
	}
	return follows, nil
}

func scanFollow(row scanner) (f journal.Follow, err error) {
	var updated int64
	err = row.Scan(&f.SessionID, &f.Followed, &updated)
	f.UpdatedAt = fromMicros(updated)
	return f, err
}

// collect reads all rows of a query.
func collect[T any](ctx context.Context, db *sql.DB, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return readAll(rows, scan)
}

// readAll reads rows to their end and closes them.
func readAll[T any](rows *sql.Rows, scan func(scanner) (T, error)) ([]T, error) {
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}
