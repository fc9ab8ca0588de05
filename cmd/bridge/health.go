package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// healthTimeout is a little more than the five seconds in which /readyz answers
// whatever hangs.
const healthTimeout = 6 * time.Second

func newHealthCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "health",
		Short: "Ask the running bridge whether it is ready",
		Long: "health asks /readyz of the bridge that listens on BRIDGE_ADDR (default :8080) of this machine\n" +
			"and prints the answer's state. It exits 0 when the bridge is ready and 1 when it is not.",
		Example: "  bridge health\n  BRIDGE_ADDR=:9090 bridge health",
		RunE: func(cmd *cobra.Command, _ []string) error {
			addr, _ := lookupEnv("BRIDGE_ADDR")
			target, err := healthTarget(addr)
			if err != nil {
				return err
			}
			return checkHealth(cmd.Context(), target, cmd.OutOrStdout())
		},
	}
}

// healthTarget turns a listen address into one to connect to: where the bridge
// listens on every address, this machine's own is asked.
func healthTarget(addr string) (string, error) {
	if addr = strings.TrimSpace(addr); addr == "" {
		addr = ":8080"
	}
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", usagef("BRIDGE_ADDR is %q: it must be the address that the bridge listens on, such as :8080", addr)
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// checkHealth prints one line about the bridge at addr; the error is the exit
// code 1 unless it is ready.
func checkHealth(ctx context.Context, addr string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	line, ready := askReady(ctx, addr)
	_, _ = fmt.Fprintln(out, line)
	if !ready {
		return exitCode(1)
	}
	return nil
}

func askReady(ctx context.Context, addr string) (line string, ready bool) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", http.NoBody)
	if err != nil {
		return fmt.Sprintf("no answer from %s: %v", addr, err), false
	}
	// No proxy and no reuse: one question to this machine.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		return fmt.Sprintf("no answer from %s: %v", addr, err), false
	}
	defer res.Body.Close()
	var state struct {
		Status            string
		Degraded, Reasons []string
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	if json.Unmarshal(body, &state) != nil || state.Status == "" {
		return fmt.Sprintf("%s answered %d, which is not the bridge's /readyz", addr, res.StatusCode), false
	}
	line = state.Status
	if details := append(state.Reasons, state.Degraded...); len(details) > 0 {
		line += ": " + strings.Join(details, ", ")
	}
	return line, res.StatusCode == http.StatusOK && state.Status == "ready"
}
