package admin

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"functionbridge/internal/router"
)

// Routes answers about the route table in force.
type Routes struct {
	// Table returns the table in force.
	Table func() *router.Table
	// Reload puts the table in force that the files hold now, and returns it. The
	// error is router.Problems for a table with mistakes.
	Reload func() (*router.Table, error)
	// Status returns when that table was loaded, and why the last reload was
	// refused, empty when it was not; Reloads has it.
	Status func() (loadedAt time.Time, lastError string)
	// Tryer runs a function by hand.
	Tryer Tryer
	// Proxies returns the proxy that each route of a table is reached through,
	// masked; routes that are reached directly are left out.
	Proxies func(*router.Table) map[string]string
	Logger  *slog.Logger
}

type routesAnswer struct {
	Revision        string      `json:"revision"`
	LoadedAt        *time.Time  `json:"loaded_at"`
	LastReloadError *string     `json:"last_reload_error"`
	Routes          []routeView `json:"routes"`
}

// routeView is a route and, where there is one, the proxy of the environment
// that its requests go through.
type routeView struct {
	router.RouteInfo

	Proxy string `json:"proxy,omitempty"`
}

// List answers with the routes in the order of the file, without secrets.
func (rt *Routes) List(w http.ResponseWriter, _ *http.Request) {
	table := rt.Table()
	loadedAt, lastError := rt.Status()
	view := routesAnswer{Revision: table.Revision(), LoadedAt: moment(loadedAt), LastReloadError: text(lastError), Routes: []routeView{}}
	proxies := rt.Proxies(table)
	for _, info := range table.Describe() {
		view.Routes = append(view.Routes, routeView{info, proxies[info.Name]})
	}
	answer(w, rt.Logger, http.StatusOK, view)
}

// reloadRefused is the problem document of a table with mistakes.
type reloadRefused struct {
	Problem

	Problems router.Problems `json:"problems"`
}

// ReloadNow puts the table in force that the files hold now, and answers with its
// revision, or with every mistake of a table that was not taken.
func (rt *Routes) ReloadNow(w http.ResponseWriter, _ *http.Request) {
	table, err := rt.Reload()
	if err == nil {
		loadedAt, _ := rt.Status()
		answer(w, rt.Logger, http.StatusOK, reloaded{Revision: table.Revision(), LoadedAt: moment(loadedAt), Routes: len(table.Routes())})
		return
	}
	refused := reloadRefused{Problem: newProblem(http.StatusUnprocessableEntity, "The route table was not taken; the one in force stays.")}
	if !errors.As(err, &refused.Problems) {
		refused.Problems = router.Problems{{Line: 1, Column: 1, Message: err.Error()}}
	}
	body, err := json.Marshal(refused)
	if err != nil {
		body = []byte("{}")
	}
	send(w, http.StatusUnprocessableEntity, "application/problem+json", append(body, '\n'))
}

type reloaded struct {
	Revision string     `json:"revision"`
	LoadedAt *time.Time `json:"loaded_at"`
	Routes   int        `json:"routes"`
}

// Tools answers with the agent.tools array of the table.
func (rt *Routes) Tools(w http.ResponseWriter, _ *http.Request) {
	send(w, http.StatusOK, "application/json", append(rt.Table().Tools(), '\n'))
}
