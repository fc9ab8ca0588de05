package forward_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	"functionbridge/internal/journal"
)

// bomb is 64 MB of zeros, twice compressed into some kilobytes.
func bomb(t *testing.T) []byte {
	t.Helper()
	var once, twice bytes.Buffer
	w := gzip.NewWriter(&once)
	zeros := make([]byte, 1<<20)
	for range 64 {
		_, _ = w.Write(zeros)
	}
	_ = w.Close()
	w = gzip.NewWriter(&twice)
	_, _ = w.Write(once.Bytes())
	_ = w.Close()
	return twice.Bytes()
}

func TestBodiesAreBoundedAfterDecompression(t *testing.T) {
	packed := bomb(t)
	for _, status := range []int{200, 400} {
		for _, coding := range []string{"gzip, gzip", "gzip"} {
			up := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				w.Header().Set("Content-Encoding", coding)
				w.WriteHeader(status)
				_, _ = w.Write(packed)
			})
			b := newBench(t, table("act: { url: "+up.URL+", idempotent: true }"))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			o, _ := b.run(t, "act", `{}`)
			runtime.ReadMemStats(&after)
			if status == 200 && coding == "gzip, gzip" && o.Failure != journal.TooLarge {
				t.Errorf("outcome = %+v", o)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
				t.Errorf("status %d, %s: %d bytes were allocated", status, coding, grown)
			}
		}
	}
}

// A reply without end is read up to its limit and left.
func TestAnEndlessReplyIsLeft(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 404, 500} {
		up := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(status)
			chunk := bytes.Repeat([]byte("x"), 32<<10)
			for r.Context().Err() == nil {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		})
		b := newBench(t, table("act: "+up.URL))
		o, rec := b.run(t, "act", `{}`)
		want := map[int]journal.Kind{200: journal.TooLarge, 404: journal.NotFound, 500: journal.UpstreamError}[status]
		if o.Failure != want || len(rec.attempts) != 1 {
			t.Errorf("%d: outcome = %.300v", status, o)
		}
	}
}

// A compressed reply that goes on for ever and comes to nothing ends with its
// time. Not parallel: it measures what is allocated.
func TestACompressedReplyOfNothingEndsInTime(t *testing.T) {
	for name, test := range map[string]struct{ coding, head, more string }{
		"gzip":    {"gzip", "", string(zipped(""))},
		"deflate": {"deflate", "", "\x00\x00\x00\xff\xff"},         // empty blocks, as they are
		"zlib":    {"deflate", "\x78\x9c", "\x00\x00\x00\xff\xff"}, // and behind zlib's header
		"br":      {"br", "\x0c", "\x06"},                          // empty metadata blocks
	} {
		t.Run(name, func(t *testing.T) {
			up := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/plain")
				w.Header().Set("Content-Encoding", test.coding)
				_, _ = io.WriteString(w, test.head)
				more := bytes.Repeat([]byte(test.more), 1000)
				for r.Context().Err() == nil {
					if _, err := w.Write(more); err != nil {
						return
					}
				}
			})
			b := newBench(t, table("act: { url: "+up.URL+", idempotent: true, attempt_timeout: 300ms, retry: { attempts: 1 } }"))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			o, _ := b.run(t, "act", `{}`)
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			if o.Failure != journal.Timeout || took > 5*time.Second {
				t.Errorf("outcome = %+v after %s", o, took)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
				t.Errorf("%d bytes were allocated", grown)
			}
		})
	}
}

func TestLargeTextsPassUnchanged(t *testing.T) {
	t.Parallel()
	up := serve(t, nil)
	up.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	})
	b := newBench(t, table("echo: "+up.URL))
	big := `{"s":"` + string(bytes.Repeat([]byte("é\\u0000"), 25<<10)) + `"}`
	if o, _ := b.run(t, "echo", big); o != journal.Success(big) {
		t.Errorf("outcome = %.100v, %d bytes of %d", o, len(o.Output), len(big))
	}
}
