package journal

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
)

// Key names a call: the API's own three ids, never an event's id.
type Key struct {
	SessionID string
	TurnID    string
	CallID    string
}

// CallKey is the idempotency key of the call: the same for every attempt, in
// every process; 43 characters of [A-Za-z0-9_-].
func (k Key) CallKey() string {
	return digest("call", k.SessionID, k.TurnID, k.CallID)
}

// SubmissionKey is the Idempotency-Key under which an outcome is posted to the
// Agents API. It changes with the result, so that the API never sees one key
// with two bodies, and with the generation, which is raised when submissions
// that were accepted keep being forgotten.
func SubmissionKey(callKey string, o Outcome, generation int) string {
	flags := byte('f')
	switch {
	case o.Success && o.Content:
		flags = 'c'
	case o.Success:
		flags = 's'
	}
	return digest("submission", callKey, string(flags), o.Output, o.Error, strconv.Itoa(generation))
}

// digest hashes the parts with their lengths, so that no two lists of parts
// can be confused by moving a border.
func digest(parts ...string) string {
	var room [512]byte // on the stack, and enough for all but long outputs
	text := room[:0]
	for _, p := range parts {
		text = binary.BigEndian.AppendUint64(text, uint64(len(p)))
		text = append(text, p...)
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
