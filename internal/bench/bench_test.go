package main

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"functionbridge/internal/agentsim"
)

// TestMain lets the test program be the parts that bench starts of itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "part-") {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestQuickRunMeasuresEverything(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the bridge and runs some fifty processes")
	}
	dir := t.TempDir()
	var out, progress bytes.Buffer
	if err := run(t.Context(), []string{"-quick", "-markdown", "-dir=" + dir}, nil, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	tables := sections(out.String())
	numbers, ratios := tables[0], tables[1]
	if want := len(loads()) * len(contestants()); len(numbers) != want {
		t.Errorf("%d rows of loads, want %d:\n%s", len(numbers), want, out.String())
	}
	if want := len(loads()) * 4; len(ratios) != want { // two bridges against two others
		t.Errorf("%d rows of ratios, want %d:\n%s", len(ratios), want, out.String())
	}
	if goals := tables[len(tables)-1]; len(goals) != 13 {
		t.Errorf("%d goals, want 13:\n%s", len(goals), out.String())
	}
	for _, row := range numbers {
		if strings.Contains(row, "| 0 |") || strings.Contains(row, " 0.00 ms") {
			t.Errorf("measured nothing: %s", row)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind %v (%v)", left, err)
	}
}

// sections gives the rows of each table in Markdown, without its header.
func sections(text string) [][]string {
	var tables [][]string
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.HasPrefix(line, "|--"):
			tables = append(tables, nil)
		case strings.HasPrefix(line, "### "), !strings.HasPrefix(line, "|"), len(tables) == 0:
		default:
			tables[len(tables)-1] = append(tables[len(tables)-1], line)
		}
	}
	for i := range len(tables) - 1 {
		tables[i] = tables[i][:len(tables[i])-1] // the header of the next one
	}
	return tables
}

// The SDK's helper must be given the very calls and texts that the others get.
func TestMessageOfTheHelperMakesTheSameTurn(t *testing.T) {
	t.Parallel()
	for _, l := range loads() {
		steps, say, err := agentsim.ParseMessage(message(l.texts, l.atOnce))
		if err != nil || say != "" {
			t.Fatalf("%s: the message does not parse: %v, last words %q", l.name, err, say)
		}
		want := turn(l.texts, l.atOnce)
		same := slices.EqualFunc(steps, want, func(a, b agentsim.Step) bool {
			return slices.EqualFunc(a, b, func(a, b agentsim.Action) bool {
				return a.Kind == b.Kind && a.Name == b.Name && string(a.Arguments) == string(b.Arguments) && a.N == b.N
			})
		})
		if !same {
			t.Errorf("%s: the message makes %d steps %+v, want %d of %+v", l.name, len(steps), steps[0], len(want), want[0])
		}
	}
}

func TestCallWaitsFromTheEndOfTheStepBeforeIt(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	took := func(c *clock, arrivals ...int) []time.Duration {
		c.set(true)
		for _, ms := range arrivals {
			c.arrive(at(ms))
		}
		return c.set(false)
	}
	if got, want := took(newClock(1, false), 10, 13, 20), []time.Duration{3e6, 7e6}; !slices.Equal(got, want) {
		t.Errorf("one call a step: %v, want %v", got, want)
	}
	if got, want := took(newClock(2, false), 10, 11, 14, 20, 21), []time.Duration{3e6, 9e6, 1e6}; !slices.Equal(got, want) {
		t.Errorf("two calls a step: %v, want %v", got, want)
	}
	driven := newClock(1, true)
	arrivals, want := []int{100}, []time.Duration{}
	for i := range stepsPerTurn {
		arrivals, want = append(arrivals, 102+2*i), append(want, 2*time.Millisecond)
	}
	arrivals, want = append(arrivals, 1000, 1005), append(want, 5*time.Millisecond) // a pause, and the next turn
	if got := took(driven, arrivals...); !slices.Equal(got, want) {
		t.Errorf("turns that the client begins: %v, want %v", got, want)
	}
}

func TestPercentileIsTheNearestRank(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		sorted []time.Duration
		p      int
		want   time.Duration
	}{
		{nil, 50, 0},
		{[]time.Duration{7}, 1, 7},
		{[]time.Duration{7}, 99, 7},
		{[]time.Duration{1, 2}, 50, 1},
		{[]time.Duration{1, 2, 3}, 50, 2},
		{[]time.Duration{1, 2}, 99, 2},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
	} {
		if got := percentile(c.sorted, c.p); got != c.want {
			t.Errorf("percentile %d of %d durations is %d, want %d", c.p, len(c.sorted), got, c.want)
		}
	}
}

