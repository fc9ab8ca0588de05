package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"functionbridge/internal/journal"
)

// BenchmarkTurn reads a turn that has no calls yet, as at each turn's first
// call, between writes of others.
func BenchmarkTurn(b *testing.B) {
	s, err := Open(b.Context(), filepath.Join(b.TempDir(), "bridge.db"), Options{Owner: "bench", FlushDelay: 10 * time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	call := journal.Call{Function: "f", State: journal.Confirmed, CreatedAt: time.Now()}
	for i := 0; b.Loop(); i++ {
		call.Key = journal.Key{SessionID: fmt.Sprintf("sess_%032d", i%64), TurnID: fmt.Sprintf("turn_%032d", i), CallID: "call_1"}
		if calls, err := s.Turn(b.Context(), call.SessionID, call.TurnID); err != nil || len(calls) > 0 {
			b.Fatal(calls, err)
		}
		if err := s.Save(b.Context(), call, journal.Lazy); err != nil {
			b.Fatal(err)
		}
	}
}
