package router_test

import (
	"testing"

	"functionbridge/internal/router"
)

func TestSmoke(t *testing.T) {
	table, err := router.Parse("routes.yaml", []byte(`version: 1
upstreams:
  crm: {url: "http://crm:8080/api/?k=${K}", headers: {X-Tenant: acme, Authorization: "Bearer ${TOK}"}}
defaults: {timeout: 12s, retry: {attempts: 5}}
routes:
  get_weather: http://weather:8080/lookup
  get_customer:
    description: d
    parameters: {type: object, properties: {customer_id: {type: string}}, required: [customer_id]}
    upstream: crm
    method: GET
    path: /customers/{customer_id}{?expand*}
    headers: {X-User: "{session.metadata.user?}"}
    query: {a: "b c$$"}
`), router.Env{Lookup: func(n string) (string, bool) { return "s&" + n, true }})
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string]string{"get_weather": `{"a":1}`, "get_customer": `{"customer_id":"José/$","expand":["a","b"],"z":{"q":1},"n":null,"l":[1,2]}`} {
		r, _ := table.Lookup(name)
		req, err := r.Build([]byte(args), router.Values{})
		t.Logf("%+v %v", req, err)
		w, err := table.Wire(req)
		t.Logf("%+v %v", w, err)
	}
	t.Logf("%+v", table.Describe())
	t.Logf("%s", table.Tools())
	_, err = router.Parse("routes.yaml", []byte("version: 2\nroutez: {}\nroutes:\n  a: {urll: x, timeout: 30}\n  b: http://x{y}\n  c: ftp://x\n  c: http://x\n  d: {url: http://x, body: .x, upstream: foo}\n"), router.Env{})
	t.Log("\n" + err.Error())
}
