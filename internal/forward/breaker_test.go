package forward_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

// circuits are routes of one upstream, for which and for one of which more can be
// set. threeFailures open a circuit for half a minute.
const circuits = `defaults: { timeout: 300s, retry: { attempts: 1 } }
upstreams:
  u: { url: "http://u.test"%s }
routes:
  act: { upstream: u, path: /, method: GET, idempotent: true%s }
  other: { upstream: u, path: / }
`

const threeFailures = ", circuit_breaker: { failures: 3 }"

func circuitOf(where string) string {
	if where == "upstream" {
		return fmt.Sprintf(circuits, threeFailures, "")
	}
	return fmt.Sprintf(circuits, "", threeFailures)
}

// ill is a service that answers with a status, and late if it is told so.
type ill struct {
	*crowd

	status atomic.Int64
	lasts  atomic.Int64
}

func fallIll(t *testing.T, yaml string) *ill {
	t.Helper()
	s := &ill{}
	s.status.Store(200)
	c := &crowd{byFunction: map[string]*gauge{}}
	c.load(t, yaml)
	counted := c.handler(func(r *http.Request) { lasting(time.Duration(s.lasts.Load()))(r) })
	c.bubble = startBubble(t, "version: 1\n"+yaml, func(w http.ResponseWriter, r *http.Request) {
		status := int(s.status.Load())
		counted(w, r)
		w.WriteHeader(status)
	}, func(config *forward.Config) { config.MaxCalls, config.Table = 16, c.table })
	s.crowd = c
	return s
}

// asked is how many requests the service was sent.
func (s *ill) asked() int { return len(s.hitsAt()) }

// call makes a call of act, waits for its end and returns it.
func (s *ill) act(ctx context.Context) *ended {
	e := s.come(ctx, "act", "sess_1")
	s.calls.Wait()
	return e
}

// open makes the circuit open.
func (s *ill) open(t *testing.T) {
	t.Helper()
	s.status.Store(500)
	for range 3 {
		s.act(t.Context())
	}
	if e := s.act(t.Context()); e.sendings != 0 {
		t.Fatalf("the circuit is not open: %+v", e)
	}
}

func (s *ill) opened() bool { return strings.Contains(s.log.String(), `"msg":"circuit opened"`) }

const circuitSays = "act was not called, because its service has failed too often and is not tried for now. Try again after "

func pass(d time.Duration) {
	time.Sleep(d) // fake clock
	synctest.Wait()
}

// An open circuit answers every call at once, until it lets one probe through;
// the next half minute depends on it.
func TestAnOpenCircuitLetsOneProbeThrough(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"route", "upstream"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := fallIll(t, circuitOf(where))
				defer s.end()
				s.open(t)
				for _, after := range []struct{ pass, left time.Duration }{{0, 30}, {11 * time.Second, 19}, {18600 * time.Millisecond, 1}} {
					pass(after.pass)
					e := s.act(t.Context())
					if want := fmt.Sprintf("%s%d s.", circuitSays, after.left); e.Error != want || e.Failure != journal.Unavailable || e.took != 0 || e.sendings != 0 {
						t.Errorf("outcome = %+v, want %s", e, want)
					}
				}
				for range 2 { // probes that fail
					pass(30*time.Second - time.Since(s.began)%(30*time.Second))
					s.lasts.Store(int64(2 * time.Second))
					before := s.asked()
					all := s.inSession(t.Context(), 20, "act", "sess_1")
					if got := s.asked() - before; got != 1 {
						t.Errorf("%d probes, want one", got)
					}
					for _, e := range all[1:] {
						if e.Error != circuitSays+"5 s." || e.took != 0 {
							t.Errorf("beside the probe: %+v", e)
						}
					}
					s.calls.Wait()
					if e := s.act(t.Context()); all[0].Failure != journal.UpstreamError || e.Error != circuitSays+"30 s." {
						t.Errorf("after the probe %+v: %+v", all[0], e)
					}
					s.began = time.Now()
				}
				pass(30 * time.Second)
				s.status.Store(200)
				probe := s.come(t.Context(), "act", "sess_1")
				s.calls.Wait()
				for _, e := range s.inSession(t.Context(), 5, "act", "sess_1") {
					defer func() {
						if !e.Success {
							t.Errorf("after the probe: %+v", e)
						}
					}()
				}
				s.calls.Wait()
				if !probe.Success {
					t.Errorf("probe = %+v", probe)
				}
			})
		})
	}
}

