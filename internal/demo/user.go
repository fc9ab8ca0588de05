package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/tidwall/gjson"
)

// user speaks to the Agents API as the application would that owns the
// sessions: the bridge is not the one who talks with people.
type user struct {
	base   string
	client *http.Client
}

func newUser(base string) *user {
	return &user{base: base, client: &http.Client{Transport: &http.Transport{}}}
}

func (u *user) close() { u.client.CloseIdleConnections() }

// say posts a user message.
func (u *user) say(ctx context.Context, session, text string) error {
	_, err := u.request(ctx, http.MethodPost, session+"/events", events(map[string]any{
		"type": "agent.session.input.message",
		"input": []any{map[string]any{
			"type": "message", "role": "user", "content": []any{map[string]any{"type": "input_text", "text": text}},
		}},
	}))
	return err
}

// approve answers a computer-use approval request.
func (u *user) approve(ctx context.Context, session, requestID string) error {
	_, err := u.request(ctx, http.MethodPost, session+"/events", events(map[string]any{
		"type": "agent.session.input.computer_use_approval_request_result", "request_id": requestID,
		"response": map[string]any{"type": "browser_origin_access", "decision": "approve"},
	}))
	return err
}

// pendingApproval gives the request id of the approval that the session waits
// for, which must be all that it waits for.
func (u *user) pendingApproval(ctx context.Context, session string) (string, error) {
	snapshot, err := u.request(ctx, http.MethodGet, session, nil)
	if err != nil {
		return "", err
	}
	pending := gjson.GetBytes(snapshot, "required_actions").Array()
	if len(pending) != 1 || pending[0].Get("type").Str != "computer_use_approval_request" {
		return "", errors.New("the computer-use approval does not wait for a person any more")
	}
	return pending[0].Get("request_id").Str, nil
}

func events(event map[string]any) map[string]any { return map[string]any{"events": []any{event}} }

// request makes one request about a session and gives the answer's body.
func (u *user) request(ctx context.Context, method, path string, input any) ([]byte, error) {
	var body io.Reader = http.NoBody
	if input != nil {
		text, err := json.Marshal(input)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, u.base+"/agents/sessions/"+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer demo")
	r.Header.Set("OpenAI-Beta", "agents=v1")
	r.Header.Set("Content-Type", "application/json")
	res, err := u.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s %s answered %d: %s", method, path, res.StatusCode, answer)
	}
	return answer, err
}
