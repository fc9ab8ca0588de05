package sqlite

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"functionbridge/internal/journal"
)

// BenchmarkSaveTwice writes each call once when it is running and once when it
// is confirmed, in transactions of so many.
func BenchmarkSaveTwice(b *testing.B) {
	const rows = 200
	s, err := Open(b.Context(), filepath.Join(b.TempDir(), "bridge.db"), Options{Owner: "bench", FlushDelay: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	call := journal.Call{Function: "get_weather", Arguments: bytes.Repeat([]byte("a"), 300), CreatedAt: time.Now()}
	b.ReportAllocs()
	before := cpu(b)
	for i := 0; b.Loop(); i++ {
		call.State, call.Outcome, call.Rev = journal.Running, journal.Outcome{}, 1
		if i/rows%2 == 1 {
			call.State, call.Outcome, call.Rev = journal.Confirmed, journal.Success(string(bytes.Repeat([]byte("o"), 300))), 2
			call.AnsweredAt, call.SubmittedAt, call.ConfirmedAt = time.Now(), time.Now(), time.Now()
		}
		n := i/(2*rows)*rows + i%rows
		call.Key = journal.Key{
			SessionID: fmt.Sprintf("sess_%032d", n%64), TurnID: fmt.Sprintf("turn_%032d", n/640), CallID: fmt.Sprintf("call_%032d", n),
		}
		d := journal.Lazy
		if i%rows == rows-1 {
			d = journal.Durable
		}
		if err := s.Save(b.Context(), call, d); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-µs/op")
}
