package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"functionbridge/internal/journal"
	"functionbridge/internal/journal/sqlite"
)

// rig is what all runs share.
type rig struct {
	opts   options
	dir    string // absolute
	self   string // this program
	bridge string
}

// client is one of the two that are compared.
type client int

const (
	bareClient client = iota
	bridgeClient
)

func (c client) String() string {
	if c == bareClient {
		return "bare"
	}
	return "bridge"
}

// sample is what one run of one client came to.
type sample struct {
	callsPerSecond float64
	cpu            time.Duration // a call, of the client's process
	p50, p99       time.Duration
}

// pair is one round: both clients under the same load, one right after the other.
type pair [2]sample // by client

// result holds all rounds of a load.
type result struct {
	scenario scenario
	rounds   []pair
}

// playAll plays the rounds, each with all loads, so that a slow minute of the machine spoils a round of each and not
// all rounds of one.
func (r *rig) playAll(ctx context.Context, out io.Writer) ([]result, error) {
	results := make([]result, len(r.opts.scenarios))
	for i, s := range r.opts.scenarios {
		results[i].scenario = s
	}
	for round := range r.opts.rounds {
		for i, s := range r.opts.scenarios {
			var p pair
			for _, c := range []client{bareClient, bridgeClient} {
				var err error
				if p[c], err = r.play(ctx, s, c, round); err != nil {
					return nil, fmt.Errorf("round %d, load %s, %s: %w", round+1, s.name, c, err)
				}
				if _, err := fmt.Fprintf(out, "round %d  %-6s  %-6s  %s\n", round+1, s.name, c, p[c]); err != nil {
					return nil, fmt.Errorf("print: %w", err)
				}
			}
			results[i].rounds = append(results[i].rounds, p)
		}
	}
	return results, nil
}

// play runs one client under one load in fresh processes, measures it and checks that every call went as it must.
func (r *rig) play(ctx context.Context, s scenario, c client, round int) (_ sample, err error) {
	dir := filepath.Join(r.dir, fmt.Sprintf("%d-%s-%s", round+1, s.name, c))
	if err := os.Mkdir(dir, 0o750); err != nil {
		return sample{}, fmt.Errorf("make a place for the run: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx) // ends the children of a run that fails
	defer cancel()
	api, err := startProcess(ctx, filepath.Join(dir, "api.log"), nil, r.self, partAPI,
		fmt.Sprintf("-sessions=%d", r.opts.sessions), fmt.Sprintf("-texts=%d", s.texts))
	if err != nil {
		return sample{}, err
	}
	defer r.clear(cancel, api, &err)
	var at address
	if err := api.ask("", &at); err != nil {
		return sample{}, err
	}
	subject, err := r.startClient(ctx, dir, s, c, at)
	if err != nil {
		return sample{}, err
	}
	defer r.clear(cancel, subject, &err)
	got, calls, err := r.measure(ctx, api, subject)
	if err != nil {
		return sample{}, err
	}
	if err := subject.end(map[client]os.Signal{bridgeClient: syscall.SIGTERM}[c]); err != nil {
		return sample{}, err
	}
	if c == bridgeClient {
		err = checkJournal(ctx, journalPath(dir), calls)
	}
	return got, err
}

// clear ends a child that a run left behind; after a failure its own error says nothing new.
func (r *rig) clear(cancel func(), p *process, err *error) {
	if *err == nil {
		*err = p.end(nil)
		return
	}
	cancel()
	_ = p.end(nil)
}

func journalPath(dir string) string { return filepath.Join(dir, "bridge.db") }

// startClient starts one of the two, with all settings that matter said and the others as they come.
func (r *rig) startClient(ctx context.Context, dir string, s scenario, c client, at address) (*process, error) {
	upstream := at.Upstream + "/" + function
	sessions := strings.Join(at.Sessions, ",")
	if c == bareClient {
		return startProcess(ctx, filepath.Join(dir, "bare.log"), nil, r.self, partBare,
			"-api="+at.API+"/v1", "-upstream="+upstream, "-sessions="+sessions)
	}
	routes := filepath.Join(dir, "routes.yaml")
	if err := os.WriteFile(routes, []byte(routeTable(upstream, s.idempotent)), 0o600); err != nil {
		return nil, fmt.Errorf("write the route table: %w", err)
	}
	return startProcess(ctx, filepath.Join(dir, "bridge.log"), []string{
		"OPENAI_BASE_URL=" + at.API + "/v1", "OPENAI_API_KEY=" + apiKey, "BRIDGE_SESSIONS=" + sessions, "BRIDGE_ROUTES=" + routes,
		"BRIDGE_DATABASE_URL=sqlite:" + journalPath(dir), "BRIDGE_ADDR=127.0.0.1:0", "BRIDGE_ADMIN_ADDR=127.0.0.1:0",
	}, r.bridge, "serve")
}

// measure plays the load, takes the numbers behind the warm-up, and gives the number of calls of the whole run.
func (r *rig) measure(ctx context.Context, api, subject *process) (sample, int64, error) {
	var none struct{}
	if err := api.ask("start", &none); err != nil {
		return sample{}, 0, subject.blame("start", err)
	}
	if err := wait(ctx, r.opts.warmUp); err != nil {
		return sample{}, 0, err
	}
	if err := api.ask("begin", &none); err != nil {
		return sample{}, 0, err
	}
	before, err := subject.cpuTime()
	if err != nil {
		return sample{}, 0, err
	}
	if err := wait(ctx, r.opts.duration); err != nil {
		return sample{}, 0, err
	}
	after, err := subject.cpuTime()
	if err != nil {
		return sample{}, 0, err
	}
	var m measured
	if err := api.ask("end", &m); err != nil {
		return sample{}, 0, err
	}
	var t totals
	if err := api.ask("stop", &t); err != nil {
		return sample{}, 0, subject.blame("stop", err)
	}
	if m.Calls == 0 {
		return sample{}, 0, subject.blame("measure", errors.New("not one call was answered"))
	}
	return sample{
		callsPerSecond: float64(m.Calls) / m.Elapsed.Seconds(),
		cpu:            (after - before) / time.Duration(m.Calls),
		p50:            m.P50, p99: m.P99,
	}, t.Played, t.check()
}

// check demands one request to the upstream and one result for each call.
func (t totals) check() error {
	if t.Results != t.Played || t.Posts != t.Played || t.Upstream != t.Played || t.Wrong != 0 {
		return fmt.Errorf("%d calls were made, but %d answered, with %d posts and %d requests to the upstream, %d of them wrong",
			t.Played, t.Results, t.Posts, t.Upstream, t.Wrong)
	}
	return nil
}

// checkJournal demands that the journal on disk holds every call as confirmed.
func checkJournal(ctx context.Context, path string, calls int64) (err error) {
	store, err := sqlite.Open(ctx, path, sqlite.Options{Owner: "bench", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("look into the journal: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if counts := store.Counts(); counts[journal.Confirmed] != calls {
		return fmt.Errorf("%d calls were made, but the journal holds %v", calls, counts)
	}
	return nil
}

// wait passes the time while the load plays.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
