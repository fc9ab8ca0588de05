package forward

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"

	"functionbridge/internal/router"
)

// maxErrorBytes bounds what is read of a reply that is not 2xx: far more than
// a detail, and little enough to be thrown away.
const maxErrorBytes = 64 << 10

// reply is what a service answered, as far as it is of use: its body without
// content coding, and no longer than its limit.
type reply struct {
	status int
	header http.Header
	media  media
	body   []byte
	// oversize: there was more than limit; size is the whole, -1 if not known.
	oversize bool
	limit    int64
	size     int64
	// undecodable: the content coding could not be undone.
	undecodable bool
}

func (r *reply) ok() bool { return r.status >= 200 && r.status < 300 }

// family says how a reply of a media type is passed on.
type family int

const (
	binary family = iota
	text
	html
	image
	// untyped replies are text when they are valid UTF-8.
	untyped
)

// media is a reply's media type, in lower case and without parameters.
type media struct {
	name    string
	charset string
	family  family
}

// mediaOf reads a Content-Type. One that cannot be read whole counts up to its
// parameters.
func mediaOf(contentType string) media {
	switch contentType {
	case "application/json", "application/json; charset=utf-8":
		return media{name: "application/json", family: text}
	case "":
		return media{family: untyped}
	}
	name, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		name, _, _ = strings.Cut(contentType, ";")
		name = strings.ToLower(strings.TrimSpace(name))
	}
	return media{name: name, charset: parameters["charset"], family: familyOf(name)}
}

func familyOf(name string) family {
	switch name {
	case "text/html", "application/xhtml+xml":
		return html
	case "image/png", "image/jpeg", "image/gif", "image/webp":
		return image
	case "application/json", "application/xml", "application/yaml", "application/x-yaml",
		"application/x-ndjson", "application/jsonl", "application/json-seq",
		"application/x-www-form-urlencoded", "multipart/form-data":
		return text
	case "":
		return untyped
	}
	for _, suffix := range []string{"+json", "+xml", "+yaml"} {
		if strings.HasSuffix(name, suffix) {
			return text
		}
	}
	if strings.HasPrefix(name, "text/") {
		return text
	}
	return binary
}

// limitOf is how many bytes of a reply are read at most.
func limitOf(status int, m media, result router.Result) int64 {
	switch {
	case status < 200 || status > 299:
		return maxErrorBytes
	case m.family == image:
		return result.MaxImageBytes
	}
	return result.MaxBytes
}

// read takes a reply's body into buf. The error is the network's, and means
// that the reply did not come whole.
func (r *reply) read(response *http.Response, buf []byte) ([]byte, error) {
	codings := response.Header["Content-Encoding"]
	if len(codings) == 0 {
		r.size = response.ContentLength
		return r.take(response.Body, buf)
	}
	raw := &source{body: response.Body}
	body, err := decoded(codings, raw)
	if err != nil {
		return buf, r.damaged(raw)
	}
	if buf, err = r.take(body, buf); err != nil {
		return buf, r.damaged(raw)
	}
	return buf, nil
}

// take takes the body as it is to be passed on.
func (r *reply) take(body io.Reader, buf []byte) ([]byte, error) {
	buf, err := fill(buf, body, r.limit+1)
	r.body = buf
	if err == nil && int64(len(buf)) > r.limit {
		r.oversize, r.body = true, buf[:r.limit]
	}
	return buf, err
}

// damaged tells a broken connection, which it returns, from a stream that came
// whole and cannot be decoded.
func (r *reply) damaged(raw *source) error {
	if raw.err != nil && !errors.Is(raw.err, io.EOF) {
		return raw.err
	}
	r.undecodable = true
	return nil
}

// fill appends to buf what comes from r, up to limit bytes in all. The end of
// the reader is no error.
func fill(buf []byte, r io.Reader, limit int64) ([]byte, error) {
	for int64(len(buf)) < limit {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		room := min(int64(cap(buf)), limit)
		n, err := r.Read(buf[len(buf):room])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
	return buf, nil
}

// isText reports whether the reply can be read as text, HTML left out.
func (r *reply) isText() bool {
	switch r.media.family {
	case text:
		return true
	case untyped:
		return utf8.Valid(r.body)
	case html, binary, image:
	}
	return false
}

// text returns the body in UTF-8, unchanged where it is UTF-8 already: decoded
// by its charset, without a byte order mark, every byte that is no character
// replaced by U+FFFD. A character that the limit cut is left out.
func (r *reply) text() string {
	body := r.body
	if e := encodingOf(r.media.charset); e != nil {
		if out, err := e.NewDecoder().Bytes(body); err == nil {
			body = out
		}
		if r.oversize {
			body = bytes.TrimSuffix(body, []byte("\uFFFD"))
		}
	} else if r.oversize {
		body = whole(body)
	}
	s := strings.TrimPrefix(string(body), "\uFEFF")
	if utf8.ValidString(s) {
		return s
	}
	return replaceInvalid(s)
}

// replaceInvalid replaces each invalid byte by U+FFFD.
func replaceInvalid(s string) string {
	var b strings.Builder
	b.Grow(len(s) + len(s)/8)
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}

// encodingOf returns the encoding of a charset label, nil for UTF-8 and for
// labels that name nothing we can read; these are tried as UTF-8.
func encodingOf(label string) encoding.Encoding {
	if label == "" || strings.EqualFold(label, "utf-8") {
		return nil
	}
	if strings.EqualFold(label, "utf-16") {
		return unicode.UTF16(unicode.LittleEndian, unicode.UseBOM) // browsers ignore a mark of the other order
	}
	e, name := charset.Lookup(label)
	if e == nil || name == "utf-8" || name == "replacement" {
		return nil
	}
	return e
}

// whole leaves out a character that was cut at the end.
func whole(body []byte) []byte {
	for i := 1; i <= utf8.UTFMax && i <= len(body); i++ {
		if c := body[len(body)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(body[len(body)-i:]) {
				return body[:len(body)-i]
			}
			return body
		}
	}
	return body
}
