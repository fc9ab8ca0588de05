package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"functionbridge/internal/agentsim"
)

// TestMain lets the test program be the service that chaos starts of itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == partUpstream {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestWholeAttackIsPassedByTheBridge(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the bridge and lives in real time")
	}
	dir := t.TempDir()
	var out bytes.Buffer
	err := run(t.Context(), []string{"-kills=6", "-calls=200", "-sessions=10", "-between=600ms", "-dir=" + dir}, nil, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	totals := lines[len(lines)-1]
	for _, want := range []string{"chaos seed=1 calls=200 non_idempotent=72 ", " unanswered=0 ", " doubled=0 ", " keys_changed=0 "} {
		if !strings.Contains(totals, want) {
			t.Errorf("%q is missing in %s", want, totals)
		}
	}
	if strings.Contains(totals, "in_flight_at_kills=0 ") || strings.Contains(totals, " kills=0 ") {
		t.Errorf("no kill met a call: %s", totals)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind %v (%v)", left, err)
	}
}

func TestBridgeThatEndsByItselfFailsTheRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := dir + "/bridge"
	text := "#!/bin/sh\n[ $1 = simulate ] && echo 'listens on http://127.0.0.1:1' && sleep 60\necho 'no such route' >&2\nexit 2\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := start(dir+"/bridge.log", false, nil, script, "serve")
	if err != nil {
		t.Fatal(err)
	}
	defer p.clear()
	r := &rig{}
	if err := r.await(t.Context(), p, time.Now().Add(time.Minute)); err == nil || !strings.Contains(err.Error(), "it ended by itself: exit status 2\nno such route") {
		t.Errorf("got %v", err)
	}
	if err := p.kill(); err == nil {
		t.Error("a process that ended by itself counts as killed")
	}
}

// clean is what simulator and service saw of a run without faults: a read, a payment and a payment that a kill met.
func clean() evidence {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	call := func(n int, name string, arrived time.Time, success bool) agentsim.MadeCall {
		id := fmt.Sprintf("c%d", n)
		r := &agentsim.Result{CallID: id, Success: success, At: arrived}
		if success {
			r.Output = []byte(quote(replyTo(n)))
		} else {
			r.Error = "It is not known whether it was carried out."
		}
		return agentsim.MadeCall{
			SessionID: "s", TurnID: "t", CallID: id, Name: name, Arguments: fmt.Sprintf(`{ "n":%d,"ms":1}`, n),
			Result: r, Posts: []agentsim.Post{{BodyHash: uint64(n)}},
		}
	}
	e := evidence{
		issued: 3,
		calls: []agentsim.MadeCall{
			call(1, "look", at(200), true), call(2, "pay", at(300), true), call(3, "ship", at(1100), false),
		},
		upstream: record{Calls: map[string]*seen{}},
		lives: []life{
			{started: began, end: kill, ended: at(1000), inFlight: 1},
			{started: at(1010), end: stop, ended: at(2000), frozen: at(1500)},
			{started: at(2010)},
		},
	}
	for i, c := range e.calls {
		e.upstream.Calls["s/t/"+c.CallID] = &seen{Key: fmt.Sprintf("k%d", i), Body: digest([]byte(c.Arguments)), Requests: 1, Works: 1}
	}
	e.upstream.Calls["s/t/c3"].Severed = 1
	return e
}

func TestCleanRunIsGreenAndCounted(t *testing.T) {
	t.Parallel()
	v := judge(clean())
	if len(v.problems) > 0 {
		t.Errorf("problems: %v", v.problems)
	}
	line := v.line(7, 5, 61*time.Second)
	const want = "chaos seed=7 calls=3 non_idempotent=2 long=1 kills=1 stops=1 freezes=1 faults=5 " +
		"unanswered=0 contradicted=0 doubled=0 keys_changed=0 keys_shared=0 arguments_changed=0 wrong=0 failed=0 " +
		"unknown=1 unfounded=0 in_flight_at_kills=1 replied_at_kills=0 unsent=0 repeated=0 reposted=0 recovered=0 " +
		"restart_to_answer_p50=90ms max=90ms took=1m1s"
	if line != want {
		t.Errorf("got  %s\nwant %s", line, want)
	}
}

