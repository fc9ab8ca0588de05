package jq_test

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"functionbridge/internal/jq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNumbersStayExact(t *testing.T) {
	t.Parallel()
	const input = `{"id":9007199254740993,"big":123456789012345678901234567890,"neg":-9007199254740993,"price":1.10,"tiny":1e-7,"huge":1E400,"zero":-0,"text":"9007199254740993"}`
	for program, want := range map[string]string{
		`.`:                          `{"big":123456789012345678901234567890,"huge":1E400,"id":9007199254740993,"neg":-9007199254740993,"price":1.10,"text":"9007199254740993","tiny":1e-7,"zero":-0}`,
		`{id, big, price}`:           `{"big":123456789012345678901234567890,"id":9007199254740993,"price":1.10}`,
		`[.id, .big] | tojson`:       `"[9007199254740993,123456789012345678901234567890]"`,
		`"\(.id) \(.big) \(.price)"`: `"9007199254740993 123456789012345678901234567890 1.10"`,
		`.id + 0`:                    `9007199254740993`,
		`.big + 1`:                   `123456789012345678901234567891`,
		`.big - .id`:                 `123456789012336671701979826897`,
		`-.id`:                       `-9007199254740993`,
		`.neg | abs`:                 `9007199254740993`,
		`.id * 1000`:                 `9007199254740993000`,
		`.big * .big`:                `15241578753238836750495351562536198787501905199875019052100`,
		`.id % 10`:                   `3`,
		`.big / 10`:                  `12345678901234567890123456789`,
		`[.id, .big] | map(floor, ceil, round, trunc)`: `[9007199254740993,9007199254740993,9007199254740993,9007199254740993,123456789012345678901234567890,123456789012345678901234567890,123456789012345678901234567890,123456789012345678901234567890]`,
		`.text | tonumber`:                                         `9007199254740993`,
		`.id == 9007199254740993`:                                  `true`,
		`.id == 9007199254740992`:                                  `false`,
		`[.id, 9007199254740992] | sort`:                           `[9007199254740992,9007199254740993]`,
		`[.big, .id, .big] | unique`:                               `[9007199254740993,123456789012345678901234567890]`,
		`{a: 9007199254740993, b: 123456789012345678901234567890}`: `{"a":9007199254740993,"b":123456789012345678901234567890}`,
		`[.. | numbers] | max`:                                     `1E400`,
		`.id as $x | [$x, ($x | tostring)]`:                        `[9007199254740993,"9007199254740993"]`,
		// Decimals are calculated with as float64.
		`.price + 0`:          `1.1`,
		`19.99 * 100`:         `1998.9999999999998`,
		`19.99 * 100 | round`: `1999`,
	} {
		got, err := run(t, program, input)
		if err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", program, got, err, want)
		}
	}
}

func TestNumbersThatJSONCannotWriteAreNoOutput(t *testing.T) {
	t.Parallel()
	for _, program := range []string{`nan`, `infinite`, `-infinite`, `[1, nan]`, `{a: infinite}`, `.huge + 1`, `.huge * .huge`} {
		if got, err := run(t, program, `{"huge":1e400}`); err == nil {
			t.Errorf("%s: %s", program, got)
		}
	}
}

