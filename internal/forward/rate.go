package forward

import (
	"math"
	"time"

	"golang.org/x/time/rate"

	"functionbridge/internal/router"
)

// pace holds requests to a rate; nil lets all of them pass.
type pace struct {
	rate    router.Rate
	limiter *rate.Limiter
}

// with is the pace under another rate. What has been let through counts on.
func (p *pace) with(r router.Rate) *pace {
	switch {
	case r.Events <= 0:
		return nil
	case p == nil:
		p = &pace{limiter: rate.NewLimiter(rate.Limit(r.Events), r.Burst)}
	case p.rate != r:
		p.limiter.SetLimit(rate.Limit(r.Events))
		p.limiter.SetBurst(r.Burst)
	}
	p.rate = r
	return p
}

// rounding is the part of a token that floating point may lose on the way.
const rounding = 1e-6

// tokens is how many requests may go now.
func (p *pace) tokens(now time.Time) int {
	return int(p.limiter.TokensAt(now) + rounding)
}

// take takes a token, which is there.
func (p *pace) take(now time.Time) { p.limiter.ReserveN(now, 1) }

// until is how long it takes until there have been n tokens.
func (p *pace) until(n int, now time.Time) time.Duration {
	missing := float64(n) - p.limiter.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	wait := math.Ceil(missing / p.rate.Events * float64(time.Second))
	return time.Duration(min(wait, float64(math.MaxInt64/2)))
}

// drain observes how fast the calls that wait at a gate get their turn.
type drain struct {
	// every is the mean time from one turn to the next, of which the last ones
	// count most. It is kept from one rush to the next.
	every time.Duration
	last  time.Time
}

// begin is called when the first call waits.
func (d *drain) begin(now time.Time) { d.last = now }

// served is called when one that waits has its turn.
func (d *drain) served(now time.Time) {
	took := now.Sub(d.last)
	if d.last = now; d.every == 0 {
		d.every = took
		return
	}
	const weight = 8
	d.every += (took - d.every) / weight
}

const leastComeBack = time.Second

// estimate is when a call had better come back that finds n waiting: they have
// had their turn then. At most it is the patience of a call, for after that none
// of them waits any more. A turn that is overdue tells that things have become
// slower.
func (d *drain) estimate(n int, now time.Time, patience time.Duration) time.Duration {
	each := max(d.every, now.Sub(d.last))
	most := max(patience, leastComeBack)
	if n > 0 && each > most/time.Duration(n) {
		return most
	}
	return max(each*time.Duration(n), leastComeBack)
}