// Whatever is not as it must be turns the verdict red, and is told with the call's id.
func TestEachBrokenPromiseTurnsTheVerdictRed(t *testing.T) {
	t.Parallel()
	failure := func(c *agentsim.MadeCall) {
		c.Result.Success, c.Result.Output, c.Result.Error = false, nil, "It failed."
	}
	for name, tt := range map[string]struct {
		break_ func(calls []agentsim.MadeCall, seen map[string]*seen, e *evidence)
		what   string
		call   string
	}{
		"an unanswered call": {func(calls []agentsim.MadeCall, _ map[string]*seen, _ *evidence) {
			calls[1].Result, calls[1].Posts = nil, nil
		}, "unanswered", "c2"},
		"a call that was never made": {func(_ []agentsim.MadeCall, _ map[string]*seen, e *evidence) {
			e.calls = e.calls[1:]
		}, "the agents made 2 calls of 3", ""},
		"a doubled request": {func(_ []agentsim.MadeCall, seen map[string]*seen, _ *evidence) {
			seen["s/t/c2"].Requests, seen["s/t/c2"].Works = 2, 2
		}, "the side effect was done twice", "c2"},
		"a changed key": {func(_ []agentsim.MadeCall, seen map[string]*seen, _ *evidence) {
			seen["s/t/c1"].Requests, seen["s/t/c1"].KeyChanges = 2, 1
		}, "the idempotency key changed", "c1"},
		"a missing key": {func(_ []agentsim.MadeCall, seen map[string]*seen, _ *evidence) {
			seen["s/t/c1"].Key = ""
		}, "the idempotency key changed", "c1"},
		"a key of two calls": {func(_ []agentsim.MadeCall, _ map[string]*seen, e *evidence) {
			e.upstream.SharedKeys = 1
		}, "1 idempotency keys came with several calls", ""},
		"arguments encoded anew": {func(_ []agentsim.MadeCall, seen map[string]*seen, _ *evidence) {
			seen["s/t/c1"].Body = digest([]byte(`{"n":1,"ms":1}`))
		}, "the arguments changed", "c1"},
		"arguments that change between requests": {func(_ []agentsim.MadeCall, seen map[string]*seen, _ *evidence) {
			seen["s/t/c1"].BodyChanges = 1
		}, "the arguments changed", "c1"},
		"two different results": {func(calls []agentsim.MadeCall, _ map[string]*seen, _ *evidence) {
			calls[0].Posts = append(calls[0].Posts, agentsim.Post{BodyHash: 99})
		}, "answered with different results", "c1"},
		"the result of another call": {func(calls []agentsim.MadeCall, _ map[string]*seen, _ *evidence) {
			calls[0].Result.Output = calls[1].Result.Output
		}, "the result is not the reply to this call", "c1"},
		"a failure of an idempotent call": {func(calls []agentsim.MadeCall, _ map[string]*seen, _ *evidence) {
			failure(&calls[0])
		}, "an idempotent call failed", "c1"},
		"an unknown outcome before the kill": {func(calls []agentsim.MadeCall, _ map[string]*seen, _ *evidence) {
			failure(&calls[1])
		}, "an unknown outcome without a kill", "c2"},
		"an unknown outcome after a stop": {func(_ []agentsim.MadeCall, seen map[string]*seen, _ *evidence) {
			seen["s/t/c3"].Life = 1
		}, "an unknown outcome without a kill", "c3"},
		"an unknown outcome of the last process": {func(_ []agentsim.MadeCall, seen map[string]*seen, _ *evidence) {
			seen["s/t/c3"].Life = 2
		}, "an unknown outcome without a kill", "c3"},
		"more unknown outcomes than calls in flight": {func(calls []agentsim.MadeCall, seen map[string]*seen, _ *evidence) {
			failure(&calls[1])
			delete(seen, "s/t/c2")
		}, "2 unknown outcomes, but only 1 side effects in flight at kills", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := clean()
			tt.break_(e.calls, e.upstream.Calls, &e)
			got := judge(e).problems
			if !slices.ContainsFunc(got, func(p problem) bool { return p.what == tt.what && p.call.CallID == tt.call }) {
				t.Errorf("got %v, want %q of %q", got, tt.what, tt.call)
			}
			for _, p := range got {
				if !strings.Contains(p.String(), p.call.CallID) {
					t.Errorf("the call's id is missing in %s", p)
				}
			}
		})
	}
}

func TestRepeatsThatAreAllowedAreCountedAndGreen(t *testing.T) {
	t.Parallel()
	e := clean()
	calls, seen := e.calls, e.upstream.Calls
	seen["s/t/c1"].Requests, seen["s/t/c1"].Works = 3, 3 // an idempotent call, after crashes
	calls[0].Posts = append(calls[0].Posts, calls[0].Posts[0])
	seen["s/t/c2"].Requests, seen["s/t/c2"].Recovered = 2, 1 // no work the first time
	calls[1].Result.At = e.lives[0].ended.Add(time.Millisecond)
	calls[2].Arguments = quote(calls[2].Arguments) // a text is the same call
	v := judge(e)
	if len(v.problems) > 0 || v.repeated != 1 || v.reposted != 1 || v.recovered != 1 || v.replied != 1 {
		t.Errorf("problems %v; repeated %d, reposted %d, recovered %d, replied %d", v.problems, v.repeated, v.reposted, v.recovered, v.replied)
	}
}

func TestRestartIsMeasuredUpToTheFirstResultOfThatProcess(t *testing.T) {
	t.Parallel()
	e := clean()
	e.calls[1].Result.At = e.lives[1].started.Add(inKernel / 2) // of the killed process
	e.calls[0].Result.At = e.lives[2].started.Add(40 * time.Millisecond)
	if got := restarts(e); !slices.Equal(got, []time.Duration{40 * time.Millisecond, 90 * time.Millisecond}) {
		t.Errorf("got %v", got)
	}
	e.lives[1].frozen = e.lives[1].started.Add(50 * time.Millisecond)
	if got := restarts(e); !slices.Equal(got, []time.Duration{40 * time.Millisecond}) {
		t.Errorf("with a freeze before the first result: %v", got)
	}
	e.lives[2].ended = e.lives[2].started.Add(10 * time.Millisecond)
	if got := restarts(e); len(got) != 0 {
		t.Errorf("with an end before the first result: %v", got)
	}
}

func TestProblemsAreToldWithTheBridgesLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	dir := t.TempDir()
	log := dir + "/bridge-000.log"
	if err := os.WriteFile(log, []byte("about c1\nabout c2\nnothing\nmore about c2"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := clean()
	e.lives[0].log, e.lives[1].log, e.lives[2].log = log, log, log
	e.calls[1].Result = nil
	r := &rig{dir: dir, out: &out, lives: e.lives, found: e}
	if err := r.conclude(); !errors.Is(err, errRed) {
		t.Errorf("got %v, want %v", err, errRed)
	}
	for _, want := range []string{"unanswered: pay c2\n", "bridge-000.log: about c2\n", "bridge-000.log: more about c2\n", dir, "\nchaos seed=0 calls=3 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	if all, err := os.ReadFile(dir + "/problems.txt"); err != nil || !strings.Contains(string(all), `"call_id":"c2"`) {
		t.Errorf("the file of problems holds %s (%v)", all, err)
	}
}

func TestSeedDecidesOnEverything(t *testing.T) {
	t.Parallel()
	o, err := parseFlags([]string{"-kills=40"})
	if err != nil {
		t.Fatal(err)
	}
	written := func(seed uint64) string {
		o.seed = seed
		var text strings.Builder
		fmt.Fprintf(&text, "%+v", makePlan(o))
		l := newLoad(o)
		for message, calls := l.turn(); calls > 0; message, calls = l.turn() {
			text.WriteString(message)
		}
		return text.String()
	}
	first, again, other := written(1), written(1), written(2)
	if first != again {
		t.Error("the same seed gives another attack")
	}
	if first == other {
		t.Error("another seed gives the same attack")
	}
}

func TestPlanHoldsEveryKindOfEnd(t *testing.T) {
	t.Parallel()
	o, err := parseFlags(nil)
	if err != nil {
		t.Fatal(err)
	}
	ends := map[ending]int{}
	frozen := 0
	for _, c := range makePlan(o).cycles {
		ends[c.end]++
		if c.freeze.lasts > 0 {
			frozen++
		}
		if c.end != kill && c.freeze.at+c.freeze.lasts > c.lasts {
			t.Errorf("a stop would not reach the frozen bridge: %+v", c)
		}
	}
	if ends[kill] != 100 || ends[stop] == 0 || ends[stopThenKill] == 0 || frozen < 20 {
		t.Errorf("ends %v, frozen %d", ends, frozen)
	}
}

func TestLoadHasItsShareOfSideEffectsThatOutlastTheBridge(t *testing.T) {
	t.Parallel()
	o, err := parseFlags(nil)
	if err != nil {
		t.Fatal(err)
	}
	l := newLoad(o)
	made, effects, long := 0, 0, 0
	for message, calls := l.turn(); calls > 0; message, calls = l.turn() {
		steps, say, err := agentsim.ParseMessage(message)
		if err != nil || say != "" {
			t.Fatalf("%q: %q, %v", message, say, err)
		}
		for _, step := range steps {
			for _, a := range step {
				made++
				var asked order
				if err := json.Unmarshal(plain(string(a.Arguments)), &asked); err != nil || asked.N != made {
					t.Fatalf("call %d: %s: %+v, %v", made, a.Arguments, asked, err)
				}
				if functionNamed(a.Name).idempotent {
					continue
				}
				effects++
				if time.Duration(asked.MS)*time.Millisecond > o.between*130/100 {
					long++
				}
			}
		}
	}
	if made != o.calls || effects*10 < made*3 || long*2 < effects {
		t.Errorf("%d calls of %d, %d side effects, %d of them long", made, o.calls, effects, long)
	}
}

func TestSimulatorTakesEveryFault(t *testing.T) {
	t.Parallel()
	sim := agentsim.New(agentsim.Kind())
	defer sim.Close()
	d := dice{seeded(1, randomAttack)}
	kinds := map[agentsim.FaultKind]bool{}
	for range 2000 {
		f := d.fault()
		kinds[f.Kind] = true
		body, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		sim.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/_sim/faults", bytes.NewReader(body)))
		if w.Code != http.StatusNoContent {
			t.Fatalf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	if len(kinds) < 19 {
		t.Errorf("only %d kinds of faults: %v", len(kinds), kinds)
	}
}

func TestFlagsRefuseWhatCannotBePlayed(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-kills=-1"}, {"-calls=0"}, {"-sessions=0"}, {"-between=1m"}, {"-mode=nice"}, {"-unknown"}, {"extra"}} {
		if _, err := parseFlags(args); !errors.As(err, new(usageError)) {
			t.Errorf("%v: got %v, want a usage error", args, err)
		}
	}
}
