package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

// spread is the median, with the smallest and the largest of several values.
func spread(values []float64, unit string) string {
	if len(values) == 0 {
		return "–"
	}
	middle := median(values)
	digits := decimals(middle)
	text := figure(middle, digits) + " " + unit
	if len(values) > 1 {
		text += fmt.Sprintf(" (%s–%s)", figure(slices.Min(values), digits), figure(slices.Max(values), digits))
	}
	return text
}

// decimals are those that a number needs for about three significant digits.
func decimals(v float64) int {
	switch size := math.Abs(v); {
	case size >= 100:
		return 0
	case size >= 10:
		return 1
	case size >= 0.1 || size == 0:
		return 2
	}
	return 3
}

// figure writes a number with so many decimals; what is none, because too little was measured, is a dash.
func figure(v float64, decimals int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	if decimals == 0 {
		return thousands(int(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// round writes a limit, which needs no decimals where it is a whole number.
func round(v float64) string {
	if v == math.Trunc(v) {
		return figure(v, 0)
	}
	return figure(v, decimals(v))
}

// thousands writes 12345 as 12,345.
func thousands(n int) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return thousands(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

// seconds writes a duration as the documents do.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s" }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func kibibytes(n int64) float64      { return float64(n) / (1 << 10) }
func mebibytes(n int64) float64      { return float64(n) / (1 << 20) }

func inMebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", mebibytes(n)) }

// percentile gives the p-th percentile of sorted durations, by nearest rank; 0 without any.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

// median of values in any order; the mean of the middle two when their number is even.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}
