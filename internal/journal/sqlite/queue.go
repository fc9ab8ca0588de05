package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"functionbridge/internal/journal"
)

const (
	// batchRows lazy rows, or batchBytes of payload, are enough company to be
	// written early.
	batchRows  = 2048
	batchBytes = 4 << 20
	// maxRows and maxBytes bound what lazy writes may pile up while the disk is
	// slow; beyond them only durable writes are taken, which make callers wait.
	maxRows  = 16384
	maxBytes = 64 << 20
	// maxCall bounds one row, far below SQLite's own limit of 1e9 bytes.
	maxCall = 256 << 20
	// readyFor is how long a commit proves that the journal can be written.
	readyFor = 2 * time.Second
	// crowd is how many callers of one commit show that there are many, and
	// mostGather the longest that the next commit waits for more of them.
	crowd      = 4
	mostGather = 2 * time.Millisecond
	// choreAge is how long a chore waits for a moment in which nobody writes; in a
	// load without one, old rows must go as fast as new ones come.
	choreAge = 50 * time.Millisecond
)

var errClosed = fmt.Errorf("%w: it is closed", journal.ErrUnavailable)

// entry is the newest image of one call that waits to be written.
type entry struct {
	call    journal.Call
	size    int
	waiters []chan error // each has room for one

	// err, overtaken and before are set by the writer: the row was refused; only
	// because a later image is on disk; the state of a row that had been settled.
	err       error
	overtaken bool
	before    journal.State
}

// task is anything else that is done inside the next transaction.
type task struct {
	run func(context.Context, *connection) error // may be nil
	// impatient tasks fail with the first commit that does, the others are tried again.
	impatient bool
	// deleted is what run took away of the settled calls.
	deleted tallied
	since   time.Time // of a chore: when it was queued
	done    chan struct{}
	err     error // valid once done is closed
}

// batch is what one transaction writes: the rows, then the tasks.
type batch struct {
	entries []*entry
	tasks   []*task
}

// queue is what waits for the writer.
type queue struct {
	mu     sync.Mutex
	next   batch
	byKey  map[journal.Key]*entry
	bytes  int
	since  time.Time // when the first row of next arrived
	urgent bool      // somebody waits for next
	chore  *task     // done when nothing of next is due
	wake   chan struct{}
	// gather is how long after lastCommit the next durable rows wait for company,
	// and gathering says that they do so now.
	gather    time.Duration
	gathering bool

	stopping   bool
	stopped    chan struct{}
	broken     error // the last commit's error; nil when it went well
	lasting    error // an error after which nothing is written any more
	lastCommit time.Time
	probe      *task
	dropped    []error
}

func (q *queue) init() {
	q.byKey = map[journal.Key]*entry{}
	q.wake = make(chan struct{}, 1)
	q.stopped = make(chan struct{})
}

// Save writes one call under this store's owner; the last image of a call wins,
// and of several that wait only the newest is written. The store keeps the
// call's slices: do not change them in place afterwards. Function, Arguments,
// Idempotent and CreatedAt stay as the row's first write had them.
//
// A Lazy write returns at once. While the journal cannot be written, or too much
// waits, it fails with journal.ErrUnavailable and is not queued: save Durable
// instead, so that nothing runs ahead of a broken journal.
//
// A Durable write returns when it is on disk. It waits out an outage; when ctx
// ends first it returns ctx's cause, and the write stays queued. It returns
// journal.ErrStale when the row belongs to another owner (but for an abandoned
// call that goes on: that may be anybody's), carries a higher fence or, under the
// same fence, a higher rev, and when its state cannot become the new one; a Lazy
// write that is refused so is logged.
func (s *Store) Save(ctx context.Context, call journal.Call, d journal.Durability) error {
	call.Owner = s.owner
	if err := valid(call); err != nil {
		return fmt.Errorf("save call: %w", err)
	}
	if s.erase && call.State == journal.Confirmed {
		call = erased(call)
	}
	if d == journal.Lazy {
		if err := s.queue.addLazy(call); err != nil {
			return fmt.Errorf("save call: %w", err)
		}
		return nil
	}
	wait, err := s.queue.addDurable(call)
	if err != nil {
		return fmt.Errorf("save call: %w", err)
	}
	select {
	case err = <-wait:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("save call: %w", err)
	}
	return nil
}

// valid keeps out what SQLite would refuse, since one such row would block all.
func valid(call journal.Call) error {
	switch {
	case !call.State.Known():
		return fmt.Errorf("unknown state %q", call.State)
	case call.SessionID == "" || call.TurnID == "" || call.CallID == "":
		return errors.New("the key is incomplete")
	case size(call) > maxCall:
		return fmt.Errorf("%d bytes are more than the journal takes (%d)", size(call), maxCall)
	}
	return nil
}

func size(c journal.Call) int {
	n := len(c.Arguments) + len(c.Request) + len(c.Outcome.Output) + len(c.Outcome.Error)
	if c.LateOutcome != nil {
		n += len(c.LateOutcome.Output) + len(c.LateOutcome.Error)
	}
	return n
}

