package session

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"functionbridge/internal/exchange"
)

// betaHeader goes on every request to the Agents API; the SDK adds it only to
// its typed methods (openai-go v3.99.0, betaagentsession.go).
const (
	betaHeader = "OpenAI-Beta"
	betaValue  = "agents=v1"
)

// submitTimeout is the least that one post of a result is given, and half of the
// most. The API may hold a post open for minutes while an environment connects.
const submitTimeout = 2 * time.Minute

// keyTryWait is when a refused key is tried again for the first time: a gateway
// may answer 401 for a moment.
const keyTryWait = time.Second

// ClientConfig says how to reach the Agents API. Empty fields are the SDK's
// defaults.
type ClientConfig struct {
	APIKey    string
	BaseURL   string
	OrgID     string
	ProjectID string
	UserAgent string
	// Logger hears when the key is refused, and when it works again; nil is nobody.
	Logger *slog.Logger
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
	// posts carries the results, in place where the API is reached over plain HTTP:
	// http.Client would copy the headers of each and look for cookies and redirects,
	// of which there are none.
	posts http.RoundTripper
	// streams carries the streams; see newStreamTransport.
	streams http.RoundTripper
	// events is the request that the SDK would send to a session's events, up
	// to the session id: base URL and headers.
	events *http.Request

	health   health
	patience patience
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
	client := &Client{sdk: openai.NewClient(options...), http: httpClient, posts: httpClient.Transport, streams: httpClient.Transport, pacer: newPacer(c.Rate), key: c.APIKey}
	if c.HTTPClient == nil {
		client.streams, client.posts = newStreamTransport(), exchange.NewDirect(newTransport())
	}
	client.health.log = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	client.health.key.least, client.health.key.most = keyTryWait, refusedWait
	var err error
	client.events, err = client.prepare(c.UserAgent)
	return client, err
}

// newTransport keeps as many idle connections as there are posts at once: each
// result is one request, and a burst of calls answers in a burst of results.
func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           1024,
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        60 * time.Second,
		MaxResponseHeaderBytes: 1 << 20,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
	}
}

// newStreamTransport makes connections for streams, which are many and silent:
// what is sent on one is a request of half a kilobyte, for which there need be no
// buffer of four.
func newStreamTransport() *http.Transport {
	t := newTransport()
	t.WriteBufferSize = 512
	return t
}

// refuseRedirect hands a redirect back as the answer: the key must not travel.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Close drops idle connections.
func (c *Client) Close() {
	c.patience.close()
	c.http.CloseIdleConnections()
	for _, carrier := range []http.RoundTripper{c.streams, c.posts} {
		if c, ok := carrier.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
	}
}

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

// Stream opens the live events of a session. The caller closes the body; ctx
// ends the stream. Errors are *APIError for an answer that is no event stream.
func (c *Client) Stream(ctx context.Context, sessionID string) (io.ReadCloser, error) {
	r := c.eventsRequest(ctx, http.MethodGet, sessionID)
	r.URL.RawQuery = "include_obfuscation=false"
	r.Header.Set("Accept", "text/event-stream")
	res, err := c.streams.RoundTrip(r)
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
	r := c.eventsRequest(c.patience.within(ctx, time.Now()), http.MethodPost, sessionID)
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
	if res.Body != http.NoBody {
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxErrorBody))
	}
	return res.Body.Close()
}
