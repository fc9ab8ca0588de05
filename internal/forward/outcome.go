package forward

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// What the model is advised to do.
const (
	correctArguments = "Correct the arguments and call again."
	notWithThese     = "Do not try again with the same arguments."
	checkState       = "Check the current state before you try again."
	tryLater         = "Try again later."
	doNotTry         = "Do not try again."
	askForLess       = "Ask for less and call again."
	checkFirst       = "Check that before you call it again."
	notAgain         = "It is not to be called again."
	mayHave          = "It may have been carried out; check that before you call it again."
)

// kindOfStatus is the kind of a failure that a service answered.
func kindOfStatus(status int) journal.Kind {
	switch status {
	case 400, 422:
		return journal.InvalidArguments
	case 404, 410:
		return journal.NotFound
	case 401, 403, 407:
		return journal.Denied
	case 409, 412, 428:
		return journal.Conflict
	case 429:
		return journal.RateLimited
	case 425, 502, 503:
		return journal.Unavailable
	case 408, 504:
		return journal.Timeout
	}
	if status >= 500 {
		return journal.UpstreamError
	}
	return journal.Rejected
}

// advice is what to do after a failure of a kind.
func advice(kind journal.Kind) string {
	switch kind {
	case journal.InvalidArguments:
		return correctArguments
	case journal.NotFound, journal.Rejected:
		return notWithThese
	case journal.Conflict:
		return checkState
	case journal.RateLimited, journal.Unavailable, journal.UpstreamError, journal.Timeout:
		return tryLater
	case journal.TooLarge:
		return askForLess
	case journal.UnknownOutcome:
		return checkFirst
	case journal.Denied, journal.BadReply, journal.UnknownFunction, journal.Internal:
	}
	return doNotTry
}

// failure joins what happened with what to do.
func failure(kind journal.Kind, what, todo string) journal.Outcome {
	return journal.Failure(kind, sentence(what)+" "+todo)
}

// telling is what the sentences about one attempt are made from.
type telling struct {
	function string
	result   router.Result
	redactor *redactor
	// credential is replaced like a secret, where it is not empty.
	credential string
	idempotent bool
	// doubtful: an attempt may have been processed, and only the key of this
	// call keeps its repeats harmless: a new call has a new one.
	doubtful bool
	// attempts counts the requests so far.
	attempts int
	// patience is the time that an attempt, or the call, was given.
	patience time.Duration
	// programFailed is told of a jq program that failed; nil is allowed.
	programFailed func(program string, err error)
}

// replied is the outcome of a whole reply. waitSeconds is what its Retry-After
// asks for, 0 for nothing.
func (t telling) replied(r *reply, waitSeconds int64) journal.Outcome {
	if r.ok() {
		return t.accepted(r)
	}
	return t.refused(r, waitSeconds)
}

// lost says why nobody can say what became of an attempt.
func (t telling) lost(a *attempt) string {
	if a.fault != faultNone {
		return t.withoutReply(a.fault)
	}
	return withDetail("its service answered "+t.statusWords(a.reply.status), t.detailOf(a.reply))
}

// refused is the outcome of a reply that is not 2xx.
func (t telling) refused(r *reply, waitSeconds int64) journal.Outcome {
	kind := kindOfStatus(r.status)
	what, todo := t.function+" failed", advice(kind)
	if t.result.Expose != router.ExposeNone {
		what += " with " + t.statusWords(r.status)
	}
	if r.status >= 300 && r.status < 400 {
		what = t.redirected(r.status)
		todo = doNotTry
	}
	if t.attempts > 1 {
		what += " in " + strconv.Itoa(t.attempts) + " attempts"
	}
	if waitSeconds > 0 && r.status >= 400 {
		n := strconv.FormatInt(waitSeconds, 10)
		what += " and asks to wait " + n + " s"
		todo = "Try again after " + n + " s."
	}
	what = withDetail(what, t.detailOf(r))
	if t.mayHaveRun(kind, r.status, waitSeconds > 0) {
		todo = mayHave
	}
	return failure(kind, what, todo)
}