func TestMedianLeavesItsValuesInOrder(t *testing.T) {
	t.Parallel()
	values := []float64{3, 1, 2}
	if got := median(values); got != 2 || !slices.Equal(values, []float64{3, 1, 2}) {
		t.Errorf("median %v, values now %v", got, values)
	}
	if got := median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("median of an even number is %v, want 2.5", got)
	}
	if got := median(nil); got != 0 {
		t.Errorf("median of nothing is %v, want 0", got)
	}
}

// threeRounds are a bridge of 1.2, 1.3 and 5 times the CPU of the bare loop, and of 0.9, 0.5 and 0.7 times its calls.
func threeRounds() *contest {
	const us, ms = time.Microsecond, time.Millisecond
	c := &contest{loads: loads()[:1], options: options{sizes: sizes{sessions: 64}, clients: []client{bareClient, bridgeClient}}}
	for _, pair := range [][2]sample{
		{{1000, 100 * us, 6 * ms, 12 * ms, holding{files: 9, peak: 20 << 20}}, {900, 130 * us, 7 * ms, 14 * ms, holding{files: 30, peak: 40 << 20}}},
		{{2000, 50 * us, 3 * ms, 6 * ms, holding{files: 9, peak: 20 << 20}}, {1000, 60 * us, 6 * ms, 12 * ms, holding{files: 31, peak: 50 << 20}}},
		{{1000, 100 * us, 6 * ms, 12 * ms, holding{files: 9, peak: 20 << 20}}, {700, 500 * us, 9 * ms, 18 * ms, holding{files: 32, peak: 30 << 20}}},
	} {
		c.rounds = append(c.rounds, map[string]map[client]sample{"plain": {bareClient: pair[0], bridgeClient: pair[1]}})
	}
	return c
}

func TestReportJudgesTheMedianOfTheRatios(t *testing.T) {
	t.Parallel()
	r := threeRounds().report()
	var out strings.Builder
	for _, table := range r.tables {
		out.WriteString(table.text(true))
	}
	const want = `
### Loads: medians of each number

| load                         | client    | calls/s | CPU a call |     p50 |      p99 | peak memory | open files |
|------------------------------|-----------|--------:|-----------:|--------:|---------:|------------:|-----------:|
| 64 sessions, one call a step | bare loop |   1,000 |   100.0 µs | 6.00 ms | 12.00 ms |    20.0 MiB |          9 |
| 64 sessions, one call a step | bridge    |     900 |   130.0 µs | 7.00 ms | 14.00 ms |    40.0 MiB |         31 |

### Ratios: median (range) over the rounds

| load                         | of                 |         CPU a call |            calls/s |
|------------------------------|--------------------|-------------------:|-------------------:|
| 64 sessions, one call a step | bridge / bare loop | 1.30 × (1.20–5.00) | 0.70 × (0.50–0.90) |
`
	if got := out.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if len(r.goals) != 2 || !r.goals[0].met || r.goals[1].met {
		t.Errorf("goals are %+v, want the CPU met and the speed missed", r.goals)
	}
}

func TestTableInPlainColumnsHasNoMarks(t *testing.T) {
	t.Parallel()
	got := table{title: "T", header: []string{"name", "n"}, left: 1, rows: [][]string{{"ä", "12 µs"}, {"bcdef", "3"}}}.text(false)
	const want = "\nT\n  name       n\n  ä      12 µs\n  bcdef      3\n"
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestSpreadShowsMedianAndRangeInThreeDigits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   string
	}{
		{nil, "–"},
		{[]float64{0}, "0.00 x"},
		{[]float64{0.01234}, "0.012 x"},
		{[]float64{1.3, 5, 1.2}, "1.30 x (1.20–5.00)"},
		{[]float64{12.34}, "12.3 x"},
		{[]float64{1234567.8, 99}, "617,333 x (99–1,234,568)"},
		{[]float64{-1234.5}, "-1,235 x"},
		{[]float64{math.Inf(1)}, "– x"},
	} {
		if got := spread(c.values, "x"); got != c.want {
			t.Errorf("%v is written %q, want %q", c.values, got, c.want)
		}
	}
}

