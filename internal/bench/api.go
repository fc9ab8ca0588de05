package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
)

// address is the first line that the API's process prints.
type address struct {
	API      string        `json:"api"`
	Upstream string        `json:"upstream"`
	Sessions []string      `json:"sessions"`
	Pending  []journal.Key `json:"pending"` // calls that wait from the start
}

// measured is the answer to "end": what happened since "begin".
type measured struct {
	Calls   int64         `json:"calls"`
	Elapsed time.Duration `json:"elapsed_ns"`
	P50     time.Duration `json:"p50_ns"`
	P99     time.Duration `json:"p99_ns"`
}

// totals is the answer to "stop": what happened since the start.
type totals struct {
	Played   int64 `json:"played"`   // calls that the agents made
	Results  int64 `json:"results"`  // calls that were answered
	Posts    int64 `json:"posts"`    // requests with a result
	Upstream int64 `json:"upstream"` // requests to the upstream
	Wrong    int64 `json:"wrong"`    // upstream requests or results that are not as they must be
}

// apiSettings are the flags of the API's process.
type apiSettings struct {
	sessions, active int // active ones play
	texts, atOnce    int
	driven           bool // clients begin the turns
	pending          int  // calls that wait in each session from the start
	keepAlive        time.Duration
}

func (s apiSettings) args() []string {
	return []string{
		partAPI,
		fmt.Sprintf("-sessions=%d", s.sessions), fmt.Sprintf("-active=%d", s.active), fmt.Sprintf("-texts=%d", s.texts),
		fmt.Sprintf("-at-once=%d", max(1, s.atOnce)), fmt.Sprintf("-driven=%t", s.driven), fmt.Sprintf("-pending=%d", s.pending),
		fmt.Sprintf("-keep-alive=%s", s.keepAlive),
	}
}

func parseAPISettings(args []string) (s apiSettings, err error) {
	flags := flag.NewFlagSet(partAPI, flag.ContinueOnError)
	flags.IntVar(&s.sessions, "sessions", 1, "")
	flags.IntVar(&s.active, "active", 1, "")
	flags.IntVar(&s.texts, "texts", 0, "")
	flags.IntVar(&s.atOnce, "at-once", 1, "")
	flags.BoolVar(&s.driven, "driven", false, "")
	flags.IntVar(&s.pending, "pending", 0, "")
	flags.DurationVar(&s.keepAlive, "keep-alive", 0, "")
	if err := flags.Parse(args); err != nil {
		return s, usageError{err}
	}
	return s, nil
}

// api is the process that all clients talk to: the simulated Agents API, the upstream, and the agents' load.
type api struct {
	apiSettings

	sim    *agentsim.Sim
	ids    []string
	stop   chan struct{}
	load   sync.WaitGroup
	limit  int64 // of played; 0 is none
	began  time.Time
	clocks map[string]*clock // by path

	played, upstream, wrong atomic.Int64
}

// serveAPI serves until in ends, and takes commands from it, one a line: see commands. Each is answered by a line of JSON.
func serveAPI(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	s, err := parseAPISettings(args)
	if err != nil {
		return err
	}
	a := newAPI(s)
	defer a.sim.Close()
	at := address{Sessions: a.ids}
	for _, c := range a.sim.Calls("") {
		at.Pending = append(at.Pending, journal.Key{SessionID: c.SessionID, TurnID: c.TurnID, CallID: c.CallID})
	}
	for _, server := range []struct {
		handler http.Handler
		url     *string
	}{{http.HandlerFunc(a.serveSim), &at.API}, {http.HandlerFunc(a.serveUpstream), &at.Upstream}} {
		var stop func()
		if *server.url, stop, err = serve(ctx, server.handler); err != nil {
			return err
		}
		defer stop()
	}
	return obey(ctx, in, out, at, a.commands())
}

