package forward

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"functionbridge/internal/journal"
)

// unknownFunction is the label of all names without a route: a model chooses
// names freely, and a series is for ever.
const unknownFunction = "_unknown"

type metrics struct {
	calls    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
	attempts *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_calls_total",
			Help: "Calls whose outcome became known, by function and outcome.",
		}, []string{"function", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "bridge_call_duration_seconds",
			Help:    "Time from the start of a call to its outcome, attempts and waits included.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"function"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bridge_calls_in_flight",
			Help: "Upstream requests under way.",
		}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_upstream_attempts_total",
			Help: "Finished upstream requests, by function and HTTP status (or error, timeout); recover_… for questions about a lost one.",
		}, []string{"function", "code"}),
	}
	if reg != nil {
		for _, c := range []prometheus.Collector{m.calls, m.duration, m.inFlight, m.attempts} {
			mustRegister(reg, c)
		}
	}
	return m
}

// mustRegister panics on two forwarders with one registry, a mistake of the
// program.
func mustRegister(reg prometheus.Registerer, c prometheus.Collector) {
	if err := reg.Register(c); err != nil {
		panic("forward: " + err.Error())
	}
}

// lanes holds a lane for every function that had a route when it was called.
type lanes struct {
	make   func(function string) *lane
	mu     sync.RWMutex
	byName map[string]*lane
}

// of returns a function's lane and makes it the first time; only for functions
// with a route.
func (l *lanes) of(function string) *lane {
	l.mu.RLock()
	found := l.byName[function]
	l.mu.RUnlock()
	if found != nil {
		return found
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if found = l.byName[function]; found != nil {
		return found
	}
	if l.byName == nil {
		l.byName = make(map[string]*lane)
	}
	found = l.make(function)
	l.byName[function] = found
	return found
}

// lane is what lasts for a function over all tables: its series. form is that of
// the route which it had last.
type lane struct {
	form atomic.Pointer[form]

	outcomes map[string]prometheus.Counter
	duration prometheus.Observer

	function string
	attempts *prometheus.CounterVec
	mu       sync.RWMutex
	codes    map[string]prometheus.Counter
}

// newLane creates the series of a function, every outcome included, so that a
// rate over them starts at zero.
func newLane(function string, m *metrics) *lane {
	l := &lane{
		outcomes: make(map[string]prometheus.Counter),
		duration: m.duration.WithLabelValues(function),
		function: function,
		attempts: m.attempts,
		codes:    make(map[string]prometheus.Counter),
	}
	for _, label := range labels() {
		l.outcomes[label] = m.calls.WithLabelValues(function, label)
	}
	return l
}

// finished counts a call.
func (l *lane) finished(o journal.Outcome, took time.Duration) {
	if c := l.outcomes[o.Label()]; c != nil {
		c.Inc()
	}
	l.duration.Observe(took.Seconds())
}

// attempted counts a request under a code.
func (l *lane) attempted(code string) {
	l.mu.RLock()
	c := l.codes[code]
	l.mu.RUnlock()
	if c == nil {
		c = l.attempts.WithLabelValues(l.function, code)
		l.mu.Lock()
		l.codes[code] = c
		l.mu.Unlock()
	}
	c.Inc()
}

// code is the attempt's label in the metrics.
func (a *attempt) code() string {
	switch status := a.status(); {
	case a.fault == faultTimeout || a.fault == faultConnectTimeout:
		return "timeout"
	case status == http.StatusOK:
		return "200"
	case status != 0:
		return strconv.Itoa(status)
	}
	return "error"
}

// labels are the values of the label outcome.
func labels() []string {
	all := []string{journal.Success("").Label()}
	for _, kind := range journal.Kinds() {
		all = append(all, string(kind))
	}
	return all
}