func (q *queue) addLazy(call journal.Call) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.stopping:
		return errClosed
	case q.broken != nil:
		return unavailable(q.broken)
	case len(q.next.entries) >= maxRows || q.bytes >= maxBytes:
		return fmt.Errorf("%w: %d rows wait for the disk", journal.ErrUnavailable, len(q.next.entries))
	}
	first := len(q.next.entries) == 0
	if q.put(call) == nil {
		return journal.ErrStale
	}
	if first || q.full() {
		q.nudge()
	}
	return nil
}

// full reports whether next is large enough to be written early.
func (q *queue) full() bool { return len(q.next.entries) >= batchRows || q.bytes >= batchBytes }

func (q *queue) addDurable(call journal.Call) (<-chan error, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopping {
		return nil, errClosed
	}
	wait := make(chan error, 1)
	e := q.put(call)
	if e == nil {
		return nil, journal.ErrStale
	}
	e.waiters = append(e.waiters, wait)
	q.urgent = true
	if !q.gathering {
		q.nudge()
	}
	return wait, nil
}

// put queues a row, in the place of an older image of the same call; nil when
// the call has changed hands since the image was made.
func (q *queue) put(call journal.Call) *entry {
	e := q.byKey[call.Key]
	if e == nil {
		e = &entry{}
		q.byKey[call.Key] = e
		if len(q.next.entries) == 0 {
			q.since = time.Now()
		}
		q.next.entries = append(q.next.entries, e)
	}
	// Images are made under the caller's lock and saved without it, so an older
	// one may come last.
	switch {
	case call.Fence < e.call.Fence:
		return nil
	case call.Fence > e.call.Fence:
		e.tell(journal.ErrStale)
		e.waiters = nil
	case call.Rev < e.call.Rev:
		return e
	}
	q.bytes -= e.size
	e.call, e.size = call, size(call)
	q.bytes += e.size
	return e
}

func (q *queue) addTask(t *task) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopping {
		return errClosed
	}
	q.next.tasks = append(q.next.tasks, t)
	q.urgent = true
	q.nudge()
	return nil
}

func (q *queue) nudge() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// do runs a task in the next transaction and waits for its commit.
func (s *Store) do(ctx context.Context, run func(context.Context, *connection) error) error {
	t := &task{run: run, done: make(chan struct{})}
	if err := s.queue.addTask(t); err != nil {
		return err
	}
	return t.wait(ctx)
}

// tidyUp runs a task of housekeeping when nothing else is to be written, or
// together with other things when that moment does not come, and waits for it.
// It is not tried again.
func (s *Store) tidyUp(ctx context.Context, t *task) error {
	t.impatient, t.since, t.done = true, time.Now(), make(chan struct{})
	if err := s.queue.addChore(t); err != nil {
		return err
	}
	return t.wait(ctx)
}

func (q *queue) addChore(t *task) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopping {
		return errClosed
	}
	q.chore = t
	q.nudge()
	return nil
}

func (t *task) wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Flush returns when everything saved before is on disk, or with ctx's cause.
func (s *Store) Flush(ctx context.Context) error {
	if err := s.do(ctx, nil); err != nil {
		return fmt.Errorf("flush journal: %w", err)
	}
	return nil
}

// Ready reports whether the journal can be written now: nil when a transaction
// went well in the last two seconds or, else, when one made for this purpose
// does. It returns an error that wraps journal.ErrUnavailable otherwise, and no
// later than ctx ends, even when the disk hangs.
func (s *Store) Ready(ctx context.Context) error {
	t, err := s.queue.prove()
	if t == nil {
		return err
	}
	if err := t.wait(ctx); err != nil {
		return unavailable(err)
	}
	return nil
}

// prove returns nil and what is known, or the probe to wait for. All who ask at
// once share one, so that a disk that hangs collects no pile of them.
func (q *queue) prove() (*task, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.stopping:
		return nil, errClosed
	case q.broken != nil:
		return nil, unavailable(q.broken)
	case q.probe != nil:
		return q.probe, nil
	case time.Since(q.lastCommit) < readyFor:
		return nil, nil
	}
	q.probe = &task{impatient: true, done: make(chan struct{})}
	q.next.tasks = append(q.next.tasks, q.probe)
	q.urgent = true
	q.nudge()
	return q.probe, nil
}

