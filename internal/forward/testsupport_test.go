package forward_test

import (
	dto "github.com/prometheus/client_model/go"

	"github.com/prometheus/client_golang/prometheus"
)

// nonZero leaves the counters that are still 0 out.
type nonZero struct{ prometheus.Gatherer }

func (g nonZero) Gather() ([]*dto.MetricFamily, error) {
	families, err := g.Gatherer.Gather()
	for _, f := range families {
		var kept []*dto.Metric
		for _, m := range f.GetMetric() {
			if m.GetCounter() == nil || m.GetCounter().GetValue() != 0 {
				kept = append(kept, m)
			}
		}
		f.Metric = kept
	}
	return families, err
}
