package forward

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// delivery is one call on its way: what all its attempts share.
type delivery struct {
	f       *Forwarder
	call    journal.Call
	session journal.Session
	rec     journal.Recorder
	// key is the idempotency key of the call.
	key string
	// dryRun sends nothing; the outcome of a request that could be made is then
	// an empty success.
	dryRun bool

	table      *router.Table
	route      *router.Route
	lane       *lane
	idempotent bool
	deadline   time.Time
	upstream   *upstream
	// token is the access token of the latest attempt, spent the one that the
	// service refused: a call is given one more attempt with a new one.
	token, spent *token
	// caller is the context of the call without its deadline.
	caller context.Context
	// request is what Recorder.Sending is given the first time.
	request []byte
	// rendered is the request, without its body where that is the message's.
	rendered *router.Request
	message  message

	// attempts counts the requests that left, and pass those of this pass: a
	// call that never ran is given a second one.
	attempts, pass int
	// extra counts the attempts of the pass that the route's retry does not.
	extra int
	// questions counts the questions about a lost request.
	questions int
	last      *attempt
	// first is the attempt that was made and go-retryablehttp does not know of.
	first *attempt
	// sentAt is when the request left that may have been processed.
	sentAt time.Time
	// refused is what Recorder.Sending returned instead of letting the call go.
	refused error
	// mayHaveLeft: a request is out and its fate is not known to be harmless.
	mayHaveLeft bool
	// doubt: one of the attempts, here or in an earlier process, may have been
	// processed.
	doubt bool
	// lost is why the outcome is unknown, in words for the agent.
	lost string
	// settled: the outcome stands, even when the context has ended since.
	settled bool
}

// run carries the call to its outcome and counts it.
func (d *delivery) run(ctx context.Context) (journal.Outcome, error) {
	started := time.Now()
	d.lane, d.caller = d.f.unknown, ctx
	outcome := d.guarded(ctx, func() journal.Outcome { return d.carry(ctx, started) })
	if d.canAsk(outcome) {
		outcome = d.guarded(ctx, func() journal.Outcome { return d.settle(ctx, outcome) })
	}
	outcome.Hold = outcome.Failure == journal.UnknownOutcome && d.route != nil && d.route.HoldUnknown
	err := d.stopped(ctx)
	if err == nil && !d.dryRun {
		d.finished(ctx, outcome, started)
	}
	return outcome, err
}

// guarded makes a panic an outcome.
func (d *delivery) guarded(ctx context.Context, step func() journal.Outcome) (outcome journal.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			outcome = d.panicked(ctx, p)
		}
	}()
	return step()
}

// finished counts the call. What no attempt has told the log is told here.
func (d *delivery) finished(ctx context.Context, outcome journal.Outcome, started time.Time) {
	d.lane.finished(outcome, time.Since(started))
	if d.attempts > 0 && d.questions == 0 {
		return
	}
	level := slog.LevelInfo
	if outcome.Failure == journal.UnknownOutcome || outcome.Failure == journal.Internal {
		level = slog.LevelWarn
	}
	attrs := d.logAttrs(slog.String("outcome", outcome.Label()))
	if d.questions > 0 {
		d.f.log.LogAttrs(ctx, level, "recover ended", attrs...)
		return
	}
	if d.call.State == journal.Running {
		d.f.log.LogAttrs(ctx, level, "call answered without another request; an earlier process had sent it", attrs...)
		return
	}
	d.f.log.LogAttrs(ctx, level, "call answered without a request", attrs...)
}

// stopped says why there is no outcome, nil when there is one.
func (d *delivery) stopped(ctx context.Context) error {
	switch {
	case d.refused != nil:
		return d.refused
	case d.settled:
		return nil
	}
	return context.Cause(ctx)
}

func (d *delivery) carry(ctx context.Context, started time.Time) journal.Outcome {
	d.table = d.f.table()
	route, ok := d.table.Lookup(d.call.Function)
	if !ok {
		return d.withoutRoute()
	}
	d.route, d.lane = route, d.f.lanes.of(d.call.Function)
	d.upstream = d.f.upstreams.of(d.table, route.Service)
	// Both must say so: the row decides what stood on disk before the request
	// left, the table what may be sent now.
	d.idempotent = route.Idempotent && d.call.Idempotent
	d.deadline = started.Add(route.Timeout)
	if d.call.State == journal.Running {
		d.doubt, d.mayHaveLeft, d.sentAt = true, true, d.call.SentAt
		if !d.idempotent {
			return d.resumeUnknown()
		}
	}
	if outcome, ok := d.prepare(ctx); !ok || d.dryRun {
		return outcome
	}
	return d.send(ctx)
}

