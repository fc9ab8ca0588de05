package main

import (
	"fmt"
	"slices"
	"strings"

	"functionbridge/internal/agentsim"
)

// scenario is one kind of load.
type scenario struct {
	name       string
	title      string
	texts      int  // text events before each call
	idempotent bool // of the route: false puts every state of a call on disk before the next step
	goal       bool // whether the goals are meant for it
}

func scenarios() []scenario {
	return []scenario{
		{name: "plain", title: "idempotent route", idempotent: true, goal: true},
		{name: "text", title: "idempotent route, 100 text events before each call", texts: 100, idempotent: true, goal: true},
		{name: "strict", title: "not idempotent: on disk before each request and each result"},
	}
}

func scenarioNames() []string {
	var names []string
	for _, s := range scenarios() {
		names = append(names, s.name)
	}
	return names
}

// chooseScenarios picks by comma-separated names, all for "".
func chooseScenarios(only string) ([]scenario, error) {
	all := scenarios()
	if only == "" {
		return all, nil
	}
	var chosen []scenario
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(s scenario) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-only: unknown load %q; choose from %s", name, strings.Join(scenarioNames(), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

const (
	function  = "lookup"
	arguments = `{"city":"Oslo","country":"NO","units":"metric","days":3}`
	reply     = `{"city":"Oslo","temperature_c":7.5,"sky":"overcast","wind_ms":4}`
	apiKey    = "bench"
)

// stepsPerTurn keeps turns short enough that the simulated API forgets old calls during a run.
const stepsPerTurn = 25

// turn is what the agent does in one turn: one call a step, each behind its text events.
func turn(texts int) []agentsim.Step {
	step := agentsim.Step{agentsim.Call(function, arguments)}
	if texts > 0 {
		step = agentsim.Step{agentsim.Text(texts), step[0]}
	}
	return slices.Repeat([]agentsim.Step{step}, stepsPerTurn)
}

// routeTable sends the function to the upstream.
func routeTable(upstream string, idempotent bool) string {
	return fmt.Sprintf("version: 1\nroutes:\n  %s: {url: %q, idempotent: %t}\n", function, upstream, idempotent)
}
