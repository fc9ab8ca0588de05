package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// Guard lets only operators through. With a token, every request must carry it
// as a bearer token; without one, only requests to a loopback name are served,
// so that no web page can reach the bridge by a name of its own (DNS
// rebinding). Either way, unsafe requests from another origin are refused.
// Where a request came from is never taken from its headers.
func Guard(token string) func(http.Handler) http.Handler {
	admit := loopbackOnly
	if token != "" {
		admit = bearer(token)
	}
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		problem(w, http.StatusForbidden, "Requests from another origin may not change anything.")
	}))
	return func(next http.Handler) http.Handler { return admit(origin.Handler(next)) }
}

// bearer demands the token. Both sides are hashed, so that the comparison takes
// as long whatever their lengths are.
func bearer(token string) func(http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			got := sha256.Sum256([]byte(strings.TrimSpace(given)))
			if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
				w.Header().Set("WWW-Authenticate", `Bearer realm="functionbridge"`)
				problem(w, http.StatusUnauthorized, "Send the admin token as Authorization: Bearer TOKEN.")
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func loopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopbackName(r.Host) {
			problem(w, http.StatusForbidden,
				"Without an admin token only requests to localhost, 127.0.0.1 or [::1] are served. Set BRIDGE_ADMIN_TOKEN to use another name.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopbackName reports whether a Host header, with or without a port, names
// this machine whatever a resolver says.
func isLoopbackName(host string) bool {
	name := host
	if h, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return false
		}
		name = h
		if strings.Contains(h, ":") {
			name = "[" + h + "]"
		}
	}
	if inner, ok := strings.CutPrefix(name, "["); ok {
		return inner == "::1]"
	}
	ip, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || (err == nil && ip.Is4() && ip.IsLoopback())
}

// EscapedPath makes the router match the path as it was sent, so that an id
// with an encoded slash stays one segment and every id is decoded once.
func EscapedPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chi.RouteContext(r.Context()).RoutePath = r.URL.EscapedPath()
		next.ServeHTTP(w, r)
	})
}

// Recover answers 500 when a handler panics, and logs the panic with its stack.
func Recover(log *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wrapped := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			defer func() { //nolint:contextcheck // it is the request's own
				if caught := recover(); caught != nil {
					panicked(r.Context(), log, wrapped, caught)
				}
			}()
			next.ServeHTTP(wrapped, r)
		})
	}
}

func panicked(ctx context.Context, log *slog.Logger, w middleware.WrapResponseWriter, caught any) {
	if caught == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
		panic(caught)
	}
	log.ErrorContext(ctx, "panic while answering", "panic", caught, "stack", string(debug.Stack()))
	if w.Status() != 0 {
		panic(http.ErrAbortHandler) // the answer has begun: break it off
	}
	problem(w, http.StatusInternalServerError, "The bridge failed to answer; the log says why.")
}
