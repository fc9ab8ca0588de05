package agentsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// toolDef is a tool as it was given, completed by the fields that answers always hold.
type toolDef struct {
	name  string
	async bool
	json  []byte
}

// parseTools reads a JSON array of tool definitions; nil and null are no tools.
func parseTools(raw []byte) ([]toolDef, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	defs := make([]toolDef, 0, len(list))
	for i, one := range list {
		tool := gjson.ParseBytes(one)
		if !tool.IsObject() || tool.Get("type").String() == "" {
			return nil, fmt.Errorf("tools[%d]: want an object with a type", i)
		}
		if tool.Get("type").String() != "function" {
			defs = append(defs, toolDef{json: one})
			continue
		}
		def, err := parseFunction(tool)
		if err != nil {
			return nil, fmt.Errorf("tools[%d]: %w", i, err)
		}
		defs = append(defs, def)
	}
	return defs, nil
}

func parseFunction(tool gjson.Result) (toolDef, error) {
	name := tool.Get("name").String()
	if name == "" {
		return toolDef{}, errors.New("a function needs a name")
	}
	b := []byte(tool.Raw)
	b = b[:len(b)-1]
	for _, field := range []struct{ key, value string }{
		{"description", `""`}, {"parameters", "{}"}, {"defer_loading", "false"}, {"async", "false"},
	} {
		if !tool.Get(field.key).Exists() {
			b = append(b, `,"`+field.key+`":`+field.value...)
		}
	}
	return toolDef{name: name, async: tool.Get("async").Bool(), json: append(b, '}')}, nil
}

func (ss *session) toolIsAsync(name string) bool {
	for i := range ss.tools {
		if ss.tools[i].name == name {
			return ss.tools[i].async
		}
	}
	return false
}

func appendTools(b []byte, tools []toolDef) []byte {
	b = append(b, '[')
	for i := range tools {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, tools[i].json...)
	}
	return append(b, ']')
}

// agentFields are those that a session's agent and a saved agent share, with the defaults of the API.
const agentFields = `"instructions":"","model":"gpt-simulated","multi_agent":{"enabled":false,"max_concurrent_subagents":null},` +
	`"name":null,"reasoning":{"effort":"medium","summary":null},"service_tier":"auto",` +
	`"text":{"format":{"type":"text"},"verbosity":"medium"},"compaction":{"async":true},"experimental":{"time_awareness":false},`

func (a *agent) append(b []byte) []byte {
	b = append(b, `{"object":"agent","id":`...)
	b = appendString(b, a.id)
	b = append(b, ',')
	b = append(b, agentFields...)
	b = append(b, `"metadata":{},"created_at":`...)
	b = appendUnix(b, a.created)
	b = append(b, `,"updated_at":`...)
	b = appendUnix(b, a.created)
	b = append(b, `,"tools":`...)
	return append(appendTools(b, a.tools), '}')
}

// snapshot appends the session as the API shows it.
func (ss *session) snapshot(b []byte) []byte {
	if ss.head == nil {
		ss.head = ss.renderHead()
	}
	b = append(b, ss.head...)
	b = append(b, `"status":"`...)
	b = append(b, ss.status...)
	b = append(b, `","error":`...)
	b = appendNullable(b, ss.errText)
	b = append(b, `,"last_active_at":`...)
	b = appendUnix(b, ss.lastActive)
	b = append(b, `,"required_actions":[`...)
	for i, e := range ss.required {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, e.json...)
	}
	return append(b, `]}`...)
}

// renderHead renders what seldom changes: everything before the status.
func (ss *session) renderHead() []byte {
	b := append([]byte(nil), `{"id":`...)
	b = appendString(b, ss.id)
	b = append(b, `,"object":"agent.session","agent":{"id":`...)
	b = appendString(b, ss.agentID)
	b = append(b, ',')
	b = append(b, agentFields...)
	b = append(b, `"tools":`...)
	b = appendTools(b, ss.tools)
	b = append(b, `},"created_at":`...)
	b = appendUnix(b, ss.created)
	b = append(b, `,"environment":{"type":"none"},"metadata":{`...)
	for i, key := range slices.Sorted(maps.Keys(ss.metadata)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, key), ':')
		b = appendString(b, ss.metadata[key])
	}
	b = append(b, `},"usage":null,"vault_ids":[],`...)
	if ss.sim.opts.Noise {
		b = append(b, `"x_unheard_of":{"status":"idle","required_actions":[]},`...)
	}
	return b
}

