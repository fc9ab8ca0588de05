package forward

import (
	"log/slog"
	"testing"

	"functionbridge/internal/router"
)

// BenchmarkTurn is what the limits add to a request that need not wait.
func BenchmarkTurn(b *testing.B) {
	const yaml = `
version: 1
upstreams:
  free: { url: "http://free.test" }
  bound: { url: "http://bound.test", max_concurrent: 8, rate_limit: 999999999/s, circuit_breaker: { failures: 3 } }
routes:
  plain: "http://plain.test"
  shared: { upstream: free, path: /x }
  bound: { upstream: bound, path: /x, max_concurrent: 4, rate_limit: 999999999/s, circuit_breaker: { failures: 3 } }
`
	table, err := router.Parse("routes.yaml", []byte(yaml), router.Env{})
	if err != nil {
		b.Fatal(err)
	}
	l := newLimits(256, func() *router.Table { return table }, slog.New(slog.DiscardHandler))
	for _, name := range []string{"plain", "shared", "bound"} {
		b.Run(name, func(b *testing.B) {
			route, _ := table.Lookup(name)
			b.ReportAllocs()
			for b.Loop() {
				t, err := l.enter(b.Context(), route, "sess_1")
				if err != nil {
					b.Fatal(err)
				}
				l.judge(&t, nil)
				l.leave(&t)
			}
		})
	}
}
