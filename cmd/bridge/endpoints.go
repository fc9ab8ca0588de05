package main

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"functionbridge/internal/admin"
)

// publicEndpoints are served on BRIDGE_ADDR, to everybody.
func (d *daemon) publicEndpoints() *chi.Mux {
	ready := &admin.Readiness{
		Journal: d.journal, API: d.sessions, Logger: d.log,
		HasTable: func() bool { return d.table.Load() != nil }, Draining: d.draining.Load,
	}
	r := d.newMux()
	r.Get("/healthz", admin.Healthz)
	r.Get("/readyz", ready.Readyz)
	return r
}

// adminEndpoints are served on BRIDGE_ADMIN_ADDR, to operators.
func (d *daemon) adminEndpoints() *chi.Mux {
	routes := &admin.Routes{Table: d.table.Load, Reload: d.table.Reload, Status: d.table.reloads.Status, Tryer: d.forwarder, Proxies: d.forwarder.Proxies, Logger: d.log}
	sessions := &admin.Sessions{Manager: d.sessions, Logger: d.log}
	calls := &admin.Calls{Journal: d.journal, Resolver: d.sessions, Logger: d.log}

	r := d.newMux(admin.Guard(d.settings.AdminToken))
	r.Method(http.MethodGet, "/metrics", admin.Metrics(d.registry, d.log))
	r.Get("/admin/routes", routes.List)
	r.Post("/admin/routes/reload", routes.ReloadNow)
	r.Post("/admin/routes/{name}/call", routes.Call)
	r.Get("/admin/tools", routes.Tools)
	r.Get("/admin/sessions", sessions.List)
	r.Post("/admin/sessions", sessions.Follow)
	r.Get("/admin/sessions/{id}", sessions.One)
	r.Delete("/admin/sessions/{id}", sessions.Unfollow)
	r.Get("/admin/calls", calls.List)
	r.Get("/admin/calls/{session_id}/{turn_id}/{call_id}", calls.One)
	r.Post("/admin/calls/{session_id}/{turn_id}/{call_id}/resolve", calls.Resolve)
	return r
}

// metricsEndpoints are served on BRIDGE_METRICS_ADDR, to a scraper.
func (d *daemon) metricsEndpoints() *chi.Mux {
	r := d.newMux()
	r.Method(http.MethodGet, "/metrics", admin.Metrics(d.registry, d.log))
	return r
}

// newMux is what the listeners have in common.
func (d *daemon) newMux(guards ...func(http.Handler) http.Handler) *chi.Mux {
	r := chi.NewMux()
	r.Use(admin.Recover(d.log), admin.EscapedPath, middleware.GetHead)
	r.Use(guards...)
	r.NotFound(admin.NotFound)
	r.MethodNotAllowed(admin.MethodNotAllowed)
	return r
}
