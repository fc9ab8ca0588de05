package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// takeOver writes that this process has the journal open, and reports whether
// the one before went without closing it. It is the last step of opening: a
// start that fails before it leaves the mark as it is, and one that fails later
// closes the journal cleanly, so that no end is counted twice or not at all.
func takeOver(ctx context.Context, connect driver.Connector, owner string, erase bool) (unclean bool, err error) {
	db := sql.OpenDB(connect)
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return false, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	var before string
	if err := tx.QueryRowContext(ctx, "SELECT owner FROM process").Scan(&before); err != nil {
		return false, fmt.Errorf("read the process before: %w", err)
	}
	if before != "" {
		if _, err := tx.ExecContext(ctx, blameSQL, before); err != nil {
			return false, fmt.Errorf("count the unclean end: %w", err)
		}
	}
	// What is confirmed while nothing is erased has to be looked through later.
	if _, err := tx.ExecContext(ctx, "UPDATE process SET owner = ?, erased_to = erased_to * ?", owner, flag(erase)); err != nil {
		return false, fmt.Errorf("write the process: %w", err)
	}
	return before != "", tx.Commit()
}

// blameSQL counts an unclean end against the call that alone was running at it,
// if it is one that would be run again. A process that ended before it took the
// call over did not run it.
const blameSQL = `UPDATE calls SET crashes = crashes + 1
	WHERE ` + unsettled + ` AND state = 'running' AND idempotent = 1 AND owner = ?
	AND 1 = (SELECT count(*) FROM calls WHERE ` + unsettled + ` AND state = 'running')`

// leave writes that this process ended cleanly.
func (c *connection) leave(ctx context.Context) error {
	_, err := c.bind(c.owner).exec(ctx, "UPDATE process SET owner = '' WHERE owner = ?")
	return err
}
