package router_test

import (
	"errors"
	"strings"
	"testing"

	"functionbridge/internal/router"
)

// checkedTable has parameters as services have them: nested objects, lists, an enum and a pattern.
const checkedTable = `
version: 1
routes:
  order:
    url: http://orders:8080/orders
    description: Place an order.
    parameters:
      type: object
      properties:
        customer_id: { type: string, pattern: "^cus_[a-z0-9]+$" }
        currency: { enum: [EUR, USD, NOK] }
        ship_by: { type: string, format: date }
        lines:
          type: array
          minItems: 1
          items:
            type: object
            properties: { sku: { type: string }, quantity: { type: integer, minimum: 1 }, note: { type: string, maxLength: 200 } }
            required: [sku, quantity]
            additionalProperties: false
      required: [customer_id, lines]
      additionalProperties: false
`

func orderOf(lines int) []byte {
	line := strings.Repeat(`,{"sku":"A-1","quantity":2,"note":"as last time"}`, lines)
	return []byte(`{"customer_id":"cus_1a","currency":"NOK","ship_by":"2026-12-24","lines":[` + line[1:] + `]}`)
}

// BenchmarkCheck holds arguments against the JSON Schema of their route, and nothing else; BenchmarkBuildChecked has the
// request built too.
func BenchmarkCheck(b *testing.B) {
	table, err := router.Parse("routes.yaml", []byte(checkedTable), envOf(nil))
	if err != nil {
		b.Fatal(err)
	}
	route, _ := table.Lookup("order")
	for _, c := range []struct {
		name    string
		args    []byte
		refused bool
	}{
		{"arguments=1-line", orderOf(1), false},
		{"arguments=20-lines", orderOf(20), false},
		{"arguments=refused", []byte(`{"customer_id":"cus_1a","lines":[{"sku":"A-1","quantity":0}],"carrier":"x"}`), true},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(c.args)))
			for b.Loop() {
				if err := route.Check(c.args); errors.As(err, new(*router.ArgumentError)) != c.refused {
					b.Fatal(err)
				}
			}
		})
	}
}