// mayHaveRun reports whether to warn of a second call; asked says that the
// service asked to come again.
func (t telling) mayHaveRun(kind journal.Kind, status int, asked bool) bool {
	switch {
	case status == http.StatusNotImplemented:
		return false
	case kind == journal.UpstreamError && !t.idempotent:
		return true
	case kind == journal.UpstreamError, kind == journal.Unavailable, kind == journal.Timeout:
		return t.doubtful && !asked
	}
	return false
}

func withDetail(what, detail string) string {
	if detail == "" {
		return what
	}
	return what + ": " + detail
}

func (t telling) redirected(status int) string {
	if t.result.Expose == router.ExposeNone {
		return t.function + " failed: its service answered with a redirect, which is not followed"
	}
	return t.function + " failed: redirect " + statusText(status) + " not followed"
}

// detailOf is the service's own text, as far as the route exposes it.
func (t telling) detailOf(r *reply) string {
	if !t.exposes(r.status) || r.undecodable || r.status < 400 {
		return ""
	}
	text := r.text()
	if told := t.toldBy(r, text); told != "" {
		return told
	}
	return detail(t.withoutCredential(text), r.isText(), t.redactor)
}

func (t telling) withoutCredential(text string) string {
	if t.credential == "" {
		return text
	}
	return strings.ReplaceAll(text, t.credential, redacted)
}

// statusWords names a status, unless the route hides it.
func (t telling) statusWords(status int) string {
	if t.result.Expose == router.ExposeNone {
		return "with a failure"
	}
	return "status " + statusText(status)
}

func statusText(status int) string {
	n := strconv.Itoa(status)
	if name := http.StatusText(status); name != "" {
		return n + " (" + name + ")"
	}
	return n
}

// accepted is the outcome of a whole 2xx reply.
func (t telling) accepted(r *reply) journal.Outcome {
	switch {
	case r.undecodable:
		return t.unusable(r, journal.BadReply, "has a content coding that cannot be undone")
	case t.isShaped():
		return t.shaped(r)
	}
	return t.passed(r)
}

// passed is the outcome of a whole 2xx reply that is passed on as it is.
func (t telling) passed(r *reply) journal.Outcome {
	switch {
	case isEmpty(r):
		return journal.Success("")
	case t.result.Content:
		return t.content(r)
	case r.media.family == image:
		if r.oversize {
			return t.tooLarge(r)
		}
		return imageOutcome(r.media.name, r.body)
	case r.isText(), r.media.family == html && t.result.HTML:
		return t.text(r)
	case r.media.name == "":
		return t.unusable(r, journal.BadReply, "has no media type and is not text")
	}
	return t.unusable(r, journal.BadReply, "is "+clean(r.media.name, maxNameBytes)+", which cannot be passed on")
}

func (t telling) content(r *reply) journal.Outcome {
	if r.oversize {
		return t.tooLarge(r)
	}
	output := r.text()
	if !isContent(output) {
		return t.unusable(r, journal.BadReply, "is not a list of input_text and input_image parts")
	}
	return journal.Outcome{Success: true, Content: true, Output: output}
}

// text passes a reply's text on, byte for byte, or cut where the route allows it.
func (t telling) text(r *reply) journal.Outcome {
	output := r.text()
	size := int64(len(output))
	if !r.oversize && size <= t.result.MaxBytes {
		return journal.Success(output)
	}
	if !r.oversize {
		r.size = size
	}
	if !t.result.Truncate {
		return t.tooLarge(r)
	}
	output = cut(output, int(t.result.MaxBytes))
	mark := "\n[The reply was cut here: " + strconv.Itoa(len(output)) + " bytes are shown of " + sizeText(r) + ".]"
	return journal.Success(output + mark)
}

