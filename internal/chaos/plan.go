package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"functionbridge/internal/agentsim"
)

// plan is what the seed decides of the attack.
type plan struct{ cycles []cycle }

// cycle is the life of one process of the bridge.
type cycle struct {
	lasts  time.Duration // from its start to its end
	end    ending
	drain  time.Duration // from the stop to the kill, for stopThenKill
	freeze span          // it does nothing meanwhile; 0 long: none
	faults []strike
}

// span begins so long after the start of the bridge.
type span struct{ at, lasts time.Duration }

// ending is how a process of the bridge ends.
type ending int

const (
	kill         ending = iota // SIGKILL
	stop                       // SIGTERM, and it may finish what it does
	stopThenKill               // SIGTERM, and SIGKILL while it finishes
)

// strike is one fault of the API, at a time after the start of the bridge.
type strike struct {
	at      time.Duration
	session int // -1: any
	fault   fault
}

// fault is the JSON that POST /_sim/faults takes.
type fault struct {
	Kind       agentsim.FaultKind `json:"kind"`
	On         string             `json:"on,omitempty"`
	SessionID  string             `json:"session_id,omitempty"`
	Count      int                `json:"count,omitempty"`
	For        string             `json:"for,omitempty"`
	Status     int                `json:"status,omitempty"`
	RetryAfter string             `json:"retry_after,omitempty"`
	Delay      string             `json:"delay,omitempty"`
	KeepKey    bool               `json:"keep_key,omitempty"`
	After      int                `json:"after,omitempty"`
}

// The streams of random numbers that one seed gives.
const (
	randomAttack = iota
	randomLoad
)

func seeded(seed, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, stream)) //nolint:gosec // repeatable, not secret
}

// makePlan decides on one cycle for each kill, and some more that end otherwise.
func makePlan(o options) plan {
	d := dice{seeded(o.seed, randomAttack)}
	var p plan
	for kills := 0; kills < o.kills; {
		c := d.cycle(o)
		p.cycles = append(p.cycles, c)
		if c.end == kill {
			kills++
		}
	}
	return p
}

// lasts is how long the attack takes without starts and drains.
func (p plan) lasts() (d time.Duration) {
	for _, c := range p.cycles {
		d += c.lasts
	}
	return d
}

// dice decides.
type dice struct{ *rand.Rand }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

// of is between so many percent of a duration.
func (d dice) of(whole time.Duration, from, to int) time.Duration {
	return whole*time.Duration(from)/100 + time.Duration(d.Int64N(int64(whole)*int64(to-from)/100+1))
}

func (d dice) cycle(o options) cycle {
	c := cycle{lasts: d.of(o.between, 60, 130)}
	switch n := d.IntN(100); {
	case n < 8: // it has hardly begun
		c.lasts = d.of(o.between, 0, 20)
	case n < 14:
		c.end = stop
	case n < 18:
		c.end, c.drain = stopThenKill, d.of(o.between, 0, 60)
	}
	if d.chance(35) {
		c.freeze = span{at: d.of(c.lasts, 0, 100), lasts: d.of(o.between, 5, 50)}
		if c.end != kill { // a kill may meet a frozen bridge; a stop would not reach it
			c.freeze.lasts = min(c.freeze.lasts, c.lasts-c.freeze.at)
		}
	}
	for range d.IntN(8) {
		s := strike{at: d.of(c.lasts, 0, 100), session: -1, fault: d.fault()}
		if d.chance(50) {
			s.session = d.IntN(o.sessions)
		}
		c.faults = append(c.faults, s)
	}
	return c
}

func (d dice) fault() fault {
	switch n := d.IntN(100); {
	case n < 45:
		return d.faultOfPost()
	case n < 75:
		return d.faultOfStream()
	case n < 85:
		return d.faultOf("open_stream", agentsim.FaultMute, agentsim.FaultHang)
	case n < 95:
		return d.faultOf("get_session", agentsim.FaultLostReply, agentsim.FaultStale)
	case n < 98:
		return d.faultOf("list_turn_items")
	}
	return d.faultOf("get_turn")
}

// faultOfPost strikes the next posts of results, most often by losing their replies.
func (d dice) faultOfPost() fault {
	f := fault{On: "post_events", Count: 1 + d.IntN(5)}
	switch n := d.IntN(100); {
	case n < 45:
		f.Kind = agentsim.FaultLostReply
	case n < 50:
		f.Kind, f.Count = agentsim.FaultHang, 1
	case n < 55:
		f.Kind, f.Count, f.KeepKey = agentsim.FaultForget, 1, d.chance(50)
	case n < 65: // an outage
		f = fault{On: f.On, Kind: agentsim.FaultStatus, Status: 503, For: d.of(time.Second, 30, 300).String()}
	case n < 70:
		f.Kind, f.Status, f.Count = agentsim.FaultStatus, []int{401, 404, 408, 409}[d.IntN(4)], 1
	default:
		f = d.faultOf(f.On)
	}
	return f
}

// faultOf strikes the next requests of a kind in one of the ways that suit every kind, or in one of its own.
func (d dice) faultOf(on string, own ...agentsim.FaultKind) fault {
	f := fault{On: on, Count: 1 + d.IntN(4)}
	if len(own) > 0 && d.chance(40) {
		f.Kind = own[d.IntN(len(own))]
		return f
	}
	switch d.IntN(5) {
	case 0:
		f.Kind, f.Delay = agentsim.FaultDelay, d.of(time.Second, 2, 60).String()
	case 1:
		f.Kind = agentsim.FaultDrop
	case 2:
		f.Kind, f.Count = agentsim.FaultHTML, 1
	case 3:
		f.Kind, f.Status, f.RetryAfter = agentsim.FaultStatus, 429, "1"
	default:
		f.Kind, f.Status = agentsim.FaultStatus, []int{500, 502, 503, 504}[d.IntN(4)]
	}
	return f
}

func (d dice) faultOfStream() fault {
	kinds := []agentsim.FaultKind{
		agentsim.FaultCut, agentsim.FaultCut, agentsim.FaultEOF, agentsim.FaultSilence, agentsim.FaultDuplicate, agentsim.FaultError,
		agentsim.FaultErrorNull, agentsim.FaultMalformed, agentsim.FaultEmptyData, agentsim.FaultLongLine, agentsim.FaultComment,
	}
	return fault{Kind: kinds[d.IntN(len(kinds))], After: d.IntN(4)}
}

func (f fault) String() string { return fmt.Sprintf("%s %s", f.Kind, f.On) }
