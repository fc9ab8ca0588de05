package forward_test

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"functionbridge/internal/forward"
	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

// What a route's requests have in common is kept, and no table may see what
// another one's was.
func TestEachTableSendsItsOwnValues(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(http.StatusOK, "application/json", `{}`))
	withValue := func(value string) *router.Table {
		table, err := router.Parse("routes.yaml",
			[]byte(table(`pay: { url: "`+up.URL+`/${KEY}", headers: { X-Key: "${KEY}" } }`)),
			router.Env{Lookup: func(string) (string, bool) { return value, true }})
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	tables := []*router.Table{withValue("one"), withValue("two")}
	var inForce atomic.Pointer[router.Table]
	inForce.Store(tables[0])
	b := newBench(t, table("other: http://other.test"), func(c *forward.Config) { c.Table = inForce.Load })
	for i := range 6 {
		inForce.Store(tables[i%2])
		_, rec := b.run(t, "pay", `{}`)
		if want := `{"route":"pay","method":"POST","url":"` + up.URL + `/${KEY}","headers":[{"name":"X-Key","value":"${KEY}"}],"body_is_arguments":true}`; string(rec.requests[0]) != want {
			t.Errorf("journaled %s, want %s", rec.requests[0], want)
		}
	}
	for i, r := range up.requests() {
		want := []string{"one", "two"}[i%2]
		if got := r.header.Get("X-Key"); got != want || r.uri != "/"+want {
			t.Errorf("request %d: %s with X-Key %q, want %s", i, r.uri, got, want)
		}
	}
}

func TestCallsAtOnceKeepTheirNamesApart(t *testing.T) {
	t.Parallel()
	up := serve(t, answer(http.StatusOK, "application/json", `{}`))
	b := newBench(t, table("pay: "+up.URL))
	var calls sync.WaitGroup
	for i := range 32 {
		calls.Go(func() {
			call := b.call("pay", fmt.Sprintf(`{"n":%d}`, i))
			call.CallID = strconv.Itoa(i)
			if o, err := b.Forward(t.Context(), call, journal.Session{ID: "sess_1"}, &recorder{}); !o.Success || err != nil {
				t.Error(o, err)
			}
		})
	}
	calls.Wait()
	keys := map[string]bool{}
	for _, r := range up.requests() {
		if id := r.header.Get("Bridge-Call-Id"); r.body != `{"n":`+id+`}` {
			t.Errorf("call %s came with %s", id, r.body)
		}
		keys[r.header.Get("Idempotency-Key")] = true
	}
	if len(keys) != 32 {
		t.Errorf("%d keys for 32 calls", len(keys))
	}
}
