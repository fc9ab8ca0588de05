package forward_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// A call that an earlier process sent.
func TestRunningCallIsSentAgainOnlyWhereItIsIdempotent(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "done"))
	b := newBench(t, table("get: { url: "+up.URL+", idempotent: true }", "pay: "+up.URL))
	for function, want := range map[string]struct {
		outcome  journal.Outcome
		requests int
	}{
		"get": {journal.Success("done"), 1},
		"pay": {journal.Failure(journal.UnknownOutcome,
			"It is not known whether pay was carried out: the bridge was stopped before the reply came. Check that before you call it again."), 0},
		"gone": {journal.Failure(journal.UnknownOutcome,
			"It is not known whether gone was carried out: the bridge was stopped before the reply came. Check that before you call it again."), 0},
	} {
		call := b.call(function, `{}`)
		call.State = journal.Running
		before := len(up.requests())
		outcome, err := b.Forward(t.Context(), call, journal.Session{}, &recorder{})
		if outcome != want.outcome || err != nil {
			t.Errorf("%s: %+v, %v", function, outcome, err)
		}
		if n := len(up.requests()) - before; n != want.requests {
			t.Errorf("%s: %d requests, want %d", function, n, want.requests)
		}
	}
}

// A row that says "not idempotent" was written by a table that said so; one
// that says "idempotent" may not have been on disk.
func TestBothRowAndTableMustAllowARepeat(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(502, "text/plain", ""))
	b := newBench(t, table("get: { url: "+up.URL+", idempotent: true }", "pay: "+up.URL))
	for function, row := range map[string]bool{"get": false, "pay": true} {
		call := b.call(function, `{}`)
		call.Idempotent = row
		rec := &recorder{}
		outcome, err := b.Forward(t.Context(), call, journal.Session{}, rec)
		if outcome.Failure != journal.UnknownOutcome || err != nil || len(rec.attempts) != 1 {
			t.Errorf("%s: %+v, %v after %d attempts", function, outcome, err, len(rec.attempts))
		}
	}
}

// Every attempt sends the same, also after the route has changed: only what
// comes from ${VAR} is taken from the table in force.
func TestTheJournaledRequestIsSentAgain(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "done"))
	token := "old-token"
	parse := func(yaml string) *router.Table {
		tab, err := router.Parse("routes.yaml", []byte(yaml), router.Env{Lookup: func(string) (string, bool) { return token, true }})
		if err != nil {
			t.Fatal(err)
		}
		return tab
	}
	current := parse(table("put: { url: \"" + up.URL + "/a{?q}\", method: PUT, headers: { X-Token: \"${TOKEN}\" } }"))
	b := newBench(t, table("x: http://x.test"), func(c *forward.Config) { c.Table = func() *router.Table { return current } })
	call := b.call("put", `"{\"q\":\"ü\", \"n\":1.0}"`)
	first := &recorder{}
	if _, err := b.Forward(t.Context(), call, journal.Session{}, first); err != nil {
		t.Fatal(err)
	}

	token = "new-token"
	current = parse(table("put: { url: \"" + up.URL + "/other\", method: POST, idempotent: true, headers: { X-Token: \"${TOKEN}\" } }"))
	call.Request, call.State = first.requests[0], journal.Running
	again := &recorder{}
	if outcome, err := b.Forward(t.Context(), call, journal.Session{}, again); !outcome.Success || err != nil {
		t.Fatalf("%+v, %v", outcome, err)
	}

	if again.sendings != 1 || again.requests != nil {
		t.Errorf("a journaled request was journaled again: %s", again.requests)
	}
	got := up.requests()
	if got[0].method != "PUT" || got[0].uri != "/a?q=%C3%BC" || got[0].body != `{"q":"ü", "n":1.0}` || got[0].header.Get("X-Token") != "old-token" {
		t.Errorf("first: %+v", got[0])
	}
	if got[1].header.Get("X-Token") != "new-token" {
		t.Errorf("the second attempt has the token %q", got[1].header.Get("X-Token"))
	}
	got[1].header.Set("X-Token", "old-token")
	if !reflect.DeepEqual(got[0].header, got[1].header) || got[0].method != got[1].method || got[0].uri != got[1].uri || got[0].body != got[1].body {
		t.Errorf("attempts differ:\n%+v\n%+v", got[0], got[1])
	}
	if strings.Contains(string(first.requests[0]), "old-token") {
		t.Errorf("the journaled request holds a secret: %s", first.requests[0])
	}
}

