package forward_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/andybalholm/brotli"

	"functionbridge/internal/journal"
)

// reading is one reply and what the agent is told about it.
type reading struct {
	name    string
	options string
	answer  http.HandlerFunc
	want    journal.Outcome
}

// check runs a reply through an idempotent route.
func (r reading) check(t *testing.T, idempotent bool) {
	t.Helper()
	up := serve(t, r.answer)
	b := newBench(t, table(fmt.Sprintf("look: { url: %s, idempotent: %t%s }", up.URL, idempotent, r.options)))
	got, _ := b.run(t, "look", `{}`)
	if got != r.want {
		t.Errorf("outcome = %+v\nwant      %+v", got, r.want)
	}
	if !utf8.ValidString(got.Output + got.Error) {
		t.Error("the outcome is not UTF-8")
	}
}

func TestRepliesThatArePassedOn(t *testing.T) {
	t.Parallel()
	odd := "{\"z\":9007199254740993,\"a\":1.10, \"n\":1e400,\n\"s\":\"\\u0041\\/é\",\"z\":1}"
	tests := []reading{
		{"JSON", "", answer(200, "application/json", odd), journal.Success(odd)},
		{"JSON with NUL", "", answer(200, "application/json", "a\x00b"), journal.Success("a\x00b")},
		{"JSON string", "", answer(200, "application/json", `"x"`), journal.Success(`"x"`)},
		{"null", "", answer(200, "application/json", `null`), journal.Success(`null`)},
		{"JSON as text", "", answer(200, "text/plain", `[1]`), journal.Success(`[1]`)},
		{"not JSON as JSON", "", answer(200, "application/json", `{"a":`), journal.Success(`{"a":`)},
		{"+json with charset", "", answer(200, `application/problem+json; charset="UTF-8"`, `{"a":"é"}`), journal.Success(`{"a":"é"}`)},
		{"upper case type", "", answer(200, "Application/JSON;Charset=Utf-8", `{}`), journal.Success(`{}`)},
		{"malformed parameters", "", answer(200, "application/json; charset", `{}`), journal.Success(`{}`)},
		{"XML", "", answer(200, "application/xml", `<a/>`), journal.Success(`<a/>`)},
		{"+xml", "", answer(200, "image/svg+xml", `<svg/>`), journal.Success(`<svg/>`)},
		{"YAML", "", answer(200, "application/yaml", "a: 1\n"), journal.Success("a: 1\n")},
		{"CSV", "", answer(201, "text/csv", "a,b\r\n"), journal.Success("a,b\r\n")},
		{"form data", "", answer(200, "application/x-www-form-urlencoded", "a=1&b=2"), journal.Success("a=1&b=2")},
		{"no type, text", "", answer(200, "", "plain é"), journal.Success("plain é")},
		{"200 without a body", "", answer(200, "application/json", ""), journal.Success("")},
		{"202 without a body or a type", "", answer(202, "", ""), journal.Success("")},
		{"204", "", answer(204, "text/html", ""), journal.Success("")},
		{"205", "", answer(205, "", ""), journal.Success("")},
		{"empty HTML", "", answer(200, "text/html", ""), journal.Success("")},
		{"empty gzip", "", coded("gzip", nil), journal.Success("")},
		{"HTML where it is taken", ", result: { html: true }", answer(200, "text/html; charset=utf-8", "<p>é"), journal.Success("<p>é")},
		{"ISO-8859-1", "", answer(200, "application/json;charset=ISO-8859-1", "{\"city\":\"Qu\xe9bec\"}"), journal.Success(`{"city":"Québec"}`)},
		{"UTF-16 with a mark", "", answer(200, "text/plain; charset=utf-16", "\xff\xfeh\x00\xe9\x00"), journal.Success("hé")},
		{"UTF-16 with a mark of the other order", "", answer(200, "text/plain; charset=UTF-16", "\xfe\xff\x00h\x00\xe9"), journal.Success("hé")},
		{"UTF-16 without a mark", "", answer(200, "text/plain; charset=utf-16", "h\x00\xe9\x00"), journal.Success("hé")},
		{"UTF-16BE", "", answer(200, "text/plain; charset=utf-16be", "\x00h\x00\xe9"), journal.Success("hé")},
		{"Shift_JIS", "", answer(200, "text/plain; charset=shift_jis", "\x93\xfa\x96\x7b"), journal.Success("日本")},
		{"unknown charset", "", answer(200, "text/plain; charset=klingon", "é\xff"), journal.Success("é\uFFFD")},
		{"charset that browsers refuse", "", answer(200, "text/plain; charset=iso-2022-kr", "abc"), journal.Success("abc")},
		{"invalid UTF-8", "", answer(200, "text/plain", "a\xff\xfeb"), journal.Success("a\uFFFD\uFFFDb")},
		{"byte order mark", "", answer(200, "application/json", "\xEF\xBB\xBF{}"), journal.Success("{}")},
		{"gzip", "", coded("gzip", zipped("hello")), journal.Success("hello")},
		{"x-gzip", "", coded("X-GZip", zipped("hello")), journal.Success("hello")},
		{"deflate with zlib", "", coded("deflate", zlibbed("hello")), journal.Success("hello")},
		{"deflate without zlib", "", coded("deflate", deflated("hello")), journal.Success("hello")},
		{"br", "", coded("br", brotlied("hello")), journal.Success("hello")},
		{"identity", "", coded("identity", []byte("hello")), journal.Success("hello")},
		{"gzip over br", "", coded("br, gzip", zipped(string(brotlied("hello")))), journal.Success("hello")},
		{"PNG", "", answer(200, "image/png", "\x89PNG"), image("image/png", "\x89PNG")},
		{"JPEG", "", answer(200, "Image/JPEG; q=1", "\xff\xd8"), image("image/jpeg", "\xff\xd8")},
		{"GIF", "", answer(200, "image/gif", "GIF89a"), image("image/gif", "GIF89a")},
		{"WebP of 300 KB", "", answer(200, "image/webp", strings.Repeat("x", 300<<10)), image("image/webp", strings.Repeat("x", 300<<10))},
		{
			"content parts", ", result: { as: content }", answer(200, "application/json", parts),
			journal.Outcome{Success: true, Content: true, Output: parts},
		},
		{"exactly max_bytes", ", result: { max_bytes: 5 }", answer(200, "text/plain", "12345"), journal.Success("12345")},
		{
			"cut at a character", ", result: { max_bytes: 6, on_oversize: truncate }", answer(200, "text/plain", "12345é789"),
			journal.Success("12345\n[The reply was cut here: 5 bytes are shown of 10 bytes.]"),
		},
		{
			"cut at three of four bytes", ", result: { max_bytes: 5, on_oversize: truncate }", answer(200, "text/plain", "12😀789"),
			journal.Success("12\n[The reply was cut here: 2 bytes are shown of 9 bytes.]"),
		},
		{
			"cut in the middle of UTF-16", ", result: { max_bytes: 5, on_oversize: truncate }", answer(200, "text/plain; charset=utf-16le", "h\x00i\x00j\x00k\x00"),
			journal.Success("hi\n[The reply was cut here: 2 bytes are shown of 8 bytes.]"),
		},
		{
			"cut, size not known", ", result: { max_bytes: 5, on_oversize: truncate }", coded("gzip", zipped("12345é789")),
			journal.Success("12345\n[The reply was cut here: 5 bytes are shown of more than 5 bytes.]"),
		},
		{
			"cut after its charset was decoded", ", result: { max_bytes: 5, on_oversize: truncate }", answer(200, "text/plain; charset=latin1", "\xe9\xe9\xe9"),
			journal.Success("éé\n[The reply was cut here: 4 bytes are shown of 6 bytes.]"),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.check(t, true)
		})
	}
}

