package forward

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync"
	"sync/atomic"

	"functionbridge/internal/router"
)

// upstreams keeps what lasts for the upstreams of a table: their connections
// and their tokens. A reload keeps what stayed the same.
type upstreams struct {
	// build makes the transport of a pool.
	build   func(*tls.Config) carrier
	inForce func() *router.Table
	agent   string
	log     *slog.Logger
	// secrets replaces what must not be logged.
	secrets func() *redactor
	// issued is another number whenever tokensHeld lists others.
	issued atomic.Uint64
	// plain is for routes with a url of their own.
	plain *upstream

	// working ends the fetches of tokens, which fetches counts.
	working context.Context
	stop    context.CancelFunc
	fetches sync.WaitGroup

	current atomic.Pointer[generation]
	mu      sync.Mutex
	pools   []*pool
}

// generation is the upstreams of one table.
type generation struct {
	table     *router.Table
	byService map[*router.Service]*upstream
	byName    map[string]*upstream
}

// upstream is what lasts for one of them.
type upstream struct {
	all *upstreams
	// service is nil for routes with a url of their own.
	service *router.Service
	// line leads to the service, tokenLine to its token endpoint where that
	// needs another.
	line, tokenLine atomic.Pointer[line]
	// tokens is nil without oauth2.
	tokens *tokens

	authNotice, signNotice, tlsNotice notice
}

func newUpstreams(c Config, build func(*tls.Config) carrier, secrets func() *redactor) *upstreams {
	u := &upstreams{build: build, inForce: c.Table, agent: agentOf(c.Version), log: c.Logger, secrets: secrets}
	u.working, u.stop = context.WithCancel(context.Background())
	u.plain = &upstream{all: u}
	u.plain.line.Store(&line{pool: u.poolOf(nil)})
	u.current.Store(&generation{})
	return u
}

// of returns the upstream of a table's service; of none, the one that all
// routes without share.
func (u *upstreams) of(table *router.Table, service *router.Service) *upstream {
	g := u.current.Load()
	if g.table != table {
		g = u.renew(table)
	}
	if service == nil {
		return u.plain
	}
	if up := g.byService[service]; up != nil {
		return up
	}
	// The call began just before a reload.
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.make(service, g)
}

// renew makes the upstreams of a table, unless it is in force no longer, and
// closes what only the one before used.
func (u *upstreams) renew(table *router.Table) *generation {
	u.mu.Lock()
	defer u.mu.Unlock()
	last := u.current.Load()
	if last.table == table || u.inForce() != table {
		return last
	}
	g := &generation{table: table, byService: map[*router.Service]*upstream{}, byName: map[string]*upstream{}}
	for _, route := range table.Routes() {
		if s := route.Service; s != nil && g.byService[s] == nil {
			up := u.make(s, last)
			g.byService[s], g.byName[s.Name] = up, up
		}
	}
	u.current.Store(g)
	u.issued.Add(1)
	u.sweep()
	return g
}

// make makes an upstream, with the token of the one that had its name before.
func (u *upstreams) make(service *router.Service, last *generation) *upstream {
	up := &upstream{all: u, service: service}
	config, err := service.TLS.Config()
	up.noticed(&up.tlsNotice, err)
	up.line.Store(&line{config: config, pool: u.poolOf(config)})
	if service.Auth.Kind == router.AuthOAuth2 {
		up.tokens = &tokens{up: up}
		if before := last.byName[service.Name]; before != nil && before.tokens != nil {
			up.tokens.adopt(before.tokens)
		}
	}
	return up
}

// tokensHeld lists the tokens that services may repeat.
func (u *upstreams) tokensHeld() []string {
	var held []string
	for _, up := range u.current.Load().byService {
		if up.tokens != nil {
			held = append(held, up.tokens.lately()...)
		}
	}
	return held
}

// close ends the fetches and closes idle connections.
func (u *upstreams) close() {
	u.stop()
	u.fetches.Wait()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range u.pools {
		p.transport.CloseIdleConnections()
	}
}

// notice is a trouble that may last: it is told when it comes, when it changes
// and when it ends, not each time it is met.
type notice struct{ told atomic.Pointer[string] }

// changed reports whether there is something to tell.
func (n *notice) changed(err error) bool {
	told := n.told.Load()
	if err == nil {
		return told != nil && n.told.CompareAndSwap(told, nil)
	}
	words := err.Error()
	if told != nil && *told == words {
		return false
	}
	return n.told.CompareAndSwap(told, &words)
}

// noticed logs a trouble with the files of the upstream.
func (up *upstream) noticed(n *notice, err error) {
	if !n.changed(err) {
		return
	}
	log, ctx := up.all.log, up.all.working
	if err == nil {
		log.InfoContext(ctx, "files of an upstream can be used again", "upstream", up.service.Name)
		return
	}
	log.ErrorContext(ctx, "files of an upstream cannot be used, what they held before stays in force",
		"upstream", up.service.Name, "error", err)
}
