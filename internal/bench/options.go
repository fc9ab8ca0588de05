package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"
)

// options say what is measured, how large, and how it is shown.
type options struct {
	sizes

	only     []string // names of loads and other measurements
	clients  []client
	bridge   string // a built bridge; built afresh when empty
	dir      string // where routes, journals and logs go; it decides on which disk
	keep     bool
	markdown bool
}

// sizes are the numbers that -quick makes small and -full large.
type sizes struct {
	rounds           int
	duration, warmUp time.Duration // of one measurement, and before it
	sessions         int           // that play at once

	idle       int           // sessions that are followed and do nothing
	settle     time.Duration // how long memory may come to rest before it is read
	early      int           // calls after which memory is read for the first time
	calls      int           // and for the second
	journaled  int           // calls in the journal at a start
	unfinished int           // of these
	followed   []int         // sessions, the fewest first
	active     int           // sessions that play among those that are followed
	benchTime  time.Duration // of a Go benchmark
}

func normalSizes() sizes {
	return sizes{
		rounds: 3, duration: 5 * time.Second, warmUp: time.Second, sessions: 64,
		idle: 2000, settle: 5 * time.Second, early: 10_000, calls: 100_000, journaled: 100_000, unfinished: 1000,
		followed: []int{10, 100, 1000}, active: 10, benchTime: time.Second,
	}
}

func fullSizes() sizes {
	s := normalSizes()
	s.idle, s.calls, s.followed = 5000, 1_000_000, append(s.followed, 10_000)
	return s
}

// quickSizes show that everything runs, and nothing about how fast.
func quickSizes() sizes {
	return sizes{
		rounds: 1, duration: 200 * time.Millisecond, warmUp: 50 * time.Millisecond, sessions: 4,
		idle: 20, settle: 100 * time.Millisecond, early: 500, calls: 1500, journaled: 1000, unfinished: 50,
		followed: []int{2, 10}, active: 2, benchTime: 20 * time.Millisecond,
	}
}

func parseFlags(args []string) (options, error) {
	o := options{sizes: normalSizes()}
	var quick, full bool
	var only, clients string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", o.rounds, "`rounds` of each measurement, each with all clients in turn")
	flags.DurationVar(&o.duration, "duration", o.duration, "how long a client is measured in a round")
	flags.DurationVar(&o.warmUp, "warmup", o.warmUp, "how long it runs before that")
	flags.IntVar(&o.sessions, "sessions", o.sessions, "`sessions` that play at once; a fourth of them with 8 calls at once")
	flags.StringVar(&o.bridge, "bridge", "", "a built bridge (`file`) to measure; one is built when this is not set")
	flags.StringVar(&o.dir, "dir", "bin", "`directory` for journals and logs, on a real disk: in memory a sync costs nothing")
	flags.BoolVar(&o.keep, "keep", false, "keep journals and logs, and tell where they are")
	flags.BoolVar(&o.markdown, "markdown", false, "print the tables of docs/performance.md")
	flags.BoolVar(&quick, "quick", false, "run everything with tiny numbers, to see that it works")
	flags.BoolVar(&full, "full", false, "watch memory over a million calls, and follow 5,000 idle and 10,000 other sessions (10 minutes more)")
	flags.StringVar(&only, "only", "", "comma-separated `names` of what is measured: "+strings.Join(measurementNames(), ", ")+" (default: all)")
	flags.StringVar(&clients, "clients", "", "comma-separated `names` of the clients under load: "+strings.Join(clientNames(), ", ")+" (default: all)")
	if err := flags.Parse(args); err != nil {
		return o, usageError{err}
	}
	switch {
	case flags.NArg() > 0:
		return o, usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	case quick && full:
		return o, usageError{errors.New("-quick and -full exclude each other")}
	case quick:
		o.resize(flags, quickSizes())
	case full:
		o.resize(flags, fullSizes())
	}
	if o.rounds < 1 || o.sessions < 1 || o.duration <= 0 || o.warmUp < 0 {
		return o, usageError{errors.New("-rounds, -sessions and -duration must be positive")}
	}
	return o, o.choose(only, clients)
}

// resize takes other sizes, but keeps those that a flag has set.
func (o *options) resize(flags *flag.FlagSet, s sizes) {
	flags.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "rounds":
			s.rounds = o.rounds
		case "duration":
			s.duration = o.duration
		case "warmup":
			s.warmUp = o.warmUp
		case "sessions":
			s.sessions = o.sessions
		}
	})
	o.sizes = s
}

// choose reads the lists of names; an empty one means all.
func (o *options) choose(only, clients string) error {
	o.only, o.clients = measurementNames(), contestants()
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	for _, name := range o.only {
		if !slices.Contains(measurementNames(), name) {
			return usageError{fmt.Errorf("-only: unknown name %q; choose from %s", name, strings.Join(measurementNames(), ", "))}
		}
	}
	if clients == "" {
		return nil
	}
	o.clients = nil
	for name := range strings.SplitSeq(clients, ",") {
		i := slices.Index(clientNames(), name)
		if i < 0 {
			return usageError{fmt.Errorf("-clients: unknown name %q; choose from %s", name, strings.Join(clientNames(), ", "))}
		}
		o.clients = append(o.clients, contestants()[i])
	}
	return nil
}

func (o options) wants(name string) bool { return slices.Contains(o.only, name) }
