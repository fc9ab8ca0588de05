package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/pagination"
	"github.com/tidwall/gjson"
)

// betaHeader goes on every request to the Agents API; the SDK adds it only to
// its typed methods (openai-go v3.99.0, betaagentsession.go).
const (
	betaHeader = "OpenAI-Beta"
	betaValue  = "agents=v1"
)

// maxErrorBody bounds what is read of an error answer.
const maxErrorBody = 64 << 10

// submitTimeout bounds one post of a result. The API may hold a post open for
// minutes while an environment connects.
const submitTimeout = 2 * time.Minute

// readTimeout bounds one read from the API, from its turn to the last byte. A
// read that is never answered would keep its session from being read again.
const readTimeout = 30 * time.Second

// maxRead bounds what is read of one answer, far above a session of thousands of
// pending calls.
const maxRead = 256 << 20

// ClientConfig says how to reach the Agents API. Empty fields are the SDK's
// defaults.
type ClientConfig struct {
	APIKey    string
	BaseURL   string
	OrgID     string
	ProjectID string
	UserAgent string
	// Rate is how many requests a second may be made besides streams and
	// results.
	Rate float64
	// HTTPClient replaces the client's own, for tests; its Transport is used.
	HTTPClient *http.Client
}

// Client speaks the Agents API. The SDK knows authentication, addresses, lists
// and rare reads; streams and results, which are the hot path, are plain
// requests made from what the SDK prepared.
type Client struct {
	sdk   openai.Client
	http  *http.Client
	pacer *pacer
	key   string
	// posts carries the results: http.Client would copy the headers of each and
	// look for cookies and redirects, of which there are none.
	posts http.RoundTripper
	// events is the request that the SDK would send to a session's events, up
	// to the session id: base URL and headers.
	events *http.Request

	health health
}

// NewClient prepares a client; it makes no request.
func NewClient(c ClientConfig) (*Client, error) {
	httpClient := c.HTTPClient
	if httpClient == nil {
		httpClient = &http.Client{Transport: newTransport(), CheckRedirect: refuseRedirect}
	}
	options := []option.RequestOption{
		option.WithAPIKey(c.APIKey), option.WithHTTPClient(httpClient), option.WithMaxRetries(0),
		option.WithHeader(betaHeader, betaValue), option.WithMiddleware(bounded(maxRead)),
	}
	if c.BaseURL != "" {
		options = append(options, option.WithBaseURL(c.BaseURL))
	}
	// The SDK reads the environment itself, and sends a variable that is set to
	// nothing as an empty header.
	for name, value := range map[string]string{"OpenAI-Organization": c.OrgID, "OpenAI-Project": c.ProjectID} {
		if value == "" {
			options = append(options, option.WithHeaderDel(name))
		} else {
			options = append(options, option.WithHeader(name, value))
		}
	}
	client := &Client{sdk: openai.NewClient(options...), http: httpClient, posts: httpClient.Transport, pacer: newPacer(c.Rate), key: c.APIKey}
	var err error
	client.events, err = client.prepare(c.UserAgent)
	return client, err
}

// newTransport keeps as many idle connections as there are posts at once: each
// result is one request, and a burst of calls answers in a burst of results.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          1024,
		MaxIdleConnsPerHost:   1024,
		IdleConnTimeout:       60 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// refuseRedirect hands a redirect back as the answer: the key must not travel.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

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

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// prepare lets the SDK build a request and stops it before it is sent.
func (c *Client) prepare(userAgent string) (*http.Request, error) {
	var prepared *http.Request
	capture := func(r *http.Request, _ option.MiddlewareNext) (*http.Response, error) {
		prepared = r.Clone(context.Background())
		return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody, Request: r, Header: http.Header{}}, nil
	}
	err := c.sdk.Post(context.Background(), "agents/sessions/", nil, nil, option.WithMiddleware(capture))
	if err != nil {
		return nil, fmt.Errorf("prepare a request to the Agents API: %w", err)
	}
	prepared.Body, prepared.GetBody, prepared.ContentLength = nil, nil, 0
	maps.DeleteFunc(prepared.Header, func(name string, _ []string) bool {
		return strings.HasPrefix(name, "X-Stainless-")
	})
	prepared.Header.Set("User-Agent", userAgent)
	return prepared, nil
}

// eventsRequest copies the prepared request for one session.
func (c *Client) eventsRequest(ctx context.Context, method, sessionID string) *http.Request {
	r := c.events.WithContext(ctx)
	r.Method = method
	r.Header = maps.Clone(c.events.Header)
	u := *c.events.URL
	if escaped := url.PathEscape(sessionID); escaped != sessionID {
		u.RawPath = u.EscapedPath() + escaped + "/events"
	}
	u.Path += sessionID + "/events"
	r.URL = &u
	return r
}

// APIError is an answer of the Agents API that is not a success.
type APIError struct {
	Status  int
	Code    string
	Message string
	// RetryAfter is how long the API asks to wait, 0 when it does not say.
	RetryAfter time.Duration
}

func (e *APIError) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("the Agents API answered %d", e.Status)
	}
	return fmt.Sprintf("the Agents API answered %d: %s", e.Status, e.Message)
}

// statusOf is the HTTP status behind an error, 0 when there was no answer.
func statusOf(err error) int {
	if e, ok := errors.AsType[*APIError](err); ok {
		return e.Status
	}
	return 0
}

