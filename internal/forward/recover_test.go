package forward_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// ledger is a service that carries payments out, and can be asked about them.
type ledger struct {
	*bubble

	mu sync.Mutex
	// pays and tells answer the payments and the questions in turn; the last of
	// each answers all that follow.
	pays, tells         []http.HandlerFunc
	payments, questions []heard
}

// heard is one request and when it came, from the ledger's start.
type heard struct {
	seen

	at time.Duration
}

// asking is a route whose lost requests are asked about: 5 s an attempt, 20 s
// a call, pauses of 1 to 4 s.
const asking = `version: 1
upstreams:
  bank: { url: "http://user:pa55-word@upstream.test/api", headers: { X-Token: "${TOKEN}" } }
defaults: { timeout: 20s, attempt_timeout: 5s, retry: { min_wait: 1s, max_wait: 4s } }
routes:
  pay:
    upstream: bank
    path: /payments
    headers: { X-Customer: "{customer}" }
    recover: { path: "/payments/by-key/{call.idempotency_key}" }
`

const payArguments = `{"customer":"c7", "cents":1.50}`

func openLedger(t *testing.T, yaml string, pays, tells []http.HandlerFunc, change ...func(*forward.Config)) *ledger {
	t.Helper()
	l := &ledger{pays: pays, tells: tells}
	l.bubble = startBubble(t, yaml, l.serve, change...)
	return l
}

func (l *ledger) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	l.mu.Lock()
	all, answers := &l.payments, l.pays
	if r.Method != http.MethodPost {
		all, answers = &l.questions, l.tells
	}
	*all = append(*all, heard{
		seen: seen{r.Method, r.RequestURI, r.Host, r.Header.Clone(), string(body), r.ContentLength, r.TransferEncoding},
		at:   time.Since(l.began),
	})
	answer := answers[min(len(*all), len(answers))-1]
	l.mu.Unlock()
	answer(w, r)
}

// paid and asked are what came so far.
func (l *ledger) paid() []heard {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.payments)
}

func (l *ledger) asked() []heard {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.questions)
}

func (l *ledger) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.payments, l.questions = nil, nil
}

func times(all []heard) []time.Duration {
	at := make([]time.Duration, len(all))
	for i, h := range all {
		at[i] = h.at
	}
	return at
}

// resume forwards a payment that an earlier process sent.
func (l *ledger) resume(tb testing.TB, change func(*journal.Call)) (journal.Outcome, *diary) {
	tb.Helper()
	call := l.call("pay", payArguments)
	call.State, call.SentAt = journal.Running, time.Now().Add(-time.Hour)
	if change != nil {
		change(&call)
	}
	rec := &diary{}
	o, err := l.Forward(tb.Context(), call, journal.Session{ID: "sess_1"}, rec)
	if err != nil {
		tb.Fatal(err)
	}
	return o, rec
}

// pay forwards a payment.
func (l *ledger) pay(tb testing.TB) (journal.Outcome, *diary) {
	tb.Helper()
	rec := &diary{}
	o, err := l.Forward(tb.Context(), l.call("pay", payArguments), journal.Session{ID: "sess_1"}, rec)
	if err != nil {
		tb.Fatal(err)
	}
	return o, rec
}

// diary is a recorder that keeps the order of what it is told.
type diary struct {
	recorder

	entries []string
}

func (d *diary) Sending(ctx context.Context, request []byte) error {
	d.entries = append(d.entries, "sending")
	return d.recorder.Sending(ctx, request)
}

func (d *diary) NeverRan() { d.entries = append(d.entries, "never ran") }

func (d *diary) Sent(a journal.Attempt, unprocessed bool) {
	d.recorder.Sent(a, unprocessed)
	entry := fmt.Sprint("sent ", a.Status)
	if a.Recover {
		entry = fmt.Sprint("asked ", a.Status)
	}
	if unprocessed {
		entry += " unprocessed"
	}
	d.entries = append(d.entries, entry)
}

// one is a service that always answers the same.
func one(h http.HandlerFunc) []http.HandlerFunc { return []http.HandlerFunc{h} }

