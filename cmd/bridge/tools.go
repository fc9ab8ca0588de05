package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"functionbridge/internal/router"
)

func newToolsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "tools",
		Short: "Print the agent.tools JSON array of the route table",
		Long: "Print the agent.tools JSON array: one function for each route that has a description and\n" +
			"parameters. The table is $BRIDGE_ROUTES or routes.yaml; its ${VAR}s need not be set.",
		Example: "  bridge tools > tools.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			table, err := router.Load(routesPath(), router.Env{Lookup: lookupEnv, AllowUnset: true})
			if err != nil {
				printProblems(cmd.ErrOrStderr(), cmd.ErrOrStderr(), err)
				return exitCode(2)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", table.Tools())
			return err
		},
	}
}
