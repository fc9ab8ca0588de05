package forward

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sony/gobreaker/v2"

	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// What a circuit breaker is told of a request, besides nil.
var (
	// errFailing: one of the failures that open the circuit.
	errFailing = errors.New("the service fails")
	// errNothingLearned: the request tells nothing about its service, because it
	// was not sent or its call was stopped.
	errNothingLearned = errors.New("nothing was learned")
)

// finding is what an attempt, whose outcome is of a kind, tells about its service.
func (d *delivery) finding(ctx context.Context, a *attempt, kind journal.Kind) error {
	switch {
	case a.fault == faultNone:
	case a.fault == faultNoSecret, errors.Is(ctx.Err(), context.Canceled), d.wasHurried(a):
		return errNothingLearned
	}
	switch kind {
	case journal.Unavailable, journal.UpstreamError, journal.Timeout, journal.UnknownOutcome:
		return errFailing
	case journal.InvalidArguments, journal.NotFound, journal.Denied, journal.Conflict, journal.RateLimited,
		journal.Rejected, journal.BadReply, journal.TooLarge, journal.UnknownFunction, journal.Internal:
	}
	return nil
}

// wasHurried reports whether an attempt timed out that had less than half of the
// usual time, because its call had waited so long: under a rush of calls a service
// that works would be taken for one that fails.
func (d *delivery) wasHurried(a *attempt) bool {
	timedOut := a.fault == faultTimeout || a.fault == faultConnectTimeout
	return timedOut && a.took < d.route.AttemptTimeout/2
}

// probePatience is when to come back while a probe is under way.
const probePatience = 5 * time.Second

// breaker is the circuit breaker of a gate. A closed circuit lets requests
// through; so many failures in a row open it; after open_for one request at a time
// is let through as a probe, whose success closes it.
type breaker struct {
	gate    *gate
	limits  router.Breaker
	circuit *gobreaker.TwoStepCircuitBreaker[struct{}]
	// state is the last that the library told of. It asks no clock: an open circuit
	// is half-open only when somebody asks the library.
	state gobreaker.State
	// until is when an open circuit lets a probe through.
	until time.Time
}

func newBreaker(limits router.Breaker, g *gate) *breaker {
	b := &breaker{gate: g, limits: limits}
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		// The library opens after the time, not at it.
		Timeout:       limits.OpenFor - 1,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return int64(c.ConsecutiveFailures) >= int64(b.limits.Failures) },
		IsExcluded:    func(err error) bool { return errors.Is(err, errNothingLearned) },
		OnStateChange: func(_ string, _, to gobreaker.State) { b.changed(to) },
	})
	return b
}

// with is the breaker under other numbers, nil for none. An open circuit stays
// open, for the new time.
func (b *breaker) with(limits router.Breaker, g *gate) *breaker {
	switch {
	case limits.Failures <= 0:
		return nil
	case b == nil:
		return newBreaker(limits, g)
	case b.limits.OpenFor == limits.OpenFor:
		b.limits = limits
		return b
	}
	made := newBreaker(limits, g)
	if !b.closed() {
		made.limits.Failures = 1
		made.allow()(errFailing)
		made.limits = limits
	}
	return made
}

// allow returns what is to be told of a request, nil when none may go.
func (b *breaker) allow() func(error) {
	report, err := b.circuit.Allow()
	if err != nil {
		return nil
	}
	return report
}

func (b *breaker) closed() bool { return b.state == gobreaker.StateClosed }

// refuses reports whether allow would return nil.
func (b *breaker) refuses() bool {
	if b.closed() {
		return false
	}
	if b.circuit.State() == gobreaker.StateOpen {
		return true
	}
	c := b.circuit.Counts()
	return c.Requests > c.TotalExclusions
}

// refusal is what a call is told that the breaker does not let through.
func (b *breaker) refusal() *turnError {
	wait := time.Until(b.until)
	if wait <= 0 {
		wait = min(probePatience, b.limits.OpenFor)
	}
	return &turnError{cause: causeCircuitOpen, comeBack: wait}
}

// changed is called by the library within one of the methods above.
func (b *breaker) changed(to gobreaker.State) {
	b.state = to
	switch to {
	case gobreaker.StateOpen:
		b.until = time.Now().Add(b.limits.OpenFor)
	case gobreaker.StateHalfOpen:
		return
	case gobreaker.StateClosed:
	}
	l := b.gate.limits
	l.changes = append(l.changes, circuitChange{b.gate.function, b.gate.upstream, to == gobreaker.StateOpen, b.limits})
}

// circuitChange is a line for the log.
type circuitChange struct {
	function, upstream string
	open               bool
	limits             router.Breaker
}

func (c circuitChange) log(to *slog.Logger) {
	if c.upstream != "" {
		to = to.With("upstream", c.upstream)
	} else {
		to = to.With("function", c.function)
	}
	if c.open {
		to.Warn("circuit opened", "failures", c.limits.Failures, "open_for_ms", c.limits.OpenFor.Milliseconds())
		return
	}
	to.Info("circuit closed")
}
