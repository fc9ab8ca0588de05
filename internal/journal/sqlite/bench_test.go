package sqlite

import (
	"bytes"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"functionbridge/internal/journal"
)

// BenchmarkSave reports what one row costs in transactions of so many, with
// arguments and outputs of 300 bytes: the time and the CPU time of the process.
func BenchmarkSave(b *testing.B) {
	for _, rows := range []int{1, 20, 200, 1000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) { benchmarkSave(b, rows) })
	}
}

func benchmarkSave(b *testing.B, rows int) {
	b.Helper()
	s, err := Open(b.Context(), filepath.Join(b.TempDir(), "bridge.db"), Options{Owner: "bench", FlushDelay: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	call := journal.Call{
		Function:  "get_weather",
		Arguments: bytes.Repeat([]byte("a"), 300),
		State:     journal.Confirmed,
		Outcome:   journal.Success(string(bytes.Repeat([]byte("o"), 300))),
		CreatedAt: time.Now(), AnsweredAt: time.Now(), SubmittedAt: time.Now(), ConfirmedAt: time.Now(),
		Attempts: []journal.Attempt{{StartedAt: time.Now(), Duration: time.Millisecond, Status: 200}},
	}
	b.ReportAllocs()
	before := cpu(b)
	for i := 0; b.Loop(); i++ {
		call.Key = journal.Key{
			SessionID: fmt.Sprintf("sess_%032d", i%64), TurnID: fmt.Sprintf("turn_%032d", i/640), CallID: fmt.Sprintf("call_%032d", i),
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

// cpu is the CPU time of this process so far.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
