package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// stand is a service with a client that says which call it is.
type stand struct {
	*upstream
	t      *testing.T
	url    string
	client *http.Client
}

func newStand(t *testing.T) *stand {
	t.Helper()
	u := newUpstream()
	server := httptest.NewUnstartedServer(nil)
	server.Config = u.server()
	server.Start()
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		close(u.done)
		client.CloseIdleConnections()
		server.Close()
	})
	return &stand{upstream: u, t: t, url: server.URL, client: client}
}

// call sends one request; the status is 0 when the connection broke.
func (s *stand) call(ctx context.Context, function, id, key, body string) (status int, reply string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/"+function, strings.NewReader(body))
	if err != nil {
		s.t.Error(err)
		return 0, ""
	}
	req.GetBody = nil // else the client repeats a request by itself
	for name, value := range map[string]string{
		"Bridge-Session-Id": "s", "Bridge-Turn-Id": "t", "Bridge-Call-Id": id, "Idempotency-Key": key,
	} {
		req.Header.Set(name, value)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text)
}

func (s *stand) ask(key string) int {
	s.t.Helper()
	res, err := s.client.Get(s.url + "/by-key/" + key)
	if err != nil {
		s.t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode
}

// of is what the service knows of a call.
func (s *stand) of(id string) seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.seen.Calls["s/t/"+id]; c != nil {
		return *c
	}
	return seen{}
}

// during sends a request that takes long, and cuts it off when its work has begun and then has happened.
func (s *stand) during(function, id string, then func()) {
	s.t.Helper()
	ctx, cut := context.WithCancel(s.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = s.call(ctx, function, id, "k"+id, `{"n":1,"ms":60000}`)
	}()
	for s.of(id).Works == 0 {
		s.wait(time.Millisecond)
	}
	then()
	cut()
	<-ended
}

func (s *stand) endLife() int {
	s.t.Helper()
	s.client.CloseIdleConnections()
	answer, err := s.killed()
	cut, ok := answer.(severed)
	if err != nil || !ok {
		s.t.Fatal(answer, err)
	}
	return cut.InFlight
}

func TestServiceCountsTheWorkThatAKillMet(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.during("ship", "c1", func() {
		s.during("report", "c2", func() {
			if s.quiet() {
				t.Error("a living bridge counts as dead")
			}
		})
	})
	if n := s.endLife(); n != 1 {
		t.Errorf("%d side effects in flight at the kill, want 1", n)
	}
	if c := s.of("c1"); c.Severed != 1 || c.Life != 0 {
		t.Errorf("the call that the kill met is %+v", c)
	}
	s.during("pay", "c3", func() {})
	if n := s.endLife(); n != 1 {
		t.Errorf("%d side effects in flight at the second kill, want 1: the first still works", n)
	}
	if c := s.of("c3"); c.Life != 1 {
		t.Errorf("the call of the second life is %+v", c)
	}
	if status, _ := s.call(t.Context(), "pay", "c4", "k4", `{"n":4,"ms":0}`); status != 200 {
		t.Errorf("status %d", status)
	}
	if n := s.endLife(); n != 0 {
		t.Errorf("%d side effects in flight at a kill without any", n)
	}
}

func TestServiceNoticesRepeatsAndChanges(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	for range 2 {
		s.call(t.Context(), "pay", "c1", "k1", `{"n":1}`)
		if _, reply := s.call(t.Context(), "look", "c2", "k2", `{"n":2}`); reply != replyTo(2) {
			t.Errorf("reply %s", reply)
		}
	}
	s.call(t.Context(), "look", "c2", "other", `{"n":2 }`)
	s.call(t.Context(), "look", "c3", "k2", `{"n":3}`)
	if c := s.of("c1"); c.Requests != 2 || c.Works != 2 || c.KeyChanges != 0 || c.BodyChanges != 0 {
		t.Errorf("a repeated side effect: %+v", c)
	}
	if c := s.of("c2"); c.Requests != 3 || c.Works != 1 || c.KeyChanges != 1 || c.BodyChanges != 1 || c.Key != "k2" {
		t.Errorf("a repeat under another key: %+v", c)
	}
	if s.seen.SharedKeys != 1 {
		t.Errorf("%d shared keys, want 1", s.seen.SharedKeys)
	}
}

func TestServiceHasItsMishapsOnce(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	for i, tt := range []struct {
		function string
		mishap   mishap
		status   int
		works    int
	}{
		{"look", dropped, 0, 1}, {"look", "502", 502, 1}, {"pay", refused, 429, 0}, {"transfer", lost, 0, 0},
	} {
		id, body := fmt.Sprintf("c%d", i), fmt.Sprintf(`{"n":1,"x":%q}`, tt.mishap)
		if status, _ := s.call(t.Context(), tt.function, id, "k"+id, body); status != tt.status || s.of(id).Works != tt.works {
			t.Errorf("%s %s: status %d, want %d; %d works, want %d", tt.function, tt.mishap, status, tt.status, s.of(id).Works, tt.works)
		}
		if status, reply := s.call(t.Context(), tt.function, id, "k"+id, body); status != 200 || reply != replyTo(1) || s.of(id).Works != 1 {
			t.Errorf("%s %s again: status %d, reply %s, %d works", tt.function, tt.mishap, status, reply, s.of(id).Works)
		}
	}
}

func TestServiceTellsByKeyWhatBecameOfARequest(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.call(t.Context(), "transfer", "c1", "k1", `{"n":1,"x":"lose"}`)
	if status := s.ask("k1"); status != 404 {
		t.Errorf("without work: %d", status)
	}
	s.during("transfer", "c2", func() {
		if status := s.ask("kc2"); status != 202 {
			t.Errorf("at work: %d", status)
		}
	})
	s.call(t.Context(), "transfer", "c1", "k1", `{"n":1,"x":"lose"}`)
	if status := s.ask("k1"); status != 200 || s.of("c1").Recovered != 1 || s.of("c1").Works != 1 {
		t.Errorf("done: %d, %+v", status, s.of("c1"))
	}
}

func TestServiceObeysLineByLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := serveUpstream(t.Context(), strings.NewReader("stopped\nkilled\nreport\n"), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], `"http://127.0.0.1:`) || lines[1] != "{}" || lines[2] != `{"in_flight":0}` || lines[3] != `{"calls":{},"shared_keys":0}` {
		t.Errorf("it said %q", lines)
	}
	if err := serveUpstream(t.Context(), strings.NewReader("dance\n"), io.Discard); err == nil {
		t.Error("an unknown command is obeyed")
	}
}
