package forward_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"functionbridge/internal/journal"
)

const (
	noAgain  = " It is not to be called again."
	notThese = " Do not try again with the same arguments."
)

// shaping is one reply, what the route says of results, and what the agent is told.
type shaping struct {
	result string
	answer http.HandlerFunc
	want   journal.Outcome
}

func (s shaping) check(t *testing.T, idempotent bool) {
	t.Helper()
	up := serve(t, s.answer)
	b := newBench(t, table(fmt.Sprintf("pay: { url: %s, idempotent: %t, retry: { attempts: 1 }, result: { %s } }", up.URL, idempotent, s.result)))
	if got, _ := b.run(t, "pay", `{}`); got != s.want {
		t.Errorf("%s\noutcome = %+v\nwant      %+v", s.result, got, s.want)
	}
	if log := b.log.String(); strings.Contains(log, "s3cret") {
		t.Errorf("the log repeats the reply: %s", log)
	}
}

func TestProgramsShapeReplies(t *testing.T) {
	t.Parallel()
	ok := answer(200, "application/json", `{"status":"ok","data":{"id":9007199254740993,"big":123456789012345678901234567890,"price":1.10,"b":[1,null]},"text":"é \"x\"\n"}`)
	for _, s := range []shaping{
		{`output: .data`, ok, journal.Success(`{"b":[1,null],"big":123456789012345678901234567890,"id":9007199254740993,"price":1.10}`)},
		{`output: .data.id`, ok, journal.Success(`9007199254740993`)},
		{`output: .text`, ok, journal.Success("é \"x\"\n")},
		{`output: .nothing`, ok, journal.Success(`null`)},
		{`output: '"\(.data.id) costs \(.data.price)"'`, ok, journal.Success("9007199254740993 costs 1.10")},
		{`success_when: '.status == "ok"'`, ok, journal.Success(`{"status":"ok","data":{"id":9007199254740993,"big":123456789012345678901234567890,"price":1.10,"b":[1,null]},"text":"é \"x\"\n"}`)},
		{`success_when: '.status == "ok"', output: .status`, ok, journal.Success(`ok`)},
		{`success_when: .data, output: '.data | length'`, ok, journal.Success(`4`)},
		{`output: .city`, answer(200, "application/json; charset=iso-8859-1", "{\"city\":\"Qu\xe9bec\"}"), journal.Success("Québec")},
		{`output: .a`, answer(201, "text/plain", `{"a":"b"}`), journal.Success("b")},
		{`output: .a`, answer(200, "", "\xEF\xBB\xBF{\"a\":\"b\"}\n"), journal.Success("b")},
		{`output: .a`, answer(200, "application/vnd.api+json", `{"a":""}`), journal.Success("")},
		{`output: .data`, answer(204, "", ""), journal.Success("")},
		{`output: .data`, answer(200, "application/json", ""), journal.Success("")},
		{`output: '.data // "done"'`, answer(204, "", ""), journal.Success("done")},
		{`success_when: '. == null or .ok'`, answer(204, "", ""), journal.Success("")},
		{`as: content, output: '[{type: "input_text", text: .status}]'`, ok, journal.Outcome{Success: true, Content: true, Output: `[{"text":"ok","type":"input_text"}]`}},
		{`as: content, success_when: 'length == 1'`, answer(200, "application/json", `[{"type":"input_text","text":"x"}]`), journal.Outcome{Success: true, Content: true, Output: `[{"type":"input_text","text":"x"}]`}},
	} {
		s.check(t, true)
		s.check(t, false)
	}
}

