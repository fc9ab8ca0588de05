package admin

import (
	"log/slog"
	"net/http"
	"time"

	"functionbridge/internal/router"
)

// Routes answers about the route table in force.
type Routes struct {
	// Table returns the table in force.
	Table func() *router.Table
	// Status returns when that table was loaded, and why the last reload was
	// refused, empty when it was not; Reloads has it.
	Status func() (loadedAt time.Time, lastError string)
	// Tryer runs a function by hand.
	Tryer  Tryer
	Logger *slog.Logger
}

type routesAnswer struct {
	Revision        string             `json:"revision"`
	LoadedAt        *time.Time         `json:"loaded_at"`
	LastReloadError *string            `json:"last_reload_error"`
	Routes          []router.RouteInfo `json:"routes"`
}

// List answers with the routes in the order of the file, without secrets.
func (rt *Routes) List(w http.ResponseWriter, _ *http.Request) {
	table := rt.Table()
	loadedAt, lastError := rt.Status()
	answer(w, rt.Logger, http.StatusOK, routesAnswer{
		Revision: table.Revision(), LoadedAt: moment(loadedAt), LastReloadError: text(lastError), Routes: table.Describe(),
	})
}

// Tools answers with the agent.tools array of the table.
func (rt *Routes) Tools(w http.ResponseWriter, _ *http.Request) {
	send(w, http.StatusOK, "application/json", append(rt.Table().Tools(), '\n'))
}
