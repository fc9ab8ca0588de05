//nolint:thelper // these are tests: their failures are theirs
package journaltest

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"functionbridge/internal/journal"
)

func rowComesBack(t *testing.T, o Open) {
	s := open(t, o, "a")
	c := call("call_1")
	c.State, c.Submissions = journal.Abandoned, 3
	c.Request = []byte(`{"method":"POST"}`)
	c.Outcome = journal.Failure(journal.RateLimited, "Try again after 30 s.")
	late := journal.Success("done")
	late.Content = true
	c.LateOutcome = &late
	c.Attempts = []journal.Attempt{
		{StartedAt: moment(1), Duration: 250 * time.Millisecond, Status: 429},
		{StartedAt: moment(2), Duration: time.Microsecond, Error: "connection refused"},
		{StartedAt: moment(2), Status: 404, Recover: true},
	}
	c.Fence, c.Rev, c.Reran, c.Crashes = 2, 1<<40, true, 2
	c.SentAt, c.RetryAt = moment(6), moment(86400)
	c.AnsweredAt, c.SubmittedAt, c.ConfirmedAt = moment(3), moment(4), moment(5)
	save(t, s, journal.Durable, c)
	c.Owner = "a"
	if got := get(t, s, c.Key); !reflect.DeepEqual(got, c) {
		t.Errorf("got\n%+v, want\n%+v", got, c)
	}
}

func emptyRow(t *testing.T, o Open) {
	s := open(t, o, "a")
	c := journal.Call{Key: journal.Key{SessionID: "s", TurnID: "t", CallID: "c"}, State: journal.Pending}
	save(t, s, journal.Durable, c)
	c.Owner = "a"
	if got := get(t, s, c.Key); !reflect.DeepEqual(got, c) {
		t.Errorf("got\n%+v, want\n%+v", got, c)
	}
}

func bytesComeBack(t *testing.T, o Open) {
	s := open(t, o, "a")
	texts := map[string]string{
		"nul":           "{\"s\":\"a\x00b\"}\x00",
		"escaped":       `{"s":"a\u0000b"}`,
		"invalid utf-8": "\xff\xfe\xc3",
		"number":        `{"id":9007199254740993,"f":1e400,"p":2.50}`,
		"space, order":  "{ \"b\" : 1,\n\"a\":2.50, \"a\":3 }\r\n",
		"quotes":        `'"; DROP TABLE calls; --`,
		"unicode":       "日本 \u2028 😀 e\u0301",
		"large":         string(bytes.Repeat([]byte("0123456789abcdef"), 64<<10)),
	}
	for name, text := range texts {
		c := call(name)
		c.State = journal.Abandoned
		c.Arguments, c.Request = []byte(text), []byte(text)
		c.Outcome = journal.Success(text)
		late := journal.Failure(journal.Internal, text)
		c.LateOutcome = &late
		save(t, s, journal.Lazy, c)
	}
	for name, text := range texts {
		got := get(t, s, call(name).Key)
		for field, value := range map[string]string{
			"arguments": string(got.Arguments), "request": string(got.Request),
			"output": got.Outcome.Output, "late error": got.LateOutcome.Error,
		} {
			if value != text {
				t.Errorf("%s: %s is %.80q, want %.80q", name, field, value, text)
			}
		}
	}
}

func argumentsStay(t *testing.T, o Open) {
	s := open(t, o, "a")
	c := call("call_1")
	save(t, s, journal.Durable, c)
	changed := in(c, journal.Running)
	changed.Arguments, changed.Function, changed.CreatedAt = []byte(`{"a":2.5,"b":1}`), "other", moment(9)
	save(t, s, journal.Durable, changed)
	got := get(t, s, c.Key)
	if string(got.Arguments) != string(c.Arguments) || got.Function != c.Function || !got.CreatedAt.Equal(c.CreatedAt) {
		t.Errorf("got %s(%s) of %s, want what the first write said", got.Function, got.Arguments, got.CreatedAt)
	}
	if got.State != journal.Running {
		t.Errorf("state %s, want running", got.State)
	}
}

func lastImageWins(t *testing.T, o Open) {
	s := open(t, o, "a")
	c := call("call_1")
	for generation := range 100 {
		c.Submissions = generation
		save(t, s, journal.Lazy, c)
	}
	if got := get(t, s, c.Key).Submissions; got != 99 {
		t.Errorf("generation %d, want the last, 99", got)
	}
}

func oneRow(t *testing.T, o Open) {
	s := open(t, o, "a")
	c := call("call_1")
	save(t, s, journal.Durable, c, in(c, journal.Running), in(c, journal.Answered))
	other := c
	other.TurnID = "turn_2"
	save(t, s, journal.Durable, other)
	calls, _, err := s.Calls(t.Context(), journal.Filter{})
	if err != nil || len(calls) != 2 {
		t.Errorf("%d rows (%v), want one for each of two turns", len(calls), err)
	}
}

func badRow(t *testing.T, o Open) {
	s := open(t, o, "a")
	for name, change := range map[string]func(*journal.Call){
		"state":   func(c *journal.Call) { c.State = "lost" },
		"session": func(c *journal.Call) { c.SessionID = "" },
		"turn":    func(c *journal.Call) { c.TurnID = "" },
		"call":    func(c *journal.Call) { c.CallID = "" },
	} {
		c := call("call_1")
		change(&c)
		for _, d := range []journal.Durability{journal.Lazy, journal.Durable} {
			if err := s.Save(t.Context(), c, d); err == nil || errors.Is(err, journal.ErrUnavailable) {
				t.Errorf("bad %s: error %v, want one about the row", name, err)
			}
		}
	}
	save(t, s, journal.Durable, call("call_2"))
}
