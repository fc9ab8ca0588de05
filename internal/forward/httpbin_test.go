package forward_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mccutchen/go-httpbin/v2/httpbin"
	"github.com/tidwall/gjson"

	"functionbridge/internal/journal"
)

// A service that nobody here wrote.
func TestHTTPBin(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(httpbin.New())
	t.Cleanup(s.Close)
	route := func(name, options string) string { return name + `: { url: "` + s.URL + options + ` }` }
	b := newBench(t, table(
		route("post", `/post"`),
		route("get", `/get{?q*}", method: GET`),
		route("delete", `/delete", method: DELETE`),
		route("patch", `/patch", method: PATCH`),
		route("status", `/status/{code}", method: GET`),
		route("gzip", `/gzip", method: GET`),
		route("deflate", `/deflate", method: GET`),
		route("html", `/html", method: GET`),
		route("image", `/image/png", method: GET`),
		route("utf8", `/encoding/utf8", method: GET, result: { html: true }`),
		route("octets", `/bytes/16", method: GET`),
		route("redirect", `/redirect/1", method: GET`),
		route("slow", `/delay/5", attempt_timeout: 200ms, idempotent: false`),
		route("drip", `/drip?duration=5s&numbytes=10&delay=0s", method: GET, attempt_timeout: 200ms, retry: { attempts: 1 }`),
		route("auth", `/basic-auth/u/p", method: GET`),
		route("xml", `/xml", method: GET`),
	))

	o, _ := b.run(t, "post", `{"id":9007199254740993,"rate":1.10}`)
	if echoed := gjson.Get(o.Output, "data").Str; !o.Success || !strings.Contains(o.Output, "9007199254740993") || !strings.Contains(o.Output, "1.10") {
		t.Errorf("post: %+v, data %q", o, echoed)
	}
	if o, _ := b.run(t, "get", `{"q":{"a":"b c&d"},"n":[1,2]}`); gjson.Get(o.Output, "args.a.0").Str != "b c&d" || gjson.Get(o.Output, "args.n.#").Int() != 2 {
		t.Errorf("get: %+v", o)
	}
	for _, function := range []string{"delete", "patch", "gzip", "deflate", "xml", "utf8"} {
		if o, _ := b.run(t, function, `{"a":"x"}`); !o.Success || o.Output == "" || o.Content {
			t.Errorf("%s: %+v", function, o)
		}
	}
	if o, _ := b.run(t, "image", ``); !o.Success || !o.Content || !strings.HasPrefix(o.Output, `[{"type":"input_image","image_url":"data:image/png;base64,`) {
		t.Errorf("image: %.100v", o)
	}
	for function, kind := range map[string]journal.Kind{
		"html": journal.BadReply, "octets": journal.BadReply, "redirect": journal.Rejected,
		"slow": journal.UnknownOutcome, "drip": journal.Timeout, "auth": journal.Denied,
	} {
		if o, _ := b.run(t, function, `{}`); o.Failure != kind {
			t.Errorf("%s: %+v, want %s", function, o, kind)
		}
	}
	for code, kind := range map[string]journal.Kind{
		"400": journal.InvalidArguments, "404": journal.NotFound, "409": journal.Conflict, "418": journal.Rejected,
		"429": journal.RateLimited, "500": journal.UpstreamError, "502": journal.Unavailable, "504": journal.Timeout,
	} {
		if o, _ := b.run(t, "status", `{"code":`+code+`}`); o.Failure != kind {
			t.Errorf("status %s: %+v, want %s", code, o, kind)
		}
	}
	if o, _ := b.run(t, "status", `{"code":204}`); o != journal.Success("") {
		t.Errorf("status 204: %+v", o)
	}
}
