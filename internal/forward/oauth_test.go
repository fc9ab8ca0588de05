package forward_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// issuer is a token endpoint at auth.test and a service at crm.test that takes
// only the tokens that are good; other.test takes everything.
type issuer struct {
	*bubble

	// answer replaces the endpoint's answer to the n-th request, from 1.
	answer func(n int, w http.ResponseWriter, r *http.Request) bool
	// life of a token, in seconds as the endpoint says it.
	life string
	// inBody: the client's credentials are taken from there alone.
	inBody bool

	mu sync.Mutex
	// fetches are the times of the requests to the endpoint.
	fetches []time.Duration
	// good is when each token ends.
	good map[string]time.Time
	// revoked are refused by the service all the same.
	revoked map[string]bool
	// used are the tokens of the requests to the service, in order; refused
	// counts those that were answered 401.
	used    []string
	refused int
}

const oauth2Setting = `auth: { oauth2: { token_url: "http://auth.test/token", client_id: "the bridge", client_secret: "${TOKEN}", scopes: [read, write] } }`

// startIssuer starts them in a synctest bubble, with the routes act and other.
func startIssuer(t *testing.T, timeout string, change ...func(*forward.Config)) *issuer {
	t.Helper()
	i := &issuer{life: "3600", good: map[string]time.Time{}, revoked: map[string]bool{}}
	i.bubble = startBubble(t, issuerTable(oauth2Setting, timeout), i.serve, change...)
	return i
}

func issuerTable(setting, timeout string) string {
	return `
version: 1
upstreams:
  crm: { url: "http://crm.test", ` + setting + ` }
defaults: { timeout: ` + timeout + ` }
routes:
  act: { upstream: crm, path: /x, idempotent: false, retry: { attempts: 1 } }
  patient: { upstream: crm, path: /x, idempotent: true }
  lost: { upstream: crm, path: /lost, attempt_timeout: 1s, recover: { path: /found } }
  other: http://other.test
`
}

func (i *issuer) serve(w http.ResponseWriter, r *http.Request) {
	switch r.Host {
	case "auth.test":
		i.issue(w, r)
	case "crm.test":
		i.work(w, r)
	}
}

func (i *issuer) issue(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.fetches = append(i.fetches, time.Since(i.began))
	n := len(i.fetches)
	i.mu.Unlock()
	if i.answer != nil && i.answer(n, w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if !i.knows(r) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"error":"invalid_client"}`)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	token := "token-" + strconv.Itoa(n)
	life, _ := strconv.Atoi(i.life)
	i.good[token] = time.Now().Add(time.Duration(life) * time.Second)
	_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"bearer","expires_in":%s}`, token, i.life)
}

// knows checks the client as RFC 6749 has it.
func (i *issuer) knows(r *http.Request) bool {
	user, password, ok := r.BasicAuth()
	id, _ := url.QueryUnescape(user)
	secret, _ := url.QueryUnescape(password)
	if i.inBody {
		id, secret, ok = r.PostFormValue("client_id"), r.PostFormValue("client_secret"), true
	}
	return ok && id == "the bridge" && secret == secrets()["TOKEN"] && r.Method == http.MethodPost &&
		r.PostFormValue("grant_type") == "client_credentials" && r.PostFormValue("scope") == "read write"
}

func (i *issuer) work(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	i.used = append(i.used, token)
	if end, ok := i.good[token]; !ok || i.revoked[token] || !time.Now().Before(end) {
		i.refused++
		answer(http.StatusUnauthorized, "text/plain", "not with "+token)(w, r)
		return
	}
	if r.URL.Path == "/lost" {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	_, _ = io.WriteString(w, "done")
}

// forwardAll calls act n times at once and returns the outcomes.
func (i *issuer) forwardAll(t *testing.T, n int) []journal.Outcome {
	t.Helper()
	outcomes := make([]journal.Outcome, n)
	var all sync.WaitGroup
	for k := range n {
		all.Go(func() { outcomes[k], _ = i.run(t, "act", `{}`) })
	}
	all.Wait()
	return outcomes
}

func (i *issuer) times() []time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.fetches)
}