// resumeUnknown is the outcome of a call that an earlier process sent and that
// may not be sent again: nobody knows whether it ran.
func (d *delivery) resumeUnknown() journal.Outcome {
	return d.unknown("the bridge was stopped before the reply came")
}

// unknown is the outcome of a call of which nobody here can say whether it ran.
func (d *delivery) unknown(why string) journal.Outcome {
	d.lost = why
	return d.telling(0).unknown(why)
}

// withoutRoute is the outcome of a call whose function has no route (any more).
func (d *delivery) withoutRoute() journal.Outcome {
	if d.call.State == journal.Running {
		return d.resumeUnknown()
	}
	what := "There is no function " + quoted([]byte(d.call.Function))
	if names := d.table.Closest(d.call.Function); len(names) > 0 {
		are := "functions are "
		if len(names) == 1 {
			are = "function is "
		}
		return failure(journal.UnknownFunction, what, "Do not call it again; the closest "+are+strings.Join(names, ", ")+".")
	}
	return failure(journal.UnknownFunction, what, "Do not call it again.")
}

// prepare makes the request of the first attempt, or takes the journaled one;
// not ok, the outcome says why there is none.
func (d *delivery) prepare(ctx context.Context) (journal.Outcome, bool) {
	args, err := object(d.call.Arguments)
	if err != nil {
		return d.unusableArguments(err), false
	}
	if err := d.build(args); err != nil {
		return d.unbuilt(ctx, err), false
	}
	return journal.Outcome{}, true
}

func (d *delivery) build(args []byte) error {
	if len(d.call.Request) > 0 {
		return d.rebuild(args)
	}
	if err := d.route.Check(args); err != nil {
		return err
	}
	if form := d.form(); form != nil {
		d.request, d.rendered, d.message = form.stored, &form.request, form.fill(&d.call, d.key, args)
		return nil
	}
	request, err := d.route.Build(args, d.values())
	if err != nil {
		return err
	}
	if d.request, err = stored(request); err != nil {
		return err
	}
	return d.use(request)
}

// rebuild makes the message of the journaled request.
func (d *delivery) rebuild(args []byte) error {
	var request router.Request
	if err := json.Unmarshal(d.call.Request, &request); err != nil {
		return err
	}
	if request.BodyIsArguments {
		request.Body = args
	}
	return d.use(request)
}

func (d *delivery) use(request router.Request) error {
	d.rendered = &request
	var err error
	d.message, err = d.pack(request, d.key)
	return err
}

// stored is a request as the journal keeps it.
func stored(request router.Request) ([]byte, error) {
	if request.BodyIsArguments {
		request.Body = nil
	}
	return json.Marshal(request)
}

func (d *delivery) values() router.Values {
	return router.Values{
		CallID:         d.call.CallID,
		FunctionName:   d.call.Function,
		SessionID:      d.call.SessionID,
		TurnID:         d.call.TurnID,
		IdempotencyKey: d.key,
		AgentID:        d.session.AgentID,
		Metadata:       d.session.Metadata,
	}
}

func (d *delivery) unusableArguments(err error) journal.Outcome {
	why := "cannot be used"
	if e, ok := errors.AsType[*argumentsError](err); ok {
		why = e.why
	}
	return failure(journal.InvalidArguments, "The arguments of "+d.call.Function+" "+why, correctArguments)
}

// unbuilt is the outcome when no request could be made; nothing was sent, at
// least not by this process.
func (d *delivery) unbuilt(ctx context.Context, err error) journal.Outcome {
	if e, ok := errors.AsType[*router.ArgumentError](err); ok {
		return failure(journal.InvalidArguments, d.call.Function+" was not called: "+continued(e.Sentence), correctArguments)
	}
	d.f.log.LogAttrs(ctx, slog.LevelError, "request not built", d.logAttrs(slog.Any("error", err))...)
	if d.call.State == journal.Running {
		return d.resumeUnknown()
	}
	if e, ok := errors.AsType[*router.ValueError](err); ok {
		return failure(journal.Internal, d.call.Function+" was not called: "+e.Error(), doNotTry)
	}
	return failure(journal.Internal, d.call.Function+" was not called: its request could not be made", doNotTry)
}