func breaks(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func halving(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

func receipt(w http.ResponseWriter, r *http.Request) {
	answer(200, "application/json", `{"receipt":7}`)(w, r)
}

func unknownOutcome(why string) journal.Outcome {
	return journal.Failure(journal.UnknownOutcome,
		"It is not known whether pay was carried out: "+why+". Check that before you call it again.")
}

const (
	stoppedBefore = "the bridge was stopped before the reply came"
	couldNotSay   = ", and its service could not say when it was asked"
)

// Whatever leaves the outcome of a side effect open, its service is asked, and
// not before the request has had the time of an attempt.
func TestALostReplyIsAskedFor(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]http.HandlerFunc{
		"no reply in time":        hangs,
		"connection broken":       breaks,
		"2xx cut off":             halving(200),
		"4xx cut off":             halving(400),
		"5xx cut off":             halving(500),
		"408":                     busy(408, ""),
		"502":                     busy(502, ""),
		"502 that asks to wait":   busy(502, "3"),
		"503 without Retry-After": busy(503, ""),
		"504":                     busy(504, ""),
		"500":                     busy(500, ""),
		"524, a proxy's timeout":  busy(524, ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := openLedger(t, asking, one(lose), one(receipt))
				defer l.stop()
				o, rec := l.pay(t)
				if o != journal.Success(`{"receipt":7}`) {
					t.Errorf("outcome = %+v", o)
				}
				if len(l.paid()) != 1 || !slices.Equal(times(l.asked()), []time.Duration{5 * time.Second}) {
					t.Errorf("payments at %v, questions at %v", times(l.paid()), times(l.asked()))
				}
				if len(rec.attempts) != 2 || rec.attempts[0].Recover || !rec.attempts[1].Recover || rec.attempts[1].Status != 200 || rec.unprocessed[1] {
					t.Errorf("attempts = %+v", rec.attempts)
				}
			})
		})
	}
}

// A known outcome raises no question, nor does a request that can be repeated.
func TestAKnownOutcomeIsNotAskedAbout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options string
		pay     http.HandlerFunc
		kind    journal.Kind
	}{
		"unusable reply":      {"", answer(200, "text/html", "<p>"), journal.BadReply},
		"refusal":             {"", busy(409, ""), journal.Conflict},
		"not processed":       {"", busy(429, ""), journal.RateLimited},
		"503 asks to wait":    {"", busy(503, "30"), journal.Unavailable},
		"501":                 {"", busy(501, ""), journal.UpstreamError},
		"idempotent, 502":     {"    idempotent: true\n", busy(502, ""), journal.Unavailable},
		"idempotent, broken":  {"    idempotent: true\n", breaks, journal.Unavailable},
		"idempotent, 500":     {"    idempotent: true\n", busy(500, ""), journal.UpstreamError},
		"redirect":            {"", redirecting(302, "/x"), journal.Rejected},
		"redirect, elsewhere": {"", redirecting(307, "http://other.test/x"), journal.Rejected},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := openLedger(t, asking+test.options, one(test.pay), one(receipt))
				defer l.stop()
				if o, _ := l.pay(t); o.Failure != test.kind || len(l.asked()) != 0 {
					t.Errorf("outcome = %+v, questions at %v", o, times(l.asked()))
				}
			})
		})
	}
}

// What the service says of a lost request decides.
func TestAnswersToAQuestion(t *testing.T) {
	t.Parallel()
	known := journal.Success(`{"receipt":7}`)
	unknown := unknownOutcome("its service answered status 504 (Gateway Timeout)" + couldNotSay)
	type test struct {
		tell      http.HandlerFunc
		want      journal.Outcome
		questions int
	}
	tests := map[string]test{
		"connection broken": {breaks, known, 2}, "200 cut off": {halving(200), known, 2},
		"404 cut off": {halving(404), known, 2}, "410 cut off": {halving(410), known, 2},
		"silence": {hangs, known, 2},
	}
	for _, status := range []int{202, 408, 409, 425, 429, 500, 501, 502, 503, 504} {
		tests[strconv.Itoa(status)] = test{busy(status, ""), known, 2}
	}
	for _, status := range []int{201, 204, 206, 300, 304, 400, 401, 403, 405, 406, 410, 412, 422, 451} {
		tests[strconv.Itoa(status)] = test{busy(status, ""), unknown, 1}
	}
	for _, status := range []int{301, 302, 303} {
		tests[fmt.Sprint("redirect ", status)] = test{redirecting(status, "/api/payments/by-key/other"), unknown, 1}
	}
	tests["redirect 307 elsewhere"] = test{redirecting(307, "http://other.test/x"), unknown, 1}
	tests["redirect 307 without end"] = test{func(w http.ResponseWriter, r *http.Request) {
		redirecting(307, r.RequestURI)(w, r)
	}, unknown, 11}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tells := []http.HandlerFunc{test.tell, receipt}
				if test.questions > 2 {
					tells = tells[:1]
				}
				l := openLedger(t, asking, one(busy(504, "")), tells)
				defer l.stop()
				if o, _ := l.pay(t); o != test.want {
					t.Errorf("outcome = %+v", o)
				}
				if len(l.paid()) != 1 || len(l.asked()) != test.questions {
					t.Errorf("payments at %v, questions at %v", times(l.paid()), times(l.asked()))
				}
			})
		})
	}
}

