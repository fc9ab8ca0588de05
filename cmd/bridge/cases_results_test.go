package main

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
	"functionbridge/internal/session"
)

// Acceptance is not arrival: a result that is accepted and never arrives is
// posted again and again, at a pace that anybody can bear, and the function is
// not run for it.
func TestResultThatIsForgottenForEverIsNotRunAgain(t *testing.T) {
	t.Parallel()
	for name, keepKey := range map[string]bool{"whatever its key": false, "and each key is remembered": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), ok, nil)
				id := l.follow(t)
				l.fault(t, agentsim.Fault{Kind: agentsim.FaultForget, On: agentsim.PostEvents, SessionID: id, Count: -1, KeepKey: keepKey})
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
				pass(2 * time.Hour)
				l.wantState(t, id, turn, "c1", journal.Submitted)
				l.wantRequests(t, "c1", 1)
				if n := l.sim.Count(agentsim.PostEvents); n < 100 || n > 240 {
					t.Errorf("the result was posted %d times in two hours, want once in 30 s or a little more", n)
				}
				if n := l.metric(t, "bridge_results_total", "retried"); n < 100 {
					t.Errorf("%v repeats are counted", n)
				}
			})
		})
	}
}

// The race answer also stands for a call that is settled: then it is looked for
// in the session, and that is the end of it.
func TestRaceAnswerAboutACallThatNobodyWantsEndsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id := l.follow(t)
		l.fault(t, agentsim.Fault{
			Kind: agentsim.FaultStatus, On: agentsim.PostEvents, SessionID: id, Status: http.StatusBadRequest, Count: -1,
			Body: `{"error":{"message":"Unknown pending tool call: c1","type":"invalid_request_error","code":"invalid_request_error"}}`,
		})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
		pass(500 * time.Millisecond)
		l.sim.Cancel(id)
		pass(time.Minute)
		call := l.wantState(t, id, turn, "c1", journal.Abandoned)
		if !call.Outcome.Success {
			t.Errorf("its outcome became %+v", call.Outcome)
		}
		before := l.sim.Count(agentsim.PostEvents)
		pass(10 * time.Minute)
		if n := l.sim.Count(agentsim.PostEvents); n != before || n > 5 {
			t.Errorf("the result was posted %d times, %d of them after the call had ended", n, n-before)
		}
		l.wantRequests(t, "c1", 1)
	})
}

// Whatever JSON a service answers with is one string for the agent, unchanged
// and not encoded twice; a failure has an error and nothing else.
func TestRepliesOfEveryShapeAreOneText(t *testing.T) {
	t.Parallel()
	replies := map[string]string{
		"object": `{"a":1}`, "array": `[1]`, "string": `"x"`, "number": `5`, "null": `null`, "empty": ``, "blank": ` `, "true": `true`,
		"escapes": `{"s":"\u00e9\"\\\u0000"}`, "large_number": `9007199254740993`, "two_values": "1\n2", "failure": "fail",
	}
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			reply := replies[r.Header.Get("Bridge-Call-Id")]
			if reply == "fail" {
				w.WriteHeader(http.StatusConflict)
			}
			_, _ = io.WriteString(w, reply)
		}, nil)
		id := l.follow(t)
		var step agentsim.Step
		for name := range replies {
			step = append(step, agentsim.Call("pay", `{}`).WithID(name))
		}
		l.sim.Play(id, step)
		pass(time.Minute)
		got := results(l.sim, id)
		for name, want := range replies {
			result := got[name]
			text, isText := result.Text()
			switch {
			case want == "fail":
				if result.Success || len(result.Output) > 0 || result.Error == "" {
					t.Errorf("of a failure the agent got %+v", result)
				}
			case !result.Success || !isText || text != want || result.Error != "":
				t.Errorf("of %s the agent got %s (%s), want the text %q", name, result.Output, result.Error, want)
			}
		}
	})
}

const largeReplies = `version: 1
routes:
  plain: http://service/large
  cut: {url: "http://service/large", result: {on_oversize: truncate}}
  odd_cut: {url: "http://service/large", result: {on_oversize: truncate, max_bytes: 100001}}
`

// A reply is measured by itself, and what is left of one that is cut is whole
// characters and says so; the post is no larger than its escapes make it.
func TestReplyLargerThanAllowedIsToldOrCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const letters = 3 << 19 // of two bytes each: 3 MiB
		var largest atomic.Int64
		l := newTableLine(t, largeReplies, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(2*letters+2))
			_, _ = io.WriteString(w, `"`+strings.Repeat("é", letters)+`"`)
		}, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				raise(&largest, r.ContentLength)
				h.ServeHTTP(w, r)
			})
		})
		id := l.follow(t)
		l.sim.Play(id, agentsim.Step{
			agentsim.Call("plain", `{}`).WithID("plain"), agentsim.Call("cut", `{}`).WithID("cut"), agentsim.Call("odd_cut", `{}`).WithID("odd_cut"),
		})
		pass(time.Minute)
		got := results(l.sim, id)
		size := strconv.Itoa(2*letters + 2)
		if r := got["plain"]; r.Success || !strings.Contains(r.Error, size+" bytes") || !strings.Contains(r.Error, "at most 262144 bytes") ||
			!strings.HasPrefix(r.Error, "plain was carried out") {
			t.Errorf("without a cut the agent got %+v", r)
		}
		for name, shown := range map[string]int{"cut": 262143, "odd_cut": 100001} {
			want := `"` + strings.Repeat("é", (shown-1)/2) + "\n[The reply was cut here: " + strconv.Itoa(shown) + " bytes are shown of " + size + " bytes.]"
			if text, _ := got[name].Text(); text != want {
				t.Errorf("%s: %d bytes, ending in %q; want %d", name, len(text), text[max(len(text)-80, 0):], len(want))
			}
		}
		if n := largest.Load(); n > 300_000 {
			t.Errorf("a post of %d bytes", n)
		}
	})
}