func TestTextIsAStringAsItIsAndAnythingElseAsCompactJSON(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]string{
		`.s`: "a \"b\"\n<é>\u2028", `.`: "{\"b\":[1,{}],\"s\":\"a \\\"b\\\"\\n<é>\u2028\"}", `.b`: `[1,{}]`, `null`: `null`, `true`: `true`, `""`: ``, `.b[0]`: `1`,
	} {
		err := jq.Read([]byte(`{"s": "a \"b\"\n<é>\u2028", "b": [1, {}]}`), func(in jq.Input) {
			output, err := compile(t, program).Run(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := output.Text(); err != nil || got != want {
				t.Errorf("%s: %q, %v, want %q", program, got, err, want)
			}
			if output.IsNull() != (program == "null") || output.IsText() != (program == ".s" || program == `""`) || output.True() != (program != "null") {
				t.Errorf("%s: %+v", program, output)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestProgramGivesExactlyOneValue(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]string{
		`empty`: "the program gives no value", `1, 2`: "the program gives more than one value", `.[]`: "the program gives more than one value", `1, error("x")`: "x", `select(false)`: "the program gives no value",
	} {
		if _, err := run(t, program, `[1,2]`); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", program, err, want)
		}
	}
}

func TestFailuresRepeatNothingOfTheInputByThemselves(t *testing.T) {
	t.Parallel()
	const input = `{"a":"s3cret","b":["s3cret \"(x)\" "],"c":{"s3cret":1},"n":12345}`
	for program, want := range map[string]string{
		`.a + .n`:                         "cannot add: string and number",
		`.a - .b`:                         "cannot subtract: string and array",
		`.a[]`:                            "cannot iterate over: string",
		`.a.x`:                            "expected an object but got: string",
		`.b.x`:                            "expected an object but got: array",
		`.b | implode`:                    "implode cannot be applied to: array",
		`.a | fromjson`:                   "fromjson cannot be applied to",
		`.a | tonumber`:                   "tonumber cannot be applied to: invalid number",
		`.n | split(.)`:                   "split cannot be applied to: number",
		`setpath(.b; 1) | .x`:             "",
		`.n | .a = 1`:                     "setpath cannot be applied to: expected an object but got: number",
		`{(.n): 1}`:                       "expected a string for object key but got: number",
		`.n | has("s3cret")`:              "has cannot be applied to: number",
		`.a | test("(" + "x")`:            "not a regular expression of RE2: missing closing",
		`.b | map(floor)`:                 "floor cannot be applied to: string",
		`.a | @csv`:                       "@csv cannot be applied to: string",
		`.a | strptime("%Y")`:             "strptime cannot be applied to",
		`.a | error`:                      "s3cret",
		`error("no " + .a)`:               "no s3cret",
		`error({code: .n})`:               `{"code":12345}`,
		`error(null)`:                     "the program raised an error",
		`try error("x") catch error("y")`: "y",
	} {
		_, err := run(t, program, input)
		if want == "" {
			continue
		}
		failure, ok := errors.AsType[*jq.RunError](err)
		if !ok || !strings.Contains(failure.Error(), want) || strings.Contains(failure.Why, "s3cret") || strings.Contains(failure.Why, "12345") {
			t.Errorf("%s: %q, want %q", program, err, want)
		}
	}
}

func TestProgramsThatCannotBeUsedAreToldWithTheirPlace(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]string{
		``:          `1:1 the program is empty`,
		"  \n":      `1:1 the program is empty`,
		`.a |`:      `1:5 the program ends too early`,
		`.a | map(`: `1:10 the program ends too early`,
		`.a |
  foo(`: `2:7 the program ends too early`,
		`{a: .b c: 1}`:               `1:8 unexpected token "c"`,
		`.a ) .b`:                    `1:4 unexpected token ")"`,
		`"a`:                         `1:3 the program ends too early`,
		`"\x"`:                       `1:2 invalid escape sequence`,
		`1 + + `:                     `1:6 the program ends too early`,
		`if .a then 1`:               `1:13 the program ends too early`,
		`.é`:                         `1:2 unexpected token "é"`,
		"\"é\" |\n nope":             `2:2 there is no function nope`,
		`.a | lengt`:                 `1:6 there is no function lengt (length)`,
		`split`:                      `1:1 the function split takes 1 or 2 arguments, not 0`,
		`.x | map(.; .)`:             `1:6 the function map takes 1 argument, not 2`,
		`$sesion.id`:                 `1:1 there is no variable $sesion ($call)`,
		`.a as $x | $y`:              `1:12 there is no variable $y`,
		`break $out`:                 `1:7 there is no label $out`,
		`env.HOME`:                   `1:1 env: a program sees its input and its variables`,
		`{a: $ENV.HOME}`:             `1:5 $ENV: a program sees`,
		`{$ENV}`:                     `1:2 $ENV: a program sees`,
		`[., input]`:                 `1:5 input: a program sees`,
		`[inputs]`:                   `1:2 inputs: a program sees`,
		`debug`:                      `1:1 debug: a program does nothing but give a value`,
		`debug("x")`:                 `1:1 debug: a program does nothing`,
		`stderr`:                     `1:1 stderr: a program does nothing`,
		`input_filename`:             `1:1 input_filename: a program sees`,
		`halt_error`:                 `1:1 halt_error: a program does nothing`,
		`$__loc__`:                   `1:1 $__loc__: is not available`,
		`modulemeta`:                 `1:1 modulemeta: is not available`,
		`import "a" as a; .`:         `1:1 a program cannot load modules`,
		`include "a"; .`:             `1:1 a program cannot load modules`,
		`import "a" as $a; $a`:       `1:1 a program cannot load modules`,
		`"ab" * .n`:                  `1:6 "ab" * .n repeats a text by a number that is not a constant`,
		`.n * "ab"`:                  `1:4 .n * "ab" repeats`,
		`{a: ("-" * (.width - 2))}`:  `1:10 "-" * (.width - 2) repeats`,
		`(.a | tostring) * .n`:       `1:17 (.a | tostring) * .n repeats`,
		`. as $n | "x" * $n`:         `1:15 "x" * $n repeats`,
		`"\(.a)" * (.n | tonumber)`:  `1:9 "\(.a)" * (.n | tonumber) repeats`,
		`@base64 * .n`:               `1:9 @base64 * .n repeats`,
		`("a" + .b) * .n`:            `1:12 ("a" + .b) * .n repeats`,
		`2 * 3 * .x | "*" * .n`:      `1:18 "*" * .n repeats`,
		`"\(2 * 3)" * .n`:            `1:12 "\(2 * 3)" * .n repeats`,
		`def f($n): "x" * $n; f(.n)`: `1:16 "x" * $n repeats`,
		`.s = "x" | .s |= (ascii_upcase * length)`: `1:32 ascii_upcase * length repeats`,
		`test("(")`:                       `1:1 test("("): not a regular expression of RE2: missing closing )`,
		`.a | gsub("(?=x)"; "")`:          `1:6 gsub("(?=x)"): not a regular expression of RE2: invalid or unsupported Perl syntax`,
		`test("a"; "q")`:                  `1:1 test("a"): the flag 'q' of a regular expression is not known`,
		`.[5000000] = 1`:                  `0:0 .[5000000]: no array is so long`,
		strings.Repeat(" ", 70_000) + `.`: `0:0 the program is larger than 64 KiB`,
		`[.a | tostring | nope]`:          `1:18 there is no function nope`,
		`["\(nope)", "a"]`:                `1:5 there is no function nope`,
		`{a: ("x" + nope)}`:               `1:12 there is no function nope`,
		`[1, -nope]`:                      `1:6 there is no function nope`,
		`.[1 + nope]`:                     `1:7 there is no function nope`,
		`"a\("b\(nope)")"`:                `1:9 there is no function nope`,
		`{"\(nope)": 1}`:                  `1:5 there is no function nope`,
		`{(nope): 1}`:                     `1:3 there is no function nope`,
		`. as {(nope): $x} | $x`:          `1:8 there is no function nope`,
		`. as {"\(nope)": $x} | $x`:       `1:10 there is no function nope`,
		`reduce nope as $x (nope; nope)`:  `1:8 there is no function nope`,
		`foreach .[] as $x (0; 1; nope)`:  `1:26 there is no function nope`,
		`try nope catch nope`:             `1:5 there is no function nope`,
		`if nope then 1 elif nope then nope else nope end`: `1:4 there is no function nope`,
		`label $f | nope`:          `1:12 there is no function nope`,
		`def f: nope; f`:           `1:8 there is no function nope`,
		`def f: def g: nope; g; f`: `1:15 there is no function nope`,
		`map(nope)`:                `1:5 there is no function nope`,
		`.a[nope:]`:                `1:4 there is no function nope`,
		`.a[:nope]`:                `1:5 there is no function nope`,
		`.a.b[nope]?`:              `1:6 there is no function nope`,
		`.["a"].c[nope]`:           `1:10 there is no function nope`,
		`.a // nope`:               `1:7 there is no function nope`,
		`.a //= nope`:              `1:8 there is no function nope`,
		`.a |= nope`:               `1:7 there is no function nope`,
		`nope = 1`:                 `1:1 there is no function nope`,
		`@base64 "\(nope)"`:        `1:12 there is no function nope`,
		`.a and nope or .b`:        `1:8 there is no function nope`,
		`nope | lengt`:             `1:1 there is no function nope (length); 1:8 there is no function lengt (length)`,
	} {
		p, problems := jq.Compile(program, "$call")
		if p != nil {
			t.Errorf("%s is taken", program)
			continue
		}
		if got := shown(program, problems); !strings.HasPrefix(got, want) {
			t.Errorf("%s\ngot  %s\nwant %s", program, got, want)
		}
	}
}

// shown writes problems with their places; 0:0 stands for an unknown one.
func shown(program string, problems []jq.Problem) string {
	var all []string
	for _, p := range problems {
		line, column := 0, 0
		if p.Offset >= 0 {
			line, column = jq.Position(program, p.Offset)
		}
		text := strconv.Itoa(line) + ":" + strconv.Itoa(column) + " " + p.Message
		hint := ""
		for _, known := range p.Known {
			if p.Word != "" && (strings.HasPrefix(known, "len") || known == "$call" && p.Word != "$y") {
				hint = " (" + known + ")"
			}
		}
		all = append(all, text+hint)
	}
	return strings.Join(all, "; ")
}

func TestRepetitionByAConstantIsAllowed(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]string{
		`"ab" * 3`: `"ababab"`, `3 * "ab"`: `"ababab"`, `.s * 2`: `"xx"`, `"-" * (2 * 3)`: `"------"`, `.n * .n`: `9`, `.n * 2`: `6`, `(.n | tonumber) * .n`: `9`, `length * length`: `4`, `.s * .n`: `"xxx"`, `.n *= 2 | .n`: `6`,
	} {
		if got, err := run(t, program, `{"s":"x","n":3}`); err != nil || got != want {
			t.Errorf("%s: %s, %v", program, got, err)
		}
	}
}

func TestHopelessListsAreWarnedAbout(t *testing.T) {
	t.Parallel()
	for program, warned := range map[string]bool{`[range(1000000000)]`: true, `[limit(1e9; repeat(1))]`: true, `[range(0; 1e9)]`: true, `[range(100)]`: false, `first(range(1e9))`: false, `[range(.n)]`: false} {
		p, problems := jq.Compile(program, "$call")
		if p == nil || (len(problems) == 1 && problems[0].Warning) != warned || len(problems) > 1 {
			t.Errorf("%s: %+v", program, problems)
		}
	}
}

// The library writes to constants of the program that it deletes from; all calls of
// a route share them.
func TestProgramIsRunByManyAtOnce(t *testing.T) {
	t.Parallel()
	program := compile(t, `{a: {b: 1, c: {d: 2}}, e: [1, 2, 3]} | del(.a.c, .zz) | .n = $call.id | del(.e[5]) | .e[1] = "x"`)
	deleting := compile(t, `{"a": 1, "b": {"c": 2}} | del(.x)`)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				id := strconv.Itoa(rand.IntN(1000))
				if text, err := on(program, `{}`, map[string]any{"id": id}); text != `{"a":{"b":1},"e":[1,"x",3],"n":"`+id+`"}` {
					t.Errorf("%s, %v", text, err)
				}
				if text, err := on(deleting, `{}`, nil); text != `{"a":1,"b":{"c":2}}` {
					t.Errorf("%s, %v", text, err)
				}
			}
		})
	}
	all.Wait()
}

