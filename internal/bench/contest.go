package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// client is one of those that are compared.
type client int

const (
	bareClient client = iota
	sdkClient
	bridgeClient
	strictClient // the bridge with a route that is not idempotent
)

func contestants() []client { return []client{bareClient, sdkClient, bridgeClient, strictClient} }

func (c client) String() string { return [...]string{"bare", "sdk", "bridge", "strict"}[c] }

func clientNames() []string {
	var names []string
	for _, c := range contestants() {
		names = append(names, c.String())
	}
	return names
}

// title names the client in tables.
func (c client) title() string {
	return [...]string{"bare loop", "SDK helper", "bridge", "bridge, not idempotent"}[c]
}

func (c client) isBridge() bool { return c == bridgeClient || c == strictClient }

// sample is what one run of one client came to.
type sample struct {
	callsPerSecond float64
	cpu            time.Duration // a call, of the client's process
	p50, p99       time.Duration
	holding        holding // when the load had ended
}

func (s sample) String() string {
	return fmt.Sprintf("%7.0f calls/s  %6.1f µs CPU a call  p50 %6.2f ms  p99 %6.2f ms  peak %3.0f MiB  %d files",
		s.callsPerSecond, micros(s.cpu), millis(s.p50), millis(s.p99), mebibytes(s.holding.peak), s.holding.files)
}

// contest plays loads against the clients.
type contest struct {
	options

	loads []load
	// rounds holds the samples of one round after the other, each under all loads, so that a slow minute of the machine
	// spoils a round of each load and not all rounds of one.
	rounds []map[string]map[client]sample
}

func newContest(o options) *contest {
	return &contest{options: o, loads: slices.DeleteFunc(loads(), func(l load) bool { return !o.wants(l.name) })}
}

// round plays every load against every client. Another client is the first in each round.
func (c *contest) round(ctx context.Context, r *rig, n int) error {
	round := map[string]map[client]sample{}
	for _, l := range c.loads {
		round[l.name] = map[client]sample{}
		for i := range c.clients {
			who := c.clients[(i+n)%len(c.clients)]
			s, err := r.contend(ctx, fmt.Sprintf("round-%d-%s-%s", n+1, l.name, who), l, who)
			if err != nil {
				return err
			}
			r.say("round %d  %-8s  %-6s  %s", n+1, l.name, who, s)
			round[l.name][who] = s
		}
	}
	c.rounds = append(c.rounds, round)
	return nil
}

// contend runs one client under one load in fresh processes and checks that every call went as it must.
func (r *rig) contend(ctx context.Context, name string, l load, c client) (got sample, err error) {
	sessions := l.sessions(r.sizes)
	settings := apiSettings{sessions: sessions, active: sessions, texts: l.texts, atOnce: l.atOnce, driven: c == sdkClient}
	err = r.play(ctx, name, settings, func(ctx context.Context, s *stage) error {
		if c.isBridge() {
			b, err := s.startBridge(ctx, c == bridgeClient, s.followAll())
			if err != nil {
				return err
			}
			calls, err := s.measure(ctx, b.process, s.api, &got)
			if err != nil {
				return err
			}
			return s.checkJournal(ctx, b, calls)
		}
		subject, err := s.startOther(ctx, l, c)
		if err != nil {
			return err
		}
		player := s.api
		if c == sdkClient {
			player = subject
		}
		_, err = s.measure(ctx, subject, player, &got)
		return err
	})
	return got, err
}

// startOther starts a client that is not the bridge.
func (s *stage) startOther(ctx context.Context, l load, c client) (*process, error) {
	args := []string{"-api=" + s.at.API + "/v1", "-upstream=" + s.upstream(), "-sessions=" + strings.Join(s.at.Sessions, ",")}
	if c == bareClient {
		return s.spawn(ctx, "bare.log", nil, s.self, append([]string{partBare}, args...)...)
	}
	args = append(args, fmt.Sprintf("-texts=%d", l.texts), fmt.Sprintf("-at-once=%d", l.atOnce))
	p, err := s.spawn(ctx, "sdk.log", nil, s.self, append([]string{partSDK}, args...)...)
	if err != nil {
		return nil, err
	}
	return p, p.tell("") // its hello
}

// measure plays the load, which the player begins, takes the numbers of the subject behind the warm-up, and gives the
// number of calls of the whole run.
func (s *stage) measure(ctx context.Context, subject, player *process, got *sample) (calls int64, err error) {
	if player == s.api { // who begins turns himself follows nothing before
		if err := s.api.tell("follow"); err != nil {
			return 0, subject.blame("follow", err)
		}
	}
	if err := player.tell("start"); err != nil {
		return 0, err
	}
	if err := s.sampleLoad(ctx, subject, got); err != nil {
		return 0, err
	}
	if player != s.api {
		if err := player.tell("stop"); err != nil {
			return 0, err
		}
	}
	if calls, err = s.finish(subject); err != nil {
		return 0, err
	}
	got.holding, err = subject.holding()
	return calls, err
}

// sampleLoad measures the subject under a load that plays.
func (s *stage) sampleLoad(ctx context.Context, subject *process, got *sample) error {
	if err := wait(ctx, s.warmUp); err != nil {
		return err
	}
	if err := s.api.tell("begin"); err != nil {
		return err
	}
	before, err := subject.cpuTime()
	if err != nil {
		return err
	}
	if err := wait(ctx, s.duration); err != nil {
		return err
	}
	after, err := subject.cpuTime()
	if err != nil {
		return err
	}
	var m measured
	if err := s.api.ask("end", &m); err != nil {
		return err
	}
	if m.Calls == 0 {
		return subject.blame("measure", errors.New("not one call was answered"))
	}
	*got = sample{
		callsPerSecond: float64(m.Calls) / m.Elapsed.Seconds(), cpu: (after - before) / time.Duration(m.Calls), p50: m.P50, p99: m.P99,
	}
	return nil
}
