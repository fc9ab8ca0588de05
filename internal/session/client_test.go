package session

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// newTestClient is a client of an API that answers as it is told.
func newTestClient(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	api := httptest.NewServer(answer)
	t.Cleanup(api.Close)
	client, err := NewClient(ClientConfig{APIKey: "test", BaseURL: api.URL, Rate: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestPagesWithoutAnEndAreLeft(t *testing.T) {
	t.Parallel()
	pages := 0
	client := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
		pages++
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"data":[{"type":"message"}],"has_more":true,"last_id":"item_%d"}`, pages)
	})
	found, err := client.Delivered(t.Context(), "s", "t", "c")
	if found || err != nil || pages != maxItemPages {
		t.Errorf("after %d pages the output is found: %v, %v; want not found after %d", pages, found, err, maxItemPages)
	}
}

func TestListThatRepeatsItsPageIsLeft(t *testing.T) {
	t.Parallel()
	pages := 0
	client := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
		pages++
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"object":"list","data":[{"id":"sess_1","object":"agent.session"}],"has_more":true,"first_id":"sess_1","last_id":"sess_1"}`))
	})
	visits := 0
	if err := client.List(t.Context(), "agent_1", func([]byte) { visits++ }); err != nil || pages != 2 || visits != 2 {
		t.Errorf("a list that repeats its page took %d requests and %d visits: %v", pages, visits, err)
	}
}

func TestAnswerIsReadUpToALimit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{"12345678": nil, "123456789": errAnswerTooLarge} {
		res, err := bounded(8)(nil, func(*http.Request) (*http.Response, error) {
			return &http.Response{Body: io.NopCloser(strings.NewReader(text))}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(res.Body); !errors.Is(err, want) {
			t.Errorf("of 8 bytes at most, %d are read with %v, want %v", len(text), err, want)
		}
		_ = res.Body.Close()
	}
}

func TestOnlyAnEventStreamIsReadAsOne(t *testing.T) {
	t.Parallel()
	for contentType, want := range map[string]bool{
		"text/event-stream": true, "text/event-stream; charset=utf-8": true, "Text/Event-Stream ;charset=UTF-8": true,
		"text/event-streams": false, "text/html; x=text/event-stream": false, "application/json": false, "": false,
	} {
		c := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = []string{contentType} })
		body, err := c.Stream(t.Context(), "s")
		if got := err == nil; got != want || (!want && !errors.Is(err, errNotEventStream)) {
			t.Errorf("%q: error %v, want a stream: %t", contentType, err, want)
		}
		if body != nil {
			_ = body.Close()
		}
	}
}
