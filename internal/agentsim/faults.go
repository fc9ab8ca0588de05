package agentsim

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// FaultKind says what goes wrong.
type FaultKind string

// Faults of requests: they wait for a request to Fault.On.
const (
	FaultStatus    FaultKind = "status"     // answered with Status (and RetryAfter, Body); nothing else happens
	FaultHTML      FaultKind = "html"       // answered 200 text/html, as a proxy does
	FaultDrop      FaultKind = "drop"       // the connection breaks; nothing happened
	FaultHang      FaultKind = "hang"       // no answer until the client gives up
	FaultDelay     FaultKind = "delay"      // answered after Delay
	FaultLostReply FaultKind = "lost_reply" // done, but the connection breaks before the answer
	FaultForget    FaultKind = "forget"     // post_events: answered 202, never done; KeepKey answers repeats of the key likewise
	FaultMute      FaultKind = "mute"       // open_stream: headers, then not a byte and no end
	FaultStale     FaultKind = "stale"      // get_session: answered with the session as it was when the fault was set
)

// Faults of streams: they strike the session's open streams at once, or with the After-th event from now. While no
// stream is open they wait for the next event.
const (
	FaultCut       FaultKind = "cut"        // half of a frame, then the connection breaks
	FaultEOF       FaultKind = "eof"        // a clean end
	FaultSilence   FaultKind = "silence"    // no byte any more, and no end
	FaultDuplicate FaultKind = "duplicate"  // the last event again, with the same event_id
	FaultError     FaultKind = "error"      // an error event
	FaultErrorNull FaultKind = "error_null" // the next event carries "error":null
	FaultMalformed FaultKind = "malformed"  // a frame that is not JSON
	FaultEmptyData FaultKind = "empty_data" // "data:" and nothing more
	FaultLongLine  FaultKind = "long_line"  // an event of an unknown type with a line of 1 MiB, or of N bytes
	FaultComment   FaultKind = "comment"    // a block of nothing but a comment
)

// Fault is one mishap on demand.
type Fault struct {
	Kind      FaultKind
	On        Endpoint      // of the requests that it strikes
	SessionID string        // "": any session
	Count     int           // how many requests; 0 means 1, negative without end
	Skip      int           // requests that pass before
	For       time.Duration // it lapses so long after it was set; 0: never. With Count 0 the count is without end
	Status    int           // default 500
	// RetryAfter is sent as it stands: seconds or a date.
	RetryAfter string
	Body       string // instead of the error envelope
	Delay      time.Duration
	KeepKey    bool
	After      int
	N          int
}

// faultInfo says of a kind which requests it may strike (anyRequest, aStream or the one it is made for) and what
// happens.
type faultInfo struct {
	kind     FaultKind
	on, does string
}

const (
	anyRequest = "any"
	aStream    = "stream"
)

// faultInfos lists every kind.
func faultInfos() []faultInfo {
	return []faultInfo{
		{FaultStatus, anyRequest, "answered with status (500), retry_after and body; nothing is done"},
		{FaultHTML, anyRequest, "answered with 200 and HTML, as a proxy does"},
		{FaultDrop, anyRequest, "the connection breaks; nothing is done"},
		{FaultHang, anyRequest, "no answer"},
		{FaultDelay, anyRequest, "answered after delay"},
		{FaultLostReply, anyRequest, "done, but the connection breaks before the answer"},
		{FaultForget, PostEvents.String(), "answered with 202, never done; keep_key answers repeats of the key likewise"},
		{FaultMute, OpenStream.String(), "headers, and then nothing"},
		{FaultStale, GetSession.String(), "the session as it was when the fault was set"},
		{FaultCut, aStream, "half a frame, then the connection breaks"},
		{FaultEOF, aStream, "a clean end"},
		{FaultSilence, aStream, "no byte any more, and no end"},
		{FaultDuplicate, aStream, "the last event again"},
		{FaultError, aStream, "an error event"},
		{FaultErrorNull, aStream, `the next event carries "error":null`},
		{FaultMalformed, aStream, "a frame that is not JSON"},
		{FaultEmptyData, aStream, "data: and nothing more"},
		{FaultLongLine, aStream, "an event with a line of n bytes (1 MiB)"},
		{FaultComment, aStream, "a comment and nothing else"},
	}
}

// info is what there is to say of a kind, with the known ones in the error for another.
func (k FaultKind) info() (faultInfo, error) {
	infos := faultInfos()
	if i := slices.IndexFunc(infos, func(f faultInfo) bool { return f.kind == k }); i >= 0 {
		return infos[i], nil
	}
	known := make([]string, len(infos))
	for i, f := range infos {
		known[i] = string(f.kind)
	}
	if k == "" {
		return faultInfo{}, fmt.Errorf("the kind of the fault is missing; one of %s", strings.Join(known, ", "))
	}
	return faultInfo{}, fmt.Errorf("unknown fault %q; one of %s", k, strings.Join(known, ", "))
}