// Expressions that the model chooses are compiled for one call and not kept.
func TestRegularExpressionsOfTheInputAreNotKept(t *testing.T) {
	program := compile(t, `.re as $re | .text | test($re)`)
	check := func(re string, n int) {
		for i := range n {
			if _, err := on(program, `{"text":"a","re":"`+re+strconv.Itoa(i)+`"}`, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("warm-up", 50)
	grown := peakOf(func() { check("(a|b|c)*", 5000) })
	if grown > 32<<20 {
		t.Errorf("%d MiB are kept", grown>>20)
	}
}

func FuzzRun(f *testing.F) {
	for i, program := range samePrograms() {
		f.Add(program, []string{`{"a":1,"b":"x"}`, `[1,[2],{"a":null}]`, `"text"`, `null`, `-1.5e3`}[i%5])
	}
	for _, program := range cookbook() {
		f.Add(program, `{"amount":"x","n":1e9,"items":[{"a":1}]}`)
	}
	f.Fuzz(func(t *testing.T, text, input string) {
		program, problems := jq.Compile(text, "$call")
		for _, p := range problems {
			if p.Offset < -1 || p.Offset > len(text) || p.Message == "" || (program != nil && !p.Warning) {
				t.Errorf("bad problem %+v", p)
			}
		}
		if program == nil {
			return
		}
		unread := jq.Read([]byte(input), func(in jq.Input) {
			output, err := program.Run(in, map[string]any{"id": "call_1"})
			var made []byte
			if err == nil {
				made, err = output.JSON()
			}
			if _, ok := errors.AsType[*jq.RunError](err); err != nil && !ok {
				t.Errorf("not of a run: %v", err)
			}
			if err == nil && !json.Valid(made) {
				t.Errorf("not JSON: %s", made)
			}
		})
		if json.Valid([]byte(input)) && unread != nil && len(input) < 900 {
			t.Errorf("%s: %v", input, unread)
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		compile(b, cookbook()[0])
	}
}

func BenchmarkRun(b *testing.B) {
	for name, c := range map[string][2]string{
		"body":   {cookbook()[0], `{"order_id":9007199254740993,"amount":19.99}`},
		"member": {`.data`, `{"status":"ok","data":{"id":1,"name":"a"}}`},
		"check":  {`.status == "ok"`, `{"status":"ok","data":{"id":1,"name":"a"}}`},
		"rows":   {`[.items[] | {id, name}]`, `{"items":[` + strings.Repeat(`{"id":1,"name":"a","price":2},`, 99) + `{"id":1,"name":"a"}]}`},
	} {
		b.Run(name, func(b *testing.B) {
			program := compile(b, c[0])
			call := map[string]any{"id": "call_1"}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := on(program, c[1], call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
