package forward_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"functionbridge/internal/journal"
)

func TestRedirectsThatAreNotFollowed(t *testing.T) {
	t.Parallel()
	other := serve(t, answer(200, "text/html", "login"))
	for _, status := range []int{300, 301, 302, 303, 304, 305, 307, 308} {
		for name, location := range map[string]string{
			"other host":   other.URL + "/",
			"other scheme": "https://{host}/",
			"path":         "/login",
			"nonsense":     "http://%zz",
			"none":         "",
		} {
			if name == "path" && status > 303 {
				continue
			}
			t.Run(fmt.Sprint(status, " ", name), func(t *testing.T) {
				t.Parallel()
				up := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if location != "" {
						w.Header().Set("Location", strings.ReplaceAll(location, "{host}", r.Host))
					}
					w.WriteHeader(status)
				})
				b := newBench(t, table("act: { url: \""+up.URL+"/x?api_key=${TOKEN}\", idempotent: true, headers: { X-Api-Key: \"${TOKEN}\" } }"))
				o, rec := b.run(t, "act", `{"a":1}`)
				if o.Failure != journal.Rejected || !strings.Contains(o.Error, fmt.Sprintf("redirect %d", status)) || len(rec.attempts) != 1 {
					t.Errorf("outcome = %+v, attempts %+v", o, rec.attempts)
				}
				if len(up.requests()) != 1 {
					t.Errorf("%d requests", len(up.requests()))
				}
			})
		}
	}
	t.Cleanup(func() {
		if got := other.requests(); len(got) != 0 {
			t.Errorf("the other host was sent %+v", got)
		}
	})
}

func TestRedirectsWithinTheServiceKeepTheRequest(t *testing.T) {
	t.Parallel()
	for _, status := range []int{307, 308} {
		for _, method := range []string{"POST", "DELETE"} {
			t.Run(fmt.Sprint(status, " ", method), func(t *testing.T) {
				t.Parallel()
				up := serve(t, func(w http.ResponseWriter, r *http.Request) {
					switch r.URL.Path {
					case "/a":
						redirecting(status, "b?x=1#f")(w, r)
					case "/b":
						redirecting(status, "http://"+strings.ToUpper(r.Host)+"/c")(w, r)
					default:
						_, _ = fmt.Fprint(w, "arrived")
					}
				})
				b := newBench(t, table(fmt.Sprintf("act: { url: %s/a, method: %s, headers: { X-Api-Key: \"${TOKEN}\" } }", up.URL, method)))
				o, rec := b.run(t, "act", `{"a":1}`)
				if o != journal.Success("arrived") || len(rec.attempts) != 1 || rec.sendings != 1 {
					t.Errorf("outcome = %+v, %+v", o, rec)
				}
				got := up.requests()
				if len(got) != 3 || got[1].uri != "/b?x=1" || got[2].uri != "/c" {
					t.Fatalf("requests = %+v", got)
				}
				for _, r := range got[1:] {
					if r.method != method || r.body != got[0].body ||
						r.header.Get("X-Api-Key") != secrets()["TOKEN"] || r.header.Get("Idempotency-Key") != got[0].header.Get("Idempotency-Key") {
						t.Errorf("changed on the way: %+v", r)
					}
					if r.header.Get("Referer") != "" {
						t.Errorf("Referer = %q", r.header.Get("Referer"))
					}
				}
			})
		}
	}
}

func TestARedirectLoopEnds(t *testing.T) {
	t.Parallel()
	up := serve(t, redirecting(307, "/again"))
	b := newBench(t, table("act: "+up.URL))
	o, _ := b.run(t, "act", `{}`)
	if o.Failure != journal.Rejected || len(up.requests()) > 12 {
		t.Errorf("outcome = %+v after %d requests", o, len(up.requests()))
	}
}
