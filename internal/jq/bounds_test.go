package jq_test

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"functionbridge/internal/jq"
)

// stoppedWithin runs a program that must be stopped, and soon.
func stoppedWithin(t *testing.T, limit time.Duration, program, input string) {
	t.Helper()
	started := time.Now()
	text, err := run(t, program, input)
	if err == nil {
		t.Errorf("%s gave %.60s", program, text)
	}
	if took := time.Since(started); took > limit {
		t.Errorf("%s took %v: %v", program, took, err)
	}
}

// generous is far more than MaxTime: the machine may be busy, and slower still
// with the race detector.
const generous = 5 * time.Second

func TestEndlessProgramsAreStopped(t *testing.T) {
	t.Parallel()
	for _, program := range []string{
		`last(repeat(.))`, `[limit(1000000000; repeat(1))]`, `def f: f; f`, `def f: 1 + f; f`, `def f: f, 1; f`, `def f(x): x | f(x); f(.)`,
		`[range(1e9)]`, `until(false; .)`, `[recurse(. + 1)]`, `last(range(infinite))`, `[while(true; . + 1)]`, `last(limit(1e9; repeat(1)))`,
		`reduce range(1e9) as $i (0; . + 1)`, `[foreach range(1e9) as $i (0; . + 1)]`, `label $out | repeat(.) | select(false) | break $out`, `any(repeat(1); . > 1)`,
	} {
		stoppedWithin(t, generous, program, `1`)
	}
}

func TestStoppedProgramCannotGoOnByCatchingIt(t *testing.T) {
	t.Parallel()
	for _, program := range []string{
		`try last(repeat(.)) catch 1`, `last(repeat(.))? // 1`, `[range(1e9)]? // 1`, `def f: try f catch f; f`, `def f: (f // 1); f`,
		`. as [$x] ?// $x | last(repeat($x))`, `first(try last(repeat(.)) catch 1, 2)`, `try ("x" * 1000000000) catch 1`,
	} {
		stoppedWithin(t, generous, program, `1`)
	}
}