// send makes the attempts of one pass. Most calls need one alone: the first is
// made before go-retryablehttp is asked, which with http.Client would cost 11
// allocations and 1.1 KB.
func (d *delivery) send(ctx context.Context) journal.Outcome {
	ctx, cancel := context.WithDeadline(ctx, d.deadline)
	defer cancel()
	d.last = d.attempt(ctx)
	if d.mayRepeat(ctx) {
		d.repeat(ctx)
	}
	return d.last.outcome
}

// repeat has go-retryablehttp make the attempts after the first, which it is
// given as its own: see RoundTrip.
func (d *delivery) repeat(ctx context.Context) {
	d.first = d.last
	client := &retryablehttp.Client{
		HTTPClient:   &http.Client{Transport: d},
		RetryMax:     max(d.route.Retry.Attempts, 1), // one too many: see hasTries
		CheckRetry:   d.again,
		Backoff:      d.pause,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	response, err := client.Do(&retryablehttp.Request{Request: d.message.request.WithContext(ctx)})
	if err == nil {
		_ = response.Body.Close()
	}
}

// again is go-retryablehttp's CheckRetry.
func (d *delivery) again(ctx context.Context, _ *http.Response, _ error) (bool, error) {
	return d.mayRepeat(ctx) && d.nextPause() >= 0, nil
}

// mayRepeat reports whether another attempt is of use, if there is time for it.
func (d *delivery) mayRepeat(ctx context.Context) bool {
	return d.last.fate.again && d.last.circuit == 0 && ctx.Err() == nil && d.hasTries()
}

// hasTries reports whether the route's retry allows one more attempt.
func (d *delivery) hasTries() bool {
	return d.last.newToken || d.pass-d.extra < max(d.route.Retry.Attempts, 1)
}

// nextPause draws the pause before the next attempt, -1 when it would end
// beyond the deadline.
func (d *delivery) nextPause() time.Duration {
	if d.last.newToken {
		return 0
	}
	retry := d.route.Retry
	wait := backoff(retry.MinWait, retry.MaxWait, d.pass-1)
	wait = max(wait, seconds(d.last.waitSeconds))
	if wait >= time.Until(d.deadline) {
		return -1
	}
	d.last.pause = wait
	return wait
}

// pause is go-retryablehttp's Backoff.
func (d *delivery) pause(_, _ time.Duration, _ int, _ *http.Response) time.Duration {
	return d.last.pause
}

// panicked is the outcome of a call that the bridge failed at.
func (d *delivery) panicked(ctx context.Context, p any) journal.Outcome {
	d.f.log.LogAttrs(ctx, slog.LevelError, "call panicked",
		d.logAttrs(slog.Any("panic", p), slog.String("stack", string(debug.Stack())))...)
	d.settled = true
	if d.mayHaveLeft && !d.idempotent {
		return d.unknown("the bridge failed before the reply was read")
	}
	return failure(journal.Internal, d.call.Function+" failed by a fault of the bridge", doNotTry)
}

// logAttrs puts the call's names before more attributes.
func (d *delivery) logAttrs(more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{
		slog.String("session_id", d.call.SessionID),
		slog.String("turn_id", d.call.TurnID),
		slog.String("call_id", d.call.CallID),
		slog.String("function", d.call.Function),
	}, more...)
}

// telling is what sentences are made from; patience is the time that was given.
func (d *delivery) telling(patience time.Duration) telling {
	t := telling{
		function: d.call.Function, idempotent: d.idempotent,
		attempts: d.pass, patience: patience, credential: d.message.credential,
	}
	if d.route != nil {
		t.result, t.redactor = d.route.Result, d.f.redactorOf(d.table)
		if t.isShaped() || t.result.Error != nil {
			t.programFailed = d.programFailed
		}
		t.doubtful = d.doubt && d.idempotent && (d.message.method == http.MethodPost || d.message.method == http.MethodPatch)
	}
	return t
}

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