// commands are what the process can be asked for; a number after the word is its argument.
func (a *api) commands() map[string]command {
	return map[string]command{
		"follow": a.followed, // returns when every session is followed
		"read":   a.read,     // returns when sessions were read so often, times their number
		"start":  a.start,    // lets the agents play until "stop"
		"play":   a.playSome, // lets them make so many calls more, and returns when these are answered
		"settle": a.settle,   // returns when nothing is pending
		"begin":  a.begin,
		"end":    a.end,
		"stop":   a.finish,
	}
}

// serve serves a handler on a free port of this machine until stop is called.
func serve(ctx context.Context, handler http.Handler) (url string, stop func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("serve: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	return "http://" + listener.Addr().String(), func() { _ = server.Close(); <-done }, nil
}

func newAPI(s apiSettings) *api {
	habits := agentsim.Bench()
	habits.KeepAlive = s.keepAlive
	a := &api{apiSettings: s, sim: agentsim.New(habits), stop: make(chan struct{}), clocks: map[string]*clock{}}
	waiting := slices.Repeat(agentsim.Step{agentsim.Call(function, arguments)}, s.pending)
	for range s.sessions {
		id := a.sim.CreateSession(agentsim.SessionSpec{AgentID: "agent_bench"})
		a.ids = append(a.ids, id)
		a.clocks["/v1/agents/sessions/"+id+"/events"] = newClock(s.atOnce, s.driven)
		if s.pending > 0 {
			a.sim.Play(id, waiting)
			a.played.Add(int64(s.pending))
		}
	}
	return a
}

// serveUpstream is the service behind the route.
func (a *api) serveUpstream(w http.ResponseWriter, r *http.Request) {
	a.upstream.Add(1)
	body, err := io.ReadAll(r.Body)
	if err != nil || string(body) != arguments {
		a.wrong.Add(1)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, reply)
}

// serveSim hands requests to the simulated API and looks at the clock when something is posted to a session.
func (a *api) serveSim(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		if c := a.clocks[r.URL.Path]; c != nil {
			c.arrive(time.Now())
		}
	}
	a.sim.ServeHTTP(w, r)
}

// patienceOfAPI is how long the API's process waits for a client to do what it must.
const patienceOfAPI = 5 * time.Minute

func (a *api) followed(ctx context.Context, _ int) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, patienceOfAPI)
	defer cancel()
	for _, id := range a.ids {
		if err := a.sim.WaitStreams(ctx, id, 1); err != nil {
			return nil, fmt.Errorf("session %s is not followed: %w", id, err)
		}
	}
	return struct{}{}, nil
}

func (a *api) read(ctx context.Context, times int) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, patienceOfAPI)
	defer cancel()
	for a.sim.Count(agentsim.GetSession) < int64(times*len(a.ids)) {
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return nil, fmt.Errorf("sessions are not read: %w", err)
		}
	}
	return struct{}{}, nil
}

func (a *api) start(ctx context.Context, _ int) (any, error) {
	a.limit = 0
	a.begun(ctx)
	return struct{}{}, nil
}

func (a *api) playSome(ctx context.Context, calls int) (any, error) {
	a.limit = a.played.Load() + int64(calls)
	a.begun(ctx)
	return a.settleLoad(ctx, patienceOfAPI+time.Duration(calls)*slowest)
}

// slowest is far more than a call takes under any load.
const slowest = 5 * time.Millisecond

func (a *api) begun(ctx context.Context) {
	for _, id := range a.ids[:min(a.active, len(a.ids))] {
		a.load.Go(func() { a.play(ctx, id) })
	}
}

// play keeps two turns in the session's queue, so that the next call never waits for this loop.
func (a *api) play(ctx context.Context, id string) {
	steps := turn(a.texts, a.atOnce)
	current := a.next(id, steps)
	queued := a.next(id, steps)
	for current != "" {
		if _, err := a.sim.WaitTurn(ctx, id, current); err != nil {
			return // the end of the run counts what is missing
		}
		current, queued = queued, a.next(id, steps)
	}
}