func unavailable(err error) error {
	if errors.Is(err, journal.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", journal.ErrUnavailable, err)
}

// take waits for the next batch; false once the queue is stopped and empty.
func (q *queue) take(delay time.Duration) (batch, bool) {
	for {
		b, wait, ok := q.ready(delay)
		if ok || wait < 0 {
			return b, ok
		}
		q.rest(wait)
	}
}

// ready returns the next batch when it is due; otherwise how long to wait for
// it, 0 until there is something, -1 when nothing will come.
func (q *queue) ready(delay time.Duration) (b batch, wait time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gathering = false
	rows := len(q.next.entries)
	if rows > 0 {
		wait = time.Until(q.since.Add(delay))
	}
	switch {
	case len(q.next.tasks) > 0, rows > 0 && (q.stopping || q.full() || wait <= 0):
		return q.withChore(q.takeAll()), 0, true
	case q.stopping:
		return batch{}, -1, false
	case q.urgent:
		if left := time.Until(q.lastCommit.Add(q.gather)); left > 0 {
			q.gathering = true
			return batch{}, min(left, wait), false
		}
		return q.withChore(q.takeUrgent()), 0, true
	case q.chore != nil:
		return q.takeChore(batch{}), 0, true
	}
	return batch{}, wait, false
}

// withChore adds a chore that has waited long enough.
func (q *queue) withChore(b batch) batch {
	if q.chore != nil && time.Since(q.chore.since) >= choreAge {
		return q.takeChore(b)
	}
	return b
}

func (q *queue) takeChore(b batch) batch {
	b.tasks = append(b.tasks, q.chore)
	q.chore = nil
	return b
}

func (q *queue) takeAll() batch {
	b := q.next
	q.next = batch{entries: make([]*entry, 0, len(b.entries))}
	clear(q.byKey)
	q.bytes, q.urgent = 0, false
	return b
}

// takeUrgent leaves the lazy rows where they are: within the delay most of them
// are replaced by a later image of their call, which spares a row each.
func (q *queue) takeUrgent() (b batch) {
	lazy := q.next.entries[:0]
	for _, e := range q.next.entries {
		if len(e.waiters) == 0 {
			lazy = append(lazy, e)
			continue
		}
		b.entries = append(b.entries, e)
		delete(q.byKey, e.call.Key)
		q.bytes -= e.size
	}
	clear(q.next.entries[len(lazy):])
	q.next.entries, q.urgent = lazy, false
	return b
}

func (q *queue) rest(wait time.Duration) {
	if wait == 0 {
		<-q.wake
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-q.wake:
	case <-timer.C:
	}
}

func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopping = true
	close(q.stopped)
	if q.chore != nil {
		q.finish(q.chore, errClosed)
		q.chore = nil
	}
	q.nudge()
}

// answerImpatient gives the impatient of some tasks an error, and returns the
// others. The caller holds the lock.
func (q *queue) answerImpatient(tasks []*task, err error) []*task {
	return slices.DeleteFunc(tasks, func(t *task) bool {
		if t.impatient {
			q.finish(t, err)
		}
		return t.impatient
	})
}

// failed records an outage, answers the impatient of the batch and reports
// whether the outage is new and whether there is no time left to wait it out.
func (q *queue) failed(b *batch, err error) (isNew, giveUp bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	isNew = q.broken == nil || q.broken.Error() != err.Error()
	if q.broken = err; lasting(err) {
		q.lasting = err
	}
	b.tasks = q.answerImpatient(b.tasks, err)
	// Those that came while this batch was tried would wait for the end of the outage.
	q.next.tasks = q.answerImpatient(q.next.tasks, err)
	if q.stopping {
		q.drop(b, unavailable(err))
	}
	return isNew, q.stopping
}

// drop gives a batch up at the end of the process.
func (q *queue) drop(b *batch, err error) {
	if len(b.entries) > 0 {
		q.dropped = append(q.dropped, fmt.Errorf("%d calls were not written: %w", len(b.entries), err))
	}
	for _, e := range b.entries {
		e.tell(err)
	}
	for _, t := range b.tasks {
		q.finish(t, err)
	}
}

func (q *queue) lost() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return errors.Join(q.dropped...)
}

// committed answers all who wait for the batch and reports whether it ended an
// outage.
//
// Under load it makes the next commit wait for as long as this one took. Half of
// the time is enough to commit in, and twice as many rows in each spare a call
// that waits for the disk 40 µs of 300; whoever is alone waits for nobody.
func (q *queue) committed(b *batch, took time.Duration) (recovered bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	recovered = q.broken != nil
	q.broken, q.lastCommit = q.lasting, time.Now()
	callers := 0
	for _, e := range b.entries {
		e.tell(e.err)
		callers += len(e.waiters)
	}
	if q.gather = 0; callers >= crowd {
		q.gather = min(took, mostGather)
	}
	for _, t := range b.tasks {
		q.finish(t, nil)
	}
	return recovered
}

func (q *queue) finish(t *task, err error) {
	if q.probe == t {
		q.probe = nil
	}
	t.err = err
	close(t.done)
}

// tell answers those who wait.
func (e *entry) tell(err error) {
	for _, w := range e.waiters {
		w <- err
	}
}

// condemn ends the writing for good, and reports whether it had not ended before.
func (q *queue) condemn(err error) (isNew bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	isNew = q.lasting == nil
	if isNew {
		q.broken, q.lasting = err, err
	}
	return isNew
}

// condemned returns why nothing is written any more; nil while it is.
func (q *queue) condemned() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lasting
}

func (q *queue) outage() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.broken != nil
}
