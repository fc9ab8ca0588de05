package router

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Service is an upstream as far as its routes share it. All routes of an upstream
// have the same one. It is read-only after loading.
type Service struct {
	// Name is that of the upstream.
	Name string
	Auth Auth
	TLS  TLS
	Sign Sign
	// Limits hold for the requests of all its routes together.
	Limits Limits
}

// AuthKind is how a service knows who asks.
type AuthKind string

// The kinds of auth.
const (
	AuthNone   AuthKind = ""
	AuthBearer AuthKind = "bearer"
	AuthBasic  AuthKind = "basic"
	AuthHeader AuthKind = "header"
	AuthOAuth2 AuthKind = "oauth2"
)

// Auth is what a service is told of who asks. Kind says which of the fields are
// set. A header of the route with the name that Header returns takes its place.
// Printed, it is its kind alone.
type Auth struct {
	Kind AuthKind

	// Bearer is sent as "Authorization: Bearer …".
	Bearer Secret
	// Username and Password are sent as basic authentication. Username holds no
	// colon; one of the two may be empty.
	Username, Password Secret
	// HeaderName and HeaderValue are a header of the service's own.
	HeaderName  string
	HeaderValue Secret
	OAuth2      OAuth2

	// shown is the setting with its values masked, by key.
	shown map[string]string
}

// OAuth2 is what a token is asked for with: the client credentials grant.
type OAuth2 struct {
	// TokenURL is a good http or https URL without user and password.
	TokenURL               Secret
	ClientID, ClientSecret Secret
	Scopes                 []string
}

// Header is the name of the header that the auth sets, empty for AuthNone.
func (a Auth) Header() string {
	switch a.Kind {
	case AuthNone:
		return ""
	case AuthHeader:
		return a.HeaderName
	case AuthBearer, AuthBasic, AuthOAuth2:
	}
	return "Authorization"
}

// Format writes the kind and nothing else.
func (a Auth) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, string(a.Kind)) }

// MarshalText is the kind and nothing else.
func (a Auth) MarshalText() ([]byte, error) { return []byte(a.Kind), nil }

// Sign is what requests to a service are signed with (Standard Webhooks). The zero
// Sign does not sign.
type Sign struct{ secrets []Secret }

// IsSet says that requests are signed.
func (s Sign) IsSet() bool { return len(s.secrets) > 0 }

// Keys are the HMAC keys as they are now, one or two: a signature of each is sent.
// Errors are those of Secret.Reveal, and the keys are good to use unless there are
// none.
func (s Sign) Keys() ([][]byte, error) {
	var keys [][]byte
	var failed error
	for _, secret := range s.secrets {
		text, err := secret.Reveal()
		failed = errors.Join(failed, err)
		for word := range strings.FieldsSeq(text) {
			if key, problem := signingKey(word); problem == "" {
				keys = append(keys, key)
			}
		}
	}
	return keys, failed
}

const (
	signingPrefix = "whsec_"
	// minSigningKey is in bytes: Standard Webhooks asks for it.
	minSigningKey = 24
	// maxSigningKeys are the old and the new one while they change.
	maxSigningKeys = 2
)

// signingKey decodes a secret of Standard Webhooks; problem says why that cannot
// be done, or is empty.
func signingKey(text string) (key []byte, problem string) {
	encoded, found := strings.CutPrefix(text, signingPrefix)
	if !found {
		return nil, "must begin with " + signingPrefix
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	switch {
	case err != nil || strings.ContainsAny(encoded, "\r\n"): // which the decoder skips
		return nil, "must be base64, with its padding, after " + signingPrefix
	case len(key) < minSigningKey:
		return nil, "must hold at least " + strconv.Itoa(minSigningKey) + " bytes, which are 32 characters of base64"
	}
	return key, ""
}

// Limits are what a service, or a route, can take. Those of a route and of its
// service both hold.
type Limits struct {
	// MaxConcurrent bounds the requests at once; 0 is no bound.
	MaxConcurrent int
	// MaxQueue bounds the calls that wait for the other limits: 1000 unless the
	// table says otherwise; 0 lets none wait.
	MaxQueue int
	Rate     Rate
	Breaker  Breaker
}

// Rate bounds the requests in a time; zero is no bound.
type Rate struct {
	// Events is per second.
	Events float64
	// Burst is how many may go at once after a pause: a tenth of what may go in the
	// second, minute or hour that the table names, and at least one.
	Burst int

	text string
}

// String is the rate as the table has it, such as 100/s.
func (r Rate) String() string { return r.text }

// Breaker stops requests for a time when too many have failed; zero never does.
type Breaker struct {
	// Failures is how many in a row open it: of the kinds unavailable,
	// upstream_error and timeout.
	Failures int
	OpenFor  time.Duration
}
