package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"functionbridge/internal/router"
)

func newToolsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "tools",
		Short: "Print the agent.tools JSON array of the route table",
		Long: "Print the agent.tools JSON array: one function for each route that has a description and\n" +
			"parameters. The table is $BRIDGE_ROUTES or routes.yaml; its ${VAR}s need not be set. What keeps\n" +
			"other routes from being tools is told on standard error.",
		Example: "  bridge tools > tools.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			table, err := router.Load(routesPath(), router.Env{Lookup: lookupEnv, AllowUnset: true})
			if err != nil {
				printProblems(cmd.ErrOrStderr(), cmd.ErrOrStderr(), err)
				return exitCode(2)
			}
			printToolWarnings(cmd.ErrOrStderr(), table)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", table.Tools())
			return err
		},
	}
}

// printToolWarnings says what keeps routes from being tools, and when none is one.
func printToolWarnings(errOut io.Writer, table *router.Table) {
	printWarnings(errOut, table.ToolWarnings())
	if !slices.ContainsFunc(table.Routes(), (*router.Route).IsTool) {
		_, _ = fmt.Fprintln(errOut, "bridge: no route has both description and parameters, so there are no tools")
	}
}
