package main

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"functionbridge/internal/agentsim"
)

func TestUnknownCommandsAndFlagsAreBadUsage(t *testing.T) {
	t.Parallel()
	lines := map[string]string{
		"help nope":       "bridge: unknown command \"nope\"; `bridge --help` lists the commands\n",
		"serv":            "bridge: unknown command \"serv\": did you mean serve? `bridge --help` lists the commands\n",
		"frobnicate":      "bridge: unknown command \"frobnicate\"; `bridge --help` lists the commands\n",
		"help tool":       "bridge: unknown command \"tool\": did you mean tools? `bridge --help` lists the commands\n",
		"demo surplus":    "bridge: bridge demo takes no arguments, got \"surplus\"; see `bridge demo --help`\n",
		"call":            "bridge: NAME is missing: bridge call NAME [ARGS]; see `bridge call --help`\n",
		"call f { }":      "bridge: bridge call NAME [ARGS] takes two arguments, got 3: put ARGS in single quotes; see `bridge call --help`\n",
		"--verbose":       "bridge: unknown flag: --verbose; `bridge --help` shows the flags\n",
		"demo --stai":     "bridge: unknown flag: --stai; `bridge demo --help` shows the flags\n",
		"call --metadata": "bridge: flag needs an argument: --metadata; `bridge call --help` shows the flags\n",
	}
	for _, cmd := range newRootCmd(t.Context()).Commands() {
		lines[cmd.Name()+" --nonsense"] = "bridge: unknown flag: --nonsense; `bridge " + cmd.Name() + " --help` shows the flags\n"
	}
	for line, want := range lines {
		if code, out, errOut := command(t, "", strings.Fields(line)...); code != 2 || out != "" || errOut != want {
			t.Errorf("bridge %s: exit code %d, printed %q and %q, want 2 and %q", line, code, out, errOut, want)
		}
	}
}

func TestCommandsThatTakeNoArgumentsSaySo(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"serve", "tools", "demo", "simulate", "health", "version"} {
		code, out, errOut := command(t, "", name, "surplus")
		if code != 2 || out != "" || strings.Count(errOut, "\n") != 1 || !strings.Contains(errOut, `"surplus"`) || !strings.Contains(errOut, "`bridge "+name+" --help`") {
			t.Errorf("bridge %s surplus: exit code %d, printed %q and %q", name, code, out, errOut)
		}
	}
}

func TestEveryCommandHelpsWithAnExample(t *testing.T) {
	t.Parallel()
	commands := newRootCmd(t.Context()).Commands()
	if len(commands) < 8 {
		t.Errorf("there are %d commands", len(commands))
	}
	for _, cmd := range commands {
		code, out, errOut := command(t, "", cmd.Name(), "--help")
		_, examples, found := strings.Cut(out, "\nExamples:\n")
		if code != 0 || errOut != "" || !found || !strings.Contains(examples, "bridge "+cmd.Name()) {
			t.Errorf("bridge %s --help: exit code %d, %q, without an example:\n%s", cmd.Name(), code, errOut, out)
		}
	}
	code, out, _ := command(t, "", []string{}...) // nil would be the arguments of the test binary
	if code != 0 || !strings.Contains(out, "\nExamples:\n") || !strings.Contains(out, "  serve ") {
		t.Errorf("bridge: exit code %d\n%s", code, out)
	}
}

func TestVersionNamesTheProgram(t *testing.T) {
	t.Parallel()
	code, out, _ := command(t, "", "version")
	if code != 0 || !strings.HasPrefix(out, "functionbridge "+version+", commit ") || !strings.Contains(out, ", go1.") || strings.Count(out, "\n") != 1 {
		t.Errorf("exit code %d, %q", code, out)
	}
	if code, flag, errOut := command(t, "", "--version"); code != 0 || flag != out || errOut != "" {
		t.Errorf("--version: exit code %d, %q and %q; want %q", code, flag, errOut, out)
	}
}

// serving is `bridge serve` in a process of its own, whose log can be watched.
type serving struct {
	cmd   *exec.Cmd
	logs  *waitingWriter
	ended chan struct{}
	addr  string
}

// startServe starts the program with these variables and waits until it serves.
func startServe(t *testing.T, env ...string) *serving {
	t.Helper()
	p := launchServe(t, env...)
	p.addr = p.logs.waitFor(t, `"msg":"bridge started".*?"addr":"([^"]+)"`)[1]
	return p
}