// A 200 is mapped as the function's own reply would be.
func TestTheAnswerIsTheResult(t *testing.T) {
	t.Parallel()
	const head = `    recover: { method: HEAD, path: "/payments/{call.id}" }` + "\n"
	for name, test := range map[string]struct {
		options string
		tell    http.HandlerFunc
		want    journal.Outcome
	}{
		"empty": {"", answer(200, "application/json", ""), journal.Success("")},
		"image": {"", answer(200, "image/png", "PNG"), image("image/png", "PNG")},
		"HTML": {"", answer(200, "text/html", "<p>"), journal.Failure(journal.BadReply,
			"pay was carried out (status 200), but its reply is text/html, which cannot be passed on. It is not to be called again.")},
		"coding": {"", coded("zstd", []byte("x")), journal.Failure(journal.BadReply,
			"pay was carried out (status 200), but its reply has a content coding that cannot be undone. It is not to be called again.")},
		"too large": {"    result: { max_bytes: 3 }\n", answer(200, "text/plain", "1234"), journal.Failure(journal.TooLarge,
			"pay was carried out (status 200), but its reply is too large: 4 bytes, and at most 3 bytes can be passed on. It is not to be called again.")},
		"cut": {
			"    result: { max_bytes: 3, on_oversize: truncate }\n", answer(200, "text/plain", "1234"),
			journal.Success("123\n[The reply was cut here: 3 bytes are shown of 4 bytes.]"),
		},
		"HEAD":       {head, answer(200, "application/json", `{"receipt":7}`), journal.Success("")},
		"HEAD, HTML": {head, answer(200, "text/html", "<p>"), journal.Success("")},
		"HEAD, coded": {head, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "zstd")
			w.Header().Set("Content-Length", "1000000")
		}, journal.Success("")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				yaml := asking + test.options
				method := http.MethodGet
				if test.options == head {
					yaml, method = strings.Replace(asking, `    recover: { path: "/payments/by-key/{call.idempotency_key}" }`+"\n", head, 1), http.MethodHead
				}
				l := openLedger(t, yaml, one(breaks), one(test.tell))
				defer l.stop()
				if o, _ := l.pay(t); o != test.want {
					t.Errorf("outcome = %+v\nwant      %+v", o, test.want)
				}
				if len(l.asked()) != 1 || l.asked()[0].method != method {
					t.Errorf("questions = %+v", l.asked())
				}
			})
		})
	}
}

// A question carries what the route's requests carry, but neither their key
// nor their body.
func TestAQuestionCarriesNoKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := openLedger(t, asking, one(breaks), []http.HandlerFunc{busy(202, ""), redirecting(307, "/moved"), receipt})
		defer l.stop()
		if o, _ := l.pay(t); !o.Success || len(l.asked()) != 3 {
			t.Fatalf("outcome = %+v after %d questions", o, len(l.asked()))
		}
		paid := l.paid()[0]
		key := paid.header.Get("Idempotency-Key")
		if key == "" || paid.header.Get("Authorization") == "" || paid.header.Get("X-Token") == "" || paid.header.Get("X-Customer") != "c7" {
			t.Fatalf("payment = %+v", paid)
		}
		want := paid.header.Clone()
		for _, name := range []string{"Idempotency-Key", "Content-Type", "Content-Length"} {
			want.Del(name)
		}
		for i, q := range l.asked() {
			uri := []string{"/api/payments/by-key/" + key, "/api/payments/by-key/" + key, "/moved"}[i]
			if !reflect.DeepEqual(q.header, want) || q.method != http.MethodGet || q.uri != uri || q.body != "" || q.length != 0 {
				t.Errorf("question %d = %+v\nwant the header %v", i+1, q.seen, want)
			}
		}
		noSecret(t, "log", l.log.String())
	})
}

// Questions come with growing pauses, for as long as a call may take, counted
// from the first.
func TestQuestionsGoOnForAFreshTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := openLedger(t, asking, one(busy(504, "")), one(busy(202, "")))
		defer l.stop()
		if o, _ := l.pay(t); o != unknownOutcome("its service answered status 504 (Gateway Timeout)"+couldNotSay) {
			t.Errorf("outcome = %+v", o)
		}
		at := times(l.asked())
		if at[0] != 5*time.Second || at[len(at)-1] < 20*time.Second || at[len(at)-1] >= 25*time.Second || time.Since(l.began) >= 25*time.Second {
			t.Errorf("questions at %v, ended after %s", at, time.Since(l.began))
		}
		for i := 1; i < len(at); i++ {
			most := min(time.Second<<i, 4*time.Second)
			if pause := at[i] - at[i-1]; pause < time.Second || pause > most {
				t.Errorf("pause %d of %s, want 1 s to %s", i, pause, most)
			}
		}
	})
}