// What counts as a failure is what the service did, not what the call was.
func TestWhichOutcomesOpenACircuit(t *testing.T) {
	t.Parallel()
	tests := map[int]bool{
		200: false, 400: false, 401: false, 404: false, 409: false, 418: false, 429: false,
		408: true, 425: true, 500: true, 501: true, 502: true, 503: true, 504: true,
	}
	for status, opens := range tests {
		for _, idempotent := range idempotency {
			t.Run(fmt.Sprintf("%d idempotent=%t", status, idempotent), func(t *testing.T) {
				t.Parallel()
				yaml := circuitOf("route")
				if !idempotent {
					yaml = strings.ReplaceAll(yaml, "idempotent: true", "idempotent: false")
				}
				synctest.Test(t, func(t *testing.T) {
					s := fallIll(t, yaml)
					defer s.end()
					s.status.Store(int64(status))
					for range 5 {
						s.act(t.Context())
					}
					want := 5
					if opens {
						want = 3
					}
					if got := s.asked(); got != want || s.opened() != opens {
						t.Errorf("%d requests and opened = %t, want %d", got, s.opened(), want)
					}
				})
			})
		}
	}
}

func TestTimeoutsAndRefusedConnectionsOpenACircuit(t *testing.T) {
	t.Parallel()
	t.Run("timeout", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := fallIll(t, circuitOf("route"))
			defer s.end()
			s.lasts.Store(int64(time.Hour))
			s.inSession(t.Context(), 3, "act", "sess_1")
			s.calls.Wait()
			if e := s.act(t.Context()); e.sendings != 0 {
				t.Errorf("outcome = %+v", e)
			}
		})
	})
	t.Run("no connection", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := fallIll(t, circuitOf("route"))
			defer s.end()
			_ = s.server.Close()
			for range 3 {
				s.act(t.Context())
			}
			if e := s.act(t.Context()); e.sendings != 0 {
				t.Errorf("outcome = %+v", e)
			}
		})
	})
}

// Only failures in a row count.
func TestASuccessBeginsANewRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fallIll(t, circuitOf("route"))
		defer s.end()
		for i, status := range []int64{500, 500, 404, 500, 500, 200, 500, 500} {
			s.status.Store(status)
			if e := s.act(t.Context()); e.sendings != 1 {
				t.Fatalf("call %d: %+v", i, e)
			}
		}
		s.act(t.Context())
		if e := s.act(t.Context()); e.sendings != 0 {
			t.Errorf("after three in a row: %+v", e)
		}
	})
}

// Attempts are judged, not calls, and an open circuit ends the retries.
func TestAnOpenCircuitEndsTheRetries(t *testing.T) {
	t.Parallel()
	yaml := strings.ReplaceAll(circuitOf("upstream"), "attempts: 1", "attempts: 9, min_wait: 1s, max_wait: 1s")
	synctest.Test(t, func(t *testing.T) {
		s := fallIll(t, yaml)
		defer s.end()
		s.status.Store(503)
		e := s.act(t.Context())
		if want := "act failed with status 503 (Service Unavailable) in 3 attempts. Try again after 30 s."; e.Error != want || e.took != 2*time.Second || s.asked() != 3 {
			t.Errorf("outcome = %+v after %d requests, want %s", e, s.asked(), want)
		}
	})
}

// The calls in the queue are answered when the circuit opens.
func TestCallsThatWaitAreAnsweredWhenTheCircuitOpens(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"route", "upstream"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			yaml := strings.ReplaceAll(circuitOf(where), "failures: 3 }", "failures: 3 }, max_concurrent: 3, rate_limit: 4/s")
			synctest.Test(t, func(t *testing.T) {
				s := fallIll(t, yaml)
				defer s.end()
				s.status.Store(502)
				s.lasts.Store(int64(8 * time.Second))
				all := s.inSession(t.Context(), 9, "act", "sess_1")
				s.calls.Wait()
				// Two had the places of the first two when the third failed.
				for i, e := range all {
					if i < 5 && e.sendings != 1 || i >= 5 && (e.Error != circuitSays+"30 s." || e.sendings != 0 || e.took != 8500*time.Millisecond) {
						t.Errorf("call %d: %+v", i, e)
					}
				}
				pass(30 * time.Second)
				s.status.Store(200)
				s.lasts.Store(0)
				if e := s.act(t.Context()); !e.Success {
					t.Errorf("no place is left: %+v", e)
				}
			})
		})
	}
}

// They are answered also when they wait for something else than the requests that
// failed.
func TestCallsThatWaitForTheirRouteAreAnsweredWhenTheUpstreamFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fallIll(t, fmt.Sprintf(circuits, threeFailures, ", max_concurrent: 1"))
		defer s.end()
		s.lasts.Store(int64(time.Minute))
		all := s.inSession(t.Context(), 4, "act", "sess_1")
		pass(10 * time.Second)
		s.lasts.Store(0)
		s.status.Store(500)
		for range 3 {
			s.come(t.Context(), "other", "sess_1")
		}
		s.calls.Wait()
		for i, e := range all {
			if i == 0 && !e.Success || i > 0 && (e.Error != circuitSays+"30 s." || e.took != 10*time.Second) {
				t.Errorf("call %d: %+v", i, e)
			}
		}
	})
}

