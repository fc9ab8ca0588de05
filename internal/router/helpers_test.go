package router_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"functionbridge/internal/router"
)

// parse reads a table that must be valid.
func parse(t *testing.T, text string, env map[string]string) *router.Table {
	t.Helper()
	table, err := router.Parse("routes.yaml", []byte(text), envOf(env))
	if err != nil {
		t.Fatalf("the table is not valid:\n%v", err)
	}
	return table
}

func lookup(t *testing.T, table *router.Table, name string) *router.Route {
	t.Helper()
	route, ok := table.Lookup(name)
	if !ok {
		t.Fatalf("no route %q", name)
	}
	return route
}

// values are the bridge's own in these tests.
func values() router.Values {
	return router.Values{
		CallID: "call_1", FunctionName: "f", SessionID: "sess_1", TurnID: "turn_1", IdempotencyKey: "key_1",
		AgentID: "agent_1", Metadata: map[string]string{"user_id": "u-7", "odd": "a/b"},
	}
}

// wired builds the request of a call and puts the values of ${VAR} in.
func wired(t *testing.T, table *router.Table, name, args string) router.Wire {
	t.Helper()
	request, err := lookup(t, table, name).Build([]byte(args), values())
	if err != nil {
		t.Fatalf("%s with %s: %v", name, args, err)
	}
	wire, err := table.Wire(request)
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

// refused is the sentence for arguments that cannot be used.
func refused(t *testing.T, table *router.Table, name, args string) string {
	t.Helper()
	request, err := lookup(t, table, name).Build([]byte(args), values())
	e, ok := errors.AsType[*router.ArgumentError](err)
	if !ok {
		t.Fatalf("%s with %s: want an ArgumentError, got %+v, %v", name, args, request, err)
	}
	return e.Sentence
}

// seen is what a real server received.
type seen struct {
	host, path, rawPath, rawQuery string
	query                         map[string][]string
	header                        http.Header
}

// echo starts a server that remembers the last request; send sends a request to
// it and returns what it received.
func echo(t *testing.T) (url string, send func(router.Wire) seen) {
	t.Helper()
	received := make(chan seen, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		received <- seen{r.Host, r.URL.Path, r.URL.EscapedPath(), r.URL.RawQuery, r.URL.Query(), r.Header}
	}))
	t.Cleanup(server.Close)
	return server.URL, func(w router.Wire) seen {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), w.Method, w.URL, strings.NewReader(string(w.Body)))
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range w.Headers {
			request.Header.Set(h.Name, h.Value)
		}
		if w.Host != "" {
			request.Host = w.Host
		}
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return <-received
	}
}
