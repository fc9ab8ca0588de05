package router

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lookInterval is how often files that belong to a table are looked at, while
	// they are used.
	lookInterval = time.Second
	// settledAfter is how old the time of a file must be for a later change to show
	// in it: the clocks of file systems tick coarsely.
	settledAfter = 2 * time.Second
	// maxSmallFile bounds the file of a secret or a certificate, in bytes.
	maxSmallFile = 1 << 20
)

// watched is a value that is made of files, and made again when one of them
// changed. It is safe for concurrent use.
type watched[T any] struct {
	paths []string
	make  func(contents [][]byte) (T, fileErrors)

	// looking is held by the one that looks at the files; the others go on with
	// what is known.
	looking sync.Mutex
	next    atomic.Int64 // when to look again, in Unix nanoseconds
	known   atomic.Pointer[known[T]]
}

// known is what the files were when they were last looked at.
type known[T any] struct {
	// value is the last good one, made of contents with the digest.
	value  T
	digest [sha256.Size]byte
	// failed says why the files cannot be used now.
	failed  fileErrors
	infos   []fs.FileInfo
	settled bool
}

// fileError is why a file cannot be used, in words that hold neither its path nor
// anything of it; index counts the paths of the watched value.
type fileError struct {
	index   int
	problem string
	// unread says that nothing is known of what the file holds.
	unread bool
}

// fileErrors are those of all files of a value, nil for none.
type fileErrors []fileError

// named is an error for the log, nil for none; names are the keys of the files.
func (e fileErrors) named(names []string) error {
	if e == nil {
		return nil
	}
	problems := make([]string, len(e))
	for i, failed := range e {
		problems[i] = names[failed.index] + ": " + failed.problem
	}
	return errors.New(strings.Join(problems, "; "))
}

// watch reads the files for the first time. While they cannot be used, the value
// is zero.
func watch[T any](paths []string, read func(contents [][]byte) (T, fileErrors)) (*watched[T], fileErrors) {
	w := &watched[T]{paths: paths, make: read}
	w.known.Store(&known[T]{})
	w.look()
	return w, w.known.Load().failed
}

// get returns the value of the files as they are now. When they cannot be used it
// is the last good one, and the errors say why.
func (w *watched[T]) get() (T, fileErrors) {
	if time.Now().UnixNano() >= w.next.Load() && w.looking.TryLock() {
		w.look()
		w.looking.Unlock()
	}
	k := w.known.Load()
	return k.value, k.failed
}

// look makes the value again if a file changed, or may have.
func (w *watched[T]) look() {
	last, now := w.known.Load(), &known[T]{settled: true}
	for i, path := range w.paths {
		info, err := os.Stat(path)
		if err != nil {
			now.failed = append(now.failed, unreadable(i, err))
		} else {
			now.settled = now.settled && time.Since(info.ModTime()) > settledAfter
		}
		now.infos = append(now.infos, info)
	}
	same := last.failed == nil && now.failed == nil && last.settled && slices.EqualFunc(now.infos, last.infos, sameFile)
	if !same {
		w.read(last, now)
		w.known.Store(now)
	}
	w.next.Store(time.Now().Add(lookInterval).UnixNano())
}

// read fills in what the files hold now, beginning with what they held last.
func (w *watched[T]) read(last, now *known[T]) {
	now.value, now.digest = last.value, last.digest
	contents, sum := make([][]byte, len(w.paths)), sha256.New()
	for i, path := range w.paths {
		if now.infos[i] == nil {
			continue
		}
		data, err := readSmallFile(path, now.infos[i])
		if err != nil {
			now.failed = append(now.failed, unreadable(i, err))
			continue
		}
		contents[i] = data
		fmt.Fprintf(sum, "%d\x00%s", len(data), data)
	}
	if now.failed != nil {
		return
	}
	digest := [sha256.Size]byte(sum.Sum(nil))
	if digest == last.digest {
		return
	}
	value, failed := w.make(contents)
	if failed != nil {
		now.failed = failed
		return
	}
	now.value, now.digest = value, digest
}

func sameFile(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

var (
	errNotRegular = errors.New("is not a regular file")
	errFileSize   = fmt.Errorf("is larger than %d KiB", maxSmallFile>>10)
	errFileEmpty  = errors.New("is empty")
)

// readSmallFile reads a file that is known to be so. Anything but a regular file
// could block.
func readSmallFile(path string, info fs.FileInfo) ([]byte, error) {
	switch {
	case !info.Mode().IsRegular():
		return nil, errNotRegular
	}
	file, err := os.Open(path) //nolint:gosec // the operator's own file
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSmallFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxSmallFile:
		return nil, errFileSize
	case len(bytes.TrimSpace(data)) == 0:
		return nil, errFileEmpty
	}
	return data, nil
}

// unreadable is an error of the operating system, or one of readSmallFile, without
// the path.
func unreadable(index int, err error) fileError {
	for _, known := range []error{errNotRegular, errFileSize, errFileEmpty} {
		if errors.Is(err, known) {
			return fileError{index: index, problem: "the file " + known.Error()}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fileError{index: index, problem: "there is no such file", unread: true}
	}
	if pathError, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathError.Err
	}
	return fileError{index: index, problem: "the file cannot be read: " + err.Error(), unread: true}
}
