package main

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets the test program be the parts that bench starts of itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "part-") {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestWholeBenchMeasuresEveryLoadWithBothClients(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the bridge and runs twelve processes")
	}
	dir := t.TempDir()
	var out bytes.Buffer
	err := run(t.Context(), []string{"-sessions=2", "-rounds=1", "-duration=200ms", "-warmup=50ms", "-dir=" + dir}, nil, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, s := range scenarios() {
		if !strings.Contains(out.String(), s.name+": "+s.title) {
			t.Errorf("nothing about %s in:\n%s", s.name, out.String())
		}
	}
	if strings.Contains(out.String(), " 0 calls/s") || strings.Count(out.String(), "CPU a call 0.00 ×") > 0 {
		t.Errorf("measured nothing:\n%s", out.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind %v (%v)", left, err)
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

func TestReportJudgesTheMedianOfTheRatios(t *testing.T) {
	t.Parallel()
	// The ratios of CPU are 1.2, 1.3 and 5; those of speed 0.5, 0.7 and 0.9.
	rounds := []pair{
		{{1000, 100 * time.Microsecond, 6 * time.Millisecond, 12 * time.Millisecond}, {900, 130 * time.Microsecond, 7 * time.Millisecond, 14 * time.Millisecond}},
		{{2000, 50 * time.Microsecond, 3 * time.Millisecond, 6 * time.Millisecond}, {1000, 60 * time.Microsecond, 6 * time.Millisecond, 12 * time.Millisecond}},
		{{1000, 100 * time.Microsecond, 6 * time.Millisecond, 12 * time.Millisecond}, {700, 500 * time.Microsecond, 9 * time.Millisecond, 18 * time.Millisecond}},
	}
	var out bytes.Buffer
	err := writeReport(&out, options{sessions: 64, rounds: 3, duration: 5 * time.Second}, []result{
		{scenario: scenario{name: "plain", title: "a load", goal: true}, rounds: rounds},
		{scenario: scenario{name: "strict", title: "another"}, rounds: rounds},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `
64 sessions, one call a step, 3 rounds of 5s; medians

plain: a load
          calls/s  CPU a call      p50       p99
    bare     1000    100.0 µs  6.00 ms  12.00 ms
  bridge      900    130.0 µs  7.00 ms  14.00 ms
  CPU a call 1.30 × (1.30 1.20 5.00), goal at most 1.4 ×: met; calls a second 0.70 × (0.90 0.50 0.70), goal at least 0.8 ×: MISSED

strict: another
          calls/s  CPU a call      p50       p99
    bare     1000    100.0 µs  6.00 ms  12.00 ms
  bridge      900    130.0 µs  7.00 ms  14.00 ms
  CPU a call 1.30 × (1.30 1.20 5.00); calls a second 0.70 × (0.90 0.50 0.70)
`
	if got := out.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
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

func TestFlagsRefuseWhatCannotBeMeasured(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-rounds=0"}, {"-sessions=0"}, {"-duration=0s"}, {"-only=plain,none"}, {"-unknown"}, {"extra"}} {
		if _, err := parseFlags(args); !errors.As(err, new(usageError)) {
			t.Errorf("%v: got %v, want a usage error", args, err)
		}
	}
	o, err := parseFlags([]string{"-only=text,strict"})
	if err != nil || len(o.scenarios) != 2 || o.scenarios[0].texts != 100 || o.scenarios[1].idempotent {
		t.Errorf("got %+v, %v", o.scenarios, err)
	}
}
