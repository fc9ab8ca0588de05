package forward

import (
	"github.com/prometheus/client_golang/prometheus"
)

// limitsCollector reads what the limits of the table in force hold back. So a
// series exists from the start and goes with its route.
type limitsCollector struct {
	limits        *limits
	waiting, open *prometheus.Desc
}

func newLimitsCollector(l *limits) *limitsCollector {
	return &limitsCollector{
		limits: l,
		waiting: prometheus.NewDesc("bridge_calls_waiting",
			"Calls that wait for their turn under the limits of their route, its upstream or all calls.",
			[]string{"function"}, nil),
		open: prometheus.NewDesc("bridge_circuit_open",
			"1 while the circuit breaker of a function or an upstream lets no calls through, probes excepted.",
			[]string{"function", "upstream"}, nil),
	}
}

// Describe is of prometheus.Collector.
func (c *limitsCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.waiting
	to <- c.open
}

// Collect is of prometheus.Collector.
func (c *limitsCollector) Collect(to chan<- prometheus.Metric) {
	for _, r := range c.limits.readings() {
		if r.function != "" {
			to <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(r.waiting), r.function)
		}
		if r.breaks {
			open := 0.0
			if r.open {
				open = 1
			}
			to <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, open, r.function, r.upstream)
		}
	}
}

// reading is what a gate shows: that of a route or of an upstream.
type reading struct {
	function, upstream string
	waiting            int
	// breaks: it has a circuit breaker.
	breaks, open bool
}

// readings reads the gates of the table in force.
func (l *limits) readings() []reading {
	l.mu.Lock()
	defer l.unlock()
	l.follow()
	var all []reading
	seen := make(map[*gate]bool)
	for _, p := range l.current {
		for _, g := range p.gates[:min(len(p.gates)-1, breakers)] {
			if seen[g] {
				continue
			}
			seen[g] = true
			all = append(all, reading{
				function: g.function, upstream: g.upstream, waiting: g.waiting,
				breaks: g.breaker != nil, open: g.breaker != nil && !g.breaker.closed(),
			})
		}
	}
	return all
}