// A journaled request that cannot be made any more is not sent; whether an
// earlier process sent it decides what can be said.
func TestAJournaledRequestThatCannotBeMade(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "done"))
	withToken := newBench(t, table("act: { url: "+up.URL+", idempotent: true, headers: { X-Token: \"${TOKEN}\" } }"))
	_, rec := withToken.run(t, "act", `{}`)
	poor, err := router.Parse("routes.yaml", []byte(table("act: { url: "+up.URL+", idempotent: true }")),
		router.Env{Lookup: func(string) (string, bool) { return "", false }})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, table("x: http://x.test"), func(c *forward.Config) { c.Table = func() *router.Table { return poor } })
	for name, request := range map[string][]byte{"damaged": []byte(`{"Method":`), "variable gone": rec.requests[0]} {
		for state, want := range map[journal.State]journal.Outcome{
			journal.Pending: journal.Failure(journal.Internal, "act was not called: its request could not be made. Do not try again."),
			journal.Running: journal.Failure(journal.UnknownOutcome,
				"It is not known whether act was carried out: the bridge was stopped before the reply came. Check that before you call it again."),
		} {
			call := b.call("act", `{}`)
			call.Request, call.State = request, state
			o, err := b.Forward(t.Context(), call, journal.Session{}, &recorder{})
			if o != want || err != nil {
				t.Errorf("%s, %s: %+v, %v", name, state, o, err)
			}
		}
	}
	if n := len(up.requests()); n != 1 {
		t.Errorf("%d requests, want the first alone", n)
	}
	if log := b.log.String(); strings.Count(log, "request not built") != 4 {
		t.Errorf("log = %s", log)
	}
	noSecret(t, "log", b.log.String())
}

// A table that comes into force between two attempts changes neither.
func TestAReloadDoesNotReachACallThatBegan(t *testing.T) {
	t.Parallel()
	var current atomic.Pointer[router.Table]
	up := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		current.Store(parse(t, table("act: { url: http://x.test, retry: { attempts: 1 }, headers: { X-Tag: new } }")))
		w.WriteHeader(http.StatusTooManyRequests)
	})
	current.Store(parse(t, table("act: { url: "+up.URL+"/old, headers: { X-Tag: old, X-Token: \"${TOKEN}\" } }")))
	b := newBench(t, table("x: http://x.test"), func(c *forward.Config) { c.Table = current.Load })
	if o, rec := b.run(t, "act", `{"a":1}`); o.Failure != journal.RateLimited || len(rec.attempts) != 3 {
		t.Fatalf("outcome = %+v, %d attempts", o, len(rec.attempts))
	}
	got := up.requests()
	for _, r := range got {
		if !reflect.DeepEqual(r, got[0]) || r.uri != "/old" || r.header.Get("X-Tag") != "old" {
			t.Errorf("attempts differ:\n%+v\n%+v", got[0], r)
		}
	}
}

func TestNothingIsSentThatIsNotRecorded(t *testing.T) {
	t.Parallel()
	up := serve(t, nil)
	b := newBench(t, table("act: "+up.URL))
	full := errors.New("disk full")
	rec := &recorder{refuse: full}
	if o, err := b.Forward(t.Context(), b.call("act", `{}`), journal.Session{}, rec); !errors.Is(err, full) {
		t.Errorf("outcome %+v, error %v", o, err)
	}
	if len(up.requests()) != 0 || len(rec.attempts) != 0 {
		t.Error("a request was sent")
	}
}

// A reply that came whole settles the call, though nobody waits any more.
func TestAKnownOutcomeIsNotLostToTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "done"))
	b := newBench(t, table("act: "+up.URL))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o, err := b.Forward(ctx, b.call("act", `{}`), journal.Session{}, &canceling{cancel: cancel})
	if err != nil || o != journal.Success("done") {
		t.Errorf("outcome %+v, error %v", o, err)
	}
}

// canceling ends the context when the attempt is reported.
type canceling struct {
	recorder

	cancel context.CancelFunc
}

func (c *canceling) Sent(journal.Attempt, bool) { c.cancel() }