func TestWhenQuestionsAreAsked(t *testing.T) {
	t.Parallel()
	const s = time.Second
	after := func(d time.Duration, h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(d):
				h(w, r)
			case <-r.Context().Done():
			}
		}
	}
	steady := strings.Replace(asking, "min_wait: 1s, max_wait: 4s", "min_wait: 2s, max_wait: 2s", 1)
	whole := strings.Replace(steady, " attempt_timeout: 5s,", "", 1)
	hot := strings.Replace(asking, "min_wait: 1s, max_wait: 4s", "min_wait: 1ns, max_wait: 1ns", 1)
	for name, test := range map[string]struct {
		yaml       string
		pay        http.HandlerFunc
		tells      []http.HandlerFunc
		at         []time.Duration
		took       time.Duration
		successful bool
	}{
		"at once when the attempt had its time":     {steady, hangs, one(receipt), []time.Duration{5 * s}, 5 * s, true},
		"not before":                                {steady, after(4*s, breaks), one(receipt), []time.Duration{5 * s}, 5 * s, true},
		"attempt_timeout is timeout":                {whole, breaks, one(receipt), []time.Duration{20 * s}, 20 * s, true},
		"the call's own time is over":               {whole, hangs, []http.HandlerFunc{busy(202, ""), receipt}, []time.Duration{20 * s, 22 * s}, 22 * s, true},
		"a question has the time of an attempt":     {steady, breaks, []http.HandlerFunc{hangs, receipt}, []time.Duration{5 * s, 12 * s}, 12 * s, true},
		"the last has less":                         {steady, breaks, one(hangs), []time.Duration{5 * s, 12 * s, 19 * s}, 24 * s, false},
		"Retry-After":                               {steady, breaks, []http.HandlerFunc{busy(202, "15"), receipt}, []time.Duration{5 * s, 20 * s}, 20 * s, true},
		"a shorter Retry-After":                     {steady, breaks, []http.HandlerFunc{busy(429, "1"), receipt}, []time.Duration{5 * s, 7 * s}, 7 * s, true},
		"Retry-After beyond the end":                {steady, breaks, one(busy(503, "20")), []time.Duration{5 * s}, 5 * s, false},
		"an answer that comes in the last second":   {steady, breaks, []http.HandlerFunc{busy(503, "19"), after(s-1, receipt)}, []time.Duration{5 * s, 24 * s}, 25*s - 1, true},
		"an answer that comes too late":             {steady, breaks, []http.HandlerFunc{busy(503, "19"), after(s+1, receipt)}, []time.Duration{5 * s, 24 * s}, 25 * s, false},
		"pauses of nothing are not taken literally": {hot, breaks, []http.HandlerFunc{busy(202, ""), receipt}, []time.Duration{5 * s, 5*s + s/10}, 5*s + s/10, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := openLedger(t, test.yaml, one(test.pay), test.tells)
				defer l.stop()
				o, _ := l.pay(t)
				if o.Success != test.successful || (!o.Success && o.Failure != journal.UnknownOutcome) {
					t.Errorf("outcome = %+v", o)
				}
				if took := time.Since(l.began); took != test.took || !slices.Equal(times(l.asked()), test.at) {
					t.Errorf("took %s, questions at %v", took, times(l.asked()))
				}
			})
		})
	}
}

// A request that never ran is sent once more, the same under the same key, and
// with a fresh timeout.
func TestACallThatNeverRanIsRunOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(4 * time.Second) // fake clock
			receipt(w, r)
		}
		l := openLedger(t, asking, []http.HandlerFunc{busy(429, ""), hangs, busy(429, "14"), slow}, []http.HandlerFunc{busy(202, "10"), busy(404, "")})
		defer l.stop()
		o, rec := l.pay(t)
		if o != journal.Success(`{"receipt":7}`) {
			t.Errorf("outcome = %+v", o)
		}
		want := []string{
			"sending", "sent 429 unprocessed", "sending", "sent 0", "asked 202", "asked 404", "never ran",
			"sending", "sent 429 unprocessed", "sending", "sent 200",
		}
		if !slices.Equal(rec.entries, want) {
			t.Errorf("the recorder was told %q, want %q", rec.entries, want)
		}
		if len(rec.requests) != 1 {
			t.Errorf("the request was recorded %d times", len(rec.requests))
		}
		for _, p := range l.paid() {
			if !reflect.DeepEqual(p.seen, l.paid()[0].seen) || p.body != payArguments || p.header.Get("Idempotency-Key") == "" {
				t.Errorf("payments differ:\n%+v\n%+v", l.paid()[0].seen, p.seen)
			}
		}
	})
}

