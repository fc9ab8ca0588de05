package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
	"functionbridge/internal/journal/sqlite"
	"functionbridge/internal/router"
	"functionbridge/internal/session"
)

// line is the whole way of a call, with the real parts connected by pipes
// instead of sockets, so that hours pass in milliseconds in a synctest bubble.
type line struct {
	sim      *agentsim.Sim
	api      *agentsim.Pipe
	upstream *agentsim.Pipe
	requests *requestLog
	dir      string
	table    *router.Table
	config   session.Config
	// watch, when set, is put between the manager and the journal, which writes a
	// lazy row after flushDelay; 0 means its default.
	watch      func(session.Journal) session.Journal
	flushDelay time.Duration

	journal   *sqlite.Store
	manager   *session.Manager
	forwarder *forward.Forwarder
	client    *session.Client
	registry  *prometheus.Registry
	servers   []*http.Server
	running   bool
}

// requestLog remembers which calls reached the service, and when.
type requestLog struct {
	mu   sync.Mutex
	seen []upstreamRequest
}

type upstreamRequest struct {
	path, callID, key string
	at                time.Time
}

func (l *requestLog) add(r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, upstreamRequest{r.URL.Path, r.Header.Get("Bridge-Call-Id"), r.Header.Get("Idempotency-Key"), time.Now()})
}

// of returns the requests of one call.
func (l *requestLog) of(callID string) []upstreamRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.seen), func(r upstreamRequest) bool { return r.callID != callID })
}

const lineTable = `version: 1
routes:
  pay: http://service/pay
  look_later: {url: "http://service/slow", idempotent: true, async: true, timeout: 10m}
  pay_later: {url: "http://service/slow", async: true, timeout: 10m}
  pay_held: {url: "http://service/lost", on_unknown_outcome: hold}
  look: {url: "http://service/look", idempotent: true, timeout: 10m}
  slow_pay: {url: "http://service/slow", timeout: 10m}
  slow_look: {url: "http://service/slow", idempotent: true, timeout: 10m}
`

// newLine builds the line and starts it. Everything has ended when the test has.
func newLine(t *testing.T, options agentsim.Options, answer http.HandlerFunc, change func(*session.Config)) *line {
	t.Helper()
	table, err := router.Parse("routes.yaml", []byte(lineTable), router.Env{})
	if err != nil {
		t.Fatal(err)
	}
	l := &line{
		sim: agentsim.New(options), api: agentsim.NewPipe(), upstream: agentsim.NewPipe(),
		requests: &requestLog{}, dir: t.TempDir(), table: table,
	}
	l.serve(l.api, l.sim)
	l.serve(l.upstream, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.requests.add(r)
		answer(w, r)
	}))
	l.config = session.Config{
		DiscoverInterval: 15 * time.Second, IdleTimeout: time.Minute, ResyncInterval: 30 * time.Second,
		Logger: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&l.config)
	}
	l.start(t)
	t.Cleanup(func() { l.close(t) })
	return l
}

func (l *line) serve(p *agentsim.Pipe, h http.Handler) {
	s := &http.Server{Handler: h}
	l.servers = append(l.servers, s)
	go func() { _ = s.Serve(p) }()
}

