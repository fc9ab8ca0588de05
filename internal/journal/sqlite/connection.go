package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"functionbridge/internal/journal"
)

// connection is the one that writes. It stands on the driver itself: one
// goroutine needs no pool, and database/sql would copy and check each of a
// batch's thousands of values again.
type connection struct {
	conn    driver.Conn
	connect driver.Connector
	// earlier shows what was committed before the open transaction; nil until
	// that is asked for.
	earlier driver.Conn
	log     os.FileInfo // the write-ahead log after the last commit; nil before the first
	trimmed time.Time   // when the log was last cut back
	owner   string
	erase   bool // see Options.ErasePayloads
	stmts   map[string]driver.StmtExecContext
	args    []driver.NamedValue // reused
	sql     map[int]string      // of an upsert, by its number of rows
}

// dial opens the store's writing connection.
func (s *Store) dial(ctx context.Context) (*connection, error) {
	conn, err := s.connect.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &connection{
		conn: conn, connect: s.connect, owner: s.owner, erase: s.erase,
		stmts: map[string]driver.StmtExecContext{}, sql: map[int]string{},
	}
	for _, rows := range chunks() {
		c.sql[rows] = upsertSQL(rows, c.erase)
	}
	return c, nil
}

// close gives up the connection; nil is allowed. An open transaction is rolled
// back by SQLite.
func (c *connection) close(logger *slog.Logger) {
	if c == nil {
		return
	}
	var errs []error
	for _, s := range c.stmts {
		if closer, ok := s.(driver.Stmt); ok {
			errs = append(errs, closer.Close())
		}
	}
	if c.earlier != nil {
		errs = append(errs, c.earlier.Close())
	}
	if err := errors.Join(append(errs, c.conn.Close())...); err != nil {
		logger.Warn("journal connection did not close", "error", err)
	}
}

// exec runs a statement that is prepared once, with c.args.
func (c *connection) exec(ctx context.Context, query string) (driver.Result, error) {
	stmt, err := c.prepare(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(ctx, c.args)
}

func (c *connection) prepare(ctx context.Context, query string) (driver.StmtExecContext, error) {
	if s := c.stmts[query]; s != nil {
		return s, nil
	}
	p, ok := c.conn.(driver.ConnPrepareContext)
	if !ok {
		return nil, errDriver
	}
	s, err := p.PrepareContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	stmt, ok := s.(driver.StmtExecContext)
	if !ok {
		return nil, errors.Join(errDriver, s.Close())
	}
	c.stmts[query] = stmt
	return stmt, nil
}

// bind sets the arguments of the next exec.
func (c *connection) bind(values ...driver.Value) *connection {
	c.args = c.args[:0]
	c.add(values...)
	return c
}

func (c *connection) add(values ...driver.Value) {
	for _, v := range values {
		c.args = append(c.args, driver.NamedValue{Ordinal: len(c.args) + 1, Value: v})
	}
}

// commit writes a batch in one transaction and returns the table's highest id.
// It sets each entry's err and before.
func (c *connection) commit(ctx context.Context, b *batch, t *tally) (lastID int64, err error) {
	if _, err := c.bind().exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return 0, fmt.Errorf("begin: %w", err)
	}
	if lastID, err = c.upsertAll(ctx, b.entries, t); err != nil {
		return 0, fmt.Errorf("write calls: %w", err)
	}
	for _, task := range b.tasks {
		if task.run == nil {
			continue
		}
		if err := task.run(ctx, c); err != nil {
			return 0, err
		}
	}
	if err := c.updateTally(ctx, b, t); err != nil {
		return 0, fmt.Errorf("write tally: %w", err)
	}
	if _, err := c.bind().exec(ctx, "COMMIT"); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	return lastID, nil
}

// updateTally writes the numbers of settled calls. A batch that leaves them as
// they are, as one of durable rows does, saves a page more to write and sync; one
// that wrote no row writes the time, so that its commit proves something.
func (c *connection) updateTally(ctx context.Context, b *batch, t *tally) error {
	before, after := t.settledAfter(&batch{}), t.settledAfter(b)
	written := func(e *entry) bool { return e.err == nil }
	if before == after && slices.ContainsFunc(b.entries, written) {
		return nil
	}
	c.bind(after.confirmed, after.abandoned, micros(time.Now()))
	_, err := c.exec(ctx, "UPDATE tally SET confirmed = ?, abandoned = ?, written_at = ?")
	return err
}

// upsertAll writes the rows in chunks, since each number of rows is a statement
// of its own.
func (c *connection) upsertAll(ctx context.Context, entries []*entry, t *tally) (lastID int64, err error) {
	lastID = t.lastID // only this goroutine changes it
	for _, n := range chunks() {
		for len(entries) >= n {
			if lastID, err = c.upsert(ctx, entries[:n], t, lastID); err != nil {
				return 0, err
			}
			entries = entries[n:]
		}
	}
	return lastID, nil
}

// chunks are the numbers of rows that a statement is made for, down to one.
func chunks() []int { return []int{64, 32, 16, 8, 4, 2, 1} }

