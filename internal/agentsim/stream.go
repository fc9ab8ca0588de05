package agentsim

import (
	"bytes"
	"net/http"
	"sync"
	"time"
)

// ending says how a stream ends.
type ending int

const (
	endNot   ending = iota
	endClean        // FIN, after [DONE] where the options have it
	endCut          // the connection breaks
)

// stream is one open SSE response. Sessions push frames into its buffer; its handler writes what is there, in one
// write and one flush.
type stream struct {
	opts      *Options
	obfuscate bool
	wake      chan struct{}

	mu        sync.Mutex
	buf       []byte
	dirty     bool
	ending    ending
	silent    bool // not a byte from now on, and no end
	untilIdle bool // a creation stream: it ends when its turn is over and the session idle
	errNil    bool // the next event carries "error":null
}

// push appends one event as a frame.
func (st *stream) push(typ string, event []byte) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.silent || st.ending != endNot {
		return
	}
	if st.opts.EventLine {
		st.buf = append(st.buf, "event: "...)
		st.buf = append(st.buf, typ...)
		st.buf = st.eol(st.buf)
	}
	body := event
	if extra := st.extra(); extra != nil {
		body = append(append(append([]byte(nil), event[:len(event)-1]...), extra...), '}')
	}
	st.appendData(body)
}

// extra is what this stream adds to an event.
func (st *stream) extra() []byte {
	var b []byte
	if st.obfuscate {
		b = appendObfuscation(b)
	}
	if st.errNil {
		st.errNil = false
		b = append(b, `,"error":null`...)
	}
	return b
}

// appendData writes data lines, one for each line of the event, and the blank line.
func (st *stream) appendData(body []byte) {
	for len(body) > 0 {
		line := body
		if i := bytes.IndexByte(body, '\n'); i >= 0 {
			line, body = body[:i], body[i+1:]
		} else {
			body = nil
		}
		st.buf = append(st.buf, "data: "...)
		st.buf = append(st.buf, line...)
		st.buf = st.eol(st.buf)
	}
	st.buf = st.eol(st.buf)
	st.dirty = true
}

func (st *stream) eol(b []byte) []byte {
	if st.opts.CRLF {
		return append(b, '\r', '\n')
	}
	return append(b, '\n')
}

func (st *stream) comment(text string) {
	st.raw([]byte(": " + text + "\n\n"))
}

// raw appends bytes that need not be a frame.
func (st *stream) raw(b []byte) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.silent || st.ending != endNot {
		return
	}
	st.buf = append(st.buf, b...)
	st.dirty = true
}

func (st *stream) end(how ending) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.silent || st.ending != endNot {
		return
	}
	st.ending = how
	if how == endClean && st.opts.Done {
		st.buf = append(st.buf, "data: [DONE]\n\n"...)
	}
	st.dirty = true
}

func (st *stream) hush() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.silent = true
	st.buf = nil
}

// nudge wakes the handler if there is something to write.
func (st *stream) nudge() {
	st.mu.Lock()
	dirty := st.dirty
	st.dirty = false
	st.mu.Unlock()
	if !dirty {
		return
	}
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// take swaps the filled buffer for an empty one.
func (st *stream) take(spare []byte) ([]byte, ending) {
	st.mu.Lock()
	defer st.mu.Unlock()
	b := st.buf
	st.buf = spare[:0]
	return b, st.ending
}

// serveStream answers GET …/events. It returns when the request's context ends, the stream is told to end, or the
// Sim is closed.
func (s *Sim) serveStream(w http.ResponseWriter, r *http.Request, ss *session) {
	st := s.newStream(r)
	if !ss.attach(st) {
		writeError(w, notFound(ss.id))
		return
	}
	defer ss.detach(st)
	s.runStream(w, r, st)
}

func (s *Sim) newStream(r *http.Request) *stream {
	return &stream{
		opts: &s.opts, wake: make(chan struct{}, 1),
		obfuscate: s.opts.Obfuscation && r.URL.Query().Get("include_obfuscation") != "false",
	}
}

func (s *Sim) runStream(w http.ResponseWriter, r *http.Request, st *stream) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	out := http.NewResponseController(w)
	if !s.opts.LateHeaders {
		w.WriteHeader(http.StatusOK)
		_ = out.Flush()
	}
	alive, stop := keepAlive(s.opts.KeepAlive)
	defer stop()
	var spare []byte
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.done:
			return
		case <-alive:
			st.comment("keep-alive")
		case <-st.wake:
		}
		frames, how := st.take(spare)
		if len(frames) > 0 {
			if _, err := w.Write(frames); err != nil { //nolint:gosec // an event stream, never shown as a page
				return
			}
			_ = out.Flush()
		}
		spare = frames
		switch how {
		case endClean:
			return
		case endCut:
			panic(http.ErrAbortHandler)
		case endNot:
		}
	}
}

func keepAlive(every time.Duration) (<-chan time.Time, func()) {
	if every <= 0 {
		return nil, func() {}
	}
	ticker := time.NewTicker(every)
	return ticker.C, ticker.Stop
}

// attach adds a stream, and replays what the options say. It is false for a deleted session.
func (ss *session) attach(st *stream) bool {
	ss.lock()
	defer ss.unlock()
	if ss.deleted {
		return false
	}
	ss.streams = append(ss.streams, st)
	if ss.sim.opts.Replay {
		ss.replay(st)
	}
	return true
}

// replay sends an idle snapshot as old as the session and the pending calls under new event ids.
func (ss *session) replay(st *stream) {
	const idle, added = "agent.session.idle", "agent.session.turn.item.added"
	snapshot := append(append([]byte(nil), ss.headOnly()...), `"status":"idle","error":null,"last_active_at":`...)
	snapshot = append(appendUnix(snapshot, ss.created), `,"required_actions":[]}`...)
	st.push(idle, ss.render(nil, idle, func(b []byte) []byte { return append(append(b, `"session":`...), snapshot...) }))
	for _, e := range ss.required {
		if e.call == nil {
			continue
		}
		item := e.call.appendItem(nil, statusInProgress)
		st.push(added, ss.render(nil, added, ss.itemFields(e.turn, item, e.call.output)))
	}
}

func (ss *session) headOnly() []byte {
	if ss.head == nil {
		ss.head = ss.renderHead()
	}
	return ss.head
}

func (ss *session) detach(st *stream) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for i, other := range ss.streams {
		if other == st {
			ss.streams = append(ss.streams[:i], ss.streams[i+1:]...)
			return
		}
	}
}
