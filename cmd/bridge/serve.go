package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"functionbridge/internal/admin"
	"functionbridge/internal/forward"
	"functionbridge/internal/journal/sqlite"
	"functionbridge/internal/router"
	"functionbridge/internal/session"
)

func newServeCmd(hurry context.Context) *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Run the daemon until SIGINT or SIGTERM, then drain",
		Long: "serve follows the sessions that the settings name, runs their function calls by the route\n" +
			"table, and posts the results. It stops with the first SIGINT or SIGTERM and lets calls in\n" +
			"flight finish; a second signal cuts that short.\n\n" +
			"Its settings are environment variables; an empty one counts as unset:\n" + settingsHelp(),
		Example: "  OPENAI_API_KEY=sk-… BRIDGE_SESSIONS=sess_1 bridge serve",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := loadSettings()
			if err != nil {
				return err
			}
			return serve(cmd.Context(), hurry, s, cmd.ErrOrStderr())
		},
	}
}

// serve runs the daemon until ctx ends, drains it until hurry ends or the drain
// timeout is over, and takes it down.
func serve(ctx, hurry context.Context, s settings, logs io.Writer) error {
	log, end := newServeLogger(logs, s.LogLevel, s.LogFormat)
	defer end()
	// A reader of the log that goes away is no reason to go too.
	signal.Ignore(syscall.SIGPIPE)
	defer boundGarbage(ctx)()
	for _, warning := range s.Warnings {
		log.WarnContext(ctx, "check the environment", "warning", warning)
	}
	d, err := startDaemon(ctx, s, log)
	if err != nil {
		return err
	}
	err = d.run(ctx)
	return errors.Join(err, d.stop(hurry))
}

// run waits until ctx ends or a listener fails. SIGHUP reloads the route table.
func (d *daemon) run(ctx context.Context) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-d.failed:
			return err
		case <-hangup:
			_, _ = d.table.Reload() // it is logged, counted and shown
		}
	}
}

// daemon is the running bridge.
type daemon struct {
	log      *slog.Logger
	settings settings
	owner    string

	table     *liveTable
	registry  *prometheus.Registry
	journal   *sqlite.Store
	forwarder *forward.Forwarder
	sessions  *session.Manager
	draining  atomic.Bool

	// addr and adminAddr are the bound addresses; adminAddr is empty when the
	// admin listener is off.
	addr, adminAddr, metricsAddr string
	// failed gets the error of a listener that stopped by itself.
	failed chan error
	// teardown are the steps that undo the start, run last to first.
	teardown []func() error
}

// startDaemon builds every part, top to bottom; what a failed start has built
// is taken down by the same steps that end a run.
func startDaemon(ctx context.Context, s settings, log *slog.Logger) (_ *daemon, err error) {
	d := &daemon{
		log: log, settings: s, owner: rand.Text(),
		registry: prometheus.NewRegistry(), failed: make(chan error, 3),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.takeDown())
		}
	}()
	for _, step := range []func(context.Context) error{
		d.loadTable, d.openJournal, d.buildForwarder, d.buildSessions, d.listen, d.startSessions,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	log.InfoContext(ctx, "bridge started", "version", version, "addr", d.addr, "admin_addr", d.adminAddr,
		"routes", len(d.table.Load().Routes()), "journal", s.DatabasePath)
	return d, nil
}

func (d *daemon) onStop(step func() error) { d.teardown = append(d.teardown, step) }

// takeDown undoes what was started, last things first.
func (d *daemon) takeDown() error {
	var errs []error
	for _, step := range slices.Backward(d.teardown) {
		errs = append(errs, step())
	}
	d.teardown = nil
	return errors.Join(errs...)
}

// stopGrace is how long taking everything down may last after a drain. Only a
// disk that hangs takes longer, and nothing ends a wait for that.
const stopGrace = 10 * time.Second

var errHangs = errors.New("the bridge could not be taken down in 10 s after the drain: the journal's disk may hang; what is unfinished is left as after a crash")

// stop drains until the calls in flight have ended, the drain timeout is over
// or hurry ends, and takes everything down.
func (d *daemon) stop(hurry context.Context) error {
	d.draining.Store(true)
	d.log.InfoContext(hurry, "draining", "timeout", d.settings.DrainTimeout.String())
	ctx, cancel := context.WithTimeout(hurry, d.settings.DrainTimeout)
	defer cancel()
	down := make(chan error, 1)
	go func() {
		d.sessions.Drain(ctx)
		down <- d.takeDown()
	}()
	select {
	case err := <-down:
		d.log.InfoContext(hurry, "bridge stopped")
		return err
	case <-overdue(ctx):
		return errHangs
	}
}