// start builds the bridge's own parts, as a new process would.
func (l *line) start(t *testing.T) {
	t.Helper()
	var err error
	l.registry = prometheus.NewRegistry()
	owner := l.openJournal(t)
	l.forwarder = forward.New(forward.Config{
		MaxCalls: 64, Table: func() *router.Table { return l.table }, Logger: l.config.Logger,
		Registerer: l.registry, Transport: forward.Transport{Dial: l.upstream.DialContext},
	})
	transport := &http.Transport{DialContext: l.api.DialContext, MaxIdleConnsPerHost: 64}
	l.client, err = session.NewClient(session.ClientConfig{
		APIKey: "test", BaseURL: "http://api/v1", Rate: 20, HTTPClient: &http.Client{Transport: transport},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := l.config
	c.Client, c.Forwarder, c.Journal, c.Owner, c.Registerer = l.client, l.forwarder, l.journal, owner, l.registry
	if l.watch != nil {
		c.Journal = l.watch(l.journal)
	}
	l.manager = session.New(c)
	if err := l.manager.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.running = true
}

// openJournal opens the journal for a process and returns its name.
func (l *line) openJournal(t *testing.T) (owner string) {
	t.Helper()
	var err error
	owner = fmt.Sprint("process at ", time.Now())
	options := sqlite.Options{Owner: owner, Logger: l.config.Logger, FlushDelay: l.flushDelay}
	if l.journal, err = sqlite.Open(t.Context(), filepath.Join(l.dir, "bridge.db"), options); err != nil {
		t.Fatal(err)
	}
	return owner
}

// stop drains for as long as patience and takes the bridge's own parts down.
func (l *line) stop(t *testing.T, patience time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l.manager.Drain(ctx)
	l.forwarder.Close()
	l.client.Close()
	if err := l.journal.Close(); err != nil {
		t.Errorf("close the journal: %v", err)
	}
	l.running = false
}

func (l *line) close(t *testing.T) {
	t.Helper()
	if l.running {
		l.stop(t, time.Millisecond)
	}
	l.sim.Close()
	for _, s := range l.servers {
		_ = s.Close()
	}
}

// follow starts a session and follows it as the admin API does.
func (l *line) follow(t *testing.T) string {
	t.Helper()
	id := l.sim.CreateSession(agentsim.SessionSpec{})
	if err := l.manager.Follow(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return id
}

// state is a call's row.
func (l *line) call(t *testing.T, session, turn, callID string) journal.Call {
	t.Helper()
	c, err := l.journal.Call(t.Context(), journal.Key{SessionID: session, TurnID: turn, CallID: callID})
	if err != nil {
		t.Fatalf("call %s: %v", callID, err)
	}
	return c
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d) // fake clock
	synctest.Wait()
}

func (l *line) wantState(t *testing.T, session, turn, callID string, want journal.State) journal.Call {
	t.Helper()
	c := l.call(t, session, turn, callID)
	if c.State != want {
		t.Errorf("call %s is %s, want %s", callID, c.State, want)
	}
	return c
}

func (l *line) wantRequests(t *testing.T, callID string, want int) {
	t.Helper()
	if got := l.requests.of(callID); len(got) != want {
		t.Errorf("the service got call %s %d times, want %d: %+v", callID, len(got), want, got)
	}
}

func (l *line) fault(t *testing.T, f agentsim.Fault) {
	t.Helper()
	if err := l.sim.Fault(f); err != nil {
		t.Fatal(err)
	}
}

func TestSilentStreamIsReopenedAndItsCallRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Options{}, ok, func(c *session.Config) { c.ResyncInterval = time.Hour })
		id := l.follow(t)
		pass(10 * time.Second) // past the reads that follow the opening of a stream
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultSilence, SessionID: id})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		pass(40 * time.Second)
		l.wantRequests(t, "c1", 0)
		pass(15 * time.Second)
		l.wantRequests(t, "c1", 1)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
	})
}

func TestForgottenResultIsPostedAgainAndThenUnderAnotherKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id := l.follow(t)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultForget, On: agentsim.PostEvents, SessionID: id, Count: 4, KeepKey: true})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		pass(10 * time.Minute)
		l.wantRequests(t, "c1", 1)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		var keys []string
		posts := l.sim.Posts(id, "c1")
		for i, p := range posts {
			keys = append(keys, p.Key)
			if i > 0 && p.At.Sub(posts[i-1].At) < 30*time.Second {
				t.Errorf("post %d came %s after the one before", i, p.At.Sub(posts[i-1].At))
			}
		}
		if len(keys) < 4 || keys[0] != keys[1] || keys[1] != keys[2] || keys[2] == keys[3] {
			t.Errorf("keys are %v, want three of one kind and then another", keys)
		}
	})
}

// A session that is missing for minutes counts as deleted, and what it forgot as
// abandoned. When both turn out wrong, the result is still there.
func TestResultOfASettledCallIsPostedAgainWhenItIsListedAgain(t *testing.T) {
	t.Parallel()
	for name, forgotten := range map[string]agentsim.Fault{
		"another process forgot it": {Count: 1},
		"its key is remembered":     {Count: 4, KeepKey: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), ok, nil)
				id := l.follow(t)
				pass(10 * time.Second)
				forgotten.Kind, forgotten.On, forgotten.SessionID = agentsim.FaultForget, agentsim.PostEvents, id
				l.fault(t, forgotten)
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
				pass(time.Second)
				for _, on := range []agentsim.Endpoint{agentsim.GetSession, agentsim.OpenStream} {
					l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: on, Status: 404, SessionID: id, For: 4 * time.Minute})
				}
				pass(5 * time.Minute)
				l.wantState(t, id, turn, "c1", journal.Abandoned)
				if n := len(l.sim.Results(id)); n != 0 {
					t.Fatalf("the session has %d results, and was to forget them", n)
				}
				if err := l.manager.Follow(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				pass(5 * time.Minute)
				if results := l.sim.Results(id); len(results) != 1 || !results[0].Success {
					t.Errorf("the session has %+v, want the result", results)
				}
				l.wantRequests(t, "c1", 1)
			})
		})
	}
}

