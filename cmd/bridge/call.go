package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
	"functionbridge/internal/router"
	"functionbridge/internal/session"
)

// callFlags are the flags of `bridge call`.
type callFlags struct {
	routes         string
	metadata       []string
	idempotencyKey string
	dryRun         bool
}

func newCallCmd() *cobra.Command {
	var flags callFlags
	cmd := &cobra.Command{
		Use:   "call NAME [ARGS]",
		Short: "Run one function as serve does, and print the tool_result that the agent would get",
		Long: "Run one function through the code path that serve uses, and print the tool_result that it\n" +
			"would post. ARGS are the arguments as JSON; - or nothing reads them from standard input. The\n" +
			"ids and the key are random, and nothing is journaled. The exit code is 0 when success is true,\n" +
			"1 when it is false, 2 for a mistake in the command line or the route table.\n\n" +
			"With --dry-run the HTTP request is printed and nothing is sent; what comes from ${VAR} stands\n" +
			"there as ${VAR}. The exit code is then 0 when a request could be made.",
		Example: "  bridge call get_weather '{\"city\":\"Oslo\"}'\n" +
			"  bridge call --dry-run --metadata user_id=u_1 get_customer '{\"customer_id\":17}'\n" +
			"  bridge call add_note < arguments.json",
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return errors.New("NAME is missing: bridge call NAME [ARGS]")
			case len(args) > 2:
				return fmt.Errorf("bridge call NAME [ARGS] takes two arguments, got %d: put ARGS in single quotes", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			trial, err := flags.trial(args[0])
			if err != nil {
				return err
			}
			table, err := loadTableFor(cmd.ErrOrStderr(), flags.routes, flags.dryRun)
			if err != nil {
				return err
			}
			if _, known := table.Lookup(trial.Function); !known {
				noRoute(cmd.ErrOrStderr(), table, trial.Function, flags.routes)
			}
			if trial.Arguments, err = callArguments(cmd, args[1:]); err != nil {
				return err
			}
			return call(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), table, trial)
		},
	}
	cmd.Flags().StringVar(&flags.routes, "routes", "", "the route table, a `file` or directory (default $BRIDGE_ROUTES or routes.yaml)")
	cmd.Flags().StringArrayVar(&flags.metadata, "metadata", nil, "session metadata for {session.metadata.KEY}, `key=value`; may be repeated")
	cmd.Flags().StringVar(&flags.idempotencyKey, "idempotency-key", "", "the `key` to send (default: a new one)")
	cmd.Flags().BoolVar(&flags.dryRun, "dry-run", false, "print the HTTP request and send nothing")
	return cmd
}

// headerWord matches what can stand in an Idempotency-Key header.
var headerWord = regexp.MustCompile(`^[!-~]{0,255}$`)

// trial makes a call with new ids of what the flags say.
func (f callFlags) trial(name string) (forward.Trial, error) {
	if !headerWord.MatchString(f.idempotencyKey) {
		return forward.Trial{}, usagef("--idempotency-key is %q: it must be at most 255 letters, digits and signs, without blanks", f.idempotencyKey)
	}
	metadata := map[string]string{}
	for _, pair := range f.metadata {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return forward.Trial{}, usagef("--metadata is %q: it must be key=value", pair)
		}
		metadata[key] = value
	}
	return forward.Trial{
		Function: name, IdempotencyKey: f.idempotencyKey, DryRun: f.dryRun,
		Session: journal.Session{ID: randomID("sess_"), AgentID: randomID("agent_"), Metadata: metadata},
		TurnID:  randomID("turn_"), CallID: randomID("call_"),
	}, nil
}