const parts = `[{"type":"input_text","text":"3 rows \u00e9"}, {"image_url":"https://x.test/a.png","type":"input_image"}]`

func image(mediaType, body string) journal.Outcome {
	return journal.Outcome{Success: true, Content: true, Output: `[{"type":"input_image","image_url":"data:` + mediaType +
		`;base64,` + base64.StdEncoding.EncodeToString([]byte(body)) + `"}]`}
}

// unusable is a 2xx reply that cannot be passed on, with the kind of failure
// and the end of the sentence about it.
type unusable struct {
	name, options string
	answer        http.HandlerFunc
	kind          journal.Kind
	why           string
}

func TestRepliesThatCannotBePassedOn(t *testing.T) {
	t.Parallel()
	octets := answer(200, "application/octet-stream", "\x00\x01")
	tests := []unusable{
		{"HTML", "", answer(200, "text/html; charset=utf-8", "<h1>Service unavailable</h1>"), journal.BadReply, "is text/html, which cannot be passed on"},
		{"XHTML", "", answer(200, "application/xhtml+xml", "<html/>"), journal.BadReply, "is application/xhtml+xml, which cannot be passed on"},
		{"binary", "", octets, journal.BadReply, "is application/octet-stream, which cannot be passed on"},
		{"PDF", "", answer(200, "application/pdf", "%PDF"), journal.BadReply, "is application/pdf, which cannot be passed on"},
		{"image of another kind", "", answer(200, "image/tiff", "II"), journal.BadReply, "is image/tiff, which cannot be passed on"},
		{"no type, not text", "", answer(200, "", "\xff\x00"), journal.BadReply, "has no media type and is not text"},
		{"damaged gzip", "", coded("gzip", []byte("not gzip")), journal.BadReply, "has a content coding that cannot be undone"},
		{"gzip that ends early", "", coded("gzip", zipped("hello")[:20]), journal.BadReply, "has a content coding that cannot be undone"},
		{"damaged br", "", coded("br", []byte("\xff\xff\xff\xff")), journal.BadReply, "has a content coding that cannot be undone"},
		{"unknown coding", "", coded("zstd", []byte("x")), journal.BadReply, "has a content coding that cannot be undone"},
		{"codings without end", "", coded("gzip, gzip, gzip, gzip", zipped("x")), journal.BadReply, "has a content coding that cannot be undone"},
		{"too large", ", result: { max_bytes: 5 }", answer(200, "text/plain", "123456"), journal.TooLarge, "is too large: 6 bytes, and at most 5 bytes can be passed on"},
		{"too large, gzip", ", result: { max_bytes: 5 }", coded("gzip", zipped("123456")), journal.TooLarge, "is too large: it is longer than the 5 bytes that can be passed on"},
		{"too large once decoded", ", result: { max_bytes: 5 }", answer(200, "text/plain; charset=latin1", "\xe9\xe9\xe9"), journal.TooLarge, "is too large: 6 bytes, and at most 5 bytes can be passed on"},
		{
			"too large an image", "", answer(200, "image/png", strings.Repeat("x", 4<<20+1)),
			journal.TooLarge, "is too large: it is longer than the 4194304 bytes that can be passed on",
		},
		{
			"too large content cannot be cut", ", result: { as: content, max_bytes: 9, on_oversize: truncate }", answer(200, "application/json", parts),
			journal.TooLarge, fmt.Sprintf("is too large: %d bytes, and at most 9 bytes can be passed on", len(parts)),
		},
		{"content: an object", ", result: { as: content }", answer(200, "application/json", `{"type":"input_text","text":"x"}`), journal.BadReply, notParts},
		{"content: no parts", ", result: { as: content }", answer(200, "application/json", `[]`), journal.BadReply, notParts},
		{"content: another type", ", result: { as: content }", answer(200, "application/json", `[{"type":"output_text","text":"x"}]`), journal.BadReply, notParts},
		{"content: another member", ", result: { as: content }", answer(200, "application/json", `[{"type":"input_text","text":"x","id":1}]`), journal.BadReply, notParts},
		{"content: no text", ", result: { as: content }", answer(200, "application/json", `[{"type":"input_text"}]`), journal.BadReply, notParts},
		{"content: text that is none", ", result: { as: content }", answer(200, "application/json", `[{"type":"input_text","text":5}]`), journal.BadReply, notParts},
		{"content: twice", ", result: { as: content }", answer(200, "application/json", `[{"type":"input_text","type":"input_text","text":"x"}]`), journal.BadReply, notParts},
		{"content: file URL", ", result: { as: content }", answer(200, "application/json", `[{"type":"input_image","image_url":"file:///x"}]`), journal.BadReply, notParts},
		{"content: not JSON", ", result: { as: content }", answer(200, "text/plain", `x`), journal.BadReply, notParts},
		{"content: two values", ", result: { as: content }", answer(200, "application/json", parts+parts), journal.BadReply, notParts},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			todo := map[journal.Kind]string{journal.BadReply: "Do not try again.", journal.TooLarge: "Ask for less and call again."}[test.kind]
			reading{"", test.options, test.answer, journal.Failure(test.kind, "The reply of look (status 200) "+test.why+". "+todo)}.check(t, true)
			reading{"", test.options, test.answer, journal.Failure(test.kind,
				"look was carried out (status 200), but its reply "+test.why+". It is not to be called again.")}.check(t, false)
		})
	}
}

