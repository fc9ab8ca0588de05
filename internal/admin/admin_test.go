package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"functionbridge/internal/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPanicIsAProblemAndIsLogged(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	mux := chi.NewMux()
	mux.Use(Recover(slog.New(slog.NewTextHandler(&logs, nil))))
	mux.Get("/early", func(http.ResponseWriter, *http.Request) { panic("early fault") })
	mux.Get("/late", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half of an answer"))
		panic("late fault")
	})

	got := httptest.NewRecorder()
	mux.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "/early", http.NoBody))
	var p Problem
	if err := json.Unmarshal(got.Body.Bytes(), &p); err != nil || got.Code != 500 || p.Status != 500 || p.Detail == "" {
		t.Errorf("answered %d %s (%v)", got.Code, got.Body, err)
	}
	if strings.Contains(got.Body.String(), "early fault") || !strings.Contains(logs.String(), "early fault") {
		t.Errorf("the panic belongs into the log alone: %s / %s", got.Body, &logs)
	}
	broken := func() (caught any) {
		defer func() { caught = recover() }()
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/late", http.NoBody))
		return nil
	}()
	if err, _ := broken.(error); !errors.Is(err, http.ErrAbortHandler) || !strings.Contains(logs.String(), "late fault") {
		t.Errorf("an answer that has begun must be broken off, got %v", broken)
	}
}

// stuck is a disk that does not even listen to the context.
type stuck struct {
	free   chan struct{}
	probes atomic.Int32
}

func (s *stuck) Ready(context.Context) error {
	s.probes.Add(1)
	<-s.free
	return nil
}

type fineAPI struct{}

func (fineAPI) KeyRefused() bool { return false }
func (fineAPI) Degraded() bool   { return false }

func TestReadinessAnswersInTimeAndDoesNotPileUpProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := &stuck{free: make(chan struct{})}
		ready := &Readiness{
			Journal: disk, API: fineAPI{}, Logger: slog.New(slog.DiscardHandler),
			HasTable: func() bool { return true }, Draining: func() bool { return false },
		}
		ask := func() int {
			began := time.Now()
			w := httptest.NewRecorder()
			ready.Readyz(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody))
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("/readyz took %s", took)
			}
			return w.Code
		}
		for range 10 {
			var all sync.WaitGroup
			for range 10 {
				all.Go(func() {
					if code := ask(); code != http.StatusServiceUnavailable {
						t.Errorf("/readyz is %d while the disk is stuck", code)
					}
				})
			}
			all.Wait()
		}
		if n := disk.probes.Load(); n != 1 {
			t.Errorf("%d probes hang, want one", n)
		}
		close(disk.free)
		synctest.Wait()
		if code := ask(); code != http.StatusOK {
			t.Errorf("/readyz is %d after the disk came back", code)
		}
	})
}

func TestArgumentsAreShownAsTheFunctionGotThem(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		``: `{}`, ` `: `{}`, `null`: `{}`, `""`: `{}`, `"  "`: `{}`, `"null"`: `{}`,
		`{"n":9007199254740993,"x":1e400}`: `{"n":9007199254740993,"x":1e400}`,
		`"{\"a\": \"\\u00e9\"}"`:           `{"a": "\u00e9"}`,
		`"not JSON"`:                       `"not JSON"`,
		`"\"twice\""`:                      `"twice"`,
		`[1]`:                              `[1]`,
		"{\"a\":\"\xff\"}":                 `"{\"a\":\"\ufffd\"}"`,
		`{"a":1}{"b":2}`:                   `"{\"a\":1}{\"b\":2}"`,
	} {
		if got := strings.TrimSpace(string(viewArguments([]byte(raw)))); got != want {
			t.Errorf("%q is shown as %s, want %s", raw, got, want)
		}
	}
}

type fixedCounts struct{ oldest time.Time }

func (fixedCounts) Counts() map[journal.State]int64 {
	return map[journal.State]int64{journal.Running: 2, journal.Confirmed: 7}
}
func (f fixedCounts) OldestUnanswered() time.Time { return f.oldest }

func TestScrapeReadsTheJournalsNumbers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		RegisterMetrics(reg, fixedCounts{oldest: time.Now()}, Build{Version: "v1", Commit: "abc"})
		time.Sleep(90 * time.Second) // fake clock
		want := `
# HELP bridge_journal_calls Calls in the journal by state.
# TYPE bridge_journal_calls gauge
bridge_journal_calls{state="abandoned"} 0
bridge_journal_calls{state="answered"} 0
bridge_journal_calls{state="confirmed"} 7
bridge_journal_calls{state="in_doubt"} 0
bridge_journal_calls{state="pending"} 0
bridge_journal_calls{state="running"} 2
bridge_journal_calls{state="submitted"} 0
# HELP bridge_oldest_unanswered_seconds Age of the oldest call that waits for its outcome; 0 when none does.
# TYPE bridge_oldest_unanswered_seconds gauge
bridge_oldest_unanswered_seconds 90
`
		err := testutil.GatherAndCompare(reg, strings.NewReader(want), "bridge_journal_calls", "bridge_oldest_unanswered_seconds")
		if err != nil {
			t.Error(err)
		}
	})
}

func TestReloadsAreCountedAndTheLastErrorIsKept(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	r := NewReloads(reg)
	at := time.Unix(1_700_000_000, 500_000_000)
	r.Succeeded(at)
	r.Failed(errors.New("routes.yaml:1:1: bad"))
	if loaded, last := r.Status(); !loaded.Equal(at) || last != "routes.yaml:1:1: bad" {
		t.Errorf("status is %v %q", loaded, last)
	}
	want := `
# HELP bridge_routes_last_reload_timestamp_seconds When the route table in force was loaded, as Unix time.
# TYPE bridge_routes_last_reload_timestamp_seconds gauge
bridge_routes_last_reload_timestamp_seconds 1.7000000005e+09
# HELP bridge_routes_reloads_total Loads of the route table, the first one included, by outcome.
# TYPE bridge_routes_reloads_total counter
bridge_routes_reloads_total{outcome="failure"} 1
bridge_routes_reloads_total{outcome="success"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	r.Succeeded(at.Add(time.Second))
	if loaded, last := r.Status(); !loaded.Equal(at.Add(time.Second)) || last != "" {
		t.Errorf("status after a good reload is %v %q", loaded, last)
	}
}
