package agentsim

import (
	"maps"
	"sync"
	"time"
)

// The words of the API for the states of sessions and turns.
const (
	statusIdle           = "idle"
	statusInProgress     = "in_progress"
	statusRequiresAction = "requires_action"
	statusFailed         = "failed"
	statusCompleted      = "completed"
	statusCancelled      = "cancelled"
	statusQueued         = "queued"
	statusWaiting        = "waiting"
)

// agent is a saved agent.
type agent struct {
	id      string
	created time.Time
	tools   []toolDef
}

// session is one session; mu guards everything below it. Take it with lock and give it back with unlock, which wakes
// the streams once for all events of the critical section.
type session struct {
	sim     *Sim
	id      string
	agentID string
	created time.Time

	mu         sync.Mutex
	metadata   map[string]string
	tools      []toolDef
	status     string
	errText    string
	lastActive time.Time
	deleted    bool
	head       []byte // rendered start of a snapshot, until agent or metadata change

	turns    []*turn
	queue    []*turn
	active   *turn
	required []*entry // pending and registered, in order
	calls    map[string]*call
	keys     map[string]posted
	sent     uint64 // events, for noise
	said     int    // messages that played a turn of the script
	answered int    // results that took effect
	frozen   []byte // what the stale fault shows

	past     []moment // snapshots of the last Options.Lag, oldest first
	streams  []*stream
	last     []byte // the last event sent, for the duplicate fault
	lastType string
	scratch  []byte
	timers   map[*time.Timer]struct{}
	changed  chan struct{} // closed at the next change when somebody waits
	trips    []trip        // stream faults that count events
}

// turn is one turn of a session.
type turn struct {
	id                          string
	plan                        turnPlan
	step, action                int
	status                      string
	errText                     string
	created, started, completed time.Time
	announced                   []*entry // item.added was sent, not registered yet
	open                        int      // required actions that hold the step
	items                       []row
	outputs                     int
	calls                       []*call
	keys                        []string
	done                        chan struct{}
}

type turnPlan struct {
	steps   []Step
	message string // the user's words
	say     string // the agent's last words; "" tells what the functions answered
}

// row is a rendered element of a list: an item, a turn or a session.
type row struct {
	id   string
	json []byte
}

// entry is one required action. call is nil for those that are not function calls.
type entry struct {
	turn     *turn
	json     []byte
	call     *call
	blocking bool
}

// call is a function call and what became of it.
type call struct {
	turn       *turn
	id         string
	name       string
	arguments  []byte
	async      bool
	itemID     string
	output     int // index among the turn's outputs
	place      int // index among the turn's items
	entry      *entry
	registered bool
	over       bool // answered, or no longer wanted
	result     *Result
	posts      []Post
}

// posted remembers what a key was used for.
type posted struct {
	body   uint64
	status int
}

// moment is a snapshot that was true from at on.
type moment struct {
	at   time.Time
	json []byte
}

func newSession(s *Sim, spec SessionSpec, tools []toolDef) *session {
	now := time.Now()
	ss := &session{
		sim: s, id: spec.ID, agentID: spec.AgentID, created: now, lastActive: now,
		metadata: maps.Clone(spec.Metadata), tools: tools, status: statusIdle,
		calls: map[string]*call{}, keys: map[string]posted{}, timers: map[*time.Timer]struct{}{},
	}
	ss.remember()
	return ss
}

func (ss *session) lock() { ss.mu.Lock() }

func (ss *session) unlock() {
	if ss.changed != nil {
		close(ss.changed)
		ss.changed = nil
	}
	for _, st := range ss.streams {
		st.nudge()
	}
	ss.mu.Unlock()
}

// wait blocks until ok, called under the lock, is true, or ctx's channel closes.
func (ss *session) wait(done <-chan struct{}, ok func() bool) bool {
	for {
		ss.mu.Lock()
		if ok() {
			ss.mu.Unlock()
			return true
		}
		if ss.changed == nil {
			ss.changed = make(chan struct{})
		}
		changed := ss.changed
		ss.mu.Unlock()
		select {
		case <-changed:
		case <-done:
			return false
		}
	}
}

// after runs f under the lock in d, unless the session is gone by then. The lock is held.
func (ss *session) after(d time.Duration, f func()) {
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		ss.lock()
		defer ss.unlock()
		if _, ok := ss.timers[timer]; !ok {
			return
		}
		delete(ss.timers, timer)
		f()
	})
	ss.timers[timer] = struct{}{}
}

func (ss *session) stopTimers() {
	for timer := range ss.timers {
		timer.Stop()
	}
	clear(ss.timers)
}

// become changes the status and sends the snapshot that goes with it.
func (ss *session) become(status string) {
	ss.status = status
	ss.announceStatus()
}

// announceStatus sends the event of the present status, whose snapshot becomes the newest.
func (ss *session) announceStatus() {
	ss.lastActive = time.Now()
	ss.remember()
	typ := "agent.session." + ss.status
	if len(ss.streams) == 0 {
		return
	}
	snapshot := ss.snapshot(nil)
	ss.sendSnapshot(typ, snapshot)
	if ss.sim.opts.Repeat && ss.status == statusRequiresAction {
		ss.after(ss.sim.within(ss.sim.opts.Lag), func() { ss.sendSnapshot(typ, snapshot) })
	}
}

// remember keeps the snapshot of now for stale reads.
func (ss *session) remember() {
	lag := ss.sim.opts.Lag
	if lag <= 0 {
		return
	}
	now := time.Now()
	ss.past = append(ss.past, moment{at: now, json: ss.snapshot(nil)})
	old := 0
	for old+1 < len(ss.past) && now.Sub(ss.past[old+1].at) > lag {
		old++
	}
	ss.past = ss.past[old:]
}

// read gives the snapshot for a GET: of now, or of a random moment within Lag. The answer was true at that moment.
func (ss *session) read(b []byte) []byte {
	if ss.sim.opts.Lag <= 0 {
		return ss.snapshot(b)
	}
	return append(b, ss.asOf(time.Now().Add(-ss.sim.within(ss.sim.opts.Lag)))...)
}

func (ss *session) asOf(t time.Time) []byte {
	for i := len(ss.past) - 1; i > 0; i-- {
		if !ss.past[i].at.After(t) {
			return ss.past[i].json
		}
	}
	return ss.past[0].json
}

// gone ends a deleted session.
func (ss *session) gone() {
	ss.deleted = true
	ss.abandon(statusCancelled, "")
	ss.stopTimers()
	for _, st := range ss.streams {
		st.end(endClean)
	}
}