func TestRepliesThatProgramsCannotUse(t *testing.T) {
	t.Parallel()
	const carriedOut = "pay was carried out (status 200), but its reply "
	bad := func(why string) journal.Outcome { return journal.Failure(journal.BadReply, carriedOut+why+noAgain) }
	ok := answer(200, "application/json", `{"a":"s3cret","list":[1,2]}`)
	for _, s := range []shaping{
		{`output: .a`, answer(200, "text/plain", "s3cret and no JSON"), bad("is not JSON.")},
		{`output: .a`, answer(200, "application/json", `{"a":1}{"a":2}`), bad("is not JSON.")},
		{`success_when: .a`, answer(200, "application/x-ndjson", "{}\n{}\n"), bad("is not JSON.")},
		{`output: .a`, answer(200, "text/html", "<p>s3cret</p>"), bad("is text/html and not JSON.")},
		{`output: .a`, answer(200, "image/png", "\x89PNG"), bad("is image/png and not JSON.")},
		{`output: .a`, answer(200, "application/json", strings.Repeat("[", 2000)), bad("is nested too deep.")},
		{`output: '.a[]'`, ok, bad("cannot be used: cannot iterate over: string.")},
		{`output: '.list[]'`, ok, bad("cannot be used: the program gives more than one value.")},
		{`output: empty`, ok, bad("cannot be used: the program gives no value.")},
		{`success_when: '.a + 1'`, ok, bad("cannot be used: cannot add: string and number.")},
		{`output: 'last(repeat(.))'`, ok, bad("cannot be used: the program takes longer than 250 ms.")},
		{`output: '"x" * 1000000000'`, ok, bad("cannot be used: the program takes too much memory.")},
		{`output: 'error("no item in it")'`, ok, bad("cannot be used: no item in it.")},
		{`output: 'error("no " + .a)', expose: status`, ok, bad("cannot be used.")},
		{`as: content, output: .list`, ok, bad("did not become a list of input_text and input_image parts.")},
		{`max_bytes: 10, output: .a`, answer(200, "text/plain", `{"a":"0123456789"}`), journal.Failure(journal.TooLarge, carriedOut+"is too large: 18 bytes, and at most 10 bytes can be passed on."+noAgain)},
		{`max_bytes: 10, on_oversize: truncate, output: .a`, answer(200, "text/plain", `{"a":"0123456789"}`), journal.Failure(journal.TooLarge, carriedOut+"is too large: 18 bytes, and at most 10 bytes can be passed on."+noAgain)},
	} {
		s.check(t, false)
	}
	shaping{
		`output: .a.b`, ok,
		journal.Failure(journal.BadReply, "The reply of pay (status 200) cannot be used: expected an object but got: string. Do not try again."),
	}.check(t, true)
}