const notParts = "is not a list of input_text and input_image parts"

func TestRefusals(t *testing.T) {
	t.Parallel()
	problem := `{"type":"about:blank","title":"Bad id","detail":"No such customer: 7","message":"m","error":{"message":"e"}}`
	long := strings.Repeat("é", 3000)
	tests := []reading{
		refusal("detail of a problem document", 404, "application/problem+json", problem, journal.NotFound,
			"look failed with status 404 (Not Found): No such customer: 7. Do not try again with the same arguments."),
		refusal("title", 409, "application/json", `{"title":"Already there!","detail":""}`, journal.Conflict,
			"look failed with status 409 (Conflict): Already there! Check the current state before you try again."),
		refusal("error.message", 400, "application/json", `{"error":{"message":"bad field"},"message":"m"}`, journal.InvalidArguments,
			"look failed with status 400 (Bad Request): bad field. Correct the arguments and call again."),
		refusal("message", 401, "application/json", `{"message":"who are you?"}`, journal.Denied,
			"look failed with status 401 (Unauthorized): who are you? Do not try again."),
		refusal("error", 422, "application/json; charset=utf-8", `{"error":"qty must be > 0"}`, journal.InvalidArguments,
			"look failed with status 422 (Unprocessable Entity): qty must be > 0. Correct the arguments and call again."),
		refusal("detail that is a list", 422, "application/json", `{"detail":[{"loc":["body","qty"],"msg":"missing"}]}`, journal.InvalidArguments,
			`look failed with status 422 (Unprocessable Entity): [{"loc":["body","qty"],"msg":"missing"}]. Correct the arguments and call again.`),
		refusal("JSON without a known member", 418, "application/json", `{"reason":"teapot"}`, journal.Rejected,
			`look failed with status 418 (I'm a teapot): {"reason":"teapot"}. Do not try again with the same arguments.`),
		refusal("JSON as plain text", 400, "text/plain", `{"message":"bad"}`, journal.InvalidArguments,
			"look failed with status 400 (Bad Request): bad. Correct the arguments and call again."),
		refusal("plain text, control characters", 404, "text/plain", "no\x1b[31m such\r\n\tthing\x00\n", journal.NotFound,
			"look failed with status 404 (Not Found): no [31m such thing. Do not try again with the same arguments."),
		refusal("long plain text", 404, "text/plain", long, journal.NotFound,
			"look failed with status 404 (Not Found): "+long[:2048]+"…. Do not try again with the same arguments."),
		refusal("latin-1", 404, "text/plain; charset=iso-8859-1", "caf\xe9", journal.NotFound,
			"look failed with status 404 (Not Found): café. Do not try again with the same arguments."),
		refusal("HTML", 404, "text/html", "<h1>nope</h1>", journal.NotFound,
			"look failed with status 404 (Not Found). Do not try again with the same arguments."),
		refusal("HTML as plain text", 404, "text/plain", "\n<!DOCTYPE html><title>x</title>", journal.NotFound,
			"look failed with status 404 (Not Found). Do not try again with the same arguments."),
		refusal("HTML in JSON", 404, "application/json", `{"message":"<html><body>x</body></html>"}`, journal.NotFound,
			"look failed with status 404 (Not Found). Do not try again with the same arguments."),
		refusal("HTML after a sentence", 404, "text/plain", "Upstream said: <HTML><body>x", journal.NotFound,
			"look failed with status 404 (Not Found). Do not try again with the same arguments."),
		refusal("XHTML", 404, "application/xml", `<?xml version="1.0"?><!DOCTYPE html PUBLIC "x"><html>x</html>`, journal.NotFound,
			"look failed with status 404 (Not Found). Do not try again with the same arguments."),
		refusal("HTML without a type", 404, "", "<html>x", journal.NotFound,
			"look failed with status 404 (Not Found). Do not try again with the same arguments."),
		refusal("binary", 404, "application/octet-stream", "x", journal.NotFound,
			"look failed with status 404 (Not Found). Do not try again with the same arguments."),
		refusal("no body", 403, "", "", journal.Denied, "look failed with status 403 (Forbidden). Do not try again."),
		refusal("5xx: status only", 501, "application/json", problem, journal.UpstreamError,
			"look failed with status 501 (Not Implemented). Try again later."),
		refusal("a status without a name", 499, "", "", journal.Rejected, "look failed with status 499. Do not try again with the same arguments."),
		{"5xx: detail", ", result: { expose: detail }", answer(501, "application/json", problem), journal.Failure(journal.UpstreamError,
			"look failed with status 501 (Not Implemented): No such customer: 7. Try again later.")},
		{"4xx: status only", ", result: { expose: status }", answer(404, "application/json", problem), journal.Failure(journal.NotFound,
			"look failed with status 404 (Not Found). Do not try again with the same arguments.")},
		{"not even the status", ", result: { expose: none }", answer(404, "application/json", problem), journal.Failure(journal.NotFound,
			"look failed. Do not try again with the same arguments.")},
		{"max_bytes is not for failures", ", result: { max_bytes: 5 }", answer(404, "text/plain", "no such customer"), journal.Failure(journal.NotFound,
			"look failed with status 404 (Not Found): no such customer. Do not try again with the same arguments.")},
		{"redirect", "", redirecting(302, "/login"), journal.Failure(journal.Rejected, "look failed: redirect 302 (Found) not followed. Do not try again.")},
		{"redirect that asks to wait", "", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "5")
			redirecting(303, "/login")(w, r)
		}, journal.Failure(journal.Rejected, "look failed: redirect 303 (See Other) not followed. Do not try again.")},
		{"damaged gzip", "", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(404)
			_, _ = w.Write(zipped("no such thing, sadly")[:28])
		}, journal.Failure(journal.NotFound, "look failed with status 404 (Not Found). Do not try again with the same arguments.")},
		{"304", "", answer(304, "", ""), journal.Failure(journal.Rejected, "look failed: redirect 304 (Not Modified) not followed. Do not try again.")},
		{"redirect, status hidden", ", result: { expose: none }", redirecting(303, "/login"), journal.Failure(journal.Rejected,
			"look failed: its service answered with a redirect, which is not followed. Do not try again.")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.check(t, true)
		})
	}
}

