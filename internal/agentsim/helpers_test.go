package agentsim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"functionbridge/internal/agentsim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve puts a Sim behind a pipe, so that a test may run within a synctest bubble.
func serve(t *testing.T, opts agentsim.Options) (*agentsim.Sim, *http.Client) {
	t.Helper()
	sim := agentsim.New(opts)
	pipe := agentsim.NewPipe()
	server := &http.Server{Handler: sim}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(pipe) })
	transport := &http.Transport{DialContext: pipe.DialContext}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		sim.Close()
		_ = server.Close()
		_ = pipe.Close()
		wg.Wait()
	})
	return sim, &http.Client{Transport: transport}
}

func sdk(client *http.Client) openai.Client {
	return openai.NewClient(option.WithBaseURL("http://sim/v1"), option.WithAPIKey("sim"),
		option.WithHTTPClient(client), option.WithMaxRetries(0))
}

// answer is what a request got. err is that of the transport.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func (a answer) get(path string) string { return gjson.Get(a.body, path).String() }

// request sends one request with key and beta header; headers are "Name: value", and an empty value removes one.
func request(t *testing.T, client *http.Client, method, path, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://sim"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sim")
	req.Header.Set("OpenAI-Beta", "agents=v1")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
		if value == "" {
			req.Header.Del(name)
		}
	}
	res, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return answer{status: res.StatusCode, header: res.Header, body: string(text), err: err}
}

func get(t *testing.T, client *http.Client, path string) answer {
	t.Helper()
	return request(t, client, http.MethodGet, path, "")
}

// postEvents posts raw input events to a session.
func postEvents(t *testing.T, client *http.Client, session, events string, headers ...string) answer {
	t.Helper()
	return request(t, client, http.MethodPost, "/v1/agents/sessions/"+session+"/events", `{"events":[`+events+`]}`, headers...)
}

func toolResult(turn, call, rest string) string {
	return fmt.Sprintf(`{"type":"agent.session.input.tool_result","turn_id":%q,"call_id":%q,%s}`, turn, call, rest)
}

// frames is an open stream, read as lines.
type frames struct {
	res   *http.Response
	lines *bufio.Reader
	stop  context.CancelFunc
}

func openStream(t *testing.T, client *http.Client, session string) *frames {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute) // a test that waits in vain ends
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sim/v1/agents/sessions/"+session+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer sim")
	req.Header.Set("OpenAI-Beta", "agents=v1")
	res, err := client.Do(req) //nolint:bodyclose // frames.close does it
	if err != nil {
		t.Fatalf("open stream: %v", err)
	}
	f := &frames{res: res, lines: bufio.NewReader(res.Body), stop: stop}
	t.Cleanup(f.close)
	return f
}

func (f *frames) close() {
	f.stop()
	_ = f.res.Body.Close()
}

// next reads the data of the next frame, comments and event lines passed over; the error is that of the connection.
func (f *frames) next() (string, error) {
	var data []string
	for {
		line, err := f.lines.ReadString('\n')
		if err != nil {
			return line, err
		}
		line = strings.TrimRight(line, "\r\n")
		switch value, isData := strings.CutPrefix(line, "data:"); {
		case isData:
			data = append(data, strings.TrimPrefix(value, " "))
		case line == "" && data != nil:
			return strings.Join(data, "\n"), nil
		}
	}
}

// until reads events up to the first of the type, which it returns last.
func (f *frames) until(t *testing.T, typ string) (events []string) {
	t.Helper()
	for {
		data, err := f.next()
		if err != nil {
			t.Fatalf("stream ended (%v) before %s; it brought %s", err, typ, types(events))
		}
		events = append(events, data)
		if gjson.Get(data, "type").String() == typ {
			return events
		}
	}
}

func types(events []string) string {
	short := make([]string, 0, len(events))
	for _, e := range events {
		typ := strings.TrimPrefix(gjson.Get(e, "type").String(), "agent.session.")
		if item := gjson.Get(e, "item.type"); item.Exists() {
			typ += "(" + item.String() + ")"
		}
		short = append(short, typ)
	}
	return strings.Join(short, " ")
}

func compact(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
