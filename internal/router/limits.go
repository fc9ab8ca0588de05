package router

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

const (
	defaultMaxQueue = 1000
	defaultOpenFor  = 30 * time.Second
	// maxLimit bounds the limits that count something.
	maxLimit = 1_000_000
)

// limitKeys are the keys of a route or of an upstream that limit its requests.
func limitKeys() []string {
	return []string{"max_concurrent", "max_queue", "rate_limit", "circuit_breaker"}
}

// limitSettings are those keys as far as they are set.
type limitSettings struct {
	maxConcurrent, maxQueue *int64
	rate                    *Rate
	breaker                 *Breaker
}

func (r *reader) limits(fields map[string]field) limitSettings {
	return limitSettings{
		maxConcurrent: optional(fields, "max_concurrent", func(f field) *int64 { return r.number(f, 1, maxLimit) }),
		maxQueue:      optional(fields, "max_queue", func(f field) *int64 { return r.number(f, 0, maxLimit) }),
		rate:          optional(fields, "rate_limit", r.rate),
		breaker:       optional(fields, "circuit_breaker", r.breaker),
	}
}

func (s limitSettings) over(d limitSettings) limitSettings {
	return limitSettings{
		maxConcurrent: or(s.maxConcurrent, d.maxConcurrent),
		maxQueue:      or(s.maxQueue, d.maxQueue),
		rate:          or(s.rate, d.rate),
		breaker:       or(s.breaker, d.breaker),
	}
}

func (s limitSettings) limits() Limits {
	return Limits{
		MaxConcurrent: int(value(s.maxConcurrent, 0)),
		MaxQueue:      int(value(s.maxQueue, defaultMaxQueue)),
		Rate:          value(s.rate, Rate{}),
		Breaker:       value(s.breaker, Breaker{}),
	}
}

// rateText is a number, with a fraction or without, for a second, minute or hour.
var rateText = regexp.MustCompile(`^[0-9]{1,9}(\.[0-9]{1,9})?/[smh]$`)

// rate reads a rate such as 100/s.
func (r *reader) rate(f field) *Rate {
	if f.value.Kind != yaml.ScalarNode || !isText(f.value) {
		r.wrongf(f, "must be a rate such as 100/s, not %s", kindOf(f.value))
		return nil
	}
	text := f.value.Value
	if !rateText.MatchString(text) {
		r.wrongf(f, "must be a number and /s, /m or /h, such as 100/s, got %s", quoteWord(text))
		return nil
	}
	number, unit, _ := strings.Cut(text, "/")
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n <= 0 {
		r.wrongf(f, "must be positive, got %s", text)
		return nil
	}
	per := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	return &Rate{Events: n / per.Seconds(), Burst: max(1, int(n/10)), text: text}
}

func (r *reader) breaker(f field) *Breaker {
	o, ok := r.object(f.path, f.value, keys{now: []string{"failures", "open_for"}})
	if !ok {
		return nil
	}
	failures := optional(o.fields, "failures", func(f field) *int64 { return r.number(f, 1, maxLimit) })
	openFor := optional(o.fields, "open_for", r.duration)
	if o.missing("failures") {
		r.problems.addf(r.at(f.key), "%s: failures is missing", f.path)
	}
	return &Breaker{Failures: int(value(failures, 1)), OpenFor: value(openFor, defaultOpenFor)}
}
