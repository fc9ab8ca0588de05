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

// BenchmarkTurns asks for the turns of a session, as each session that is
// followed does once, when it has no calls yet and when it has thousands.
func BenchmarkTurns(b *testing.B) {
	for _, n := range []int{0, 100, 4096} {
		b.Run(fmt.Sprintf("calls=%d", n), func(b *testing.B) {
			s, err := Open(b.Context(), filepath.Join(b.TempDir(), "bridge.db"), Options{Owner: "bench"})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = s.Close() })
			call := journal.Call{Function: "f", State: journal.Confirmed, CreatedAt: time.Now()}
			for i := range n {
				call.Key = journal.Key{SessionID: "sess_1", TurnID: fmt.Sprintf("turn_%032d", i), CallID: "call_1"}
				if err := s.Save(b.Context(), call, journal.Lazy); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if ids, all, err := s.Turns(b.Context(), "sess_1", 4096); err != nil || !all || len(ids) != n {
					b.Fatal(len(ids), all, err)
				}
			}
		})
	}
}