// The second run's outcome is the call's.
func TestTheOutcomeOfTheSecondRun(t *testing.T) {
	t.Parallel()
	never := busy(404, "")
	hold := "    on_unknown_outcome: hold\n"
	held := unknownOutcome("its service answered status 502 (Bad Gateway)" + couldNotSay)
	held.Hold = true
	for name, test := range map[string]struct {
		options     string
		pays, tells []http.HandlerFunc
		want        journal.Outcome
		paid, asked int
	}{
		"a refusal": {"", []http.HandlerFunc{breaks, busy(409, "")}, one(never), journal.Failure(journal.Conflict,
			"pay failed with status 409 (Conflict). Check the current state before you try again."), 2, 1},
		"not processed": {"", []http.HandlerFunc{breaks, busy(429, "")}, one(never), journal.Failure(journal.RateLimited,
			"pay failed with status 429 (Too Many Requests) in 3 attempts. Try again later."), 4, 1},
		"lost again, and known": {"", one(breaks), []http.HandlerFunc{never, receipt}, journal.Success(`{"receipt":7}`), 2, 2},
		"lost again, and never ran again": {
			"", one(breaks), one(never),
			unknownOutcome("the connection to its service broke before the reply came" + couldNotSay), 2, 2,
		},
		"lost again, hold": {hold, []http.HandlerFunc{breaks, busy(502, "")}, one(never), held, 2, 2},
		"error, and never ran again": {"", one(busy(500, "")), one(never), journal.Failure(journal.UpstreamError,
			"pay failed with status 500 (Internal Server Error). It may have been carried out; check that before you call it again."), 2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := openLedger(t, asking+test.options, test.pays, test.tells)
				defer l.stop()
				o, rec := l.pay(t)
				if o != test.want {
					t.Errorf("outcome = %+v\nwant      %+v", o, test.want)
				}
				if len(l.paid()) != test.paid || len(l.asked()) != test.asked {
					t.Errorf("payments at %v, questions at %v", times(l.paid()), times(l.asked()))
				}
				if n := len(slices.DeleteFunc(rec.entries, func(e string) bool { return e != "never ran" })); n != 1 {
					t.Errorf("told %d times that the call never ran", n)
				}
			})
		})
	}
}

// A second run that could not begin in time says so, and not what became of the
// first.
func TestASecondRunThatDoesNotBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := openLedger(t, strings.Replace(asking, "timeout: 20s, attempt_timeout: 5s", "timeout: 1s", 1), one(breaks), one(busy(404, "")))
		defer l.stop()
		rec := &slowJournal{from: 2, wait: 1500 * time.Millisecond}
		o, err := l.Forward(t.Context(), l.call("pay", payArguments), journal.Session{}, rec)
		want := journal.Failure(journal.Timeout,
			"pay failed, and nothing was carried out: its time of 1 s was over before it could be sent. Try again later.")
		if o != want || err != nil || len(l.paid()) != 1 || time.Since(l.began) != 2500*time.Millisecond {
			t.Errorf("outcome %+v, error %v after %s, %d payments", o, err, time.Since(l.began), len(l.paid()))
		}
	})
}

// After an error that says nothing of a side effect, the agent is told of the
// error, with its warning, where the service cannot say more.
func TestAnErrorStaysWhenTheServiceCannotSayMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := openLedger(t, asking+"    on_unknown_outcome: hold\n", one(busy(500, "")), one(busy(410, "")))
		defer l.stop()
		if o, _ := l.pay(t); o != journal.Failure(journal.UpstreamError,
			"pay failed with status 500 (Internal Server Error). It may have been carried out; check that before you call it again.") {
			t.Errorf("outcome = %+v", o)
		}
	})
}

// A call that an earlier process sent is asked about no sooner than it has had
// the time of an attempt, and no later.
func TestAResumedCallIsAskedAbout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sent func() time.Time
		at   time.Duration
	}{
		"sent long ago":     {func() time.Time { return time.Now().Add(-time.Hour) }, 0},
		"sent just now":     {func() time.Time { return time.Now().Add(-2 * time.Second).UTC().Round(0) }, 3 * time.Second},
		"nobody knows when": {func() time.Time { return time.Time{} }, 5 * time.Second},
		"by another clock":  {func() time.Time { return time.Now().Add(time.Hour) }, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := openLedger(t, asking, one(breaks), one(receipt))
				defer l.stop()
				o, rec := l.resume(t, func(c *journal.Call) { c.SentAt = test.sent() })
				if o != journal.Success(`{"receipt":7}`) || !slices.Equal(times(l.asked()), []time.Duration{test.at}) || len(l.paid()) != 0 {
					t.Errorf("outcome = %+v, questions at %v, %d payments", o, times(l.asked()), len(l.paid()))
				}
				if !slices.Equal(rec.entries, []string{"asked 200"}) {
					t.Errorf("the recorder was told %q", rec.entries)
				}
			})
		})
	}
}

