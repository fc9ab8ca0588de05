package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"
)

// bare is the shortest client that answers calls: it reads the stream, posts the arguments, posts the reply back.
// Nothing is kept, nothing tried again. It is written with care, as fast as net/http goes: connections are reused, and
// of an event only its type is looked at until it matters.
type bare struct {
	http     *http.Client
	api      string
	upstream string
}

// runBare follows the sessions until in ends, or one of them fails.
func runBare(ctx context.Context, args []string, in io.Reader) error {
	flags := flag.NewFlagSet(partBare, flag.ContinueOnError)
	api := flags.String("api", "", "")
	upstream := flags.String("upstream", "", "")
	sessions := flags.String("sessions", "", "")
	if err := flags.Parse(args); err != nil {
		return usageError{err}
	}
	ids := strings.Split(*sessions, ",")
	transport := newTransport(len(ids))
	defer transport.CloseIdleConnections()
	b := bare{http: &http.Client{Transport: transport}, api: *api, upstream: *upstream}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel(errDone)
	}()
	var group sync.WaitGroup
	for _, id := range ids {
		group.Go(func() {
			if err := b.follow(ctx, b.api+"/agents/sessions/"+id+"/events"); err != nil {
				cancel(fmt.Errorf("session %s: %w", id, err))
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errDone) {
		return err
	}
	return nil
}

// newTransport keeps the connections of all calls that so many sessions can have at once.
func newTransport(sessions int) *http.Transport {
	atOnce := sessions * parallelCalls
	return &http.Transport{MaxIdleConns: 2 * atOnce, MaxIdleConnsPerHost: atOnce, IdleConnTimeout: time.Minute}
}

var errDone = errors.New("the input has ended")

// follow reads a session's events, a line each, and runs each call that is pending.
func (b *bare) follow(ctx context.Context, events string) error {
	stream, err := b.do(ctx, http.MethodGet, events, nil)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	lines := bufio.NewReaderSize(stream, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("read the stream: %w", err)
		}
		event, isData := bytes.CutPrefix(line, []byte("data: "))
		if !isData || gjson.GetBytes(event, "type").Str != "agent.session.requires_action" {
			continue
		}
		if err := b.callAll(ctx, events, gjson.GetBytes(event, "session.required_actions").Array()); err != nil {
			return err
		}
	}
}

// callAll runs what is pending, at once when it is more than one call.
func (b *bare) callAll(ctx context.Context, events string, actions []gjson.Result) error {
	if len(actions) == 1 {
		return b.call(ctx, events, actions[0])
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, action := range actions {
		group.Go(func() error { return b.call(ctx, events, action) })
	}
	return group.Wait()
}

// toolResult is one result on its way to the API.
type toolResult struct {
	Type    string `json:"type"`
	TurnID  string `json:"turn_id"`
	CallID  string `json:"call_id"`
	Success bool   `json:"success"`
	Output  string `json:"output"`
}

func (b *bare) call(ctx context.Context, events string, action gjson.Result) error {
	output, err := b.post(ctx, b.upstream, []byte(action.Get("arguments").Raw))
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string][]toolResult{"events": {{
		Type: "agent.session.input.tool_result", TurnID: action.Get("turn_id").Str, CallID: action.Get("call_id").Str,
		Success: true, Output: string(output),
	}}})
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	_, err = b.post(ctx, events, body)
	return err
}

func (b *bare) post(ctx context.Context, url string, body []byte) ([]byte, error) {
	res, err := b.do(ctx, http.MethodPost, url, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Close() }()
	return io.ReadAll(res)
}

func (b *bare) do(ctx context.Context, method, url string, body []byte) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("prepare a request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+apiKey)
	req.Header.Set("OpenAI-Beta", "agents=v1")
	req.Header.Set("Content-Type", "application/json")
	res, err := b.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		_ = res.Body.Close()
		return nil, fmt.Errorf("%s %s: %s", method, url, res.Status)
	}
	return res.Body, nil
}
