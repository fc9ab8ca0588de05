package router_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"functionbridge/internal/router"
)

// manyRoutes is a table with n routes, a fourth each: shorthand, templated,
// with parameters, with headers and variables.
func manyRoutes(n int) []byte {
	var out strings.Builder
	out.WriteString("version: 1\nupstreams:\n  crm: { url: \"http://crm:8080/api\", headers: { X-Key: \"${KEY}\" } }\nroutes:\n")
	for i := range n {
		switch i % 4 {
		case 0:
			fmt.Fprintf(&out, "  function_%d: http://service-%d:8080/run\n", i, i)
		case 1:
			fmt.Fprintf(&out, "  function_%d: { upstream: crm, method: GET, path: \"/items/{id}{?expand*}\" }\n", i)
		case 2:
			fmt.Fprintf(&out, "  function_%d:\n    url: http://service-%d:8080/run\n    description: Does something.\n    parameters:\n      type: object\n"+
				"      properties: { id: { type: string, pattern: \"^[a-z]+$\" }, n: { type: integer, minimum: 0 } }\n      required: [id]\n      additionalProperties: false\n", i, i)
		default:
			fmt.Fprintf(&out, "  function_%d: { url: \"http://service-%d:8080/run\", timeout: 5s, retry: { attempts: 2 }, headers: { X-Token: \"${KEY}\", X-User: \"{session.metadata.user_id}\" } }\n", i, i)
		}
	}
	return []byte(out.String())
}

func loadMany(tb testing.TB, n int) *router.Table {
	tb.Helper()
	table, err := router.Parse("routes.yaml", manyRoutes(n), envOf(map[string]string{"KEY": "k"}))
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

func TestThousandRoutesLoadInWellUnderASecond(t *testing.T) {
	start := time.Now()
	if n := len(loadMany(t, 1000).Routes()); n != 1000 {
		t.Fatalf("%d routes", n)
	}
	if took := time.Since(start); took > 5*time.Second { // a tenth of this is usual; the race detector is slow
		t.Errorf("took %v", took)
	}
}

func BenchmarkLoad1000(b *testing.B) {
	for b.Loop() {
		loadMany(b, 1000)
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		table := loadMany(b, n)
		name := "function_" + strconv.Itoa(n/2)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				if _, ok := table.Lookup(name); !ok {
					b.Fatal("not found")
				}
			}
		})
	}
}

func benchmarkBuild(b *testing.B, name, args string) {
	b.Helper()
	table := loadMany(b, 8)
	route, _ := table.Lookup(name)
	data, v := []byte(args), values()
	b.ReportAllocs()
	for b.Loop() {
		if err := route.Check(data); err != nil {
			b.Fatal(err)
		}
		request, err := route.Build(data, v)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := table.Wire(request); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuildPlain(b *testing.B) {
	benchmarkBuild(b, "function_0", `{"id":"abc","n":5,"text":"`+strings.Repeat("x", 1000)+`"}`)
}

func BenchmarkBuildTemplated(b *testing.B) {
	benchmarkBuild(b, "function_1", `{"id":"abc","expand":["a","b"],"q":"x y"}`)
}

func BenchmarkBuildChecked(b *testing.B) {
	benchmarkBuild(b, "function_2", `{"id":"abc","n":5}`)
}
