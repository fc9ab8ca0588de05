package forward

import (
	"net/http"
	"strings"

	"functionbridge/internal/journal"
	"functionbridge/internal/router"
)

const (
	acceptValue = "application/json, text/*;q=0.9, */*;q=0.5"
	// encodings are the content codings that are asked for. Others that decode
	// knows are taken too.
	encodings = "gzip"
	hexDigits = "0123456789ABCDEF"
)

// bridgeHeaderCount is how many headers bridgeHeaders makes at most.
const bridgeHeaderCount = 4

// bridgeHeaders appends the bridge's headers that say nothing of the call, under
// canonical names.
func bridgeHeaders(own []router.Header, agent string, hasBody bool) []router.Header {
	own = append(own,
		router.Header{Name: "Accept", Value: acceptValue},
		router.Header{Name: "Accept-Encoding", Value: encodings},
		router.Header{Name: "User-Agent", Value: agent},
	)
	if hasBody {
		own = append(own, router.Header{Name: "Content-Type", Value: "application/json"})
	}
	return own
}

// callHeaderCount is how many headers callHeaders makes at most.
const callHeaderCount = 5

// callHeaders appends the bridge's headers that name the call, under canonical
// names. No route can set them. An empty key is left out.
func callHeaders(own []router.Header, key string, call *journal.Call) []router.Header {
	own = append(own,
		router.Header{Name: "Bridge-Session-Id", Value: headerSafe(call.SessionID)},
		router.Header{Name: "Bridge-Turn-Id", Value: headerSafe(call.TurnID)},
		router.Header{Name: "Bridge-Call-Id", Value: headerSafe(call.CallID)},
		router.Header{Name: "Bridge-Function", Value: headerSafe(call.Function)},
	)
	if key != "" {
		own = append(own, router.Header{Name: "Idempotency-Key", Value: headerSafe(key)})
	}
	return own
}

// agentOf is the User-Agent.
func agentOf(version string) string { return "functionbridge/" + version }

// headerOf joins the bridge's headers with the route's, which win, and has room
// for those of the call.
func headerOf(own, routes []router.Header) http.Header {
	header := make(http.Header, len(own)+len(routes)+callHeaderCount)
	values := make([]string, len(own)+len(routes))
	for i, h := range own {
		values[i] = h.Value
		header[h.Name] = values[i : i+1 : i+1]
	}
	for i, h := range routes {
		i += len(own)
		values[i] = h.Value
		header[http.CanonicalHeaderKey(h.Name)] = values[i : i+1 : i+1]
	}
	return header
}

// headerSafe percent-encodes what a header value cannot carry unambiguously:
// every byte but visible ASCII, and the percent sign itself. The API's ids and
// the usual names of functions need none of it.
func headerSafe(value string) string {
	unsafe := 0
	for i := range len(value) {
		if !isHeaderSafe(value[i]) {
			unsafe++
		}
	}
	if unsafe == 0 {
		return value
	}
	var b strings.Builder
	b.Grow(len(value) + 2*unsafe)
	for i := range len(value) {
		if c := value[i]; isHeaderSafe(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}

func isHeaderSafe(c byte) bool { return '!' <= c && c <= '~' && c != '%' }
