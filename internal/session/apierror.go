package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/tidwall/gjson"
)

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

// maxErrorBody bounds what is read of an error answer.
const maxErrorBody = 64 << 10

// failed reads an error answer and closes it.
func (c *Client) failed(res *http.Response) *APIError {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	_ = res.Body.Close()
	return c.newAPIError(res, body)
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

// maxRetryAfter keeps an absurd Retry-After from overflowing. A result waits for
// as long as the API asks; see maxReadWait for everything else.
const maxRetryAfter = 365 * 24 * time.Hour

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
	log *slog.Logger
	// key is shut while the API refuses the key: requests wait there.
	key         gate
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
		if down := res.StatusCode >= 500; h.unreachable.Load() != down { // a write would be felt by all posts
			h.unreachable.Store(down)
		}
		h.sawKey(res.StatusCode)
	}
	return err
}

// sawKey closes the gate at a 401, and opens it when an answer shows that the
// API looked beyond the key.
func (h *health) sawKey(status int) {
	switch {
	case status == http.StatusUnauthorized:
		if h.key.shut() {
			h.log.Error("the Agents API refuses the key; nothing is read or posted until it works again: check OPENAI_API_KEY and OPENAI_BASE_URL")
		}
	case status < 300, status == http.StatusBadRequest, status == http.StatusForbidden, status == http.StatusNotFound,
		status == http.StatusConflict, status == http.StatusRequestEntityTooLarge:
		if h.key.open() {
			h.log.Info("the Agents API accepts the key again")
		}
	}
}

// KeyRefused reports whether the API last refused the key (401).
func (c *Client) KeyRefused() bool { return c.health.key.isShut() }

// Unreachable reports whether the API last did not answer, or answered 5xx.
func (c *Client) Unreachable() bool { return c.health.unreachable.Load() }
