package admin

import (
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"functionbridge/internal/journal"
)

// JournalCounts are the numbers that the journal keeps ready for a scrape; its
// methods must not wait for the disk.
type JournalCounts interface {
	// Counts returns how many calls are in each state; every state is a key.
	Counts() map[journal.State]int64
	// OldestUnanswered is when the oldest call that waits for its outcome was
	// created; zero when none does.
	OldestUnanswered() time.Time
}

// Build says which program this is.
type Build struct{ Version, Commit string }

// RegisterMetrics registers the metrics of the journal's content, of the build,
// and of the process. It panics when the registry has them already.
func RegisterMetrics(reg prometheus.Registerer, counts JournalCounts, b Build) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "bridge_build_info", Help: "Always 1; the labels say which program this is.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "goversion": runtime.Version()},
	})
	info.Set(1)
	register(reg, info, newJournalCollector(counts),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

func register(reg prometheus.Registerer, all ...prometheus.Collector) {
	if reg != nil {
		reg.MustRegister(all...)
	}
}

// journalCollector reads the journal's numbers when it is scraped.
type journalCollector struct {
	journal       JournalCounts
	calls, oldest *prometheus.Desc
}

func newJournalCollector(counts JournalCounts) journalCollector {
	return journalCollector{
		journal: counts,
		calls:   prometheus.NewDesc("bridge_journal_calls", "Calls in the journal by state.", []string{"state"}, nil),
		oldest: prometheus.NewDesc("bridge_oldest_unanswered_seconds",
			"Age of the oldest call that waits for its outcome; 0 when none does.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c journalCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.calls
	out <- c.oldest
}

// Collect implements prometheus.Collector.
func (c journalCollector) Collect(out chan<- prometheus.Metric) {
	counts := c.journal.Counts()
	for _, state := range journal.States() {
		out <- prometheus.MustNewConstMetric(c.calls, prometheus.GaugeValue, float64(counts[state]), string(state))
	}
	age := 0.0
	if oldest := c.journal.OldestUnanswered(); !oldest.IsZero() {
		age = max(0, time.Since(oldest).Seconds())
	}
	out <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, age)
}

// Metrics answers a scrape. A metric that cannot be collected is logged, and
// the others are served.
func Metrics(g prometheus.Gatherer, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelError),
		ErrorHandling: promhttp.ContinueOnError,
	})
}
