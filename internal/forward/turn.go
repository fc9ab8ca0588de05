package forward

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"functionbridge/internal/journal"
)

// turnCause says what kept a call from its turn.
type turnCause string

const (
	// causeQueueFull: as many calls wait as may.
	causeQueueFull turnCause = "queue full"
	// causeCircuitOpen: the service has failed too often.
	causeCircuitOpen turnCause = "circuit open"
	// causeTooLate: the turn would come after the deadline.
	causeTooLate turnCause = "too late"
	// causeOutOfTime: the turn did not come before the deadline.
	causeOutOfTime turnCause = "out of time"
)

// turnError says why the turn of a call does not come; nothing was sent.
type turnError struct {
	cause turnCause
	// waiting is how many calls wait, for causeQueueFull.
	waiting int
	// comeBack is when trying again makes sense, 0 when nobody knows.
	comeBack time.Duration
}

func (e *turnError) Error() string { return string(e.cause) }

// turnedAway is an attempt whose turn did not come.
func (d *delivery) turnedAway(err error) *attempt {
	a := d.unsent(faultNotAdmitted)
	e, ok := errors.AsType[*turnError](err)
	switch {
	case !ok:
	case d.last != nil:
		a.outcome = againAfter(a.outcome, e.comeBack)
	default:
		a.outcome = d.telling(d.route.Timeout).turnedAway(e)
	}
	return a
}

// turnedAway is the outcome of a call whose turn did not come.
func (t telling) turnedAway(e *turnError) journal.Outcome {
	var o journal.Outcome
	switch e.cause {
	case causeQueueFull:
		o = t.withoutTurn(journal.Unavailable, "it is overloaded: "+waitingWords(e.waiting))
	case causeCircuitOpen:
		o = t.withoutTurn(journal.Unavailable, "its service has failed too often and is not tried for now")
	case causeTooLate:
		o = t.withoutTurn(journal.Timeout, "its calls are limited, and its turn would not come within "+plainDuration(t.patience))
	case causeOutOfTime:
		o = t.failed(faultNotAdmitted, fate{unprocessed: true})
	}
	return againAfter(o, e.comeBack)
}

// withoutTurn words what an earlier attempt may contradict: then the call was
// perhaps made.
func (t telling) withoutTurn(kind journal.Kind, why string) journal.Outcome {
	if t.doubtful {
		return failure(kind, t.function+" failed, because "+why, mayHave)
	}
	return failure(kind, t.function+" was not called, because "+why, tryLater)
}

func waitingWords(n int) string {
	switch n {
	case 0:
		return "no more calls can be taken, and none may wait"
	case 1:
		return "1 call waits already"
	}
	return strconv.Itoa(n) + " calls wait already"
}

// againAfter says when to try again where the outcome says only later.
func againAfter(o journal.Outcome, wait time.Duration) journal.Outcome {
	if what, found := strings.CutSuffix(o.Error, tryLater); found && wait > 0 {
		o.Error = what + "Try again after " + strconv.FormatInt(roundedUp(wait), 10) + " s."
	}
	return o
}

// roundedUp is a wait in seconds, to two digits at most: more would pretend to
// know.
func roundedUp(wait time.Duration) int64 {
	n := int64((wait + time.Second - 1) / time.Second)
	step := int64(1)
	for n/step >= 100 {
		step *= 10
	}
	return (n + step - 1) / step * step
}
