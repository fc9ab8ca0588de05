package forward

import (
	"net/http"
	"strings"
	"testing"

	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// BenchmarkOutcome makes what the agent is told from a reply that was read: texts pass, failures become sentences, in
// which secrets are replaced.
func BenchmarkOutcome(b *testing.B) {
	tell := telling{
		function: "get_customer", attempts: 1, idempotent: true, result: router.Result{MaxBytes: 256 << 10},
		redactor: newRedactor([]string{"T0P-$ecret", "pa55-word"}),
	}
	problem := `{"type":"https://crm.test/problems/gone","title":"Gone","status":410,"detail":"Customer cus_1 was merged into cus_2.","instance":"/1"}`
	for _, c := range []struct {
		name   string
		status int
		media  string
		body   string
		want   journal.Kind // "" is success
	}{
		{"reply=json-1KiB", http.StatusOK, "application/json", `{"text":"` + strings.Repeat("x", 1000) + `"}`, ""},
		{"reply=text-100KiB", http.StatusOK, "text/plain; charset=utf-8", strings.Repeat("0123456789", 10<<10), ""},
		{"reply=text-latin1-1KiB", http.StatusOK, "text/plain; charset=iso-8859-1", strings.Repeat("\xe6\xf8\xe5 ", 256), ""},
		{"reply=problem", http.StatusGone, "application/problem+json", problem, journal.NotFound},
		{"reply=html-error", http.StatusBadRequest, "text/html", "<html>" + strings.Repeat("<p>Bad request</p>", 50), journal.InvalidArguments},
		{"reply=500", http.StatusInternalServerError, "application/json", `{"error":"boom"}`, journal.UpstreamError},
	} {
		b.Run(c.name, func(b *testing.B) {
			body := []byte(c.body)
			b.ReportAllocs()
			for b.Loop() {
				m := mediaOf(c.media)
				r := &reply{status: c.status, media: m, body: body, limit: limitOf(c.status, m, tell.result), size: int64(len(body))}
				if o := tell.replied(r, 0); o.Failure != c.want {
					b.Fatal(o)
				}
			}
		})
	}
}
