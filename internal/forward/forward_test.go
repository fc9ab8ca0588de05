package forward_test

import (
	"strings"
	"testing"

	"functionbridge/internal/journal"
)

func TestForwardPostsTheArgumentsAndReturnsTheReply(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "application/json", `{"b":1,"a":1.10}`))
	b := newBench(t, table("get_weather: "+up.URL+"/lookup"))

	args := `{"id":9007199254740993,"rate":1.10}`
	outcome, rec := b.run(t, "get_weather", args)

	if want := journal.Success(`{"b":1,"a":1.10}`); outcome != want {
		t.Errorf("outcome = %+v, want %+v", outcome, want)
	}
	got := up.requests()
	if len(got) != 1 || got[0].body != args || got[0].method != "POST" || got[0].uri != "/lookup" {
		t.Fatalf("requests = %+v", got)
	}
	key := journal.Key{SessionID: "sess_1", TurnID: "turn_1", CallID: "call_1"}.CallKey()
	for name, want := range map[string]string{
		"Accept":            "application/json, text/*;q=0.9, */*;q=0.5",
		"User-Agent":        "functionbridge/1.2.3",
		"Content-Type":      "application/json",
		"Idempotency-Key":   key,
		"Bridge-Session-Id": "sess_1",
		"Bridge-Turn-Id":    "turn_1",
		"Bridge-Call-Id":    "call_1",
		"Bridge-Function":   "get_weather",
	} {
		if got := got[0].header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if len(rec.requests) != 1 || rec.sendings != 1 || len(rec.attempts) != 1 || rec.attempts[0].Status != 200 {
		t.Errorf("recorder = %+v", rec)
	}
	if strings.Contains(string(rec.requests[0]), "9007199254740993") {
		t.Errorf("the journaled request repeats the arguments: %s", rec.requests[0])
	}
}