func (t telling) tooLarge(r *reply) journal.Outcome {
	limit := strconv.FormatInt(r.limit, 10) + " bytes"
	if r.size > r.limit {
		return t.unusable(r, journal.TooLarge, "is too large: "+sizeText(r)+", and at most "+limit+" can be passed on")
	}
	return t.unusable(r, journal.TooLarge, "is too large: it is longer than the "+limit+" that can be passed on")
}

// sizeText is the size of a reply as far as it is known.
func sizeText(r *reply) string {
	if r.size > r.limit {
		return strconv.FormatInt(r.size, 10) + " bytes"
	}
	return "more than " + strconv.FormatInt(r.limit, 10) + " bytes"
}

// unusable is the outcome of a 2xx reply that cannot be passed on. What is not
// idempotent must not be run again for the sake of its reply.
func (t telling) unusable(r *reply, kind journal.Kind, why string) journal.Outcome {
	status := " (status " + strconv.Itoa(r.status) + ")"
	if t.result.Expose == router.ExposeNone {
		status = ""
	}
	if !t.idempotent {
		return failure(kind, t.function+" was carried out"+status+", but its reply "+why, notAgain)
	}
	return failure(kind, "The reply of "+t.function+status+" "+why, advice(kind))
}

// unknown is the outcome of a call of which nobody can say whether it ran.
func (t telling) unknown(why string) journal.Outcome {
	return failure(journal.UnknownOutcome, "It is not known whether "+t.function+" was carried out: "+why, checkFirst)
}

// failed is the outcome of an attempt without a whole reply that is known not to
// have been processed, or can be repeated.
func (t telling) failed(f fault, after fate) journal.Outcome {
	kind, todo := kindOfFault(f), tryLater
	if f == faultUntrusted || f == faultNotWelcome || f == faultNotTLS || f == faultNotRecorded || f == faultNoSecret || f == faultTokenRefused {
		todo = doNotTry
	}
	if t.doubtful {
		todo = mayHave
	}
	what := t.function + " failed"
	if after.unprocessed && !t.idempotent {
		what += ", and nothing was carried out"
	}
	what += ": " + t.withoutReply(f)
	if t.attempts > 1 {
		what += " in " + strconv.Itoa(t.attempts) + " attempts"
	}
	return failure(kind, what, todo)
}

func kindOfFault(f fault) journal.Kind {
	switch f {
	case faultTimeout, faultNotAdmitted, faultRecordedLate:
		return journal.Timeout
	case faultCut:
		return journal.BadReply
	case faultNotRecorded:
		return journal.Internal
	case faultNone, faultNoSecret, faultNoToken, faultTokenRefused, faultNoConnection, faultConnectTimeout, faultUntrusted, faultNotWelcome, faultNotTLS, faultUnsent, faultBroken:
	}
	return journal.Unavailable
}

// withoutReply says in plain words what happened instead of a whole reply.
func (t telling) withoutReply(f fault) string {
	switch f {
	case faultNotAdmitted:
		return "too many calls were waiting, and its turn did not come within " + plainDuration(t.patience)
	case faultRecordedLate:
		return "its time of " + plainDuration(t.patience) + " was over before it could be sent"
	case faultNotRecorded:
		return "the call could not be recorded, so nothing was sent"
	case faultNoSecret:
		return "the bridge has no access to its service now"
	case faultNoToken, faultTokenRefused:
		return "the bridge was given no access to its service"
	case faultNoConnection:
		return "its service was not reached"
	case faultConnectTimeout:
		return "its service could not be reached within " + plainDuration(t.patience)
	case faultUntrusted:
		return "its service cannot be reached safely, because its certificate was refused"
	case faultNotWelcome:
		return "its service refused the secure connection that the bridge offers"
	case faultNotTLS:
		return "its service does not speak TLS where it should"
	case faultUnsent:
		return "the connection to its service was lost before the request was sent"
	case faultTimeout:
		return "its service did not answer within " + plainDuration(t.patience)
	case faultCut:
		return "the reply of its service was cut off"
	case faultNone, faultBroken:
	}
	return "the connection to its service broke before the reply came"
}
