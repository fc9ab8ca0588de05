package forward

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"functionbridge/internal/router"
)

// What tells a service who asks is made anew for each attempt, so that secrets
// that have changed meanwhile count, and a signature is of its time. No message
// holds any of it.

var errNoSecret = errors.New("there is no secret to show")

// seal returns the headers of one attempt at a message: its own, that of the
// upstream's auth, and its signature.
func (d *delivery) seal(m *message) (http.Header, error) {
	s := d.upstream.service
	if s == nil || s.Auth.Kind == router.AuthNone && !s.Sign.IsSet() {
		return m.header, nil
	}
	header := maps.Clone(m.header)
	if name := s.Auth.Header(); name != "" && !m.sets(name) {
		value, err := d.credential(s.Auth)
		if err != nil {
			return nil, err
		}
		header[http.CanonicalHeaderKey(name)] = []string{value}
	}
	if !s.Sign.IsSet() {
		return header, nil
	}
	keys, err := s.Sign.Keys()
	d.upstream.noticed(&d.upstream.signNotice, err)
	id := m.key
	if id == "" {
		id = questionID()
	}
	return header, sign(header, keys, id, time.Now(), m.body)
}

// sets reports whether the table gives the message this header, which then
// takes the place of the upstream's auth.
func (m *message) sets(name string) bool {
	for _, h := range m.fromTable {
		if strings.EqualFold(h.Name, name) {
			return true
		}
	}
	return false
}

// credential is the value of the header that an auth sets.
func (d *delivery) credential(a router.Auth) (string, error) {
	switch a.Kind {
	case router.AuthBearer:
		text, err := d.reveal(a.Bearer)
		return "Bearer " + text, err
	case router.AuthBasic:
		password, err := d.reveal(a.Password)
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(revealed(a.Username)+":"+password)), err
	case router.AuthHeader:
		return d.reveal(a.HeaderValue)
	case router.AuthOAuth2:
		d.token = d.upstream.tokens.newest(d.token)
		return "Bearer " + d.token.value, nil
	case router.AuthNone:
	}
	return "", errNoSecret
}

// shownAuth is what seal adds to the headers of a request, without secrets. A
// header of the table takes its place.
func (d *delivery) shownAuth() []router.Header {
	s := d.upstream.service
	if s == nil {
		return nil
	}
	var headers []router.Header
	switch s.Auth.Kind {
	case router.AuthBearer, router.AuthOAuth2:
		headers = append(headers, router.Header{Name: "Authorization", Value: "Bearer " + redacted})
	case router.AuthBasic:
		headers = append(headers, router.Header{Name: "Authorization", Value: "Basic " + redacted})
	case router.AuthHeader:
		headers = append(headers, router.Header{Name: s.Auth.HeaderName, Value: redacted})
	case router.AuthNone:
	}
	if s.Sign.IsSet() {
		headers = append(headers,
			router.Header{Name: signedID, Value: headerSafe(d.key)},
			router.Header{Name: signedTime, Value: strconv.FormatInt(time.Now().Unix(), 10)},
			router.Header{Name: signatures, Value: redacted})
	}
	return headers
}

// reveal reads a secret. What its file held before counts while the file cannot
// be used.
func (d *delivery) reveal(s router.Secret) (string, error) {
	text, err := s.Reveal()
	d.upstream.noticed(&d.upstream.authNotice, err)
	if text != "" {
		return text, nil
	}
	return "", err
}

// needsToken reports whether a message is sent with an access token.
func (d *delivery) needsToken(m *message) bool {
	return d.upstream.tokens != nil && !m.sets("Authorization")
}

// awaitToken waits for the token of the next attempt at a message, before
// anything that others wait for is taken. Without a token it returns what
// became of the attempt.
func (d *delivery) awaitToken(ctx context.Context, m *message) *attempt {
	if !d.needsToken(m) {
		return nil
	}
	a := &attempt{started: time.Now()}
	var err error
	if d.token, err = d.upstream.tokens.get(ctx, m.request.URL.Hostname(), d.spent); err == nil {
		return nil
	}
	a.took = time.Since(a.started)
	a.fault, a.why = faultNoToken, "no access token: "+ended(ctx, "timeout")
	if e, ok := errors.AsType[*tokenError](err); ok {
		a.why, a.waitSeconds = "no access token: "+e.why, e.waitSeconds
		if e.permanent {
			a.fault = faultTokenRefused
		}
	}
	return a
}

// withoutToken is an attempt that ended before anything could leave, since
// there was no token for it.
func (d *delivery) withoutToken(ctx context.Context, a *attempt) *attempt {
	if errors.Is(ctx.Err(), context.Canceled) {
		return d.unsent(a.fault)
	}
	d.attempts++
	d.pass++
	d.judge(a)
	d.report(ctx, a)
	return a
}

// spendsToken reports whether an attempt was refused for its token, and may be
// made again with a new one: once in a call.
func (d *delivery) spendsToken(m *message, a *attempt) bool {
	if a.status() != http.StatusUnauthorized || d.spent != nil || !d.needsToken(m) {
		return false
	}
	d.spent = d.token
	return true
}
