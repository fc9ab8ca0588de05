package demo

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"functionbridge"
	"functionbridge/internal/agentsim"
	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The sample table is what newcomers copy: it must be right without any variable.
func TestSampleTableIsValidAndMatchesTheScript(t *testing.T) {
	t.Parallel()
	table, err := router.Parse("routes.yaml", functionbridge.SampleRoutes, router.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if w := table.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %v", w)
	}
	used := map[string]bool{}
	for _, scene := range Script() {
		for _, call := range scene.Calls {
			_, known := table.Lookup(call.Function)
			if known == (call.Failure == journal.UnknownFunction) {
				t.Errorf("%s has a route: %t, against what the script says", call.Function, known)
			}
			used[call.Function] = true
		}
	}
	for _, route := range table.Routes() {
		if !used[route.Name] {
			t.Errorf("the script calls every route but %s", route.Name)
		}
	}
	if !bytes.Contains(table.Tools(), []byte(`"get_customer"`)) {
		t.Errorf("the sample table publishes no get_customer: %s", table.Tools())
	}
}

// asScripted is a call that came out as it should.
func asScripted() playedCall {
	key := journal.Key{SessionID: "s", TurnID: "t", CallID: "c"}
	return playedCall{
		Call: Call{
			ID: "c", Function: "find", Arguments: `{"a":1}`, Request: "POST shop /x", Body: `{"a":1}`,
			Statuses: []int{503, 200}, Output: "found",
		},
		answered: true,
		result: agentsim.Result{
			Success: true, Output: []byte(`"found"`), Posts: []agentsim.Post{{Status: http.StatusAccepted}},
		},
		journal: journal.Call{Key: key, State: journal.Confirmed, Attempts: []journal.Attempt{
			{Status: 503, Duration: time.Millisecond}, {Status: 200, Duration: 2 * time.Millisecond},
		}},
		service: "shop",
		received: []Received{
			{Key: key.CallKey(), Method: "POST", URI: "/x", Body: []byte(`{"a":1}`)},
			{Key: key.CallKey(), Method: "POST", URI: "/x", Body: []byte(`{"a":1}`)},
		},
	}
}

func failing(c *playedCall) {
	c.Output, c.Failure, c.Tells, c.Hides = "", journal.NotFound, "gone", "secret"
	c.result.Success, c.result.Output, c.result.Error = false, nil, "It is gone."
	c.journal.Outcome = journal.Failure(journal.NotFound, "It is gone.")
}

func TestCompareFindsEveryDifference(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*playedCall)
		says   string
	}{
		"as scripted":              {func(*playedCall) {}, ""},
		"failing as scripted":      {failing, ""},
		"no result":                {func(c *playedCall) { c.answered = false }, "no result"},
		"failure, not success":     {func(c *playedCall) { c.result.Success = false }, "success false, want true"},
		"success, not failure":     {func(c *playedCall) { failing(c); c.result.Success = true }, "success true, want false"},
		"another output":           {func(c *playedCall) { c.result.Output = []byte(`"lost"`) }, "the output lost"},
		"output that is no text":   {func(c *playedCall) { c.result.Output = []byte(`[]`) }, "the output"},
		"another sentence":         {func(c *playedCall) { failing(c); c.result.Error = "It failed." }, `want "gone"`},
		"a sentence tells a lot":   {func(c *playedCall) { failing(c); c.result.Error = "gone: secret" }, "must not hold"},
		"another kind":             {func(c *playedCall) { failing(c); c.journal.Outcome.Failure = journal.Denied }, `"denied"`},
		"posted twice":             {func(c *playedCall) { c.result.Posts = append(c.result.Posts, c.result.Posts[0]) }, "posted 2 times"},
		"not confirmed":            {func(c *playedCall) { c.journal.State = journal.Submitted }, `"submitted"`},
		"another status":           {func(c *playedCall) { c.journal.Attempts[0].Status = 500 }, "[500 200]"},
		"one request more":         {func(c *playedCall) { c.received = append(c.received, c.received[0]) }, "3 requests, want 2"},
		"another path":             {func(c *playedCall) { c.received[1].URI = "/y" }, `"POST shop /y"`},
		"another service":          {func(c *playedCall) { c.service = "carrier" }, `"POST carrier /x"`},
		"another body":             {func(c *playedCall) { c.received[1].Body = []byte(`{"a": 1}`) }, "the body"},
		"another key on one retry": {func(c *playedCall) { c.received[1].Key = "k" }, "idempotency key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := asScripted()
			test.change(&c)
			got := strings.Join(c.compare(), "\n")
			if (got == "") != (test.says == "") || !strings.Contains(got, test.says) {
				t.Errorf("found %q, want %q in it", got, test.says)
			}
		})
	}
}

func TestTraceShowsACallFromArgumentsToResult(t *testing.T) {
	t.Parallel()
	c := asScripted()
	c.Note = "a note"
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c.journal.CreatedAt, c.result.At = created, created.Add(1234*time.Millisecond)
	c.journal.Attempts[0].StartedAt = created
	c.journal.Attempts[1].StartedAt = created.Add(1001 * time.Millisecond)
	c.differences = []string{"find (c): it is odd"}
	const want = `
  find               a note
    arguments   {"a":1}
    request     POST shop /x, the body is the arguments
    replies     status 503 after 1 ms; 1.0 s later status 200 after 2 ms
    result      success after 1.2 s
    output      found
    differs     find (c): it is odd
`
	var out bytes.Buffer
	trace{out: &out}.call(c)
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	trace{out: &out, paint: true}.call(c)
	if !strings.Contains(out.String(), "\x1b[32msuccess\x1b[0m") {
		t.Errorf("no colour in %q", out.String())
	}
}

func TestWrapBreaksSentencesAndKeepsJSON(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"one two three":                {"one two", "three"},
		"überlänge ab":                 {"überlänge", "ab"},
		`{"a": 1, "b":2, "c":3}`:       {`{"a": 1, "b":2, "c":3}`},
		"averylongwordthatfitsnowhere": {"averylongwordthatfitsnowhere"},
		"":                             {""},
	} {
		if got := wrap(text, 9); !slices.Equal(got, want) {
			t.Errorf("wrap(%q) = %q, want %q", text, got, want)
		}
	}
}

// The pickup is busy once under each key, which is what makes its retry visible.
func TestCarrierIsBusyOnceUnderAKey(t *testing.T) {
	t.Parallel()
	service, err := StartService(t.Context(), "carrier", Carrier())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = service.Close() }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var statuses []int
	for _, key := range []string{"a", "a", "b"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, service.URL+"/pickups", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", key)
		r.Header.Set("Bridge-Session-Id", "s")
		r.Header.Set("Bridge-Call-Id", key)
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		statuses = append(statuses, res.StatusCode)
	}
	if want := []int{503, 201, 503}; !slices.Equal(statuses, want) {
		t.Errorf("answered %v, want %v", statuses, want)
	}
	if got := service.Received("s", "a"); len(got) != 2 || string(got[0].Body) != "{}" || got[1].Key != "a" {
		t.Errorf("remembered %+v, want both requests of the call", got)
	}
}

func TestServiceThatHangsLetsGoWithItsCaller(t *testing.T) {
	t.Parallel()
	service, err := StartService(t.Context(), "carrier", Carrier())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: 50 * time.Millisecond, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	res, err := client.Get(service.URL + "/estimates/1")
	if err == nil {
		_ = res.Body.Close()
		t.Fatalf("answered %d, want a timeout", res.StatusCode)
	}
	if err := service.Close(); err != nil {
		t.Fatal(err)
	}
}
