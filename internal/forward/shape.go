package forward

import (
	"errors"
	"log/slog"
	"net/http"

	"functionbridge/internal/journal"
	"functionbridge/internal/jq"
	"functionbridge/internal/router"
)

// The jq programs of a route see the JSON of a whole reply, and null for an empty
// one. Where success_when or output is set, a 2xx reply that is no JSON cannot be
// used; error falls back to what a failure says by itself.

// isShaped reports whether programs read 2xx replies.
func (t telling) isShaped() bool { return t.result.SuccessWhen != nil || t.result.Output != nil }

// shaped is the outcome of a whole 2xx reply that programs read.
func (t telling) shaped(r *reply) journal.Outcome {
	text := r.text()
	if size := int64(len(text)); r.oversize || (r.isText() && size > t.result.MaxBytes) {
		r.size = max(r.size, size)
		return t.tooLarge(r)
	}
	if isEmpty(r) {
		text = "null"
	} else if problem := unreadable(r); problem != "" {
		return t.unusable(r, journal.BadReply, problem)
	}
	var outcome journal.Outcome
	if err := jq.Read([]byte(text), func(in jq.Input) { outcome = t.judged(r, in) }); err != nil {
		return t.unusable(r, journal.BadReply, err.Error())
	}
	return outcome
}

// judged is the outcome of a 2xx reply by its JSON.
func (t telling) judged(r *reply, in jq.Input) journal.Outcome {
	if t.result.SuccessWhen != nil {
		said, err := t.result.SuccessWhen.Run(in)
		switch {
		case err != nil:
			return t.misshapen(r, "success_when", err)
		case !said.True():
			return t.unsuccessful(r, in)
		}
	}
	if t.result.Output == nil {
		return t.passed(r)
	}
	return t.output(r, in)
}

// unreadable says why a reply cannot be JSON, or is empty.
func unreadable(r *reply) string {
	if !r.isText() && r.media.name != "" {
		return "is " + clean(r.media.name, maxNameBytes) + " and not JSON"
	}
	return ""
}

// isEmpty reports whether a 2xx reply has no content.
func isEmpty(r *reply) bool {
	return r.status == http.StatusNoContent || r.status == http.StatusResetContent || (len(r.body) == 0 && !r.oversize)
}

// output is what the route's program makes of a reply. Of an empty one null is
// nothing, and no text.
func (t telling) output(r *reply, in jq.Input) journal.Outcome {
	made, err := t.result.Output.Run(in)
	if err != nil {
		return t.misshapen(r, "output", err)
	}
	if made.IsNull() && isEmpty(r) {
		return journal.Success("")
	}
	text, err := made.Text()
	switch {
	case err != nil:
		return t.misshapen(r, "output", err)
	case !t.result.Content:
		return journal.Success(text)
	case !isContent(text):
		return t.unusable(r, journal.BadReply, "did not become a list of input_text and input_image parts")
	}
	return journal.Outcome{Success: true, Content: true, Output: text}
}

// misshapen is the outcome of a 2xx reply that a program failed at.
func (t telling) misshapen(r *reply, program string, err error) journal.Outcome {
	t.note(program, err)
	why := "cannot be used"
	failed, ok := errors.AsType[*jq.RunError](err)
	switch {
	case !ok:
	case failed.Told == "":
		why = withDetail(why, failed.Why)
	case t.exposes(http.StatusOK):
		why = withDetail(why, t.fit(failed.Told))
	}
	return t.unusable(r, journal.BadReply, why)
}

// unsuccessful is the outcome of a 2xx reply that success_when refuses.
func (t telling) unsuccessful(r *reply, in jq.Input) journal.Outcome {
	what := t.function + " failed: the reply of its service does not say that it succeeded"
	if t.exposes(r.status) {
		if told := t.told(in); told != "" {
			what = withDetail(t.function+" failed", told)
		} else {
			what = withDetail(what, detail(t.withoutCredential(r.text()), r.isText(), t.redactor))
		}
	}
	return failure(journal.Rejected, what, advice(journal.Rejected))
}

// toldBy is what the error program makes of a reply that is not 2xx, empty when it
// makes nothing.
func (t telling) toldBy(r *reply, text string) string {
	if t.result.Error == nil {
		return ""
	}
	told := ""
	if unreadable(r) == "" {
		_ = jq.Read([]byte(text), func(in jq.Input) { told = t.told(in) }) // what is no JSON tells nothing
	}
	return told
}

// told runs the error program, if there is one.
func (t telling) told(in jq.Input) string {
	if t.result.Error == nil {
		return ""
	}
	made, err := t.result.Error.Run(in)
	if err == nil && made.IsNull() {
		return ""
	}
	text := ""
	if err == nil {
		text, err = made.Text()
	}
	if err != nil {
		t.note("error", err)
		return ""
	}
	return t.fit(text)
}

// fit makes text of a service fit for a sentence.
func (t telling) fit(text string) string {
	return presentable(t.withoutCredential(text), t.redactor)
}

// exposes reports whether the agent is told what a reply of this status says.
func (t telling) exposes(status int) bool {
	switch t.result.Expose {
	case router.ExposeStatus, router.ExposeNone:
		return false
	case router.ExposeUnset:
		return status < http.StatusInternalServerError
	case router.ExposeDetail:
	}
	return true
}

// note tells the log why a program failed.
func (t telling) note(program string, err error) {
	if t.programFailed != nil {
		t.programFailed(program, err)
	}
}

// programFailed logs why a program of the route failed; what it was run on stays
// out of the log.
func (d *delivery) programFailed(program string, err error) {
	why := err.Error()
	if failed, ok := errors.AsType[*jq.RunError](err); ok {
		why = failed.Why
	}
	d.f.log.LogAttrs(d.caller, slog.LevelWarn, "jq program failed",
		d.logAttrs(slog.String("program", "result."+program), slog.String("reason", why))...)
}