func TestLongRetryAfterOnAResultIsWaitedOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id, other := l.follow(t), l.follow(t)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.PostEvents, SessionID: id, Status: 429, RetryAfter: "300"})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		turn2 := l.sim.Play(other, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c2")})
		pass(2 * time.Second)
		l.wantState(t, other, turn2, "c2", journal.Confirmed)
		pass(290 * time.Second)
		l.wantState(t, id, turn, "c1", journal.Answered)
		pass(20 * time.Second)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
	})
}

func TestReadThatIsNeverAnsweredHidesNoCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Options{}, ok, nil)
		id := l.sim.CreateSession(agentsim.SessionSpec{})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultHang, On: agentsim.GetSession, SessionID: id})
		if err := l.manager.Follow(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute) // no event tells of the call, it was there before the stream
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
	})
}

func TestListThatIsNeverAnsweredHidesNoSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, func(c *session.Config) { c.Agents = []string{"agent_1"} })
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultHang, On: agentsim.ListSessions})
		pass(16 * time.Second)
		id := l.sim.CreateSession(agentsim.SessionSpec{AgentID: "agent_1"})
		pass(2 * time.Minute)
		if _, followed := l.manager.Session(id); !followed {
			t.Error("after a list that hung, sessions are found no more")
		}
	})
}

func TestAbsurdRetryAfterHidesNoCallForHours(t *testing.T) {
	t.Parallel()
	for _, on := range []agentsim.Endpoint{agentsim.GetSession, agentsim.OpenStream} {
		t.Run(on.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), ok, nil)
				id := l.sim.CreateSession(agentsim.SessionSpec{})
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
				l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: on, Status: 429, RetryAfter: "86400"})
				if err := l.manager.Follow(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				pass(11 * time.Minute)
				l.wantState(t, id, turn, "c1", journal.Confirmed)
			})
		})
	}
}

func TestMomentWithoutTheSessionLosesNoCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), slowly, nil)
		id := l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_look", `{}`).WithID("c1")})
		pass(29 * time.Second)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.GetSession, SessionID: id, Status: 404, For: 6 * time.Second})
		pass(time.Minute)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
	})
}

func TestAnswerAboutAnotherSessionRunsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id := l.sim.CreateSession(agentsim.SessionSpec{})
		other := `{"id":"sess_other","status":"requires_action","required_actions":[` +
			`{"type":"function_call","turn_id":"t1","call_id":"c1","name":"pay","arguments":"{}"}]}`
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.GetSession, SessionID: id, Status: 200, Body: other})
		if err := l.manager.Follow(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if n := l.sim.Count(agentsim.GetSession); n < 2 {
			t.Errorf("the session was read %d times, the wrong answer is not asked for again", n)
		}
		l.wantRequests(t, "c1", 0)
	})
}

func TestWrongAddressAtAStartLosesNoCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), slowly, nil)
		id := l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_look", `{}`).WithID("c1")})
		pass(time.Second)
		l.stop(t, time.Millisecond)
		for _, on := range []agentsim.Endpoint{agentsim.OpenStream, agentsim.GetSession} {
			l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: on, Status: 404, For: 5 * time.Minute})
		}
		l.start(t)
		pass(4 * time.Minute)
		l.stop(t, time.Millisecond)
		pass(2 * time.Minute)
		l.start(t)
		pass(2 * time.Minute)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
	})
}

// slowly answers after a minute, or not at all when the client goes.
func slowly(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/slow" {
		select {
		case <-time.After(time.Minute):
		case <-r.Context().Done():
			return
		}
	}
	ok(w, r)
}

