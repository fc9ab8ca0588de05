package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
)

// Killed while the service is at work: what it did is not known, so that a side
// effect is not sent again, and what can be repeated is, under its key.
func TestCallThatWasOutWhenTheBridgeWasKilled(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	r, ids := newKillRig(t, agentsim.Kind(), 1, func(w http.ResponseWriter, req *http.Request) {
		arrived <- struct{}{}
		select {
		case <-release:
		case <-req.Context().Done():
		}
		ok(w, req)
	})
	turn := r.sim.Play(ids[0], agentsim.Step{agentsim.Call("pay", `{"cents":1}`).WithID("c1"), agentsim.Call("look", `{"id":1}`).WithID("c2")})
	p := startProcess(t, r.env...)
	<-arrived
	<-arrived
	p.kill(t)
	close(release)
	p = startProcess(t, r.env...)
	defer p.kill(t)
	r.wait(t, ids[0], turn, p)
	got := results(r.sim, ids[0])
	if got["c1"].Success || !strings.HasPrefix(got["c1"].Error, "It is not known whether pay was carried out: ") {
		t.Errorf("of the side effect the agent got %+v", got["c1"])
	}
	if text, _ := got["c2"].Text(); text != `{"ok":true}` {
		t.Errorf("of the idempotent call the agent got %+v", got["c2"])
	}
	if n := len(r.service.received("/pay")); n != 1 {
		t.Errorf("the side effect was sent %d times", n)
	}
	looks := r.service.received("/look")
	if len(looks) != 2 || looks[0].key == "" || looks[0].key != looks[1].key || string(looks[0].body) != string(looks[1].body) {
		t.Errorf("the idempotent call was sent as %q, want twice the same under one key", looks)
	}
}

const repeatTable = `version: 1
defaults: {timeout: 60s}
routes:
  act: http://service/act
  get: {url: "http://service/get", idempotent: true}
`

// The whole way of a call whose service fails once in the same way: what may be
// sent again is, and the agent is told what it can rely on.
func TestFailureOnTheFirstTryComesOutAsTheRouteSays(t *testing.T) {
	t.Parallel()
	const unknown, again = "It is not known whether act was carried out", "TRY"
	for name, c := range map[string]struct {
		fail http.HandlerFunc
		// act and get are the beginnings of the errors, "" is a success.
		act, get string
		requests [2]int
		took     time.Duration
	}{
		"504 though it was carried out":  {statusWith(504, ""), unknown, "", [2]int{1, 2}, 0},
		"502":                            {statusWith(502, ""), unknown, "", [2]int{1, 2}, 0},
		"503 without Retry-After":        {statusWith(503, ""), unknown, "", [2]int{1, 2}, 0},
		"503 for three seconds":          {statusWith(503, "3"), "", "", [2]int{2, 2}, 3 * time.Second},
		"429 for three seconds":          {statusWith(429, "3"), "", "", [2]int{2, 2}, 3 * time.Second},
		"425":                            {statusWith(425, ""), "", "", [2]int{2, 2}, 0},
		"408":                            {statusWith(408, ""), unknown, "", [2]int{1, 2}, 0},
		"409":                            {statusWith(409, ""), "act failed with status 409", "get failed with status 409", [2]int{1, 1}, 0},
		"423":                            {statusWith(423, ""), "act failed with status 423", "get failed with status 423", [2]int{1, 1}, 0},
		"500":                            {statusWith(500, ""), "act failed with status 500", "", [2]int{1, 2}, 0},
		"501":                            {statusWith(501, ""), "act failed with status 501", "get failed with status 501", [2]int{1, 1}, 0},
		"599":                            {statusWith(599, ""), "act failed with status 599", "get failed with status 599", [2]int{1, 1}, 0},
		"a broken connection":            {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, unknown, "", [2]int{1, 2}, 0},
		"429 for an hour":                {statusWith(429, "3600"), again, again, [2]int{1, 1}, 0},
		"503 for an hour":                {statusWith(503, "3600"), again, again, [2]int{1, 1}, 0},
		"429 for longer than a duration": {statusWith(429, "9223372037"), again, again, [2]int{1, 1}, 0},
		"429 for longer than a number":   {statusWith(429, "9223372036854775807"), again, again, [2]int{1, 1}, 0},
		"429 for three thousand years":   {statusWith(429, "99999999999"), again, again, [2]int{1, 1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var l *line
				l = newTableLine(t, repeatTable, func(w http.ResponseWriter, r *http.Request) {
					if len(l.requests.of(r.Header.Get("Bridge-Call-Id"))) > 1 {
						ok(w, r)
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					c.fail(w, r)
				}, func(h http.Handler) http.Handler { return h })
				id := l.follow(t)
				began := time.Now()
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("act", `{}`).WithID("act"), agentsim.Call("get", `{}`).WithID("get")})
				pass(time.Minute)
				got := results(l.sim, id)
				for i, want := range []string{c.act, c.get} {
					call := []string{"act", "get"}[i]
					l.wantState(t, id, turn, call, journal.Confirmed)
					l.wantRequests(t, call, c.requests[i])
					result := got[call]
					if want == again {
						want = call + " failed with status "
						if !strings.Contains(result.Error, "asks to wait ") || !strings.Contains(result.Error, "Try again after ") {
							t.Errorf("%s: the agent got %q", call, result.Error)
						}
					}
					if result.Success != (want == "") || !strings.HasPrefix(result.Error, want) {
						t.Errorf("%s: the agent got %+v, want %q", call, result, want)
					}
					if took := result.At.Sub(began); took < c.took || took > c.took+2*time.Second {
						t.Errorf("%s: answered after %s, want %s", call, took, c.took)
					}
				}
				for _, call := range []string{"act", "get"} {
					sent := l.requests.of(call)
					if slices.ContainsFunc(sent, func(r upstreamRequest) bool { return r.key == "" || r.key != sent[0].key }) {
						t.Errorf("%s was sent under the keys %v", call, sent)
					}
				}
			})
		})
	}
}

