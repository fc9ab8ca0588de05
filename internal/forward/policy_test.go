package forward

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestDecideAboutAnAttempt(t *testing.T) {
	t.Parallel()
	var (
		settled  = fate{}
		harmless = fate{again: true, unprocessed: true}
		useless  = fate{unprocessed: true}
		repeated = fate{again: true}
		unknown  = fate{unknown: true}
	)
	tests := []struct {
		name string
		q    question
		// plain is the fate on a non-idempotent route, idempotent on the other.
		plain, idempotent fate
	}{
		{"200", question{status: 200}, settled, settled},
		{"204", question{status: 204}, settled, settled},
		{"302", question{status: 302}, settled, settled},
		{"400", question{status: 400}, settled, settled},
		{"408", question{status: 408}, unknown, repeated},
		{"409", question{status: 409}, settled, settled},
		{"423", question{status: 423}, settled, settled},
		{"425", question{status: 425}, harmless, harmless},
		{"429", question{status: 429}, harmless, harmless},
		{"500", question{status: 500}, settled, repeated},
		{"501", question{status: 501}, settled, settled},
		{"502", question{status: 502}, unknown, repeated},
		{"503", question{status: 503}, unknown, repeated},
		{"503 with Retry-After", question{status: 503, retryAfter: true}, harmless, harmless},
		{"504", question{status: 504}, unknown, repeated},
		{"504 with Retry-After", question{status: 504, retryAfter: true}, unknown, repeated},
		{"599", question{status: 599}, settled, settled},
		{"no turn", question{fault: faultNotAdmitted}, useless, useless},
		{"not recorded", question{fault: faultNotRecorded}, useless, useless},
		{"no connection", question{fault: faultNoConnection}, harmless, harmless},
		{"no connection in time", question{fault: faultConnectTimeout}, harmless, harmless},
		{"certificate refused", question{fault: faultUntrusted}, useless, useless},
		{"no TLS", question{fault: faultNotTLS}, useless, useless},
		{"broken before a byte", question{fault: faultUnsent}, harmless, harmless},
		{"broken after", question{fault: faultBroken}, unknown, repeated},
		{"timeout after", question{fault: faultTimeout}, unknown, repeated},
		{"cut reply", question{fault: faultCut, status: 200}, unknown, repeated},
		{"cut reply of a 404", question{fault: faultCut, status: 404}, unknown, repeated},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			q := test.q
			q.on503 = true
			if got := decide(q); got != test.plain {
				t.Errorf("not idempotent: %+v, want %+v", got, test.plain)
			}
			if q.idempotent = true; decide(q) != test.idempotent {
				t.Errorf("idempotent: %+v, want %+v", decide(q), test.idempotent)
			}
		})
	}
}

func TestBackoffStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	const least, most = 200 * time.Millisecond, 5 * time.Second
	for n := range 80 {
		ceiling := most
		if n < 4 {
			ceiling = least << (n + 1)
		}
		var sum time.Duration
		for range 200 {
			got := backoff(least, most, n)
			if got < least || got > ceiling {
				t.Fatalf("backoff %d = %s, want %s to %s", n, got, least, ceiling)
			}
			sum += got
		}
		if mean := sum / 200; mean < least+(ceiling-least)/4 || mean > ceiling-(ceiling-least)/4 {
			t.Errorf("backoff %d is %s on average: it does not jitter", n, mean)
		}
	}
	for _, odd := range [][2]time.Duration{{0, 0}, {time.Second, 0}, {-time.Second, time.Second}, {math.MaxInt64, math.MaxInt64}} {
		if got := backoff(odd[0], odd[1], 70); got < 0 || got > max(odd[0], odd[1]) {
			t.Errorf("backoff(%v) = %s", odd, got)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{
		"", "0", "120", "-1", "+5", "1.5", "9223372036854775807", "9223372036854775808", "99999999999", " 7 ", "0x10", "1e9", "7, 8",
		"Fri, 31 Dec 1999 23:59:59 GMT", "Friday, 31-Dec-99 23:59:59 GMT", "Fri Dec 31 23:59:59 1999", "Fri, 31 Dec 9999 23:59:59 GMT",
		"Sat, 01 Aug 2026 12:00:01 GMT", "Sat, 01 Aug 2026 12:00:00 GMT", "Saturday, 01-Aug-26 12:01:00 GMT", "Sat Aug  1 12:00:02 2026",
	} {
		f.Add(seed)
	}
	now := time.Date(2026, 8, 1, 12, 0, 0, 500, time.UTC)
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := retryAfter(http.Header{"Retry-After": {text}}, now)
		if n < 0 || !ok && n != 0 || seconds(n) < 0 {
			t.Fatalf("retryAfter(%q) = %d, %t", text, n, ok)
		}
		trimmed := strings.TrimSpace(text)
		if want, err := strconv.ParseInt(trimmed, 10, 64); err == nil && trimmed[0] != '+' && trimmed[0] != '-' && (!ok || n != want) {
			t.Fatalf("retryAfter(%q) = %d, %t, want %d", text, n, ok, want)
		}
		if date, err := http.ParseTime(trimmed); err == nil {
			if back := now.Add(seconds(n)); !ok || n < math.MaxInt64/int64(time.Second) && back.Before(date) {
				t.Fatalf("retryAfter(%q) = %d, %t: too early", text, n, ok)
			}
		}
	})
}

// A service quotes a secret as its language writes JSON; in a text that is not
// JSON, or no longer, that cannot be undone before it is looked for.
func TestSecretsAreFoundInBrokenJSON(t *testing.T) {
	t.Parallel()
	const secret = `k/3"y<&é😀`
	for name, form := range map[string]string{
		"as it is": secret, "fewest escapes": `k/3\"y<&é😀`, "Go": `k/3\"y\u003c\u0026é😀`, "PHP": `k\/3\"y<&\u00e9\ud83d\ude00`,
		"PHP, characters kept": `k\/3\"y<&é😀`, "Python": `k/3\"y<&\u00e9\ud83d\ude00`, "path": "k%2F3%22y%3C&%C3%A9%F0%9F%98%80",
	} {
		for _, text := range []string{`{"detail":"bad key ` + form, "refused: {\"key\":\"" + form + "\"}", form} {
			if got := detail(text, true, newRedactor([]string{secret, ""})); !strings.Contains(got, redacted) || strings.Contains(got, "3") {
				t.Errorf("%s: detail(%s) = %s", name, text, got)
			}
		}
	}
}

func FuzzDetail(f *testing.F) {
	for _, seed := range []string{
		`{"detail":"x"}`, `{"title":1,"error":{"message":"m"}}`, `{"detail":{"a":[1]}}`, "<html>", "plain", "a\x00b\u2028c", "k3y",
		`{"detail":"k\u0033y"}`, `{"message":"k3y"`, "\xff\xfe", strings.Repeat("é", 2000), `{"detail":["q\"t"]}`, "k\n3y", `q"t`,
	} {
		f.Add(seed, "k3y", `q"t`)
	}
	f.Fuzz(func(t *testing.T, text, secret, other string) {
		if len(secret) < 3 || len(other) < 3 || strings.Contains(redacted, secret) || strings.Contains(redacted, other) {
			t.Skip("too short to be told from other text")
		}
		got := detail(strings.ToValidUTF8(text, "\uFFFD"), true, newRedactor([]string{secret, other, ""}))
		if !utf8.ValidString(got) || len(got) > maxDetailBytes+len("…") {
			t.Fatalf("detail(%q) = %q", text, got)
		}
		if strings.ContainsFunc(got, unicode.IsControl) || strings.HasPrefix(strings.ToLower(got), "<html") {
			t.Fatalf("detail(%q) = %q", text, got)
		}
		for _, s := range []string{secret, other} {
			if at := strings.ReplaceAll(got, redacted, ""); strings.Contains(got, s) && strings.Contains(at, s) {
				t.Fatalf("detail(%q) = %q holds the secret %q", text, got, s)
			}
		}
	})
}
