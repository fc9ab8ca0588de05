package agentsim

import (
	"net/http"
	"time"
)

// Options are the standing habits of a simulated API. Most of them are positions in questions that the API's
// documents leave open.
type Options struct {
	BasePath string // default "/v1"
	Key      string // the bearer key; empty: any
	Seed     uint64 // of everything random

	// Lag is how old a session snapshot may be when a GET or a list serves it: each time another age in [0, Lag].
	Lag time.Duration
	// Repeat sends snapshots again: after each result of a step the remaining ones, and every requires_action event
	// once more, unchanged but for its event_id, within Lag.
	Repeat bool
	// Replay sends, to every stream that opens, an old idle snapshot and the item.added events of the pending calls,
	// with new event ids. Without it a stream is live only.
	Replay bool
	// LateHeaders keeps a stream's response headers back until its first frame.
	LateHeaders bool
	// RegisterDelay passes between the item.added of a call and the moment when the call is pending; a result that
	// comes earlier gets 400 "Unknown pending tool call".
	RegisterDelay time.Duration
	// LateStatus answers results that nobody waits for any more (answered already, turn over): 400 (default), 409, 202.
	LateStatus int
	// QuietStatus leaves the session in_progress while calls are pending: required_actions lists them, in in_progress
	// snapshots, and no requires_action event is sent.
	QuietStatus bool
	// AsyncUnlisted leaves async calls out of required_actions.
	AsyncUnlisted bool

	KeepAlive   time.Duration // a comment line after so long without a frame; 0: none
	EventLine   bool          // "event: TYPE" before the data line
	CRLF        bool          // lines end with CR LF
	Done        bool          // "data: [DONE]" before a clean end of a stream
	Obfuscation bool          // random padding in events, unless the request has include_obfuscation=false
	Noise       bool          // unknown event types, unknown fields, comments, a subagent's turn
	TypeLast    bool          // "type" and "event_id" at the end of an event's object

	MaxBody   int64 // bytes of a request; default 4 MiB
	KeepTurns int   // ended turns remembered a session; 0: all
}

// keepAliveEvery is what clones of the API do; the API's own cadence is not documented.
const keepAliveEvery = 15 * time.Second

// Kind is the API at its best: no delay, nothing repeated, live streams with headers at once.
func Kind() Options { return Options{KeepAlive: keepAliveEvery} }

// Hostile is the default for tests: snapshots up to 2 s old and repeated, pending calls replayed to new streams,
// headers with the first frame, a registration race of 150 ms, framing as odd as the standard allows.
func Hostile() Options {
	return Options{
		Seed: 1, Lag: 2 * time.Second, Repeat: true, Replay: true, LateHeaders: true,
		RegisterDelay: 150 * time.Millisecond, LateStatus: http.StatusBadRequest,
		KeepAlive: keepAliveEvery, EventLine: true, CRLF: true, Done: true, Obfuscation: true, Noise: true, TypeLast: true,
	}
}

// HostileOther takes the other position in every open question: live only, headers at once, no race, 409 for late
// results, in_progress while calls are pending; snapshots lag and repeat all the same.
func HostileOther() Options {
	return Options{
		Seed: 2, Lag: 2 * time.Second, Repeat: true, LateStatus: http.StatusConflict, QuietStatus: true,
		AsyncUnlisted: true, Noise: true,
	}
}

// Bench is Kind with a short memory, for runs of many calls: only a few ended turns a session are kept.
func Bench() Options { return Options{KeepTurns: 4} }

// Positions names the settings that tests of behaviour run under.
func Positions() map[string]Options {
	return map[string]Options{"kind": Kind(), "hostile": Hostile(), "hostile-other": HostileOther()}
}

func (o Options) withDefaults() Options {
	if o.BasePath == "" {
		o.BasePath = "/v1"
	}
	if o.LateStatus == 0 {
		o.LateStatus = http.StatusBadRequest
	}
	if o.MaxBody == 0 {
		o.MaxBody = 4 << 20
	}
	return o
}