// What an earlier process sent is what is sent again, whatever the table says
// by now.
func TestAResumedCallThatNeverRanSendsItsJournaledRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		current := parse(t, asking)
		l := openLedger(t, asking, []http.HandlerFunc{receipt}, one(busy(404, "")), func(c *forward.Config) {
			c.Table = func() *router.Table { return current }
		})
		defer l.stop()
		_, first := l.pay(t)
		current = parse(t, strings.Replace(asking, "path: /payments\n", "path: /other\n    method: PATCH\n", 1))

		o, rec := l.resume(t, func(c *journal.Call) { c.Request = first.requests[0] })

		if !o.Success || len(l.paid()) != 2 || !reflect.DeepEqual(l.paid()[0].seen, l.paid()[1].seen) {
			t.Errorf("outcome = %+v, payments %+v", o, l.paid())
		}
		if !slices.Equal(rec.entries, []string{"asked 404", "never ran", "sending", "sent 200"}) || rec.requests != nil {
			t.Errorf("the recorder was told %q, requests %q", rec.entries, rec.requests)
		}
	})
}

// Where there is doubt about what to send, nothing is.
func TestAResumedCallThatIsNotSentAgain(t *testing.T) {
	t.Parallel()
	const plain = "version: 1\nroutes:\n  pay: \"http://upstream.test\"\n"
	for name, test := range map[string]struct {
		yaml    string
		change  func(*journal.Call)
		why     string
		entries []string
	}{
		"it ran twice":            {asking, func(c *journal.Call) { c.Reran = true }, stoppedBefore + couldNotSay, []string{"asked 404"}},
		"its request is damaged":  {asking, func(c *journal.Call) { c.Request = []byte(`{"method":`) }, stoppedBefore + couldNotSay, []string{"asked 404"}},
		"its arguments are not":   {asking, func(c *journal.Call) { c.Arguments = []byte(`[`) }, stoppedBefore, nil},
		"the question lacks one":  {asking, func(c *journal.Call) { c.Arguments = []byte(`{"customer":[]}`) }, stoppedBefore, nil},
		"a variable is not there": {asking, func(c *journal.Call) { c.Request = []byte(`{"method":"POST","url":"http://x.test/${GONE}"}`) }, stoppedBefore + couldNotSay, []string{"asked 404"}},
		"no recover":              {plain, func(*journal.Call) {}, stoppedBefore, nil},
		"no route":                {"version: 1\nroutes:\n  other: \"http://upstream.test\"\n", func(*journal.Call) {}, stoppedBefore, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := openLedger(t, test.yaml, one(receipt), one(busy(404, "")))
				defer l.stop()
				o, rec := l.resume(t, test.change)
				if o != unknownOutcome(test.why) || len(l.paid()) != 0 || !slices.Equal(rec.entries, test.entries) {
					t.Errorf("outcome = %+v, %d payments, the recorder was told %q", o, len(l.paid()), rec.entries)
				}
				if test.yaml == asking && test.entries == nil && !strings.Contains(l.log.String(), "recover not asked") {
					t.Errorf("log = %s", l.log.String())
				}
			})
		})
	}
}

// An unknown outcome is an operator's where the route says so, and only that.
func TestHoldIsAskedForUnknownOutcomesOnly(t *testing.T) {
	t.Parallel()
	const holding = "version: 1\nroutes:\n  pay: { url: \"http://upstream.test\", on_unknown_outcome: hold }\n"
	held := func(o journal.Outcome) bool { return o.Failure == journal.UnknownOutcome && o.Hold }
	for name, test := range map[string]struct {
		yaml string
		pay  http.HandlerFunc
		hold bool
	}{
		"lost":                    {holding, breaks, true},
		"answered":                {holding, receipt, false},
		"refused":                 {holding, busy(400, ""), false},
		"error":                   {holding, busy(500, ""), false},
		"lost, asked in vain":     {asking + "    on_unknown_outcome: hold\n", breaks, true},
		"lost, not to be held":    {asking, breaks, false},
		"lost, fail":              {asking + "    on_unknown_outcome: fail\n", breaks, false},
		"lost, not to be held, 2": {"version: 1\nroutes:\n  pay: \"http://upstream.test\"\n", breaks, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := openLedger(t, test.yaml, one(test.pay), one(busy(410, "")))
				defer l.stop()
				if o, _ := l.pay(t); o.Hold != test.hold || held(o) != test.hold {
					t.Errorf("outcome = %+v", o)
				}
				if o, _ := l.resume(t, nil); o.Hold != strings.Contains(test.yaml, "hold") {
					t.Errorf("outcome of a resumed call = %+v", o)
				}
			})
		})
	}
}

