package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
)

// echo answers with the body that it was sent.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	_, _ = w.Write(body.Bytes())
}

// exactArguments are objects that a decoder and an encoder would change.
func exactArguments() map[string]string {
	return map[string]string{
		"beyond 2^53":        `{"id":9007199254740993}`,
		"beyond float64":     `{"n":1e400,"m":-0.0,"k":1.50}`,
		"order and spaces":   `{ "b" : 1, "a" : [ 2 , 3 ] }`,
		"escapes":            `{"s":"\u0061\/\u00e9é\n\ud83d\ude00<&>"}`,
		"lone surrogate":     `{"s":"\ud800"}`,
		"200 KB":             `{"pad":"` + strings.Repeat("0123456789", 20_000) + `"}`,
		"string in a string": `{"s":"{\"a\":1}"}`,
	}
}

func TestArgumentsAndRepliesPassByteForByte(t *testing.T) {
	t.Parallel()
	for name, options := range agentsim.Positions() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startBridge(t, options, "version: 1\nroutes:\n  echo: {url: SERVICE/echo, result: {max_bytes: 1000000}}\n", echo, nil)
			id := b.sim.CreateSession(agentsim.SessionSpec{})
			if err := b.daemon.sessions.Follow(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			var step agentsim.Step
			for _, text := range exactArguments() {
				quoted, err := json.Marshal(text)
				if err != nil {
					t.Fatal(err)
				}
				object, unwrapped := fmt.Sprintf("object_%d", len(want)), fmt.Sprintf("string_%d", len(want))
				want[object], want[unwrapped] = text, text
				step = append(step, agentsim.Call("echo", text).WithID(object), agentsim.Call("echo", string(quoted)).WithID(unwrapped))
			}
			turn := b.sim.Play(id, step)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if status, err := b.sim.WaitTurn(ctx, id, turn); err != nil || status != "completed" {
				t.Fatalf("the turn is %q: %v", status, err)
			}
			for _, result := range b.sim.Results(id) {
				text, ok := result.Text()
				if !result.Success || !ok || text != want[result.CallID] {
					t.Errorf("the agent got %.100q (%s) of %s, want %.100q", text, result.Error, result.CallID, want[result.CallID])
				}
				b.wantSent(t, journal.Key{SessionID: id, TurnID: turn, CallID: result.CallID}, want[result.CallID])
			}
		})
	}
}

// wantSent demands that the service got a call once, with these bytes.
func (b *bridgeUnderTest) wantSent(t *testing.T, key journal.Key, want string) {
	t.Helper()
	found := 0
	for _, r := range b.service.received("/echo") {
		if r.key != key.CallKey() {
			continue
		}
		if found++; string(r.body) != want {
			t.Errorf("the service got %.100q of %s, want %.100q", r.body, key.CallID, want)
		}
	}
	if found != 1 {
		t.Errorf("the service got %s %d times", key.CallID, found)
	}
}

func TestNeverMoreThanMaxCallsAtOnce(t *testing.T) {
	t.Parallel()
	const maxCalls = 4
	var all, peak, peakOfOne atomic.Int64
	var perRoute [3]atomic.Int64
	hold := func(w http.ResponseWriter, r *http.Request) {
		route := &perRoute[r.URL.Path[len(r.URL.Path)-1]-'0']
		raise(&peak, all.Add(1))
		raise(&peakOfOne, route.Add(1))
		<-time.After(20 * time.Millisecond) // others come meanwhile
		route.Add(-1)
		all.Add(-1)
		ok(w, r)
	}
	b := startBridge(t, agentsim.Kind(), "version: 1\nroutes: {f0: SERVICE/0, f1: SERVICE/1, f2: SERVICE/2}\n", hold, func(s *settings) { s.MaxCalls = maxCalls })
	turns := map[string]string{}
	for range 3 {
		id := b.sim.CreateSession(agentsim.SessionSpec{})
		if err := b.daemon.sessions.Follow(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		var step agentsim.Step
		for i := range 12 {
			step = append(step, agentsim.Call(fmt.Sprintf("f%d", i%3), `{}`))
		}
		turns[id] = b.sim.Play(id, step)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for id, turn := range turns {
		if status, err := b.sim.WaitTurn(ctx, id, turn); err != nil || status != "completed" {
			t.Fatalf("the turn is %q: %v", status, err)
		}
	}
	if peak.Load() != maxCalls || peakOfOne.Load() != maxCalls/2 {
		t.Errorf("%d requests at once and %d of one route, want %d and %d", peak.Load(), peakOfOne.Load(), maxCalls, maxCalls/2)
	}
}

func raise(peak *atomic.Int64, n int64) {
	for {
		old := peak.Load()
		if n <= old || peak.CompareAndSwap(old, n) {
			return
		}
	}
}
