// Command bridge runs the function calls of OpenAI agent sessions against HTTP
// services, and offers the tools around it: checking a route table, calling one
// function, a simulated Agents API and a demonstration.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // to silence it
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"functionbridge/internal/router"
)

func main() {
	s, release := watchSignals(context.Background())
	code := run(s, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	release()
	os.Exit(code)
}

// run executes one command line and returns the exit code: 0 done,
// 1 failed, 2 bad usage, settings or route table.
func run(s signals, args []string, in io.Reader, out, errOut io.Writer) int {
	// net/http has no other place to complain about a service's surplus bytes
	// than the default log, and quotes them. What services send is not logged.
	log.SetOutput(io.Discard)
	root := newRootCmd(s.hurry)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	return report(root.ExecuteContext(s.stop), errOut)
}

func newRootCmd(hurry context.Context) *cobra.Command {
	root := &cobra.Command{
		Use:   "bridge",
		Short: "Run the function calls of OpenAI agent sessions against your HTTP services",
		Long: "Run the function calls of OpenAI agent sessions against your HTTP services.\n\n" +
			"Settings are environment variables: `bridge serve --help` lists them.",
		Example:       "  bridge demo\n  bridge check routes.yaml\n  bridge serve",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.ArbitraryArgs,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%v; `%s --help` shows the flags", err, cmd.CommandPath())
	})
	// cobra's own --version takes a template, and a program that holds text/template
	// is half as large again: the linker can leave out no method then.
	showVersion := root.Flags().Bool("version", false, "print what bridge version prints")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return unknownCommand(cmd, args[0])
		case *showVersion:
			return printVersion(cmd.OutOrStdout())
		}
		return cmd.Help()
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetHelpCommand(newHelpCmd())
	//nolint:contextcheck // each command gets its context when it is run
	root.AddCommand(newServeCmd(hurry), newCheckCmd(), newToolsCmd(), newHealthCmd(),
		newCallCmd(), newDemoCmd(), newSimulateCmd(), newVersionCmd())
	for _, c := range root.Commands() {
		c.Args = usageArgs(c.Args)
	}
	return root
}

// newHelpCmd is cobra's, but for a name that it does not know, which is bad usage.
func newHelpCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Help about a command",
		Example: "  bridge help serve",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(cmd.Root(), strings.Join(args, " "))
			}
			return about.Help()
		},
	}
}

// unknownCommand says so, with the command that was probably meant.
func unknownCommand(root *cobra.Command, name string) error {
	var known []string
	for _, c := range root.Commands() {
		known = append(known, c.Name())
	}
	if meant := router.Nearest(name, known); meant != "" {
		return usagef("unknown command %q: did you mean %s? `bridge --help` lists the commands", name, meant)
	}
	return usagef("unknown command %q; `bridge --help` lists the commands", name)
}

// usageArgs turns a complaint about the number of arguments into bad usage.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	if check == nil {
		check = noArgs
	}
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usagef("%v; see `%s --help`", err, cmd.CommandPath())
		}
		return nil
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// usageError is a mistake in the command line, a setting or the route table: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// exitError ends the program with a code and no further text: what there was
// to say has been printed.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func exitCode(code int) error { return exitError(code) }

// report prints an error, each of its lines on one line of its own, and maps it to an exit code.
func report(err error, out io.Writer) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[exitError](err); ok {
		return int(exit)
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		_, _ = fmt.Fprintf(out, "bridge: %s\n", line)
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	return 1
}

// signals are the two steps of a stop: the first SIGINT or SIGTERM ends stop,
// the second one ends hurry, which cuts a drain short.
type signals struct{ stop, hurry context.Context }

// watchSignals returns contexts that end with the first and the second signal.
func watchSignals(parent context.Context) (signals, context.CancelFunc) {
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGINT, syscall.SIGTERM)
	stop, cancelStop := context.WithCancel(parent)
	hurry, cancelHurry := context.WithCancel(parent)
	go func() {
		<-received
		cancelStop()
		<-received
		cancelHurry()
	}()
	return signals{stop: stop, hurry: hurry}, func() {
		signal.Stop(received)
		cancelStop()
		cancelHurry()
	}
}
