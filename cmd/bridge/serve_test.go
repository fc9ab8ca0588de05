package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
	"functionbridge/internal/session"
)

// bridgeUnderTest is a daemon with everything around it: the simulated API and
// a service that remembers what it was sent.
type bridgeUnderTest struct {
	sim     *agentsim.Sim
	service *service
	daemon  *daemon
	dir     string
}

// service answers every path with what answer says and keeps the requests.
type service struct {
	*httptest.Server
	mu       sync.Mutex
	requests []received
}

type received struct {
	path, key string
	body      []byte
}

func newService(t *testing.T, answer http.HandlerFunc) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		s.mu.Lock()
		s.requests = append(s.requests, received{r.URL.Path, r.Header.Get("Idempotency-Key"), body.Bytes()})
		s.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body.Bytes()))
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *service) received(path string) []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []received
	for _, r := range s.requests {
		if r.path == path {
			found = append(found, r)
		}
	}
	return found
}

func ok(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"ok":true}`))
}

// startBridge starts the real daemon against a simulated API. table holds
// SERVICE where the service's URL belongs.
func startBridge(t *testing.T, options agentsim.Options, table string, answer http.HandlerFunc, change func(*settings), logs ...io.Writer) *bridgeUnderTest {
	t.Helper()
	b := &bridgeUnderTest{sim: agentsim.New(options), service: newService(t, answer), dir: t.TempDir()}
	api := httptest.NewServer(b.sim)
	t.Cleanup(api.Close)
	t.Cleanup(b.sim.Close)
	routes := filepath.Join(b.dir, "routes.yaml")
	if err := os.WriteFile(routes, []byte(strings.ReplaceAll(table, "SERVICE", b.service.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	s := settings{
		APIKey: "test", BaseURL: api.URL + "/v1", Routes: routes,
		DiscoverInterval: time.Second, DatabasePath: filepath.Join(b.dir, "bridge.db"),
		Addr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0", MaxCalls: 64, APIRate: 1000,
		StreamIdleTimeout: time.Minute, ResyncInterval: time.Second, DrainTimeout: 10 * time.Second,
	}
	if change != nil {
		change(&s)
	}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(append(logs, testWriter{t})...), &slog.HandlerOptions{Level: slog.LevelDebug}))
	d, err := startDaemon(t.Context(), s, log)
	if err != nil {
		t.Fatal(err)
	}
	b.daemon = d
	t.Cleanup(func() {
		if err := d.stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return b
}

// testWriter logs lines to the test.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// waitState waits until a call of the journal is in a state.
func (b *bridgeUnderTest) waitState(t *testing.T, key journal.Key, want journal.State) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		call, err := b.daemon.journal.Call(t.Context(), key)
		if err == nil && call.State == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("call %v is %q (error %v), want %q", key, call.State, err, want)
		}
		<-time.After(10 * time.Millisecond)
	}
}

func TestServeAnswersACall(t *testing.T) {
	t.Parallel()
	for name, options := range agentsim.Positions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startBridge(t, options, "version: 1\nroutes:\n  greet: SERVICE/greet\n", ok, nil)
			id := b.sim.CreateSession(agentsim.SessionSpec{})
			if err := b.daemon.sessions.Follow(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			turn := b.sim.Play(id, agentsim.Step{agentsim.Call("greet", `{"name": "Ada",  "n":9007199254740993}`).WithID("call_1")})
			b.waitState(t, journal.Key{SessionID: id, TurnID: turn, CallID: "call_1"}, journal.Confirmed)
			got := b.service.received("/greet")
			if len(got) != 1 || string(got[0].body) != `{"name": "Ada",  "n":9007199254740993}` {
				t.Fatalf("the service got %q, want the arguments once", got)
			}
			results := b.sim.Results(id)
			if len(results) != 1 || !results[0].Success {
				t.Fatalf("results are %+v, want one success", results)
			}
		})
	}
}

// A disk that hangs keeps the journal from closing, and the process from ending.
func TestStopEndsThoughSomethingCannotBeTakenDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		for name, hurried := range map[string]bool{"after the drain timeout": false, "after the second signal": true} {
			log := slog.New(slog.DiscardHandler)
			d := &daemon{log: log, settings: settings{DrainTimeout: 40 * time.Second}, sessions: session.New(session.Config{Logger: log})}
			d.onStop(func() error { <-release; return nil })
			hurry, cancel := context.WithCancel(t.Context())
			want := d.settings.DrainTimeout + stopGrace
			if hurried {
				cancel()
				want = stopGrace
			}
			began := time.Now()
			if err := d.stop(hurry); !errors.Is(err, errHangs) || time.Since(began) != want {
				t.Errorf("%s: ended after %s with %v, want %s and an error", name, time.Since(began), err, want)
			}
			cancel()
		}
		close(release)
		synctest.Wait()
	})
}