func refusal(name string, status int, mediaType, body string, kind journal.Kind, sentence string) reading {
	return reading{name, "", answer(status, mediaType, body), journal.Failure(kind, sentence)}
}

func TestServerErrorOnANonIdempotentRouteIsAKnownFailure(t *testing.T) {
	t.Parallel()
	reading{"", ", result: { expose: detail }", answer(500, "application/json", `{"detail":"field x missing"}`), journal.Failure(journal.UpstreamError,
		"look failed with status 500 (Internal Server Error): field x missing. It may have been carried out; check that before you call it again.")}.check(t, false)
	reading{"", "", answer(501, "text/plain", ""), journal.Failure(journal.UpstreamError,
		"look failed with status 501 (Not Implemented). Try again later.")}.check(t, false)
}

// The last status and the service's text survive the retries.
func TestDetailOfTheLastAttemptIsTold(t *testing.T) {
	t.Parallel()
	reading{"", ", result: { expose: detail }", answer(500, "application/json", `{"detail":"field x missing"}`), journal.Failure(journal.UpstreamError,
		"look failed with status 500 (Internal Server Error) in 3 attempts: field x missing. It may have been carried out; check that before you call it again.")}.check(t, true)
	reading{"", "", answer(429, "application/json", `{"detail":"quota"}`), journal.Failure(journal.RateLimited,
		"look failed with status 429 (Too Many Requests) in 3 attempts: quota. Try again later.")}.check(t, true)
}

