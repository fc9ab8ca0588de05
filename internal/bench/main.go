// Command bench measures what the bridge costs. It plays the same load against the real bridge, in a process of its own,
// against the shortest client that a person would write by hand, and against the helper of the official library, and
// compares them. The simulated Agents API and the upstream share a process, which takes the times. Other measurements
// look at what the bridge needs for idle sessions, long runs, a start and many sessions.
//
// Clients take turns, so that a busy machine slows all alike, and each round gives ratios; the median of the ratios
// is what counts. A run in which a call was lost, repeated or not journaled is an error, not a number.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a reader that goes away, head say, is no reason to leave files and processes behind
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
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

func (e usageError) Unwrap() error { return e.error }

// The parts that bench starts of itself are named by the first argument.
const (
	partAPI  = "part-api"
	partBare = "part-bare"
	partSDK  = "part-sdk"
)

// run is the bench, or one of its parts in a child process. Parts end when in does. The tables go to out, and what
// happens on the way to them to progress.
func run(ctx context.Context, args []string, in io.Reader, out, progress io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case partAPI:
			return serveAPI(ctx, args[1:], in, out)
		case partBare:
			return runBare(ctx, args[1:], in)
		case partSDK:
			return runSDK(ctx, args[1:], in, out)
		}
	}
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	return bench(ctx, o, out, progress)
}

// bench measures in alternating rounds and prints what came of it.
func bench(ctx context.Context, o options, out, progress io.Writer) (err error) {
	if err := os.MkdirAll(o.dir, 0o750); err != nil {
		return fmt.Errorf("make a place for journals and logs: %w", err)
	}
	place, err := os.MkdirTemp(o.dir, "bench-")
	if err != nil {
		return fmt.Errorf("make a place for journals and logs: %w", err)
	}
	if place, err = filepath.Abs(place); err != nil {
		return fmt.Errorf("make a place for journals and logs: %w", err)
	}
	if o.keep {
		defer func() { _, _ = fmt.Fprintf(progress, "Journals and logs are in %s\n", place) }()
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(place)) }()
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	r := &rig{options: o, place: place, out: progress, http: &http.Client{Transport: transport}}
	if r.self, err = os.Executable(); err != nil {
		return fmt.Errorf("find the own program: %w", err)
	}
	if r.binary, err = bridgeBinary(ctx, o.bridge, place); err != nil {
		return err
	}
	chosen := chooseMeasurements(o)
	if err := measureAll(ctx, r, chosen); err != nil {
		return err
	}
	return writeReport(out, o, chosen)
}
