package forward

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"functionbridge/internal/journal"
)

// maxHops bounds how many redirects one attempt follows.
const maxHops = 10

// attempt is one request from the wait for its turn to its outcome.
type attempt struct {
	started time.Time
	took    time.Duration
	fault   fault
	// why is the fault in words for an operator.
	why string
	// reply is received, nil when none came.
	reply    *reply
	received reply
	fate     fate
	outcome  journal.Outcome
	// waitSeconds is what the reply's Retry-After asks for; pause is the wait
	// before the next attempt.
	waitSeconds int64
	pause       time.Duration
	// newToken: the next attempt is made at once, with a new token, and does not
	// count as one of the route's.
	newToken bool
	// circuit is how long no request is let through, 0 when one is.
	circuit time.Duration
}

func (a *attempt) status() int {
	if a.reply == nil {
		return 0
	}
	return a.reply.status
}

// entry is what the journal keeps of the attempt.
func (a *attempt) entry() journal.Attempt {
	return journal.Attempt{StartedAt: a.started.UTC(), Duration: a.took, Status: a.status(), Error: a.why}
}

// RoundTrip makes one attempt, unless it is the first, which was made. It is what
// go-retryablehttp's client calls for each; the response that it returns is only
// for show: what counts is d.last, which outlives a wait that is cut short.
func (d *delivery) RoundTrip(req *http.Request) (*http.Response, error) {
	a := d.first
	if d.first = nil; a == nil {
		a = d.attempt(req.Context())
		d.last = a
	}
	if a.fault != faultNone {
		return nil, errNoReply
	}
	// Without its headers, so that nobody above thinks of following a redirect.
	return &http.Response{
		StatusCode: a.reply.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: req,
	}, nil
}

// errNoReply stands for every fault; d.last says which.
var errNoReply = errors.New("no reply")

// journalPatience is the time that a journal which works takes at most.
const journalPatience = 2 * time.Second

// attempt waits for the call's turn, has it recorded, sends it and judges what
// comes back.
func (d *delivery) attempt(ctx context.Context) *attempt {
	if a := d.awaitToken(ctx, &d.message); a != nil {
		return d.withoutToken(ctx, a)
	}
	turn, err := d.f.limits.enter(ctx, d.route, d.call.SessionID)
	if err != nil {
		return d.turnedAway(err)
	}
	defer d.f.limits.leave(&turn)
	if d.refused = d.record(ctx); d.refused != nil {
		return d.unsent(faultNotRecorded)
	}
	d.request = nil
	if ctx.Err() != nil {
		d.rec.Sent(journal.Attempt{StartedAt: time.Now().UTC(), Error: ended(ctx, "recorded too late to be sent")}, true)
		return d.unsent(faultRecordedLate)
	}
	d.attempts++
	d.pass++
	d.mayHaveLeft, d.sentAt = true, time.Now()
	a := d.transact(ctx, &d.message, d.deadline, d.judge)
	d.mayHaveLeft = !a.fate.unprocessed
	a.circuit = d.f.limits.judge(&turn, d.finding(ctx, a, a.outcome.Failure))
	a.outcome = againAfter(a.outcome, a.circuit)
	d.report(ctx, a)
	return a
}

// record has the call recorded before it leaves. A journal that works is given
// the time to do so even when the deadline comes meanwhile: then the call has
// timed out. What a journal that does not work fails to record by the deadline
// is no outcome: the call is returned, to be taken up again.
func (d *delivery) record(ctx context.Context) error {
	if time.Until(d.deadline) >= journalPatience {
		return d.rec.Sending(ctx, d.request)
	}
	ctx, cancel := context.WithTimeout(d.caller, journalPatience)
	defer cancel()
	return d.rec.Sending(ctx, d.request) //nolint:contextcheck // d.caller is what ctx was made from
}

// transact sends a message, reads the reply and lets judge look at it, which
// may keep nothing of the reply's body.
func (d *delivery) transact(ctx context.Context, m *message, deadline time.Time, judge func(*attempt)) *attempt {
	d.f.metrics.inFlight.Inc()
	defer d.f.metrics.inFlight.Dec()
	a := &attempt{started: time.Now()}
	if limit := d.route.AttemptTimeout; limit > 0 && limit < time.Until(deadline) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	buf := d.f.buffers.get()
	defer d.f.buffers.put(buf)
	d.exchange(ctx, m, a, buf)
	a.took = time.Since(a.started)
	judge(a)
	return a
}

// unsent is an attempt that ended before anything could leave. What an earlier
// attempt found out stays true.
func (d *delivery) unsent(f fault) *attempt {
	a := &attempt{fault: f, fate: fate{unprocessed: true}}
	if d.last != nil {
		a.outcome = d.last.outcome
		return a
	}
	a.outcome = d.telling(d.route.Timeout).failed(f, a.fate)
	return a
}

