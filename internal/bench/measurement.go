package main

import (
	"context"
)

// measurement is one comparison or observation.
type measurement interface {
	// round measures once; n counts from 0.
	round(ctx context.Context, r *rig, n int) error
	// report tells what the rounds came to.
	report() report
}

// report is what a measurement came to.
type report struct {
	tables []table
	goals  []goal
}

// observations are the measurements besides the loads, in the order of the report.
func observations() []struct {
	name string
	once bool // more rounds would only take time
	make func(options) measurement
} {
	return []struct {
		name string
		once bool
		make func(options) measurement
	}{
		{"event", false, func(options) measurement { return &textEvent{} }},
		{"idle", true, func(o options) measurement { return &idleSessions{sizes: o.sizes} }},
		{"memory", true, func(o options) measurement { return &longRun{sizes: o.sizes} }},
		{"start", false, func(o options) measurement { return &fullStart{sizes: o.sizes} }},
		{"followed", false, func(o options) measurement { return &manySessions{sizes: o.sizes} }},
	}
}

// measurementNames are what -only chooses from.
func measurementNames() []string {
	var names []string
	for _, l := range loads() {
		names = append(names, l.name)
	}
	for _, o := range observations() {
		names = append(names, o.name)
	}
	return names
}

// chosen is a measurement with the number of its rounds.
type chosen struct {
	measurement

	rounds int
}

func chooseMeasurements(o options) []chosen {
	var list []chosen
	if c := newContest(o); len(c.loads) > 0 {
		list = append(list, chosen{c, o.rounds})
	}
	for _, other := range observations() {
		switch {
		case !o.wants(other.name):
		case other.once:
			list = append(list, chosen{other.make(o), 1})
		default:
			list = append(list, chosen{other.make(o), o.rounds})
		}
	}
	return list
}

// measureAll plays the first round of everything, then the second, and so on.
func measureAll(ctx context.Context, r *rig, list []chosen) error {
	for n := range r.rounds {
		for _, c := range list {
			if n >= c.rounds {
				continue
			}
			if err := c.round(ctx, r, n); err != nil {
				return err
			}
		}
	}
	return nil
}
