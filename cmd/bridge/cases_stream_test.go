package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
	"functionbridge/internal/session"
)

// written is an API whose event streams bring what a test writes, byte for
// byte; for everything else it is the simulated one.
type written struct {
	api    http.Handler
	opened atomic.Int64
	// frames are for the stream that is open; cut ends it.
	frames chan string
	cut    chan struct{}
}

func (s *written) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/events") {
		s.api.ServeHTTP(w, r)
		return
	}
	s.opened.Add(1)
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case frame := <-s.frames:
			_, _ = io.WriteString(w, frame)
		case <-s.cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// send writes to the open stream and waits until the bridge has read it.
func (s *written) send(frames ...string) {
	for _, frame := range frames {
		s.frames <- frame
	}
	synctest.Wait()
}

// newWrittenLine is a line whose streams the test writes, with a session that is
// followed and read only after something has told the bridge to.
func newWrittenLine(t *testing.T, answer http.HandlerFunc) (l *line, stream *written, id string) {
	t.Helper()
	l = newLine(t, agentsim.Kind(), answer, func(c *session.Config) { c.ResyncInterval = 24 * time.Hour })
	l.stop(t, time.Millisecond)
	stream = &written{api: l.sim, frames: make(chan string), cut: make(chan struct{})}
	l.api = agentsim.NewPipe()
	l.serve(l.api, stream)
	l.start(t)
	id = l.follow(t)
	pass(10 * time.Second) // past the reads that follow the opening of a stream
	return l, stream, id
}

// pendingCall is a call as a session lists it.
func pendingCall(turn, callID, function string) string {
	return fmt.Sprintf(`{"type":"function_call","turn_id":%q,"call_id":%q,"name":%q,"arguments":{}}`, turn, callID, function)
}

// listing is an event that shows the session with what it waits for.
func listing(eventID, id string, calls ...string) string {
	return fmt.Sprintf(`data: {"event_id":%q,"type":"agent.session.requires_action","session":{"id":%q,"status":"requires_action","required_actions":[%s]}}`+"\n\n",
		eventID, id, strings.Join(calls, ","))
}

// Whatever stands before, after or in an event that means nothing, the calls of
// the event are run once, and the stream is not given up for it.
func TestFramingOfAStreamHidesNoCall(t *testing.T) {
	t.Parallel()
	for name, around := range map[string]func(event string) []string{
		"keep-alive comments":              func(e string) []string { return []string{": ping\n\n", "retry: 3000\n\n", ": ping\n\n", e} },
		"an empty data field":              func(e string) []string { return []string{"event: ping\ndata:\n\n", e} },
		"an empty data field without data": func(e string) []string { return []string{"event: ping\ndata\n\n", e} },
		"error null in the event": func(e string) []string {
			return []string{strings.Replace(e, `"type":"agent.session.requires_action"`, `"error":null,"type":"agent.session.requires_action"`, 1)}
		},
		"error null again and again": func(e string) []string {
			e = strings.Replace(e, `"session":`, `"error":null,"session":`, 1)
			return []string{e, e, e, e, e, e}
		},
		"an unknown event": func(e string) []string {
			return []string{`data: {"type":"agent.session.future_thing","new":[1]}` + "\n\n", e}
		},
		"padding": func(e string) []string {
			return []string{
				`data: {"type":"agent.session.turn.output_text.delta","delta":"x","obfuscation":"a8Zt"}` + "\n\n",
				strings.Replace(e, `{"event_id"`, `{"obfuscation":"Qk3fPz","event_id"`, 1),
			}
		},
		"unknown members of a call": func(e string) []string {
			return []string{strings.ReplaceAll(e, `{"type":"function_call"`, `{"namespace":{"type":"x","call_id":"c9"},"type":"function_call","caller":null`)}
		},
		"the call's fields in another order": func(e string) []string {
			return []string{strings.ReplaceAll(strings.ReplaceAll(e, `{"type":"function_call",`, `{`), `"arguments":{}}`, `"arguments":{},"type":"function_call"}`)}
		},
		"one byte at a time": func(e string) []string { return strings.Split(e, "") },
		"carriage returns":   func(e string) []string { return []string{strings.ReplaceAll(e, "\n", "\r")} },
		"data over two lines": func(e string) []string {
			return []string{strings.Replace(e, `"session":`, "\ndata: \"session\":", 1)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l, stream, id := newWrittenLine(t, ok)
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1"), agentsim.Call("look", `{}`).WithID("c2")})
				pass(time.Minute / 2)
				l.wantRequests(t, "c1", 0)
				reads := l.sim.Count(agentsim.GetSession)
				stream.send(around(listing("e1", id, pendingCall(turn, "c1", "pay"), pendingCall(turn, "c2", "look")))...)
				pass(time.Second)
				for _, call := range []string{"c1", "c2"} {
					l.wantRequests(t, call, 1)
					if got := l.call(t, id, turn, call); got.State != journal.Submitted {
						t.Errorf("call %s is %s, want it posted", call, got.State)
					}
				}
				if n := stream.opened.Load(); n != 1 {
					t.Errorf("the stream was opened %d times", n)
				}
				odd := map[string]int64{"an empty data field": 1, "an empty data field without data": 1, "an unknown event": 1}
				if n := l.sim.Count(agentsim.GetSession) - reads; n != odd[name] {
					t.Errorf("the session was read %d times, want %d", n, odd[name])
				}
			})
		})
	}
}

