package forward

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"functionbridge/internal/router"
)

// message is a request as it leaves, as often as it is needed; nobody changes it.
type message struct {
	wire router.Wire
	// request is without headers, body and context, which every copy is given:
	// http.Client would copy the headers each time.
	request *http.Request
	header  http.Header
	// key is the Idempotency-Key, empty for none.
	key string
	// credential is the password of the URL as a header holds it, for a service
	// that repeats what it was sent.
	credential string
}

// errAddress stands for url.Parse's error, which holds the URL.
var errAddress = errors.New("the request's URL cannot be parsed")

// pack makes a message of a request, with this table's secrets and the bridge's
// headers; without a key it carries no Idempotency-Key.
func (d *delivery) pack(request router.Request, key string) (message, error) {
	wire, err := d.table.Wire(request)
	if err != nil {
		return message{}, err
	}
	target, err := url.Parse(wire.URL)
	if err != nil {
		return message{}, errAddress
	}
	var own [ownHeaderCount]router.Header
	m := message{wire: wire, key: headerSafe(key), header: headerOf(ownHeaders(own[:0], d.f.version, key, d.call, wire.Body != nil), wire.Headers)}
	m.authorize(target)
	m.request = &http.Request{
		Method: wire.Method, URL: target, Host: wire.Host, Header: http.Header{},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	return m, nil
}

// authorize moves user and password of the URL to the header.
func (m *message) authorize(target *url.URL) {
	user := target.User
	if target.User = nil; user == nil || m.header["Authorization"] != nil {
		return
	}
	password, _ := user.Password()
	basic := http.Request{Header: m.header}
	basic.SetBasicAuth(user.Username(), password)
	m.credential = strings.TrimPrefix(m.header.Get("Authorization"), "Basic ")
}

// outgoing returns the copy of the request that goes to the transport. It has
// a body that nothing can rewind, also where it is empty: with GetBody, with
// http.NoBody and without a body net/http sends a request with an
// Idempotency-Key again by itself when a reused connection breaks. The body's
// type is one that net/http knows to be in memory: it writes others apart from
// the headers, in a packet of their own.
func (m *message) outgoing(ctx context.Context, target *url.URL, header http.Header) *http.Request {
	out := m.request.WithContext(ctx)
	out.URL = target
	out.Header = header
	out.Body = io.NopCloser(bytes.NewReader(m.wire.Body))
	out.ContentLength = int64(len(m.wire.Body))
	return out
}
