package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"functionbridge/internal/journal"
	"functionbridge/internal/journal/sqlite"
)

// rig is what all runs share.
type rig struct {
	options

	place  string // absolute, where the runs put their files
	self   string // this program
	binary string // the bridge
	http   *http.Client
	out    io.Writer // hears of each run as it ends
}

func (r *rig) say(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format+"\n", args...) }

// stage is one run: an API of its own, and the client that is measured.
type stage struct {
	*rig

	dir     string
	api     *process
	at      address
	running []*process
}

// play builds a stage, has one run played on it and ends all processes. Ending badly is an error too.
func (r *rig) play(ctx context.Context, name string, settings apiSettings, run func(ctx context.Context, s *stage) error) (err error) {
	s := &stage{rig: r, dir: filepath.Join(r.place, name)}
	if err := os.Mkdir(s.dir, 0o750); err != nil {
		return fmt.Errorf("make a place for the run: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx) // ends the children of a run that fails
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
			cancel()
		}
		for _, p := range slices.Backward(s.running) {
			if ended := p.end(); err == nil { // after a failure its own error says nothing new
				err = ended
			}
		}
	}()
	if s.api, err = s.spawn(ctx, "api.log", nil, r.self, settings.args()...); err != nil {
		return err
	}
	if err := s.api.ask("", &s.at); err != nil {
		return err
	}
	return run(ctx, s)
}

// spawn starts a process that ends with the stage.
func (s *stage) spawn(ctx context.Context, log string, env []string, program string, args ...string) (*process, error) {
	p, err := startProcess(ctx, filepath.Join(s.dir, log), env, program, args...)
	if err == nil {
		s.running = append(s.running, p)
	}
	return p, err
}

func (s *stage) upstream() string { return s.at.Upstream + "/" + function }

// bridge is a running bridge.
type bridge struct {
	*process

	public, metrics string // URLs
	started         time.Time
}

// startBridge starts the bridge on the stage's API, as it comes but for the settings that say what to follow. The journal
// may be there already.
func (s *stage) startBridge(ctx context.Context, idempotent bool, settings ...string) (*bridge, error) {
	routes := filepath.Join(s.dir, "routes.yaml")
	if err := os.WriteFile(routes, []byte(routeTable(s.upstream(), idempotent)), 0o600); err != nil {
		return nil, fmt.Errorf("write the route table: %w", err)
	}
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	env := append([]string{
		"OPENAI_BASE_URL=" + s.at.API + "/v1", "OPENAI_API_KEY=" + apiKey, "BRIDGE_ROUTES=" + routes,
		"BRIDGE_DATABASE_URL=sqlite:" + s.journal(), "BRIDGE_ADDR=" + ports[0], "BRIDGE_ADMIN_ADDR=off", "BRIDGE_METRICS_ADDR=" + ports[1],
	}, settings...)
	b := &bridge{public: "http://" + ports[0], metrics: "http://" + ports[1] + "/metrics", started: time.Now()}
	if b.process, err = s.spawn(ctx, "bridge.log", env, s.binary, "serve"); err != nil {
		return nil, err
	}
	b.signal = syscall.SIGTERM
	return b, nil
}

func (s *stage) journal() string { return filepath.Join(s.dir, "bridge.db") }

// followAll is the setting that follows the sessions of the API by name.
func (s *stage) followAll() string { return "BRIDGE_SESSIONS=" + strings.Join(s.at.Sessions, ",") }

// askForAll makes a journal in which all sessions of the API were asked for, as through the admin API: thousands of names
// do not fit into a variable, and discovery finds them at the pace of BRIDGE_API_RATE.
func (s *stage) askForAll(ctx context.Context) (err error) {
	store, err := sqlite.Open(ctx, s.journal(), sqlite.Options{Owner: "earlier"})
	if err != nil {
		return fmt.Errorf("ask for sessions: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(100) // they share their writes
	for _, id := range s.at.Sessions {
		group.Go(func() error {
			return store.SaveFollow(ctx, journal.Follow{SessionID: id, Followed: true, UpdatedAt: time.Now()})
		})
	}
	return group.Wait()
}

// freePorts finds addresses on which nobody listens at the moment.
func freePorts(ctx context.Context, n int) (addresses []string, err error) {
	for range n {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = listener.Close() }() // only when all are found, so that they differ
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}

// heapInUse and confirmedCalls are metrics of the bridge.
const (
	heapInUse      = "go_memstats_heap_inuse_bytes"
	confirmedCalls = `bridge_journal_calls{state="confirmed"}`
)

// metric asks the bridge for the value of one of its metrics.
func (s *stage) metric(ctx context.Context, b *bridge, name string) (int64, error) {
	res, err := s.get(ctx, b.metrics)
	if err != nil {
		return 0, b.blame("read its metrics", err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			number, err := strconv.ParseFloat(value, 64)
			return int64(number), err
		}
	}
	return 0, b.blame("read its metrics", errors.Join(errors.New(name+" is missing"), lines.Err()))
}

func (r *rig) get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	return r.http.Do(req)
}

// finish ends the load, demands that every call went as it must, and gives their number.
func (s *stage) finish(subject *process) (calls int64, err error) {
	var t totals
	if err := s.api.ask("stop", &t); err != nil {
		return 0, subject.blame("stop", err)
	}
	return t.Played, t.check()
}

// confirmedWithin is more than the time after which the bridge reads a session for the proof that it missed.
const confirmedWithin = time.Minute

// checkJournal ends the bridge, when it has seen the last results confirmed, and demands that its journal holds so many
// calls, all confirmed.
func (s *stage) checkJournal(ctx context.Context, b *bridge, calls int64) (err error) {
	for late := time.Now().Add(confirmedWithin); time.Now().Before(late); {
		if n, err := s.metric(ctx, b, confirmedCalls); err != nil || n == calls {
			break // the journal itself is asked below
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	if err := b.end(); err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, s.journal(), sqlite.Options{Owner: "bench", Logger: slog.New(slog.DiscardHandler)})
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