// An error event comes when the reader was too slow, and an event that is not
// understood may be the one that told of a call: what there is to know stands in
// the session.
func TestEventThatSaysTooLittleHidesNoCall(t *testing.T) {
	t.Parallel()
	for name, event := range map[string]string{
		"stream_interrupted": `data: {"type":"error","error":{"type":"server_error","code":"stream_interrupted"}}` + "\n\n",
		"with an event line": "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"server_error\",\"code\":\"stream_interrupted\",\"message\":\"x\"}}\n\n",
		"no JSON":            "data: upstream connect error\n\n",
		"an unknown type":    `data: {"event_id":"e1","type":"agent.session.future_thing"}` + "\n\n",
		"empty data":         "event: ping\ndata:\n\n",
		"cut JSON":           `data: {"event_id":"e1","type":"agent.session.requ` + "\n\n",
	} {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", the stream ends: ", ends), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					l, stream, id := newWrittenLine(t, ok)
					turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1"), agentsim.Call("look", `{}`).WithID("c2")})
					stream.send(event)
					if ends {
						stream.cut <- struct{}{}
					}
					pass(10 * time.Second)
					for _, call := range []string{"c1", "c2"} {
						l.wantRequests(t, call, 1)
					}
					if results := l.sim.Results(id); len(results) != 2 {
						t.Errorf("the session has %d results of turn %s, want 2", len(results), turn)
					}
				})
			})
		}
	}
}

// Every snapshot lists all that is pending, and the same may come again under
// another event id, also when the result was posted.
func TestRepeatedSnapshotsRunEachCallOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, stream, id := newWrittenLine(t, slowly)
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("look", `{}`).WithID("c1"), agentsim.Call("slow_pay", `{}`).WithID("c2")})
		one, two := pendingCall(turn, "c1", "look"), pendingCall(turn, "c2", "slow_pay")
		stream.send(listing("e1", id, one))
		pass(time.Second) // c1 is answered, run and posted
		l.wantRequests(t, "c1", 1)
		stream.send(listing("e2", id, one, two), listing("e2", id, one, two), listing("e3", id, two), listing("e4", id, one, two), listing("e1", id, one))
		pass(2 * time.Minute)
		stream.send(listing("e5", id, one, two))
		pass(time.Minute)
		for _, call := range []string{"c1", "c2"} {
			l.wantRequests(t, call, 1)
		}
		if results := l.sim.Results(id); len(results) != 2 {
			t.Errorf("the session has %d results, want 2", len(results))
		}
	})
}

// A proxy, or a server with a fault, may send what belongs to another session.
func TestEventOfAnotherSessionRunsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, stream, _ := newWrittenLine(t, ok)
		stream.send(listing("e1", "sess_other", pendingCall("turn_1", "c1", "pay")))
		pass(time.Minute)
		l.wantRequests(t, "c1", 0)
		if _, err := l.journal.Call(t.Context(), journal.Key{SessionID: "sess_other", TurnID: "turn_1", CallID: "c1"}); err == nil {
			t.Error("the call of another session is in the journal")
		}
	})
}