// A stop leaves the question to the next process.
func TestAStopAmidTheQuestionsIsNoOutcome(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	for name, test := range map[string]struct {
		pays, tells []http.HandlerFunc
		after       time.Duration
		entries     []string
	}{
		"before the first":         {one(busy(502, "")), one(receipt), 3 * time.Second, []string{"sending", "sent 502"}},
		"in the lost attempt":      {one(hangs), one(receipt), 3 * time.Second, []string{"sending", "sent 0"}},
		"in a question":            {one(busy(500, "")), one(hangs), 7 * time.Second, []string{"sending", "sent 500", "asked 0"}},
		"in a pause":               {one(breaks), one(busy(202, "10")), 7 * time.Second, []string{"sending", "sent 0", "asked 202"}},
		"in the second run":        {one(hangs), one(busy(404, "")), 7 * time.Second, []string{"sending", "sent 0", "asked 404", "never ran", "sending", "sent 0"}},
		"in the second questions":  {one(breaks), []http.HandlerFunc{busy(404, ""), hangs}, 12 * time.Second, []string{"sending", "sent 0", "asked 404", "never ran", "sending", "sent 0", "asked 0"}},
		"in a pause of the second": {[]http.HandlerFunc{breaks, busy(429, "10")}, one(busy(404, "")), 7 * time.Second, []string{"sending", "sent 0", "asked 404", "never ran", "sending", "sent 429 unprocessed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := openLedger(t, asking, test.pays, test.tells)
				defer l.stop()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer time.AfterFunc(test.after, func() { cancel(stop) }).Stop()
				rec := &diary{}
				o, err := l.Forward(ctx, l.call("pay", payArguments), journal.Session{}, rec)
				if !errors.Is(err, stop) || time.Since(l.began) != test.after {
					t.Errorf("outcome %+v, error %v after %s", o, err, time.Since(l.began))
				}
				if !slices.Equal(rec.entries, test.entries) {
					t.Errorf("the recorder was told %q", rec.entries)
				}
			})
		})
	}
}

// An answer that came whole counts, though nobody waits any more.
func TestAnAnswerIsNotLostToTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := openLedger(t, asking, one(breaks), one(receipt))
		defer l.stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		call := l.call("pay", payArguments)
		call.State, call.SentAt = journal.Running, time.Now().Add(-time.Hour)
		o, err := l.Forward(ctx, call, journal.Session{}, &canceling{cancel: cancel})
		if err != nil || !o.Success {
			t.Errorf("outcome %+v, error %v", o, err)
		}
	})
}

// nervous is a recorder that panics at one thing that it is told.
type nervous struct {
	diary

	at string
}

func (n *nervous) check(entry string) {
	if entry == n.at {
		panic("boom at " + entry)
	}
}

func (n *nervous) Sending(ctx context.Context, request []byte) error {
	err := n.diary.Sending(ctx, request)
	n.check(fmt.Sprint("sending ", n.sendings))
	return err
}

func (n *nervous) NeverRan() {
	n.diary.NeverRan()
	n.check("never ran")
}

func (n *nervous) Sent(a journal.Attempt, unprocessed bool) {
	n.diary.Sent(a, unprocessed)
	n.check(n.entries[len(n.entries)-1])
}

// A fault of the bridge's own amid the questions leaves the outcome unknown; in
// the attempt it is a lost reply, which the service is asked about.
func TestAPanicAmidTheQuestionsIsAnOutcome(t *testing.T) {
	t.Parallel()
	unread := "the bridge failed before the reply was read"
	for at, test := range map[string]struct {
		want     journal.Outcome
		payments int
	}{
		// Asked, run again, lost again, asked again.
		"sent 502":  {unknownOutcome("its service answered status 504 (Gateway Timeout)" + couldNotSay), 2},
		"asked 404": {unknownOutcome(unread), 1},
		"never ran": {unknownOutcome(unread), 1},
		"sending 2": {journal.Failure(journal.Internal, "pay failed by a fault of the bridge. Do not try again."), 1},
		"sent 504":  {unknownOutcome(unread), 2},
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := openLedger(t, asking, []http.HandlerFunc{busy(502, ""), busy(504, "")}, one(busy(404, "")), func(c *forward.Config) { c.MaxCalls = 2 })
				defer l.stop()
				for range 3 { // more often than there are slots
					l.forget()
					o, err := l.Forward(t.Context(), l.call("pay", payArguments), journal.Session{}, &nervous{at: at})
					if o != test.want || err != nil || len(l.paid()) != test.payments {
						t.Errorf("outcome %+v, error %v, %d payments", o, err, len(l.paid()))
					}
				}
			})
		})
	}
}

// What an earlier process sent may have run, whatever fails in this one.
func TestAPanicOverAResumedCallIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := openLedger(t, asking, one(receipt), one(receipt))
		defer l.stop()
		call := l.call("pay", payArguments)
		call.State = journal.Running
		o, err := l.Forward(t.Context(), call, journal.Session{}, &nervous{at: "asked 200"})
		if o != unknownOutcome("the bridge failed before the reply was read") || err != nil || len(l.paid()) != 0 {
			t.Errorf("outcome %+v, error %v, %d payments", o, err, len(l.paid()))
		}
	})
}

