package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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
		log, end := newServeLogger(&out, slog.LevelInfo, "")
		for range 10 {
			log.With("session_id", "s").Info("call forwarded")
		}
		synctest.Wait()
		if n := out.lines(); n != 0 {
			t.Errorf("%d lines were written at once", n)
		}
		pass(logDelay)
		if len(out.writes) != 1 || out.lines() != 10 {
			t.Errorf("10 lines came in %d writes of %d lines", len(out.writes), out.lines())
		}
		log.Info("call forwarded")
		log.WithGroup("g").Warn("stream ended")
		synctest.Wait()
		if n := out.lines(); n != 12 {
			t.Errorf("%d lines stand after a warning, want 12", n)
		}
		log.Info("bridge stopped")
		end()
		if n := out.lines(); n != 13 {
			t.Errorf("%d lines stand after the end, want 13", n)
		}
	})
}

func TestManyLinesDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out sink
		log, end := newServeLogger(&out, slog.LevelInfo, "")
		log.Info("call forwarded", "reason", strings.Repeat("x", logBatch))
		synctest.Wait()
		if n := out.lines(); n != 1 {
			t.Errorf("%d lines stand, want 1", n)
		}
		end()
	})
}

// A pipe that nobody reads blocks who writes to it.
func TestLogThatNobodyReadsHoldsNothingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		log, end := newServeLogger(writer, slog.LevelInfo, "")
		began := time.Now()
		const lines = 3_000
		for range lines {
			log.Warn("call forwarded", "reason", strings.Repeat("x", 1000))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the log held its writers up for %s", took)
		}
		read := make(chan string)
		go func() {
			text, _ := io.ReadAll(reader)
			read <- string(text)
		}()
		pass(time.Second)
		end()
		_ = writer.Close()
		text := <-read
		kept := strings.Count(text, `"msg":"call forwarded"`)
		dropped := 0
		for _, told := range strings.Split(text, `"msg":"log lines were dropped, because nobody read them","lines":`)[1:] {
			var n int
			if _, err := fmt.Sscanf(told, "%d", &n); err != nil {
				t.Error(err)
			}
			dropped += n
		}
		if kept+dropped != lines || kept == 0 || dropped == 0 {
			t.Errorf("%d lines are kept and %d told to be dropped, want %d together", kept, dropped, lines)
		}
	})
}

func TestLogThatIsNeverReadDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reader, writer := io.Pipe()
		log, end := newServeLogger(writer, slog.LevelInfo, "")
		log.Warn("call forwarded")
		began := time.Now()
		end()
		if took := time.Since(began); took != logPatience {
			t.Errorf("the end took %s, want %s", took, logPatience)
		}
		_ = reader.Close()
	})
}
