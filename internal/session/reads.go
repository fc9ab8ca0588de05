package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/pagination"
	"github.com/tidwall/gjson"
)

// readTimeout bounds one read from the API, from its turn to the last byte. A
// read that is never answered would keep its session from being read again.
const readTimeout = 30 * time.Second

// maxRead bounds what is read of one answer, far above a session of thousands of
// pending calls.
const maxRead = 256 << 20

// Session reads a session's snapshot as the API's JSON.
func (c *Client) Session(ctx context.Context, sessionID string, p priority) ([]byte, error) {
	raw, err := c.get(ctx, p, "agents/sessions/"+url.PathEscape(sessionID))
	if err != nil {
		return nil, fmt.Errorf("read session %s: %w", sessionID, err)
	}
	return raw, nil
}

// Turn reads a turn's status.
func (c *Client) Turn(ctx context.Context, sessionID, turnID string) (string, error) {
	raw, err := c.get(ctx, priorityConnect, "agents/sessions/"+url.PathEscape(sessionID)+"/turns/"+url.PathEscape(turnID))
	if err != nil {
		return "", fmt.Errorf("read turn %s: %w", turnID, err)
	}
	return gjson.GetBytes(raw, "status").String(), nil
}

// AgentTools reads the tools of a saved agent, as the API's JSON array.
func (c *Client) AgentTools(ctx context.Context, agentID string) ([]byte, error) {
	raw, err := c.get(ctx, priorityConnect, "agents/"+url.PathEscape(agentID))
	if err != nil {
		return nil, fmt.Errorf("read agent %s: %w", agentID, err)
	}
	return []byte(gjson.GetBytes(raw, "tools").Raw), nil
}

// SessionTools reads the tools that a session's agent has, as the API's JSON array.
func (c *Client) SessionTools(ctx context.Context, sessionID string) ([]byte, error) {
	raw, err := c.Session(ctx, sessionID, priorityConnect)
	if err != nil {
		return nil, err
	}
	return []byte(gjson.GetBytes(raw, "agent.tools").Raw), nil
}

// maxItemPages bounds the search in a turn's items: ten thousand newer items
// than the output of a call are an answer that has no end.
const maxItemPages = 100

// Delivered reports whether the turn's items hold an output of the call: the
// proof that a result landed. It reads the newest items first.
func (c *Client) Delivered(ctx context.Context, sessionID, turnID, callID string) (bool, error) {
	path := "agents/sessions/" + url.PathEscape(sessionID) + "/turns/" + url.PathEscape(turnID) + "/items"
	after := ""
	for range maxItemPages {
		query := []option.RequestOption{option.WithQuery("limit", "100"), option.WithQuery("order", "desc")}
		if after != "" {
			query = append(query, option.WithQuery("after", after))
		}
		raw, err := c.get(ctx, priorityConnect, path, query...)
		if err != nil {
			return false, fmt.Errorf("read the items of turn %s: %w", turnID, err)
		}
		page := gjson.ParseBytes(raw)
		for _, item := range page.Get("data").Array() {
			if item.Get("type").Str == "function_call_output" && item.Get("call_id").Str == callID {
				return true, nil
			}
		}
		next := page.Get("last_id").Str
		if !page.Get("has_more").Bool() || next == "" || next == after {
			return false, nil
		}
		after = next
	}
	return false, nil
}

// List calls visit with the snapshot of every session of an agent, a page at a
// time, newest first.
func (c *Client) List(ctx context.Context, agentID string, visit func(raw []byte)) error {
	params := openai.BetaAgentSessionListParams{AgentID: openai.String(agentID), Limit: openai.Int(100)}
	for {
		page, err := c.page(ctx, params)
		if err != nil {
			return fmt.Errorf("list the sessions of agent %s: %w", agentID, err)
		}
		for i := range page.Data {
			visit([]byte(page.Data[i].RawJSON()))
		}
		if !page.HasMore || len(page.Data) == 0 {
			return nil
		}
		last := page.Data[len(page.Data)-1].ID
		if last == params.After.Value {
			return nil // the same page again
		}
		params.After = openai.String(last)
	}
}

// page reads one page of a list of sessions.
func (c *Client) page(ctx context.Context, params openai.BetaAgentSessionListParams) (*pagination.CursorPage[openai.AgentSession], error) {
	if err := c.admit(ctx, priorityDiscover); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var res *http.Response
	page, err := c.sdk.Beta.Agents.Sessions.List(ctx, params, option.WithResponseInto(&res))
	return page, c.sdkError(res, err)
}

// admit returns when a read may be made: while the key is refused none is, but
// for those that find out whether it still is.
func (c *Client) admit(ctx context.Context, p priority) error {
	if err := c.health.key.pass(ctx); err != nil {
		return err
	}
	return c.pacer.wait(ctx, p)
}

// get reads one resource through the SDK, in the order of the priorities.
func (c *Client) get(ctx context.Context, p priority, path string, opts ...option.RequestOption) ([]byte, error) {
	if err := c.admit(ctx, p); err != nil {
		return nil, err
	}
	var raw []byte
	var res *http.Response
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := c.sdk.Get(ctx, path, nil, &raw, append(opts, option.WithResponseInto(&res))...)
	return raw, c.sdkError(res, err)
}

// bounded ends an answer that is larger than any session with an error.
func bounded(limit int64) option.Middleware {
	return func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		res, err := next(r)
		if res != nil && res.Body != nil {
			res.Body = &boundedBody{ReadCloser: res.Body, left: limit}
		}
		return res, err
	}
}

type boundedBody struct {
	io.ReadCloser
	left int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errAnswerTooLarge
	}
	return n, err //nolint:wrapcheck // io.EOF must stay itself
}

var errAnswerTooLarge = errors.New("the answer is larger than the bridge reads")