// hangUntilGone keeps every request of an endpoint until its client is gone.
func hangUntilGone(_ int, _ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	return true
}

func TestOneFetchServesAllWaitingCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := startIssuer(t, "30s", func(c *forward.Config) { c.MaxCalls = 200 })
		defer i.stop()
		i.answer = func(int, http.ResponseWriter, *http.Request) bool {
			time.Sleep(3 * time.Second) // fake clock
			return false
		}
		for _, o := range i.forwardAll(t, 100) {
			if o != journal.Success("done") {
				t.Errorf("outcome = %+v", o)
			}
		}
		if got := i.times(); len(got) != 1 || time.Since(i.began) != 3*time.Second {
			t.Errorf("fetched at %v, done after %s", got, time.Since(i.began))
		}
		if log := i.log.String(); strings.Contains(log, "token-1") {
			t.Errorf("the token is logged: %s", log)
		}
	})
}

// Calls that wait for a token hold nothing that other upstreams need, and end
// with their time; the endpoint is asked by one of them at a time.
func TestAHungTokenEndpointHoldsNobody(t *testing.T) {
	t.Parallel()
	for timeout, ends := range map[string]time.Duration{"3s": 3 * time.Second, "10s": 10 * time.Second, "25s": 25 * time.Second, "300s": 10 * time.Second} {
		t.Run(timeout, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				i := startIssuer(t, timeout, func(c *forward.Config) { c.MaxCalls = 2 })
				defer i.stop()
				i.answer = hangUntilGone
				var waiting sync.WaitGroup
				waiting.Go(func() {
					for _, o := range i.forwardAll(t, 50) {
						noAccess(t, o, "Try again later.")
					}
					if took := time.Since(i.began); took > ends {
						t.Errorf("calls ended after %s, want %s at most", took, ends)
					}
				})
				synctest.Wait()
				if o, _ := i.run(t, "other", `{}`); !o.Success || time.Since(i.began) != 0 {
					t.Errorf("another upstream: %+v after %s", o, time.Since(i.began))
				}
				waiting.Wait()
			})
		})
	}
}

// noAccess checks what the agent is told without a token.
func noAccess(t *testing.T, o journal.Outcome, todo string) {
	t.Helper()
	if o.Failure != journal.Unavailable || !strings.Contains(o.Error, "the bridge was given no access to its service") || !strings.HasSuffix(o.Error, todo) {
		t.Errorf("outcome = %+v", o)
	}
	noInside(t, o.Error, "")
}

// A route that retries does so without a token as well, and no later than its
// deadline; the endpoint is asked again after a pause.
func TestAHungTokenEndpointIsAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := startIssuer(t, "30s")
		defer i.stop()
		i.answer = func(n int, w http.ResponseWriter, r *http.Request) bool { return n < 3 && hangUntilGone(n, w, r) }
		o, rec := i.run(t, "patient", `{}`)
		if !o.Success || len(rec.attempts) != 3 || rec.attempts[0].Error != "no access token: timeout" || rec.attempts[0].Duration != 10*time.Second {
			t.Errorf("outcome = %+v, attempts %+v", o, rec.attempts)
		}
		if rec.sendings != 1 || !rec.unprocessed[0] {
			t.Errorf("%d requests were recorded as sent", rec.sendings)
		}
		if got := i.times(); fmt.Sprint(got) != fmt.Sprint([]time.Duration{0, 11 * time.Second, 22 * time.Second}) {
			t.Errorf("fetched at %v", got)
		}
	})
}

