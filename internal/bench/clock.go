package main

import (
	"sync"
	"time"
)

// clock measures how long the calls of one session wait for their results. The requests to the session's events are all
// that it sees: with the last result of a step the next step becomes pending, but for the little that the simulated API
// takes to go on.
type clock struct {
	atOnce int  // results that end a step
	driven bool // a message begins each turn

	mu        sync.Mutex
	measuring bool
	pending   time.Time // since when the present step is; zero before the first request
	results   int       // of the present turn
	took      []time.Duration
}

// arrive notes one request.
func (c *clock) arrive(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.driven && c.results == stepsPerTurn*c.atOnce {
		c.results, c.pending = 0, now // the message
		return
	}
	if c.measuring && !c.pending.IsZero() {
		c.took = append(c.took, now.Sub(c.pending))
	}
	c.results++
	if c.results%c.atOnce == 0 {
		c.pending = now
	}
}

// set begins or ends a measurement and hands over what was noted.
func (c *clock) set(measuring bool) []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	took := c.took
	c.took, c.measuring = nil, measuring
	return took
}

func newClock(atOnce int, driven bool) *clock {
	c := &clock{atOnce: atOnce, driven: driven}
	if driven {
		c.results = stepsPerTurn * atOnce // the first request is a message
	}
	return c
}
