package forward

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// FuzzReply reads whole replies of any kind.
func FuzzReply(f *testing.F) {
	for _, seed := range []struct {
		contentType, coding, body string
		status                    uint16
		options                   uint8
	}{
		{"application/json", "", `{"a":1}`, 200, 0},
		{"text/plain; charset=latin1", "", "caf\xe9", 200, 1},
		{"text/plain; charset=utf-16", "", "\xfe\xff\x00h\x00i", 200, 3},
		{"text/plain", "gzip", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x4b\x04\x00\x43\xbe\xb7\xe8\x01\x00\x00\x00", 200, 0},
		{"text/plain", "br, deflate", "\x0b\x02\x80hello\x03", 404, 2},
		{"image/png", "", "\x89PNG", 200, 0},
		{"application/json", "identity", `[{"type":"input_text","text":"x"}]`, 200, 4},
		{"", "", "\xff", 200, 0},
		{"text/html; charset=gbk", "", "<p>\x81", 500, 8},
		{"text/plain; charset=iso-2022-jp", "", "\x1b$B", 201, 1},
		{"text/plain", "", "日本日本日本日本日本日本日本日本日本日本日本", 200, 1},
	} {
		f.Add(seed.contentType, seed.coding, []byte(seed.body), seed.status, seed.options)
	}
	f.Fuzz(func(t *testing.T, contentType, coding string, body []byte, status uint16, options uint8) {
		const limit = 64
		response := &http.Response{
			StatusCode: 200 + int(status)%400, Header: http.Header{}, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
		}
		if coding != "" {
			response.Header.Set("Content-Encoding", coding)
		}
		result := router.Result{
			MaxBytes: limit, MaxImageBytes: 2 * limit, Truncate: options&1 != 0, HTML: options&2 != 0, Content: options&4 != 0,
			Expose: []router.Expose{router.ExposeUnset, router.ExposeDetail, router.ExposeStatus, router.ExposeNone}[options>>3&3],
		}
		r := &reply{status: response.StatusCode, header: response.Header, size: -1, media: mediaOf(contentType)}
		r.limit = limitOf(r.status, r.media, result)
		if _, err := r.read(response, nil); err != nil {
			t.Fatalf("a body that is whole counts as cut: %v", err)
		}
		tell := telling{function: "act", result: result, redactor: newRedactor(nil), idempotent: options&32 != 0, attempts: 1}
		fate := decide(question{status: r.status, idempotent: tell.idempotent, on503: true})

		o := tell.replied(r, 0)
		if fate.unknown {
			o = tell.unknown(tell.lost(&attempt{reply: r}))
		}

		if !utf8.ValidString(o.Output+o.Error) || o.Success == (o.Error != "") || o.Success != (o.Failure == "") {
			t.Fatalf("outcome = %+v", o)
		}
		if o.Success {
			checkPassedOn(t, r, o, body, coding, limit)
		}
	})
}

func checkPassedOn(t *testing.T, r *reply, o journal.Outcome, body []byte, coding string, limit int) {
	t.Helper()
	switch {
	case !r.ok():
		t.Fatalf("status %d is a success", r.status)
	case o.Content && r.media.family == image:
		_, encoded, _ := strings.Cut(strings.TrimSuffix(o.Output, `"}]`), ";base64,")
		image, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil || coding == "" && !bytes.Equal(image, body) || !isContent(o.Output) {
			t.Fatalf("image %q became %q", body, o.Output)
		}
	case o.Content:
		if !isContent(o.Output) || !json.Valid([]byte(o.Output)) {
			t.Fatalf("content = %q", o.Output)
		}
	default:
		text, _, _ := strings.Cut(o.Output, "\n[The reply was cut here")
		if len(text) > limit {
			t.Fatalf("%d bytes of at most %d: %q", len(text), limit, o.Output)
		}
		plain := coding == "" && encodingOf(r.media.charset) == nil && utf8.Valid(body) && !bytes.HasPrefix(body, []byte("\uFEFF"))
		if plain && r.status != 204 && r.status != 205 && !strings.HasPrefix(string(body), text) {
			t.Fatalf("%q became %q", body, o.Output)
		}
		if plain && r.status != 204 && r.status != 205 && len(body) <= limit && o.Output != string(body) {
			t.Fatalf("%q became %q", body, o.Output)
		}
	}
}

// A redirect is followed within scheme, host and port, however these are written.
func TestOriginsAreCompared(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ from, location, to string }{
		{"http://shop.test/a/x", "/b?q=1#f", "http://shop.test/b?q=1"},
		{"http://shop.test/a/x", "b", "http://shop.test/a/b"},
		{"http://shop.test/a/x", "//shop.test/b", "http://shop.test/b"},
		{"http://shop.test/a/x", "HTTP://SHOP.test:80/b", "http://SHOP.test:80/b"},
		{"http://shop.test:80/a/x", "http://shop.test/b", "http://shop.test/b"},
		{"https://shop.test/a", "https://shop.test:443/b", "https://shop.test:443/b"},
		{"http://[::1]:8080/a", "http://[::1]:8080/b", "http://[::1]:8080/b"},
		{"http://shop.test/a", "http://me:pw@shop.test/b", "http://shop.test/b"},
		{"http://shop.test/a", "https://shop.test/b", ""},
		{"http://shop.test/a", "https://shop.test:80/b", ""},
		{"http://shop.test/a", "http://shop.test:443/b", ""},
		{"https://shop.test/a", "https://shop.test:80/b", ""},
		{"http://shop.test/a", "http://www.shop.test/b", ""},
		{"http://shop.test/a", "http://shop.test./b", ""},
		{"http://shop.test/a", "//evil.test/b", ""},
		{"http://shop.test/a", "", ""},
	} {
		from, err := url.Parse(test.from)
		if err != nil {
			t.Fatal(err)
		}
		for status, followed := range map[int]bool{301: false, 302: false, 303: false, 307: true, 308: true} {
			got, want := "", ""
			if to := sameOrigin(from, &http.Response{StatusCode: status, Header: http.Header{"Location": {test.location}}}); to != nil {
				got = to.String()
			}
			if followed {
				want = test.to
			}
			if got != want {
				t.Errorf("%d from %s to %q leads to %q, want %q", status, test.from, test.location, got, want)
			}
		}
	}
}