// launchServe starts the program on free ports.
func launchServe(t *testing.T, env ...string) *serving {
	t.Helper()
	p := &serving{cmd: exec.Command(os.Args[0], "serve"), logs: &waitingWriter{}, ended: make(chan struct{})}
	p.cmd.Env = slices.DeleteFunc(os.Environ(), isSetting) //nolint:forbidigo // the child's environment
	p.cmd.Env = append(p.cmd.Env, "BRIDGE_ADDR=127.0.0.1:0", "BRIDGE_ADMIN_ADDR=127.0.0.1:0", "BRIDGE_LOG_FORMAT=json", asBridge+"=1")
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stdout, p.cmd.Stderr = p.logs, p.logs
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// wait waits for the end and gives the exit code.
func (p *serving) wait(t *testing.T) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(30 * time.Second):
		t.Fatalf("the bridge does not end:\n%s", p.logs.String())
		return -1
	}
}

func (p *serving) signal(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("%v\n%s", err, p.logs.String())
	}
}

func (p *serving) signalAndWait(t *testing.T) int {
	t.Helper()
	p.signal(t)
	return p.wait(t)
}

// serveRig is what a bridge of a process of its own needs: a table with one
// slow and one quick function, an API, and the variables that name them.
type serveRig struct {
	sim     *agentsim.Sim
	service *service
	session string
	dir     string
	env     []string
	// release lets the slow function's requests go on.
	release chan struct{}
}

func newServeRig(t *testing.T) *serveRig {
	t.Helper()
	r := &serveRig{sim: agentsim.New(agentsim.Kind()), dir: t.TempDir(), release: make(chan struct{})}
	r.service = newService(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			select {
			case <-r.release:
			case <-req.Context().Done():
				return
			}
		}
		ok(w, req)
	})
	api := newService(t, r.sim.ServeHTTP)
	t.Cleanup(r.sim.Close)
	r.session = r.sim.CreateSession(agentsim.SessionSpec{})
	routes := filepath.Join(r.dir, "routes.yaml")
	table := "version: 1\nroutes:\n  slow: " + r.service.URL + "/slow\n  quick: " + r.service.URL + "/quick\n"
	if err := os.WriteFile(routes, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	r.env = []string{
		"OPENAI_API_KEY=test", "OPENAI_BASE_URL=" + api.URL + "/v1", "BRIDGE_ROUTES=" + routes, "BRIDGE_SESSIONS=" + r.session,
		"BRIDGE_DATABASE_URL=sqlite:" + filepath.Join(r.dir, "bridge.db"),
	}
	return r
}

