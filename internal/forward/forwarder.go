// Package forward is the upstream side of the bridge: it turns one function
// call into HTTP requests to the service that its route names, and what comes
// back into the outcome that the agent is told. It keeps nothing and posts
// nothing; the caller journals what the Recorder is told, and the outcome.
package forward

import (
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// defaultMaxCalls stands for a Config without MaxCalls.
const defaultMaxCalls = 256

// Config is what a Forwarder needs. Table and Logger are required.
type Config struct {
	// MaxCalls is how many upstream requests there are at once, all routes
	// together; one route gets at most half. 0 is 256.
	MaxCalls int
	// Version stands in the User-Agent.
	Version string
	// Table returns the table in force; each call keeps the one it began with.
	Table      func() *router.Table
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Transport  Transport
}

// Forwarder sends calls to their services. It is safe for concurrent use.
type Forwarder struct {
	agent      string
	table      func() *router.Table
	log        *slog.Logger
	limits     *limits
	metrics    *metrics
	upstreams  *upstreams
	proxies    proxies
	buffers    buffers
	deliveries deliveries

	lanes    lanes
	unknown  *lane
	redactor atomic.Pointer[tableRedactor]
}

type tableRedactor struct {
	table *router.Table
	// files and tokens are the versions of the table's secrets and of the tokens.
	files, tokens uint64
	redactor
}

// New returns a Forwarder; Close it in the end. It panics when the registry
// has these metrics already.
func New(c Config) *Forwarder {
	if c.MaxCalls <= 0 {
		c.MaxCalls = defaultMaxCalls
	}
	f := &Forwarder{
		agent:   agentOf(c.Version),
		table:   c.Table,
		log:     c.Logger,
		limits:  newLimits(c.MaxCalls, c.Table, c.Logger),
		metrics: newMetrics(c.Registerer),
		proxies: newProxies(),
	}
	f.upstreams = newUpstreams(c,
		func(config *tls.Config) carrier {
			return newCarrier(c.Transport, c.MaxCalls, f.proxies.ofRequest, config)
		},
		func() *redactor { return f.redactorOf(c.Table()) })
	if c.Registerer != nil {
		mustRegister(c.Registerer, newLimitsCollector(f.limits))
	}
	f.lanes.make = func(function string) *lane { return newLane(function, f.metrics) }
	f.unknown = f.lanes.make(unknownFunction)
	return f
}

// Close closes the idle connections and ends the renewal of tokens; calls must
// have ended.
func (f *Forwarder) Close() { f.upstreams.close() }

// TakeUpLimits takes the limits of the table in force now; otherwise they hold
// from the next beginning or end of a request on.
func (f *Forwarder) TakeUpLimits() { f.limits.takeUp() }

// Plan says how a call of a function is to be handled, before it is journaled.
func (f *Forwarder) Plan(function string) journal.Plan {
	table := f.table()
	route, ok := table.Lookup(function)
	if !ok {
		return journal.Plan{Ignore: table.IgnoreUnknown()}
	}
	return journal.Plan{Idempotent: route.Idempotent, Async: route.Async}
}

// Forward runs one call and returns what the agent is to be told.
//
// A call that is journal.Running was sent by an earlier process and its outcome
// is not known: an idempotent one is sent again, another one is asked about
// where its route has recover. A call with a Request sends that one instead of
// building it.
//
// The error says that the call was stopped before there was an outcome: it is
// the cause of the end of ctx, on which Forward returns soon, or what
// rec.Sending returned. A call that may have left is then still running, and
// who takes it up asks again. A panic is no error: it becomes the outcome
// "internal", or "unknown_outcome" where a non-idempotent request may have left.
func (f *Forwarder) Forward(ctx context.Context, call journal.Call, s journal.Session, rec journal.Recorder) (journal.Outcome, error) {
	d := f.deliveries.get()
	d.f, d.call, d.session, d.rec, d.key = f, call, s, rec, call.CallKey()
	outcome, err := d.run(ctx)
	f.deliveries.put(d)
	return outcome, err
}

// redactorOf returns the redactor of a table's secrets and of the tokens, made
// again when there are others.
func (f *Forwarder) redactorOf(table *router.Table) *redactor {
	files, tokens := table.SecretsVersion(), f.upstreams.issued.Load()
	if r := f.redactor.Load(); r != nil && r.table == table && r.files == files && r.tokens == tokens {
		return &r.redactor
	}
	secrets := slices.Concat(table.Secrets(), f.upstreams.tokensHeld(), f.proxies.secrets)
	r := &tableRedactor{table: table, files: files, tokens: tokens, redactor: *newRedactor(secrets)}
	f.redactor.Store(r)
	return &r.redactor
}

// buffers lends buffers for replies.
type buffers struct{ pool sync.Pool }

const (
	firstBuffer   = 4 << 10
	largestBuffer = 256 << 10
)

func (b *buffers) get() *[]byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return buf
	}
	buf := make([]byte, 0, firstBuffer)
	return &buf
}

// put takes a buffer back, unless it has grown so large that keeping it would
// cost more than making one.
func (b *buffers) put(buf *[]byte) {
	if cap(*buf) <= largestBuffer {
		b.pool.Put(buf)
	}
}

// deliveries lends what Forward works in: a quarter of a call's memory, and a
// tenth of its time without the network. Nothing that goes to the transport or
// to a goroutine may point into a delivery.
type deliveries struct{ pool sync.Pool }

func (l *deliveries) get() *delivery {
	if d, ok := l.pool.Get().(*delivery); ok {
		return d
	}
	return &delivery{}
}

// put takes a delivery back, with nothing of its call in it.
func (l *deliveries) put(d *delivery) {
	*d = delivery{}
	l.pool.Put(d)
}

// plainDuration shows a duration as "30 s" or "250 ms".
func plainDuration(d time.Duration) string {
	if d < time.Second || d%time.Second != 0 {
		return formatInt(d.Milliseconds()) + " ms"
	}
	return formatInt(int64(d/time.Second)) + " s"
}
