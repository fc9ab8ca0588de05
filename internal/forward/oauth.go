package forward

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"functionbridge/internal/router"
)

const (
	// fetchTimeout bounds one fetch of a token, for all calls that wait for it.
	fetchTimeout = 10 * time.Second
	// fetchPause is between two fetches when the first failed, or was made because
	// a token was refused: an endpoint in trouble is not to be overrun.
	fetchPause = time.Second
	// renewBefore is how long before its end a token is renewed, behind the calls
	// that go on using it, and dropBefore when it is used no more: clocks differ,
	// and a request takes its time. A short life has them shortened.
	renewBefore = time.Minute
	dropBefore  = 5 * time.Second
	// maxHeldTokens is how many tokens of an upstream are remembered: calls that
	// are under way carry earlier ones.
	maxHeldTokens = 4
	// maxTokenDetail bounds what the log repeats of an endpoint, in bytes.
	maxTokenDetail = 300
)

// tokens gets the access tokens of one upstream: one fetch at a time, for all
// calls that wait for it.
type tokens struct {
	up *upstream

	mu    sync.Mutex
	token *token
	// fetch is the one under way, nil for none.
	fetch *fetch
	// notBefore is when the next one may begin.
	notBefore time.Time
	// held are the last tokens, the newest last.
	held []string
	// style is how the endpoint wants the client's credentials, once that is known.
	style oauth2.AuthStyle
}

// token is an access token. It is renewed from renewAt on and used no more from
// over on; both are zero when its endpoint did not say how long it lasts.
type token struct {
	value         string
	renewAt, over time.Time
}

func (t *token) good(now time.Time) bool { return t.over.IsZero() || now.Before(t.over) }
func (t *token) due(now time.Time) bool  { return !t.renewAt.IsZero() && !now.Before(t.renewAt) }

// fetch is one try to get a token. What it came to is set when done is closed.
type fetch struct {
	done  chan struct{}
	token *token
	style oauth2.AuthStyle
	err   error
}

// tokenError is why there is no token, in words without address and secret.
type tokenError struct {
	why string
	// detail is for the log alone.
	detail string
	// status is what the endpoint answered, 0 without an answer.
	status int
	// permanent: asking again is of no use until somebody changes something.
	permanent bool
	// waitSeconds is what the endpoint's Retry-After asks for.
	waitSeconds int64
}

func (e *tokenError) Error() string { return e.why }

// adopt takes over what the upstream of an earlier table has, if it asks for
// the same tokens.
func (s *tokens) adopt(before *tokens) {
	a, b := s.up.service.Auth.OAuth2, before.up.service.Auth.OAuth2
	if revealed(a.TokenURL) != revealed(b.TokenURL) || revealed(a.ClientID) != revealed(b.ClientID) || !slices.Equal(a.Scopes, b.Scopes) {
		return
	}
	before.mu.Lock()
	defer before.mu.Unlock()
	s.token, s.style, s.notBefore, s.held = before.token, before.style, before.notBefore, slices.Clone(before.held)
}

// revealed is the text of a secret that stands in the table itself.
func revealed(s router.Secret) string {
	text, _ := s.Reveal()
	return text
}

// get returns a token that is good and not the refused one, and waits for it
// until ctx ends. host is that of the service. The error is a *tokenError or
// that of ctx.
func (s *tokens) get(ctx context.Context, host string, refused *token) (*token, error) {
	now := time.Now()
	s.mu.Lock()
	t := s.token
	usable := t != nil && t != refused && t.good(now)
	if usable && !t.due(now) {
		s.mu.Unlock()
		return t, nil
	}
	f := s.fetching(host, now, refused != nil && t == refused)
	s.mu.Unlock()
	if usable {
		return t, nil
	}
	select {
	case <-f.done:
		return f.token, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newest returns the last token, or the one that is given when the last is over.
func (s *tokens) newest(given *token) *token {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token != nil && s.token.good(time.Now()) {
		return s.token
	}
	return given
}

// lately lists the last tokens.
func (s *tokens) lately() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.held)
}

// fetching returns the fetch under way and begins one where there is none;
// refused says that it is for a token in the place of the last. s.mu is held.
func (s *tokens) fetching(host string, now time.Time, refused bool) *fetch {
	if s.fetch != nil {
		return s.fetch
	}
	f := &fetch{done: make(chan struct{}), style: s.style}
	s.fetch = f
	all, pause := s.up.all, s.notBefore.Sub(now)
	all.fetches.Go(func() {
		if sleep(all.working, pause) {
			s.ask(all.working, host, f)
		} else {
			f.err = &tokenError{why: "the bridge was stopped"}
		}
		s.end(f, refused)
	})
	return f
}

// end keeps what a fetch came to, and lets those go on that wait for it.
func (s *tokens) end(f *fetch, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetch, s.notBefore = nil, time.Time{}
	if f.err != nil || refused {
		s.notBefore = time.Now().Add(fetchPause)
	}
	if f.err == nil {
		s.token, s.style = f.token, f.style
		s.held = append(s.held, f.token.value)
		s.held = s.held[max(0, len(s.held)-maxHeldTokens):]
		s.up.all.issued.Add(1)
	}
	close(f.done)
}