// statusWith answers with a status and, where it is not empty, a Retry-After.
func statusWith(status int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
	}
}

// What the API asks for overflows nothing: a result waits for a year at most, and
// is not posted in a burst where the API asks for nothing that can be read.
func TestAbsurdRetryAfterOnAResultIsNoBurst(t *testing.T) {
	t.Parallel()
	for after, most := range map[string]int64{
		"9223372036854775807": 1, "99999999999": 1, "9223372037": 1, "1e300": 1, "Thu, 31 Dec 9999 23:59:59 GMT": 1,
		"-1": 60, "soon": 60, "0": 60, "": 60,
	} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), ok, nil)
				id := l.follow(t)
				l.fault(t, agentsim.Fault{Kind: agentsim.FaultStatus, On: agentsim.PostEvents, SessionID: id, Status: 429, RetryAfter: after, Count: -1})
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
				pass(10 * time.Minute)
				l.wantState(t, id, turn, "c1", journal.Answered)
				l.wantRequests(t, "c1", 1)
				if n := l.sim.Count(agentsim.PostEvents); n < 1 || n > most || (most > 1 && n < 10) {
					t.Errorf("the result was posted %d times in ten minutes", n)
				}
			})
		})
	}
}

// Names that a model makes up lead to no new series.
func TestInventedFunctionsMakeNoSeries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, nil)
		id := l.follow(t)
		play := func(from, to int) {
			var step agentsim.Step
			for i := from; i < to; i++ {
				step = append(step, agentsim.Call(fmt.Sprintf("invented.%d/\n\"%d", i, i), `{}`))
			}
			l.sim.Play(id, step)
			pass(time.Minute)
		}
		play(0, 1)
		before := l.series(t)
		play(1, 1000)
		if after := l.series(t); after != before {
			t.Errorf("there are %d series, %d before", after, before)
		}
		if n := l.metric(t, "bridge_calls_total", "_unknown"); n != 1000 {
			t.Errorf("%v calls are counted", n)
		}
		if n := len(l.sim.Results(id)); n != 1000 {
			t.Errorf("the agent got %d answers", n)
		}
	})
}

// series is how many series there are.
func (l *line) series(t *testing.T) (n int) {
	t.Helper()
	families, err := l.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		n += len(family.GetMetric())
	}
	return n
}
