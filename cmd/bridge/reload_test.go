package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"functionbridge/internal/admin"
	"functionbridge/internal/agentsim"
	"functionbridge/internal/router"
)

func tableFor(function string) []byte {
	return []byte("version: 1\nroutes:\n  " + function + ": http://service/" + function + "\n")
}

// watched starts to watch a table, and stops when the test ends.
func watched(t *testing.T, path string) *liveTable {
	t.Helper()
	l := &liveTable{path: path, log: slog.New(slog.NewTextHandler(testWriter{t}, nil)), reloads: admin.NewReloads(prometheus.NewRegistry())}
	seen := signature(path)
	if err := l.start(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { l.watch(ctx, seen) })
	t.Cleanup(func() { stop(); watching.Wait() })
	return l
}

// wantFunction demands that the table in force has the function.
func (l *liveTable) wantFunction(t *testing.T, function string) {
	t.Helper()
	if _, ok := l.Load().Lookup(function); !ok {
		t.Errorf("the table in force has no %s, only %v", function, l.Load().Routes()[0].Name)
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// However a file changes, its new content is in force within seconds, and until
// it is whole and right the table before stays.
func TestChangedTableIsTaken(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, dir, path string){
		"written in place": func(t *testing.T, _, path string) {
			t.Helper()
			write(t, path, tableFor("second"))
		},
		"renamed over": func(t *testing.T, dir, path string) {
			t.Helper()
			write(t, filepath.Join(dir, "new"), tableFor("second"))
			must(t, os.Rename(filepath.Join(dir, "new"), path))
		},
		"removed and made again": func(t *testing.T, _, path string) {
			t.Helper()
			must(t, os.Remove(path))
			pass(300 * time.Millisecond)
			write(t, path, tableFor("second"))
		},
		"removed for a while": func(t *testing.T, _, path string) {
			t.Helper()
			must(t, os.Remove(path))
			pass(time.Minute)
			write(t, path, tableFor("second"))
		},
		"emptied and then written": func(t *testing.T, _, path string) {
			t.Helper()
			must(t, os.Truncate(path, 0))
			pass(time.Minute)
			write(t, path, tableFor("second"))
		},
		"broken and then mended": func(t *testing.T, _, path string) {
			t.Helper()
			write(t, path, []byte("version: 1\nroutes:\n  second: not a url\n"))
			pass(time.Minute)
			write(t, path, tableFor("second"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, "routes.yaml")
				write(t, path, tableFor("first"))
				l := watched(t, path)
				change(t, dir, path)
				l.wantFunction(t, "first")
				pass(2 * time.Second)
				l.wantFunction(t, "second")
				if _, lastError := l.reloads.Status(); lastError != "" {
					t.Errorf("the last error stays: %s", lastError)
				}
			})
		})
	}
}

// A table that grows while it is written is valid before it is whole.
func TestHalfWrittenTableIsNotTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "routes.yaml")
		write(t, path, tableFor("first"))
		l := watched(t, path)
		f, err := os.Create(path)
		must(t, err)
		for i := range 20 {
			text := fmt.Sprintf("  part_%d: http://service/\n", i)
			if i == 0 {
				text = "version: 1\nroutes:\n" + text
			}
			_, err := f.WriteString(text)
			must(t, err)
			pass(200 * time.Millisecond)
			l.wantFunction(t, "first")
		}
		must(t, f.Close())
		pass(2 * time.Second)
		l.wantFunction(t, "part_19")
		if n := len(l.Load().Routes()); n != 20 {
			t.Errorf("the table in force has %d routes, want 20", n)
		}
	})
}

// Kubernetes swaps the link of a mounted ConfigMap and leaves the file alone.
func TestSwappedLinkOfAConfigMapIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		swap := func(name, function string) {
			must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
			write(t, filepath.Join(dir, name, "routes.yaml"), tableFor(function))
			must(t, os.Symlink(name, filepath.Join(dir, "..data_tmp")))
			must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		}
		swap("..1", "first")
		must(t, os.Symlink(filepath.Join("..data", "routes.yaml"), filepath.Join(dir, "routes.yaml")))
		asFile, asDirectory := watched(t, filepath.Join(dir, "routes.yaml")), watched(t, dir)
		for i, function := range []string{"second", "third_", "fourth"} {
			swap(fmt.Sprint("..", i+2), function)
			pass(2 * time.Second)
			asFile.wantFunction(t, function)
			asDirectory.wantFunction(t, function)
		}
	})
}

func TestFilesOfADirectoryComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "a.yaml"), tableFor("first"))
		l := watched(t, dir)
		write(t, filepath.Join(dir, "b.yaml"), tableFor("second"))
		write(t, filepath.Join(dir, ".b.yaml.swp"), []byte("not a table"))
		pass(2 * time.Second)
		l.wantFunction(t, "first")
		l.wantFunction(t, "second")
		must(t, os.Remove(filepath.Join(dir, "a.yaml")))
		pass(2 * time.Second)
		if _, ok := l.Load().Lookup("first"); ok {
			t.Error("the routes of a removed file stay")
		}
		must(t, os.Remove(filepath.Join(dir, "b.yaml")))
		pass(time.Minute)
		l.wantFunction(t, "second")
		if _, lastError := l.reloads.Status(); !strings.Contains(lastError, "no *.yaml file") {
			t.Errorf("the last error is %q", lastError)
		}
	})
}

// What is read over and over is logged and counted once.
func TestRefusedTableIsSaidOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "routes.yaml")
		write(t, path, tableFor("first"))
		registry := prometheus.NewRegistry()
		var logs lockedBuffer
		l := &liveTable{path: path, log: slog.New(slog.NewTextHandler(&logs, nil)), reloads: admin.NewReloads(registry)}
		must(t, l.start())
		ctx, stop := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { l.watch(ctx, signature(path)) })
		synctest.Wait()
		write(t, path, []byte("version: 1\nroutes:\n  a: b\n  c: d\n"))
		pass(time.Hour)
		stop()
		watching.Wait()
		if n := strings.Count(logs.String(), "the route table was not taken"); n != 1 {
			t.Errorf("it is logged %d times in an hour, want once:\n%s", n, logs.String())
		}
		families, err := registry.Gather()
		must(t, err)
		if text := strings.Join(strings.Fields(fmt.Sprint(families)), " "); !strings.Contains(text, `value:"failure"} counter:{value:1 `) {
			t.Errorf("the failures are not counted once: %s", text)
		}
	})
}

func TestOperatorReloadsTheTable(t *testing.T) {
	t.Parallel()
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	o := newOperator(t, b.daemon)
	before := o.get(t, "/admin/routes").want(t, http.StatusOK).decode(t)
	same := o.post(t, "/admin/routes/reload", ``).want(t, http.StatusOK).decode(t)
	if same["revision"] != before["revision"] {
		t.Errorf("the same files have the revision %v and then %v", before["revision"], same["revision"])
	}
	path := filepath.Join(b.dir, "routes.yaml")
	write(t, path, []byte("version: 1\nroutes:\n  a: \"x\"\n  b: { url: \"http://h/\", methd: GET }\n"))
	refused := o.post(t, "/admin/routes/reload", ``).want(t, http.StatusUnprocessableEntity)
	var answer struct{ Problems []router.Problem }
	must(t, json.Unmarshal(refused.body, &answer))
	if len(answer.Problems) != 2 || answer.Problems[1].Line != 4 || answer.Problems[1].File != path {
		t.Errorf("the problems are %+v", answer.Problems)
	}
	after := o.get(t, "/admin/routes").want(t, http.StatusOK).decode(t)
	if after["revision"] != before["revision"] || !strings.Contains(fmt.Sprint(after["last_reload_error"]), "methd") {
		t.Errorf("after a refused table there is %v with the error %v", after["revision"], after["last_reload_error"])
	}
	must(t, os.Remove(path))
	o.post(t, "/admin/routes/reload", ``).want(t, http.StatusUnprocessableEntity)
	write(t, path, tableFor("second"))
	taken := o.post(t, "/admin/routes/reload", ``).want(t, http.StatusOK).decode(t)
	after = o.get(t, "/admin/routes").want(t, http.StatusOK).decode(t)
	if taken["revision"] != after["revision"] || after["revision"] == before["revision"] || after["last_reload_error"] != nil {
		t.Errorf("taken is %v, in force %v with the error %v", taken["revision"], after["revision"], after["last_reload_error"])
	}
}