// waitRequests waits until the service was asked for a path so many times.
func (r *serveRig) waitRequests(t *testing.T, path string, n int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for len(r.service.received(path)) < n {
		if time.Now().After(deadline) {
			t.Fatalf("the service got %d requests for %s, want %d", len(r.service.received(path)), path, n)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestServeDrainsOnTheFirstSignal(t *testing.T) {
	t.Parallel()
	r := newServeRig(t)
	p := startServe(t, r.env...)
	turn := r.sim.Play(r.session, agentsim.Step{agentsim.Call("slow", `{"n":1}`).WithID("call_slow")}, agentsim.Step{agentsim.Call("quick", `{}`)})
	r.waitRequests(t, "/slow", 1)
	p.signal(t)
	p.logs.waitFor(t, `"msg":"draining"`)
	close(r.release)
	if code := p.wait(t); code != 0 || !strings.Contains(p.logs.String(), `"msg":"bridge stopped"`) {
		t.Errorf("exit code %d, want 0\n%s", code, p.logs.String())
	}
	results := r.sim.Results(r.session)
	if len(results) != 1 || !results[0].Success || results[0].CallID != "call_slow" {
		t.Errorf("results after the drain are %+v, want that of the call in flight", results)
	}
	if n := len(r.service.received("/quick")); n != 0 {
		t.Errorf("the next step's call was sent %d times during the drain, want it left", n)
	}
	next := startServe(t, r.env...)
	if status, err := r.sim.WaitTurn(t.Context(), r.session, turn); err != nil || status != "completed" {
		t.Errorf("the next process leaves the turn %s (%v)", status, err)
	}
	if n := len(r.service.received("/slow")); n != 1 {
		t.Errorf("the call in flight was sent %d times, want once", n)
	}
	if code := next.signalAndWait(t); code != 0 {
		t.Errorf("exit code %d of an idle bridge, want 0", code)
	}
}

func TestSecondSignalCutsTheDrainShort(t *testing.T) {
	t.Parallel()
	r := newServeRig(t)
	p := startServe(t, append(r.env, "BRIDGE_DRAIN_TIMEOUT=10m")...)
	turn := r.sim.Play(r.session, agentsim.Step{agentsim.Call("slow", `{}`).WithID("call_slow")})
	r.waitRequests(t, "/slow", 1)
	p.signal(t)
	p.logs.waitFor(t, `"msg":"draining"`)
	select {
	case <-p.ended:
		t.Fatalf("the first signal did not wait for the call in flight\n%s", p.logs.String())
	case <-time.After(300 * time.Millisecond): // real processes live in real time
	}
	if code := p.signalAndWait(t); code != 0 || !strings.Contains(p.logs.String(), "stopping with calls in flight") {
		t.Errorf("exit code %d, want 0 and a warning\n%s", code, p.logs.String())
	}
	startServe(t, r.env...)
	if status, err := r.sim.WaitTurn(t.Context(), r.session, turn); err != nil || status != "completed" {
		t.Fatalf("the next process leaves the turn %s (%v)", status, err)
	}
	results := r.sim.Results(r.session)
	if len(results) != 1 || results[0].Success || !strings.HasPrefix(results[0].Error, "It is not known whether slow was carried out") {
		t.Errorf("results are %+v, want an unknown outcome", results)
	}
	if n := len(r.service.received("/slow")); n != 1 {
		t.Errorf("the call was sent %d times, want once", n)
	}
}

func TestSecondServeOnAJournalNamesTheFirst(t *testing.T) {
	t.Parallel()
	r := newServeRig(t)
	first := startServe(t, r.env...)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	second := launchServe(t, r.env...)
	code, printed := second.wait(t), second.logs.String()
	if code != 1 || !strings.Contains(printed, "process "+strconv.Itoa(first.cmd.Process.Pid)+" on host "+host+" holds it (lock ") ||
		!strings.Contains(printed, "stop that one, or use another journal\n") {
		t.Errorf("exit code %d, printed %s; want 1 and the holder", code, printed)
	}
	if code := first.signalAndWait(t); code != 0 {
		t.Errorf("the first one ended with %d", code)
	}
	third := startServe(t, r.env...)
	if code := third.signalAndWait(t); code != 0 {
		t.Errorf("the next one ended with %d, want the lock to be free", code)
	}
}

func TestAddressInUseIsNamedWithItsSetting(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	for _, setting := range []string{"BRIDGE_ADDR", "BRIDGE_ADMIN_ADDR", "BRIDGE_METRICS_ADDR"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			r := newServeRig(t)
			p := launchServe(t, append(r.env, setting+"="+taken.Addr().String())...)
			code, printed := p.wait(t), p.logs.String()
			if line := "bridge: " + setting + ": cannot listen on " + taken.Addr().String() + ": "; code != 1 || !strings.Contains(printed, line) ||
				!strings.Contains(printed, "address already in use") {
				t.Errorf("exit code %d, printed %s; want 1 and %q", code, printed, line)
			}
		})
	}
}

func TestServeRefusesATableWithMistakesAndNamesAll(t *testing.T) {
	t.Parallel()
	r := newServeRig(t)
	routes := filepath.Join(r.dir, "bad.yaml")
	if err := os.WriteFile(routes, []byte("version: 1\nroutes:\n  f: {url: \"http://h/\", timout: 5s}\n  g: nowhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launchServe(t, append(r.env, "BRIDGE_ROUTES="+routes)...)
	code, printed := p.wait(t), p.logs.String()
	want := "bridge: " + routes + ":3:25: routes.f.timout: unknown key (did you mean timeout?)\nbridge: " + routes +
		":4:6: routes.g: bad URL: must begin with http:// or https:// and a host\n"
	if code != 2 || printed != want {
		t.Errorf("exit code %d, printed\n%swant 2 and\n%s", code, printed, want)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "bridge.db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a journal was made (%v)", err)
	}
}

// What is odd in a table is logged once, at the start; what matters to tools alone is
// not.
func TestServeLogsTheWarningsOfItsTableOnce(t *testing.T) {
	t.Parallel()
	r := newServeRig(t)
	routes := filepath.Join(r.dir, "odd.yaml")
	if err := os.WriteFile(routes, []byte("version: 1\nroutes:\n  f: {url: \"http://h/:id\", description: x}\n  g: http://h/\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startServe(t, append(r.env, "BRIDGE_ROUTES="+routes)...)
	p.signal(t)
	code, printed := p.wait(t), p.logs.String()
	want := `"msg":"check the route table","warning":"` + routes + `:3:12: routes.f.url: :id is sent as it stands; write {id}"`
	if code != 0 || strings.Count(printed, want) != 1 || strings.Count(printed, "odd.yaml:") != 1 {
		t.Errorf("exit code %d, printed\n%swant once\n%s", code, printed, want)
	}
}

func TestServeWithoutATableSaysSo(t *testing.T) {
	t.Parallel()
	r := newServeRig(t)
	p := launchServe(t, append(r.env, "BRIDGE_ROUTES="+filepath.Join(r.dir, "none.yaml"))...)
	if code, printed := p.wait(t), p.logs.String(); code != 2 || !strings.HasSuffix(printed, "none.yaml: no such file or directory; set BRIDGE_ROUTES to where it is\n") {
		t.Errorf("exit code %d, printed %s", code, printed)
	}
}
