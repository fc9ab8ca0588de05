package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"functionbridge/internal/agentsim"
)

// newSimulateCmd builds `bridge simulate`: the simulated Agents API alone, for users' own tests.
func newSimulateCmd() *cobra.Command {
	var addr, script, mode string
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Serve a simulated Agents API for your own tests",
		Long: `Serve a simulated Agents API. Any bearer key is right.

How it behaves where the API's documents leave it open (--mode):
  kind           nothing is late or repeated
  hostile        sessions are read up to 2 s late, snapshots and events come again, results are refused
                 for the first 150 ms, streams are framed as oddly as the standard allows
  hostile-other  late and repeated too; the session stays in_progress while calls are pending, late
                 results get 409, async calls are not listed

A user message is read line by line:
  call NAME {json}     the agent calls this function; the rest of the line is the arguments
  (a blank line)       the next step begins; the calls of one step are made at once
  anything else        ends the turn; the agent says this text
Further lines: @async NAME {json}, @text N, @wait 200ms, @approval, @connection, @unknown.

  GET  /_sim/results   the tool results received
  GET  /_sim/requests  counts of requests
  POST /_sim/faults    sets a fault, e.g. {"kind":"status","on":"post_events","status":503,"count":2}
  GET  /_sim/faults    the faults that wait; DELETE takes them back

` + agentsim.FaultHelp() + `

A script gives the turns that the messages of a session start, whatever they say, and faults:
  options: {base: kind, register_delay: 150ms}
  turns:
    - steps:
        - - call: get_weather
            arguments: '{"city":"Oslo"}'
          - approval: true
        - - wait: 1s
          - fault: {kind: cut}
          - call: get_time
      say: That is all.
    - message: 'call get_weather {"city":"Rome"}'
  faults:
    - {kind: status, on: post_events, status: 429, retry_after: 1, count: 2}`,
		Example: "  bridge simulate\n  bridge simulate --addr 127.0.0.1:9000 --mode hostile\n  bridge simulate --script turns.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sim, err := newSimulation(mode, script)
			if err != nil {
				return err
			}
			return serveSimulation(cmd.Context(), sim, addr, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:8090", "address to listen on")
	cmd.Flags().StringVar(&script, "script", "", "YAML `file` with turns, faults and options")
	cmd.Flags().StringVar(&mode, "mode", "kind", "habits of the API: kind, hostile or hostile-other; the script's options go first")
	return cmd
}

// newSimulation builds the API from mode and script; every error is a mistake of the user's.
func newSimulation(mode, script string) (*agentsim.Sim, error) {
	opts, ok := agentsim.Positions()[mode]
	if !ok {
		known := slices.Sorted(maps.Keys(agentsim.Positions()))
		return nil, usagef("--mode: unknown %q; choose one of %s", mode, strings.Join(known, ", "))
	}
	if script == "" {
		return agentsim.New(opts), nil
	}
	data, err := os.ReadFile(script) //nolint:gosec // the user's own file
	if err != nil {
		return nil, usagef("--script: %w", err)
	}
	parsed, err := agentsim.ParseScript(script, data)
	if err != nil {
		return nil, usagef("%w", err)
	}
	if parsed.Options != nil {
		opts = *parsed.Options
	}
	sim := agentsim.New(opts)
	if err := sim.Load(parsed); err != nil {
		return nil, usagef("%s: %w", script, err)
	}
	return sim, nil
}

// serveSimulation listens and serves until ctx is done.
func serveSimulation(ctx context.Context, sim *agentsim.Sim, addr string, out io.Writer) error {
	defer sim.Close()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("simulate: %w; choose another address with --addr", err)
	}
	server := &http.Server{Handler: sim, ReadHeaderTimeout: 10 * time.Second}
	if err := printSimulation(out, "http://"+listener.Addr().String()); err != nil {
		_ = listener.Close()
		return fmt.Errorf("simulate: %w", err)
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("simulate: %w", err)
	case <-ctx.Done():
	}
	sim.Close()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("simulate: %w", err)
	}
	return nil
}

// printSimulation tells what to paste, in the order in which it is needed.
func printSimulation(out io.Writer, base string) error {
	const text = `# The simulated Agents API listens on {base}; Ctrl-C stops it.

# Start the bridge in another terminal:
  export OPENAI_BASE_URL={base}/v1
  export OPENAI_API_KEY=sim
  bridge serve

# Create a session and let the bridge follow it:
  SESSION=$(curl -s {base}/v1/agents/sessions -H 'Authorization: Bearer sim' -H 'OpenAI-Beta: agents=v1' -H 'Content-Type: application/json' -d '{"agent":{"model":"simulated"},"environment":{"type":"none"},"input":"Hello."}' | sed 's/^{"id":"\([^"]*\)".*/\1/')
  curl -s http://127.0.0.1:8081/admin/sessions -H 'Content-Type: application/json' -d "{\"session_id\":\"$SESSION\"}"

# Make the agent call a function:
  curl -s {base}/v1/agents/sessions/$SESSION/events -H 'Authorization: Bearer sim' -H 'OpenAI-Beta: agents=v1' -H 'Content-Type: application/json' -d '{"events":[{"type":"agent.session.input.message","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"call get_weather {\"city\":\"Oslo\"}"}]}]}]}'

# Look at what came back:
  curl -s {base}/_sim/results
  curl -s http://127.0.0.1:8081/admin/calls
`
	_, err := io.WriteString(out, strings.ReplaceAll(text, "{base}", base))
	return err
}
