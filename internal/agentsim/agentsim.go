// Package agentsim simulates the OpenAI Agents API as far as a bridge for function tools meets it: sessions, turns,
// items, the event stream and the posting of input events. It leaves models, environments and files to the real one.
//
// A Sim is an [http.Handler] that opens no socket and takes its time from package time, so that it serves over TCP
// as well as over an in-memory [Pipe] within testing/synctest. It is strict where the API documents a rule and
// misbehaves on request: [Options] hold the standing habits, a [Fault] is a single mishap.
//
// The JSON is written by hand. The arguments of a call leave byte for byte as the script gave them, and the official
// SDK's decoding, which the tests use, checks the rest.
package agentsim

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Sim is one simulated Agents API. Create it with [New]; its methods may be called from any goroutine.
type Sim struct {
	opts  Options
	seed  maphash.Seed
	ids   atomic.Uint64
	calls [endpointCount]atomic.Int64
	done  chan struct{}
	once  sync.Once

	results atomic.Int64 // tool results that took effect

	faults faultSet

	mu       sync.RWMutex
	sessions map[string]*session
	order    []*session // by creation
	agents   map[string]*agent
	turns    []Turn // of the script

	rndMu sync.Mutex
	rnd   *rand.Rand
}

// New builds a simulated API with the given habits; see [Kind], [Hostile] and [Bench].
func New(opts Options) *Sim {
	opts = opts.withDefaults()
	return &Sim{
		opts:     opts,
		seed:     maphash.MakeSeed(),
		done:     make(chan struct{}),
		sessions: map[string]*session{},
		agents:   map[string]*agent{},
		rnd:      rand.New(rand.NewPCG(opts.Seed, opts.Seed^0x9e3779b97f4a7c15)), //nolint:gosec // repeatable, not secret
	}
}

// Close ends every stream and stops every timer. Requests that still come are served, but nothing moves any more.
func (s *Sim) Close() {
	s.once.Do(func() { close(s.done) })
	for _, ss := range s.snapshotSessions() {
		ss.mu.Lock()
		ss.stopTimers()
		ss.mu.Unlock()
	}
}

// SessionSpec describes a session to create.
type SessionSpec struct {
	ID       string // made up when empty
	AgentID  string // made up when empty
	Metadata map[string]string
	Tools    []byte // JSON array of tool definitions; nil: none
}

// CreateSession adds an idle session and returns its id. It panics when Tools is not a JSON array of objects or the
// id exists: both are mistakes of the caller.
func (s *Sim) CreateSession(spec SessionSpec) string {
	tools, err := parseTools(spec.Tools)
	if err != nil {
		panic(fmt.Sprintf("agentsim: create session: %v", err))
	}
	ss, err := s.addSession(spec, tools)
	if err != nil {
		panic(fmt.Sprintf("agentsim: create session: %v", err))
	}
	return ss.id
}

func (s *Sim) addSession(spec SessionSpec, tools []toolDef) (*session, error) {
	if spec.ID == "" {
		spec.ID = s.newID("sess_")
	}
	if spec.AgentID == "" {
		spec.AgentID = s.newID("agent_")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, exists := s.sessions[spec.ID]; exists {
		return nil, fmt.Errorf("session %q exists", spec.ID)
	}
	if saved := s.agents[spec.AgentID]; saved == nil {
		s.agents[spec.AgentID] = &agent{id: spec.AgentID, created: time.Now(), tools: tools}
	} else if tools == nil {
		tools = saved.tools
	}
	ss := newSession(s, spec, tools)
	s.sessions[ss.id] = ss
	s.order = append(s.order, ss)
	return ss, nil
}

// Play starts a turn that takes the given steps, and returns its id. While another turn of the session runs, the new
// one waits in the queue. It panics for an unknown session and for arguments that are not JSON.
func (s *Sim) Play(sessionID string, steps ...Step) (turnID string) {
	for _, step := range steps {
		if err := step.check(); err != nil {
			panic(fmt.Sprintf("agentsim: play: %v", err))
		}
	}
	return s.start(sessionID, turnPlan{steps: steps, message: "(played)"})
}

// Say posts a user message, written in the language of [ParseMessage], and returns the id of the turn that it starts.
// It panics for an unknown session and for a message that does not parse.
func (s *Sim) Say(sessionID, text string) (turnID string) {
	steps, say, err := ParseMessage(text)
	if err != nil {
		panic(fmt.Sprintf("agentsim: say: %v", err))
	}
	return s.start(sessionID, turnPlan{steps: steps, say: say, message: text})
}

func (s *Sim) start(sessionID string, plan turnPlan) string {
	ss := s.must(sessionID)
	ss.lock()
	defer ss.unlock()
	return ss.startTurn(plan).id
}

// Cancel cancels the session's active turn, as an agent.session.input.cancel event does.
func (s *Sim) Cancel(sessionID string) {
	ss := s.must(sessionID)
	ss.lock()
	defer ss.unlock()
	ss.cancel()
}

// Fail fails the session: its turn fails, nothing is pending any more, and its status stays failed.
func (s *Sim) Fail(sessionID string) {
	ss := s.must(sessionID)
	ss.lock()
	defer ss.unlock()
	ss.fail("The session failed.")
}

// FailTurn fails the active turn; the session goes idle and may be used again.
func (s *Sim) FailTurn(sessionID string) {
	ss := s.must(sessionID)
	ss.lock()
	defer ss.unlock()
	ss.failTurn()
}

// Settle answers everything that is pending but function calls: approvals, connections and unknown actions.
func (s *Sim) Settle(sessionID string) {
	ss := s.must(sessionID)
	ss.lock()
	defer ss.unlock()
	ss.settleOthers()
}

// Delete removes the session whatever it is doing; its streams end and later requests get 404.
func (s *Sim) Delete(sessionID string) {
	ss := s.find(sessionID)
	if ss == nil {
		return
	}
	s.remove(ss)
}

func (s *Sim) remove(ss *session) {
	s.mu.Lock()
	delete(s.sessions, ss.id)
	for i, other := range s.order {
		if other == ss {
			s.order = append(s.order[:i:i], s.order[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	ss.lock()
	defer ss.unlock()
	ss.gone()
}

// SaveAgent stores an agent for GET /agents/{id} and for sessions created with its id. tools is a JSON array.
func (s *Sim) SaveAgent(id string, tools []byte) error {
	defs, err := parseTools(tools)
	if err != nil {
		return fmt.Errorf("save agent %s: %w", id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agents[id] = &agent{id: id, created: time.Now(), tools: defs}
	return nil
}

// ServeHTTP serves the API below Options.BasePath and the control endpoints below /_sim/.
func (s *Sim) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.route(w, r)
}

func (s *Sim) find(id string) *session {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.sessions[id]
}

func (s *Sim) must(id string) *session {
	ss := s.find(id)
	if ss == nil {
		panic(fmt.Sprintf("agentsim: unknown session %q", id))
	}
	return ss
}

func (s *Sim) snapshotSessions() []*session {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return append([]*session(nil), s.order...)
}

// within gives a random duration in [0, d].
func (s *Sim) within(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	s.rndMu.Lock()
	defer s.rndMu.Unlock()
	return time.Duration(s.rnd.Int64N(int64(d) + 1))
}

// newID makes ids that sort by age, look like the API's and never repeat within one Sim.
func (s *Sim) newID(prefix string) string {
	return string(appendID(nil, prefix, s.ids.Add(1)))
}