func TestFailuresThatProgramsTell(t *testing.T) {
	t.Parallel()
	failed := answer(200, "application/json", `{"status":"failed","message":"Card declined","code":9007199254740993}`)
	rejected := func(what string) journal.Outcome { return journal.Failure(journal.Rejected, what+notThese) }
	conflict := answer(409, "application/json", `{"errors":[{"code":"E1","text":"out of stock"},{"code":"E2"}],"message":"generic"}`)
	conflicted := func(what string) journal.Outcome {
		return journal.Failure(journal.Conflict, "pay failed with status 409 (Conflict)"+what+" Check the current state before you try again.")
	}
	broken := answer(500, "application/json", `{"message":"disk full"}`)
	const mayHave = " It may have been carried out; check that before you call it again."
	for _, s := range []shaping{
		{`success_when: '.status == "ok"'`, failed, rejected("pay failed: the reply of its service does not say that it succeeded: Card declined.")},
		{`success_when: '.status == "ok"', error: '"\(.message) (\(.code))"'`, failed, rejected("pay failed: Card declined (9007199254740993).")},
		{`success_when: '.status == "ok"', error: '{code}'`, failed, rejected(`pay failed: {"code":9007199254740993}.`)},
		{`success_when: '.status == "ok"', error: .nothing`, failed, rejected("pay failed: the reply of its service does not say that it succeeded: Card declined.")},
		{`success_when: '.status == "ok"', error: '.message', expose: status`, failed, rejected("pay failed: the reply of its service does not say that it succeeded.")},
		{`success_when: '.status == "ok"', error: '.message', expose: none`, failed, rejected("pay failed: the reply of its service does not say that it succeeded.")},
		{`success_when: .ok, output: 'error("never run")'`, failed, rejected("pay failed: the reply of its service does not say that it succeeded: Card declined.")},
		{`success_when: .ok`, answer(204, "", ""), rejected("pay failed: the reply of its service does not say that it succeeded.")},

		{`error: '.errors | map(.text // .code) | join(", ")'`, conflict, conflicted(": out of stock, E2.")},
		{`error: .nothing`, conflict, conflicted(": generic.")},
		{`error: '.errors.x'`, conflict, conflicted(": generic.")},
		{`error: 'last(repeat(1))'`, conflict, conflicted(": generic.")},
		{`error: '.errors[]'`, conflict, conflicted(": generic.")},
		{`error: '"a\u0000b\n\n c"'`, conflict, conflicted(": a b c.")},
		{`error: '"<html>"'`, conflict, conflicted(": generic.")},
		{`error: '"x" * 5000'`, conflict, conflicted(": " + strings.Repeat("x", 2048) + "….")},
		{`error: .message, expose: status`, conflict, conflicted(".")},
		{`error: .message, expose: none`, conflict, journal.Failure(journal.Conflict, "pay failed. Check the current state before you try again.")},
		{`error: .message`, answer(409, "text/plain", "just text"), conflicted(": just text.")},
		{`error: .message`, answer(409, "", ""), conflicted(".")},
		{`error: .message`, broken, journal.Failure(journal.UpstreamError, "pay failed with status 500 (Internal Server Error)."+mayHave)},
		{`error: '"no: " + .message', expose: detail`, broken, journal.Failure(journal.UpstreamError, "pay failed with status 500 (Internal Server Error): no: disk full."+mayHave)},
		{`output: .x, success_when: .y`, broken, journal.Failure(journal.UpstreamError, "pay failed with status 500 (Internal Server Error)."+mayHave)},
	} {
		s.check(t, false)
	}
}

func TestWhatAProgramTellsHoldsNoSecret(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(400, "application/json", `{"message":"bad token T0P-$ecret\"x and pa55-word"}`))
	b := newBench(t, table("pay: { url: "+up.URL+", headers: { X-A: \"${TOKEN}\", X-B: \"${PASSWORD}\" }, result: { error: '{why: .message}' } }"))
	got, _ := b.run(t, "pay", `{}`)
	if want := `pay failed with status 400 (Bad Request): {"why":"bad token [redacted] and [redacted]"}. Correct the arguments and call again.`; got.Error != want {
		t.Errorf("%s\nwant %s", got.Error, want)
	}
}

func TestFailingProgramsAreLoggedWithoutTheReply(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "application/json", `{"a":"s3cret"}`))
	b := newBench(t, table("pay: { url: "+up.URL+", result: { output: 'error(.a)' } }"))
	b.run(t, "pay", `{}`)
	if log := b.log.String(); !strings.Contains(log, `"msg":"jq program failed"`) || !strings.Contains(log, `"program":"result.output","reason":"the program raised an error"`) || strings.Contains(log, "s3cret") {
		t.Errorf("log: %s", log)
	}
}