// FuzzRedirect follows a Location: whatever it says, the request stays with the
// service that it was made for.
func FuzzRedirect(f *testing.F) {
	for _, seed := range []string{
		"", "/b", "b?x=1#f", "//evil.test/", "http://evil.test/", "HTTP://SHOP.test:80/x", "https://shop.test/", "http://u:p@shop.test/",
		"http://shop.test.evil.test/", "http://shop.test@evil.test/", "http://shop.test\\@evil.test/", "http:/x", "http:x", "?q", "javascript:x",
		"http://shop.test:443/", "http://[::1]/", "\thttp://evil.test/", "http://shop.test%00.evil.test/",
	} {
		f.Add(seed)
	}
	from := &url.URL{Scheme: "http", Host: "shop.test", Path: "/a/x"}
	f.Fuzz(func(t *testing.T, location string) {
		to := sameOrigin(from, &http.Response{StatusCode: http.StatusTemporaryRedirect, Header: http.Header{"Location": {location}}})
		if to == nil {
			return
		}
		// The transport dials what this says; read anew, as a second opinion.
		again, err := url.Parse(to.String())
		if err != nil {
			t.Fatalf("%q leads to %q: %v", location, to, err)
		}
		for _, u := range []*url.URL{to, again} {
			port := u.Port()
			if u.Scheme != "http" || !strings.EqualFold(u.Hostname(), "shop.test") || port != "" && port != "80" || u.User != nil || u.Fragment != "" {
				t.Fatalf("%q leads to %q", location, u)
			}
		}
	})
}

// FuzzMedia reads Content-Types and charsets: what is decoded is UTF-8.
func FuzzMedia(f *testing.F) {
	for _, seed := range []string{
		"", "text/plain", "Text/HTML; charset=\"x\"", "application/vnd.api+json;a", "image/png;", ";", "text/plain; charset*=utf-8''x",
		"text/plain; charset=utf-7", "text/plain; charset=utf-16be", "application/json, text/html", "\x00/\xff",
	} {
		f.Add(seed, []byte("caf\xe9 \x00\xd8"))
	}
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		r := &reply{status: 200, media: mediaOf(contentType), body: body}
		if text := r.text(); !utf8.ValidString(text) {
			t.Fatalf("%q as %q became %q", body, contentType, text)
		}
		if name := r.media.name; name != strings.ToLower(name) || strings.Contains(name, ";") {
			t.Fatalf("%q is of the type %q", contentType, name)
		}
	})
}
