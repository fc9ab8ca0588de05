package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/prometheus/client_golang/prometheus"

	"functionbridge/internal/agentsim"

	"functionbridge/internal/journal"
)

// A piece of text as it comes while an agent speaks, which is most of what comes.
const textFrame = `data: {"event_id":"evt_0123456789abcdef","type":"agent.session.turn.output_text.delta",` +
	`"session_id":"sess_0123456789abcdef","turn_id":"turn_0123456789abcdef","item_id":"msg_0123456789abcdef",` +
	`"output_index":3,"content_index":0,"delta":" and so on"}` + "\n\n"

// repeated reads the same frame again and again, left bytes in all.
type repeated struct {
	some []byte
	at   int
	left int
}

func repeat(frame string, n int) *repeated {
	// As much as a busy stream brings at once, so that reading is not what is measured.
	const some = 64
	return &repeated{some: bytes.Repeat([]byte(frame), some), left: n * len(frame)}
}

func (f *repeated) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, f.some[f.at:min(len(f.some), f.at+f.left)])
	f.at, f.left = (f.at+n)%len(f.some), f.left-n
	return n, nil
}

// BenchmarkTextEvent is one event of no interest on a stream: what the bridge spends on it, and what the SDK's typed
// decoding does.
func BenchmarkTextEvent(b *testing.B) {
	b.Run("client=bridge", func(b *testing.B) { benchmarkConsume(b, textFrame) })
	b.Run("client=sdk", func(b *testing.B) { benchmarkDecode(b, textFrame) })
}

// benchmarkConsume reads b.N frames as a follower does.
func benchmarkConsume(b *testing.B, frame string) {
	b.Helper()
	m := New(Config{Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	b.Cleanup(m.stopFollow)
	f := newFollower(m, "sess_0123456789abcdef", SourceConfig)
	b.Cleanup(f.cancel)
	b.ReportAllocs()
	b.SetBytes(int64(len(frame)))
	dog := newWatchdog(time.Hour, func() {})
	b.Cleanup(dog.stop)
	body := repeat(frame, b.N)
	b.ResetTimer()
	if err := f.consume(&watched{Reader: body, dog: dog}); !errors.Is(err, io.EOF) {
		b.Fatal(err)
	}
}

// benchmarkDecode reads b.N frames as the SDK does.
func benchmarkDecode(b *testing.B, frame string) {
	b.Helper()
	b.ReportAllocs()
	b.SetBytes(int64(len(frame)))
	res := &http.Response{Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(repeat(frame, b.N))}
	stream := ssestream.NewStream[openai.AgentSessionEventUnion](ssestream.NewDecoder(res), nil)
	b.ResetTimer()
	n := 0
	for stream.Next() {
		n++
	}
	if err := stream.Err(); err != nil || n != b.N {
		b.Fatalf("%d events of %d, %v", n, b.N, err)
	}
}

// recorded is a session as the simulated API answers, with so many calls that wait and so many tools.
func recorded(b *testing.B, calls, tools int) []byte {
	b.Helper()
	sim := agentsim.New(agentsim.Kind())
	b.Cleanup(sim.Close)
	var defs bytes.Buffer
	for i := range tools {
		fmt.Fprintf(&defs, `,{"type":"function","name":"f%d","description":"Look something up.","parameters":{"type":"object",`+
			`"properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"],"additionalProperties":false}}`, i)
	}
	id := sim.CreateSession(agentsim.SessionSpec{
		Metadata: map[string]string{"user_id": "u_1"}, Tools: fmt.Appendf(nil, "[%s]", bytes.TrimPrefix(defs.Bytes(), []byte(","))),
	})
	step := agentsim.Step{}
	for range calls {
		step = append(step, agentsim.Call("f0", `{"city":"Oslo","days":3}`))
	}
	sim.Play(id, step)
	req := httptest.NewRequest(http.MethodGet, "/v1/agents/sessions/"+id, http.NoBody)
	req.Header.Set("Authorization", "Bearer x")
	req.Header.Set(betaHeader, betaValue)
	res := httptest.NewRecorder()
	sim.ServeHTTP(res, req)
	return res.Body.Bytes()
}

// BenchmarkSnapshot is one snapshot of a session decoded: as an event brings it, and as a read does, which looks at the
// tools too.
func BenchmarkSnapshot(b *testing.B) {
	for _, calls := range []int{1, 8, 100} {
		for _, tools := range []int{1, 20} {
			raw := recorded(b, calls, tools)
			event := fmt.Appendf(nil, `{"event_id":"evt_1","type":"agent.session.requires_action","session":%s}`, raw)
			size := fmt.Sprintf("calls=%d/tools=%d", calls, tools)
			b.Run("from=event/"+size, func(b *testing.B) {
				benchmarkSnapshot(b, len(event), calls, func() (snapshot, error) {
					return parseSnapshot(parseEvent(event).session, time.Time{}, false, journal.Session{})
				})
			})
			b.Run("from=read/"+size, func(b *testing.B) {
				benchmarkSnapshot(b, len(raw), calls, func() (snapshot, error) { return parseSnapshot(raw, time.Time{}, true, journal.Session{}) })
			})
		}
	}
}

func benchmarkSnapshot(b *testing.B, size, calls int, parse func() (snapshot, error)) {
	b.Helper()
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for b.Loop() {
		if s, err := parse(); err != nil || len(s.calls) != calls {
			b.Fatal(s.calls, err)
		}
	}
}