// Each of these is one operation that would take minutes or gigabytes, or the whole
// process with it, of an input of some kilobytes.
func TestOperationsThatExplodeAreStopped(t *testing.T) {
	t.Parallel()
	const kib256 = 256 << 10
	zeros := func(n int) string { return "[" + strings.Repeat("0,", n) + "0]" }
	letters := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	for program, input := range map[string]string{
		`.a * .b`:                                                  `{"a":` + letters(1000) + `,"b":1e9}`,
		`.b * .a`:                                                  `{"a":` + letters(1000) + `,"b":1e9}`,
		`.a *= .b`:                                                 `{"a":` + letters(1000) + `,"b":1e9}`,
		`. as {$a, $b} | $a * ($b | tonumber)`:                     `{"a":` + letters(1000) + `,"b":"2000000000"}`,
		`.list[.n] = 1`:                                            `{"list":[],"n":500000000}`,
		`.list[.n] |= 1`:                                           `{"list":[],"n":500000000}`,
		`.list[.n] += 1`:                                           `{"list":[],"n":500000000}`,
		`setpath(["list", .n]; 1)`:                                 `{"list":[],"n":500000000}`,
		`getpath(["list", .n]) = 1`:                                `{"list":[],"n":500000000}`,
		`.n as $n | .list | nth($n) = 1`:                           `{"list":[],"n":500000000}`,
		`.n as $n | pick(.list[$n])`:                               `{"list":[],"n":500000000}`,
		`transpose`:                                                `[` + zeros(kib256/4) + strings.Repeat(",[]", kib256/6) + `]`,
		`.sep as $s | .list | join($s)`:                            `{"list":` + zeros(kib256/4) + `,"sep":` + letters(kib256/2) + `}`,
		`.a - .b`:                                                  `{"a":[` + strings.Repeat("1,", kib256/4) + `1],"b":` + zeros(kib256/4) + `}`,
		`.a as $a | .b | contains($a)`:                             `{"a":[` + strings.Repeat("1,", kib256/4) + `1],"b":` + zeros(kib256/4) + `}`,
		`.a as $a | .b | indices($a)`:                              `{"a":[` + strings.Repeat("0,", kib256/8) + `1],"b":` + zeros(kib256/4) + `}`,
		`.text as $t | [limit(.n; repeat($t))] | add`:              `{"text":` + letters(kib256) + `,"n":100000}`,
		`.text as $t | [limit(.n; repeat($t))] | sort`:             `{"text":` + letters(kib256) + `,"n":100000}`,
		`reduce range(.n) as $i ("x"; . + .)`:                      `{"n":64}`,
		`reduce range(.n) as $i ([0]; . + .)`:                      `{"n":64}`,
		`reduce range(.n) as $i ({}; . + {"\($i)": .})`:            `{"n":1000000}`,
		`reduce range(.n) as $i (3; . * .)`:                        `{"n":64}`,
		`reduce range(.n) as $i ("'"; @sh)`:                        `{"n":64}`,
		`reduce range(.n) as $i ("\""; tojson)`:                    `{"n":64}`,
		`reduce range(.n) as $i ("x"; "\(.)\(.)")`:                 `{"n":64}`,
		`reduce range(.n) as $i (0; [., .])`:                       `{"n":64}`,
		`reduce range(.n) as $i (0; [., .]) | tojson`:              `{"n":64}`,
		`reduce range(.n) as $i (0; [., .]) | . == .`:              `{"n":64}`,
		`reduce range(.n) as $i (0; [., .]) | flatten`:             `{"n":64}`,
		`reduce range(.n) as $i (0; [., .]) | unique`:              `{"n":64}`,
		`reduce range(.n) as $i (0; [., .]) | [.] - [.]`:           `{"n":64}`,
		`reduce range(.n) as $i (0; [., .]) | error(.)`:            `{"n":64}`,
		`reduce range(.n) as $i (0; [., .]) | del(.[0])`:           `{"n":64}`,
		`reduce range(.n) as $i (0; [., .]) | group_by(.)`:         `{"n":64}`,
		`reduce range(.n) as $i (0; [., .]) | IN(.)`:               `{"n":64}`,
		`reduce range(.n) as $i (0; [.]) | tojson`:                 `{"n":5000000}`,
		`reduce range(.n) as $i (0; [.])`:                          `{"n":5000000}`,
		`reduce range(.n) as $i (0; [.]) | . == [0]`:               `{"n":5000000}`,
		`.text as $t | [range(.n) as $i | $t + "x"] | length`:      `{"text":` + letters(kib256) + `,"n":100000}`,
		`.n as $n | .list as $l | [range($n) | $l + [1]] | length`: `{"list":` + zeros(kib256/4) + `,"n":100000}`,
		`[foreach range(.n) as $i (.text; . + "x"; .)] | length`:   `{"text":` + letters(kib256) + `,"n":100000}`,
		`def f(n): if n == 0 then "" else (. + "x" | f(n - 1)) + "" end; .n as $n | .text | f($n)`: `{"text":` + letters(kib256) + `,"n":100000}`,
		`[combinations(.n)]`:                        `{"n":1000000000}`,
		`.re as $re | .text | test($re)`:            `{"re":"(x{1,30}){1,30}(y{1,30}){1,30}z","text":"` + strings.Repeat("xy", kib256/2) + `"}`,
		`.format as $f | 1425599507 | strftime($f)`: `{"format":"` + strings.Repeat("%999Y", kib256/5) + `"}`,
		`[paths]`: "[" + strings.Repeat(strings.Repeat("[", 900)+strings.Repeat("]", 900)+",", kib256/1800) + "0]",
	} {
		stoppedWithin(t, generous, program, input)
	}
}