func (t *turn) append(b []byte, ss *session) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, t.id)
	b = append(b, `,"object":"agent.session.turn","agent_id":`...)
	b = appendString(b, ss.agentID)
	b = append(b, `,"session_id":`...)
	b = appendString(b, ss.id)
	b = append(b, `,"subagent_id":null,"status":"`...)
	b = append(b, t.status...)
	b = append(b, `","error":`...)
	if t.errText == "" {
		b = append(b, "null"...)
	} else {
		b = append(b, `{"code":"internal_error","message":`...)
		b = append(appendString(b, t.errText), '}')
	}
	b = append(b, `,"created_at":`...)
	b = appendUnix(b, t.created)
	b = append(b, `,"started_at":`...)
	b = appendUnix(b, t.started)
	b = append(b, `,"completed_at":`...)
	b = appendUnix(b, t.completed)
	return append(b, `,"usage":null}`...)
}

// appendIDs appends the fields of a call that its item and its required action share; arguments keep their bytes.
func (c *call) appendIDs(b []byte) []byte {
	b = append(b, `"turn_id":`...)
	b = appendString(b, c.turn.id)
	b = append(b, `,"call_id":`...)
	b = appendString(b, c.id)
	b = append(b, `,"name":`...)
	b = appendString(b, c.name)
	if c.arguments != nil {
		b = append(b, `,"arguments":`...)
		b = append(b, c.arguments...)
	}
	return b
}

func (c *call) appendAction(b []byte) []byte {
	b = append(b, `{"type":"function_call",`...)
	return append(c.appendIDs(b), '}')
}

func (c *call) appendItem(b []byte, status string) []byte {
	b = append(b, `{"type":"function_call","id":`...)
	b = appendString(b, c.itemID)
	b = append(b, `,"status":"`...)
	b = append(b, status...)
	b = append(b, `",`...)
	return append(c.appendIDs(b), '}')
}

func appendOutputItem(b []byte, id string, c *call, r *Result) []byte {
	b = append(b, `{"type":"function_call_output","id":`...)
	b = appendString(b, id)
	b = append(b, `,"turn_id":`...)
	b = appendString(b, c.turn.id)
	b = append(b, `,"call_id":`...)
	b = appendString(b, c.id)
	if r.Success {
		b = append(b, `,"status":"completed","output":`...)
	} else {
		b = append(b, `,"status":"failed","output":`...)
	}
	if r.Output == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, r.Output...)
	}
	b = append(b, `,"error":`...)
	return append(appendNullable(b, r.Error), '}')
}

func appendUserMessage(b []byte, id, turnID, text string) []byte {
	b = append(b, `{"type":"message","role":"user","phase":null,"status":"completed","id":`...)
	b = appendString(b, id)
	b = append(b, `,"turn_id":`...)
	b = appendString(b, turnID)
	b = append(b, `,"content":[{"type":"input_text","text":`...)
	return append(appendString(b, text), `}]}`...)
}

func appendAssistantMessage(b []byte, id, turnID, status, text string) []byte {
	b = append(b, `{"type":"message","role":"assistant","phase":"final_answer","id":`...)
	b = appendString(b, id)
	b = append(b, `,"turn_id":`...)
	b = appendString(b, turnID)
	b = append(b, `,"status":"`...)
	b = append(b, status...)
	if text == "" {
		return append(b, `","content":[]}`...)
	}
	b = append(b, `","content":[{"type":"output_text","text":`...)
	return append(appendString(b, text), `}]}`...)
}

func appendApproval(b []byte, turnID, requestID string) []byte {
	b = append(b, `{"type":"computer_use_approval_request","turn_id":`...)
	b = appendString(b, turnID)
	b = append(b, `,"request_id":`...)
	b = appendString(b, requestID)
	return append(b, `,"request":{"type":"browser_origin_access","origin":"https://shop.example","reason":null}}`...)
}

func appendConnection(b []byte, environmentID string) []byte {
	b = append(b, `{"type":"environment_connection","environment_id":`...)
	return append(appendString(b, environmentID), '}')
}

// appendUnknownAction looks like a function call in everything but its type.
func appendUnknownAction(b []byte, turnID, id string) []byte {
	b = append(b, `{"type":"function_call_v2","turn_id":`...)
	b = appendString(b, turnID)
	b = append(b, `,"call_id":`...)
	b = appendString(b, id)
	return append(b, `,"name":"get_weather","arguments":{}}`...)
}

func (e *entry) requestID() string { return gjson.GetBytes(e.json, "request_id").String() }

// appendID writes prefix and n with a fixed width, so that ids sort by age.
func appendID(b []byte, prefix string, n uint64) []byte {
	const digits = "0123456789abcdef"
	b = append(b, prefix...)
	for shift := 28; shift >= 0; shift -= 4 {
		b = append(b, digits[n>>uint(shift)&15])
	}
	return b
}

// appendUnix writes seconds since 1970; no time is null.
func appendUnix(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, t.Unix(), 10)
}

// appendNullable writes a string, or null for an empty one.
func appendNullable(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return appendString(b, s)
}

// appendString writes s as a JSON string; bytes that are not UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += size
			continue
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}