// Calls that wait while the circuit may be tried are answered when one of them
// tries it.
func TestCallsThatWaitAreAnsweredWhenAProbeGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fallIll(t, fmt.Sprintf(circuits, threeFailures, ", max_concurrent: 1"))
		defer s.end()
		s.lasts.Store(int64(time.Minute))
		s.come(t.Context(), "act", "sess_1") // keeps the only place of its route
		s.lasts.Store(0)
		s.status.Store(500)
		for range 3 {
			s.come(t.Context(), "other", "sess_1")
		}
		pass(40 * time.Second)
		s.lasts.Store(int64(2 * time.Second))
		s.status.Store(200)
		all := s.inSession(t.Context(), 4, "act", "sess_1")
		s.calls.Wait()
		if e := all[0]; !e.Success || e.took != 22*time.Second {
			t.Errorf("probe = %+v", e)
		}
		for _, e := range all[1:] {
			if e.Error != circuitSays+"5 s." || e.took != 20*time.Second || e.sendings != 0 {
				t.Errorf("beside the probe: %+v", e)
			}
		}
	})
}

// What tells nothing of the service changes nothing: the next call is the probe.
func TestAProbeThatTellsNothingMakesRoomForTheNext(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*testing.T, *ill){
		"stopped": func(t *testing.T, s *ill) {
			t.Helper()
			s.lasts.Store(int64(time.Minute))
			ctx, cancel := context.WithCancel(t.Context())
			s.come(ctx, "act", "sess_1")
			cancel()
			s.calls.Wait()
			s.lasts.Store(0)
		},
		"not recorded": func(t *testing.T, s *ill) {
			t.Helper()
			refusal := errors.New("disk full")
			_, err := s.Forward(t.Context(), s.call("act", `{}`), journal.Session{}, &recorder{refuse: refusal})
			if !errors.Is(err, refusal) {
				t.Errorf("error = %v", err)
			}
		},
		"panicked": func(t *testing.T, s *ill) {
			t.Helper()
			_, _ = s.Forward(t.Context(), s.call("act", `{}`), journal.Session{}, &panicking{atSending: true})
		},
	}
	for name, tellNothing := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := fallIll(t, circuitOf("route"))
				defer s.end()
				s.open(t)
				s.status.Store(200)
				pass(30 * time.Second)
				for range 3 {
					tellNothing(t, s)
				}
				if e := s.act(t.Context()); !e.Success {
					t.Errorf("probe = %+v", e)
				}
			})
		})
	}
}

// A service that works is not given up because calls come to it with little time
// left.
func TestTimeoutsOfHurriedAttemptsOpenNoCircuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		yaml := strings.Replace(fmt.Sprintf(circuits, "", ", max_concurrent: 1, circuit_breaker: { failures: 1 }"), "300s", "10s", 1)
		s := fallIll(t, yaml)
		defer s.end()
		s.lasts.Store(int64(4 * time.Second))
		all := s.inSession(t.Context(), 3, "act", "sess_1")
		s.calls.Wait()
		if e := all[2]; e.Failure != journal.Timeout || e.sendings != 1 || e.took != 10*time.Second {
			t.Errorf("the hurried call: %+v", e)
		}
		if e := s.act(t.Context()); !e.Success {
			t.Errorf("outcome = %+v", e)
		}
		s.lasts.Store(int64(time.Minute))
		if e := s.act(t.Context()); e.Failure != journal.Timeout || !s.opened() {
			t.Errorf("outcome = %+v", e)
		}
	})
}

// Calls that were stopped while the service was slow are no failures of it.
func TestStoppedCallsOpenNoCircuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fallIll(t, circuitOf("upstream"))
		defer s.end()
		s.lasts.Store(int64(time.Minute))
		ctx, cancel := context.WithCancel(t.Context())
		s.inSession(ctx, 8, "act", "sess_1")
		cancel()
		s.calls.Wait()
		s.lasts.Store(0)
		if e := s.act(t.Context()); !e.Success {
			t.Errorf("outcome = %+v", e)
		}
	})
}

// The circuit of an upstream is that of all its routes; that of a route is its
// own.
func TestWhoseCircuitOpens(t *testing.T) {
	t.Parallel()
	for where, others := range map[string]int{"route": 1, "upstream": 0} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := fallIll(t, circuitOf(where))
				defer s.end()
				s.open(t)
				s.status.Store(200)
				e := s.come(t.Context(), "other", "sess_1")
				s.calls.Wait()
				if e.sendings != others {
					t.Errorf("another route's call: %+v", e)
				}
			})
		})
	}
}