func TestRunThatLostOrRepeatedACallIsAnError(t *testing.T) {
	t.Parallel()
	if err := (totals{Played: 5, Results: 5, Posts: 5, Upstream: 5}).check(); err != nil {
		t.Errorf("a clean run: %v", err)
	}
	for name, bad := range map[string]totals{
		"lost":          {Played: 5, Results: 4, Posts: 4, Upstream: 4},
		"posted twice":  {Played: 5, Results: 5, Posts: 6, Upstream: 5},
		"run twice":     {Played: 5, Results: 5, Posts: 5, Upstream: 6},
		"wrong content": {Played: 5, Results: 5, Posts: 5, Upstream: 5, Wrong: 1},
	} {
		if bad.check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestFailedRunIsAnErrorAndEndsItsProcesses(t *testing.T) {
	t.Parallel()
	r := &rig{place: t.TempDir(), self: os.Args[0], out: &bytes.Buffer{}}
	var left *process
	err := r.play(t.Context(), "failing", apiSettings{sessions: 1}, func(_ context.Context, s *stage) error {
		left = s.api
		return s.api.tell("dance")
	})
	if err == nil || !strings.Contains(err.Error(), `failing: api.log: dance`) || !strings.Contains(err.Error(), `unknown command "dance"`) {
		t.Errorf("got %v, want the run, the process and what it said", err)
	}
	if left.cmd.ProcessState == nil {
		t.Error("the API's process was left running")
	}
}

func TestCPUTimeIsReadBehindAnyProcessName(t *testing.T) {
	t.Parallel()
	got, err := parseCPUTime([]byte("42 (odd ) 1 name) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0 9 0 77\n"))
	if err != nil || got != 1750*time.Millisecond {
		t.Errorf("got %s, %v; want 1.75s", got, err)
	}
	if _, err := parseCPUTime([]byte("42 (short) S 1 2")); err == nil {
		t.Error("a cut line is no error")
	}
}

func TestMemoryIsReadInBytes(t *testing.T) {
	t.Parallel()
	got, err := parseMemory("Name:\tbridge\nVmPeak:\t  999 kB\nVmHWM:\t   3072 kB\nVmRSS:\t   2048 kB\n")
	if err != nil || got.memory != 2<<20 || got.peak != 3<<20 {
		t.Errorf("got %+v, %v; want 2 and 3 MiB", got, err)
	}
	for _, bad := range []string{"Name:\tkthread\n", "VmHWM:\t1 kB\nVmRSS:\tmuch\n"} {
		if _, err := parseMemory(bad); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
}

func TestResultOfAGoBenchmarkIsFound(t *testing.T) {
	t.Parallel()
	said := []byte("goos: linux\nBenchmarkTextEvent/client=bridge-2   \t  758329\t       641.5 ns/op\t 388.16 MB/s\t       0 B/op\n" +
		"BenchmarkTextEvent/client=sdk \t   10000\t     32472 ns/op\nPASS\n")
	for name, want := range map[string]float64{"client=bridge": 641.5, "client=sdk": 32472} {
		if got, err := nanoseconds(said, name); err != nil || got != want {
			t.Errorf("%s took %v, %v; want %v", name, got, err, want)
		}
	}
	if _, err := nanoseconds(said, "client=none"); err == nil {
		t.Error("a missing result is no error")
	}
}

func TestFlagsRefuseWhatCannotBeMeasured(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-rounds=0"}, {"-sessions=0"}, {"-duration=0s"}, {"-only=plain,none"}, {"-clients=bare,none"}, {"-quick", "-full"}, {"-unknown"}, {"extra"},
	} {
		if _, err := parseFlags(args); !errors.As(err, new(usageError)) {
			t.Errorf("%v: got %v, want a usage error", args, err)
		}
	}
}

func TestFlagsChooseWhatIsMeasuredAndHowLarge(t *testing.T) {
	t.Parallel()
	o, err := parseFlags([]string{"-only=text,memory", "-clients=bare,strict", "-quick", "-rounds=7"})
	if err != nil {
		t.Fatal(err)
	}
	if o.rounds != 7 || o.duration != quickSizes().duration || o.calls != quickSizes().calls {
		t.Errorf("sizes are %+v, want quick ones but for the rounds", o.sizes)
	}
	if !slices.Equal(o.clients, []client{bareClient, strictClient}) {
		t.Errorf("clients are %v", o.clients)
	}
	list := chooseMeasurements(o)
	if len(list) != 2 || list[0].rounds != 7 || list[1].rounds != 1 {
		t.Fatalf("chose %+v, want the loads seven times and memory once", list)
	}
	if c, ok := list[0].measurement.(*contest); !ok || len(c.loads) != 1 || c.loads[0].texts != 100 {
		t.Errorf("chose %+v, want the load with texts", list[0])
	}
	if o, err := parseFlags([]string{"-full"}); err != nil || o.calls != 1_000_000 || !slices.Contains(o.followed, 10_000) {
		t.Errorf("-full gives %+v, %v", o.sizes, err)
	}
}