func (k FaultKind) ofStream() bool {
	info, _ := k.info()
	return info.on == aStream
}

func (f Fault) check() error {
	info, err := f.Kind.info()
	switch {
	case err != nil:
		return err
	case info.on != anyRequest && info.on != aStream && info.on != f.On.String():
		return fmt.Errorf("fault %s: on must be %s", f.Kind, info.on)
	}
	return nil
}

// FaultHelp describes faults for people: their kinds, and what their keys mean.
func FaultHelp() string {
	var out strings.Builder
	section := func(title string, in func(on string) bool) {
		out.WriteString(title)
		for _, f := range faultInfos() {
			if in(f.on) {
				fmt.Fprintf(&out, "    %-10s  %s\n", f.kind, f.does)
			}
		}
	}
	names := endpointNames()
	section("  Kinds that strike a request to on:\n", func(on string) bool { return on == anyRequest })
	out.WriteString("  on is one of " + strings.Join(names[:6], ", ") + ",\n  " + strings.Join(names[6:otherEndpoint], ", ") + ".\n")
	for _, f := range faultInfos() {
		if f.on != anyRequest && f.on != aStream {
			fmt.Fprintf(&out, "    %-10s  %s alone: %s\n", f.kind, f.on, f.does)
		}
	}
	section("  Kinds that strike open streams, at once or with the after-th event:\n", func(on string) bool { return on == aStream })
	out.WriteString("  Further keys: session_id (else any), count (1; negative without end), skip (requests that pass before),\n" +
		"  for (such as 10s: without count, every request so long).")
	return out.String()
}

// Fault sets a mishap. The error says what is wrong with it.
func (s *Sim) Fault(f Fault) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.SessionID != "" && s.find(f.SessionID) == nil {
		return fmt.Errorf("fault %s: unknown session %q", f.Kind, f.SessionID)
	}
	for _, ss := range s.snapshotSessions() {
		if f.SessionID == "" || f.SessionID == ss.id {
			ss.lock()
			ss.strike(f)
			ss.unlock()
		}
	}
	if !f.Kind.ofStream() {
		s.faults.add(f)
	}
	return nil
}

// ClearFaults takes back all faults that have not struck yet.
func (s *Sim) ClearFaults() {
	s.faults.clear()
	for _, ss := range s.snapshotSessions() {
		ss.lock()
		ss.trips = nil
		ss.frozen = nil
		ss.unlock()
	}
}

// mishap is a fault that a step holds; the session's lock is held.
func (ss *session) mishap(f Fault) {
	if f.SessionID == "" {
		f.SessionID = ss.id
	}
	ss.strike(f)
	if !f.Kind.ofStream() {
		ss.sim.faults.add(f)
	}
}

// strike does the session's part of a fault.
func (ss *session) strike(f Fault) {
	switch {
	case f.Kind == FaultStale:
		ss.frozen = ss.snapshot(nil)
	case !f.Kind.ofStream():
	case f.After > 0:
		ss.trips = append(ss.trips, trip{left: f.After, fault: f})
	case len(ss.streams) == 0:
		ss.trips = append(ss.trips, trip{left: 1, fault: f})
	default:
		ss.strikeStreams(f)
	}
}

// trip is a stream fault that waits for events.
type trip struct {
	left  int
	fault Fault
}

func (ss *session) countTrips() {
	if len(ss.trips) == 0 {
		return
	}
	var due []Fault
	ss.trips = slices.DeleteFunc(ss.trips, func(t trip) bool { return t.left <= 1 && addTo(&due, t.fault) })
	for i := range ss.trips {
		ss.trips[i].left--
	}
	for _, f := range due {
		ss.strikeStreams(f)
	}
}

func addTo(list *[]Fault, f Fault) bool {
	*list = append(*list, f)
	return true
}

func (ss *session) strikeStreams(f Fault) {
	if f.Kind == FaultError {
		ss.sendError("stream_interrupted", "The stream was interrupted.")
		return
	}
	for _, st := range slices.Clone(ss.streams) {
		ss.strikeStream(st, f)
	}
}