// These do a lot, but not too much.
func TestLargeInputsAreWorkedOn(t *testing.T) {
	var rows []string
	for i := range 500 {
		rows = append(rows, fmt.Sprintf(`{"id":%d,"name":"item %d","tags":["a","b"],"price":%d.50,"note":"some text of the service"}`, i, i, i))
	}
	list := `{"items":[` + strings.Join(rows, ",") + `],"text":"` + strings.Repeat(`a line of text\n`, 2000) + `"}`
	for program, want := range map[string]string{
		`.items | map({id, name}) | length`:                                         `500`,
		`[.items[] | select(.price > 400) | .id] | length`:                          `100`,
		`.items | sort_by(-.price) | .[0].id`:                                       `499`,
		`.items | group_by(.id % 10) | map(length) | add`:                           `500`,
		`.items | map(.name | ascii_upcase) | join(", ") | length`:                  `4888`,
		`.items | map({key: .name, value: .id}) | from_entries | length`:            `500`,
		`.items | INDEX(.id) | keys | length`:                                       `500`,
		`.text | split("\n") | length`:                                              `2001`,
		`.text | index("no such words in it")`:                                      `null`,
		`.text | gsub("line"; "row") | length`:                                      `28000`,
		`.text | [scan("line")] | length`:                                           `2000`,
		`.text | test("^(a|line|of|text|\\s)+$")`:                                   `true`,
		`reduce .items[] as $i ({}; . + {($i.tags[0]): $i.id})`:                     `{"a":499}`,
		`reduce .items[] as $i ([]; . + [$i.id]) | length`:                          `500`,
		`.items | del(.[].note) | map(has("note")) | any`:                           `false`,
		`[.items[].tags[]] | unique`:                                                `["a","b"]`,
		`.items | map(.id) | . as $all | [range(0; length; 100)] | map($all[.])[1]`: `100`,
		`reduce .items[] as $i ({}; .[$i.name] = $i.id) | length`:                   `500`,
		`reduce .items[] as $i ({}; . + {($i.name): $i.id}) | length`:               `500`,
		`reduce .items[] as $i (""; . + $i.name + ",") | length`:                    `4390`,
		`reduce range(700) as $i ({}; .["k\($i)"] = $i) | length`:                   `700`,
		`reduce range(700) as $i ([]; .[$i] = $i) | length`:                         `700`,
		`reduce range(1500) as $i ([]; . + [$i]) | length`:                          `1500`,
		`reduce range(20) as $i (.; del(.items[0])) | .items | length`:              `480`,
		`.items as $all | [.items[] | select(. == $all[3])] | length`:               `1`,
		`.items | tojson | length`:                                                  `47171`,
	} {
		got, err := run(t, program, list)
		if err != nil || got != want {
			t.Errorf("%s: %.100s, %v, want %s", program, got, err, want)
		}
	}
}

