package journal

import (
	"regexp"
	"slices"
	"testing"
)

func TestEveryStateButTheSettledCanEnd(t *testing.T) {
	t.Parallel()
	for _, s := range States() {
		for _, end := range []State{Confirmed, Abandoned} {
			if got, want := slices.Contains(next(s), end), !s.Settled(); got != want {
				t.Errorf("%s to %s: %t, want %t", s, end, got, want)
			}
		}
		if !CanReach(s, s) || !s.Known() {
			t.Errorf("%s is not a state that can stay", s)
		}
	}
	if State("lost").Known() || State("").Known() {
		t.Error("an unknown state is taken for known")
	}
}

func TestAnOutcomeIsNotTakenBack(t *testing.T) {
	t.Parallel()
	for _, from := range []State{Answered, Submitted, Confirmed} {
		for _, to := range []State{Pending, Running, InDoubt} {
			if CanReach(from, to) {
				t.Errorf("%s can become %s again", from, to)
			}
		}
	}
}

func TestReachIsManyMoves(t *testing.T) {
	t.Parallel()
	if slices.Contains(next(InDoubt), Running) || !CanReach(InDoubt, Running) {
		t.Error("in doubt must reach running, by way of pending only")
	}
	if !CanReach(Submitted, Answered) {
		t.Error("a refused submission is answered again")
	}
	if !CanReach(Abandoned, Pending) || !CanReach(Abandoned, Confirmed) {
		t.Error("a session that was only away lists its calls again")
	}
}

func TestKeysAreFitForAHeader(t *testing.T) {
	t.Parallel()
	fit := regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	for _, k := range []Key{{}, {"s", "t", "c"}, {"日本", "\x00", "\r\n"}} {
		for _, key := range []string{k.CallKey(), SubmissionKey(k.CallKey(), Success("x"), 0)} {
			if !fit.MatchString(key) {
				t.Errorf("key %q of %v", key, k)
			}
		}
	}
}

// TestCallKeyIsFixed: a release that computed another key would run calls twice
// after an upgrade.
func TestCallKeyIsFixed(t *testing.T) {
	t.Parallel()
	k := Key{SessionID: "sess_1", TurnID: "turn_1", CallID: "call_1"}
	if got, want := k.CallKey(), "UTRUVOsZoL4H7ZPPfuzlQ58Cb82H6sx7K6JCQLQkKe8"; got != want {
		t.Errorf("call key %s, want %s", got, want)
	}
	if got, want := SubmissionKey(k.CallKey(), Success("ok"), 0), "-375y8DqZ2u5navuXcxfkdbeQTXmejxX26WTQmsouWM"; got != want {
		t.Errorf("submission key %s, want %s", got, want)
	}
}

func TestKeysDifferWhenAnythingDoes(t *testing.T) {
	t.Parallel()
	content := Success("x")
	content.Content = true
	call := Key{"a", "b", "c"}.CallKey()
	keys := []string{
		call,
		Key{"ab", "", "c"}.CallKey(),
		Key{"a", "bc", ""}.CallKey(),
		Key{"", "ab", "c"}.CallKey(),
		SubmissionKey(call, Success("x"), 0),
		SubmissionKey(call, Success("x"), 1),
		SubmissionKey(call, Success("y"), 0),
		SubmissionKey(call, content, 0),
		SubmissionKey(call, Failure(Denied, "x"), 0),
		SubmissionKey("other", Success("x"), 0),
	}
	slices.Sort(keys)
	if n := len(slices.Compact(slices.Clone(keys))); n != len(keys) {
		t.Errorf("%d keys of %d differ", n, len(keys))
	}
}

func TestEveryKindIsListedOnce(t *testing.T) {
	t.Parallel()
	seen := map[Kind]bool{}
	for _, k := range Kinds() {
		if seen[k] || k == "" {
			t.Errorf("kind %q is listed twice or empty", k)
		}
		seen[k] = true
		if got := Failure(k, "No.").Label(); got != string(k) {
			t.Errorf("label %q, want %q", got, k)
		}
	}
	if got := Success("").Label(); got != "success" || seen["success"] {
		t.Errorf("label %q, want success, which is no kind", got)
	}
}
