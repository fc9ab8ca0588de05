package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"functionbridge/internal/agentsim"
)

// bridgeProcess is `bridge serve` in a process of its own.
type bridgeProcess struct {
	cmd  *exec.Cmd
	logs bytes.Buffer
}

func startProcess(t *testing.T, env ...string) *bridgeProcess {
	t.Helper()
	p := &bridgeProcess{cmd: exec.Command(os.Args[0], "serve")}
	p.cmd.Env = append(os.Environ(), append(env, asBridge+"=1")...) //nolint:forbidigo // the child's environment
	p.cmd.Stdout, p.cmd.Stderr = &p.logs, &p.logs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// kill ends the process as kill -9 does.
func (p *bridgeProcess) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatalf("the bridge ended by itself: %v\n%s", err, p.logs.String())
	}
	_ = p.cmd.Wait()
}

// killRig is a simulated API, a service with one idempotent and one
// non-idempotent endpoint, and the settings of a bridge between them.
type killRig struct {
	sim     *agentsim.Sim
	service *service
	env     []string
}

func newKillRig(t *testing.T, options agentsim.Options, sessions int, answer http.HandlerFunc) (*killRig, []string) {
	t.Helper()
	dir := t.TempDir()
	r := &killRig{sim: agentsim.New(options), service: newService(t, answer)}
	api := httptest.NewServer(r.sim)
	t.Cleanup(api.Close)
	t.Cleanup(r.sim.Close)
	routes := filepath.Join(dir, "routes.yaml")
	table := fmt.Sprintf("version: 1\nroutes:\n  pay: %s/pay\n  look: {url: %s/look, idempotent: true}\n", r.service.URL, r.service.URL)
	if err := os.WriteFile(routes, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	ids := make([]string, sessions)
	for i := range ids {
		ids[i] = r.sim.CreateSession(agentsim.SessionSpec{})
	}
	r.env = []string{
		"OPENAI_API_KEY=test", "OPENAI_BASE_URL=" + api.URL + "/v1", "BRIDGE_ROUTES=" + routes,
		"BRIDGE_DATABASE_URL=sqlite:" + filepath.Join(dir, "bridge.db"), "BRIDGE_ADDR=127.0.0.1:0", "BRIDGE_ADMIN_ADDR=off",
		"BRIDGE_SESSIONS=" + strings.Join(ids, ","), "BRIDGE_RESYNC_INTERVAL=1s", "BRIDGE_API_RATE=1000",
	}
	return r, ids
}

// inNoTime answers as services do, which take their time.
func inNoTime(w http.ResponseWriter, req *http.Request) {
	<-time.After(rand.N(20 * time.Millisecond))
	ok(w, req)
}

// sent counts what the service got of each call, by idempotency key.
func (r *killRig) sent(path string) map[string]int {
	counts := map[string]int{}
	for _, request := range r.service.received(path) {
		counts[request.key]++
	}
	return counts
}

func TestKilledBridgeLosesNoCallAndRepeatsNoSideEffect(t *testing.T) {
	t.Parallel()
	kills := 50
	if testing.Short() {
		kills = 5
	}
	for name, options := range agentsim.Positions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, ids := newKillRig(t, options, 4, inNoTime)
			turns := make([]string, len(ids))
			const steps = 40
			for i, id := range ids {
				var script []agentsim.Step
				for range steps {
					script = append(script, agentsim.Step{agentsim.Call("pay", `{"cents":1}`), agentsim.Call("look", `{"id":1}`)})
				}
				turns[i] = r.sim.Play(id, script...)
			}
			for range kills {
				p := startProcess(t, r.env...)
				<-time.After(100*time.Millisecond + rand.N(300*time.Millisecond)) // real processes live in real time
				p.kill(t)
			}
			p := startProcess(t, r.env...)
			defer p.kill(t)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			for i, id := range ids {
				if status, err := r.sim.WaitTurn(ctx, id, turns[i]); err != nil || status != "completed" {
					t.Fatalf("turn of %s is %q (%v), pending %v\n%s", id, status, err, r.sim.Pending(id), p.logs.String())
				}
			}
			r.check(t, ids, steps)
		})
	}
}

// check demands an answer for every call, and that no call of pay was sent twice.
func (r *killRig) check(t *testing.T, ids []string, steps int) {
	t.Helper()
	for _, id := range ids {
		if n := len(r.sim.Results(id)); n != 2*steps {
			t.Errorf("%s has %d results, want %d", id, n, 2*steps)
		}
	}
	for key, n := range r.sent("/pay") {
		if n > 1 {
			t.Errorf("the side effect %s was sent %d times", key, n)
		}
	}
	unknown := 0
	for _, id := range ids {
		for _, result := range r.sim.Results(id) {
			if !result.Success {
				unknown++
			}
		}
	}
	t.Logf("%d pay and %d look requests, %d calls answered with an unknown outcome", len(r.service.received("/pay")), len(r.service.received("/look")), unknown)
}

// A call that ends the process whenever it is sent is not sent for ever.
func TestCallThatBringsTheBridgeDownIsGivenUp(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 10)
	r, ids := newKillRig(t, agentsim.Kind(), 1, func(_ http.ResponseWriter, req *http.Request) {
		arrived <- struct{}{}
		<-req.Context().Done()
	})
	turn := r.sim.Play(ids[0], agentsim.Step{agentsim.Call("look", `{}`).WithID("c1")})
	for range 3 {
		p := startProcess(t, r.env...)
		<-arrived
		<-time.After(500 * time.Millisecond) // the first process sends ahead of its row, which a crash may lose
		p.kill(t)
	}
	p := startProcess(t, r.env...)
	defer p.kill(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if status, err := r.sim.WaitTurn(ctx, ids[0], turn); err != nil || status != "completed" {
		t.Fatalf("the turn is %q (%v)\n%s", status, err, p.logs.String())
	}
	results := r.sim.Results(ids[0])
	if len(results) != 1 || results[0].Success || !strings.Contains(results[0].Error, "the bridge failed three times while it ran") {
		t.Errorf("the agent got %+v", results)
	}
	if n := len(r.service.received("/look")); n != 3 {
		t.Errorf("the service got the call %d times, want 3", n)
	}
}