func TestHangupReloadsTheTable(t *testing.T) {
	t.Parallel()
	r := newServeRig(t)
	p := startServe(t, r.env...)
	must(t, p.cmd.Process.Signal(syscall.SIGHUP))
	p.logs.waitFor(t, "the route table has not changed")
	turn := r.sim.Play(r.session, agentsim.Step{agentsim.Call("quick", `{}`)})
	if status, err := r.sim.WaitTurn(t.Context(), r.session, turn); err != nil || status != "completed" {
		t.Errorf("after a hangup the turn is %s (%v)", status, err)
	}
	if code := p.signalAndWait(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// A thousand tables one after the other, some bad, some half written, while calls
// run: each call is answered, and all its attempts go where its first one went.
func TestReloadsUnderLoadCostNoCall(t *testing.T) {
	t.Parallel()
	attempts := &attemptLog{paths: map[string][]string{}}
	b := startBridge(t, agentsim.Kind(), "version: 1\nroutes:\n  look: {url: SERVICE/0, idempotent: true}\n", attempts.answer, func(s *settings) { s.LogLevel = slog.LevelError })
	o := newOperator(t, b.daemon)
	path := filepath.Join(b.dir, "routes.yaml")
	const sessions, steps, calls = 4, 60, 4
	ids, turns := make([]string, sessions), make([]string, sessions)
	for i := range ids {
		ids[i] = b.sim.CreateSession(agentsim.SessionSpec{})
		o.post(t, "/admin/sessions", `{"session_id":"`+ids[i]+`"}`).want(t, http.StatusOK)
		var script []agentsim.Step
		for range steps {
			var step agentsim.Step
			for range calls {
				step = append(step, agentsim.Call("look", `{}`))
			}
			script = append(script, step)
		}
		turns[i] = b.sim.Play(ids[i], script...)
	}
	refused := 0
	for i := range 1000 {
		good := fmt.Sprintf("version: 1\nroutes:\n  look: {url: %s/%d, idempotent: true, retry: {min_wait: 1ms, max_wait: 5ms}}\n", b.service.URL, i)
		switch {
		case i%10 == 3:
			good = good[:len(good)/2]
		case i%20 == 7:
			good = ""
		}
		write(t, path, []byte(good))
		if _, err := b.daemon.table.Reload(); err != nil {
			refused++
		}
	}
	if refused < 100 {
		t.Errorf("%d tables were refused, want at least 100", refused)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i, id := range ids {
		if status, err := b.sim.WaitTurn(ctx, id, turns[i]); err != nil || status != "completed" {
			t.Fatalf("turn of %s is %q (%v)", id, status, err)
		}
		results := b.sim.Results(id)
		if len(results) != steps*calls {
			t.Errorf("%s has %d results, want %d", id, len(results), steps*calls)
		}
		for _, r := range results {
			if !r.Success {
				t.Errorf("a call failed: %s", r.Error)
			}
		}
	}
	attempts.check(t, sessions*steps*calls)
}

// attemptLog fails the first attempt at each call, and remembers where each went.
type attemptLog struct {
	mu    sync.Mutex
	paths map[string][]string
}

func (a *attemptLog) answer(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	a.mu.Lock()
	a.paths[key] = append(a.paths[key], r.URL.Path)
	first := len(a.paths[key]) == 1
	a.mu.Unlock()
	if first {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	ok(w, r)
}

func (a *attemptLog) check(t *testing.T, calls int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	tables := map[string]bool{}
	for key, paths := range a.paths {
		tables[paths[0]] = true
		if len(paths) != 2 || paths[0] != paths[1] {
			t.Errorf("the attempts at %s went to %v, want twice to one place", key, paths)
		}
	}
	if len(a.paths) != calls || len(tables) < 10 {
		t.Errorf("%d calls under %d tables, want %d under many", len(a.paths), len(tables), calls)
	}
}