// The attempts at a call share a key; a second call has another, and would do
// again what a POST may have done. A GET is harmless by itself.
func TestSecondCallIsWarnedOfWhereOnlyTheKeyMadeRepeatsHarmless(t *testing.T) {
	t.Parallel()
	const later, doubt = "Try again later.", "It may have been carried out; check that before you call it again."
	for _, test := range []struct {
		name, more string
		handler    http.HandlerFunc
		want       string
	}{
		{"POST, 502", "", answer(502, "text/plain", ""), doubt},
		{"POST, 500", "", answer(500, "text/plain", ""), doubt},
		{"POST, no reply", ", timeout: 50ms", silentUntilGone, doubt},
		{"PATCH, 504", ", method: PATCH", answer(504, "text/plain", ""), doubt},
		{"POST, 425: not processed", "", answer(425, "text/plain", ""), later},
		{"POST, 429: not processed", "", answer(429, "text/plain", ""), later},
		{"GET, 502", ", method: GET", answer(502, "text/plain", ""), later},
		{"PUT, no reply", ", method: PUT, timeout: 50ms", silentUntilGone, later},
		{"POST, 502 asks to wait", ", timeout: 1s", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(502)
		}, "Try again after 30 s."},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(test.handler)
			t.Cleanup(server.Close)
			f := newBench(t, fmt.Sprintf("version: 1\nroutes:\n  look: { url: %s/x, idempotent: true, retry: { min_wait: 1ms, max_wait: 1ms }%s }\n", server.URL, test.more))
			outcome, err := f.Forward(t.Context(), f.call("look", `{}`), journal.Session{ID: "s"}, silent{})
			if err != nil || !strings.HasSuffix(outcome.Error, test.want) {
				t.Errorf("outcome %+v (%v), want the advice %q", outcome, err, test.want)
			}
		})
	}
}