// A question takes a slot like any request; the wait for it and between two
// takes none.
func TestQuestionsTakeSlotsAndWaitsDoNot(t *testing.T) {
	t.Parallel()
	const quickly = "  quick: { url: \"http://upstream.test\", timeout: 10s }\n"
	synctest.Test(t, func(t *testing.T) {
		l := openLedger(t, asking+quickly, []http.HandlerFunc{breaks, receipt}, []http.HandlerFunc{busy(202, "10"), hangs, receipt},
			func(c *forward.Config) { c.MaxCalls = 1 })
		defer l.stop()
		var calls sync.WaitGroup
		calls.Go(func() {
			if o, _ := l.pay(t); !o.Success {
				t.Errorf("outcome = %+v", o)
			}
		})
		// Asked at 5 s, then at 15 s, when the answer takes 5 s.
		for at, took := range map[time.Duration]time.Duration{3 * time.Second: 0, 10 * time.Second: 0, 17 * time.Second: 3 * time.Second} {
			calls.Go(func() {
				time.Sleep(at) // fake clock
				began := time.Now()
				if o, _ := l.run(t, "quick", `{}`); !o.Success || time.Since(began) != took {
					t.Errorf("a call at %s: %+v after %s", at, o, time.Since(began))
				}
			})
		}
		calls.Wait()
	})
}

// When no slot comes free within the time for questions, there is no answer.
func TestAQuestionWhoseTurnDoesNotCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := openLedger(t, asking+"  slow: { url: \"http://upstream.test\", timeout: 300s, attempt_timeout: 300s }\n", one(hangs), one(receipt),
			func(c *forward.Config) { c.MaxCalls = 1 })
		defer l.stop()
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		calls.Go(func() { _, _ = l.Forward(ctx, l.call("slow", `{}`), journal.Session{}, &recorder{}) })
		synctest.Wait()
		o, rec := l.resume(t, nil)
		if o != unknownOutcome(stoppedBefore) || len(rec.entries) != 0 || time.Since(l.began) != 20*time.Second {
			t.Errorf("outcome = %+v after %s, %q", o, time.Since(l.began), rec.entries)
		}
		cancel()
		calls.Wait()
	})
}

// Questions are told from attempts in metrics and log.
func TestQuestionsAreCountedAndLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := openLedger(t, asking, one(busy(502, "")), []http.HandlerFunc{hangs, breaks, busy(202, ""), busy(410, "")})
		defer l.stop()
		l.pay(t)
		want := strings.NewReader(`
# HELP bridge_upstream_attempts_total Finished upstream requests, by function and HTTP status (or error, timeout); recover_… for questions about a lost one.
# TYPE bridge_upstream_attempts_total counter
bridge_upstream_attempts_total{code="502",function="pay"} 1
bridge_upstream_attempts_total{code="recover_202",function="pay"} 1
bridge_upstream_attempts_total{code="recover_410",function="pay"} 1
bridge_upstream_attempts_total{code="recover_error",function="pay"} 1
bridge_upstream_attempts_total{code="recover_timeout",function="pay"} 1
`)
		if err := testutil.GatherAndCompare(nonZero{l.registry}, want, "bridge_upstream_attempts_total"); err != nil {
			t.Error(err)
		}
		log := l.log.String()
		for line, n := range map[string]int{
			`"msg":"call forwarded"`: 1, `"msg":"recover asked"`: 4, `"msg":"recover ended"`: 1, `"verdict":"later"`: 3,
			`"level":"WARN","msg":"recover asked","session_id":"sess_1","turn_id":"turn_1","call_id":"call_1","function":"pay","question":4,"verdict":"none","status":410`: 1,
			`"level":"WARN","msg":"recover ended","session_id":"sess_1","turn_id":"turn_1","call_id":"call_1","function":"pay","outcome":"unknown_outcome"`:                1,
		} {
			if got := strings.Count(log, line); got != n {
				t.Errorf("%d lines with %s, want %d, in\n%s", got, line, n, log)
			}
		}
		if strings.Contains(log, "by-key") || strings.Contains(log, "upstream.test") {
			t.Errorf("the log holds an address: %s", log)
		}
	})
}

// An operator's trial goes the same way.
func TestATrialAsksToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := openLedger(t, asking, one(breaks), one(receipt))
		defer l.stop()
		tried := l.Try(t.Context(), forward.Trial{Function: "pay", Arguments: []byte(payArguments), IdempotencyKey: "mine"})
		if tried.Outcome == nil || !tried.Outcome.Success || len(tried.Attempts) != 2 || !tried.Attempts[1].Recover {
			t.Errorf("tried = %+v", tried)
		}
		if got := l.asked()[0].uri; got != "/api/payments/by-key/mine" {
			t.Errorf("asked at %s", got)
		}
	})
}
