package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"functionbridge/internal/router"
	"functionbridge/internal/session"
)

func newToolsCmd() *cobra.Command {
	var diff bool
	var agentID, sessionID string
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "Print the agent.tools JSON array of the route table",
		Long: "Print the agent.tools JSON array: one function for each route that has a description and\n" +
			"parameters. The table is $BRIDGE_ROUTES or routes.yaml; its ${VAR}s need not be set. What keeps\n" +
			"other routes from being tools is told on standard error.\n\n" +
			"With --diff and --agent or --session it reads the tools of a live agent and prints how they differ\n" +
			"from the table: a function that has no route (-), one that the agent lacks (+), one whose\n" +
			"definition differs (~). It changes nothing, and exits 1 when something differs, 2 when the\n" +
			"agent cannot be read.",
		Example: "  bridge tools > tools.json\n  bridge tools --diff --session sess_1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDiffFlags(diff, agentID, sessionID); err != nil {
				return err
			}
			table, err := router.Load(routesPath(), router.Env{Lookup: lookupEnv, AllowUnset: true})
			if err != nil {
				printProblems(cmd.ErrOrStderr(), cmd.ErrOrStderr(), err)
				return exitCode(2)
			}
			if diff {
				return printDrift(cmd.Context(), cmd.OutOrStdout(), table, agentID, sessionID)
			}
			printToolWarnings(cmd.ErrOrStderr(), table)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", table.Tools())
			return err
		},
	}
	cmd.Flags().BoolVar(&diff, "diff", false, "print how the tools of a live agent differ from the table")
	cmd.Flags().StringVar(&agentID, "agent", "", "with --diff: the `ID` of a saved agent")
	cmd.Flags().StringVar(&sessionID, "session", "", "with --diff: the `ID` of a session, whose agent is meant")
	return cmd
}

func checkDiffFlags(diff bool, agentID, sessionID string) error {
	switch {
	case diff && (agentID == "") == (sessionID == ""):
		return usagef("--diff needs one of --agent ID and --session ID")
	case !diff && agentID+sessionID != "":
		return usagef("--agent and --session say whose tools --diff compares: add --diff")
	}
	return nil
}

// printDrift prints how an agent's tools differ from the table. The exit code is
// that of diff: 1 when they do.
func printDrift(ctx context.Context, out io.Writer, table *router.Table, agentID, sessionID string) error {
	tools, err := liveTools(ctx, agentID, sessionID)
	if err != nil {
		return usageError{err} // 2, as diff has it for trouble
	}
	d := table.Drift(tools)
	for _, name := range d.Missing {
		_, err = fmt.Fprintf(out, "- %s: the agent has it, and there is no route\n", name)
	}
	for _, c := range d.Changed {
		for _, difference := range c.Differences {
			_, err = fmt.Fprintf(out, "~ %s: %s\n", c.Function, difference)
		}
	}
	for _, name := range d.Extra {
		_, err = fmt.Fprintf(out, "+ %s: the table has it, and the agent does not\n", name)
	}
	switch {
	case err != nil:
		return err
	case d.Any() || len(d.Extra) > 0:
		return exitCode(1)
	}
	_, err = fmt.Fprintln(out, "no differences")
	return err
}

// liveTools reads the tools of an agent, or of a session's agent.
func liveTools(ctx context.Context, agentID, sessionID string) ([]byte, error) {
	s, err := apiSettings()
	if err != nil {
		return nil, err
	}
	client, err := session.NewClient(session.ClientConfig{ //nolint:contextcheck // the client makes no request here
		APIKey: s.APIKey, BaseURL: s.BaseURL, OrgID: s.OrgID, ProjectID: s.ProjectID, UserAgent: "functionbridge/" + version, Rate: 1,
	})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	read, id := client.AgentTools, agentID
	if sessionID != "" {
		read, id = client.SessionTools, sessionID
	}
	tools, err := read(ctx, id)
	if e, ok := errors.AsType[*session.APIError](err); ok && e.Status == 404 {
		return nil, fmt.Errorf("%w; check the id, OPENAI_BASE_URL and OPENAI_PROJECT_ID", err)
	}
	return tools, err
}

// printToolWarnings says what keeps routes from being tools, and when none is one.
func printToolWarnings(errOut io.Writer, table *router.Table) {
	printWarnings(errOut, table.ToolWarnings())
	if !slices.ContainsFunc(table.Routes(), (*router.Route).IsTool) {
		_, _ = fmt.Fprintln(errOut, "bridge: no route has both description and parameters, so there are no tools")
	}
}
