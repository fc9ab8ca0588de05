package forward

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"time"

	"functionbridge/internal/exchange"
)

const (
	// dialTimeout leaves time for another attempt within the usual 30 s.
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	// idleTimeout is a little below the 5 s after which common servers close an
	// idle connection: a request that meets the close would leave a
	// non-idempotent call with an unknown outcome.
	idleTimeout = 4 * time.Second
	// pingAfter is how long an HTTP/2 connection may be silent under a request
	// before it is asked whether it lives, and pingTimeout how long it has to
	// answer.
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
	// maxHeaderBytes bounds a reply's headers.
	maxHeaderBytes = 256 << 10
)

// Dial makes a network connection, as net.Dialer.DialContext does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Transport changes how services are reached; the zero value is the network
// and the system's certificate authorities.
type Transport struct {
	Dial    Dial
	RootCAs *x509.CertPool
}

// carrier makes exchanges and keeps the connections of a pool.
type carrier interface {
	http.RoundTripper
	CloseIdleConnections()
}

func newCarrier(t Transport, maxCalls int, proxy func(*http.Request) (*url.URL, error), config *tls.Config) carrier {
	transport := newTransport(t, maxCalls, proxy, config)
	if t.Dial != nil {
		return transport
	}
	return exchange.NewDirect(transport)
}

// newTransport builds the transport of a pool. It never repeats a request by
// itself, because attempts carry bodies that cannot be rewound, and it neither
// follows redirects nor decodes replies.
func newTransport(t Transport, maxCalls int, proxy func(*http.Request) (*url.URL, error), config *tls.Config) *http.Transport {
	dial := t.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext
	}
	return &http.Transport{
		Proxy:                  proxy,
		OnProxyConnectResponse: connected,
		DialContext:            watched(dial),
		TLSClientConfig:        clientTLS(t, config),
		TLSHandshakeTimeout:    handshakeTimeout,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxCalls,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// clientTLS is what an upstream's config, nil for none, means with t.
func clientTLS(t Transport, config *tls.Config) *tls.Config {
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config = config.Clone()
	if config.RootCAs == nil {
		config.RootCAs = t.RootCAs
	}
	return config
}