// overdue returns a channel that is closed stopGrace after the end of ctx.
func overdue(ctx context.Context) <-chan struct{} {
	late := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(stopGrace, func() { close(late) }) })
	return late
}

func (d *daemon) loadTable(ctx context.Context) error {
	d.table = &liveTable{
		path: d.settings.Routes, env: router.Env{Lookup: d.settings.LookupEnv},
		log: d.log, reloads: admin.NewReloads(d.registry),
	}
	seen := signature(d.settings.Routes)
	if err := d.table.start(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.table.watch(ctx, seen)
	}()
	d.onStop(func() error { stop(); <-done; return nil })
	return nil
}

func (d *daemon) openJournal(ctx context.Context) (err error) {
	d.journal, err = sqlite.Open(ctx, d.settings.DatabasePath, sqlite.Options{
		Owner: d.owner, Logger: d.log, Retention: d.settings.Retention, ErasePayloads: d.settings.ErasePayloads,
	})
	if err != nil {
		return err
	}
	d.onStop(d.journal.Close)
	admin.RegisterMetrics(d.registry, d.journal, admin.Build{Version: version, Commit: buildCommit()})
	return nil
}

func (d *daemon) buildForwarder(context.Context) error {
	d.forwarder = forward.New(forward.Config{
		MaxCalls: d.settings.MaxCalls, Version: version, Table: d.table.Load,
		Logger: d.log, Registerer: d.registry,
	})
	d.onStop(func() error { d.forwarder.Close(); return nil })
	d.table.setOnTake(d.forwarder.TakeUpLimits)
	for route, proxy := range d.forwarder.Proxies(d.table.Load()) {
		d.log.Info("route goes through a proxy", "function", route, "proxy", proxy)
	}
	return nil
}

func (d *daemon) buildSessions(context.Context) error {
	client, err := session.NewClient(session.ClientConfig{ //nolint:contextcheck // the client makes no request here
		APIKey: d.settings.APIKey, BaseURL: d.settings.BaseURL, OrgID: d.settings.OrgID, ProjectID: d.settings.ProjectID,
		UserAgent: "functionbridge/" + version, Rate: d.settings.APIRate, Logger: d.log,
	})
	if err != nil {
		return err
	}
	d.onStop(func() error { client.Close(); return nil })
	d.sessions = session.New(session.Config{
		Client: client, Forwarder: d.forwarder, Table: d.table.Load, Journal: d.journal, Owner: d.owner, Unclean: d.journal.Unclean(),
		Sessions: d.settings.Sessions, Agents: d.settings.Agents, DiscoverInterval: d.settings.DiscoverInterval,
		IdleTimeout: d.settings.StreamIdleTimeout, ResyncInterval: d.settings.ResyncInterval,
		Logger: d.log, Registerer: d.registry,
	})
	return nil
}

// startSessions comes last: from here on calls are run.
func (d *daemon) startSessions(ctx context.Context) error { return d.sessions.Start(ctx) }

// listen binds every listener before any is served, so that an address in use
// ends the start.
func (d *daemon) listen(ctx context.Context) (err error) {
	if d.addr, err = d.serveHTTP(ctx, "BRIDGE_ADDR", d.settings.Addr, d.publicEndpoints()); err != nil {
		return err
	}
	if d.settings.AdminAddr != "" {
		if d.adminAddr, err = d.serveHTTP(ctx, "BRIDGE_ADMIN_ADDR", d.settings.AdminAddr, d.adminEndpoints()); err != nil {
			return err
		}
	}
	if d.settings.MetricsAddr != "" {
		d.metricsAddr, err = d.serveHTTP(ctx, "BRIDGE_METRICS_ADDR", d.settings.MetricsAddr, d.metricsEndpoints())
	}
	return err
}

// serveHTTP serves a handler at an address and returns the bound one.
func (d *daemon) serveHTTP(ctx context.Context, setting, addr string, handler http.Handler) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("%s: cannot listen on %s: %w; free the address or choose another", setting, addr, err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(d.log.Handler(), slog.LevelWarn),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			d.failed <- fmt.Errorf("%s: serving on %s: %w", setting, addr, err)
		}
	}()
	d.onStop(func() error { //nolint:contextcheck // a stop outlives the context of the start
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := server.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			err = server.Close()
		}
		<-done
		return err
	})
	return listener.Addr().String(), nil
}
