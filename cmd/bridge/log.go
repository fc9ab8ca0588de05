package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
)

// newLogger builds the logger that is injected everywhere: JSON lines, or text
// where the format says so or, by default, on a terminal.
func newLogger(out io.Writer, level slog.Level, format string) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	f, isFile := out.(*os.File)
	if format == "text" || (format == "" && isFile && isatty.IsTerminal(f.Fd())) {
		return slog.New(slog.NewTextHandler(out, options))
	}
	return slog.New(slog.NewJSONHandler(out, options))
}

const (
	// logDelay is how long a line of routine may wait for others: under load a
	// call's line would else cost as much as sending a request.
	logDelay = 100 * time.Millisecond
	// logRoom bounds what is gathered.
	logRoom = 64 << 10
)

// logBuffer gathers log lines into larger writes. What it holds is lost when the
// process is killed, so warnings and errors are not kept waiting: see promptly.
type logBuffer struct {
	out io.Writer

	mu    sync.Mutex
	lines []byte
	timer *time.Timer
}

func newLogBuffer(out io.Writer) *logBuffer {
	b := &logBuffer{out: out, lines: make([]byte, 0, logRoom)}
	b.timer = time.AfterFunc(time.Hour, b.flush)
	b.timer.Stop()
	return b
}

// Write implements io.Writer; it takes whole lines, as slog's handlers write them.
func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.lines) == 0 {
		b.timer.Reset(logDelay)
	}
	b.lines = append(b.lines, line...)
	if len(b.lines) >= logRoom {
		b.write()
	}
	return len(line), nil
}

func (b *logBuffer) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.write()
}

// write hands the lines over. A log that cannot be written stops nothing, and
// there is nowhere to say so. The lock is held.
func (b *logBuffer) write() {
	b.timer.Stop()
	if len(b.lines) > 0 {
		_, _ = b.out.Write(b.lines)
		b.lines = b.lines[:0]
	}
}

// promptly flushes the buffer behind a handler after every warning and error.
type promptly struct {
	slog.Handler

	buffer *logBuffer
}

// Handle implements slog.Handler.
func (h promptly) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		h.buffer.flush()
	}
	return err
}

// WithAttrs implements slog.Handler.
func (h promptly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return promptly{h.Handler.WithAttrs(attrs), h.buffer}
}

// WithGroup implements slog.Handler.
func (h promptly) WithGroup(name string) slog.Handler {
	return promptly{h.Handler.WithGroup(name), h.buffer}
}

// newServeLogger is newLogger for the daemon, whose routine lines are many; the
// last of them are written by flush. On a terminal nothing waits.
func newServeLogger(out io.Writer, level slog.Level, format string) (log *slog.Logger, flush func()) {
	if f, ok := out.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		return newLogger(out, level, format), func() {}
	}
	buffer := newLogBuffer(out)
	return slog.New(promptly{newLogger(buffer, level, format).Handler(), buffer}), buffer.flush
}
