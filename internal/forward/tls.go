package forward

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
)

// pool is the connections of all upstreams whose TLS is set up in one way.
type pool struct {
	// config is nil where the table says nothing of TLS.
	config    *tls.Config
	transport carrier
}

// line leads from an upstream to the pool that it uses, by the config that its
// files gave when they were last looked at.
type line struct {
	config *tls.Config
	pool   *pool
}

// connections returns the transport to the service. When the files of its TLS
// changed it is another one, and the connections of the one before end with the
// requests that they carry.
func (up *upstream) connections() carrier {
	return up.along(&up.line, func(config *tls.Config) *tls.Config { return config })
}

// tokenConnections returns the transport to the token endpoint. A server_name
// belongs to the service's host, and counts where the endpoint has the same.
func (up *upstream) tokenConnections(serviceHost, tokenHost string) carrier {
	if strings.EqualFold(serviceHost, tokenHost) {
		return up.connections()
	}
	return up.along(&up.tokenLine, withoutServerName)
}

func withoutServerName(config *tls.Config) *tls.Config {
	if config == nil || config.ServerName == "" {
		return config
	}
	config = config.Clone()
	config.ServerName = ""
	return config
}

// along returns the transport at the end of a line. adapt makes what the line
// needs of the upstream's config.
func (up *upstream) along(l *atomic.Pointer[line], adapt func(*tls.Config) *tls.Config) carrier {
	now := l.Load()
	if up.service == nil {
		return now.pool.transport
	}
	config, err := up.service.TLS.Config()
	up.noticed(&up.tlsNotice, err)
	if now == nil || now.config != config {
		now = up.all.lay(l, config, adapt(config))
	}
	return now.pool.transport
}

// lay makes a line lead to the pool of a config.
func (u *upstreams) lay(l *atomic.Pointer[line], config, adapted *tls.Config) *line {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := l.Load(); now != nil && now.config == config {
		return now
	}
	now := &line{config: config, pool: u.poolOf(adapted)}
	l.Store(now)
	u.sweep()
	return now
}

// poolOf returns the pool of a config, made the first time. u.mu is held.
func (u *upstreams) poolOf(config *tls.Config) *pool {
	for _, p := range u.pools {
		if sameTLS(p.config, config) {
			return p
		}
	}
	p := &pool{config: config, transport: u.build(config)}
	u.pools = append(u.pools, p)
	return p
}

// sweep drops the pools that no upstream of the table in force leads to, and
// closes their idle connections; others close when their requests have ended
// and idleTimeout is over. u.mu is held.
func (u *upstreams) sweep() {
	used := map[*pool]bool{u.plain.line.Load().pool: true}
	for _, up := range u.current.Load().byService {
		for _, l := range []*line{up.line.Load(), up.tokenLine.Load()} {
			if l != nil {
				used[l.pool] = true
			}
		}
	}
	u.pools = slices.DeleteFunc(u.pools, func(p *pool) bool {
		if !used[p] {
			p.transport.CloseIdleConnections()
		}
		return !used[p]
	})
}

// sameTLS reports whether connections made with a and b are alike. The key of a
// certificate is the same where the certificate is.
func sameTLS(a, b *tls.Config) bool {
	none := &tls.Config{}
	a, b = cmp.Or(a, none), cmp.Or(b, none)
	return a.ServerName == b.ServerName && a.RootCAs.Equal(b.RootCAs) &&
		slices.EqualFunc(a.Certificates, b.Certificates, func(a, b tls.Certificate) bool {
			return slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
		})
}

// handshakeAlert is why the other side refused the TLS handshake, empty when it
// did not: it wants a certificate, say. In TLS 1.3 that may be heard when our
// side of the handshake has ended and a request was written; the other side has
// read none of it.
func handshakeAlert(err error) string {
	e, ok := errors.AsType[*net.OpError](err)
	if !ok || e.Op != "remote error" {
		return ""
	}
	// RFC 8446, section 6.2, has the numbers, which the library keeps to itself.
	for _, alert := range []tls.AlertError{
		40,                     // handshake failure
		42, 43, 44, 45, 46, 48, // the certificate
		49,     // access denied
		70, 71, // version, security
		112, // server name
		116, // certificate required
	} {
		if text := alert.Error(); e.Err.Error() == text {
			return strings.TrimPrefix(text, "tls: ")
		}
	}
	return ""
}
