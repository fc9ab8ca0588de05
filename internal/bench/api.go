package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"functionbridge/internal/agentsim"
)

// address is the first line that the API's process prints.
type address struct {
	API      string   `json:"api"`
	Upstream string   `json:"upstream"`
	Sessions []string `json:"sessions"`
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

// api is the process that both clients talk to: the simulated Agents API, the upstream, and the agents' load.
type api struct {
	sim      *agentsim.Sim
	sessions []string
	texts    int
	stop     chan struct{}
	load     sync.WaitGroup
	began    time.Time
	clocks   map[string]*clock

	played, upstream, wrong atomic.Int64
}

// serveAPI serves until in ends, and takes commands from it, a word a line: start, begin, end, stop. Each is answered
// by one line of JSON.
func serveAPI(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet(partAPI, flag.ContinueOnError)
	sessions := flags.Int("sessions", 1, "")
	texts := flags.Int("texts", 0, "")
	if err := flags.Parse(args); err != nil {
		return usageError{err}
	}
	a := newAPI(*sessions, *texts)
	defer a.sim.Close()
	listening := address{Sessions: a.sessions}
	var err error
	for _, server := range []struct {
		handler http.Handler
		url     *string
	}{{http.HandlerFunc(a.serveSim), &listening.API}, {http.HandlerFunc(a.serveUpstream), &listening.Upstream}} {
		var stop func()
		if *server.url, stop, err = serve(ctx, server.handler); err != nil {
			return err
		}
		defer stop()
	}
	return obey(ctx, in, out, listening, map[string]func(context.Context) (any, error){
		"start": a.start, "begin": a.begin, "end": a.end, "stop": a.finish,
	})
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

func newAPI(sessions, texts int) *api {
	a := &api{sim: agentsim.New(agentsim.Bench()), texts: texts, stop: make(chan struct{}), clocks: map[string]*clock{}}
	for range sessions {
		id := a.sim.CreateSession(agentsim.SessionSpec{AgentID: "agent_bench"})
		a.sessions = append(a.sessions, id)
		a.clocks["/v1/agents/sessions/"+id+"/events"] = &clock{}
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

// serveSim hands requests to the simulated API and reads the clock at each result. The arrival of a result makes the
// session's next call pending, so the time between two arrivals is the latency of a call, with the little that the
// simulated API itself takes to go on.
func (a *api) serveSim(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		if c := a.clocks[r.URL.Path]; c != nil {
			c.arrive(time.Now())
		}
	}
	a.sim.ServeHTTP(w, r)
}

// clock notes the times between the results of one session.
type clock struct {
	mu        sync.Mutex
	measuring bool
	last      time.Time
	took      []time.Duration
}

func (c *clock) arrive(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.measuring && !c.last.IsZero() {
		c.took = append(c.took, now.Sub(c.last))
	}
	c.last = now
}

// set begins or ends a measurement and hands over what was noted.
func (c *clock) set(measuring bool) []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.took
	c.took, c.measuring = nil, measuring
	return took
}

// start waits until every session is followed and lets the agents play.
func (a *api) start(ctx context.Context) (any, error) {
	soon, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, id := range a.sessions {
		if err := a.sim.WaitStreams(soon, id, 1); err != nil {
			return nil, fmt.Errorf("session %s is not followed: %w", id, err)
		}
	}
	for _, id := range a.sessions {
		a.load.Go(func() { a.play(ctx, id) })
	}
	return struct{}{}, nil
}

// play keeps two turns in the session's queue, so that the next call never waits for this loop.
func (a *api) play(ctx context.Context, id string) {
	next := func() string {
		a.played.Add(stepsPerTurn)
		return a.sim.Play(id, turn(a.texts)...)
	}
	current, queued := next(), next()
	for {
		if _, err := a.sim.WaitTurn(ctx, id, current); err != nil {
			return // the end of the run counts what is missing
		}
		select {
		case <-a.stop:
			return
		default:
			current, queued = queued, next()
		}
	}
}

func (a *api) begin(context.Context) (any, error) {
	for _, c := range a.clocks {
		c.set(true)
	}
	a.began = time.Now()
	return struct{}{}, nil
}

func (a *api) end(context.Context) (any, error) {
	var took []time.Duration
	for _, c := range a.clocks {
		took = append(took, c.set(false)...)
	}
	elapsed := time.Since(a.began)
	slices.Sort(took)
	return measured{Calls: int64(len(took)), Elapsed: elapsed, P50: percentile(took, 50), P99: percentile(took, 99)}, nil
}

// finish ends the load, waits for what is still pending, and counts.
func (a *api) finish(ctx context.Context) (any, error) {
	close(a.stop)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, id := range a.sessions {
		if err := a.sim.WaitIdle(ctx, id); err != nil {
			return nil, fmt.Errorf("session %s still waits for %s: %w", id, strings.Join(a.sim.Pending(id), ", "), err)
		}
	}
	a.load.Wait()
	for _, r := range a.sim.Results("") { // those that it still remembers
		if text, ok := r.Text(); !ok || text != reply || !r.Success || len(r.Posts) != 1 {
			a.wrong.Add(1)
		}
	}
	return totals{
		Played: a.played.Load(), Results: a.sim.ResultCount(), Posts: a.sim.Count(agentsim.PostEvents),
		Upstream: a.upstream.Load(), Wrong: a.wrong.Load(),
	}, nil
}

// obey prints hello and then one line of JSON for each line of in, until in ends or a command fails.
func obey(ctx context.Context, in io.Reader, out io.Writer, hello any, commands map[string]func(context.Context) (any, error)) error {
	encode := json.NewEncoder(out)
	if err := encode.Encode(hello); err != nil {
		return fmt.Errorf("say hello: %w", err)
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		do := commands[lines.Text()]
		if do == nil {
			return usageError{fmt.Errorf("unknown command %q", lines.Text())}
		}
		answer, err := do(ctx)
		if err != nil {
			return err
		}
		if err := encode.Encode(answer); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	return lines.Err()
}
