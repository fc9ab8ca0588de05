package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"functionbridge"
	"functionbridge/internal/agentsim"
	"functionbridge/internal/demo"
)

func newDemoCmd() *cobra.Command {
	var stay bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the bridge at work: a simulated Agents API, sample services and a scripted conversation",
		Long: "Run a simulated Agents API, two sample services and the bridge in this process, with the sample\n" +
			"route table routes.yaml; play a scripted conversation and print every call: arguments, HTTP\n" +
			"exchange, result, time. It needs no key and no network, reads no settings and leaves nothing\n" +
			"behind. The exit code is 0 when everything came out as scripted, else 1.",
		Example: "  bridge demo\n  bridge demo --stay",
		RunE: func(cmd *cobra.Command, _ []string) error {
			show := demonstration{
				out: cmd.OutOrStdout(), color: colorful(cmd.OutOrStdout()), stay: stay,
				shop: demo.Shop(), carrier: demo.Carrier(), script: demo.Script(),
				logs: &lateWriter{to: cmd.ErrOrStderr()},
			}
			return show.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&stay, "stay", false, "leave everything running until Ctrl-C, with addresses and curl lines to try")
	return cmd
}

// colorful reports whether out is a terminal whose user did not ask for plain
// text (https://no-color.org).
func colorful(out io.Writer) bool {
	f, ok := out.(*os.File)
	noColor, _ := lookupEnv("NO_COLOR")
	term, _ := lookupEnv("TERM")
	return ok && isatty.IsTerminal(f.Fd()) && noColor == "" && term != "dumb"
}

// demonstration is one run of `bridge demo`.
type demonstration struct {
	out           io.Writer
	color, stay   bool
	shop, carrier http.Handler
	script        []demo.Scene
	// logs gets the bridge's log; it is shown when something went wrong.
	logs *lateWriter

	stage    demo.Stage
	daemon   *daemon
	teardown []func() error
}

// run shows everything and takes it down again.
func (s *demonstration) run(ctx context.Context) (err error) {
	defer func() {
		for _, step := range slices.Backward(s.teardown) {
			err = errors.Join(err, step())
		}
	}()
	switch err := s.build(ctx); {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		s.logs.show()
		return fmt.Errorf("start the demo: %w", err)
	}
	s.introduce()
	report, err := demo.Play(ctx, &s.stage, s.script)
	if err != nil {
		return errInterrupted
	}
	if len(report.Differences) > 0 {
		s.logs.show()
		err = exitCode(1)
	}
	if !s.stay {
		s.sayNext()
		return err
	}
	s.logs.show()
	s.sayStay()
	select {
	case <-ctx.Done():
	case failed := <-s.daemon.failed:
		err = errors.Join(err, failed)
	}
	return err
}

var errInterrupted = errors.New("the demo was interrupted")

func (s *demonstration) onStop(step func() error) { s.teardown = append(s.teardown, step) }

// build starts the simulated API, the services and the bridge, which knows
// nothing of the environment that the user has set up for a real one.
func (s *demonstration) build(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bridge-demo-")
	if err != nil {
		return err
	}
	s.onStop(func() error { return os.RemoveAll(dir) })
	table := filepath.Join(dir, "routes.yaml")
	if err := os.WriteFile(table, functionbridge.SampleRoutes, 0o600); err != nil {
		return err
	}
	sim, err := s.startAPI(ctx)
	if err != nil {
		return err
	}
	variables, err := s.startServices(ctx)
	if err != nil {
		return err
	}
	settings := demoSettings(s.stage.APIURL, table, filepath.Join(dir, "bridge.db"), variables)
	s.daemon, err = startDaemon(ctx, settings, newLogger(s.logs, slog.LevelInfo, "text"))
	if err != nil {
		return err
	}
	s.onStop(func() error { return s.daemon.stop(context.WithoutCancel(ctx)) })
	s.stage.Call, s.stage.Out, s.stage.Color = s.daemon.journal.Call, s.out, s.color
	return s.waitForStreams(ctx, sim)
}

// startAPI serves a simulated Agents API with the script's sessions.
func (s *demonstration) startAPI(ctx context.Context) (*agentsim.Sim, error) {
	sim := agentsim.New(agentsim.Kind())
	s.onStop(func() error { sim.Close(); return nil })
	for _, id := range []string{demo.Support, demo.Shipping} {
		sim.CreateSession(agentsim.SessionSpec{ID: id, AgentID: "agent_demo", Metadata: map[string]string{"user_id": "u_42"}})
	}
	served, err := demo.StartService(ctx, "simulated Agents API", sim)
	if err != nil {
		return nil, err
	}
	s.onStop(served.Close)
	s.stage.Sim, s.stage.APIURL = sim, served.URL+"/v1"
	return sim, nil
}