// newTableLine is a line with another table, and with something between the
// bridge and the API.
func newTableLine(t *testing.T, table string, answer http.HandlerFunc, between func(http.Handler) http.Handler) *line {
	t.Helper()
	l := newLine(t, agentsim.Kind(), answer, nil)
	l.stop(t, time.Millisecond)
	l.table = parseTable(t, table)
	l.api = agentsim.NewPipe()
	l.serve(l.api, between(l.sim))
	l.start(t)
	return l
}

// A session that does not exist any more wants no results: what can be repeated
// is cancelled then, and not when its time is over.
func TestRequestOfADeletedSessionIsCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int64
		l := newLine(t, agentsim.Kind(), func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // so that the server notices when the client goes
			<-r.Context().Done()
			ended.Store(time.Now().Unix())
		}, nil)
		id := l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("look", `{}`).WithID("c1")}) // it may take ten minutes
		pass(time.Second)
		l.sim.Delete(id)
		deleted := time.Now().Unix()
		pass(5 * time.Minute)
		l.wantState(t, id, turn, "c1", journal.Abandoned)
		if after := ended.Load() - deleted; after < 55 || after > 120 {
			t.Errorf("the request ended %d s after the session, want a minute or a little more", after)
		}
		l.wantRequests(t, "c1", 1)
	})
}

// Reading the stream and running calls do not wait for each other.
func TestSlowCallHoldsUpNeitherStreamNorSibling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Options{}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/look" {
				time.Sleep(50 * time.Millisecond) // fake clock
			}
			slowly(w, r)
		}, func(c *session.Config) { c.ResyncInterval = 24 * time.Hour })
		id := l.follow(t)
		pass(10 * time.Second)
		began := time.Now()
		turn := l.sim.Play(id, agentsim.Step{
			agentsim.Call("slow_pay", `{}`).WithID("c1"), agentsim.Text(300), agentsim.Call("look", `{}`).WithID("c2"), agentsim.Text(300),
		})
		pass(time.Second)
		second := results(l.sim, id)["c2"]
		if !second.Success || second.At.Sub(began) > time.Second/2 {
			t.Errorf("beside a slow call the agent got %+v after %s", second, second.At.Sub(began))
		}
		l.wantState(t, id, turn, "c1", journal.Running)
		pass(time.Minute)
		if got := results(l.sim, id)["c1"]; !got.Success {
			t.Errorf("of the slow call the agent got %+v", got)
		}
		if n := l.sim.Count(agentsim.OpenStream); n > 2 { // once more for the silence of a minute
			t.Errorf("the stream was opened %d times", n)
		}
	})
}

// While a drain waits for what is in flight, what comes is left as it is.
func TestCallThatComesDuringADrainIsLeftForTheNextProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), slowly, nil)
		id, other := l.follow(t), l.follow(t)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("slow_pay", `{}`).WithID("c1")})
		pass(time.Second)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			l.stop(t, 2*time.Minute)
		}()
		pass(10 * time.Second)
		otherTurn := l.sim.Play(other, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c2"), agentsim.Call("look", `{}`).WithID("c3")})
		<-stopped
		if posts := l.sim.Posts(id, "c1"); len(posts) != 1 {
			t.Errorf("the call in flight was posted %d times before the end", len(posts))
		}
		for _, call := range []string{"c2", "c3"} {
			l.wantRequests(t, call, 0)
		}
		l.start(t)
		pass(time.Minute)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		for _, call := range []string{"c2", "c3"} {
			l.wantState(t, other, otherTurn, call, journal.Confirmed)
			l.wantRequests(t, call, 1)
		}
	})
}

// What the drain finds waiting for its turn has not left, and does not leave.
func TestCallThatWaitsForItsTurnIsLeftByADrain(t *testing.T) {
	t.Parallel()
	r := newServeRig(t)
	p := startServe(t, append(r.env, "BRIDGE_MAX_CALLS=2")...) // one of a route
	turn := r.sim.Play(r.session, agentsim.Step{
		agentsim.Call("slow", `{"n":1}`).WithID("c1"), agentsim.Call("slow", `{"n":2}`).WithID("c2"),
	})
	r.waitRequests(t, "/slow", 1)
	<-time.After(300 * time.Millisecond) // real processes live in real time
	p.signal(t)
	p.logs.waitFor(t, `"msg":"draining"`)
	if status, body := ask(t, p.addr, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, `"draining"`) {
		t.Errorf("/readyz of a draining bridge is %d %s", status, body)
	}
	if status, body := ask(t, p.addr, "/healthz"); status != http.StatusOK {
		t.Errorf("/healthz of a draining bridge is %d %s", status, body)
	}
	close(r.release)
	if code := p.wait(t); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.logs.String())
	}
	if n := len(r.service.received("/slow")); n != 1 {
		t.Errorf("the service got %d requests before the end, want that of the call in flight", n)
	}
	if got := r.sim.Results(r.session); len(got) != 1 || !got[0].Success {
		t.Errorf("the agent got %+v, want the result of the call in flight", got)
	}
	startServe(t, r.env...)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if status, err := r.sim.WaitTurn(ctx, r.session, turn); err != nil || status != "completed" {
		t.Errorf("the next process leaves the turn %s (%v)", status, err)
	}
	if n := len(r.service.received("/slow")); n != 2 {
		t.Errorf("the service got %d requests, want one for each call", n)
	}
}

// ask reads what a listener answers.
func ask(t *testing.T, addr, path string) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	res, err := client.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}
