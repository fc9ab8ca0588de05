// Package session is the Agents API side of the bridge: it follows sessions,
// sees which function calls wait for a result, has them run, and posts the
// results until the session has them. How a function is run is left to a
// Forwarder, and what is remembered to a Journal.
//
// A Manager keeps one follower a session. A follower has two goroutines, one
// that reads the event stream and one that reads the session itself, and both
// hand what they see to reconcile.go, which compares the calls that the session
// lists with the tasks that the follower has. Each task runs in a goroutine of
// its own (task.go) and posts its own result (submit.go).
package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// Forwarder runs functions.
type Forwarder interface {
	// Plan says how a call of the function is to be handled.
	Plan(function string) journal.Plan
	// Forward runs the call and returns what the agent is to be told. It returns
	// an error, and no outcome, when it was stopped before it knew one: by ctx,
	// or by the recorder's Sending.
	Forward(ctx context.Context, call journal.Call, s journal.Session, r journal.Recorder) (journal.Outcome, error)
}

// Journal is what the bridge remembers.
type Journal interface {
	// Save keeps the newest image of a call. Lazy returns at once, with
	// journal.ErrUnavailable when the journal cannot be written; Durable returns
	// when the image is on disk.
	Save(ctx context.Context, call journal.Call, d journal.Durability) error
	// Turn returns key and state of every call of a turn.
	Turn(ctx context.Context, sessionID, turnID string) ([]journal.Call, error)
	// Turns returns the turns of a session of which calls are on disk, all of them
	// unless the session has more calls than limit.
	Turns(ctx context.Context, sessionID string, limit int) (ids []string, all bool, err error)
	// Call returns one call whole.
	Call(ctx context.Context, key journal.Key) (journal.Call, error)
	// Unsettled makes this process the owner of every call that is neither
	// confirmed nor abandoned, and returns them.
	Unsettled(ctx context.Context) ([]journal.Call, error)
	// Dropped returns the unsettled calls on disk that known does not know.
	Dropped(ctx context.Context, known func(journal.Key) bool) ([]journal.Call, error)
	Follows(ctx context.Context) ([]journal.Follow, error)
	SaveFollow(ctx context.Context, f journal.Follow) error
}

// Source says why a session is followed.
type Source string

// The sources, in the order in which they win over each other.
const (
	// SourceConfig is a session named in BRIDGE_SESSIONS.
	SourceConfig Source = "config"
	// SourceAdmin is a session that was asked for through the admin API.
	SourceAdmin Source = "admin"
	// SourceDiscovery is a session found by listing.
	SourceDiscovery Source = "discovery"
	// SourceJournal is a session that has unsettled calls from an earlier
	// process: they are settled, and no new ones are taken.
	SourceJournal Source = "journal"
)

// Config says what a Manager follows and how.
type Config struct {
	Client    *Client
	Forwarder Forwarder
	Journal   Journal
	// Owner marks the calls of this process in the journal.
	Owner string
	// Unclean says that the process before was killed or broke down: it may do so
	// again over the same call.
	Unclean bool

	// Table returns the route table in force, which the tools of agents are
	// compared with; nil compares nothing.
	Table func() *router.Table

	Sessions         []string
	Agents           []string
	DiscoverInterval time.Duration
	// IdleTimeout is how long a stream may be silent.
	IdleTimeout time.Duration
	// ResyncInterval is how often a session is read besides its stream.
	ResyncInterval time.Duration

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Manager follows sessions until it is stopped.
type Manager struct {
	cfg     Config
	metrics *metrics

	// following ends the streams and reads, working ends the calls: a drain ends
	// them one after the other.
	following  context.Context
	stopFollow context.CancelFunc
	working    context.Context
	stopWork   context.CancelCauseFunc
	followers  sync.WaitGroup
	tasks      *workers
	// errands read sessions and open streams: what needs a deep stack for a moment,
	// which a goroutine of the follower's own would keep while it waits.
	errands *workers
	// carefulUntil: until then no request is sent ahead of its row.
	carefulUntil time.Time

	mu       sync.Mutex
	sessions map[string]*follower
	// left are the sessions that are not to be followed, whoever finds them.
	left     map[string]bool
	draining bool
	// ended are the sessions that had a follower before in this process. Its last
	// rows may still wait for the disk, so what the journal lists is not all.
	ended idSet
}

var (
	// errDraining stops what was not sent yet: the next process sends it.
	errDraining = errors.New("the bridge is stopping")
	// errTurnEnded stops a call that nobody waits for any more.
	errTurnEnded = errors.New("the turn has ended")
)

// New builds a manager; Start makes it work.
func New(c Config) *Manager {
	m := &Manager{
		cfg: c, metrics: newMetrics(c.Registerer),
		sessions: map[string]*follower{}, left: map[string]bool{}, ended: newIDSet(maxEnded), tasks: newWorkers(taskIdle), errands: newWorkers(errandIdle),
	}
	m.following, m.stopFollow = context.WithCancel(context.Background())
	m.working, m.stopWork = context.WithCancelCause(context.Background())
	if c.Unclean {
		m.carefulUntil = time.Now().Add(carefulFor)
	}
	return m
}

const (
	// taskIdle is how long the goroutine of a call waits for the next one.
	taskIdle = 5 * time.Second
	// errandIdle is the same for an errand.
	errandIdle = time.Second
)

// carefulFor is how long after an unclean end calls are sent with care: the one
// that brings the process down is sent again soon.
const carefulFor = time.Minute

func (m *Manager) careful() bool {
	return !m.carefulUntil.IsZero() && time.Now().Before(m.carefulUntil)
}

// Start takes up what an earlier process left, follows what is asked for, and
// returns. Errors are the journal's.
func (m *Manager) Start(ctx context.Context) error {
	unsettled, err := m.cfg.Journal.Unsettled(ctx)
	if err != nil {
		return fmt.Errorf("take up unsettled calls: %w", err)
	}
	follows, err := m.cfg.Journal.Follows(ctx)
	if err != nil {
		return fmt.Errorf("read the followed sessions: %w", err)
	}
	bySession := map[string][]journal.Call{}
	for _, call := range unsettled {
		bySession[call.SessionID] = append(bySession[call.SessionID], call)
	}
	m.mu.Lock()
	for _, id := range m.cfg.Sessions {
		m.start(id, SourceConfig, bySession[id])
	}
	for _, f := range follows {
		switch {
		case f.Followed:
			m.start(f.SessionID, SourceAdmin, bySession[f.SessionID])
		case !slices.Contains(m.cfg.Sessions, f.SessionID):
			m.left[f.SessionID] = true
		}
	}
	for id, calls := range bySession {
		m.start(id, SourceJournal, calls)
	}
	m.mu.Unlock()
	m.followers.Go(func() { m.sweep(m.following) })
	for _, agent := range m.cfg.Agents {
		m.followers.Go(func() { m.discover(m.following, agent) })
	}
	return nil
}

// start begins to follow a session unless it is followed already; then the
// stronger source stays. The caller holds the lock.
func (m *Manager) start(id string, source Source, unsettled []journal.Call) {
	if f, ok := m.sessions[id]; ok {
		f.wanted(source)
		return
	}
	f := newFollower(m, id, source)
	if m.ended.has(id) {
		f.older.fill() // the journal is asked for every turn
	}
	f.resume(unsettled)
	m.sessions[id] = f
	m.followers.Go(f.run)
}

// remove forgets a follower that has ended, and follows anew when the session
// was asked for again in the meantime.
func (m *Manager) remove(f *follower) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sessions, f.id)
	if m.draining {
		return
	}
	m.ended.add(f.id)
	if again := f.askedAgain(); again != "" {
		m.start(f.id, again, nil)
	}
}

