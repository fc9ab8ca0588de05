package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"functionbridge/internal/agentsim"
)

// health runs `bridge health` against an address.
func health(t *testing.T, addr string) (code int, out, errOut string) {
	t.Helper()
	t.Setenv("BRIDGE_ADDR", addr)
	var stdout, stderr bytes.Buffer
	code = run(signals{stop: t.Context(), hurry: t.Context()}, []string{"health"}, strings.NewReader(""), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestHealthTellsReadyFromNotReady(t *testing.T) {
	b := startBridge(t, agentsim.Kind(), plainTable, ok, nil)
	_, port, err := net.SplitHostPort(b.daemon.addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{b.daemon.addr, ":" + port, "0.0.0.0:" + port, "[::]:" + port, " :" + port + " ", "localhost:" + port} {
		if code, out, errOut := health(t, addr); code != 0 || out != "ready\n" || errOut != "" {
			t.Errorf("health at %q: %d %q %q, want 0 and ready", addr, code, out, errOut)
		}
	}
	b.daemon.draining.Store(true)
	if code, out, _ := health(t, ":"+port); code != 1 || out != "not_ready: draining\n" {
		t.Errorf("health of a draining bridge: %d %q", code, out)
	}
}

func TestHealthOfNothingAndOfStrangers(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := listener.Addr().String()
	_ = listener.Close()
	if code, out, _ := health(t, free); code != 1 || !strings.HasPrefix(out, "no answer from "+free) {
		t.Errorf("health where nothing listens: %d %q", code, out)
	}
	for name, answer := range map[string]string{"page": "<html>", "other JSON": `{"ok":true}`, "not ready, 200": `{"status":"not_ready"}`} {
		stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) }))
		if code, out, _ := health(t, stranger.Listener.Addr().String()); code != 1 {
			t.Errorf("health of a %s: %d %q", name, code, out)
		}
		stranger.Close()
	}
	for _, addr := range []string{"8080", "localhost", ":http", ":99999", "http://127.0.0.1:8080"} {
		if code, out, errOut := health(t, addr); code != 2 || out != "" || !strings.Contains(errOut, "BRIDGE_ADDR") || strings.Count(errOut, "\n") != 1 {
			t.Errorf("health with BRIDGE_ADDR=%q: %d %q %q", addr, code, out, errOut)
		}
	}
}

func TestUnsetAddressMeansTheDefault(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"", "  "} {
		if got, err := healthTarget(addr); err != nil || got != "127.0.0.1:8080" {
			t.Errorf("BRIDGE_ADDR=%q is asked at %q (%v)", addr, got, err)
		}
	}
}

// A bridge that takes the connection and says nothing is given up.
func TestHealthDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	began := time.Now()
	var out bytes.Buffer
	err = checkHealth(context.Background(), listener.Addr().String(), &out)
	if took := time.Since(began); err == nil || took > healthTimeout+2*time.Second {
		t.Errorf("health took %s and said %q (%v)", took, out.String(), err)
	}
}