func (ss *session) strikeStream(st *stream, f Fault) {
	switch f.Kind {
	case FaultCut:
		st.raw([]byte(`data: {"event_id":"evt_cut","type":"agent.session.requ`))
		st.end(endCut)
	case FaultEOF:
		st.end(endClean)
	case FaultSilence:
		st.hush()
	case FaultDuplicate:
		if len(ss.last) > 0 {
			st.push(ss.lastType, ss.last)
		}
	case FaultErrorNull:
		st.mu.Lock()
		st.errNil = true
		st.mu.Unlock()
	case FaultMalformed:
		st.raw([]byte("data: {\"event_id\":\"evt_bad\",\"type\":\n\n"))
	case FaultEmptyData:
		st.raw([]byte("data:\n\n"))
	case FaultComment:
		st.comment("keep-alive")
	case FaultLongLine:
		n := f.N
		if n == 0 {
			n = 1 << 20
		}
		const long = "agent.session.turn.long"
		st.push(long, ss.render(nil, long, func(b []byte) []byte {
			return append(append(append(b, `"padding":"`...), strings.Repeat("x", n)...), '"')
		}))
	default:
	}
}

// faultSet holds the faults of requests that have not struck yet.
type faultSet struct {
	armed atomic.Int32 // quick look without the lock
	mu    sync.Mutex
	list  []*armedFault
}

type armedFault struct {
	Fault
	left    int // negative: without end
	expires time.Time
}

func (fs *faultSet) add(f Fault) {
	a := &armedFault{Fault: f, left: f.Count}
	if f.For > 0 {
		a.expires = time.Now().Add(f.For)
	}
	if f.Count == 0 {
		a.left = 1
		if f.For > 0 {
			a.left = -1
		}
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.list = append(fs.list, a)
	fs.armed.Store(int32(len(fs.list))) //nolint:gosec // a handful
}

func (fs *faultSet) clear() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.list = nil
	fs.armed.Store(0)
}

// take finds the first fault that strikes a request, and counts it down.
func (fs *faultSet) take(on Endpoint, sessionID string) (*Fault, bool) {
	if fs.armed.Load() == 0 {
		return nil, false
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	now := time.Now()
	fs.list = slices.DeleteFunc(fs.list, func(a *armedFault) bool {
		return a.left == 0 || (!a.expires.IsZero() && now.After(a.expires))
	})
	fs.armed.Store(int32(len(fs.list))) //nolint:gosec // a handful
	for _, a := range fs.list {
		if a.On != on || (a.SessionID != "" && a.SessionID != sessionID) {
			continue
		}
		if a.Skip > 0 {
			a.Skip--
			continue
		}
		if a.left == 0 {
			continue
		}
		if a.left > 0 {
			a.left--
		}
		f := a.Fault
		return &f, true
	}
	return nil, false
}

func (fs *faultSet) waiting() []Fault {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var list []Fault
	for _, a := range fs.list {
		if a.left != 0 {
			f := a.Fault
			f.Count = a.left
			list = append(list, f)
		}
	}
	return list
}

// misbehave serves a request as the fault has it.
func (s *Sim) misbehave(w http.ResponseWriter, r *http.Request, to target, f *Fault) {
	switch f.Kind {
	case FaultStatus:
		writeStatus(w, f)
	case FaultHTML:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html><body><h1>Please sign in</h1></body></html>")
	case FaultDrop:
		panic(http.ErrAbortHandler)
	case FaultHang:
		_, _ = io.Copy(io.Discard, r.Body) // so that the server notices when the client goes
		s.outwait(r)
	case FaultMute:
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		s.outwait(r)
	case FaultDelay:
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			s.serve(w, r, to, nil)
		case <-r.Context().Done():
		case <-s.done:
		}
	case FaultLostReply:
		s.serve(&nowhere{header: http.Header{}}, r, to, nil)
		panic(http.ErrAbortHandler)
	case FaultStale:
		s.serveStale(w, r, to)
	default:
		s.serve(w, r, to, f)
	}
}

// outwait holds a request until its client or the Sim is gone.
func (s *Sim) outwait(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.done:
	}
	panic(http.ErrAbortHandler)
}

func writeStatus(w http.ResponseWriter, f *Fault) {
	status := f.Status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	if f.Body != "" {
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, f.Body)
		return
	}
	writeError(w, &apiError{
		status: status, code: "simulated_" + strconv.Itoa(status), message: "Simulated fault.", retryAfter: f.RetryAfter,
	})
}

func (s *Sim) serveStale(w http.ResponseWriter, r *http.Request, to target) {
	ss := s.find(to.session)
	if ss == nil {
		writeError(w, notFound(to.session))
		return
	}
	ss.mu.Lock()
	frozen := ss.frozen
	ss.mu.Unlock()
	if frozen == nil {
		s.serve(w, r, to, nil)
		return
	}
	writeJSON(w, http.StatusOK, frozen)
}

// nowhere takes an answer that will not arrive.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n *nowhere) WriteHeader(int)             {}
