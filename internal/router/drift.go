package router

import (
	"bytes"
	"encoding/json"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// Drift is how the function tools of an agent differ from the routes of a
// table. Names are in the order of the tools, and then of the table.
type Drift struct {
	// Missing are the functions that the agent may call and that have no route.
	Missing []string `json:"missing"`
	// Changed are those whose definition differs from what Tools publishes.
	Changed []Change `json:"changed"`
	// Extra are the routes that would be tools and are none of the agent's.
	Extra []string `json:"extra"`
}

// Change is a function whose definition differs.
type Change struct {
	Function string `json:"function"`
	// Differences says where, and what the agent and the table have there.
	Differences []string `json:"differences"`
}

// Any reports whether anything differs that makes calls fail: a route that the
// agent does not know does not.
func (d Drift) Any() bool { return len(d.Missing)+len(d.Changed) > 0 }

// maxDifferences bounds what is told of one function.
const maxDifferences = 5

// Drift compares the routes with an agent's tools: the JSON array that the Agents
// API shows. What is no function is left alone, and so is what is no JSON.
func (t *Table) Drift(tools []byte) Drift {
	d := Drift{Missing: []string{}, Changed: []Change{}, Extra: []string{}}
	var live []json.RawMessage
	if json.Unmarshal(tools, &live) != nil {
		return d
	}
	known := map[string]bool{}
	for _, raw := range live {
		var head struct{ Type, Name string }
		if json.Unmarshal(raw, &head) != nil || head.Type != "function" {
			continue
		}
		known[head.Name] = true
		route, ok := t.Lookup(head.Name)
		switch {
		case !ok:
			d.Missing = append(d.Missing, head.Name)
		case route.IsTool():
			if differences := route.differences(raw); len(differences) > 0 {
				d.Changed = append(d.Changed, Change{head.Name, differences})
			}
		}
	}
	for _, r := range t.routes {
		if r.IsTool() && !known[r.Name] {
			d.Extra = append(d.Extra, r.Name)
		}
	}
	return d
}

// differences compares a live definition with the route's own.
func (r *Route) differences(live []byte) []string {
	var there struct {
		Description string
		Parameters  json.RawMessage
		Async       bool

		DeferLoading bool `json:"defer_loading"`
	}
	if json.Unmarshal(live, &there) != nil {
		return []string{"the definition cannot be read"}
	}
	var found []string
	if there.Description != r.Description {
		found = append(found, "description: the agent has "+clipped(strconv.Quote(there.Description))+", the table "+clipped(strconv.Quote(r.Description)))
	}
	if there.Async != r.Async {
		found = append(found, "async: the agent has "+strconv.FormatBool(there.Async)+", the table "+strconv.FormatBool(r.Async))
	}
	if there.DeferLoading != r.DeferLoading {
		found = append(found, "defer_loading: the agent has "+strconv.FormatBool(there.DeferLoading)+", the table "+strconv.FormatBool(r.DeferLoading))
	}
	compare("parameters", decoded(there.Parameters), decoded(r.Parameters), &found)
	if len(found) > maxDifferences {
		found = append(found[:maxDifferences], "and "+strconv.Itoa(len(found)-maxDifferences)+" more")
	}
	return found
}

// decoded keeps the text of numbers.
func decoded(raw json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// compare walks two values and notes where they differ. The order of keys means
// nothing, nor how a number is written.
func compare(path string, live, table any, found *[]string) {
	switch l := live.(type) {
	case map[string]any:
		if t, ok := table.(map[string]any); ok {
			compareObjects(path, l, t, found)
			return
		}
	case []any:
		if t, ok := table.([]any); ok && len(l) == len(t) {
			for i := range l {
				compare(path+"["+strconv.Itoa(i)+"]", l[i], t[i], found)
			}
			return
		}
	}
	if !sameValue(live, table) {
		*found = append(*found, path+": the agent has "+shown(live)+", the table "+shown(table))
	}
}

// absent stands for a key that is not there.
type absent struct{}

func compareObjects(path string, live, table map[string]any, found *[]string) {
	var keys []string
	for key := range live {
		keys = append(keys, key)
	}
	for key := range table {
		if _, both := live[key]; !both {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	value := func(object map[string]any, key string) any {
		if v, there := object[key]; there {
			return v
		}
		return absent{}
	}
	for _, key := range keys {
		compare(path+"."+key, value(live, key), value(table, key), found)
	}
}

func sameValue(a, b any) bool {
	na, isA := a.(json.Number)
	nb, isB := b.(json.Number)
	if isA && isB {
		return sameNumber(string(na), string(nb))
	}
	_, missingA := a.(absent)
	_, missingB := b.(absent)
	if missingA || missingB {
		return missingA == missingB
	}
	return shown(a) == shown(b)
}

// sameNumber compares numbers by their value; those with absurd exponents by
// their text.
func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	if len(a) > 100 || len(b) > 100 || exponentOf(a) > 1000 || exponentOf(b) > 1000 {
		return false
	}
	ra, okA := new(big.Rat).SetString(a)
	rb, okB := new(big.Rat).SetString(b)
	return okA && okB && ra.Cmp(rb) == 0
}

func exponentOf(number string) int {
	_, exponent, found := strings.Cut(strings.ToLower(number), "e")
	if !found {
		return 0
	}
	n, err := strconv.Atoi(exponent)
	if err != nil {
		return 1 << 30
	}
	return max(n, -n)
}

func shown(v any) string {
	if _, missing := v.(absent); missing {
		return "nothing"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "what is no JSON"
	}
	return clipped(string(text))
}

// clipped keeps a value short enough for a line.
func clipped(text string) string {
	const most = 80
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
