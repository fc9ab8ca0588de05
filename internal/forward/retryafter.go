package forward

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// retryAfter reads a Retry-After header: how many seconds the service asks to
// wait from now on, rounded up, saturating. It is not ok without the header and
// with one that is neither a number of seconds nor one of the three date forms;
// a date that is past is ok, and 0.
func retryAfter(header http.Header, now time.Time) (seconds int64, ok bool) {
	text := strings.TrimSpace(header.Get("Retry-After"))
	if text == "" {
		return 0, false
	}
	if isDigit(text[0]) {
		return parseSeconds(text)
	}
	date, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	wait := date.Sub(now)
	if wait <= 0 {
		return 0, true
	}
	return int64((wait-1)/time.Second) + 1, true
}

func parseSeconds(text string) (int64, bool) {
	var n int64
	for i := range len(text) {
		if !isDigit(text[i]) {
			return 0, false
		}
		digit := int64(text[i] - '0')
		if n > (math.MaxInt64-digit)/10 {
			n = math.MaxInt64
			continue
		}
		n = n*10 + digit
	}
	return n, true
}

// seconds turns a number of seconds into a duration, saturating.
func seconds(n int64) time.Duration {
	if n > int64(math.MaxInt64/time.Second) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Second
}
