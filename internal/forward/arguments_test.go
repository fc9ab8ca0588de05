package forward

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestArgumentsAreOneObjectByteForByte(t *testing.T) {
	t.Parallel()
	big := `{"s":"` + strings.Repeat("x", 200<<10) + `"}`
	tests := map[string]struct{ raw, want string }{
		"absent":               {``, `{}`},
		"null":                 {`null`, `{}`},
		"empty string":         {`""`, `{}`},
		"blank string":         {`"  \n\t"`, `{}`},
		"string null":          {`"null"`, `{}`},
		"empty object":         {`{}`, `{}`},
		"64-bit id":            {`{"id":9007199254740993,"rate":1.10}`, `{"id":9007199254740993,"rate":1.10}`},
		"huge exponent":        {`{"n":1e400,"m":-1E+4000000}`, `{"n":1e400,"m":-1E+4000000}`},
		"key order":            {`{"b":1,"a":2.50}`, `{"b":1,"a":2.50}`},
		"escapes":              {`{"s":"\u0041\/\n\u0000é\ud83d\ude00"}`, `{"s":"\u0041\/\n\u0000é\ud83d\ude00"}`},
		"inner space":          {`{ "a" : [ 1 , 2 ] }`, `{ "a" : [ 1 , 2 ] }`},
		"null member":          {`{"nickname":null}`, `{"nickname":null}`},
		"string with object":   {`"{\"id\":9007199254740993,\"note\":\"{\\\"k\\\":1}\"}"`, `{"id":9007199254740993,"note":"{\"k\":1}"}`},
		"string, outer space":  {`" {\"a\":1}\n"`, `{"a":1}`},
		"same key elsewhere":   {`{"a":{"a":1},"b":[{"a":1},{"a":2}]}`, `{"a":{"a":1},"b":[{"a":1},{"a":2}]}`},
		"200 KB":               {big, big},
		"invalid UTF-8":        {"{\"s\":\"\xff\"}", "{\"s\":\"\xff\"}"},
		"lone surrogate":       {`{"s":"\ud800"}`, `{"s":"\ud800"}`},
		"deepest":              {nest(maxDepth - 1), nest(maxDepth - 1)},
		"keys that differ":     {manyMembers(100), manyMembers(100)},
		"keys by case":         {`{"a":1,"A":2}`, `{"a":1,"A":2}`},
		"keys in many objects": {within(`{"a":1,"b":2}`), within(`{"a":1,"b":2}`)},
		"empty key":            {`{"":1}`, `{"":1}`},
		"numbers of all forms": {`{"n":[0,-0,0.5,-1.25e-7,1E5]}`, `{"n":[0,-0,0.5,-1.25e-7,1E5]}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := object([]byte(test.raw))
			if err != nil {
				t.Fatalf("object(%.80q): %v", test.raw, err)
			}
			if string(got) != test.want {
				t.Errorf("object(%.80q) = %.80q, want %.80q", test.raw, got, test.want)
			}
		})
	}
}

func TestArgumentsThatAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ raw, says string }{
		"list":                      {`[1,2]`, "are a list, not a JSON object"},
		"number":                    {`42`, "are a number, not"},
		"boolean":                   {`true`, "are a boolean, not"},
		"string in a string":        {`"\"{}\""`, "are a string, not"},
		"list in a string":          {`"[]"`, "are a list, not"},
		"text after":                {`"{\"a\":1} and more"`, "further text at position 9"},
		"second object":             {`{"a":1}{"a":2}`, "further text at position 8"},
		"single quotes":             {`"{'a':1}"`, "unexpected character at position 2"},
		"trailing comma":            {`"{\"a\":1,}"`, "unexpected character at position 8"},
		"cut":                       {`{"a":`, "the text ends at position 6"},
		"cut string":                {`{"a":"b`, "the text ends at position 8"},
		"prose":                     {`"give me all"`, "are not valid JSON"},
		"raw control character":     {"{\"a\":\"\x01\"}", "unexpected character at position 7"},
		"bad escape":                {`{"a":"\x"}`, "unexpected character at position 8"},
		"bad unicode escape":        {`{"a":"\u12g4"}`, "unexpected character at position 11"},
		"leading zero":              {`{"a":01}`, "unexpected character at position 7"},
		"bare minus":                {`{"a":-}`, "unexpected character at position 7"},
		"no fraction":               {`{"a":1.}`, "unexpected character at position 8"},
		"no exponent":               {`{"a":1e}`, "unexpected character at position 8"},
		"NaN":                       {`{"a":NaN}`, "unexpected character at position 6"},
		"key without quotes":        {`{a:1}`, "unexpected character at position 2"},
		"no colon":                  {`{"a" 1}`, "unexpected character at position 6"},
		"NUL after":                 {"{}\x00", "further text at position 3"},
		"byte order mark":           {"\xEF\xBB\xBF{}", "are not valid JSON"},
		"duplicate":                 {`{"a":1,"a":2}`, `the key "a" twice, the second time at position 8`},
		"duplicate, escaped":        {`{"a":1,"\u0061":2}`, `the key "a" twice`},
		"duplicate, deep":           {`{"x":[{"y":{"a":1,"b":2,"a":3}}]}`, `the key "a" twice`},
		"duplicate, empty":          {`{"":1,"":2}`, `the key "" twice`},
		"duplicate, same value":     {`{"a":1,"a":1}`, `the key "a" twice`},
		"duplicate of many":         {strings.TrimSuffix(manyMembers(100), "}") + `,"k3":0}`, `the key "k3" twice`},
		"duplicate, below many":     {within(`{"a":1,"b":2,"a":3}`), `the key "a" twice`},
		"duplicate, around many":    {`{"x":` + within(manyMembers(20)) + `,"x":0}`, `the key "x" twice`},
		"duplicate, lone surrogate": {`{"\ud800":1,"\ud801":2}`, "twice"},
		"duplicate, not UTF-8":      {"{\"\xff\":1,\"\xfe\":2}", "twice"},
		"too deep":                  {nest(maxDepth), "are nested too deeply"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := object([]byte(test.raw))
			if _, ok := errors.AsType[*argumentsError](err); !ok {
				t.Fatalf("object(%.80q) = %.80q, %v; want it refused", test.raw, got, err)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("object(%.80q): %v, want it to say %q", test.raw, err, test.says)
			}
		})
	}
}

// nest returns an object with as many lists in it.
func nest(depth int) string {
	return `{"a":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + "}"
}

// within puts an object into forty others, each with its keys open.
func within(inner string) string {
	return strings.Repeat(`{"a":`, 40) + inner + strings.Repeat("}", 40)
}

func manyMembers(n int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"k%d":%d`, i, i)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// A hostile text must cost time in proportion to its size.
func TestArgumentsTakeLinearTime(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"many keys":         manyMembers(150_000),
		"many small ones":   `{"a":[` + strings.Repeat(`{"b":1,"c":2},`, 150_000) + `0]}`,
		"one key, escaped":  `{"` + strings.Repeat(`\u0061`, 1_000_000) + `":1}`,
		"long common start": longKeys(15, 200_000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			if _, err := object([]byte(text)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("%d bytes took %s", len(text), took)
			}
		})
	}
}

func longKeys(n, length int) string {
	members := make([]string, n)
	for i := range members {
		members[i] = fmt.Sprintf(`"%s%d":1`, strings.Repeat("x", length), i)
	}
	return "{" + strings.Join(members, ",") + "}"
}

func FuzzArguments(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1,"a":2}`, `{"a":{"b":[1,{"b":"\u0062"}]}}`, `"{\"a\":1}"`, `{"a":1.5e-3}`, `null`, `[]`,
		`{"\ud800":1,"\udfff":2}`, `{"a":01}`, `{"a":"\`, "{\"\xff\":1}", `{"k":"v"} {}`, `{"a":tru}`, `{"":[[[]]]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		trimmed := bytes.Trim(raw, jsonSpace)
		got, err := object(raw)
		if len(trimmed) == 0 || trimmed[0] == '"' || string(trimmed) == "null" {
			if err == nil && !json.Valid(got) {
				t.Fatalf("object(%q) = %q, which is not JSON", raw, got)
			}
			return
		}
		want := json.Valid(raw) && trimmed[0] == '{' && !hasDuplicates(t, raw)
		if (err == nil) != want {
			t.Fatalf("object(%q): %v, want accepted %t", raw, err, want)
		}
		if err == nil && !bytes.Equal(got, trimmed) {
			t.Fatalf("object(%q) = %q", raw, got)
		}
	})
}

// frame is an object, or with nil keys a list, that is being read.
type frame struct {
	keys  map[string]bool
	isKey bool
}

func (f *frame) valueDone() { f.isKey = f.keys != nil }

// hasDuplicates looks for keys that stand twice with encoding/json's tokens.
func hasDuplicates(t *testing.T, raw []byte) bool {
	t.Helper()
	var stack []*frame
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return false
		}
		if err != nil {
			t.Skip("encoding/json's tokens and json.Valid disagree:", err)
		}
		var top *frame
		if len(stack) > 0 {
			top = stack[len(stack)-1]
		}
		if delim, ok := token.(json.Delim); ok {
			switch delim {
			case '{':
				stack = append(stack, &frame{keys: map[string]bool{}, isKey: true})
				continue
			case '[':
				stack = append(stack, &frame{})
				continue
			}
			stack = stack[:len(stack)-1]
			if len(stack) > 0 {
				stack[len(stack)-1].valueDone()
			}
			continue
		}
		if top == nil || top.keys == nil {
			continue
		}
		if !top.isKey {
			top.isKey = true
			continue
		}
		key, _ := token.(string)
		if top.keys[key] {
			return true
		}
		top.keys[key], top.isKey = true, false
	}
}
