// Package sqlite keeps the journal in one SQLite file that belongs to one
// process. One goroutine writes: it puts all that is waiting into one
// transaction, so that a row costs little and a durable write shares its sync
// with its neighbours. What a state means is left to package journal, and when
// to save what to the callers.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"functionbridge/internal/journal"
)

// flushDelay is the default of Options.FlushDelay: a row costs half as much in
// the company of a thousand as in that of twenty.
const flushDelay = 200 * time.Millisecond

// Options are the settings of a store.
type Options struct {
	// Owner names this process: it is written into every row that the store
	// saves, and rows of another owner are refused. Required.
	Owner string
	// Logger gets outages and refused lazy rows; nil discards them.
	Logger *slog.Logger
	// FlushDelay is how long a lazy row may wait for company; 0 means 200 ms.
	FlushDelay time.Duration
	// Retention is how long a settled call is kept after the last thing that
	// happened to it; 0 means for ever. The file does not shrink for it, its room
	// is used again.
	Retention time.Duration
	// ErasePayloads takes arguments, request and the texts of the outcomes off a
	// call once it is confirmed, in the same write, and off the calls that were
	// confirmed before; see journal.Call.Erased. What is erased is overwritten in
	// the database file. It may stay in the log beside it until that is overwritten
	// in its turn or the journal is closed, and what was in free room of the file
	// before the option was on stays there: VACUUM the closed file to be rid of it.
	ErasePayloads bool
}

// Store is the journal in one SQLite file. Its methods may be called from any
// goroutine.
type Store struct {
	path    string
	logPath string      // of SQLite's write-ahead log
	file    os.FileInfo // the file that was opened
	owner   string
	logger  *slog.Logger
	delay   time.Duration
	lock    *fileLock
	connect driver.Connector
	reader  *sql.DB
	turn    *sql.Stmt // turnSQL, on reader
	turns   *sql.Stmt // turnsSQL, on reader
	tally   *tally
	unclean bool
	// inspected: the file was looked through for damage.
	inspected bool
	keep      time.Duration // Options.Retention
	erase     bool

	queue  queue
	quiet  chan struct{} // closed when the readers have gone
	done   chan struct{} // closed when the writer has ended
	tidied chan struct{} // closed when the housekeeping has ended
	closed func() error
}

// Open opens the journal at path, creates or migrates it, and takes its lock
// (path with ".lock" added). It fails with a *LockedError when another process
// holds that, and with an error that says what to do when the file or its
// directory cannot be used or a pragma that durability rests on is not in force.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	s, err := build(ctx, path, o)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", path, err)
	}
	s.start(context.WithoutCancel(ctx))
	return s, nil
}

func (s *Store) start(ctx context.Context) {
	go s.write(ctx)
	go s.tidy(ctx)
}

// build makes the parts bottom up, and takes them down again when one fails.
func build(ctx context.Context, path string, o Options) (_ *Store, err error) {
	if o.Owner == "" {
		return nil, errors.New("the owner is empty: name this process")
	}
	if path, err = locate(path); err != nil {
		return nil, err
	}
	s := &Store{
		path: path, logPath: path + "-wal", owner: o.Owner, logger: o.Logger, delay: o.FlushDelay, keep: o.Retention, erase: o.ErasePayloads,
		quiet: make(chan struct{}), done: make(chan struct{}), tidied: make(chan struct{}),
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	if s.delay == 0 {
		s.delay = flushDelay
	}
	s.queue.init()
	s.closed = sync.OnceValue(s.close)
	if s.lock, err = takeLock(path + ".lock"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = explain(errors.Join(err, s.release()), path)
		}
	}()
	if err = present(path, s.lock.used); err != nil {
		return nil, err
	}
	if s.file, err = touch(path); err != nil {
		return nil, err
	}
	if s.connect, err = writing(path, s.erase); err != nil {
		return nil, err
	}
	if err = s.migrate(ctx); err != nil {
		return nil, err
	}
	if err = s.lock.sign(true); err != nil {
		return nil, err
	}
	if s.reader, err = reading(path); err != nil {
		return nil, err
	}
	if s.turn, err = s.reader.PrepareContext(ctx, turnSQL); err != nil { // it closes with the reader
		return nil, err
	}
	if s.turns, err = s.reader.PrepareContext(ctx, turnsSQL); err != nil {
		return nil, err
	}
	if s.tally, err = loadTally(ctx, s.reader); err != nil {
		return nil, err
	}
	s.unclean, err = takeOver(ctx, s.connect, s.owner, s.erase)
	return s, err
}

// Close writes what is queued, ends the writer and gives the lock back. When
// the disk refuses, it tries once and says how many rows were lost. Every later
// call of the store fails; a second Close returns what the first did.
func (s *Store) Close() error { return s.closed() }

func (s *Store) close() error {
	s.queue.stop()
	<-s.tidied
	readers := s.reader.Close() // first, because the last connection empties the log, and readers may not
	close(s.quiet)
	<-s.done
	if err := errors.Join(s.queue.lost(), readers, s.release()); err != nil {
		return fmt.Errorf("close journal %s: %w", s.path, err)
	}
	return nil
}

// release gives back what build took, in reverse; all of it may be closed already.
func (s *Store) release() error {
	var err error
	if s.reader != nil {
		err = s.reader.Close()
	}
	return errors.Join(err, s.lock.release())
}

// Unclean reports whether the process that had the journal before ended without
// closing it, or could not write all of it.
func (s *Store) Unclean() bool { return s.unclean }

// Counts returns how many calls are on disk in each state. Every state is a key.
func (s *Store) Counts() map[journal.State]int64 { return s.tally.counts() }

// Refused returns how many rows were refused since the start because they
// belonged to another owner or had moved on; see journal.ErrStale.
func (s *Store) Refused() int64 { return s.tally.refusals() }

// OldestUnanswered returns when the oldest call on disk that waits for its
// outcome (pending, running or in doubt) was created; zero when none does.
func (s *Store) OldestUnanswered() time.Time { return s.tally.oldest() }
