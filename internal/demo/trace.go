package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"functionbridge/internal/journal"
)

// width is where the trace's sentences are wrapped, in characters. JSON is not.
const width = 100

// trace prints the play for people. Errors of the writer are left to the
// program's end: there is nobody else to tell.
type trace struct {
	out   io.Writer
	paint paint
}

func (t trace) printf(format string, args ...any) { _, _ = fmt.Fprintf(t.out, format, args...) }

// field prints a label and a text, wrapped and aligned behind it.
func (t trace) field(label, text string) {
	for i, line := range wrap(text, width-16) {
		if i > 0 {
			label = ""
		}
		t.printf("    %s  %s\n", t.paint.dim(fmt.Sprintf("%-10s", label)), line)
	}
}

// scene prints one turn of a session.
func (t trace) scene(s Scene, turn int, played playedScene) {
	t.printf("\n%s\n", t.paint.bold(fmt.Sprintf("%s, turn %d", s.Session, turn)))
	for _, line := range wrap("The user says: "+s.Message, width-2) {
		t.printf("  %s\n", line)
	}
	t.printf("  The agent makes %s.\n", atOnce(s))
	for _, c := range played.calls {
		t.call(c)
	}
	if s.Approval {
		t.approval(played.approval)
	}
	for _, d := range played.differences {
		t.field("differs", t.paint.bad(d))
	}
}

func atOnce(s Scene) string {
	text := plural(len(s.Calls), "call") + " at once"
	if s.Approval {
		text += ", and asks a person to approve something"
	}
	return text
}

func (t trace) title(name, note string) {
	t.printf("\n  %s  %s\n", t.paint.bold(fmt.Sprintf("%-17s", name)), t.paint.dim(note))
}

func (t trace) call(c playedCall) {
	t.title(c.Function, c.Note)
	t.field("arguments", c.Arguments)
	t.field("request", c.request())
	if len(c.journal.Attempts) > 0 {
		t.field(word(len(c.journal.Attempts), "reply", "replies"), replies(c.journal.Attempts))
	}
	switch text, _ := c.result.Text(); {
	case !c.answered:
		t.field("result", t.paint.bad("none"))
	case c.result.Success:
		t.field("result", t.paint.good("success")+" after "+short(c.took()))
		t.field("output", text)
	default:
		t.field("result", t.paint.warn(string("error "+c.journal.Outcome.Failure))+" after "+short(c.took()))
		t.field("error", c.result.Error)
	}
	for _, d := range c.differences {
		t.field("differs", t.paint.bad(d))
	}
}

// request is the request that the service received.
func (c *playedCall) request() string {
	if len(c.received) == 0 {
		return "none; nothing was sent"
	}
	first := c.received[0]
	text := c.line(first)
	if len(first.Body) > 0 && string(first.Body) == c.Arguments {
		text += ", the body is the arguments"
	}
	return text
}

// replies tells how the attempts ended: "503 in 2 ms; 1.0 s later 201 in 1 ms".
func replies(attempts []journal.Attempt) string {
	var told []string
	for i, a := range attempts {
		what := fmt.Sprintf("status %d", a.Status)
		if a.Status == 0 {
			what = "none, " + a.Error
		}
		what += " after " + short(a.Duration)
		if i > 0 {
			before := attempts[i-1]
			what = short(a.StartedAt.Sub(before.StartedAt.Add(before.Duration))) + " later " + what
		}
		told = append(told, what)
	}
	return strings.Join(told, "; ")
}

func (t trace) approval(a approval) {
	t.title("computer_use_approval_request", "no function call: the bridge leaves it alone")
	if a.waited {
		t.field("waited", "still pending when both results were in")
	}
	if a.given {
		t.field("answered", "by the script in a person's place, so that the turn can end")
	}
}

// summary prints what it came to.
func (t trace) summary(r Report, scenes []Scene) {
	sessions := map[string]bool{}
	for _, s := range scenes {
		sessions[s.Session] = true
	}
	t.printf("\n%s\n", t.paint.bold("Summary"))
	t.printf("  %s in %s and %s, with %s to the services.\n", plural(r.Calls, "call"),
		plural(len(sessions), "session"), short(r.Took), plural(r.Requests, "request"))
	if len(r.Differences) == 0 {
		t.printf("  %s %d succeeded, %d failed as they should.\n", t.paint.good("Everything came out as scripted:"), r.Succeeded, r.Calls-r.Succeeded)
		t.printf("  Each result was posted once, and its session confirmed it.\n")
		return
	}
	t.printf("  %s\n", t.paint.bad(fmt.Sprintf("Not as scripted, in %s:", plural(len(r.Differences), "point"))))
	for _, d := range r.Differences {
		t.printf("    %s\n", d)
	}
}

func plural(n int, noun string) string { return fmt.Sprintf("%d %s", n, word(n, noun, noun+"s")) }

func word(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// short is a duration as people write it: 4 ms, 1.2 s.
func short(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// wrap breaks a text at blanks into lines of at most so many characters. JSON
// stays in one line, to be copied.
func wrap(text string, limit int) []string {
	if strings.ContainsAny(text[:min(1, len(text))], `{["`) {
		return []string{text}
	}
	var lines []string
	line := ""
	for w := range strings.SplitSeq(text, " ") {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(w) > limit {
			lines, line = append(lines, line), w
			continue
		}
		if line != "" {
			line += " "
		}
		line += w
	}
	return append(lines, line)
}

// paint colours text where colours are allowed.
type paint bool

func (p paint) sgr(code, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p paint) bold(text string) string { return p.sgr("1", text) }
func (p paint) dim(text string) string  { return p.sgr("2", text) }
func (p paint) good(text string) string { return p.sgr("32", text) }
func (p paint) warn(text string) string { return p.sgr("33", text) }
func (p paint) bad(text string) string  { return p.sgr("31", text) }