func heapObjects() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// peakOf is how far the heap grew while f ran, garbage and all.
func peakOf(f func()) (peak uint64) {
	runtime.GC()
	base, stop, top := heapObjects(), make(chan struct{}), make(chan uint64)
	go func() {
		highest := base
		for {
			highest = max(highest, heapObjects())
			select {
			case <-stop:
				top <- highest
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	f()
	close(stop)
	return <-top - base
}

// cookbook are programs like those of the README.
func cookbook() []string {
	return []string{
		`{order: .order_id, cents: (.amount * 100 | round), by: $call.id}`, `{q: .q, tags: (.tags | join(","))}`, `.data`, `.status == "ok"`, `.message // .error`,
		`{items: [.items[]? | {sku: .a, count: .b}]}`, `[.[]? | {id: .a, name: "\(.b)"}]`, `with_entries(select(.value != null))`, `{amount: (.amount | tostring), at: (now | floor | type)}`,
		`.items | map(select(.a == 1)) | sort_by(.b)`, `.amount * .n`, `.text | gsub("\\s+"; " ")`, `"\(.a): \(.b)"`, `to_entries | map("\(.key)=\(.value)") | join("&")`, `del(.secret)`, `.[0:5]`, `.. | strings`,
	}
}

// hostileInputs are as long as a reply may be by default.
func hostileInputs() map[string]string {
	const size = 256 << 10
	filled := func(head, part, tail string) string {
		return head + strings.Repeat(part, (size-len(head)-len(tail))/len(part)) + tail
	}
	var members strings.Builder
	for i := range size / 12 {
		fmt.Fprintf(&members, `"%x":1,`, i)
	}
	return map[string]string{
		"small objects": filled("[", `{"":1},`, "0]"),
		"objects":       filled(`{"items":[`, `{"a":1,"b":2},`, `0],"n":1000000000}`),
		"members":       "{" + members.String() + `"":0}`,
		"deep":          filled("[", strings.Repeat("[", 900)+strings.Repeat("]", 900)+",", "0]"),
		"a long text":   filled(`{"amount":"`, "a", `","n":1000000000,"text":"a"}`),
		"blanks":        filled(`{"text":"`, " a", `"}`),
		"tags":          filled(`{"tags":["`, `a","`, `"],"q":1}`),
	}
}

// measure is the highest peak of a program on all hostile inputs.
func measure(t *testing.T, text string) (worst uint64, of string) {
	t.Helper()
	program := compile(t, text)
	for name, input := range hostileInputs() {
		peak := peakOf(func() {
			_, _ = on(program, input, map[string]any{"id": "call_1"}) // what is refused was made all the same
		})
		if peak > worst {
			worst, of = peak, name
		}
	}
	return worst, of
}

func TestNoInputMakesAProgramTakeMuchMemory(t *testing.T) {
	const mib = 1 << 20
	for _, text := range cookbook() {
		worst, input := measure(t, text)
		t.Logf("%2d MiB: %s of %s", worst/mib, text, input)
		if worst > 64*mib {
			t.Errorf("%d MiB: %s of %s", worst/mib, text, input)
		}
	}
	// Half of this is what the collector has not seen yet.
	for _, text := range []string{`[range(1e9)]`, `def f: if . > 0 then 1 + (. - 1 | f) else 0 end; 1e9 | f`, `def f: f, 1; f`, `[.. | {a: .}]`} {
		if worst, input := measure(t, text); worst > 128*mib {
			t.Errorf("%d MiB: %s of %s", worst/mib, text, input)
		}
	}
}

func TestOutputIsBounded(t *testing.T) {
	t.Parallel()
	long := `"` + strings.Repeat("a", 1<<20-10) + `"`
	for program, want := range map[string]string{`.`: "", `[., .]`: "more than 1 MiB", `{(.): .}`: "more than 1 MiB", `. + "123456789012"`: "more than 1 MiB"} {
		_, err := run(t, program, long)
		if failure, ok := errors.AsType[*jq.RunError](err); (want == "") != (err == nil) || (want != "" && (!ok || !strings.Contains(failure.Why, want))) {
			t.Errorf("%s: %v", program, err)
		}
	}
}

func TestInputsThatNestTooDeepOrHoldHugeNumbersAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 5000), strings.Repeat("9", 6000), `{"a":-` + strings.Repeat("9", 6000) + `}`, `0.` + strings.Repeat("1", 6000),
		``, ` `, `{`, `{"a":1}}`, `1 2`, `{"a":1} x`, `nan`, `{'a':1}`, `{"a":1,}`, "\ufeff1",
	} {
		if err := jq.Read([]byte(text), func(jq.Input) {}); err == nil {
			t.Errorf("%.40s was taken", text)
		}
	}
	for _, text := range []string{`1`, ` {"a" : 1 } ` + "\n", `"\"[[[[\\"`, `null`, strings.Repeat("[", 900) + strings.Repeat("]", 900), `{"a":"` + strings.Repeat("9", 6000) + `"}`} {
		if err := jq.Read([]byte(text), func(jq.Input) {}); err != nil {
			t.Errorf("%.40s: %v", text, err)
		}
	}
}
