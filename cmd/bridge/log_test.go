package main

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// sink notes each write.
type sink struct {
	mu     sync.Mutex
	writes []string
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, string(p))
	return len(p), nil
}

func (s *sink) lines() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(strings.Join(s.writes, ""), "\n")
}

func TestLinesOfRoutineAreGatheredAndTroubleIsNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out sink
		log, flush := newServeLogger(&out, slog.LevelInfo, "")
		for range 10 {
			log.With("session_id", "s").Info("call forwarded")
		}
		if n := out.lines(); n != 0 {
			t.Errorf("%d lines were written at once", n)
		}
		pass(logDelay)
		if len(out.writes) != 1 || out.lines() != 10 {
			t.Errorf("10 lines came in %d writes of %d lines", len(out.writes), out.lines())
		}
		log.Info("call forwarded")
		log.WithGroup("g").Warn("stream ended")
		if n := out.lines(); n != 12 {
			t.Errorf("%d lines stand after a warning, want 12", n)
		}
		log.Info("bridge stopped")
		flush()
		if n := out.lines(); n != 13 {
			t.Errorf("%d lines stand after the end, want 13", n)
		}
	})
}

func TestManyLinesDoNotWait(t *testing.T) {
	t.Parallel()
	var out sink
	log, _ := newServeLogger(&out, slog.LevelInfo, "")
	log.Info("call forwarded", "reason", strings.Repeat("x", logRoom))
	if n := out.lines(); n != 1 {
		t.Errorf("%d lines stand, want 1", n)
	}
}