func randomID(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

// loadTableFor loads the table that a command names, or the one that serve
// uses. Its mistakes are printed, and are bad usage. A dry run sends nothing, so
// its variables need not be set.
func loadTableFor(errOut io.Writer, path string, dryRun bool) (*router.Table, error) {
	table, err := router.Load(cmp.Or(path, routesPath()), router.Env{Lookup: lookupEnv, AllowUnset: dryRun})
	if err != nil {
		printProblems(errOut, errOut, err)
		return nil, exitCode(2)
	}
	printWarnings(errOut, table.Warnings())
	return table, nil
}

// noRoute tells which table has no such route, and how to name another.
func noRoute(errOut io.Writer, table *router.Table, name, path string) {
	hint := ""
	if near := table.Closest(name); len(near) > 0 {
		hint = fmt.Sprintf(" (did you mean %s?)", near[0])
	}
	_, _ = fmt.Fprintf(errOut, "bridge: %s has no route %q%s; name another table with --routes or BRIDGE_ROUTES\n", cmp.Or(path, routesPath()), name, hint)
}

// callArguments are the JSON text on the command line, or standard input's.
// Whether they can be used is for the call itself to say.
func callArguments(cmd *cobra.Command, args []string) ([]byte, error) {
	if len(args) == 1 && args[0] != "-" {
		return []byte(args[0]), nil
	}
	in := cmd.InOrStdin()
	if f, ok := in.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "bridge: type the arguments as JSON and end with Ctrl-D (an empty input is {})")
	}
	text, err := readUntil(cmd.Context(), in)
	if err != nil {
		return nil, fmt.Errorf("read the arguments from standard input: %w", err)
	}
	return text, nil
}

// readUntil reads everything, or until ctx ends: a read of a terminal cannot be
// cut short, so it is left behind, for the process ends.
func readUntil(ctx context.Context, in io.Reader) ([]byte, error) {
	type input struct {
		text []byte
		err  error
	}
	read := make(chan input, 1)
	go func() {
		text, err := io.ReadAll(in)
		read <- input{text, err}
	}()
	select {
	case got := <-read:
		return got.text, got.err
	case <-ctx.Done():
		return nil, errors.New("interrupted before anything was sent")
	}
}

// call runs the trial and prints what came of it; where that is a failure, its
// attempts go to errOut.
func call(ctx context.Context, out, errOut io.Writer, table *router.Table, trial forward.Trial) error {
	forwarder := forward.New(forward.Config{
		Version: version, Table: func() *router.Table { return table },
		Logger: newLogger(errOut, slog.LevelWarn, "text"), Registerer: prometheus.NewRegistry(),
	})
	defer forwarder.Close()
	tried := forwarder.Try(ctx, trial)
	if tried.Stopped != nil {
		if len(tried.Attempts) == 0 {
			return errors.New("interrupted before anything was sent")
		}
		printAttempts(errOut, tried.Attempts)
		return errors.New("interrupted: it is not known whether the function was carried out; check that before you call it again")
	}
	if tried.Outcome == nil {
		return printRequest(out, tried.Request)
	}
	result := session.ToolResult(journal.Call{
		Key:     journal.Key{SessionID: trial.Session.ID, TurnID: trial.TurnID, CallID: trial.CallID},
		Outcome: *tried.Outcome,
	})
	if _, err := fmt.Fprintf(out, "%s\n", result); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}
	if !tried.Outcome.Success {
		printAttempts(errOut, tried.Attempts)
		return exitCode(1)
	}
	return nil
}

// printAttempts tells a person who looks for the reason of a failure what the
// agent is not told.
func printAttempts(errOut io.Writer, attempts []journal.Attempt) {
	for i, a := range attempts {
		what := a.Error
		if a.Status != 0 {
			what = strings.TrimSpace(fmt.Sprintf("status %d %s", a.Status, a.Error))
		}
		_, _ = fmt.Fprintf(errOut, "bridge: attempt %d: %s, after %d ms\n", i+1, what, a.Duration.Milliseconds())
	}
}

// printRequest prints a request as it would go over the wire, but for what
// stands as ${VAR}.
func printRequest(out io.Writer, r *forward.Shown) error {
	var text strings.Builder
	text.WriteString(r.Method + " " + r.URL + "\n")
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		text.WriteString(name + ": " + r.Headers[name] + "\n")
	}
	if string(r.Body) != "null" {
		text.WriteString("\n" + string(r.Body) + "\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}