// exchange sends the message and reads the whole reply, following redirects
// within the service.
func (d *delivery) exchange(ctx context.Context, m *message, a *attempt, buf *[]byte) {
	header, err := d.seal(m)
	if err != nil {
		a.fault, a.why = faultNoSecret, "no credential"
		return
	}
	target, transport := m.request.URL, d.upstream.connections()
	for hop := 0; ; hop++ {
		var t trip
		out := m.outgoing(t.observe(ctx, target.Scheme == "https"), target, header, &t.body)
		response, err := transport.RoundTrip(out)
		if err != nil {
			a.fault, a.why = faultOf(ctx, &t.watch, err)
			return
		}
		next := sameOrigin(target, response)
		if next == nil || hop == maxHops {
			d.receive(ctx, response, a, buf)
			return
		}
		_ = response.Body.Close()
		target = next
	}
}

// trip is one request of an attempt on its way.
type trip struct {
	watch

	body bytes.Reader
}

// receive reads the reply.
func (d *delivery) receive(ctx context.Context, response *http.Response, a *attempt, buf *[]byte) {
	defer func() { _ = response.Body.Close() }()
	a.received = reply{status: response.StatusCode, header: response.Header, size: -1}
	r := &a.received
	r.media = mediaOf(response.Header.Get("Content-Type"))
	r.limit = limitOf(r.status, r.media, d.route.Result)
	a.reply = r
	if r.status < 200 {
		return // another protocol was switched to: what follows is no reply
	}
	var err error
	if *buf, err = r.read(response, (*buf)[:0]); err == nil {
		return
	}
	a.fault, a.why = faultCut, "reply cut off"
	if ctx.Err() != nil {
		a.fault, a.why = faultTimeout, ended(ctx, "timeout in the reply")
	}
}

// judge decides the attempt's fate and words its outcome.
func (d *delivery) judge(a *attempt) {
	q := question{fault: a.fault, idempotent: d.idempotent, on503: d.route.Retry.On503}
	if a.fault == faultNone {
		q.status = a.reply.status
		a.waitSeconds, q.retryAfter = retryAfter(a.reply.header, time.Now())
	}
	a.fate = decide(q)
	if d.spendsToken(&d.message, a) {
		a.fate, a.newToken = fate{again: true, unprocessed: true}, true
		d.extra++
	}
	d.doubt = d.doubt || !a.fate.unprocessed
	d.settled = a.fault == faultNone && !a.fate.again
	patience := d.route.Timeout
	if limit := d.route.AttemptTimeout; limit > 0 && a.took >= limit {
		patience = limit
	}
	t := d.telling(patience)
	switch {
	case a.fate.unknown:
		a.outcome = d.unknown(t.lost(a))
	case a.fault != faultNone:
		a.outcome = againAfter(t.failed(a.fault, a.fate), seconds(a.waitSeconds))
	default:
		a.outcome = t.replied(a.reply, a.waitSeconds)
	}
}

// report tells the recorder, the metrics and the log.
func (d *delivery) report(ctx context.Context, a *attempt) {
	d.rec.Sent(a.entry(), a.fate.unprocessed)
	d.lane.attempted(a.code())
	h := d.f.log.Handler()
	if !h.Enabled(ctx, slog.LevelInfo) {
		return
	}
	// Without the place in the program, which slog.Logger looks up for every line,
	// shown or not: that is a seventh of what the line costs, and a fifth under load.
	line := slog.NewRecord(time.Now(), slog.LevelInfo, "call forwarded", 0)
	line.AddAttrs(
		slog.String("session_id", d.call.SessionID),
		slog.String("turn_id", d.call.TurnID),
		slog.String("call_id", d.call.CallID),
		slog.String("function", d.call.Function),
		slog.Int("attempt", d.attempts),
		slog.String("outcome", a.outcome.Label()),
		slog.Int("status", a.status()),
		slog.String("reason", a.why),
		slog.Int64("duration_ms", a.took.Milliseconds()),
	)
	_ = h.Handle(ctx, line) // as slog.Logger does: a log that cannot be written stops nothing
}

// faultOf names what the transport's error means, for decisions and in the
// bridge's own words: an error's text may hold addresses.
func faultOf(ctx context.Context, w *watch, err error) (fault, string) {
	timedOut := ctx.Err() != nil
	if alert := handshakeAlert(err); alert != "" {
		return faultNotWelcome, "TLS refused by the service: " + alert
	}
	if w.conn != nil {
		switch {
		case w.nothingSent(err) && timedOut:
			return faultConnectTimeout, ended(ctx, "timeout before the request was sent")
		case w.nothingSent(err):
			return faultUnsent, "connection lost before the request was sent"
		case timedOut:
			return faultTimeout, ended(ctx, "timeout")
		}
		return faultBroken, "connection broke"
	}
	if timedOut {
		return faultConnectTimeout, ended(ctx, "no connection in time")
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return faultUntrusted, "certificate refused"
	}
	if w.notTLS.Load() {
		return faultNotTLS, "no TLS spoken"
	}
	return faultNoConnection, connectionWords(err)
}

// ended tells an attempt that was stopped from one whose time was over.
func ended(ctx context.Context, late string) string {
	if errors.Is(ctx.Err(), context.Canceled) {
		return "stopped"
	}
	return late
}

func connectionWords(err error) string {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return "host not found"
	}
	if e, ok := errors.AsType[*proxyError](err); ok {
		return e.Error()
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "connection refused"
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return "no connection in time"
	}
	return "no connection"
}
