package forward

import (
	"math/rand/v2"
	"net/http"
	"time"
)

// fault says what kept an attempt from a whole reply.
type fault int

const (
	faultNone fault = iota
	// faultNotAdmitted: the deadline came while the call waited for its turn.
	faultNotAdmitted
	// faultNotRecorded: the journal did not take the row that must stand before
	// a request leaves.
	faultNotRecorded
	// faultRecordedLate: the row stood, but only after the deadline.
	faultRecordedLate
	// faultNoSecret: what is shown to the service cannot be read.
	faultNoSecret
	// faultNoToken: the service's token endpoint gave no access token.
	faultNoToken
	// faultTokenRefused: it will not give one.
	faultTokenRefused
	// faultNoConnection: refused, no such host, or the handshake broke off.
	faultNoConnection
	// faultConnectTimeout: no connection in time.
	faultConnectTimeout
	// faultUntrusted: the service's certificate was refused.
	faultUntrusted
	// faultNotWelcome: the service refused the TLS handshake, for the bridge's
	// certificate, say.
	faultNotWelcome
	// faultNotTLS: what answered the handshake speaks no TLS that we speak.
	faultNotTLS
	// faultUnsent: the connection broke before a byte of the request was
	// written, or the service said that it did not look at the request.
	faultUnsent
	// faultBroken: the connection broke after the first byte, before a reply.
	faultBroken
	// faultTimeout: no whole reply in time after the first byte.
	faultTimeout
	// faultCut: the reply began and did not end.
	faultCut
)

// fate says what follows from an attempt.
type fate struct {
	// again: the request may be sent once more.
	again bool
	// unprocessed: the service certainly did not process the request.
	unprocessed bool
	// unknown: nobody can say whether it did, and it must not be sent again.
	unknown bool
}

// question is what decides about an attempt's fate.
type question struct {
	status int
	fault  fault
	// retryAfter: the reply says, readably, when to come again.
	retryAfter bool
	idempotent bool
	// on503 is the route's retry.on_503.
	on503 bool
}

// decide answers: may this request be sent again?
func decide(q question) fate {
	if q.fault != faultNone {
		return q.afterFault()
	}
	switch q.status {
	case http.StatusTooEarly, http.StatusTooManyRequests:
		return fate{again: true, unprocessed: true}
	case http.StatusServiceUnavailable:
		return q.afterUnavailable()
	case http.StatusInternalServerError:
		// A whole reply of the service itself: a failure, not an unknown outcome.
		return fate{again: q.idempotent}
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusGatewayTimeout:
		return q.maybeProcessed()
	}
	return fate{}
}

func (q question) afterFault() fate {
	switch q.fault {
	case faultUntrusted, faultNotWelcome, faultNotTLS, faultNotAdmitted, faultNotRecorded, faultRecordedLate, faultNoSecret, faultTokenRefused:
		return fate{unprocessed: true}
	case faultNone, faultBroken, faultTimeout, faultCut:
		return q.maybeProcessed()
	case faultNoConnection, faultConnectTimeout, faultUnsent, faultNoToken:
		return fate{again: true, unprocessed: true}
	}
	return q.maybeProcessed()
}

// afterUnavailable tells a service that asks for patience from a proxy that
// lost its connection after the request went out.
func (q question) afterUnavailable() fate {
	f := q.maybeProcessed()
	if q.retryAfter {
		f = fate{again: true, unprocessed: true}
	}
	f.again = f.again && q.on503
	return f
}

func (q question) maybeProcessed() fate {
	return fate{again: q.idempotent, unknown: !q.idempotent}
}

// backoff is the pause after the n-th failed attempt (from 0): somewhere
// between the least pause and one that doubles each time, up to the greatest.
func backoff(least, most time.Duration, n int) time.Duration {
	least = max(least, 0)
	ceiling := least
	for range n + 1 {
		if ceiling >= most-ceiling {
			ceiling = most
			break
		}
		ceiling *= 2
	}
	if ceiling <= least {
		return least
	}
	return least + rand.N(ceiling-least+1) //nolint:gosec // jitter, not a secret
}
