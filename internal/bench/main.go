// Command bench measures what the bridge costs. It plays the same load against the real bridge, in a process of its own,
// and against the shortest client that a person would write by hand, and compares the two. The simulated Agents API and
// the upstream share a third process, which takes the times.
//
// Clients take turns, so that a busy machine slows both alike, and each round gives a ratio; the median of the ratios
// is what counts. A run in which a call was lost, repeated or not journaled is an error, not a number.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	cancel()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return
	case errors.As(err, new(usageError)):
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	default:
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// usageError is a mistake in the flags.
type usageError struct{ error }

// The parts that bench starts of itself are named by the first argument.
const (
	partAPI  = "part-api"
	partBare = "part-bare"
)

// run is the bench, or one of its parts in a child process. Parts end when in does.
func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case partAPI:
			return serveAPI(ctx, args[1:], in, out)
		case partBare:
			return runBare(ctx, args[1:], in)
		}
	}
	opts, err := parseFlags(args)
	if err != nil {
		return err
	}
	return bench(ctx, opts, out)
}

type options struct {
	rounds    int
	duration  time.Duration // of one measurement
	warmUp    time.Duration
	sessions  int
	bridge    string // a built bridge; built afresh when empty
	dir       string // where routes, journals and logs go; it decides on which disk
	keep      bool
	scenarios []scenario
}

func parseFlags(args []string) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 3, "`rounds` of each load, each with both clients")
	flags.DurationVar(&o.duration, "duration", 5*time.Second, "how long a client is measured in a round")
	flags.DurationVar(&o.warmUp, "warmup", time.Second, "how long it runs before that")
	flags.IntVar(&o.sessions, "sessions", 64, "`sessions` that play at once")
	flags.StringVar(&o.bridge, "bridge", "", "a built bridge (`file`) to measure; one is built when this is not set")
	flags.StringVar(&o.dir, "dir", "bin", "`directory` for journals and logs, on a real disk: in memory a sync costs nothing")
	flags.BoolVar(&o.keep, "keep", false, "keep journals and logs, and tell where they are")
	only := flags.String("only", "", "comma-separated `loads`: "+strings.Join(scenarioNames(), ", ")+" (default: all)")
	if err := flags.Parse(args); err != nil {
		return o, usageError{err}
	}
	var err error
	o.scenarios, err = chooseScenarios(*only)
	switch {
	case err != nil:
		return o, usageError{err}
	case flags.NArg() > 0:
		return o, usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	case o.rounds < 1 || o.sessions < 1 || o.duration <= 0 || o.warmUp < 0:
		return o, usageError{errors.New("-rounds, -sessions and -duration must be positive")}
	}
	return o, nil
}

// bench measures every load in alternating rounds and prints what came of it.
func bench(ctx context.Context, opts options, out io.Writer) (err error) {
	if err := os.MkdirAll(opts.dir, 0o750); err != nil {
		return fmt.Errorf("make a place for journals and logs: %w", err)
	}
	dir, err := os.MkdirTemp(opts.dir, "bench-")
	if err != nil {
		return fmt.Errorf("make a place for journals and logs: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("make a place for journals and logs: %w", err)
	}
	if opts.keep {
		defer func() { _, _ = fmt.Fprintf(out, "\nJournals and logs are in %s\n", dir) }()
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	r := rig{opts: opts, dir: dir}
	if r.self, err = os.Executable(); err != nil {
		return fmt.Errorf("find the own program: %w", err)
	}
	if r.bridge, err = bridgeBinary(ctx, opts.bridge, dir); err != nil {
		return err
	}
	results, err := r.playAll(ctx, out)
	if err != nil {
		return err
	}
	return writeReport(out, opts, results)
}
