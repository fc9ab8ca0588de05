package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"functionbridge/internal/router"
)

func newCheckCmd() *cobra.Command {
	var noEnv bool
	cmd := &cobra.Command{
		Use:   "check [FILE…]",
		Short: "Validate route tables and print every problem with its place",
		Long: "Validate route tables: each FILE is one, a directory of *.yaml files too. Without FILE it is\n" +
			"the table that serve uses, $BRIDGE_ROUTES or routes.yaml. Every problem is printed as\n" +
			"file:line:column: message; what is odd but no mistake is a warning, on standard error. The exit\n" +
			"code is 0 for valid tables, 1 for problems.",
		Example: "  bridge check\n  bridge check routes.yaml\n  bridge check --no-env deploy/routes/",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, paths []string) error {
			if len(paths) == 0 {
				paths = []string{routesPath()}
			}
			return check(cmd.OutOrStdout(), cmd.ErrOrStderr(), paths, router.Env{Lookup: lookupEnv, AllowUnset: noEnv})
		},
	}
	cmd.Flags().BoolVar(&noEnv, "no-env", false, "take unset ${VAR}s as warnings, where there are no secrets")
	return cmd
}

// check prints what there is to say about each table.
func check(out, errOut io.Writer, paths []string, env router.Env) error {
	bad := false
	for _, path := range paths {
		table, err := router.Load(path, env)
		if err != nil {
			bad = true
			printProblems(out, errOut, err)
			continue
		}
		warnings := slices.Concat(table.Warnings(), table.ToolWarnings())
		slices.SortStableFunc(warnings, router.Problem.Compare)
		printWarnings(errOut, warnings)
		_, _ = fmt.Fprintf(out, "%s: %s, valid\n", path, countRoutes(len(table.Routes())))
	}
	if bad {
		return exitCode(1)
	}
	return nil
}

func printWarnings(errOut io.Writer, warnings router.Problems) {
	for _, w := range warnings {
		_, _ = fmt.Fprintf(errOut, "%s (warning)\n", w)
	}
}

// printProblems prints the mistakes of a table on standard output, where they
// are the answer, and what kept it from being read on standard error.
func printProblems(out, errOut io.Writer, err error) {
	if problems, ok := errors.AsType[router.Problems](err); ok {
		for _, p := range problems {
			_, _ = fmt.Fprintln(out, p)
		}
		return
	}
	hint := ""
	if errors.Is(err, fs.ErrNotExist) {
		hint = "; name the table, or set BRIDGE_ROUTES"
	}
	_, _ = fmt.Fprintf(errOut, "bridge: %v%s\n", err, hint)
}

func countRoutes(n int) string {
	if n == 1 {
		return "1 route"
	}
	return fmt.Sprintf("%d routes", n)
}