// What an earlier process sent may have been processed, whatever becomes of the
// attempts after it.
func TestDoubtOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(answer(425, "text/plain", ""))
	t.Cleanup(server.Close)
	f := newBench(t, fmt.Sprintf("version: 1\nroutes:\n  look: { url: %s/x, idempotent: true, retry: { attempts: 1 } }\n", server.URL))
	for state, want := range map[journal.State]string{
		journal.Pending: "Try again later.",
		journal.Running: "It may have been carried out; check that before you call it again.",
	} {
		call := f.call("look", `{}`)
		call.State = state
		outcome, err := f.Forward(t.Context(), call, journal.Session{ID: "s"}, silent{})
		if err != nil || !strings.HasSuffix(outcome.Error, want) {
			t.Errorf("%s: outcome %+v (%v), want the advice %q", state, outcome, err, want)
		}
	}
}

// What a route hides or shows of a reply holds for every kind of outcome.
func TestExposeHoldsForRepliesOfEveryKind(t *testing.T) {
	t.Parallel()
	detail := answer(502, "application/json", `{"detail":"ledger is down"}`)
	tests := []reading{
		{"unknown outcome, status only", "", detail, journal.Failure(journal.UnknownOutcome,
			"It is not known whether look was carried out: its service answered status 502 (Bad Gateway). Check that before you call it again.")},
		{"unknown outcome, detail", ", result: { expose: detail }", detail, journal.Failure(journal.UnknownOutcome,
			"It is not known whether look was carried out: its service answered status 502 (Bad Gateway): ledger is down. Check that before you call it again.")},
		{"unknown outcome, nothing", ", result: { expose: none }", detail, journal.Failure(journal.UnknownOutcome,
			"It is not known whether look was carried out: its service answered with a failure. Check that before you call it again.")},
		{"unknown outcome, 4xx", "", answer(408, "text/plain", "too slow"), journal.Failure(journal.UnknownOutcome,
			"It is not known whether look was carried out: its service answered status 408 (Request Timeout): too slow. Check that before you call it again.")},
		{"unusable reply, nothing", ", result: { expose: none }", answer(200, "text/html", "<p>"), journal.Failure(journal.BadReply,
			"look was carried out, but its reply is text/html, which cannot be passed on. It is not to be called again.")},
		{"switched protocols", "", switching, journal.Failure(journal.Rejected,
			"look failed with status 101 (Switching Protocols). Do not try again with the same arguments.")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.check(t, false)
		})
	}
}