// ask asks the endpoint for a token and logs what came of it. A panic is an
// error: nobody else would catch it.
func (s *tokens) ask(ctx context.Context, host string, f *fetch) {
	defer func() {
		if p := recover(); p != nil {
			f.err = &tokenError{why: "the bridge failed", detail: fmt.Sprint(p)}
		}
		s.tell(ctx, f)
	}()
	auth := s.up.service.Auth.OAuth2
	secret, err := auth.ClientSecret.Reveal()
	s.up.noticed(&s.up.authNotice, err)
	config := clientcredentials.Config{
		ClientID: revealed(auth.ClientID), ClientSecret: secret,
		TokenURL: revealed(auth.TokenURL), Scopes: auth.Scopes, AuthStyle: f.style,
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	if f.style == oauth2.AuthStyleAutoDetect {
		config.AuthStyle = oauth2.AuthStyleInHeader
	}
	f.token, f.err = s.exchange(ctx, host, &config)
	if f.style == oauth2.AuthStyleAutoDetect && wantsOtherStyle(f.err) {
		config.AuthStyle = oauth2.AuthStyleInParams
		first := f.err
		if f.token, f.err = s.exchange(ctx, host, &config); f.err != nil {
			f.err = first
		}
	}
	f.style = config.AuthStyle
}

// wantsOtherStyle reports whether an endpoint may want the client's credentials
// in the body and not, as RFC 6749 has it, in the header.
func wantsOtherStyle(err error) bool {
	e, ok := errors.AsType[*tokenError](err)
	return ok && (e.status == http.StatusBadRequest || e.status == http.StatusUnauthorized || e.status == http.StatusForbidden)
}

// exchange makes one request to the endpoint.
func (s *tokens) exchange(ctx context.Context, host string, config *clientcredentials.Config) (*token, error) {
	target, err := url.Parse(config.TokenURL)
	if err != nil {
		return nil, &tokenError{why: "its URL cannot be parsed", permanent: true}
	}
	trip := &tokenTrip{transport: s.up.tokenConnections(host, target.Hostname()), agent: s.up.all.agent}
	client := &http.Client{
		Transport: trip,
		// Nobody else is given the client's credentials.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	began := time.Now()
	issued, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
	if err != nil {
		return nil, s.failure(ctx, trip, err)
	}
	return newToken(issued, began)
}

// newToken takes what the endpoint issued for a request that began then.
func newToken(issued *oauth2.Token, began time.Time) (*token, error) {
	value := issued.AccessToken
	if strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, &tokenError{why: "its token holds characters that no header can carry"}
	}
	t := &token{value: value}
	if issued.Expiry.IsZero() {
		// The library takes 0, and what it cannot count, for no word on it.
		if lasts, err := strconv.ParseFloat(fmt.Sprint(issued.Extra("expires_in")), 64); err == nil && lasts <= 0 {
			return nil, errOver()
		}
		return t, nil
	}
	life := issued.Expiry.Sub(began)
	if life <= 0 || !issued.Expiry.After(time.Now()) {
		return nil, errOver()
	}
	t.renewAt = began.Add(life - min(life/4, renewBefore))
	t.over = began.Add(life - min(life/10, dropBefore))
	return t, nil
}

func errOver() error { return &tokenError{why: "its token was over when it was issued"} }

// failure names what went wrong. The library's error holds the reply.
func (s *tokens) failure(ctx context.Context, trip *tokenTrip, err error) error {
	if trip.fault != faultNone {
		return &tokenError{why: trip.why, permanent: trip.fault == faultUntrusted || trip.fault == faultNotWelcome || trip.fault == faultNotTLS}
	}
	e, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case ok:
		return s.refusal(e)
	case ctx.Err() != nil:
		return &tokenError{why: "timeout in its reply"}
	}
	return &tokenError{why: "its reply holds no token"}
}

// refusal names what the endpoint answered.
func (s *tokens) refusal(e *oauth2.RetrieveError) *tokenError {
	status := e.Response.StatusCode
	refused := &tokenError{why: "it answered " + strconv.Itoa(status), status: status}
	if e.ErrorCode != "" {
		text := s.up.all.secrets().text(e.ErrorCode + " " + e.ErrorDescription)
		refused.detail = clean(text, maxTokenDetail)
	}
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
	default:
		refused.permanent = status < http.StatusInternalServerError
	}
	refused.waitSeconds, _ = retryAfter(e.Response.Header, time.Now())
	return refused
}

// tell logs what a fetch came to.
func (s *tokens) tell(ctx context.Context, f *fetch) {
	log, name := s.up.all.log, s.up.service.Name
	if f.err == nil {
		var lasts time.Duration // 0 when the endpoint did not say
		if !f.token.over.IsZero() {
			lasts = time.Until(f.token.over)
		}
		log.InfoContext(ctx, "access token fetched", "upstream", name, "good_for_ms", lasts.Milliseconds())
		return
	}
	detail := ""
	if e, ok := errors.AsType[*tokenError](f.err); ok {
		detail = e.detail
	}
	log.WarnContext(ctx, "access token not fetched", "upstream", name, "reason", f.err.Error(), "detail", detail)
}

// tokenTrip carries the requests to a token endpoint, and keeps why one was not
// answered.
type tokenTrip struct {
	transport http.RoundTripper
	agent     string
	fault     fault
	why       string
}

// RoundTrip sends a request of the library.
func (t *tokenTrip) RoundTrip(req *http.Request) (*http.Response, error) {
	var w watch
	out := req.Clone(w.observe(req.Context(), req.URL.Scheme == "https"))
	out.Header.Set("Accept", "application/json")
	out.Header.Set("User-Agent", t.agent)
	response, err := t.transport.RoundTrip(out)
	if err != nil {
		t.fault, t.why = faultOf(req.Context(), &w, err)
	}
	return response, err
}
