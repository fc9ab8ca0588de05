package demo

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"functionbridge/internal/journal"
)

// compare says in which points the call came out otherwise than scripted.
func (c *playedCall) compare() []string {
	var found []string
	differs := func(format string, args ...any) {
		found = append(found, c.Function+" ("+c.ID+"): "+fmt.Sprintf(format, args...))
	}
	if !c.answered {
		differs("the agent got no result")
		return found
	}
	c.compareResult(differs)
	c.compareRequests(differs)
	if posts := len(c.result.Posts); posts != 1 || c.result.Posts[0].Status != http.StatusAccepted {
		differs("the result was posted %d times, want once and accepted", posts)
	}
	if c.journal.State != journal.Confirmed {
		differs("the journal has it as %q, want %q", c.journal.State, journal.Confirmed)
	}
	return found
}

func (c *playedCall) compareResult(differs func(string, ...any)) {
	switch text, isText := c.result.Text(); {
	case c.result.Success != (c.Failure == ""):
		differs("the agent was told success %t, want %t", c.result.Success, c.Failure == "")
	case c.result.Success && (!isText || text != c.Output):
		differs("the agent got the output %s, want %s", text, c.Output)
	case !strings.Contains(c.result.Error, c.Tells):
		differs("the agent was told %q, want %q in it", c.result.Error, c.Tells)
	case c.Hides != "" && strings.Contains(c.result.Error, c.Hides):
		differs("the agent was told %q, which must not hold %q", c.result.Error, c.Hides)
	}
	if c.journal.Outcome.Failure != c.Failure {
		differs("the kind of failure is %q, want %q", c.journal.Outcome.Failure, c.Failure)
	}
}

// compareRequests holds the service's view of the call against the script, and
// the journal's.
func (c *playedCall) compareRequests(differs func(string, ...any)) {
	var statuses []int
	for _, a := range c.journal.Attempts {
		statuses = append(statuses, a.Status)
	}
	if !slices.Equal(statuses, c.Statuses) {
		differs("the attempts ended with %v, want %v", statuses, c.Statuses)
	}
	if len(c.received) != len(c.Statuses) {
		differs("the service got %d requests, want %d", len(c.received), len(c.Statuses))
	}
	for _, r := range c.received {
		if got := c.line(r); got != c.Request {
			differs("the service got %q, want %q", got, c.Request)
		}
		if string(r.Body) != c.Body {
			differs("the service got the body %q, want %q", r.Body, c.Body)
		}
		if r.Key != c.journal.CallKey() {
			differs("an attempt had the idempotency key %q, want %q", r.Key, c.journal.CallKey())
		}
	}
}

// line is a request as scripts and traces have it.
func (c *playedCall) line(r Received) string { return r.Method + " " + c.service + " " + r.URI }