// What the endpoint answers instead of a good token ends the call early, and
// the log says why without the secret that the endpoint repeats.
func TestATokenEndpointThatFails(t *testing.T) {
	t.Parallel()
	says := func(status int, text string) func(int, http.ResponseWriter, *http.Request) bool {
		return func(_ int, w http.ResponseWriter, r *http.Request) bool {
			answer(status, "application/json", text)(w, r)
			return true
		}
	}
	const later, never = "Try again later.", "Do not try again."
	for name, test := range map[string]struct {
		answer  func(int, http.ResponseWriter, *http.Request) bool
		fetches int
		why     string
		todo    string
	}{
		"500":                     {says(500, "boom "+hiddenHost), 3, "it answered 500", later},
		"503":                     {says(503, ""), 3, "it answered 503", later},
		"429":                     {says(429, ""), 3, "it answered 429", later},
		"401":                     {says(401, `{"error":"invalid_client","error_description":"bad T0P-$ecret\"x at `+hiddenHost+`"}`), 2, "it answered 401", never},
		"400":                     {says(400, `{"error":"invalid_scope"}`), 2, "it answered 400", never},
		"404":                     {says(404, "<html>"), 1, "it answered 404", never},
		"200 with an error":       {says(200, `{"error":"invalid_client"}`), 1, "it answered 200", never},
		"over: 0":                 {says(200, `{"access_token":"a","expires_in":0}`), 3, "its token was over when it was issued", later},
		"over: text":              {says(200, `{"access_token":"a","expires_in":"0"}`), 3, "its token was over when it was issued", later},
		"over: negative":          {says(200, `{"access_token":"a","expires_in":-5}`), 3, "its token was over when it was issued", later},
		"over: far negative":      {says(200, `{"access_token":"a","expires_in":-9223372036854775808}`), 3, "its token was over when it was issued", later},
		"no token":                {says(200, `{"token":"a"}`), 3, "its reply holds no token", later},
		"empty":                   {says(200, ""), 3, "its reply holds no token", later},
		"HTML":                    {says(200, "<html>login</html>"), 3, "its reply holds no token", later},
		"a token with line break": {says(200, `{"access_token":"a\nX-Evil: b"}`), 3, "its token holds characters that no header can carry", later},
		"another protocol": {func(_ int, w http.ResponseWriter, r *http.Request) bool {
			hijacking("220 "+hiddenHost+" ESMTP\r\n")(w, r)
			return true
		}, 3, "connection broke", later},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				i := startIssuer(t, "30s")
				defer i.stop()
				i.answer = test.answer
				o, rec := i.run(t, "patient", `{}`)
				noAccess(t, o, test.todo)
				if n := len(i.times()); n != test.fetches || len(i.used) != 0 || time.Since(i.began) > 5*time.Second {
					t.Errorf("%d fetches and %d requests in %s", n, len(i.used), time.Since(i.began))
				}
				if last := rec.attempts[len(rec.attempts)-1]; !strings.HasPrefix(last.Error, "no access token: "+test.why) || rec.sendings != 0 {
					t.Errorf("attempts = %+v", rec.attempts)
				}
				log := i.log.String()
				if !strings.Contains(log, `"access token not fetched","upstream":"crm","reason":"`+test.why) {
					t.Errorf("log:\n%s", log)
				}
				if name == "401" && !strings.Contains(log, `"detail":"invalid_client bad [redacted] at `) {
					t.Errorf("log:\n%s", log)
				}
				noSecret(t, "log", log)
				noSecret(t, "error", o.Error)
			})
		})
	}
}

