package forward_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

// bubble is a service and a forwarder in a synctest bubble.
type bubble struct {
	*bench

	began time.Time
	mu    sync.Mutex
	hits  []time.Duration
	// opened and closed count the service's connections.
	opened, closed atomic.Int64

	server *http.Server
	served chan struct{}
}

// newBubble starts them with a route "act"; stop ends what runs.
func newBubble(t *testing.T, options string, handler http.HandlerFunc) *bubble {
	t.Helper()
	return startBubble(t, "version: 1\nroutes:\n  act: { url: \"http://upstream.test\""+options+" }\n", handler)
}

func startBubble(t *testing.T, yaml string, handler http.HandlerFunc, change ...func(*forward.Config)) *bubble {
	t.Helper()
	b := &bubble{began: time.Now(), served: make(chan struct{})}
	listener := agentsim.NewPipe()
	b.server = &http.Server{
		ReadHeaderTimeout: time.Hour,
		IdleTimeout:       5 * time.Second,
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				b.opened.Add(1)
			case http.StateClosed:
				b.closed.Add(1)
			case http.StateActive, http.StateIdle, http.StateHijacked:
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b.mu.Lock()
			b.hits = append(b.hits, time.Since(b.began))
			b.mu.Unlock()
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			handler(w, r)
		}),
	}
	go func() { defer close(b.served); _ = b.server.Serve(listener) }()
	b.bench = newBench(t, yaml, append(change, func(c *forward.Config) { c.Transport.Dial = listener.DialContext })...)
	return b
}

func (b *bubble) stop() {
	b.Close()
	_ = b.server.Close()
	<-b.served
}

// inBubble forwards one call and returns the outcome, how long it took, and
// when the service was asked.
func inBubble(t *testing.T, options string, handler http.HandlerFunc) (journal.Outcome, time.Duration, []time.Duration) {
	t.Helper()
	b := newBubble(t, options, handler)
	defer b.stop()
	outcome, _ := b.run(t, "act", `{}`)
	b.mu.Lock()
	defer b.mu.Unlock()
	return outcome, time.Since(b.began), slices.Clone(b.hits)
}

func busy(status int, after string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if after != "" {
			w.Header()["Retry-After"] = []string{after}
		}
		w.WriteHeader(status)
	}
}

// A wait beyond the deadline ends the call at once, and the agent is told it.
func TestRetryAfterBeyondTheDeadlineEndsTheCall(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"31", "3600", "86400", "9223372037", "99999999999", "9223372036854775807", "99999999999999999999999"} {
		for status, kind := range map[int]journal.Kind{429: journal.RateLimited, 503: journal.Unavailable} {
			t.Run(fmt.Sprint(status, " ", after), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					outcome, took, hits := inBubble(t, ", timeout: 30s", busy(status, after))
					says := after
					if len(after) > 19 {
						says = "9223372036854775807"
					}
					if outcome.Failure != kind || !strings.Contains(outcome.Error, "asks to wait "+says+" s") ||
						!strings.HasSuffix(outcome.Error, "Try again after "+says+" s.") {
						t.Errorf("outcome = %+v", outcome)
					}
					if took != 0 || len(hits) != 1 {
						t.Errorf("took %s, hits at %v", took, hits)
					}
				})
			})
		}
	}
}

// So it does on an idempotent route, for every status that is retried there.
func TestRetryAfterBeyondTheDeadlineEndsAnIdempotentCall(t *testing.T) {
	t.Parallel()
	for _, status := range []int{408, 425, 429, 500, 502, 503, 504} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				outcome, took, hits := inBubble(t, ", idempotent: true", busy(status, "86400"))
				if !strings.Contains(outcome.Error, fmt.Sprintf("status %d", status)) || !strings.HasSuffix(outcome.Error, "and asks to wait 86400 s. Try again after 86400 s.") ||
					took != 0 || len(hits) != 1 {
					t.Errorf("outcome = %+v after %s, hits at %v", outcome, took, hits)
				}
			})
		})
	}
}

// A call that is taken up after a restart has its whole time again.
func TestARestartGivesAFreshTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, ", timeout: 10s, idempotent: true", func(http.ResponseWriter, *http.Request) {
			time.Sleep(9 * time.Second) // fake clock
		})
		defer b.stop()
		call := b.call("act", `{}`)
		call.State, call.CreatedAt = journal.Running, time.Now().Add(-time.Hour)
		if o, err := b.Forward(t.Context(), call, journal.Session{}, &recorder{}); !o.Success || err != nil {
			t.Errorf("outcome = %+v, %v", o, err)
		}
	})
}

// The three forms of a date are understood alike.
func TestRetryAfterDateBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		t.Run(layout, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				outcome, took, hits := inBubble(t, ", timeout: 30s", busy(429, time.Now().UTC().Add(24*time.Hour).Format(layout)))
				if !strings.Contains(outcome.Error, "asks to wait 86400 s") || took != 0 || len(hits) != 1 {
					t.Errorf("outcome = %+v after %s, hits at %v", outcome, took, hits)
				}
			})
		})
	}
}