// Where both have a circuit breaker, the probe of one is not spent while the
// other's circuit is open.
func TestAProbeIsNotSpentOnTheOtherCircuit(t *testing.T) {
	t.Parallel()
	yaml := fmt.Sprintf(circuits, ", circuit_breaker: { failures: 3, open_for: 60s }", ", circuit_breaker: { failures: 3, open_for: 20s }")
	synctest.Test(t, func(t *testing.T) {
		s := fallIll(t, yaml)
		defer s.end()
		s.open(t)
		s.status.Store(200)
		pass(30 * time.Second)
		for range 3 {
			if e := s.act(t.Context()); e.Error != circuitSays+"30 s." {
				t.Errorf("outcome = %+v", e)
			}
		}
		pass(30 * time.Second)
		for range 3 {
			if e := s.act(t.Context()); !e.Success {
				t.Errorf("outcome = %+v", e)
			}
		}
	})
}

// An open circuit stays open under a new table, for the new time; a route
// without a circuit breaker has none.
func TestACircuitOutlivesATable(t *testing.T) {
	t.Parallel()
	yaml := func(circuit string) string { return fmt.Sprintf(circuits, "", circuit) }
	synctest.Test(t, func(t *testing.T) {
		s := fallIll(t, yaml(threeFailures))
		defer s.end()
		says := func(what string) {
			t.Helper()
			if e := s.act(t.Context()); e.Error != what {
				t.Errorf("outcome = %+v, want %s", e, what)
			}
		}
		s.status.Store(500)
		s.act(t.Context())
		s.load(t, yaml(", circuit_breaker: { failures: 2 }"))
		const failed = "act failed with status 500 (Internal Server Error). Try again "
		says(failed + "after 30 s.")
		pass(10 * time.Second)
		s.load(t, yaml(", circuit_breaker: { failures: 7 }"))
		says(circuitSays + "20 s.")
		s.load(t, yaml(", circuit_breaker: { failures: 7, open_for: 45s }"))
		says(circuitSays + "45 s.")
		s.load(t, yaml(""))
		says(failed + "later.")
		s.load(t, yaml(threeFailures))
		says(failed + "later.")
	})
}

func TestMetricsAndLogOfCircuits(t *testing.T) {
	t.Parallel()
	const header = "# HELP bridge_circuit_open 1 while the circuit breaker of a function or an upstream lets no calls through, probes excepted.\n# TYPE bridge_circuit_open gauge\n"
	yaml := fmt.Sprintf(circuits, ", circuit_breaker: { failures: 9 }", threeFailures)
	synctest.Test(t, func(t *testing.T) {
		s := fallIll(t, yaml)
		defer s.end()
		shows := func(act int) {
			t.Helper()
			want := fmt.Sprintf("%sbridge_circuit_open{function=\"\",upstream=\"u\"} 0\nbridge_circuit_open{function=\"act\",upstream=\"\"} %d\n", header, act)
			if err := testutil.GatherAndCompare(s.registry, strings.NewReader(want), "bridge_circuit_open"); err != nil {
				t.Error(err)
			}
		}
		shows(0)
		s.open(t)
		shows(1)
		pass(time.Minute)
		shows(1)
		s.status.Store(200)
		s.act(t.Context())
		shows(0)
		s.load(t, circuitOf("route"))
		if n, err := testutil.GatherAndCount(s.registry, "bridge_circuit_open"); n != 1 || err != nil {
			t.Errorf("%d series, %v", n, err)
		}
		for _, line := range []string{
			`"level":"WARN","msg":"circuit opened","function":"act","failures":3,"open_for_ms":30000}`,
			`"level":"INFO","msg":"circuit closed","function":"act"}`,
		} {
			if strings.Count(s.log.String(), line) != 1 {
				t.Errorf("the log lacks %s, or has it twice: %s", line, s.log)
			}
		}
	})
}

// A question about a lost request waits until the circuit lets it through, and
// its answer is one like any other.
func TestAQuestionWaitsForTheCircuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		yaml := strings.Replace(asking, `"${TOKEN}" }`, `"${TOKEN}" }, circuit_breaker: { failures: 1, open_for: 15s }`, 1)
		l := openLedger(t, yaml, []http.HandlerFunc{answer(502, "text/plain", "")}, []http.HandlerFunc{answer(200, "text/plain", "paid")})
		defer l.stop()
		o, _ := l.run(t, "pay", payArguments)
		if !o.Success || o.Output != "paid" || len(l.payments) != 1 || len(l.questions) != 1 || l.questions[0].at != 15*time.Second {
			t.Errorf("outcome = %+v, payments %v, questions %v", o, l.payments, l.questions)
		}
		if log := l.log.String(); !strings.Contains(log, "circuit closed") {
			t.Errorf("log = %s", log)
		}
	})
}
