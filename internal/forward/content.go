package forward

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"functionbridge/internal/journal"
)

// imageOutcome passes an image on as a content array with a data URL.
func imageOutcome(mediaType string, body []byte) journal.Outcome {
	const head, middle, tail = `[{"type":"input_image","image_url":"data:`, `;base64,`, `"}]`
	var b strings.Builder
	b.Grow(len(head) + len(mediaType) + len(middle) + base64.StdEncoding.EncodedLen(len(body)) + len(tail))
	b.WriteString(head)
	b.WriteString(mediaType)
	b.WriteString(middle)
	encoder := base64.NewEncoder(base64.StdEncoding, &b)
	_, _ = encoder.Write(body) // a strings.Builder takes everything
	_ = encoder.Close()
	b.WriteString(tail)
	return journal.Outcome{Success: true, Content: true, Output: b.String()}
}

// isContent reports whether a text is a list of input_text and input_image
// parts with the members that the API knows, each of them once and no others.
func isContent(output string) bool {
	if object, err := object([]byte(`{"parts":` + output + `}`)); err != nil || object == nil {
		return false
	}
	var parts []map[string]json.RawMessage
	if json.Unmarshal([]byte(output), &parts) != nil || len(parts) == 0 {
		return false
	}
	for _, part := range parts {
		if !isPart(part) {
			return false
		}
	}
	return true
}

func isPart(part map[string]json.RawMessage) bool {
	kind, ok := stringOf(part["type"])
	if !ok || len(part) != 2 {
		return false
	}
	switch kind {
	case "input_text":
		_, ok = stringOf(part["text"])
		return ok
	case "input_image":
		address, ok := stringOf(part["image_url"])
		return ok && (strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "http://") ||
			strings.HasPrefix(address, "data:image/"))
	}
	return false
}

func stringOf(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}
