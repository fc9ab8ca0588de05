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
	h := sha256.New()
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		h.Write(size[:])
		h.Write([]byte(p))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