func TestCancelledTurn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, function string
		wantOutput     string
	}{
		{"stops an idempotent request", "slow_look", ""},
		{"lets a side effect finish and keeps its outcome", "slow_pay", `{"ok":true}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), slowly, nil)
				id := l.follow(t)
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call(c.function, `{}`).WithID("c1")})
				pass(time.Second)
				l.wantRequests(t, "c1", 1)
				l.sim.Cancel(id)
				pass(2 * time.Minute)
				call := l.wantState(t, id, turn, "c1", journal.Abandoned)
				if call.Outcome.Output != c.wantOutput {
					t.Errorf("the abandoned call has the output %q, want %q", call.Outcome.Output, c.wantOutput)
				}
				if posts := l.sim.Posts(id, "c1"); len(posts) != 0 {
					t.Errorf("a result was posted to a cancelled turn: %+v", posts)
				}
			})
		})
	}
}

func TestLostReplyToAResultIsSettledWithoutASecondRun(t *testing.T) {
	t.Parallel()
	for name, options := range agentsim.Positions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, options, ok, nil)
				id := l.follow(t)
				l.fault(t, agentsim.Fault{Kind: agentsim.FaultLostReply, On: agentsim.PostEvents, SessionID: id})
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
				pass(2 * time.Minute)
				l.wantRequests(t, "c1", 1)
				l.wantState(t, id, turn, "c1", journal.Confirmed)
				if n := len(l.sim.Results(id)); n != 1 {
					t.Errorf("the session has %d results, want 1", n)
				}
			})
		})
	}
}

func TestResultWhoseReplyIsLostIsPostedAgainUnderItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// No read between the posts tells that the result is there.
		l := newLine(t, agentsim.Kind(), slowly, func(c *session.Config) { c.ResyncInterval = time.Hour })
		id := l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_pay", `{}`).WithID("c1")})
		pass(20 * time.Second)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultSilence, SessionID: id}) // no event tells that the result is there
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultLostReply, On: agentsim.PostEvents, SessionID: id, Count: 3})
		pass(2 * time.Minute)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
		posts := l.sim.Posts(id, "c1")
		if len(posts) != 4 {
			t.Errorf("the posts were %+v, want three whose reply was lost and one more", posts)
		}
		for _, p := range posts {
			if p.Key == "" || p.Key != posts[0].Key {
				t.Errorf("the posts were %+v, want one key", posts)
			}
		}
	})
}

// The read that follows the subscription may be served a snapshot from before it.
func TestCallThatTheFirstReadDidNotShowIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, func(c *session.Config) { c.ResyncInterval = time.Hour })
		id := l.sim.CreateSession(agentsim.SessionSpec{})
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultStale, On: agentsim.GetSession, SessionID: id})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		if err := l.manager.Follow(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
	})
}

func TestResultThatADeadProcessPostedUnrecordedIsConfirmed(t *testing.T) {
	t.Parallel()
	for name, requests := range map[string]int{"the call is listed no more": 1, "an old snapshot lists it once more": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), slowly, nil)
				id := l.follow(t)
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_look", `{}`).WithID("c1")})
				pass(time.Second)
				l.stop(t, time.Millisecond)
				if requests > 1 {
					l.fault(t, agentsim.Fault{Kind: agentsim.FaultStale, On: agentsim.GetSession, SessionID: id})
				}
				result := fmt.Sprintf(`{"events":[{"type":"agent.session.input.tool_result","turn_id":%q,"call_id":"c1","success":true,"output":"x"}]}`, turn)
				if err := l.client.Submit(t.Context(), id, "key", []byte(result)); err != nil {
					t.Fatal(err)
				}
				l.start(t)
				pass(50 * time.Second) // the service takes longer
				l.wantState(t, id, turn, "c1", journal.Confirmed)
				l.wantRequests(t, "c1", requests)
				pass(time.Minute) // the service ends
			})
		})
	}
}

func TestOldSnapshotOfANewStreamConfirmsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Options{Replay: true}, ok, nil)
		id := l.follow(t)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultForget, On: agentsim.PostEvents, SessionID: id})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		pass(10 * time.Second)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultCut, SessionID: id}) // the next stream begins with an old, idle session
		pass(5 * time.Minute)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
		if results := l.sim.Results(id); len(results) != 1 {
			t.Errorf("the session got %d results, want 1", len(results))
		}
	})
}

func TestRefusedResultIsReplacedByAShortFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id := l.follow(t)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.PostEvents, SessionID: id, Status: 413, Count: 3})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		pass(19 * time.Second)
		l.wantState(t, id, turn, "c1", journal.Answered)
		for range 6000 { // a minute, in steps shorter than any write may be put off
			if pass(10 * time.Millisecond); len(l.sim.Results(id)) > 0 {
				break
			}
		}
		onDisk, err := l.journal.Turn(t.Context(), id, turn)
		if err != nil || len(onDisk) != 1 || onDisk[0].Outcome.Failure != journal.TooLarge {
			t.Errorf("when the failure is posted, the disk holds %+v (%v), want it there", onDisk, err)
		}
		pass(time.Minute)
		call := l.wantState(t, id, turn, "c1", journal.Confirmed)
		if call.Outcome.Failure != journal.TooLarge {
			t.Errorf("the outcome is %+v, want too_large", call.Outcome)
		}
		l.wantRequests(t, "c1", 1)
	})
}

func TestResultThatCameTooEarlyIsPostedAgainAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id := l.follow(t)
		race := agentsim.Fault{
			Kind: agentsim.FaultStatus, On: agentsim.PostEvents, SessionID: id, Status: 400, Count: 6,
			Body: `{"error":{"message":"Unknown pending tool call: c1","type":"invalid_request_error","code":"invalid_request_error"}}`,
		}
		l.fault(t, race)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		pass(1100 * time.Millisecond) // 100, 300 and 600 ms after one another
		if n := l.sim.Count(agentsim.PostEvents); n != 4 {
			t.Errorf("the result was posted %d times in the first second, want 4", n)
		}
		pass(2 * time.Minute)
		call := l.wantState(t, id, turn, "c1", journal.Confirmed)
		if !call.Outcome.Success {
			t.Errorf("the result was replaced by %+v", call.Outcome)
		}
		l.wantRequests(t, "c1", 1)
	})
}

func TestConflictOverAResultThatNobodyWantsEndsTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id := l.follow(t)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.PostEvents, SessionID: id, Status: 409, Count: -1})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		pass(time.Second)
		l.sim.Cancel(id)
		pass(time.Minute)
		l.wantState(t, id, turn, "c1", journal.Abandoned)
		before := l.sim.Count(agentsim.PostEvents)
		pass(10 * time.Minute)
		if n := l.sim.Count(agentsim.PostEvents); n != before || n > 3 {
			t.Errorf("the result was posted %d times, %d of them after the call had ended", n, n-before)
		}
		l.wantRequests(t, "c1", 1)
	})
}

func TestConflictOverAResultThatIsWantedChangesTheKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), slowly, nil)
		id := l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_look", `{}`).WithID("other"), agentsim.Call("slow_pay", `{}`).WithID("c1")})
		pass(time.Second)
		// The API remembers another body under the key that the result will have.
		key := journal.SubmissionKey(journal.Key{SessionID: id, TurnID: turn, CallID: "c1"}.CallKey(), journal.Success(`{"ok":true}`), 0)
		result := fmt.Sprintf(`{"events":[{"type":"agent.session.input.tool_result","turn_id":%q,"call_id":"other","success":true,"output":"x"}]}`, turn)
		if err := l.client.Submit(t.Context(), id, key, []byte(result)); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
		posts := l.sim.Posts(id, "c1")
		if len(posts) != 4 || posts[2].Key != key || posts[2].Status != http.StatusConflict || posts[3].Key == key {
			t.Errorf("the posts were %+v, want three conflicts under one key and then another key", posts)
		}
	})
}

func TestPageInPlaceOfAStreamIsNotHammered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultHTML, On: agentsim.OpenStream, Count: -1})
		id := l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		pass(5 * time.Minute)
		if n := l.sim.Count(agentsim.OpenStream); n > 60 {
			t.Errorf("the stream was asked for %d times in five minutes", n)
		}
		l.wantState(t, id, turn, "c1", journal.Confirmed)
	})
}

// A stream's event has a limit, the session has none: what is pending is read there.
func TestCallTooLargeForTheStreamIsFoundInTheSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Options{}, ok, func(c *session.Config) { c.ResyncInterval = time.Hour })
		id := l.follow(t)
		pass(10 * time.Second) // past the reads that follow the opening of a stream
		streams, reads := l.sim.Count(agentsim.OpenStream), l.sim.Count(agentsim.GetSession)
		turn := l.sim.Play(id, agentsim.Step{
			agentsim.Call("pay", `{"s":"`+strings.Repeat("x", 17<<20)+`"}`).WithID("c1"), agentsim.Call("pay", `{}`).WithID("c2"),
		})
		pass(5 * time.Second)
		for _, call := range []string{"c1", "c2"} {
			l.wantState(t, id, turn, call, journal.Confirmed)
			l.wantRequests(t, call, 1)
		}
		if n := l.sim.Count(agentsim.OpenStream); n != streams {
			t.Errorf("the stream was opened %d more times", n-streams)
		}
		if n := l.sim.Count(agentsim.GetSession) - reads; n > 10 {
			t.Errorf("the session was read %d times", n)
		}
	})
}

// A stream that brings what cannot be understood makes the session be read at once; what means nothing does not.
func TestOddFramesMakeTheSessionBeReadOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault agentsim.Fault
		reads int64
	}{
		{agentsim.Fault{Kind: agentsim.FaultError}, 1},
		{agentsim.Fault{Kind: agentsim.FaultMalformed}, 1},
		{agentsim.Fault{Kind: agentsim.FaultLongLine, N: 17 << 20}, 1},
		{agentsim.Fault{Kind: agentsim.FaultLongLine}, 0},
		{agentsim.Fault{Kind: agentsim.FaultEmptyData}, 1},
		{agentsim.Fault{Kind: agentsim.FaultComment}, 0},
	} {
		t.Run(fmt.Sprint(c.fault.Kind, c.fault.N), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), ok, func(c *session.Config) { c.ResyncInterval = time.Hour })
				id := l.follow(t)
				pass(10 * time.Second) // past the reads that follow the opening of a stream
				before := l.sim.Count(agentsim.GetSession)
				c.fault.SessionID = id
				l.fault(t, c.fault)
				pass(time.Second)
				if n := l.sim.Count(agentsim.GetSession) - before; n != c.reads {
					t.Errorf("the session was read %d times, want %d", n, c.reads)
				}
				pass(10 * time.Minute) // with nothing but comments
				if n := l.sim.Count(agentsim.OpenStream); n != 1 {
					t.Errorf("the stream was opened %d times, want once", n)
				}
			})
		})
	}
}

func TestSlowCallDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), slowly, nil)
		id := l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{
			agentsim.Call("slow_pay", `{}`).WithID("c1"), agentsim.Text(300), agentsim.Call("pay", `{}`).WithID("c2"),
		})
		pass(time.Second)
		l.wantState(t, id, turn, "c1", journal.Running)
		l.wantState(t, id, turn, "c2", journal.Confirmed)
		pass(time.Minute)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
	})
}

func TestGoneSessionIsLeftAndItsCallsAbandoned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), slowly, nil)
		id := l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_look", `{}`).WithID("c1")})
		pass(time.Second)
		l.sim.Delete(id)
		pass(3 * time.Minute)
		l.wantState(t, id, turn, "c1", journal.Abandoned)
		if _, followed := l.manager.Session(id); followed {
			t.Error("a deleted session is still followed")
		}
		before := l.sim.Count(agentsim.OpenStream)
		pass(10 * time.Minute)
		if n := l.sim.Count(agentsim.OpenStream); n != before {
			t.Errorf("a deleted session was asked for %d more times", n-before)
		}
	})
}

func TestRefusedKeyIsSaidAndHeals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id := l.follow(t)
		for _, on := range []agentsim.Endpoint{agentsim.OpenStream, agentsim.GetSession, agentsim.PostEvents} {
			l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: on, Status: 401, For: 5 * time.Minute})
		}
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		pass(4 * time.Minute)
		if !l.manager.KeyRefused() {
			t.Error("the refused key is not said")
		}
		for _, on := range []agentsim.Endpoint{agentsim.OpenStream, agentsim.GetSession, agentsim.PostEvents} {
			if n := l.sim.Count(on); n > 20 {
				t.Errorf("%s was asked for %d times in four minutes with a refused key", on, n)
			}
		}
		pass(4 * time.Minute)
		if l.manager.KeyRefused() {
			t.Error("the key is accepted again, and still said to be refused")
		}
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
	})
}

func TestDrainFinishesWhatRunsAndTheNextProcessDoesTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), slowly, nil)
		id := l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_pay", `{}`).WithID("c1")}, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c2")})
		pass(time.Second)
		l.stop(t, 2*time.Minute)
		if posts := l.sim.Posts(id, "c1"); len(posts) != 1 {
			t.Errorf("the running call was posted %d times before the stop, want once", len(posts))
		}
		l.wantRequests(t, "c2", 0)
		l.start(t)
		pass(time.Minute)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantState(t, id, turn, "c2", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
		l.wantRequests(t, "c2", 1)
	})
}

func TestCutDrainIsTreatedAsACrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), slowly, nil)
		id := l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_pay", `{}`).WithID("c1"), agentsim.Call("slow_look", `{}`).WithID("c2")})
		pass(time.Second)
		l.stop(t, 10*time.Second)
		l.start(t)
		pass(2 * time.Minute)
		call := l.wantState(t, id, turn, "c1", journal.Confirmed)
		if call.Outcome.Failure != journal.UnknownOutcome {
			t.Errorf("the interrupted side effect ended as %+v, want unknown_outcome", call.Outcome)
		}
		l.wantRequests(t, "c1", 1)
		l.wantState(t, id, turn, "c2", journal.Confirmed)
		again := l.requests.of("c2")
		if len(again) != 2 || again[0].key != again[1].key {
			t.Errorf("the idempotent call was sent as %+v, want twice under one key", again)
		}
	})
}

func TestCallPendingBeforeTheStartIsAnswered(t *testing.T) {
	t.Parallel()
	for name, options := range agentsim.Positions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, options, ok, nil)
				id := l.sim.CreateSession(agentsim.SessionSpec{})
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
				pass(time.Minute)
				if err := l.manager.Follow(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				pass(time.Minute)
				l.wantState(t, id, turn, "c1", journal.Confirmed)
				l.wantRequests(t, "c1", 1)
			})
		})
	}
}

func TestStreamMishapsLoseNothingAndRepeatNothing(t *testing.T) {
	t.Parallel()
	faults := []agentsim.FaultKind{
		agentsim.FaultCut, agentsim.FaultEOF, agentsim.FaultSilence, agentsim.FaultDuplicate, agentsim.FaultError,
		agentsim.FaultErrorNull, agentsim.FaultMalformed, agentsim.FaultEmptyData, agentsim.FaultLongLine, agentsim.FaultComment,
	}
	for _, kind := range faults {
		for name, options := range agentsim.Positions() {
			t.Run(string(kind)+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					l := newLine(t, options, ok, nil)
					id := l.follow(t)
					turn := l.sim.Play(id,
						agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")},
						agentsim.Step{agentsim.Mishap(agentsim.Fault{Kind: kind}), agentsim.Call("pay", `{}`).WithID("c2"), agentsim.Call("look", `{}`).WithID("c3")},
						agentsim.Step{agentsim.Call("pay", `{}`).WithID("c4")},
					)
					pass(10 * time.Minute)
					for _, call := range []string{"c1", "c2", "c3", "c4"} {
						l.wantState(t, id, turn, call, journal.Confirmed)
						l.wantRequests(t, call, 1)
					}
					if n := len(l.sim.Results(id)); n != 4 {
						t.Errorf("the session has %d results, want 4", n)
					}
				})
			})
		}
	}
}

func TestAPIMishapsAreRiddenOut(t *testing.T) {
	t.Parallel()
	kinds := map[string]agentsim.Fault{
		"500": {Kind: agentsim.FaultStatus, Status: 500}, "503 with Retry-After": {Kind: agentsim.FaultStatus, Status: 503, RetryAfter: "20"},
		"429": {Kind: agentsim.FaultStatus, Status: 429, RetryAfter: "5"}, "403": {Kind: agentsim.FaultStatus, Status: 403},
		"409": {Kind: agentsim.FaultStatus, Status: 409}, "a page": {Kind: agentsim.FaultHTML}, "a broken connection": {Kind: agentsim.FaultDrop},
		"a redirect": {Kind: agentsim.FaultStatus, Status: 302}, "an odd error": {Kind: agentsim.FaultStatus, Status: 500, Body: `{"error":"text"}`},
		"no answer": {Kind: agentsim.FaultHang},
	}
	for name, fault := range kinds {
		for _, on := range []agentsim.Endpoint{agentsim.OpenStream, agentsim.GetSession, agentsim.PostEvents} {
			t.Run(name+" on "+on.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					if fault.Kind == agentsim.FaultHTML && on == agentsim.PostEvents {
						return // a 200 is an acceptance; the forgotten result has a test of its own
					}
					l := newLine(t, agentsim.Kind(), ok, nil)
					fault.On, fault.Count = on, 2
					l.fault(t, fault)
					id := l.follow(t)
					turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
					pass(20 * time.Minute)
					l.wantState(t, id, turn, "c1", journal.Confirmed)
					l.wantRequests(t, "c1", 1)
				})
			})
		}
	}
}

func TestParallelCallsOfTwoSessions(t *testing.T) {
	t.Parallel()
	for name, options := range agentsim.Positions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, options, ok, nil)
				for _, id := range []string{l.follow(t), l.follow(t)} {
					turn := l.sim.Play(id, agentsim.Step{
						agentsim.Call("pay", `{"a":1}`).WithID("c1" + id), agentsim.Call("look", `"{\"a\":1}"`).WithID("c2" + id),
						agentsim.Approval(), agentsim.Connection(), agentsim.Unknown(), agentsim.Call("pay", ``).WithID("c3" + id),
					})
					pass(2 * time.Minute)
					for _, call := range []string{"c1" + id, "c2" + id, "c3" + id} {
						l.wantState(t, id, turn, call, journal.Confirmed)
						l.wantRequests(t, call, 1)
					}
					if n := len(l.sim.Results(id)); n != 3 {
						t.Errorf("the session has %d results, want 3", n)
					}
					if status := l.sim.Status(id); status == "idle" {
						t.Error("the session went on although nobody else answered the actions that are not ours")
					}
				}
			})
		})
	}
}

func TestSessionsOfAnAgentAreFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, func(c *session.Config) { c.Agents = []string{"agent_1"} })
		var ours []string
		for range 120 { // more than a page
			ours = append(ours, l.sim.CreateSession(agentsim.SessionSpec{AgentID: "agent_1"}))
		}
		failed := l.sim.CreateSession(agentsim.SessionSpec{AgentID: "agent_1"})
		l.sim.Fail(failed)
		other := l.sim.CreateSession(agentsim.SessionSpec{AgentID: "agent_2"})
		pass(30 * time.Second)
		for _, id := range ours {
			if info, ok := l.manager.Session(id); !ok || info.Source != session.SourceDiscovery {
				t.Fatalf("session %s is not followed: %+v", id, info)
			}
		}
		for _, id := range []string{failed, other} {
			if _, ok := l.manager.Session(id); ok {
				t.Errorf("session %s is followed", id)
			}
		}
	})
}

func TestSessionThatIsLeftStaysLeftAlsoAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), slowly, func(c *session.Config) { c.Agents = []string{"agent_1"} })
		id := l.sim.CreateSession(agentsim.SessionSpec{AgentID: "agent_1"})
		pass(20 * time.Second)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_pay", `{}`).WithID("c1")}, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c2")})
		pass(time.Second)
		if err := l.manager.Unfollow(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantRequests(t, "c2", 0)
		l.stop(t, time.Second)
		l.start(t)
		pass(time.Minute)
		if _, ok := l.manager.Session(id); ok {
			t.Error("discovery follows a session that was told to be left")
		}
		if err := l.manager.Follow(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		l.wantState(t, id, turn, "c2", journal.Confirmed)
	})
}

func TestFailedSessionIsLeftAndNotLookedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), slowly, nil)
		id := l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_look", `{}`).WithID("c1")})
		pass(time.Second)
		l.sim.Fail(id)
		pass(time.Minute)
		l.wantState(t, id, turn, "c1", journal.Abandoned)
		if _, ok := l.manager.Session(id); ok {
			t.Error("the failed session is still followed")
		}
		l.stop(t, time.Second)
		before := l.sim.Count(agentsim.GetSession)
		l.start(t)
		pass(time.Minute)
		if n := l.sim.Count(agentsim.GetSession); n != before {
			t.Errorf("the failed session was read %d more times", n-before)
		}
	})
}

func TestUnsettledCallsAreFinishedThoughTheSessionIsNoLongerNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id := l.sim.CreateSession(agentsim.SessionSpec{})
		l.stop(t, time.Second)
		l.config.Sessions = []string{id}
		l.start(t)
		pass(time.Second)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.PostEvents, Status: 503, For: time.Minute})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")}, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c2")})
		pass(time.Second)
		l.wantState(t, id, turn, "c1", journal.Answered)
		l.stop(t, time.Second)
		l.config.Sessions = nil
		l.start(t)
		pass(5 * time.Minute)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
		l.wantRequests(t, "c2", 0)
		if _, ok := l.manager.Session(id); ok {
			t.Error("the session is still followed after its last call was settled")
		}
	})
}