func TestProgramMakesTheBody(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "ok"))
	b := newBench(t, table(
		"exact: { url: "+up.URL+", body: '{order: .order_id, cents: (.amount * 100 | round), big, price, by: $session.metadata.user_id, id: $call.id, key: $call.idempotency_key}' }",
		"text: { url: "+up.URL+", headers: { Content-Type: text/csv }, body: '.rows | map(join(\";\")) | join(\"\\n\")' }",
		"word: { url: "+up.URL+", body: .word }",
	))
	if outcome, _ := b.run(t, "exact", `{"order_id":9007199254740993,"amount":19.99,"big":123456789012345678901234567890,"price":1.10}`); !outcome.Success {
		t.Fatal(outcome)
	}
	b.run(t, "text", `{"rows":[["a","b"],[1,2]]}`)
	b.run(t, "word", `{"word":"<é>"}`)
	got := up.requests()
	key := journal.Key{SessionID: "sess_1", TurnID: "turn_1", CallID: "call_1"}.CallKey()
	for i, want := range []string{
		`{"big":123456789012345678901234567890,"by":null,"cents":1999,"id":"call_1","key":"` + key + `","order":9007199254740993,"price":1.10}`,
		"a;b\n1;2", `"<é>"`,
	} {
		if got[i].body != want || got[i].header.Get("Content-Type") != []string{"application/json", "text/csv", "application/json"}[i] {
			t.Errorf("%s, %s, want %s", got[i].header.Get("Content-Type"), got[i].body, want)
		}
	}
}

// The body is made once: a second process sends the bytes that the first one did.
func TestBodyOfAProgramIsTheSameAfterARestart(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "ok"))
	b := newBench(t, table("pay: { url: "+up.URL+", idempotent: true, body: '{at: now, n: .n}' }"))
	_, rec := b.run(t, "pay", `{"n":1}`)
	call := b.call("pay", `{"n":1}`)
	call.State, call.Request = journal.Running, rec.requests[0]
	if _, err := b.Forward(t.Context(), call, journal.Session{ID: "sess_1"}, &recorder{}); err != nil {
		t.Fatal(err)
	}
	got := up.requests()
	if len(got) != 2 || got[0].body != got[1].body || !strings.HasPrefix(got[0].body, `{"at":1`) {
		t.Errorf("%+v", got)
	}
}

func TestBodyThatCannotBeMadeSendsNothing(t *testing.T) {
	t.Parallel()
	up := serve(t, nil)
	for program, want := range map[string]string{
		`.a + 1`:                      "pay was not called: the arguments cannot be made into a request: cannot add: string and number.",
		`error("a must be a number")`: "pay was not called: the arguments cannot be used: a must be a number.",
		`error("no <" + .a + ">.")`:   "pay was not called: the arguments cannot be used: no <x>.",
		`last(repeat(.))`:             "pay was not called: the arguments cannot be made into a request: the program takes longer than 250 ms.",
		`.a * 1000000000`:             "pay was not called: the arguments cannot be made into a request: the program takes too much memory.",
		`.a * 2000000`:                "pay was not called: the arguments cannot be made into a request: the program makes more than 1 MiB of text.",
		`empty`:                       "pay was not called: the arguments cannot be made into a request: the program gives no value.",
		`.a, .a`:                      "pay was not called: the arguments cannot be made into a request: the program gives more than one value.",
		`nan`:                         "pay was not called: the arguments cannot be made into a request: the program makes a number that JSON cannot write.",
	} {
		b := newBench(t, table("pay: { url: "+up.URL+", body: '"+program+"' }"))
		got, rec := b.run(t, "pay", `{"a":"x"}`)
		if got != journal.Failure(journal.InvalidArguments, want+" Correct the arguments and call again.") || rec.sendings != 0 {
			t.Errorf("%s: %+v", program, got)
		}
	}
	if n := len(up.requests()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// The question about a lost request has an answer like any other reply.
func TestRecoveredReplyIsShapedToo(t *testing.T) {
	t.Parallel()
	up := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		answer(200, "application/json", `{"state":"done","refund":{"id":5}}`)(w, r)
	})
	b := newBench(t, table("pay: { url: "+up.URL+"/refunds, attempt_timeout: 10ms, recover: { path: \"/by-key/{call.idempotency_key}\" }, result: { success_when: '.state == \"done\"', output: .refund } }"))
	if got, _ := b.run(t, "pay", `{}`); got != journal.Success(`{"id":5}`) {
		t.Errorf("%+v", got)
	}
}
