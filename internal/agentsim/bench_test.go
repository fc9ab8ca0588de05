package agentsim_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"functionbridge/internal/agentsim"
)

// BenchmarkCalls drives 64 sessions, one call a step, with the shortest client there is: it reads the stream and posts.
func BenchmarkCalls(b *testing.B) {
	for _, texts := range []int{0, 100} {
		b.Run(fmt.Sprintf("texts=%d", texts), func(b *testing.B) { benchmarkCalls(b, texts) })
	}
}

func benchmarkCalls(b *testing.B, texts int) {
	b.Helper()
	const sessions = 64
	sim := agentsim.New(agentsim.Bench())
	defer sim.Close()
	server := httptest.NewServer(sim)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * sessions}}
	defer client.CloseIdleConnections()
	var wg sync.WaitGroup
	ids := make([]string, sessions)
	for i := range ids {
		ids[i] = sim.CreateSession(agentsim.SessionSpec{})
		wg.Go(func() { answerAll(b, client, server.URL+"/v1/agents/sessions/"+ids[i]+"/events") })
		if err := sim.WaitStreams(b.Context(), ids[i], 1); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	step := agentsim.Step{agentsim.Text(texts), agentsim.Call("f", `{"city":"Oslo"}`)}
	for _, id := range ids {
		steps := make([]agentsim.Step, b.N/sessions+1)
		for i := range steps {
			steps[i] = step
		}
		sim.Play(id, steps...)
	}
	for _, id := range ids {
		if err := sim.WaitIdle(b.Context(), id); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(sim.ResultCount())/b.Elapsed().Seconds(), "calls/s")
	sim.Close()
	wg.Wait()
}

// answerAll reads a stream and answers every call on it until the stream ends.
func answerAll(b *testing.B, client *http.Client, url string) {
	b.Helper()
	do := func(method string, body io.Reader) *http.Response {
		req, err := http.NewRequestWithContext(b.Context(), method, url, body)
		if err != nil {
			b.Error(err)
			return nil
		}
		req.Header.Set("Authorization", "Bearer sim")
		req.Header.Set("OpenAI-Beta", "agents=v1")
		res, err := client.Do(req)
		if err != nil {
			b.Error(err)
			return nil
		}
		return res
	}
	stream := do(http.MethodGet, nil)
	defer func() { _ = stream.Body.Close() }()
	lines := bufio.NewScanner(stream.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(`"agent.session.requires_action"`)) {
			continue
		}
		action := gjson.GetBytes(lines.Bytes(), "session.required_actions.0")
		body := fmt.Sprintf(`{"events":[{"type":"agent.session.input.tool_result","turn_id":%q,"call_id":%q,"success":true,"output":"x"}]}`,
			action.Get("turn_id").String(), action.Get("call_id").String())
		if res := do(http.MethodPost, strings.NewReader(body)); res != nil {
			_ = res.Body.Close()
		}
	}
}
