package forward_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"functionbridge/internal/journal"
)

// The process's authorities are read once, so a process of its own is told
// another file of them: with it, a service whose certificate is signed by one
// of them is called, and one call has one side effect when the reused
// connection breaks.
func TestAuthoritiesOfTheEnvironment(t *testing.T) {
	t.Parallel()
	if url, method := flag.Arg(0), flag.Arg(1); url != "" {
		callTwice(t, url, method)
		return
	}
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		for _, method := range []string{"POST", "GET"} {
			t.Run(protocol+" "+method, func(t *testing.T) {
				t.Parallel()
				up := startBreaking(t, true, protocol == "HTTP/2", "reset")
				file := filepath.Join(t.TempDir(), "ca.pem")
				certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw})
				if err := os.WriteFile(file, certificate, 0o600); err != nil {
					t.Fatal(err)
				}
				child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$", "-test.v", "--", up.URL, method)
				child.Env = append(child.Environ(), "SSL_CERT_FILE="+file)
				out, err := child.CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				for _, want := range []string{`first: {"success":true,"failure":""}`, `second: {"success":false,"failure":"unknown_outcome"}`} {
					if !bytes.Contains(out, []byte(want)) {
						t.Errorf("the calls came to\n%s\nwant %s", out, want)
					}
				}
				if n := up.sideEffects.Load(); n != 1 || up.connections.Load() != 1 {
					t.Errorf("%d side effects over %d connections, want 1 over 1", n, up.connections.Load())
				}
			})
		}
	}
}

// callTwice is what the process of its own does.
func callTwice(t *testing.T, url, method string) {
	t.Helper()
	b := newBench(t, table(fmt.Sprintf("act: { url: %s, method: %s, idempotent: false }", url, method)))
	for _, which := range []string{"first", "second"} {
		o, _ := b.run(t, "act", `{"a":1}`)
		text, err := json.Marshal(struct {
			Success bool         `json:"success"`
			Failure journal.Kind `json:"failure"`
		}{o.Success, o.Failure})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %s", which, text)
	}
}