// A reply that never ends is given up with the fetch's time.
func TestATokenEndpointThatDrips(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := startIssuer(t, "30s")
		defer i.stop()
		i.answer = func(n int, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"access_token":`)
			_ = http.NewResponseController(w).Flush()
			return hangUntilGone(n, w, r)
		}
		o, rec := i.run(t, "act", `{}`)
		noAccess(t, o, "Try again later.")
		if took := time.Since(i.began); took != 10*time.Second || rec.attempts[0].Error != "no access token: timeout in its reply" {
			t.Errorf("attempts = %+v after %s", rec.attempts, took)
		}
	})
}

// An endpoint that cannot be reached is named as a service would be.
func TestATokenEndpointThatIsNotReached(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(200, "text/plain", "ok"))
	gone := serve(t, nil)
	gone.Close()
	setting := `auth: { oauth2: { token_url: "` + gone.URL + `/token", client_id: a, client_secret: "${TOKEN}" } }`
	b := newBench(t, upstreamTable(up.URL, setting, throughCRM))
	o, rec := b.run(t, "act", `{}`)
	noAccess(t, o, "Try again later.")
	if rec.attempts[0].Error != "no access token: connection refused" || len(up.requests()) != 0 {
		t.Errorf("attempts = %+v", rec.attempts)
	}
	if log := b.log.String(); strings.Contains(log, gone.Listener.Addr().String()) {
		t.Errorf("log:\n%s", log)
	}
}

// An endpoint's Retry-After is kept to: here it is beyond the deadline.
func TestATokenEndpointMayAskForPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := startIssuer(t, "30s")
		defer i.stop()
		i.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Retry-After", "31")
			answer(429, "text/plain", "")(w, r)
			return true
		}
		o, _ := i.run(t, "patient", `{}`)
		noAccess(t, o, "Try again after 31 s.")
		if len(i.times()) != 1 || time.Since(i.began) != 0 {
			t.Errorf("fetched at %v", i.times())
		}
	})
}

// A failing endpoint is asked once a second, however many calls want a token.
func TestAFailingTokenEndpointIsNotOverrun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := startIssuer(t, "30s")
		defer i.stop()
		i.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool { busy(500, "")(w, r); return true }
		for range 100 {
			i.forwardAll(t, 20)
		}
		if n, most := len(i.times()), int(time.Since(i.began)/time.Second)+1; n > most {
			t.Errorf("%d fetches in %s", n, time.Since(i.began))
		}
	})
}

// Tokens are renewed before they end, behind the calls: none waits, and none is
// refused.
func TestTokensAreRenewedUnderLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := startIssuer(t, "30s", func(c *forward.Config) { c.MaxCalls = 100 })
		defer i.stop()
		i.life = "100"
		i.answer = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
			if n > 1 {
				time.Sleep(2 * time.Second) // fake clock
			}
			return false
		}
		for range 600 {
			began := time.Now()
			for _, o := range i.forwardAll(t, 10) {
				if !o.Success {
					t.Fatalf("outcome = %+v after %s", o, time.Since(i.began))
				}
			}
			if time.Since(began) != 0 {
				t.Fatalf("calls waited %s after %s", time.Since(began), time.Since(i.began))
			}
			time.Sleep(time.Second) // fake clock
		}
		if n := len(i.times()); i.refused != 0 || n < 7 || n > 9 {
			t.Errorf("%d fetches in %s, %d requests refused", n, time.Since(i.began), i.refused)
		}
	})
}

// Without a renewal the token is used up to its end and not beyond.
func TestATokenIsNotUsedBeyondItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := startIssuer(t, "2s")
		defer i.stop()
		i.life = "100"
		i.answer = func(n int, w http.ResponseWriter, r *http.Request) bool {
			if n > 1 {
				busy(500, "")(w, r)
			}
			return n > 1
		}
		for range 120 {
			since := time.Since(i.began)
			if o, _ := i.run(t, "act", `{}`); o.Success != (since < 95*time.Second) {
				t.Errorf("outcome = %+v after %s", o, since)
			}
			time.Sleep(time.Second) // fake clock
		}
		if i.refused != 0 {
			t.Errorf("%d requests were refused", i.refused)
		}
	})
}

// A refused token is replaced and the call sent once more, at once, also where
// the route retries nothing: the service did nothing yet.
func TestARefusedTokenIsReplacedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := startIssuer(t, "30s")
		defer i.stop()
		i.run(t, "act", `{}`)
		i.revoked["token-1"] = true
		began := time.Now()

		o, rec := i.run(t, "act", `{}`)

		if o != journal.Success("done") || time.Since(began) != 0 {
			t.Errorf("outcome = %+v after %s", o, time.Since(began))
		}
		if fmt.Sprint(i.used) != "[token-1 token-1 token-2]" || len(i.times()) != 2 {
			t.Errorf("tokens %v in %d fetches", i.used, len(i.times()))
		}
		if len(rec.attempts) != 2 || rec.attempts[0].Status != 401 || !rec.unprocessed[0] || rec.sendings != 2 {
			t.Errorf("attempts = %+v, unprocessed %v", rec.attempts, rec.unprocessed)
		}
	})
}

// A service that refuses every token is asked twice, and the agent told that it
// is denied; the endpoint is asked once a second.
func TestAServiceThatRefusesEveryToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := startIssuer(t, "30s")
		defer i.stop()
		i.answer = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.revoked["token-"+strconv.Itoa(n)] = true
			return false
		}
		for _, function := range []string{"act", "patient", "act", "patient"} {
			before := i.refused
			o, rec := i.run(t, function, `{}`)
			if o.Failure != journal.Denied || len(rec.attempts) != 2 || i.refused != before+2 ||
				!strings.Contains(o.Error, "failed with status 401 (Unauthorized) in 2 attempts: not with [redacted]. Do not try again.") {
				t.Errorf("outcome = %+v, attempts %+v", o, rec.attempts)
			}
		}
		times := i.times()
		for k := 2; k < len(times); k++ {
			if times[k]-times[k-1] < time.Second {
				t.Errorf("fetched at %v", times)
			}
		}
		if len(times) != 5 {
			t.Errorf("fetched at %v", times)
		}
	})
}

// Calls that are refused at once have one new token.
func TestOneFetchReplacesATokenThatManyCallsUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := startIssuer(t, "30s", func(c *forward.Config) { c.MaxCalls = 200 })
		defer i.stop()
		i.run(t, "act", `{}`)
		i.revoked["token-1"] = true
		i.answer = func(int, http.ResponseWriter, *http.Request) bool {
			time.Sleep(time.Second) // fake clock
			return false
		}
		for _, o := range i.forwardAll(t, 100) {
			if !o.Success {
				t.Errorf("outcome = %+v", o)
			}
		}
		if len(i.times()) != 2 || i.refused != 100 {
			t.Errorf("%d fetches, %d refused", len(i.times()), i.refused)
		}
	})
}

// Of the other kinds of auth, a 401 is final.
func TestARefusedSecretIsFinal(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(401, "text/plain", "no"))
	b := newBench(t, upstreamTable(up.URL, `auth: { bearer: "${TOKEN}" }`, throughCRM))
	if o, rec := b.run(t, "act", `{}`); o.Failure != journal.Denied || len(rec.attempts) != 1 {
		t.Errorf("outcome = %+v, attempts %+v", o, rec.attempts)
	}
}

// Some endpoints read the client's credentials from the body alone; that is
// found out once.
func TestClientCredentialsInTheBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := startIssuer(t, "30s")
		defer i.stop()
		i.inBody, i.life = true, "100"
		for range 4 {
			if o, _ := i.run(t, "act", `{}`); !o.Success {
				t.Errorf("outcome = %+v", o)
			}
			time.Sleep(100 * time.Second) // fake clock
		}
		if n := len(i.times()); n != 5 {
			t.Errorf("%d requests to the endpoint, want 5 for 4 tokens", n)
		}
	})
}

// The client's credentials follow no redirect.
func TestATokenEndpointsRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		elsewhere := serve(t, answer(200, "application/json", `{"access_token":"a"}`))
		endpoint := serve(t, redirecting(status, elsewhere.URL+"/token"))
		up := serve(t, nil)
		setting := `auth: { oauth2: { token_url: "` + endpoint.URL + `/token", client_id: a, client_secret: "${TOKEN}" } }`
		b := newBench(t, upstreamTable(up.URL, setting, throughCRM))
		o, _ := b.run(t, "act", `{}`)
		noAccess(t, o, "Do not try again.")
		if len(elsewhere.requests()) != 0 || len(up.requests()) != 0 {
			t.Errorf("%d: %d requests elsewhere, %d to the service", status, len(elsewhere.requests()), len(up.requests()))
		}
	}
}

// The service is asked about a lost request with a token, and with a new one
// when that is refused.
func TestQuestionsCarryAToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := startIssuer(t, "30s")
		defer i.stop()
		o, rec := i.run(t, "lost", `{}`)
		if o != journal.Success("done") || len(rec.attempts) != 2 || !rec.attempts[1].Recover {
			t.Errorf("outcome = %+v, attempts %+v", o, rec.attempts)
		}
		i.answer = func(n int, _ http.ResponseWriter, _ *http.Request) bool { return n < 0 }
		call := i.call("lost", `{}`)
		call.State, call.SentAt = journal.Running, time.Now()
		i.revoked["token-1"] = true
		o, err := i.Forward(t.Context(), call, journal.Session{ID: "sess_1"}, &recorder{})
		if err != nil || o != journal.Success("done") || fmt.Sprint(i.used) != "[token-1 token-1 token-1 token-2]" {
			t.Errorf("outcome = %+v (%v), tokens %v", o, err, i.used)
		}
	})
}

// Where the route brings its own Authorization, no token is fetched, nor is one
// for a request that is only shown.
func TestNoTokenIsFetchedThatNobodyNeeds(t *testing.T) {
	t.Parallel()
	endpoint := serve(t, answer(200, "application/json", `{"access_token":"a"}`))
	up := serve(t, answer(401, "text/plain", "no"))
	setting := `auth: { oauth2: { token_url: "` + endpoint.URL + `/token", client_id: a, client_secret: "${TOKEN}" } }`
	b := newBench(t, upstreamTable(up.URL, setting, throughCRM,
		`own: { upstream: crm, path: /x, headers: { authorization: "Bearer mine" } }`))
	b.Try(t.Context(), forward.Trial{Function: "act", DryRun: true})
	if o, rec := b.run(t, "own", `{}`); o.Failure != journal.Denied || len(rec.attempts) != 1 {
		t.Errorf("outcome = %+v, attempts %+v", o, rec.attempts)
	}
	if len(endpoint.requests()) != 0 || up.requests()[0].header.Get("Authorization") != "Bearer mine" {
		t.Errorf("%d tokens were fetched", len(endpoint.requests()))
	}
}

// A reload leaves the token in force, unless other tokens are asked for.
func TestAReloadKeepsTheToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		current := parse(t, issuerTable(oauth2Setting, "30s"))
		i := startIssuer(t, "30s", func(c *forward.Config) { c.Table = func() *router.Table { return current } })
		defer i.stop()
		i.answer = func(_ int, w http.ResponseWriter, r *http.Request) bool {
			if r.PostFormValue("scope") == "all" {
				i.good["for-all"] = time.Now().Add(time.Hour)
				answer(200, "application/json", `{"access_token":"for-all"}`)(w, r)
				return true
			}
			return false
		}
		for _, setting := range []string{oauth2Setting, oauth2Setting, strings.Replace(oauth2Setting, "[read, write]", "[all]", 1)} {
			current = parse(t, issuerTable(setting, "30s"))
			i.run(t, "act", `{}`)
		}
		if fmt.Sprint(i.used) != "[token-1 token-1 for-all]" || len(i.times()) != 2 {
			t.Errorf("tokens %v in %d fetches", i.used, len(i.times()))
		}
	})
}

// A client secret is read again for each token.
func TestTheClientSecretsFileIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		file := newFile(t, "wrong")
		setting := strings.Replace(oauth2Setting, `client_secret: "${TOKEN}"`, "client_secret_file: "+file, 1)
		table := parse(t, issuerTable(setting, "30s"))
		i := startIssuer(t, "30s", func(c *forward.Config) { c.Table = func() *router.Table { return table } })
		defer i.stop()
		o, _ := i.run(t, "act", `{}`)
		noAccess(t, o, "Do not try again.")
		writeFile(t, file, secrets()["TOKEN"]+"\n")
		time.Sleep(2 * time.Second) // fake clock
		if o, _ := i.run(t, "act", `{}`); !o.Success {
			t.Errorf("outcome = %+v", o)
		}
	})
}

// A stop ends the calls that wait, and the fetch with the forwarder.
func TestAStopEndsTheWaitForAToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := startIssuer(t, "30s")
		defer i.stop()
		i.answer = hangUntilGone
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("stopped")
		time.AfterFunc(time.Second, func() { cancel(stopped) })
		rec := &recorder{}
		_, err := i.Forward(ctx, i.call("act", `{}`), journal.Session{ID: "sess_1"}, rec)
		if !errors.Is(err, stopped) || time.Since(i.began) != time.Second || len(rec.attempts) != 0 {
			t.Errorf("error = %v after %s, attempts %+v", err, time.Since(i.began), rec.attempts)
		}
		i.Close()
		if took := time.Since(i.began); took != time.Second {
			t.Errorf("closed after %s", took)
		}
	})
}