// A wait that fits is kept to.
func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	date := func(layout string) func(time.Time) string {
		return func(now time.Time) string { return now.UTC().Add(20 * time.Second).Format(layout) }
	}
	for name, after := range map[string]func(time.Time) string{
		"seconds": func(time.Time) string { return "20" },
		"zeros":   func(time.Time) string { return "0000020" },
		"spaces":  func(time.Time) string { return " 20 " },
		"RFC1123": date(http.TimeFormat), "RFC850": date("Monday, 02-Jan-06 15:04:05 GMT"), "ANSI C": date(time.ANSIC),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				first := true
				outcome, _, hits := inBubble(t, ", timeout: 50s", func(w http.ResponseWriter, r *http.Request) {
					if first {
						first = false
						busy(503, after(time.Now()))(w, r)
					}
				})
				if !outcome.Success || len(hits) != 2 || hits[1] < 20*time.Second || hits[1] > 21*time.Second {
					t.Errorf("outcome = %+v, hits at %v", outcome, hits)
				}
			})
		})
	}
}

// A Retry-After that says nothing makes no burst: the usual pauses are made.
func TestRetryAfterOfNoUseLeavesTheUsualPauses(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"", "0", "-5", "soon", "1.5", "Fri, 31 Dec 1999 23:59:59 GMT", "Friday, 31-Dec-99 23:59:59 GMT"} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, _, hits := inBubble(t, ", retry: { attempts: 4, min_wait: 1s, max_wait: 3s }", busy(429, after))
				if len(hits) != 4 {
					t.Fatalf("hits at %v", hits)
				}
				for i, most := range []time.Duration{2 * time.Second, 3 * time.Second, 3 * time.Second} {
					if pause := hits[i+1] - hits[i]; pause < time.Second || pause > most {
						t.Errorf("pause %d of %s, want 1 s to %s", i+1, pause, most)
					}
				}
			})
		})
	}
}

// One deadline holds for attempts, pauses and bodies together.
func TestTheCallEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	drip := func(w http.ResponseWriter, r *http.Request) {
		for {
			_, _ = io.WriteString(w, ".")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(time.Second):
			case <-r.Context().Done():
				return
			}
		}
	}
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	tests := map[string]struct {
		options string
		handler http.HandlerFunc
		hits    int
		kind    journal.Kind
		says    string
		took    time.Duration
	}{
		"body that drips":          {", timeout: 10s", drip, 1, journal.UnknownOutcome, "did not answer within 10 s", 10 * time.Second},
		"no headers":               {", timeout: 10s", silent, 1, journal.UnknownOutcome, "did not answer within 10 s", 10 * time.Second},
		"no headers, idempotent":   {", timeout: 10s, idempotent: true", silent, 1, journal.Timeout, "did not answer within 10 s", 10 * time.Second},
		"attempts":                 {", timeout: 10s, attempt_timeout: 4s, idempotent: true, retry: { attempts: 9, min_wait: 1s, max_wait: 1s }", silent, 2, journal.Timeout, "did not answer within 4 s in 2 attempts", 9 * time.Second},
		"attempts, cut at the end": {", timeout: 10s, attempt_timeout: 4s, idempotent: true, retry: { attempts: 9, min_wait: 500ms, max_wait: 500ms }", silent, 3, journal.Timeout, "did not answer within 10 s in 3 attempts", 10 * time.Second},
		"pause beyond":             {", timeout: 10s, retry: { min_wait: 20s, max_wait: 20s }", busy(429, ""), 1, journal.RateLimited, "429", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				outcome, took, hits := inBubble(t, test.options, test.handler)
				if outcome.Failure != test.kind || !strings.Contains(outcome.Error, test.says) {
					t.Errorf("outcome = %+v", outcome)
				}
				if len(hits) != test.hits || took != test.took {
					t.Errorf("took %s, hits at %v", took, hits)
				}
			})
		})
	}
}

// Common services close an idle connection after 5 s. The bridge is first, so
// that no request meets the close.
func TestIdleConnectionsAreLeftBeforeTheServiceClosesThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, "", func(http.ResponseWriter, *http.Request) {})
		defer b.stop()
		for i := range 120 {
			if outcome, rec := b.run(t, "act", `{}`); !outcome.Success || len(rec.attempts) != 1 {
				t.Fatalf("call %d: %+v", i, outcome)
			}
			time.Sleep(4900 * time.Millisecond) // fake clock
			if n := b.closed.Load(); n != int64(i+1) {
				t.Fatalf("%d connections were closed 4.9 s after call %d", n, i)
			}
			time.Sleep(100 * time.Millisecond) // fake clock
		}
	})
}

// Within that time a connection is used again.
func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, "", func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }) // fake clock
		defer b.stop()
		for range 5 {
			var calls sync.WaitGroup
			for range 3 {
				calls.Go(func() { b.run(t, "act", `{}`) })
			}
			calls.Wait()
			time.Sleep(2 * time.Second) // fake clock
		}
		if n := b.opened.Load(); n != 3 || b.closed.Load() != 0 {
			t.Errorf("%d connections were opened and %d closed for calls of three at a time", n, b.closed.Load())
		}
	})
}

// When its context ends, Forward returns at once, whatever it waits for.
func TestForwardReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"in a pause":    busy(503, "25"),
		"in an attempt": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, "", handler)
				defer b.stop()
				ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
				defer cancel()
				if _, err := b.Forward(ctx, b.call("act", `{}`), journal.Session{}, &recorder{}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error = %v, want that the context ended", err)
				}
				if took := time.Since(b.began); took != 7*time.Second {
					t.Errorf("returned after %s", took)
				}
			})
		})
	}
}
