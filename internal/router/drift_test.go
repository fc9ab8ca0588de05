package router_test

import (
	"reflect"
	"strings"
	"testing"

	"functionbridge/internal/router"
)

const driftTable = `version: 1
routes:
  look:
    url: http://h/
    description: Look it up.
    parameters: { type: object, properties: { id: { type: integer, maximum: 100, minimum: 1.0 } }, required: [id] }
  pay:
    url: http://h/
    description: Pay it.
    async: true
    parameters: { type: object }
  plain: http://h/
`

const driftLook = `{"type":"function","name":"look","description":"Look it up.","parameters":` +
	`{"required":["id"],"properties":{"id":{"minimum":1,"maximum":1e2,"type":"integer"}},"type":"object"},"async":false}`

const driftPay = `{"type":"function","name":"pay","description":"Pay it.","parameters":{"type":"object"},"async":true}`

func TestToolsAreComparedWithTheTable(t *testing.T) {
	t.Parallel()
	table, err := router.Parse("routes.yaml", []byte(driftTable), router.Env{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		tools string
		want  router.Drift
	}{
		"the same, written otherwise": {`[` + driftLook + `,` + driftPay + `,{"type":"tool_search"}]`, router.Drift{}},
		"a function without a route":  {`[` + driftLook + `,` + driftPay + `,{"type":"function","name":"look_up","parameters":{}}]`, router.Drift{Missing: []string{"look_up"}}},
		"a route that is no tool":     {`[` + driftLook + `,` + driftPay + `,{"type":"function","name":"plain","parameters":{"type":"object"}}]`, router.Drift{}},
		"a route that it lacks":       {`[` + driftLook + `]`, router.Drift{Extra: []string{"pay"}}},
		"another bound":               {`[` + strings.Replace(driftLook, "1e2", "101", 1) + `,` + driftPay + `]`, router.Drift{Changed: []router.Change{{Function: "look", Differences: []string{"parameters.properties.id.maximum: the agent has 101, the table 100"}}}}},
		"another property": {`[` + strings.Replace(driftLook, `"minimum":1,`, `"title":null,`, 1) + `,` + driftPay + `]`, router.Drift{Changed: []router.Change{{Function: "look", Differences: []string{
			"parameters.properties.id.minimum: the agent has nothing, the table 1.0", "parameters.properties.id.title: the agent has null, the table nothing",
		}}}}},
		"another description": {`[` + driftLook + `,` + strings.Replace(driftPay, "Pay it.", "Pay.", 1) + `]`, router.Drift{Changed: []router.Change{{Function: "pay", Differences: []string{`description: the agent has "Pay.", the table "Pay it."`}}}}},
		"not async":           {`[` + driftLook + `,` + strings.Replace(driftPay, "true", "false", 1) + `]`, router.Drift{Changed: []router.Change{{Function: "pay", Differences: []string{"async: the agent has false, the table true"}}}}},
		"deferred":            {`[` + driftLook + `,` + strings.Replace(driftPay, `"async"`, `"defer_loading":true,"async"`, 1) + `]`, router.Drift{Changed: []router.Change{{Function: "pay", Differences: []string{"defer_loading: the agent has true, the table false"}}}}},
		"no parameters":       {`[` + driftLook + `,` + strings.Replace(driftPay, `"parameters":{"type":"object"},`, "", 1) + `]`, router.Drift{Changed: []router.Change{{Function: "pay", Differences: []string{`parameters: the agent has null, the table {"type":"object"}`}}}}},
		"no tools":            {`[]`, router.Drift{Extra: []string{"look", "pay"}}},
		"no JSON":             {`nonsense`, router.Drift{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := table.Drift([]byte(c.tools))
			if len(got.Missing) == 0 {
				got.Missing = nil
			}
			if len(got.Changed) == 0 {
				got.Changed = nil
			}
			if len(got.Extra) == 0 {
				got.Extra = nil
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if got.Any() != (len(c.want.Missing)+len(c.want.Changed) > 0) {
				t.Errorf("whether calls can fail: %t", got.Any())
			}
		})
	}
}
