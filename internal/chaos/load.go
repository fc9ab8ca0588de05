package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// function is what an agent may call.
type function struct {
	name       string
	idempotent bool
	share      int // of a hundred calls
	// The work takes so long; of the time between kills when long, in percent, else in milliseconds.
	from, to int
	long     bool
	// mishaps happen to the first request of so many calls of a hundred.
	mishaps []mishap
	percent int
	// recovers: the service says by key what became of a request.
	recovers bool
}

// mishap is what the service does to the first request of a call that asks for it; a number is a status after the work
// was done.
type mishap string

const (
	dropped mishap = "drop" // the work is done, and the connection breaks before the reply
	refused mishap = "busy" // 429, no work is done
	lost    mishap = "lose" // the connection breaks, no work is done
)

// functions are a third side effects, half of which take longer than the bridge lives.
func functions() []function {
	return []function{
		{name: "look", idempotent: true, share: 45, from: 0, to: 20, percent: 10, mishaps: []mishap{dropped, dropped, "500", "502", "503"}},
		{name: "report", idempotent: true, share: 19, from: 300, to: 1500, percent: 10, mishaps: []mishap{dropped, "504"}},
		{name: "pay", share: 12, from: 0, to: 20, percent: 10, mishaps: []mishap{refused}},
		{name: "transfer", share: 5, from: 0, to: 1200, percent: 20, mishaps: []mishap{lost}, recovers: true},
		{name: "ship", share: 19, from: 150, to: 225, long: true},
	}
}

func functionNamed(name string) function {
	for _, f := range functions() {
		if f.name == name {
			return f
		}
	}
	return function{name: name}
}

// load makes the calls of the agents, one turn after the other.
type load struct {
	dice
	left    int // calls
	made    int
	between time.Duration
	deck    []function
}

func newLoad(o options) *load {
	return &load{dice: dice{seeded(o.seed, randomLoad)}, left: o.calls, between: o.between}
}

// turn is the user message for the next turn, and how many calls it makes; none when all were made.
func (l *load) turn() (message string, calls int) {
	var text strings.Builder
	for range 1 + l.IntN(3) {
		for range 1 + l.IntN(6) {
			if l.left == 0 {
				break
			}
			l.left--
			l.made++
			calls++
			text.WriteString(l.call() + "\n")
		}
		text.WriteString("\n")
	}
	return text.String(), calls
}

// call is one line of the simulator's language.
func (l *load) call() string {
	f := l.draw()
	ms := f.from + l.IntN(f.to-f.from+1)
	if f.long {
		ms = int(l.of(l.between, f.from, f.to).Milliseconds())
	}
	var m mishap
	if l.chance(f.percent) {
		m = f.mishaps[l.IntN(len(f.mishaps))]
	}
	return "call " + f.name + " " + arguments(l.Rand, l.made, ms, m)
}

// draw takes functions from a shuffled deck, so that the shares come out exact.
func (l *load) draw() function {
	if len(l.deck) == 0 {
		for _, f := range functions() {
			for range f.share {
				l.deck = append(l.deck, f)
			}
		}
		l.Shuffle(len(l.deck), func(i, j int) { l.deck[i], l.deck[j] = l.deck[j], l.deck[i] })
	}
	last := len(l.deck) - 1
	f := l.deck[last]
	l.deck = l.deck[:last]
	return f
}

// arguments are JSON in ways of writing that do not survive being decoded and encoded again.
func arguments(rnd *rand.Rand, n, ms int, m mishap) string {
	x := ""
	if m != "" {
		x = fmt.Sprintf(`,"x":%q`, m)
	}
	switch rnd.IntN(6) {
	case 0:
		return fmt.Sprintf(`{ "ms": %d , "n":%d%s, "cents": 12345678901234567890.10, "e": 1E+2 }`, ms, n, x)
	case 1:
		return fmt.Sprintf(`{"z":"Zo\u00eb \u003c\/a\u003e & <b>","n":%d,"ms":%d%s,"a":null}`, n, ms, x)
	case 2:
		return fmt.Sprintf(`{"n":%d,"ms":%d%s,"text":"é \" \\ 漢 \ud83d\ude00","list":[ 1,2.0, 3e0 ]}`, n, ms, x)
	case 3: // a text that holds the object
		return quote(fmt.Sprintf(`{"n": %d,"ms":%d%s,"id":9007199254740993}`, n, ms, x))
	}
	return fmt.Sprintf(`{"n":%d,"ms":%d%s}`, n, ms, x)
}

func quote(text string) string {
	return `"` + strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\\`), `"`, `\"`) + `"`
}

// routeTable sends every function to the service. The timeouts are longer than any work and any freeze.
func routeTable(upstream string) string {
	var b strings.Builder
	b.WriteString("version: 1\ndefaults: {timeout: 60s}\nroutes:\n")
	for _, f := range functions() {
		extra := ""
		if f.recovers { // the service is asked that long after the request
			extra = `, attempt_timeout: 3s, recover: {method: GET, path: "/by-key/{call.idempotency_key}"}`
		}
		fmt.Fprintf(&b, "  %s: {url: %q, idempotent: %t%s}\n", f.name, upstream+"/"+f.name, f.idempotent, extra)
	}
	return b.String()
}
