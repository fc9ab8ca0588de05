package session

import (
	"encoding/json"
	"strings"
	"testing"

	"functionbridge/internal/journal"
)

// What is put together by hand says what encoding/json would say.
func FuzzResultBody(f *testing.F) {
	for _, text := range []string{
		"", "plain", `{"a": "b\\c"}`, "\x00\x1f\x7f\b\f\n\r\t", "<&>\u2028\u2029", "é\U0001F600\uFFFD", "\xff\xc3", "a\xc3\xa9\xc3", strings.Repeat("\"", 500),
	} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, success bool) {
		outcome := journal.Failure(journal.Denied, text)
		if success {
			outcome = journal.Success(text)
		}
		body := resultBody(journal.Call{Key: journal.Key{TurnID: text, CallID: "c" + text}, Outcome: outcome})
		if !json.Valid(body) {
			t.Fatalf("%q is no JSON", body)
		}
		type event struct {
			Type    string  `json:"type"`
			TurnID  string  `json:"turn_id"`
			CallID  string  `json:"call_id"`
			Success bool    `json:"success"`
			Output  *string `json:"output"`
			Error   *string `json:"error"`
		}
		var got struct{ Events []event }
		if err := json.Unmarshal(body, &got); err != nil || len(got.Events) != 1 {
			t.Fatalf("%q: %v", body, err)
		}
		want := string([]rune(text)) // each byte that is no UTF-8 is replaced
		e := got.Events[0]
		if e.Type != "agent.session.input.tool_result" || e.TurnID != want || e.CallID != "c"+want || e.Success != success {
			t.Errorf("got %+v, want %q", e, want)
		}
		said, unsaid := e.Output, e.Error
		if !success {
			said, unsaid = unsaid, said
		}
		if said == nil || *said != want || unsaid != nil {
			t.Errorf("%q does not say %q alone", body, want)
		}
	})
}

func BenchmarkResultBody(b *testing.B) {
	call := journal.Call{
		Key:     journal.Key{SessionID: "sess_00000001", TurnID: "turn_00000002", CallID: "call_0000000c"},
		Outcome: journal.Success(`{"order": "A-1001", "status": "shipped", "total": 19.90}`),
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(resultBody(call)) == 0 {
			b.Fatal("no body")
		}
	}
}
