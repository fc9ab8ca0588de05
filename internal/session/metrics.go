package session

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	results    *prometheus.CounterVec
	confirmed  prometheus.Counter // of results; every call counts here, and looking it up costs ten times the counting
	sessions   *prometheus.GaugeVec
	byState    map[string]prometheus.Gauge // of sessions
	reconnects *prometheus.CounterVec
	events     prometheus.Counter
	troubles   *prometheus.CounterVec
	drift      *prometheus.CounterVec
}

// The outcomes of a result, and why a stream is opened again.
const (
	resultConfirmed = "confirmed"
	resultAbandoned = "abandoned"
	resultRejected  = "rejected"
	resultRetried   = "retried"

	reasonEOF         = "eof"
	reasonIdle        = "idle"
	reasonError       = "error"
	reasonStatus      = "status"
	reasonContentType = "content_type"

	troubleError     = "error_event"
	troubleMalformed = "malformed"
	troubleTooLong   = "too_long"
	troubleUnknown   = "unknown_type"
	troubleEmpty     = "empty"

	driftMissing = "no_route"
	driftChanged = "changed"
)

// sessionStates are the values of the state label: the API's own words, and
// unknown until a session was read.
func sessionStates() []string {
	return []string{"idle", "in_progress", "requires_action", sessionFailed, statusUnknown}
}

const statusUnknown = "unknown"

// state is the gauge of a status. What the bridge does not know as one stays out
// of the metrics.
func (m *metrics) state(status string) prometheus.Gauge {
	if gauge, ok := m.byState[status]; ok {
		return gauge
	}
	return m.byState[statusUnknown]
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_results_total", Help: "Results by what became of them.",
		}, []string{"outcome"}),
		sessions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "bridge_sessions", Help: "Followed sessions by the status that the API gives them.",
		}, []string{"state"}),
		reconnects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_stream_reconnects_total", Help: "Event streams opened again, by reason.",
		}, []string{"reason"}),
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "bridge_stream_events_total", Help: "Events received on all streams.",
		}),
		troubles: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_stream_troubles_total", Help: "Events that led to a read of the session because they say too little, by reason.",
		}, []string{"reason"}),
	}
	m.drift = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "bridge_tool_drift_total", Help: "Functions of followed agents that differ from the route table, counted once a session.",
	}, []string{"kind"})
	for _, kind := range []string{driftMissing, driftChanged} {
		m.drift.WithLabelValues(kind)
	}
	for _, outcome := range []string{resultConfirmed, resultAbandoned, resultRejected, resultRetried} {
		m.results.WithLabelValues(outcome)
	}
	m.confirmed = m.results.WithLabelValues(resultConfirmed)
	m.byState = map[string]prometheus.Gauge{}
	for _, reason := range []string{reasonEOF, reasonIdle, reasonError, reasonStatus, reasonContentType} {
		m.reconnects.WithLabelValues(reason)
	}
	for _, reason := range []string{troubleError, troubleMalformed, troubleTooLong, troubleUnknown, troubleEmpty} {
		m.troubles.WithLabelValues(reason)
	}
	for _, state := range sessionStates() {
		m.byState[state] = m.sessions.WithLabelValues(state)
	}
	if reg != nil {
		reg.MustRegister(m.results, m.sessions, m.reconnects, m.events, m.troubles, m.drift)
	}
	return m
}