// Follow follows a session, now and after a restart. The error is the journal's.
func (m *Manager) Follow(ctx context.Context, id string) error {
	if err := m.cfg.Journal.SaveFollow(ctx, journal.Follow{SessionID: id, Followed: true, UpdatedAt: time.Now()}); err != nil {
		return fmt.Errorf("remember to follow session %s: %w", id, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.left, id)
	if !m.draining {
		m.start(id, SourceAdmin, nil)
	}
	return nil
}

// Unfollow stops following a session, also against discovery and after a
// restart, until Follow. Calls that were taken are settled first.
func (m *Manager) Unfollow(ctx context.Context, id string) error {
	if err := m.cfg.Journal.SaveFollow(ctx, journal.Follow{SessionID: id, UpdatedAt: time.Now()}); err != nil {
		return fmt.Errorf("remember to leave session %s: %w", id, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left[id] = true
	if f, ok := m.sessions[id]; ok {
		f.unwanted()
	}
	return nil
}

// found follows a session that discovery saw, unless it is to be left alone.
func (m *Manager) found(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.left[id] && !m.draining {
		m.start(id, SourceDiscovery, nil)
	}
}

// Drain takes no new calls, lets those that were sent come to their end, and
// returns when they have, or when ctx ends: what is unfinished then is left in
// the journal as a crash would leave it.
func (m *Manager) Drain(ctx context.Context) {
	m.mu.Lock()
	m.draining = true
	followers := make([]*follower, 0, len(m.sessions))
	for _, f := range m.sessions {
		followers = append(followers, f)
	}
	m.mu.Unlock()
	for _, f := range followers {
		f.drain()
	}
	done := make(chan struct{})
	go func() {
		m.tasks.wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		m.cfg.Logger.WarnContext(ctx, "stopping with calls in flight; the next start treats them as after a crash")
	}
	m.stopWork(errDraining)
	for _, f := range followers {
		f.stopWork()
	}
	m.stopFollow()
	<-done
	m.followers.Wait()
	m.tasks.close()
	m.errands.wait()
	m.errands.close()
}

// Info is what the admin API shows of a followed session.
type Info struct {
	SessionID, AgentID, Status string
	Source                     Source
	// Stream is connecting, open or waiting.
	Stream      string
	LastEventAt time.Time
	Pending     []journal.Call
	// Drift is how the agent's tools differ from the route table, nil until the
	// session was read.
	Drift *router.Drift
}

// Sessions lists the followed sessions by id.
func (m *Manager) Sessions() []Info {
	m.mu.Lock()
	followers := make([]*follower, 0, len(m.sessions))
	for _, f := range m.sessions {
		followers = append(followers, f)
	}
	m.mu.Unlock()
	infos := make([]Info, 0, len(followers))
	for _, f := range followers {
		infos = append(infos, f.info())
	}
	slices.SortFunc(infos, func(a, b Info) int { return cmp.Compare(a.SessionID, b.SessionID) })
	return infos
}

// Session returns one followed session.
func (m *Manager) Session(id string) (Info, bool) {
	m.mu.Lock()
	f, ok := m.sessions[id]
	m.mu.Unlock()
	if !ok {
		return Info{}, false
	}
	return f.info(), true
}

// KeyRefused reports whether the API refuses the key.
func (m *Manager) KeyRefused() bool { return m.cfg.Client.KeyRefused() }

// Degraded reports whether the API cannot be reached.
func (m *Manager) Degraded() bool { return m.cfg.Client.Unreachable() }
