package sqlite

import (
	"context"
	"fmt"
	"time"
)

const (
	// maxLog is the size of the write-ahead log, in bytes, from which it is cut
	// back. SQLite starts it anew by itself at 4 MiB, but only in a moment in which
	// nobody reads from it.
	maxLog = 32 << 20
	// trimWait is how long writers wait for the readers when it is cut back, and
	// trimGap how long they are left alone after that.
	trimWait = 100 * time.Millisecond
	trimGap  = time.Second
)

// trim empties a log that is too large, if the readers of the moment end soon. So
// the log holds maxLog and what is written while somebody is reading all the time.
func (s *Store) trim(ctx context.Context, c *connection) {
	if c.log == nil || c.log.Size() <= maxLog || time.Since(c.trimmed) < trimGap {
		return
	}
	c.trimmed = time.Now()
	if err := c.emptyLog(ctx); err != nil {
		s.logger.WarnContext(ctx, "journal could not cut its log back", "error", err)
	}
}

func (c *connection) emptyLog(ctx context.Context) error {
	patience := fmt.Sprintf("PRAGMA busy_timeout = %d", trimWait.Milliseconds())
	if _, err := queryRow(ctx, c.conn, patience); err != nil {
		return err
	}
	if _, err := queryRow(ctx, c.conn, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return err
	}
	_, err := queryRow(ctx, c.conn, "PRAGMA busy_timeout = "+pragmas()[0].value)
	return err
}
