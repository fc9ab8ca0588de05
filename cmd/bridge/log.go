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
	// logBatch is enough to be written early, and logRoom all that is kept while
	// nobody reads the log.
	logBatch = 64 << 10
	logRoom  = 1 << 20
	// logPatience bounds how long the last lines hold up a stop.
	logPatience = time.Second
)

// logBuffer gathers log lines into larger writes, made by a goroutine of its own:
// a log that nobody reads must not hold up a call. What finds no room is dropped
// and counted. What the buffer holds is lost when the process is killed, so
// warnings and errors are not kept waiting: see promptly.
type logBuffer struct {
	out io.Writer
	// some is sent to when the buffer is not empty any more, soon when it is to
	// be written now; stop ends the goroutine, which closes done.
	some, soon, stop, done chan struct{}
	// told gets the number of dropped lines once there is room again.
	told func(lines int)

	mu      sync.Mutex
	lines   []byte
	spare   []byte
	dropped int
}

func newLogBuffer(out io.Writer) *logBuffer {
	return &logBuffer{
		out: out, some: make(chan struct{}, 1), soon: make(chan struct{}, 1),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
}

// Write implements io.Writer; it takes whole lines, as slog's handlers write them.
func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.lines)+len(line) > logRoom {
		b.dropped++
		return len(line), nil
	}
	if len(b.lines) == 0 {
		signalled(b.some)
	}
	b.lines = append(b.lines, line...)
	if len(b.lines) >= logBatch {
		signalled(b.soon)
	}
	return len(line), nil
}

func signalled(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run writes until close.
func (b *logBuffer) run() {
	defer close(b.done)
	timer := time.NewTimer(logDelay)
	defer timer.Stop()
	for {
		select {
		case <-b.some:
		case <-b.stop:
			b.write()
			return
		}
		timer.Reset(logDelay)
		select {
		case <-timer.C:
		case <-b.soon:
		case <-b.stop:
		}
		b.write()
	}
}

// write hands the lines over. A log that cannot be written stops nothing, and
// there is nowhere to say so.
func (b *logBuffer) write() {
	b.mu.Lock()
	lines, dropped := b.lines, b.dropped
	b.lines, b.dropped = b.spare[:0], 0
	b.mu.Unlock()
	if dropped > 0 {
		b.told(dropped) // now that there is room for a line
	}
	if len(lines) > 0 {
		_, _ = b.out.Write(lines)
	}
	b.mu.Lock()
	b.spare = lines
	b.mu.Unlock()
}

// close writes what is left, for a while.
func (b *logBuffer) close() {
	close(b.stop)
	timer := time.NewTimer(logPatience)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-timer.C:
	}
}

// promptly has the buffer behind a handler written after every warning and error.
type promptly struct {
	slog.Handler

	buffer *logBuffer
}

// Handle implements slog.Handler.
func (h promptly) Handle(ctx context.Context, r slog.Record) error {
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		signalled(h.buffer.soon)
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
// last of them are written by end. On a terminal nothing waits.
func newServeLogger(out io.Writer, level slog.Level, format string) (log *slog.Logger, end func()) {
	if f, ok := out.(*os.File); ok && isatty.IsTerminal(f.Fd()) {
		return newLogger(out, level, format), func() {}
	}
	buffer := newLogBuffer(out)
	log = slog.New(promptly{newLogger(buffer, level, format).Handler(), buffer})
	buffer.told = func(lines int) {
		log.Warn("log lines were dropped, because nobody read them", "lines", lines)
	}
	go buffer.run()
	return log, buffer.close
}
