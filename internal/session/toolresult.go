package session

import (
	"encoding/json"

	"github.com/tidwall/gjson"

	"functionbridge/internal/journal"
)

// ToolResult is the input event that a call's outcome is posted as, for showing
// what would be sent: the first and only event of the body that submit posts.
func ToolResult(call journal.Call) json.RawMessage {
	return json.RawMessage(gjson.GetBytes(resultBody(call), "events.0").Raw)
}