// A call counts whatever the session's status is and whatever turn it is of: an
// agent goes on beside an async function, and a subagent has turns of its own.
func TestCallsOfRunningSessionsAndSubagentsAreAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, stream, id := newWrittenLine(t, ok)
		stream.send(fmt.Sprintf(`data: {"event_id":"e1","type":"agent.session.in_progress","session":{"id":%q,"status":"in_progress","required_actions":[%s]}}`+"\n\n",
			id, `{"type":"function_call","turn_id":"turn_of/a subagent","subagent":"researcher","call_id":"c1","name":"pay","arguments":{}}`))
		pass(time.Second)
		l.wantRequests(t, "c1", 1)
		call := l.call(t, id, "turn_of/a subagent", "c1")
		if !call.Outcome.Success || l.sim.Count(agentsim.PostEvents) == 0 {
			t.Errorf("the call is %s with %+v, posted %d times", call.State, call.Outcome, l.sim.Count(agentsim.PostEvents))
		}
	})
}

// Arguments come through the event, or where it is too long for one, through the
// session; either way they are run once and reach the service whole.
func TestArgumentsOfAnySizeAreRunOnce(t *testing.T) {
	t.Parallel()
	for _, size := range []int{200 << 10, 2 << 20, 40 << 20} {
		t.Run(fmt.Sprint(size>>10, " KiB"), func(t *testing.T) {
			t.Parallel()
			if size > 10<<20 && testing.Short() {
				t.Skip("it takes seconds")
			}
			synctest.Test(t, func(t *testing.T) {
				var arrived int64
				l := newLine(t, agentsim.Options{}, func(w http.ResponseWriter, r *http.Request) {
					arrived, _ = io.Copy(io.Discard, r.Body)
					ok(w, r)
				}, func(c *session.Config) { c.ResyncInterval = time.Hour })
				id := l.follow(t)
				pass(10 * time.Second)
				streams, reads := l.sim.Count(agentsim.OpenStream), l.sim.Count(agentsim.GetSession)
				arguments := `{"s":"` + strings.Repeat("x", size) + `"}`
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", arguments).WithID("c1")})
				pass(time.Minute)
				l.wantState(t, id, turn, "c1", journal.Confirmed)
				l.wantRequests(t, "c1", 1)
				if arrived != int64(len(arguments)) {
					t.Errorf("the service got %d bytes, want %d", arrived, len(arguments))
				}
				if n, m := l.sim.Count(agentsim.OpenStream)-streams, l.sim.Count(agentsim.GetSession)-reads; n > 0 || m > 10 {
					t.Errorf("the stream was opened %d more times, and the session read %d times", n, m)
				}
			})
		})
	}
}

// Between two streams, and before the first, events are lost for good: each
// stream that opens is followed by a read, and that is long before the next
// regular one.
func TestCallWhoseEventWasMissedIsFoundWithoutTheRegularRead(t *testing.T) {
	t.Parallel()
	for name, miss := range map[string]func(t *testing.T, l *line, id string){
		"a cut connection": func(t *testing.T, l *line, id string) {
			t.Helper()
			l.fault(t, agentsim.Fault{Kind: agentsim.FaultCut, SessionID: id})
		},
		"a clean end": func(t *testing.T, l *line, id string) {
			t.Helper()
			l.fault(t, agentsim.Fault{Kind: agentsim.FaultEOF, SessionID: id})
		},
		"five seconds without a connection": func(t *testing.T, l *line, id string) {
			t.Helper()
			l.fault(t, agentsim.Fault{Kind: agentsim.FaultDrop, On: agentsim.OpenStream, For: 5 * time.Second})
			l.fault(t, agentsim.Fault{Kind: agentsim.FaultCut, SessionID: id})
		},
		"a stream that is opened and stays mute": func(t *testing.T, l *line, id string) {
			t.Helper()
			l.fault(t, agentsim.Fault{Kind: agentsim.FaultMute, On: agentsim.OpenStream, SessionID: id})
			l.fault(t, agentsim.Fault{Kind: agentsim.FaultCut, SessionID: id})
		},
	} {
		for options, o := range agentsim.Positions() {
			t.Run(name+"/"+options, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					l := newLine(t, o, ok, func(c *session.Config) { c.ResyncInterval = 24 * time.Hour })
					id := l.follow(t)
					pass(20 * time.Second)
					miss(t, l, id)
					turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
					pass(20 * time.Second)
					l.wantRequests(t, "c1", 1)
					if results := l.sim.Results(id); len(results) != 1 {
						t.Errorf("the session has %d results of turn %s", len(results), turn)
					}
				})
			})
		}
	}
}

