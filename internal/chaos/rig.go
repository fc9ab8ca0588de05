package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"functionbridge/internal/agentsim"
)

// rig is one attack: its processes, what it did to them, and what it saw.
type rig struct {
	opts options
	plan plan
	dir  string // absolute
	out  io.Writer

	binary   string
	env      []string // of the bridge
	sim      *simulator
	service  *process
	sessions []string

	began    time.Time
	progress atomic.Int64 // of the plan's time
	issued   atomic.Int64 // calls that the agents were told to make

	lives   []life
	strikes int
	found   evidence
}

// life is one process of the bridge, as the harness saw it.
type life struct {
	log     string
	started time.Time
	end     ending
	ended   time.Time // when it was certainly dead
	frozen  time.Time // when it was first frozen; zero: never
	// inFlight is how many side effects the service was at work on for it when it was killed.
	inFlight int
}

// play attacks until the plan is done and every call is answered, or nothing comes any more, and gathers what was seen.
func (r *rig) play(ctx context.Context) error {
	r.began = time.Now()
	defer r.clear()
	if err := r.build(ctx); err != nil {
		return err
	}
	bridge, err := r.assail(ctx)
	defer bridge.clear()
	if err != nil {
		return err
	}
	if err := bridge.stop(drainTimeout + grace); err != nil {
		return err
	}
	return r.gather(ctx)
}

// assail attacks under load, and returns the last process of the bridge when nothing more is to come.
func (r *rig) assail(ctx context.Context) (bridge *process, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	var loading sync.WaitGroup
	defer loading.Wait()
	defer fail(nil)
	loading.Go(func() {
		if err := r.load(ctx); err != nil {
			fail(err)
		}
	})
	if bridge, err = r.attack(ctx); err == nil {
		err = r.outlast(ctx, bridge)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return bridge, err
}

// build starts all but the bridge.
func (r *rig) build(ctx context.Context) (err error) {
	if r.binary, err = bridgeBinary(ctx, r.opts.bridge, r.dir); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the own program: %w", err)
	}
	if r.sim, err = startSimulator(filepath.Join(r.dir, "simulator.log"), r.binary, r.opts.mode); err != nil {
		return err
	}
	if r.service, err = start(filepath.Join(r.dir, "upstream.log"), true, nil, self, partUpstream); err != nil {
		return err
	}
	var upstream string
	if err := r.service.ask("", &upstream); err != nil {
		return err
	}
	for range r.opts.sessions {
		id, err := r.sim.create(ctx)
		if err != nil {
			return err
		}
		r.sessions = append(r.sessions, id)
	}
	routes := filepath.Join(r.dir, "routes.yaml")
	if err := os.WriteFile(routes, []byte(routeTable(upstream)), 0o600); err != nil {
		return fmt.Errorf("write the route table: %w", err)
	}
	r.env = r.settings(routes)
	return nil
}

const (
	// drainTimeout is longer than a call takes. A post that the API does not answer may outlast it.
	drainTimeout = 20 * time.Second
	// grace is how much later the bridge may have ended.
	grace = 15 * time.Second
)

// settings leave nothing but the attack to make a call fail.
func (r *rig) settings(routes string) []string {
	return []string{
		"OPENAI_BASE_URL=" + r.sim.url + "/v1", "OPENAI_API_KEY=chaos", "BRIDGE_SESSIONS=" + strings.Join(r.sessions, ","),
		"BRIDGE_ROUTES=" + routes, "BRIDGE_DATABASE_URL=sqlite:" + filepath.Join(r.dir, "bridge.db"),
		"BRIDGE_ADDR=127.0.0.1:0", "BRIDGE_ADMIN_ADDR=off", "BRIDGE_LOG_LEVEL=debug",
		"BRIDGE_DRAIN_TIMEOUT=" + drainTimeout.String(),
		// Faults that only time heals are to heal within the run.
		"BRIDGE_RESYNC_INTERVAL=3s", "BRIDGE_STREAM_IDLE_TIMEOUT=20s", "BRIDGE_API_RATE=200",
	}
}

// clear ends what is left of the processes.
func (r *rig) clear() {
	r.sim.close()
	r.service.clear()
}

func (r *rig) say(format string, args ...any) { _, _ = fmt.Fprintf(r.out, format+"\n", args...) }

// attack plays the plan, and then leaves a bridge running.
func (r *rig) attack(ctx context.Context) (*process, error) {
	for i, c := range r.plan.cycles {
		bridge, err := r.start()
		if err != nil {
			return nil, err
		}
		if err := r.cycle(ctx, c, bridge); err != nil {
			return bridge, err
		}
		if err := r.account(); err != nil {
			return bridge, err
		}
		if (i+1)%20 == 0 {
			r.say("%s: %d of %d processes, %d calls made", time.Since(r.began).Round(time.Second), i+1, len(r.plan.cycles), r.issued.Load())
		}
	}
	if err := r.sim.pardon(ctx); err != nil {
		return nil, err
	}
	r.progress.Store(int64(r.plan.lasts()))
	return r.start()
}

func (r *rig) start() (*process, error) {
	log := filepath.Join(r.dir, fmt.Sprintf("bridge-%03d.log", len(r.lives)))
	bridge, err := start(log, false, r.env, r.binary, "serve")
	if err != nil {
		return nil, err
	}
	r.lives = append(r.lives, life{log: log, started: bridge.started})
	return bridge, nil
}

