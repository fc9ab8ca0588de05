package jq_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/itchyny/gojq"

	"functionbridge/internal/jq"
)

// plain runs a program with the library alone: its one value as JSON, or "error".
func plain(t *testing.T, program, input string) string {
	t.Helper()
	query, err := gojq.Parse(program)
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	code, err := gojq.Compile(query, gojq.WithVariables([]string{"$call"}))
	if err != nil {
		t.Fatalf("%s: %v", program, err)
	}
	decode, err := gojq.Parse("fromjson")
	if err != nil {
		t.Fatal(err)
	}
	value, _ := decode.Run(input).Next()
	results := code.Run(value, map[string]any{"id": "call_1"})
	result, ok := results.Next()
	if _, failed := result.(error); failed || !ok {
		return "error"
	}
	if _, more := results.Next(); more {
		return "error"
	}
	text, err := gojq.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// bounded runs it as the bridge does.
func bounded(t *testing.T, program, input string) string {
	t.Helper()
	text, err := run(t, program, input)
	if err != nil {
		return "error"
	}
	return text
}

func compile(tb testing.TB, program string) *jq.Program {
	tb.Helper()
	p, problems := jq.Compile(program, "$call")
	if p == nil {
		tb.Fatalf("%s: %+v", program, problems)
	}
	return p
}

func run(tb testing.TB, program, input string) (string, error) {
	tb.Helper()
	var text []byte
	var failed error
	err := jq.Read([]byte(input), func(in jq.Input) {
		output, err := compile(tb, program).Run(in, map[string]any{"id": "call_1"})
		if err == nil {
			text, err = output.JSON()
		}
		failed = err
	})
	if err != nil {
		tb.Fatalf("%.100s: %v", input, err)
	}
	return string(text), failed
}

// on runs a program that is compiled already, and gives its text.
func on(program *jq.Program, input string, variables ...any) (text string, err error) {
	unread := jq.Read([]byte(input), func(in jq.Input) {
		var output jq.Output
		if output, err = program.Run(in, variables...); err == nil {
			text, err = output.Text()
		}
	})
	return text, errors.Join(unread, err)
}

// The counts that are put into a program change nothing of what it gives.
func TestProgramsGiveWhatTheLibraryGives(t *testing.T) {
	t.Parallel()
	inputs := []string{
		`{"a":1,"b":"text","c":[3,1,2],"d":{"x":{"y":[1,{"z":null}]}},"e":[{"k":"a","v":1},{"k":"b","v":2},{"k":"a","v":3}],"f":1.50,"g":-7,"h":true,"n":null}`,
		`{"a":"2","b":7,"c":"a,b,,c","d":[1,[2,[3]]],"e":[],"f":"x","g":[[1,2],[3]],"h":{"key":"k","value":1}}`,
		`[1,2,[3],"é𝒳a",{"a":null},null,true,1.0,1e2,9007199254740993]`,
		`"näïve, text; with: words  and 12 numbers 345"`,
		`12345678901234567890123`, `-1.5`, `null`, `[]`, `{}`,
	}
	programs := samePrograms()
	agreed := 0
	for _, program := range programs {
		for _, input := range inputs {
			want := plain(t, program, input)
			if differs(program, input) {
				continue
			}
			if got := bounded(t, program, input); got != want {
				t.Errorf("%s on %.60s\ngot  %s\nwant %s", program, input, got, want)
			}
			if want != "error" {
				agreed++
			}
		}
	}
	if agreed < 3*len(programs) {
		t.Errorf("only %d of %d runs gave something: the comparison says little", agreed, len(programs)*len(inputs))
	}
}

// differs: rounding leaves whole numbers as they are, and what is no number is no
// output.
func differs(program, input string) bool {
	return (len(input) > 20 && strings.Trim(input, "0123456789") == "" && strings.Contains(" floor ceil round trunc rint nearbyint ", " "+program+" ")) ||
		(program == "sqrt" && input == "-1.5")
}

func samePrograms() []string {
	calls := strings.Fields(`
		. length not type keys reverse add to_entries from_entries tostring tojson explode implode ascii_downcase ascii_upcase
		tonumber sort unique min max flatten transpose first last trim ltrim rtrim abs toboolean paths any all
		floor ceil round trunc rint nearbyint fabs sqrt arrays objects strings numbers scalars values nulls booleans iterables
		utf8bytelength tojson|fromjson gmtime todate mktime isnan isnormal modf frexp pow(.;2) tostream combinations
		[paths] [..] [tostream] [combinations] [getpath(["a"])] @text @json @html @uri @csv @tsv @sh @base64 @base64d @urid`)
	programs := []string{
		`has("a")`, `has(0)`, `map(.)`, `map(tostring)`, `map_values(tostring)`, `map_values(empty)`, `with_entries(.value |= tostring)`, `with_entries(select(.key != "a"))`,
		`[.[]?]`, `[.[] | numbers]`, `.[0]`, `.[-1]`, `.[1:]`, `.[:2]`, `.[1:2]`, `.a`, `.a?`, `."b"`, `.["a"]`, `.[("a", "b")]?`, `.c[0]?`, `.d.x.y[1].z?`, `..`, `[.. | scalars]`,
		`.a + 1`, `1 + .a`, `.a + .b`, `.b + .b`, `.c + .c`, `.d + .h`, `.a - .b`, `.c - [1]`, `.c - .c`, `.a * .f`, `.f * 2`, `.a / 2`, `.c / ","`, `.g % 3`, `. + null`, `null + .`,
		`.a * .b`, `.b * 3`, `3 * "ab"`, `"ab" * 2`, `.d * .d`, `. * 0`, `-.`, `-.a`, `+.a`, `.a == 1`, `.a == .a`, `.c == .c`, `. < .a`, `.a <= .b`, `. >= null`, `.a != .b`, `[.a, .b] == [.a, .b]`,
		`.a and .b`, `.h or error`, `.a // "none"`, `(.zz // empty) // 5`, `[.a, .b // 1]`, `if .a then .b else .c end`, `if .a == 1 then "one" elif .b then "b" end`,
		`try error("x") catch .`, `try error({a: 1}) catch .a`, `.a.b.c?`, `try (.a + .c) catch "no"`, `[.[]?.k?]`, `error("x")`, `error`, `error(null)`,
		`reduce .[]? as $x (0; . + 1)`, `reduce .[]? as $x (""; . + ($x | tostring))`, `[foreach .[]? as $x (0; . + 1; [., $x])]`, `[foreach .[]? as [$x] (0; . + 1)]`, `[limit(2; .[]?)]`, `[skip(1; .[]?)]`, `[first(.[]?)]`, `[last(.[]?)]`,
		`[range(5)]`, `[range(1; 3)]`, `[range(0; 10; 3)]`, `[range(3; 0; -1)]`, `[range(.g // 2)]?`, `nth(1)`, `[nth(1; .[]?)]`, `[while(. != null and . < 10; . + 3)]?`, `[.g | until(. > 100; . * 2 + 200)]?`, `[recurse(if type == "array" then .[] else empty end)]`,
		`[recurse(.[]?; . != 1)]`, `isempty(.[]?)`, `any(.[]?; . == 1)`, `all(.[]?; . != 1)`, `[.[]? | select(. != null)]`, `in({"a": 1})`, `inside([1,2,3,[3]])?`, `contains([1])`, `contains("a")`, `contains({a: 1})`, `contains(null)`, `.c | contains([1])`,
		`sort_by(.k)`, `sort_by(.k, .v)`, `.e | sort_by(.v)`, `.e | sort_by(-.v)`, `.e | group_by(.k)`, `.e | unique_by(.k)`, `.e | min_by(.v)`, `.e | max_by(.v)`, `.e | map({(.k): .v}) | add`, `.e | map({key: .k, value: .v}) | from_entries`, `INDEX(.k)`, `.e | INDEX(.k)`, `INDEX(.e[]; .k)`, `IN(1, 2)`, `.a | IN(1, 2)`, `IN(.a; 1, "2")`,
		`[JOIN({"a": 1}; .[]?; tostring)]`, `[JOIN({"a": 1}; .[]?; tostring; add)]?`, `JOIN({"1": 5}; tostring)`, `[combinations(2)]`, `[[1,2],[3,4]] | [combinations]`, `[limit(3; repeat(1))]`, `walk(if type == "number" then . + 1 else . end)`, `walk(.)`, `[paths(type == "number")]`, `[path(..)]`, `path(.a)`, `[path(.a, .b)]`, `[path(.a[0]?, .d.x?)]`, `[path(first(.a, .b))]`, `[paths(. == 1)]`,
		`.a = 1`, `.a |= 5`, `.a += 1`, `.a -= 1`, `.a *= 2`, `.f /= 2`, `.g %= 2`, `.zz //= 3`, `.a = .b`, `(.a, .b) = 1`, `(.a, .f) |= . * 2`, `.c[0] = 9`, `.c[5] = 1`, `.new.deep[2].x = 1`, `.[2] = 5`, `.c |= map(. + 1)`, `.c[1:] = ["x"]`, `.e[].v += 1`, `.e |= map(select(.v > 1))`, `(.e[] | select(.k == "a") | .v) = 0`, `.a += (1, 2)`, `[.a += (1, 2)]`, `.[] += 1`, `.c[.a] = 7`, `getpath(["c", 0]) = 3`, `(.. | numbers) |= . + 1`, `to_entries | map(.value) | add?`,
		`del(.a)`, `del(.a, .b)`, `del(.c[0])`, `del(.[0])`, `del(.[]?)`, `del(.. | nulls)`, `delpaths([["a"], ["c", 0]])`, `setpath(["a"]; 5)`, `setpath([3]; 5)`, `setpath(["x", 2, "y"]; 1)`, `getpath(["d", "x"])`, `getpath(["a", "b"])?`, `pick(.a)`, `pick(.c[1])?`, `pick(.d.x)?`, `to_entries`, `flatten(1)`, `bsearch(1)`, `.c | bsearch(2)`,
		`split(",")`, `split(", ")`, `.c | split(",")?`, `split("")`, `join(",")`, `join("")`, `.c | join("-")?`, `ltrimstr("n")`, `rtrimstr("5")`, `trimstr("n")`, `startswith("n")`, `endswith("5")`, `index("t")`, `rindex("t")`, `indices("t")`, `indices(", ")`, `.c | index(1)`, `.c | rindex(1)`, `indices(1)`, `indices([1, 2])`, `index("")`, `"aaaa" | indices("aa")`, `"éaéa" | [indices("a"), index("é"), rindex("é")]`,
		`test("t")`, `test("T"; "i")`, `test("T")`, `test(["T", "i"])`, `[match("[a-z]+"; "g")]`, `[match("(?<w>[a-z]+)|(?<n>[0-9]+)"; "g")]`, `[match("é|𝒳|t"; "g").offset]`, `match("t")`, `match(["T", "i"])`, `capture("(?<first>[a-z])(?<n>[0-9])?")`, `[capture("(?<n>[0-9]+)"; "g")]`, `[scan("[a-z]+")]`, `[scan("([a-z])([a-z])")]`, `[scan("T"; "i")]`, `[splits(", *|; ")]`, `split(" +"; null)`, `split("T"; "i")`, `[splits("x")]`,
		`sub("t"; "T")`, `gsub("t"; "T")`, `gsub("[aeiou]"; "<\(.)>" | length | tostring)`, `gsub("(?<l>[aeiou])"; "<\(.l)>")`, `sub("(?<a>.)(?<b>.)"; .b + .a)`, `gsub("T"; ""; "i")`, `gsub(" "; "")`, `gsub("x*y"; "-")`, `gsub("^"; ">")`, `gsub("$"; "<")`, `sub("t"; 1)`, `gsub("\\s+"; " ")`, `[.[]? | strings | gsub("a"; "b")]`,
		`"\(.a) and \(.b)"`, `"\(.)"`, `"x\(1 + 2)y\("z")"`, `@base64 "v: \(.)"`, `@uri "?q=\(.b)"`, `@html "<\(.b)>"`, `@json "\(.a)"`, `@sh "echo \(.b)"?`, `"a" as $x | "b" as $y | "\($x)\($y)"`, `@base64 | @base64d`, `@csv "\([.a, .b])"`, `format("text")`, `format("json")`, `format("nope")`,
		`{a, b}`, `{a: .b, "c": 1, (.b | tostring): 2, "x\(.a)": 3}`, `{"a b": 1}`, `{a: (1, 2)}`, `[{a: (1, 2)}]`, `{}`, `{a: 1, b: "x"}`, `{"x\(.a)"}?`, `. as $x | {$x}`, `. as {a: $x} | $x`, `. as {a: $x, $b} | [$x, $b]`, `. as [$x, [$y]] | [$x, $y]`, `. as {"a": $x} | $x`, `. as {("a", "b"): $x} | [$x]`, `. as [$x] ?// $x | [$x]`, `.[]? as [$x] ?// $x | [$x]`, `{a: 1} | .b = 2`, `{a: 1} | del(.a)`, `[1, 2, 3] | .[1] = 5`, `[1,[2]] | flatten`,
		`def f: . + 1; .a | f?`, `def f(g): [g]; f(.a, .b)`, `def f($x): $x + 1; f(1)`, `def fac: if . <= 1 then 1 else . * (. - 1 | fac) end; 20 | fac`, `def f(a; $b): [a, $b]; f(1; 2)`, `def keys: "mine"; keys`, `def map(f): "mine"; map(.)`, `def f: def g: 3; g; f`, `def add(f): f; add(7)`, `def length: 5; [length, ({} | length)]`, `def f($x; $y): $x - $y; f(5; 3)`, `[def f: 1, 2; f, 3]`,
		`label $out | foreach .[]? as $x (0; . + 1; if . > 2 then ., break $out else empty end)`, `[label $f | range(10) | ., (select(. == 3) | break $f)]`, `$call.id`, `$call | keys`, `[$call.id, .a]`, `.a as $x | .b as $y | [$x, $y]`, `[.a as $x | $x, $x]`, `first(range(10; 0; -1))`, `[limit(0; 1, 2)]`,
		`"2015-03-05T23:51:47Z" | fromdate`, `"2015-03-05T23:51:47Z" | strptime("%Y-%m-%dT%H:%M:%SZ")`, `1425599507 | strftime("%A, %B %d, %Y")`, `1425599507 | gmtime`, `"10:15" | try strptime("%H:%M") catch "no"`, `1e3 | tostring`, `1.10`, `[.[]? | tojson]`, `[1, 1.0, 1.5, "a"] | unique`, `splits("a")?`, `"x" | ascii_downcase`, `[3.7, -3.7] | map(floor, ceil, round, trunc)`, `infinite | isinfinite`, `[nan] | .[0] | isnan`, `nan < nan`, `[nan, 1] | sort | .[1]`, `ltrimstr(1)`, `tojson | fromjson`, `"[1, 2" | try fromjson catch "bad"`, `"1e1000" | tonumber | isinfinite`, `limit(1; .[]?)`, `getpath([])`, `[splits("")]?`, `(1, 2) | select(. == 2)`, `[(1, 2) + (10, 20)]`, `[(1, 2) * (10, 20)]`, `[(1, 2) < (1, 2)]`, `[[1, 2][] as $x | [3, 4][] as $y | $x * $y]`, `[.c[]? *= 2]`, `(.c // [])[:1] += ["n"]`, `.. |= .`, `[.[]?] | any`, `tojson | length`, `. as $d | $d | [paths] | map(. as $p | $d | getpath($p)) | length`, `min_by(.)?`, `@text "a\(1)"`, `[1,2,3] | IN(2)`, `[.[]? | (. == 1)]`, `# comment
		.a # another`, `.a | # "x" * .n
		. `,
	}
	return append(programs, calls...)
}

func TestCallsWithEachFunctionAreBuiltRight(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]int{"split": 2, "splits": 1, "gsub": 3, "sub": 3, "test": 2, "match": 2, "capture": 2, "scan": 2} {
		program := fmt.Sprintf(`[try %s("a"%s) catch "no"]`, name, strings.Repeat(`; ""`, args-1))
		if got := bounded(t, program, `"banana"`); got == "error" {
			t.Errorf("%s: %s", program, got)
		}
	}
}
