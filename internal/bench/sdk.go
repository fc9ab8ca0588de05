package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// sdk answers calls with the official library's helper, Sessions.Stream, whose handler posts to the upstream. The helper
// runs one turn, which it begins itself, and one call after the other; so each session is a loop of turns.
type sdk struct {
	sessions openai.BetaAgentSessionService
	bare     bare // posts to the upstream
	message  string

	stop  chan struct{}
	group sync.WaitGroup
	fail  context.CancelCauseFunc
}

// runSDK takes commands: start begins the turns, stop returns when those that run have ended.
func runSDK(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet(partSDK, flag.ContinueOnError)
	api := flags.String("api", "", "")
	upstream := flags.String("upstream", "", "")
	sessions := flags.String("sessions", "", "")
	texts := flags.Int("texts", 0, "")
	atOnce := flags.Int("at-once", 1, "")
	if err := flags.Parse(args); err != nil {
		return usageError{err}
	}
	ids := strings.Split(*sessions, ",")
	transport := newTransport(len(ids))
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := sdk{
		// The library's own client keeps two idle connections, and would dial for most of the calls.
		sessions: openai.NewClient(option.WithAPIKey(apiKey), option.WithBaseURL(*api), option.WithHTTPClient(client)).Beta.Agents.Sessions,
		bare:     bare{http: client, upstream: *upstream},
		message:  message(*texts, *atOnce), stop: make(chan struct{}), fail: cancel,
	}
	return obey(ctx, in, out, struct{}{}, map[string]command{
		"start": func(context.Context, int) (any, error) {
			for _, id := range ids {
				s.group.Go(func() { s.follow(ctx, id) })
			}
			return struct{}{}, nil
		},
		"stop": func(context.Context, int) (any, error) {
			close(s.stop)
			s.group.Wait()
			return struct{}{}, context.Cause(ctx)
		},
	})
}

// follow runs turns until it is told to stop, or one of any session fails.
func (s *sdk) follow(ctx context.Context, id string) {
	for ctx.Err() == nil {
		select {
		case <-s.stop:
			return
		default:
		}
		if err := s.turn(ctx, id); err != nil {
			s.fail(fmt.Errorf("session %s: %w", id, err))
		}
	}
}

func (s *sdk) turn(ctx context.Context, id string) error {
	var failed error
	turn := s.sessions.Stream(ctx, id, openai.AgentSessionStreamParams{
		Input:        s.message,
		ToolHandlers: map[string]openai.AgentToolHandler{function: s.handle},
		OnToolError:  func(_ context.Context, e openai.BetaAgentToolError) { failed = e.Err },
	})
	for turn.Next() { // the helper does the work
	}
	if err := turn.Err(); err != nil {
		return err
	}
	return failed
}

func (s *sdk) handle(ctx context.Context, args map[string]any) (any, error) {
	body, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("write the arguments: %w", err)
	}
	reply, err := s.bare.post(ctx, s.bare.upstream, body)
	return string(reply), err
}
