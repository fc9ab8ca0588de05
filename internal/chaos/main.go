// Command chaos attacks the bridge and counts from outside what came of it. A simulated Agents API, a service and the
// bridge run in processes of their own, with many sessions that make calls all the time. Meanwhile the bridge is killed,
// frozen and stopped at random moments, streams are cut, and replies of the API and of the service are lost.
//
// Nothing that the bridge says of itself counts: the simulator tells which calls were made and which results came, and
// the service which requests it got, under which keys, and on which of them it was at work at a kill. A call without a
// result, a side effect that was done twice, a key that changed, or more unknown outcomes than calls in flight at kills
// are failures.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"functionbridge/internal/agentsim"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	cancel()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return
	case errors.As(err, new(usageError)):
		_, _ = fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	default:
		_, _ = fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// usageError is a mistake in the flags.
type usageError struct{ error }

// partUpstream is the first argument of the service, which chaos starts of itself.
const partUpstream = "part-upstream"

// run is the attack, or the service in a child process, which ends when in does.
func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) > 0 && args[0] == partUpstream {
		return serveUpstream(ctx, in, out)
	}
	opts, err := parseFlags(args)
	if err != nil {
		return err
	}
	return chaos(ctx, opts, out)
}

type options struct {
	seed     uint64
	kills    int
	calls    int
	sessions int
	between  time.Duration // kills, about
	mode     string        // of the simulated API
	bridge   string        // a built bridge; built afresh when empty
	dir      string        // where journal and logs go; it decides on which disk
	keep     bool
}

func parseFlags(args []string) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.Uint64Var(&o.seed, "seed", 1, "`number` that decides on calls, kills and faults")
	flags.IntVar(&o.kills, "kills", 100, "how often the bridge is killed")
	flags.IntVar(&o.calls, "calls", 20000, "`calls` that the agents make")
	flags.IntVar(&o.sessions, "sessions", 64, "`sessions` that play at once")
	flags.DurationVar(&o.between, "between", 2*time.Second, "`time` between kills, about; long calls take 1.5 to 2.25 times as long")
	flags.StringVar(&o.mode, "mode", "hostile", "habits of the simulated API: "+strings.Join(modes(), ", "))
	flags.StringVar(&o.bridge, "bridge", "", "a built bridge (`file`) to attack; one is built when this is not set")
	flags.StringVar(&o.dir, "dir", "bin", "`directory` for journal and logs, on a real disk: in memory a sync costs nothing")
	flags.BoolVar(&o.keep, "keep", false, "keep journal and logs of a run without failures too")
	if err := flags.Parse(args); err != nil {
		return o, usageError{err}
	}
	switch {
	case flags.NArg() > 0:
		return o, usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	case !slices.Contains(modes(), o.mode):
		return o, usageError{fmt.Errorf("-mode: unknown %q; choose one of %s", o.mode, strings.Join(modes(), ", "))}
	case o.kills < 0 || o.calls < 1 || o.sessions < 1:
		return o, usageError{errors.New("-calls and -sessions must be positive, -kills not negative")}
	case o.between < 100*time.Millisecond || o.between > 20*time.Second:
		return o, usageError{errors.New("-between must be from 100ms to 20s: a long call has to end within its timeout")}
	}
	return o, nil
}

func modes() []string {
	var names []string
	for name := range agentsim.Positions() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// errRed is the end of a run that the bridge did not pass.
var errRed = errors.New("the bridge did not keep its promise")

// chaos runs one attack and prints what came of it. Journal, logs and findings are kept when it was not passed.
func chaos(ctx context.Context, opts options, out io.Writer) error {
	if err := os.MkdirAll(opts.dir, 0o750); err != nil {
		return fmt.Errorf("make a place for journal and logs: %w", err)
	}
	dir, err := os.MkdirTemp(opts.dir, "chaos-")
	if err != nil {
		return fmt.Errorf("make a place for journal and logs: %w", err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("make a place for journal and logs: %w", err)
	}
	r := &rig{opts: opts, dir: dir, out: out, plan: makePlan(opts)}
	if err := r.play(ctx); err != nil {
		return fmt.Errorf("%w\njournal and logs are in %s", err, dir)
	}
	if err := r.conclude(); err != nil || opts.keep {
		return err
	}
	return os.RemoveAll(dir)
}
