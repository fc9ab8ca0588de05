package admin

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Reloads remembers what became of the loads of the route table, the first one
// included. Whoever swaps the table tells it.
type Reloads struct {
	loads *prometheus.CounterVec
	last  prometheus.Gauge

	mu        sync.Mutex
	loadedAt  time.Time
	lastError string
}

// NewReloads registers the metrics of the loads.
func NewReloads(reg prometheus.Registerer) *Reloads {
	r := &Reloads{
		loads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "bridge_routes_reloads_total", Help: "Loads of the route table, the first one included, by outcome.",
		}, []string{"outcome"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "bridge_routes_last_reload_timestamp_seconds",
			Help: "When the route table in force was loaded, as Unix time.",
		}),
	}
	r.loads.WithLabelValues("success")
	r.loads.WithLabelValues("failure")
	register(reg, r.loads, r.last)
	return r
}

// Succeeded says that a table came into force at the time.
func (r *Reloads) Succeeded(at time.Time) {
	r.loads.WithLabelValues("success").Inc()
	r.last.Set(float64(at.UnixMilli()) / 1000)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loadedAt, r.lastError = at, ""
}

// Failed says why a table was refused and the one before stays in force. The
// text is shown to operators and must hold no secret.
func (r *Reloads) Failed(err error) {
	r.loads.WithLabelValues("failure").Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastError = err.Error()
}

// Status returns when the table in force was loaded, and why the last load
// failed, empty when it did not.
func (r *Reloads) Status() (loadedAt time.Time, lastError string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loadedAt, r.lastError
}
