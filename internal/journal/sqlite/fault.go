package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// fault is an error of the file or its disk, in one sentence that says what to do.
type fault struct {
	advice string
	// detail is for whoever asks for help with it; may be empty.
	detail string
	cause  error
	// lasting faults are not tried again: what was written to such a file could
	// not be relied on.
	lasting bool
}

// Error gives the advice and the detail.
func (f *fault) Error() string {
	if f.detail == "" {
		return f.advice
	}
	return f.advice + " (" + f.detail + ")"
}

// Unwrap returns the cause.
func (f *fault) Unwrap() error { return f.cause }

// startEmpty is the way out when there is no backup, and its price.
const startEmpty = "move it and its -wal aside to start empty; a call that is pending in it may then be run a second time"

func damaged(detail string, cause error) *fault {
	return &fault{"it is damaged: restore a backup without the -wal of this one, or " + startEmpty, detail, cause, true}
}

// explain says what the operator can do about an error of the file; any other
// comes back as it is.
func explain(err error, path string) error {
	if _, ok := errors.AsType[*fault](err); ok || err == nil {
		return err
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return explainCode(e, err, path)
	}
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return unwritable(path, "", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &fault{advice: diskFull, cause: err}
	}
	return err
}

const diskFull = "the disk is full: free some space"

// explainCode explains an error of SQLite's.
func explainCode(e *sqlite.Error, err error, path string) error {
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_NOTADB:
		return &fault{"it is not a SQLite database: use another path, or restore a backup, or " + startEmpty, e.Error(), err, true}
	case sqlite3.SQLITE_CORRUPT:
		return damaged(e.Error(), err)
	case sqlite3.SQLITE_FULL:
		return &fault{advice: diskFull, detail: e.Error(), cause: err}
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return unwritable(path, e.Error(), err)
	case sqlite3.SQLITE_BUSY:
		return &fault{advice: "another program has it open: close that one", detail: e.Error(), cause: err}
	case sqlite3.SQLITE_IOERR:
		return &fault{advice: "its disk reports an error: check the disk", detail: e.Error(), cause: err}
	}
	return err
}

func unwritable(path, detail string, cause error) *fault {
	advice := fmt.Sprintf("let user %d write to it and to its directory %s, or use another path", os.Getuid(), filepath.Dir(path))
	return &fault{advice: advice, detail: detail, cause: cause}
}

func lasting(err error) bool {
	f, ok := errors.AsType[*fault](err)
	return ok && f.lasting
}

// present refuses a file that lost what it held: to SQLite an empty file is a
// new database, and it would throw the log of the old one away.
func present(path string, used bool) error {
	size, err := sizeOf(path)
	if err != nil || size > 0 {
		return err
	}
	log, err := sizeOf(path + "-wal")
	switch {
	case err != nil:
		return err
	case log > 0:
		return fmt.Errorf("its log %s-wal is here and the file itself is missing or empty: put it back, or %s", path, startEmpty)
	case size == 0 && used:
		return errors.New("it is empty and was not before: restore a backup, or " + startEmpty)
	}
	return nil
}

// sizeOf returns -1 for a file that does not exist.
func sizeOf(path string) (int64, error) {
	info, err := os.Stat(path) //nolint:gosec // the path is the operator's own setting
	if errors.Is(err, fs.ErrNotExist) {
		return -1, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// inPlace fails when the file that this process has open is not the one at the
// path any more: what is committed to it will be found by nobody.
func (s *Store) inPlace(c *connection) error {
	file, err := os.Stat(s.path) //nolint:gosec // the path is the operator's own setting
	if err != nil || !os.SameFile(file, s.file) {
		return moved(s.path, err)
	}
	log, err := os.Stat(s.logPath) //nolint:gosec // as above
	if c.log == nil {
		c.log = log
	}
	if err != nil || !os.SameFile(log, c.log) {
		return moved(s.logPath, err)
	}
	c.log = log
	return nil
}

// moved is the fault of a file that is not the one it was; nil when that cannot
// be told at the moment.
func moved(path string, err error) error {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	advice := path + " was deleted or replaced while it was in use: stop the bridge, put the file and its -wal back, start it again"
	return &fault{advice: advice, cause: err, lasting: true}
}