// Stream opens the live events of a session. The caller closes the body; ctx
// ends the stream. Errors are *APIError for an answer that is no event stream.
func (c *Client) Stream(ctx context.Context, sessionID string) (io.ReadCloser, error) {
	r := c.eventsRequest(ctx, http.MethodGet, sessionID)
	r.URL.RawQuery = "include_obfuscation=false"
	r.Header.Set("Accept", "text/event-stream")
	res, err := c.http.Do(r)
	if err = c.health.saw(res, err); err != nil {
		return nil, fmt.Errorf("open the event stream: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("open the event stream: %w", c.failed(res))
	}
	if !isEventStream(res.Header.Get("Content-Type")) {
		_ = res.Body.Close()
		return nil, errNotEventStream
	}
	return res.Body, nil
}

// errNotEventStream is a 200 that is something else, a proxy's login page say.
var errNotEventStream = errors.New("open the event stream: the answer is not text/event-stream")

func isEventStream(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(mediaType), "text/event-stream") // case means nothing: RFC 9110 section 8.3.1
}

// Submit posts one result under its key. nil means that the API accepted it
// (2xx), which is not yet proof that it landed. Errors are *APIError, or those
// of the network after which nothing is known.
func (c *Client) Submit(ctx context.Context, sessionID, key string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, submitTimeout)
	defer cancel()
	r := c.eventsRequest(ctx, http.MethodPost, sessionID)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key)
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	res, err := c.posts.RoundTrip(r)
	if err = c.health.saw(res, err); err != nil {
		return fmt.Errorf("post the result: %w", err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("post the result: %w", c.failed(res))
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxErrorBody))
	return res.Body.Close()
}

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
	if err := c.pacer.wait(ctx, priorityDiscover); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var res *http.Response
	page, err := c.sdk.Beta.Agents.Sessions.List(ctx, params, option.WithResponseInto(&res))
	return page, c.sdkError(res, err)
}

// get reads one resource through the SDK, in the order of the priorities.
func (c *Client) get(ctx context.Context, p priority, path string, opts ...option.RequestOption) ([]byte, error) {
	if err := c.pacer.wait(ctx, p); err != nil {
		return nil, err
	}
	var raw []byte
	var res *http.Response
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := c.sdk.Get(ctx, path, nil, &raw, append(opts, option.WithResponseInto(&res))...)
	return raw, c.sdkError(res, err)
}

// sdkError turns what the SDK returned into our error, and remembers what it
// says about the API's health. The status is taken from the response: the SDK
// loses it when the error body is not the JSON that it expects.
func (c *Client) sdkError(res *http.Response, err error) error {
	if err == nil {
		c.pacer.succeeded()
		return c.health.saw(res, nil)
	}
	if res == nil || res.StatusCode < 300 {
		return c.health.saw(nil, err)
	}
	_ = c.health.saw(res, nil)
	failed := c.newAPIError(res, nil)
	if e, ok := errors.AsType[*openai.Error](err); ok {
		failed.Code, failed.Message = e.Code, c.withoutKey(e.Message)
	}
	c.pace(failed)
	return failed
}

// failed reads an error answer and closes it.
func (c *Client) failed(res *http.Response) *APIError {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	_ = res.Body.Close()
	return c.newAPIError(res, body)
}

func (c *Client) newAPIError(res *http.Response, body []byte) *APIError {
	detail := gjson.GetBytes(body, "error")
	return &APIError{
		Status: res.StatusCode, Code: detail.Get("code").String(), Message: c.withoutKey(detail.Get("message").String()),
		RetryAfter: retryAfter(res.Header, time.Now()),
	}
}

// withoutKey removes the key from what the API says: a message about a wrong one
// may repeat it, and messages are logged.
func (c *Client) withoutKey(message string) string {
	if c.key == "" {
		return message
	}
	return strings.ReplaceAll(message, c.key, "[redacted]")
}

func (c *Client) pace(e *APIError) {
	if e.Status == http.StatusTooManyRequests {
		c.pacer.limited(e.RetryAfter)
	}
}

// maxRetryAfter bounds what the API may ask to wait: agents wait for the results
// that are held back, and to ask every ten minutes burdens nobody.
const maxRetryAfter = 10 * time.Minute

// retryAfter reads Retry-After-Ms, or Retry-After as seconds or a date (RFC
// 9110 section 10.2.3); 0 when it is absent, past or garbage.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseUint(h.Get("Retry-After-Ms"), 10, 63); err == nil {
		return min(time.Duration(min(ms, uint64(maxRetryAfter/time.Millisecond)))*time.Millisecond, maxRetryAfter)
	}
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(value, 64); err == nil && seconds > 0 {
		return time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}

// health is what the last answers said about the API.
type health struct {
	refused     atomic.Bool
	unreachable atomic.Bool
}

// saw remembers an answer, or that there was none. An ended context says
// nothing about the API.
func (h *health) saw(res *http.Response, err error) error {
	switch {
	case err != nil:
		if !errors.Is(err, context.Canceled) {
			h.unreachable.Store(true)
		}
	case res != nil:
		h.unreachable.Store(res.StatusCode >= 500)
		if res.StatusCode < 300 || res.StatusCode == http.StatusUnauthorized {
			h.refused.Store(res.StatusCode == http.StatusUnauthorized)
		}
	}
	return err
}

// KeyRefused reports whether the API last refused the key (401).
func (c *Client) KeyRefused() bool { return c.health.refused.Load() }

// Unreachable reports whether the API last did not answer, or answered 5xx.
func (c *Client) Unreachable() bool { return c.health.unreachable.Load() }