func switching(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Upgrade", "telnet")
	w.Header().Set("Connection", "Upgrade")
	w.WriteHeader(http.StatusSwitchingProtocols)
}

func TestArgumentsThatCannotBeUsedAreNotSent(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "ok"))
	b := newBench(t, table("look: "+up.URL,
		"get: { url: \"http://x.test\", method: GET, parameters: { type: object, properties: { id: { type: integer } }, required: [id] } }"))
	for name, test := range map[string]struct{ function, raw, says string }{
		"list":       {"look", `[1]`, "The arguments of look are a list, not a JSON object. Correct the arguments and call again."},
		"duplicates": {"look", `{"a":1,"\u0061":2}`, `The arguments of look hold the key "a" twice, the second time at position 8. Correct`},
		"schema":     {"get", ``, "get was not called: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, rec := b.run(t, test.function, test.raw)
			if o.Failure != journal.InvalidArguments || !strings.HasPrefix(o.Error, test.says) {
				t.Errorf("outcome = %+v, want %q", o, test.says)
			}
			if rec.sendings != 0 || len(up.requests()) != 0 {
				t.Error("something was sent")
			}
		})
	}
}

func TestUnknownFunctionIsNamed(t *testing.T) {
	t.Parallel()
	b := newBench(t, table("list_invoices: http://x.test", "other: http://x.test"))
	for name, says := range map[string]string{
		"list_invoice":            `There is no function "list_invoice". Do not call it again; the closest function is list_invoices.`,
		"functions.list_invoices": `There is no function "functions.list_invoices".`,
		"a\nb":                    `There is no function "a b".`,
		strings.Repeat("é", 200):  `There is no function "` + strings.Repeat("é", 50) + `…".`,
	} {
		o, rec := b.run(t, name, `{}`)
		if o.Failure != journal.UnknownFunction || !strings.HasPrefix(o.Error, says) || rec.sendings != 0 {
			t.Errorf("outcome = %+v, want %q", o, says)
		}
	}
}

func coded(coding string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", coding)
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(body)
	}
}

func redirecting(status int, location string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", location)
		w.WriteHeader(status)
	}
}

func zipped(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.Bytes()
}

func zlibbed(s string) []byte {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.Bytes()
}

func deflated(s string) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestSpeed)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.Bytes()
}

func brotlied(s string) []byte {
	var b bytes.Buffer
	w := brotli.NewWriter(&b)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return b.Bytes()
}
