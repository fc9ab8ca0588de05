package sqlite

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"functionbridge/internal/journal"
)

// BenchmarkSaveDurable writes rows that are waited for, as calls of routes that are not idempotent do, from so many
// callers at once: they share transactions and syncs. Put TMPDIR on a real disk for it.
func BenchmarkSaveDurable(b *testing.B) {
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { benchmarkSaveDurable(b, callers) })
	}
}

func benchmarkSaveDurable(b *testing.B, callers int) {
	b.Helper()
	s, err := Open(b.Context(), filepath.Join(b.TempDir(), "bridge.db"), Options{Owner: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu(b)
	var next atomic.Int64
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			call := journal.Call{
				Function: "get_weather", Arguments: bytes.Repeat([]byte("a"), 300), State: journal.Running, CreatedAt: time.Now(), SentAt: time.Now(),
			}
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				call.Key = journal.Key{
					SessionID: fmt.Sprintf("sess_%032d", caller), TurnID: fmt.Sprintf("turn_%032d", i/25), CallID: fmt.Sprintf("call_%032d", i),
				}
				if err := s.Save(b.Context(), call, journal.Durable); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}