// startServices serves what the table points at, and gives its variables.
func (s *demonstration) startServices(ctx context.Context) (map[string]string, error) {
	variables := map[string]string{}
	for _, service := range []struct {
		name, variable string
		handler        http.Handler
	}{{"shop", "SHOP_URL", s.shop}, {"carrier", "CARRIER_URL", s.carrier}} {
		started, err := demo.StartService(ctx, service.name, service.handler)
		if err != nil {
			return nil, err
		}
		s.onStop(started.Close)
		s.stage.Services = append(s.stage.Services, started)
		variables[service.variable] = started.URL
	}
	return variables, nil
}

func demoSettings(apiURL, table, journal string, variables map[string]string) settings {
	return settings{
		APIKey: "demo", BaseURL: apiURL, Routes: table, DatabasePath: journal,
		Sessions: []string{demo.Support, demo.Shipping}, DiscoverInterval: time.Minute,
		Addr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0", MaxCalls: 64, APIRate: 100,
		StreamIdleTimeout: time.Minute, ResyncInterval: 30 * time.Second, DrainTimeout: 2 * time.Second,
		LookupEnv: func(name string) (string, bool) { value, ok := variables[name]; return value, ok },
	}
}

// waitForStreams waits until the bridge follows both sessions, so that the
// trace's times are those of calls and not of the start.
func (s *demonstration) waitForStreams(ctx context.Context, sim *agentsim.Sim) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, id := range []string{demo.Support, demo.Shipping} {
		if err := sim.WaitStreams(ctx, id, 1); err != nil {
			return err
		}
	}
	return nil
}

func (s *demonstration) introduce() {
	s.print("functionbridge demo: all of this runs in one process, with real requests on loopback sockets.\n\n")
	for _, part := range [][3]string{
		{"Agents API", "{api}", "simulated, with two sessions that go on side by side"},
		{"shop", "{shop}", "a service that answers"},
		{"carrier", "{carrier}", "a service that fails in interesting ways"},
		{"bridge", "{bridge}", "follows both sessions and calls the services as routes.yaml says"},
	} {
		s.print(fmt.Sprintf("  %-10s  %-26s  %s\n", part[0], s.filled(part[1]), part[2]))
	}
}

func (s *demonstration) sayNext() {
	s.print(`
Look next
  the sample table, with comments    routes.yaml
  a request without sending it       {program} call --dry-run get_customer '{"customer_id":17}'
  the mistakes in a table            {program} check routes.yaml
  all of this left running           {program} demo --stay
  a simulated API for your tests     {program} simulate
  the bridge itself                  {program} serve --help
`)
}

func (s *demonstration) sayStay() {
	s.print(`
All of it keeps running; Ctrl-C stops it. The bridge's log follows below. In another terminal:

  Make the agent of sess_support call a function:
    curl -s {api}/agents/sessions/sess_support/events -H 'Authorization: Bearer demo' -H 'OpenAI-Beta: agents=v1' -H 'Content-Type: application/json' -d '{"events":[{"type":"agent.session.input.message","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"call get_weather {\"city\":\"Rome\"}"}]}]}]}'

  See what the API was sent, newest last, and what the bridge's journal holds, newest first:
    curl -s {sim}/_sim/results
    curl -s '{admin}/admin/calls?limit=3'

  Look around:
    curl -s {admin}/admin/routes
    curl -s {admin}/admin/sessions
    curl -s {admin}/metrics
    curl -s {bridge}/readyz

  Call a function by hand; see the request that it would send with --dry-run:
    SHOP_URL={shop} CARRIER_URL={carrier} {program} call --routes {table} track_parcel '{"parcel_id":"NO-1"}'

`)
}

func (s *demonstration) print(text string) { _, _ = io.WriteString(s.out, s.filled(text)) }

// filled puts the addresses into a text.
func (s *demonstration) filled(text string) string {
	return strings.NewReplacer(
		"{api}", s.stage.APIURL, "{sim}", strings.TrimSuffix(s.stage.APIURL, "/v1"),
		"{shop}", s.stage.Services[0].URL, "{carrier}", s.stage.Services[1].URL,
		"{bridge}", "http://"+s.daemon.addr, "{admin}", "http://"+s.daemon.adminAddr,
		"{table}", s.daemon.settings.Routes, "{program}", os.Args[0],
	).Replace(text)
}

// lateWriter keeps what is written to it until show, and passes it on from then
// on.
type lateWriter struct {
	to io.Writer

	mu    sync.Mutex
	kept  bytes.Buffer
	shown bool
}

func (w *lateWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.shown {
		return w.to.Write(p)
	}
	return w.kept.Write(p)
}

func (w *lateWriter) show() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.shown = true
	_, _ = w.kept.WriteTo(w.to)
}
