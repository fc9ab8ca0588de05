package session

import (
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"functionbridge/internal/journal"
)

// ToolResult is the input event that a call's outcome is posted as, for showing
// what would be sent: the first and only event of the body that submit posts.
func ToolResult(call journal.Call) json.RawMessage {
	return json.RawMessage(gjson.GetBytes(resultBody(call), "events.0").Raw)
}

// resultBody is the body that posts a call's outcome: one result to a request,
// so that one that is refused holds back no other. The event is that of openai-go
// v3.99.0, AgentSessionInputParamAgentSessionInputToolResult. It is put together
// by hand: encoding/json took a fifth of all that the posting of a result costs
// besides the network.
func resultBody(call journal.Call) []byte {
	o := call.Outcome
	if o.Content && !json.Valid([]byte(o.Output)) {
		o = refusedOutcome(call, http.StatusBadRequest) // the agent must hear something
	}
	body := make([]byte, 0, resultRoom+len(o.Output)+len(o.Output)/8+len(o.Error))
	body = append(body, `{"events":[{"type":"agent.session.input.tool_result","turn_id":`...)
	body = appendJSON(body, call.TurnID)
	body = appendJSON(append(body, `,"call_id":`...), call.CallID)
	switch {
	case !o.Success:
		body = appendJSON(append(body, `,"success":false,"error":`...), o.Error)
	case o.Content:
		body = append(append(body, `,"success":true,"output":`...), o.Output...)
	default:
		body = appendJSON(append(body, `,"success":true,"output":`...), o.Output)
	}
	return append(body, `}]}`...)
}

// resultRoom is more than a body takes besides its texts.
const resultRoom = 256

const hexDigits = "0123456789abcdef"

// appendJSON appends a text as a JSON string (RFC 8259). Only what must be
// escaped is: escapes that a web page needs would make six bytes of each < > &,
// and the API limits the body. A byte that is no UTF-8 becomes U+FFFD.
func appendJSON(to []byte, text string) []byte {
	to = append(to, '"')
	done := 0 // what stands before it is appended
	for i := 0; i < len(text); {
		c := text[i]
		if c >= utf8.RuneSelf {
			if r, size := utf8.DecodeRuneInString(text[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		} else if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		to = appendEscape(append(to, text[done:i]...), c)
		i++
		done = i
	}
	return append(append(to, text[done:]...), '"')
}

// appendEscape appends a byte that cannot stand in a JSON string.
func appendEscape(to []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(to, '\\', c)
	case c == '\n':
		return append(to, `\n`...)
	case c == '\r':
		return append(to, `\r`...)
	case c == '\t':
		return append(to, `\t`...)
	case c < ' ':
		return append(to, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
	return append(to, "\uFFFD"...)
}