// panicking fails at the n-th thing that it is told.
type panicking struct{ atSending bool }

func (p *panicking) Sending(context.Context, []byte) error {
	if p.atSending {
		panic("boom in the journal of db.internal")
	}
	return nil
}

func (*panicking) NeverRan() {}

func (p *panicking) Sent(journal.Attempt, bool) { panic("boom in the journal of db.internal") }

func TestAPanicIsAnOutcome(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "done"))
	b := newBench(t, table("get: { url: "+up.URL+", idempotent: true }", "pay: "+up.URL))
	tests := map[string]struct {
		function  string
		atSending bool
		kind      journal.Kind
	}{
		"before it was sent":      {"pay", true, journal.Internal},
		"after, not idempotent":   {"pay", false, journal.UnknownOutcome},
		"after, idempotent":       {"get", false, journal.Internal},
		"before, idempotent":      {"get", true, journal.Internal},
		"again, slots given back": {"pay", true, journal.Internal},
	}
	for range 10 { // more often than there are slots
		for name, test := range tests {
			o, err := b.Forward(t.Context(), b.call(test.function, `{}`), journal.Session{}, &panicking{atSending: test.atSending})
			if o.Failure != test.kind || err != nil {
				t.Errorf("%s: %+v, %v", name, o, err)
			}
			if strings.Contains(o.Error, "boom") {
				t.Errorf("the agent is told of the panic: %s", o.Error)
			}
		}
	}
	if log := b.log.String(); !strings.Contains(log, "boom") || !strings.Contains(log, "resume_test.go") {
		t.Errorf("the log lacks the panic or its stack: %s", log)
	}
}

// leaving stops the call and then fails.
type leaving struct {
	canceling
}

func (l *leaving) Sent(journal.Attempt, bool) {
	l.cancel()
	panic("boom")
}

// It is one also when the call was stopped: who takes it up would fail again.
func TestAPanicIsAnOutcomeOfAStoppedCall(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(502, "text/plain", ""))
	b := newBench(t, table("get: { url: "+up.URL+", idempotent: true }", "pay: "+up.URL))
	for function, kind := range map[string]journal.Kind{"get": journal.Internal, "pay": journal.UnknownOutcome} {
		ctx, cancel := context.WithCancel(t.Context())
		o, err := b.Forward(ctx, b.call(function, `{}`), journal.Session{}, &leaving{canceling{cancel: cancel}})
		if o.Failure != kind || err != nil {
			t.Errorf("%s: %+v, %v", function, o, err)
		}
		cancel()
	}
}

// A panic in the middle of an attempt, where the request may be on its way.
func TestAPanicAmidAnAttemptIsAnOutcome(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "done"))
	b := newBench(t, table("get: { url: "+up.URL+", idempotent: true }", "pay: "+up.URL))
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { panic("boom") }})
	for function, want := range map[string]journal.Outcome{
		"get": journal.Failure(journal.Internal, "get failed by a fault of the bridge. Do not try again."),
		"pay": journal.Failure(journal.UnknownOutcome,
			"It is not known whether pay was carried out: the bridge failed before the reply was read. Check that before you call it again."),
	} {
		if o, err := b.Forward(ctx, b.call(function, `{}`), journal.Session{}, &recorder{}); o != want || err != nil {
			t.Errorf("%s: %+v, %v", function, o, err)
		}
	}
}

func TestAMissingSessionValueIsTheBridgesFault(t *testing.T) {
	t.Parallel()
	up := serve(t, func(http.ResponseWriter, *http.Request) {})
	b := newBench(t, table("act: { url: "+up.URL+", headers: { X-User: \"{session.metadata.user_id}\" } }"))
	if o, rec := b.run(t, "act", `{"session":{"metadata":{"user_id":"x"}}}`); o.Failure != journal.Internal || rec.sendings != 0 ||
		!strings.Contains(o.Error, "user_id") {
		t.Errorf("outcome = %+v", o)
	}
	o, err := b.Forward(t.Context(), b.call("act", `{}`), journal.Session{Metadata: map[string]string{"user_id": "u7"}}, &recorder{})
	if !o.Success || err != nil || up.requests()[0].header.Get("X-User") != "u7" {
		t.Errorf("outcome = %+v, %v", o, err)
	}
}