// A bridge that comes late to a session does not wait for an event, nor for the
// next regular read.
func TestCallPendingBeforeTheStartIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	positions := agentsim.Positions()
	positions["headers with the first event"] = agentsim.Options{LateHeaders: true}
	for name, options := range positions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, options, ok, func(c *session.Config) { c.ResyncInterval = 24 * time.Hour })
				id := l.sim.CreateSession(agentsim.SessionSpec{})
				l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
				pass(time.Minute)
				if err := l.manager.Follow(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				pass(3 * time.Second)
				l.wantRequests(t, "c1", 1)
				if results := l.sim.Results(id); len(results) != 1 {
					t.Errorf("the session has %d results, want 1", len(results))
				}
			})
		})
	}
}

// A clean end says nothing of the session: the turn goes on, and calls come.
func TestStreamThatEndsWhileTheTurnGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Kind(), ok, func(c *session.Config) { c.ResyncInterval = 24 * time.Hour })
		id := l.follow(t)
		pass(10 * time.Second)
		turn := l.sim.Play(id, agentsim.Step{
			agentsim.Mishap(agentsim.Fault{Kind: agentsim.FaultEOF}), agentsim.Wait(10 * time.Minute), agentsim.Call("pay", `{}`).WithID("c1"),
		})
		pass(11 * time.Minute)
		l.wantState(t, id, turn, "c1", journal.Confirmed)
		l.wantRequests(t, "c1", 1)
		if n := l.sim.Count(agentsim.OpenStream); n != 2 {
			t.Errorf("the stream was opened %d times, want once more after its end", n)
		}
	})
}

// What comes with 200 in place of a stream is a failure, whatever its type says.
func TestAnswerThatIsNoStreamIsAFailure(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]struct{ contentType, body string }{
		"a page":          {"text/html; charset=utf-8", "<html>Please sign in</html>"},
		"an error object": {"application/json", `{"error":{"message":"not now","code":"x"}}`},
		"nothing":         {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, agentsim.Kind(), ok, nil)
				l.stop(t, time.Millisecond)
				l.api = agentsim.NewPipe()
				var asked atomic.Int64
				l.serve(l.api, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/events") {
						asked.Add(1)
						w.Header()["Content-Type"] = []string{answer.contentType}
						_, _ = io.WriteString(w, answer.body)
						return
					}
					l.sim.ServeHTTP(w, r)
				}))
				l.start(t)
				id := l.follow(t)
				turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1")})
				pass(5 * time.Minute)
				l.wantState(t, id, turn, "c1", journal.Confirmed)
				l.wantRequests(t, "c1", 1)
				if n := asked.Load(); n > 30 {
					t.Errorf("it was asked for %d times in five minutes", n)
				}
				if got := l.metric(t, "bridge_stream_reconnects_total", "content_type"); got < 5 {
					t.Errorf("%v reconnects are counted for the wrong content type", got)
				}
				if info, _ := l.manager.Session(id); info.Stream == "open" {
					t.Error("the stream is said to be open")
				}
			})
		})
	}
}

// A new stream may begin with a snapshot of long ago: that it does not list a
// call is no proof that its result has arrived.
func TestOldSnapshotOfANewStreamSettlesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, agentsim.Options{Replay: true}, slowly, nil)
		id := l.follow(t)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultForget, On: agentsim.PostEvents, SessionID: id})
		turn := l.sim.Play(id, agentsim.Step{agentsim.Call("pay", `{}`).WithID("c1"), agentsim.Call("slow_look", `{}`).WithID("c2")})
		pass(10 * time.Second)
		l.fault(t, agentsim.Fault{Kind: agentsim.FaultCut, SessionID: id})
		pass(time.Second)
		l.wantState(t, id, turn, "c1", journal.Submitted)
		l.wantState(t, id, turn, "c2", journal.Running)
		pass(5 * time.Minute)
		for _, call := range []string{"c1", "c2"} {
			l.wantState(t, id, turn, call, journal.Confirmed)
			l.wantRequests(t, call, 1)
		}
	})
}
