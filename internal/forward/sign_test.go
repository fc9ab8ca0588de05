package forward_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
)

// signingSecret is one of Standard Webhooks, made of a letter.
func signingSecret(letter string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
}

// verifier is a service that takes only what is signed with its secret, over
// exactly what it received and within 5 s of its clock.
type verifier struct {
	mu     sync.Mutex
	secret string
	// refused are why requests were not taken.
	refused []string
	headers []http.Header
	bodies  []string
}

const tolerance = 5 * time.Second

func (v *verifier) check(r *http.Request) bool {
	body, _ := io.ReadAll(r.Body)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.headers, v.bodies = append(v.headers, r.Header.Clone()), append(v.bodies, string(body))
	signer, err := webhooks.NewWebhook(v.secret)
	if err == nil {
		err = signer.Verify(body, r.Header)
	}
	// The library allows five minutes and no other tolerance.
	if at, _ := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64); err == nil && time.Since(time.Unix(at, 0)).Abs() > tolerance {
		err = webhooks.ErrMessageTooOld
	}
	if err != nil {
		v.refused = append(v.refused, err.Error())
	}
	return err == nil
}

func (v *verifier) serve(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !v.check(r) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next(w, r)
	}
}

func ok(http.ResponseWriter, *http.Request) {}

// Every request is signed over the bytes that are sent, whatever the method,
// the body and the redirects within the service.
func TestRequestsAreSigned(t *testing.T) {
	t.Parallel()
	v := &verifier{secret: signingSecret("a")}
	up := serve(t, nil)
	up.Config.Handler = v.serve(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			redirecting(http.StatusTemporaryRedirect, "/x")(w, r)
		}
	})
	var routes []string
	for _, method := range []string{"POST", "PUT", "PATCH", "GET", "DELETE", "HEAD"} {
		routes = append(routes, strings.ToLower(method)+": { upstream: crm, path: /x, method: "+method+" }")
	}
	routes = append(routes, "moved: { upstream: crm, path: /moved }")
	b := newBench(t, upstreamTable(up.URL, `sign: { secret: `+v.secret+` }`, routes...))
	for _, args := range []string{`{}`, `{"b":1, "a":"é\u00e9","n":12345678901234567890}`, ``} {
		for _, function := range []string{"post", "put", "patch", "get", "delete", "head", "moved"} {
			o, rec := b.run(t, function, args)
			if !o.Success || len(rec.attempts) != 1 {
				t.Errorf("%s %s: outcome = %+v: %v", function, args, o, v.refused)
			}
			for _, r := range rec.requests {
				if strings.Contains(strings.ToLower(string(r)), "webhook") {
					t.Errorf("journaled: %s", r)
				}
			}
		}
	}
	key := journal.Key{SessionID: "sess_1", TurnID: "turn_1", CallID: "call_1"}.CallKey()
	for _, h := range v.headers {
		if h.Get("webhook-id") != key || h.Get("Idempotency-Key") != key {
			t.Errorf("headers = %v", h)
		}
	}
}

// The second attempt, eight seconds later, has its own time and signature, and
// the same body and key.
func TestAttemptsAreSignedAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &verifier{secret: signingSecret("a")}
		n := 0
		b := startBubble(t, upstreamTable("http://crm.test", `sign: { secret: `+v.secret+` }`,
			`act: { upstream: crm, path: /x, timeout: 30s }`), v.serve(func(w http.ResponseWriter, r *http.Request) {
			if n++; n == 1 {
				busy(http.StatusServiceUnavailable, "8")(w, r)
			}
		}))
		defer b.stop()
		o, rec := b.run(t, "act", `{"amount": 1.10}`)
		if !o.Success || len(rec.attempts) != 2 || time.Since(b.began) != 8*time.Second || len(v.refused) != 0 {
			t.Errorf("outcome = %+v after %s, attempts %+v: %v", o, time.Since(b.began), rec.attempts, v.refused)
		}
		if len(v.headers) != 2 {
			t.Fatalf("%d requests", len(v.headers))
		}
		first, second := v.headers[0], v.headers[1]
		for _, name := range []string{"webhook-id", "Idempotency-Key", "Content-Length"} {
			if first.Get(name) != second.Get(name) {
				t.Errorf("%s = %q, then %q", name, first.Get(name), second.Get(name))
			}
		}
		for _, name := range []string{"webhook-timestamp", "webhook-signature"} {
			if first.Get(name) == second.Get(name) {
				t.Errorf("%s = %q twice", name, first.Get(name))
			}
		}
		if v.bodies[0] != v.bodies[1] || v.bodies[0] != `{"amount": 1.10}` {
			t.Errorf("bodies = %q", v.bodies)
		}
	})
}

// While one secret takes the place of another, both sign: in the table, in a
// file, and when the file changes.
func TestTwoSecretsSignAtOnce(t *testing.T) {
	t.Parallel()
	older, newer := signingSecret("a"), signingSecret("b")
	both := newFile(t, older+"\n"+newer+"\n")
	for name, setting := range map[string]string{
		"list": "[" + older + ", " + newer + "]",
		"file": both,
	} {
		key := map[string]string{"list": "secret", "file": "secret_file"}[name]
		for secret, taken := range map[string]bool{older: true, newer: true, signingSecret("c"): false} {
			v := &verifier{secret: secret}
			up := serve(t, nil)
			up.Config.Handler = v.serve(ok)
			b := newBench(t, upstreamTable(up.URL, "sign: { "+key+": "+setting+" }", throughCRM))
			if o, _ := b.run(t, "act", `{}`); o.Success != taken || len(strings.Fields(v.headers[0].Get("webhook-signature"))) != 2 {
				t.Errorf("%s: outcome = %+v: %v", name, o, v.refused)
			}
		}
	}
}

func TestSigningSecretsAreReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &verifier{secret: signingSecret("a")}
		file := newFile(t, v.secret+"\n")
		b := startBubble(t, upstreamTable("http://crm.test", "sign: { secret_file: "+file+" }", throughCRM), v.serve(ok))
		defer b.stop()
		for _, step := range []struct{ inFile, expects string }{
			{signingSecret("a"), signingSecret("a")},
			{signingSecret("a") + " " + signingSecret("b"), signingSecret("b")},
			{signingSecret("b"), signingSecret("b")},
			{"secret", signingSecret("b")},
		} {
			writeFile(t, file, step.inFile)
			v.secret = step.expects
			time.Sleep(2 * time.Second) // fake clock
			if o, _ := b.run(t, "act", `{}`); !o.Success {
				t.Errorf("with %q in the file: %+v: %v", step.inFile, o, v.refused)
			}
		}
		if log := b.log.String(); !strings.Contains(log, "upstreams.crm.sign.secret_file: the secret in the file must begin with whsec_") ||
			strings.Contains(log, strings.TrimPrefix(signingSecret("b"), "whsec_")) {
			t.Errorf("log:\n%s", log)
		}
	})
}

// A question about a lost request is a message of its own: a service that drops
// what it has seen before must not drop it, nor the next question.
func TestQuestionsAreSignedUnderIdsOfTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &verifier{secret: signingSecret("a")}
		seen := map[string]bool{}
		questions := 0
		b := startBubble(t, upstreamTable("http://crm.test", `sign: { secret: `+v.secret+` }`,
			`act: { upstream: crm, path: /x, timeout: 30s, attempt_timeout: 1s, recover: { path: /y } }`),
			v.serve(func(w http.ResponseWriter, r *http.Request) {
				id := r.Header.Get("webhook-id")
				if seen[id] {
					_, _ = io.WriteString(w, "seen before")
					return
				}
				seen[id] = true
				if r.URL.Path == "/x" {
					w.WriteHeader(http.StatusBadGateway)
					return
				}
				if questions++; questions < 3 {
					w.WriteHeader(http.StatusAccepted)
					return
				}
				_, _ = io.WriteString(w, "found")
			}))
		defer b.stop()
		o, _ := b.run(t, "act", `{"a":1}`)
		if o != journal.Success("found") || questions != 3 || len(v.refused) != 0 {
			t.Errorf("outcome = %+v after %d questions: %v", o, questions, v.refused)
		}
		for _, h := range v.headers[1:] {
			if !strings.HasPrefix(h.Get("webhook-id"), "recover_") || h.Get("Idempotency-Key") != "" {
				t.Errorf("headers = %v", h)
			}
		}
	})
}

// A shown request has the headers of the signature and no signature.
func TestASignatureIsNotShown(t *testing.T) {
	t.Parallel()
	b := newBench(t, upstreamTable("http://crm.test", `sign: { secret: `+signingSecret("a")+` }`, throughCRM))
	tried := b.Try(t.Context(), forward.Trial{Function: "act", DryRun: true, IdempotencyKey: "my key"})
	h := tried.Request.Headers
	if h["Webhook-Id"] != "my%20key" || h["Webhook-Signature"] != "[redacted]" || h["Webhook-Timestamp"] == "" || strings.Contains(fmt.Sprint(tried), "v1,") {
		t.Errorf("headers = %v", h)
	}
}

// What a service repeats of its secret is replaced, with and without its prefix.
func TestAnEchoedSigningSecretIsReplaced(t *testing.T) {
	t.Parallel()
	secret := signingSecret("a")
	bare := strings.TrimPrefix(secret, "whsec_")
	up := serve(t, answer(403, "text/plain", "expected "+secret+" or "+bare))
	b := newBench(t, upstreamTable(up.URL, `sign: { secret: `+secret+` }`, throughCRM))
	if o, _ := b.run(t, "act", `{}`); !strings.Contains(o.Error, "expected [redacted] or [redacted]. ") {
		t.Errorf("error = %q", o.Error)
	}
}

// BenchmarkForwardSigned is BenchmarkForward with a bearer token and a signature.
func BenchmarkForwardSigned(b *testing.B) {
	up := quick(b)
	f := newBench(b, upstreamTable(up.URL, `auth: { bearer: "${TOKEN}" }, sign: { secret: `+signingSecret("a")+` }`, throughCRM), func(c *forward.Config) {
		c.Logger = slog.New(slog.NewJSONHandler(io.Discard, nil)) //nolint:sloglint // what a line costs is to be seen
	})
	call := f.call("act", benchArguments)
	measure(b, func() {
		if o, err := f.Forward(b.Context(), call, journal.Session{ID: "sess_1"}, silent{}); !o.Success || err != nil {
			b.Fatal(o, err)
		}
	})
}