// next queues a turn, unless the load is over: then it is "".
func (a *api) next(id string, steps []agentsim.Step) string {
	select {
	case <-a.stop:
		return ""
	default:
	}
	calls := int64(stepsPerTurn * a.atOnce)
	if now := a.played.Add(calls); a.limit > 0 && now-calls >= a.limit {
		a.played.Add(-calls)
		return ""
	}
	return a.sim.Play(id, steps...)
}

func (a *api) begin(context.Context, int) (any, error) {
	for _, c := range a.clocks {
		c.set(true)
	}
	a.began = time.Now()
	return struct{}{}, nil
}

func (a *api) end(context.Context, int) (any, error) {
	var took []time.Duration
	for _, c := range a.clocks {
		took = append(took, c.set(false)...)
	}
	elapsed := time.Since(a.began)
	slices.Sort(took)
	return measured{Calls: int64(len(took)), Elapsed: elapsed, P50: percentile(took, 50), P99: percentile(took, 99)}, nil
}

func (a *api) settle(ctx context.Context, _ int) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, patienceOfAPI)
	defer cancel()
	return a.settled(ctx)
}

// settleLoad waits for the end of a load that is over, and for what is pending then.
func (a *api) settleLoad(ctx context.Context, patience time.Duration) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	over := make(chan struct{})
	go func() {
		a.load.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-ctx.Done():
	}
	return a.settled(ctx)
}

func (a *api) settled(ctx context.Context) (any, error) {
	for _, id := range a.ids {
		if err := a.sim.WaitIdle(ctx, id); err != nil {
			return nil, fmt.Errorf("session %s still waits for %s: %w", id, strings.Join(a.sim.Pending(id), ", "), err)
		}
	}
	return struct{}{}, nil
}

// finish ends the load, waits for what is still pending, and counts.
func (a *api) finish(ctx context.Context, _ int) (any, error) {
	close(a.stop)
	if _, err := a.settleLoad(ctx, patienceOfAPI); err != nil {
		return nil, err
	}
	for _, r := range a.sim.Results("") { // those that it still remembers
		if text, ok := r.Text(); !ok || text != reply || !r.Success {
			a.wrong.Add(1)
		}
	}
	t := totals{
		Played: a.played.Load(), Results: a.sim.ResultCount(), Posts: a.sim.Count(agentsim.PostEvents),
		Upstream: a.upstream.Load(), Wrong: a.wrong.Load(),
	}
	if a.driven { // a turn is one stream and one message, which is posted like a result
		turns := a.sim.Count(agentsim.OpenStream)
		t.Played, t.Posts = turns*int64(stepsPerTurn*a.atOnce), t.Posts-turns
	}
	return t, nil
}

// check demands one request to the upstream and one result for each call.
func (t totals) check() error {
	if t.Results != t.Played || t.Posts != t.Played || t.Upstream != t.Played || t.Wrong != 0 {
		return fmt.Errorf("%d calls were made, but %d answered, with %d posts and %d requests to the upstream, %d of them wrong",
			t.Played, t.Results, t.Posts, t.Upstream, t.Wrong)
	}
	return nil
}

// command does what a line asks for; its answer is printed as JSON.
type command func(ctx context.Context, number int) (any, error)

// obey prints hello and then one line of JSON for each line of in, until in ends or a command fails.
func obey(ctx context.Context, in io.Reader, out io.Writer, hello any, commands map[string]command) error {
	encode := json.NewEncoder(out)
	if err := encode.Encode(hello); err != nil {
		return fmt.Errorf("say hello: %w", err)
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		word, number, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(number)
		do := commands[word]
		if do == nil || (err != nil && number != "") {
			return usageError{errors.New("unknown command " + strconv.Quote(lines.Text()))}
		}
		answer, err := do(ctx, n)
		if err != nil {
			return err
		}
		if err := encode.Encode(answer); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	return lines.Err()
}
