package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/gofrs/flock"
)

// LockedError means that another process has the journal open.
type LockedError struct {
	// Path is the lock file.
	Path string
	// PID and Host name the holder; 0 and "" while it has not written them yet.
	PID  int
	Host string
}

// Error names the holder and says what to do.
func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID != 0 {
		holder = fmt.Sprintf("process %d on host %s", e.PID, e.Host)
	}
	return fmt.Sprintf("%s holds it (lock %s): stop that one, or use another journal", holder, e.Path)
}

// fileLock is the lock on a journal; the kernel drops it when the process dies,
// so the file itself may stay.
type fileLock struct {
	file *flock.Flock
	// used says that there was a journal under this lock before.
	used bool
}

type holder struct {
	PID  int    `json:"pid"`
	Host string `json:"host"`
	Used bool   `json:"used,omitempty"`
}

func takeLock(path string) (*fileLock, error) {
	file := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	ok, err := file.TryLock()
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return nil, unwritable(path, "", err)
	case err != nil:
		return nil, fmt.Errorf("cannot lock %s: put the journal on a local disk: %w", path, err)
	case !ok:
		return nil, lockedBy(path)
	}
	l := &fileLock{file: file, used: readHolder(path).Used}
	if err := l.sign(l.used); err != nil {
		return nil, errors.Join(fmt.Errorf("write lock: %w", err), l.release())
	}
	return l, nil
}

// sign writes who holds the lock, for the one who is refused, and whether there
// is a journal under it.
func (l *fileLock) sign(used bool) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	text, err := json.Marshal(holder{PID: os.Getpid(), Host: host, Used: used})
	if err != nil {
		return err
	}
	return os.WriteFile(l.file.Path(), append(text, '\n'), 0o600)
}

func (l *fileLock) release() error { return l.file.Close() }

func lockedBy(path string) *LockedError {
	h := readHolder(path)
	return &LockedError{Path: path, PID: h.PID, Host: h.Host}
}

// readHolder reads who signed the lock; one who has not done so yet stays unnamed.
func readHolder(path string) (h holder) {
	text, err := os.ReadFile(path) //nolint:gosec // the path is the operator's own setting
	if err != nil || json.Unmarshal(text, &h) != nil {
		return holder{}
	}
	return h
}
