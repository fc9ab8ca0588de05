package agentsim_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"functionbridge/internal/agentsim"
)

func TestMessagesAreReadLineByLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"one call", `call get_weather {"city":"Oslo"}`, `get_weather={"city":"Oslo"} | say ""`},
		{"two at once", "call a {}\ncall b [1]", `a={} b=[1] | say ""`},
		{"two steps", "call a {}\n\ncall b {}", `a={} | b={} | say ""`},
		{"many blank lines", "\n\ncall a {}\n \n\n\ncall b {}\n\n", `a={} | b={} | say ""`},
		{"CR LF", "call a {}\r\n\r\ncall b {}\r\nBye.\r\n", `a={} | b={} | say "Bye."`},
		{"text ends the turn", "call a {}\nThat is it.\ncall b {}", `a={} | say "That is it.\ncall b {}"`},
		{"only text", "Hello there.", `say "Hello there."`},
		{"nothing", "", `say ""`},
		{"no arguments", "call a", `a | say ""`},
		{"arguments byte for byte", `call a  { "x":1e400 } `, `a= { "x":1e400 }  | say ""`},
		{"a string", `call a "{\"x\":1}"`, `a="{\"x\":1}" | say ""`},
		{"capitals are text", "Call a {}", `say "Call a {}"`},
		{"call alone is text", "call", `say "call"`},
		{"other directives", "@approval\n@connection\n@unknown\n@text 3\n@wait 2s\n@async a {}", `approval connection unknown text3 wait2s async:a={} | say ""`},
		{"an unknown directive is text", "@home", `say "@home"`},
	} {
		steps, say, err := agentsim.ParseMessage(tt.text)
		if got := describe(steps, say); err != nil || got != tt.want {
			t.Errorf("%s:\n got %s (%v)\nwant %s", tt.name, got, err, tt.want)
		}
	}
	for _, text := range []string{"call a {", "ok\n", "\ncall a nope", "@text x", "@text -1", "@wait soon", "call a {} {}"} {
		if _, _, err := agentsim.ParseMessage(text); (err == nil) != (text == "ok\n") {
			t.Errorf("ParseMessage(%q) = %v", text, err)
		}
	}
}

func describe(steps []agentsim.Step, say string) string {
	parts := make([]string, 0, len(steps)+1)
	for _, step := range steps {
		words := make([]string, 0, len(step))
		for _, a := range step {
			word := string(a.Kind)
			switch a.Kind {
			case agentsim.ActionCall:
				word = a.Name
				if a.Arguments != nil {
					word += "=" + string(a.Arguments)
				}
				if a.Async {
					word = "async:" + word
				}
			case agentsim.ActionText:
				word += strconv.Itoa(a.N)
			case agentsim.ActionWait:
				word += a.Wait.String()
			default:
			}
			words = append(words, word)
		}
		parts = append(parts, strings.Join(words, " "))
	}
	return strings.Join(append(parts, fmt.Sprintf("say %q", say)), " | ")
}

const goodScript = `
options: {base: hostile-other, lag: 0s, event_line: true, late_status: 202}
turns:
  - steps:
      - - call: get_weather
          arguments: '{"city":"Oslo","n":9007199254740993}'
          id: call_1
        - approval: true
      - - text: 2
        - wait: 1s
        - fault: {kind: eof}
        - call: get_time
          async: true
    say: Bye.
  - message: |
      call f {}

      Done.
faults:
  - {kind: status, on: post_events, status: 503, count: 2, retry_after: 1}
  - {kind: forget, keep_key: true, for: 3s}
`

func TestScriptsAreRead(t *testing.T) {
	t.Parallel()
	script, err := agentsim.ParseScript("turns.yaml", []byte(goodScript))
	if err != nil {
		t.Fatal(err)
	}
	if o := script.Options; o == nil || o.Lag != 0 || !o.QuietStatus || !o.EventLine || o.LateStatus != 202 {
		t.Errorf("options = %+v", o)
	}
	want := []string{
		`get_weather={"city":"Oslo","n":9007199254740993} approval | text2 wait1s fault async:get_time | say "Bye."`,
		`f={} | say "Done."`,
	}
	for i, turn := range script.Turns {
		if got := describe(turn.Steps, turn.Say); got != want[i] {
			t.Errorf("turn %d:\n got %s\nwant %s", i, got, want[i])
		}
	}
	if got := fmt.Sprintf("%+v", script.Faults); !strings.Contains(got, "Kind:status On:post_events") || !strings.Contains(got, "Kind:forget On:post_events") {
		t.Errorf("faults = %s", got)
	}
}

func TestScriptMistakesAreAllReportedWithTheirPlaces(t *testing.T) {
	t.Parallel()
	_, err := agentsim.ParseScript("s.yaml", []byte(`
optoins: kind
turns:
  - steps:
      - - call: f
          arguments: {city: Oslo}
        - {call: f, text: 3}
        - {call: g, arguments: '{oops'}
        - {wait: soon}
      - {call: h}
  - {message: hi, say: ho}
  - {message: "call f {"}
faults:
  - {kind: bang}
  - {kind: status}
  - {kind: cut}
  - {kind: status, on: get_session, count: many}
`))
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		"s.yaml:2:1: unknown key \"optoins\"", "s.yaml:6:22: want JSON in quotes", "s.yaml:7:11: an action is one of",
		"s.yaml:8:11: call g: arguments are not JSON", "s.yaml:9:18: want a duration", "s.yaml:10:9: want a list",
		"s.yaml:11:15: message stands alone", "s.yaml:12:15: line 1: call f", `s.yaml:14:5: unknown fault "bang"; one of status, `, "s.yaml:15:5: fault status: on is missing",
		"s.yaml:16:5: no session exists yet", "s.yaml:17:44: want a whole number",
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("missing %q", w)
		}
	}
	if t.Failed() {
		t.Log(err)
	}
	for _, bad := range []string{"", "turns: [", "- 1", "turns: {}", "options: nice", "turns: []\nturns: []", "options: {late_status: 500}"} {
		if _, err := agentsim.ParseScript("s.yaml", []byte(bad)); err == nil {
			t.Errorf("script %q passed", bad)
		}
	}
}

func TestScriptPlaysATurnForEachMessageOfASession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := serve(t, agentsim.Kind())
		script, err := agentsim.ParseScript("s.yaml", []byte("turns:\n - message: First.\n - message: Second.\n"))
		if err != nil {
			t.Fatal(err)
		}
		if err := sim.Load(script); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{sim.CreateSession(agentsim.SessionSpec{}), sim.CreateSession(agentsim.SessionSpec{})} {
			for _, want := range []string{"First.", "Second.", "Third by message."} {
				if got := postEvents(t, client, id, message("Third by message.")); got.status != 202 {
					t.Fatalf("message: %d %s", got.status, got.body)
				}
				items := get(t, client, "/v1/agents/sessions/"+id+"/items?limit=1")
				if got := items.get("data.0.content.0.text"); got != want {
					t.Errorf("the agent says %q, want %q", got, want)
				}
			}
		}
	})
}