// deed is something that is done to the bridge or the API at a time.
type deed struct {
	at time.Duration
	do func() error
}

// cycle lets one process of the bridge live as planned.
func (r *rig) cycle(ctx context.Context, c cycle, bridge *process) error {
	now := &r.lives[len(r.lives)-1]
	var deeds []deed
	for _, s := range c.faults {
		deeds = append(deeds, deed{s.at, func() error { return r.strike(ctx, s) }})
	}
	if c.freeze.lasts > 0 {
		deeds = append(deeds,
			deed{c.freeze.at, func() error { now.frozen = time.Now(); return bridge.signal(syscall.SIGSTOP) }},
			deed{c.freeze.at + c.freeze.lasts, func() error { return bridge.signal(syscall.SIGCONT) }})
	}
	deeds = slices.DeleteFunc(deeds, func(d deed) bool { return d.at > c.lasts })
	slices.SortStableFunc(deeds, func(a, b deed) int { return int(a.at - b.at) })
	deeds = append(deeds, deed{c.lasts, func() (err error) { now.end, err = end(ctx, c, bridge); return err }})
	before := r.progress.Load()
	for _, d := range deeds {
		if err := r.await(ctx, bridge, bridge.started.Add(d.at)); err != nil {
			return err
		}
		r.progress.Store(before + int64(d.at))
		if err := d.do(); err != nil {
			return err
		}
	}
	return nil
}

// await passes the time until then. It is an error when the bridge ends meanwhile: nothing asked it to.
func (r *rig) await(ctx context.Context, bridge *process, then time.Time) error {
	timer := time.NewTimer(time.Until(then))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-bridge.ended:
		return bridge.blame("run", fmt.Errorf("it ended by itself: %w", causeOf(bridge.err)))
	case <-timer.C:
		return nil
	}
}

func (r *rig) strike(ctx context.Context, s strike) error {
	if s.session >= 0 {
		s.fault.SessionID = r.sessions[s.session]
	}
	r.strikes++
	return r.sim.strike(ctx, s.fault)
}

// end ends the bridge as planned, and says how it ended: one that had nothing to finish is not there to be killed.
func end(ctx context.Context, c cycle, bridge *process) (ending, error) {
	switch c.end {
	case stop:
		return stop, bridge.stop(drainTimeout + grace)
	case stopThenKill:
		if err := bridge.signal(syscall.SIGTERM); err != nil {
			return stop, err
		}
		timer := time.NewTimer(c.drain)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return stop, context.Cause(ctx)
		case <-timer.C:
		case <-bridge.ended:
			return stop, bridge.failure()
		}
	case kill:
	}
	return kill, bridge.kill()
}

// account notes the end of the bridge's process, and asks the service what was cut off by it.
func (r *rig) account() error {
	l := &r.lives[len(r.lives)-1]
	l.ended = time.Now()
	if l.end == stop {
		return r.service.ask("stopped", &struct{}{})
	}
	var cut severed
	err := r.service.ask("killed", &cut)
	l.inFlight = cut.InFlight
	return err
}

const (
	// look is how often the load looks at what came of it.
	look = 50 * time.Millisecond
	// ahead is how many turns a session may have before it, so that the next one never waits for a look.
	ahead = 2
	// patience is how long not a single result may come, at the end, before the rest counts as unanswered. The bridge
	// gives a post that is not answered two minutes.
	patience = 150 * time.Second
)

// load lets the agents make their calls, in step with the attack.
func (r *rig) load(ctx context.Context) error {
	l := newLoad(r.opts)
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for next := 0; l.left > 0; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, err := r.sim.counts(ctx)
		if err != nil {
			return err
		}
		for passed := 0; passed < len(r.sessions) && l.left > 0 && l.made < r.due(); next++ {
			session := r.sessions[next%len(r.sessions)]
			if now.open[session] >= ahead {
				passed++
				continue
			}
			message, calls := l.turn()
			if err := r.sim.say(ctx, session, message); err != nil {
				return err
			}
			now.open[session]++
			r.issued.Add(int64(calls))
		}
	}
	return nil
}

// due is how many calls should have been made by now.
func (r *rig) due() int {
	share := float64(r.progress.Load()+int64(look)) / float64(max(r.plan.lasts(), 1))
	return int(min(share, 1) * float64(r.opts.calls))
}

// outlast waits until every call is answered, or nothing comes any more.
func (r *rig) outlast(ctx context.Context, bridge *process) error {
	last, since := -1, time.Now()
	for {
		now, err := r.sim.counts(ctx)
		if err != nil {
			return err
		}
		if now.results != last {
			last, since = now.results, time.Now()
		}
		if now.results == r.opts.calls || time.Since(since) > patience {
			return nil
		}
		if err := r.await(ctx, bridge, time.Now().Add(look)); err != nil {
			return err
		}
	}
}

// gather asks simulator and service what they saw.
func (r *rig) gather(ctx context.Context) error {
	r.found = evidence{issued: r.opts.calls, lives: r.lives}
	for _, id := range r.sessions {
		calls, err := r.sim.calls(ctx, id)
		if err != nil {
			return err
		}
		r.found.calls = append(r.found.calls, calls...)
	}
	return r.service.ask("report", &r.found.upstream)
}

// evidence is what the counting goes by.
type evidence struct {
	issued   int // calls that the agents were told to make
	calls    []agentsim.MadeCall
	upstream record
	lives    []life
}