// upsert writes one chunk. Two numbers tell the common case: as many rows
// changed as were given, and as many ids are new as calls were unknown. In the
// others each row is looked at.
func (c *connection) upsert(ctx context.Context, chunk []*entry, t *tally, before int64) (lastID int64, err error) {
	changed, lastID, err := c.execRows(ctx, chunk, before)
	if err != nil {
		return 0, err
	}
	if changed != int64(len(chunk)) {
		if err := c.findRefused(ctx, chunk, before); err != nil {
			return 0, err
		}
	}
	var unknown []*entry
	for _, e := range chunk {
		if e.before = ""; e.err == nil && !t.isOpen(e.call.Key) {
			unknown = append(unknown, e)
		}
	}
	if lastID-before == int64(len(unknown)) {
		return lastID, nil
	}
	return lastID, c.findRewritten(ctx, unknown)
}

// execRows upserts the chunk in one statement.
func (c *connection) execRows(ctx context.Context, chunk []*entry, before int64) (changed, lastID int64, err error) {
	c.bind()
	for _, e := range chunk {
		e.err = nil
		if err := c.addRow(e.call); err != nil {
			return 0, 0, err
		}
	}
	result, err := c.exec(ctx, c.sql[len(chunk)])
	if err != nil {
		return 0, 0, err
	}
	if changed, err = result.RowsAffected(); err != nil {
		return 0, 0, err
	}
	lastID, err = result.LastInsertId() // of any earlier statement when this one inserted nothing
	return changed, max(lastID, before), err
}

// findRefused writes each row of the chunk again, to see which do not change.
func (c *connection) findRefused(ctx context.Context, chunk []*entry, before int64) error {
	for _, e := range chunk {
		changed, _, err := c.execRows(ctx, []*entry{e}, before)
		if err != nil {
			return err
		}
		if changed > 0 {
			continue
		}
		e.err = journal.ErrStale
		if e.overtaken, err = c.overtaken(ctx, e.call); err != nil {
			return err
		}
	}
	return nil
}

// overtaken reports whether a refused image is only late: the row holds a later
// one of the same hand.
func (c *connection) overtaken(ctx context.Context, call journal.Call) (bool, error) {
	c.bind(call.SessionID, call.TurnID, call.CallID)
	row, err := queryRow(ctx, c.conn, "SELECT owner, fence, rev FROM calls WHERE "+byKey, c.args...)
	if err != nil {
		return false, err
	}
	rev, ok := row[2].(int64)
	return row[0] == c.owner && row[1] == call.Fence && ok && rev > call.Rev, nil
}

// findRewritten finds out what state the calls that were settled before this
// transaction had.
func (c *connection) findRewritten(ctx context.Context, entries []*entry) (err error) {
	if c.earlier == nil {
		if c.earlier, err = c.connect.Connect(ctx); err != nil {
			return err
		}
	}
	for _, e := range entries {
		c.bind(e.call.SessionID, e.call.TurnID, e.call.CallID)
		row, err := queryRow(ctx, c.earlier, "SELECT state FROM calls WHERE "+byKey, c.args...)
		switch {
		case errors.Is(err, io.EOF): // it is new
		case err != nil:
			return err
		default:
			e.before = journal.State(fmt.Sprint(row[0]))
		}
	}
	return nil
}

// upsertSQL returns the statement for so many rows. What a call is (function,
// arguments, when it was seen) is written once. A row stays as it is when it
// belongs to another owner, when it changed hands or holds a later image, and
// when its state cannot become the new one. Nobody works on an abandoned call,
// so that any process may go on with it. With erase a row says whether it is
// erased, and then loses its arguments.
func upsertSQL(rows int, erase bool) string {
	inserted, changing := columnList, changing
	if erase {
		inserted, changing = inserted+", erased", changing+", erased"
	}
	columns := strings.Split(inserted, ", ")
	row := "(" + strings.Repeat("?, ", len(columns)-1) + "?)"
	var b strings.Builder
	b.WriteString("INSERT INTO calls (" + inserted + ") VALUES ")
	b.WriteString(strings.Repeat(row+", ", rows-1) + row)
	b.WriteString(" ON CONFLICT (session_id, turn_id, call_id) DO UPDATE SET ")
	for i, c := range strings.Split(changing, ", ") {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c + " = excluded." + c)
	}
	if erase {
		b.WriteString(", arguments = CASE excluded.erased WHEN 0 THEN calls.arguments END")
	}
	b.WriteString(" WHERE (calls.owner = excluded.owner OR calls.state = 'abandoned' AND excluded.state <> 'abandoned')" +
		" AND (calls.fence, calls.rev) <= (excluded.fence, excluded.rev) AND CASE calls.state")
	for _, from := range journal.States() {
		b.WriteString(" WHEN '" + string(from) + "' THEN " + reachable(from))
	}
	b.WriteString(" END")
	return b.String()
}

// reachable is the SQL condition that the new state can follow the old one. It is
// not written with IN, for which SQLite makes a table in each statement.
func reachable(from journal.State) string {
	var to []string
	for _, s := range journal.States() {
		if journal.CanReach(from, s) {
			to = append(to, "excluded.state = '"+string(s)+"'")
		}
	}
	if len(to) == len(journal.States()) {
		return "1"
	}
	return "(" + strings.Join(to, " OR ") + ")"
}
