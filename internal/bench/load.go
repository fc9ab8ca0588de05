package main

import (
	"fmt"
	"slices"
	"strings"

	"functionbridge/internal/agentsim"
)

// load is one way in which agents make calls.
type load struct {
	name, title string
	sessions    func(sizes) int
	texts       int // text events before each step
	atOnce      int // calls a step
}

// parallelCalls is how many calls a step has under the load of that name.
const parallelCalls = 8

func loads() []load {
	all := func(s sizes) int { return s.sessions }
	return []load{
		{name: "plain", title: "one call a step", sessions: all, atOnce: 1},
		{name: "text", title: "100 text events, then one call", sessions: all, texts: 100, atOnce: 1},
		{name: "parallel", title: "8 calls at once", sessions: func(s sizes) int { return max(1, s.sessions/4) }, atOnce: parallelCalls},
		{name: "single", title: "one call a step", sessions: func(sizes) int { return 1 }, atOnce: 1},
	}
}

// describe names a load in tables: "64 sessions, one call a step".
func (l load) describe(s sizes) string {
	if n := l.sessions(s); n != 1 {
		return fmt.Sprintf("%d sessions, %s", n, l.title)
	}
	return "1 session, " + l.title
}

const (
	function = "lookup"
	// arguments have their keys in order, because the SDK hands its handler a map, whose order is lost.
	arguments = `{"city":"Oslo","country":"NO","days":3,"units":"metric"}`
	reply     = `{"city":"Oslo","temperature_c":7.5,"sky":"overcast","wind_ms":4}`
	apiKey    = "bench"
)

// stepsPerTurn keeps turns short enough that the simulated API forgets old calls during a run.
const stepsPerTurn = 25

// turn is what the agent does in one turn: the same step again and again, each behind its text events.
func turn(texts, atOnce int) []agentsim.Step {
	step := agentsim.Step(slices.Repeat([]agentsim.Action{agentsim.Call(function, arguments)}, atOnce))
	if texts > 0 {
		step = append(agentsim.Step{agentsim.Text(texts)}, step...)
	}
	return slices.Repeat([]agentsim.Step{step}, stepsPerTurn)
}

// message asks the simulated agent for the same turn in a user's words, for a client that can only answer turns that it
// began itself.
func message(texts, atOnce int) string {
	step := strings.Repeat("call "+function+" "+arguments+"\n", atOnce)
	if texts > 0 {
		step = fmt.Sprintf("@text %d\n", texts) + step
	}
	return strings.Repeat(step+"\n", stepsPerTurn)
}

// routeTable sends the function to the upstream.
func routeTable(upstream string, idempotent bool) string {
	return fmt.Sprintf("version: 1\nroutes:\n  %s: {url: %q, idempotent: %t}\n", function, upstream, idempotent)
}
