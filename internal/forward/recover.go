package forward

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"functionbridge/internal/journal"
)

// What became of a request whose reply was lost only its service knows, and it
// is asked where the route says how ("recover"). That is so when a call that is
// not idempotent may have been processed and no whole reply is known, in this
// process or an earlier one, and after a server error that leaves it open.
//
// The lost request may still be on its way or under way. So the first question
// comes no sooner than attempt_timeout after it left, and further ones follow,
// with the pauses of a retry, within a timeout of their own. A 200 is the
// result. A 404 says that the request never ran: it is sent once more, with a
// fresh timeout, and a second 404 is not believed. Every other answer that is
// not "later" leaves the outcome open, and what is not known is never sent
// again.

// leastPause is between two questions, whatever the route says of retries: they
// may go on for the whole timeout.
const leastPause = 100 * time.Millisecond

// verdict is what follows from an answer to a question.
type verdict string

const (
	// verdictLater: the service does not know yet, or was not reached.
	verdictLater verdict = "later"
	// verdictResult: the reply is the result of the call.
	verdictResult verdict = "result"
	// verdictNeverRan: the service does not know the request.
	verdictNeverRan verdict = "never_ran"
	// verdictNone: asking again is of no use.
	verdictNone verdict = "none"
)

// canAsk reports whether an outcome is one that the service is asked about.
func (d *delivery) canAsk(o journal.Outcome) bool {
	if d.idempotent || d.route == nil || d.route.Recover == nil {
		return false
	}
	return o.Failure == journal.UnknownOutcome || d.leftOpen(o)
}

// leftOpen reports whether the service answered with an error after which it
// may have carried the call out.
func (d *delivery) leftOpen(o journal.Outcome) bool {
	return o.Failure == journal.UpstreamError && d.last != nil && d.last.status() != http.StatusNotImplemented
}

// settle asks about a lost request until its outcome is known or cannot be; a
// call that never ran is run once more, and may be asked about again.
func (d *delivery) settle(ctx context.Context, outcome journal.Outcome) journal.Outcome {
	for d.canAsk(outcome) {
		// While a service can be asked, the next process can ask as well.
		d.settled = false
		v, told := d.ask(ctx)
		switch {
		case v == verdictResult:
			d.settled = true
			return told
		case v == verdictNeverRan && d.runsAgain(ctx):
			outcome = d.send(ctx)
		default:
			return d.stillOpen(outcome)
		}
	}
	return outcome
}

// stillOpen is the outcome when the service was of no help.
func (d *delivery) stillOpen(outcome journal.Outcome) journal.Outcome {
	if outcome.Failure == journal.UnknownOutcome && d.questions > 0 {
		return d.telling(0).unknown(d.lost + ", and its service could not say when it was asked")
	}
	return outcome
}

// runsAgain prepares the second pass of a call that never ran. It reports false
// when there was one already, or the request cannot be made again.
func (d *delivery) runsAgain(ctx context.Context) bool {
	if d.call.Reran {
		return false
	}
	if d.rendered == nil {
		if _, ok := d.prepare(ctx); !ok {
			return false
		}
	}
	d.rec.NeverRan()
	d.call.Reran, d.call.State = true, journal.Pending
	d.mayHaveLeft, d.doubt, d.last, d.pass, d.extra = false, false, nil, 0, 0
	d.deadline = time.Now().Add(d.route.Timeout)
	return true
}

// inquiry is the questions about one lost request.
type inquiry struct {
	*delivery

	message message
	// over is when the last answer must have come.
	over  time.Time
	asked int
}

// ask asks until there is an answer or time is over. The outcome is that of
// verdictResult.
func (d *delivery) ask(ctx context.Context) (verdict, journal.Outcome) {
	m, err := d.packQuestion()
	if err != nil {
		d.f.log.LogAttrs(ctx, slog.LevelError, "recover not asked", d.logAttrs(slog.Any("error", err))...)
		return verdictNone, journal.Outcome{}
	}
	if !sleep(ctx, time.Until(d.firstQuestion())) {
		return verdictNone, journal.Outcome{}
	}
	q := &inquiry{delivery: d, message: m, over: time.Now().Add(d.route.Timeout)}
	ctx, cancel := context.WithDeadline(ctx, q.over)
	defer cancel()
	for {
		a, v := q.once(ctx)
		if v != verdictLater {
			return v, a.outcome
		}
		if pause := q.pauseAfter(a); pause >= time.Until(q.over) || !sleep(ctx, pause) {
			return verdictNone, journal.Outcome{}
		}
	}
}

// packQuestion makes the question: what the route's requests carry, but the
// key, under which the service would take it for the call itself.
func (d *delivery) packQuestion() (message, error) {
	args, err := object(d.call.Arguments)
	if err != nil {
		return message{}, err
	}
	request, err := d.route.BuildRecover(args, d.values())
	if err != nil {
		return message{}, err
	}
	return d.pack(request, "")
}

// firstQuestion is when the lost request has had the time of an attempt. Where
// nobody knows when it left, or by another clock, that counts from now at most.
func (d *delivery) firstQuestion() time.Time {
	patience := d.route.AttemptTimeout
	if patience <= 0 {
		patience = d.route.Timeout
	}
	latest := time.Now().Add(patience)
	if due := d.sentAt.Add(patience); !d.sentAt.IsZero() && due.Before(latest) {
		return due
	}
	return latest
}

// pauseAfter is the pause before the next question.
func (q *inquiry) pauseAfter(a *attempt) time.Duration {
	retry := q.route.Retry
	return max(backoff(retry.MinWait, retry.MaxWait, q.asked-1), seconds(a.waitSeconds), leastPause)
}

// once asks once, within the limits of all requests.
func (q *inquiry) once(ctx context.Context) (*attempt, verdict) {
	if a := q.awaitToken(ctx, &q.message); a != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			return a, verdictNone
		}
		q.asked++
		q.questions++
		q.report(ctx, a, verdictLater)
		return a, verdictLater
	}
	turn, err := q.f.limits.enter(ctx, q.route, q.call.SessionID)
	if err != nil {
		return q.turnedAway(err)
	}
	defer q.f.limits.leave(&turn)
	q.asked++
	q.questions++
	v := verdictNone
	a := q.transact(ctx, &q.message, q.over, func(a *attempt) { v = q.judge(a) })
	q.f.limits.judge(&turn, q.finding(ctx, a, a.kind()))
	q.report(ctx, a, v)
	return a, v
}

// turnedAway waits with a question for which the service has no room now.
func (q *inquiry) turnedAway(err error) (*attempt, verdict) {
	e, ok := errors.AsType[*turnError](err)
	if !ok || e.cause == causeTooLate || e.cause == causeOutOfTime {
		return &attempt{}, verdictNone
	}
	return &attempt{waitSeconds: roundedUp(e.comeBack)}, verdictLater
}

// kind is what failed, as far as that can be said without the route.
func (a *attempt) kind() journal.Kind {
	if a.fault != faultNone {
		return kindOfFault(a.fault)
	}
	if a.reply.ok() {
		return ""
	}
	return kindOfStatus(a.reply.status)
}

// judge reads an answer. Without one, asking again can do no harm.
func (q *inquiry) judge(a *attempt) verdict {
	if a.fault != faultNone {
		return verdictLater
	}
	a.waitSeconds, _ = retryAfter(a.reply.header, time.Now())
	if q.spendsToken(&q.message, a) {
		return verdictLater
	}
	switch status := a.reply.status; status {
	case http.StatusOK:
		a.outcome = q.telling(0).accepted(a.reply)
		return verdictResult
	case http.StatusNotFound:
		return verdictNeverRan
	case http.StatusAccepted, http.StatusRequestTimeout, http.StatusConflict,
		http.StatusTooEarly, http.StatusTooManyRequests:
		return verdictLater
	default:
		if status >= http.StatusInternalServerError {
			return verdictLater
		}
		return verdictNone
	}
}

// report tells the recorder, the metrics and the log of a question.
func (q *inquiry) report(ctx context.Context, a *attempt, v verdict) {
	entry := a.entry()
	entry.Recover = true
	q.rec.Sent(entry, false)
	q.lane.attempted("recover_" + a.code())
	level := slog.LevelInfo
	if v == verdictNone {
		level = slog.LevelWarn
	}
	q.f.log.LogAttrs(ctx, level, "recover asked", q.logAttrs(
		slog.Int("question", q.asked),
		slog.String("verdict", string(v)),
		slog.Int("status", a.status()),
		slog.String("reason", a.why),
		slog.Int64("duration_ms", a.took.Milliseconds()),
	)...)
}

// sleep waits, and reports false when the context ended meanwhile or before.
func sleep(ctx context.Context, wait time.Duration) bool {
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}
