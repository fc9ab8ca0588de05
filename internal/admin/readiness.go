package admin

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/singleflight"
)

// probeTimeout bounds how long /readyz waits for the journal; its own answer is
// promised within five seconds whatever hangs.
const probeTimeout = 3 * time.Second

// The fixed words of /readyz.
const (
	reasonNoTable    = "no_table"
	reasonJournal    = "journal_not_writable"
	reasonDraining   = "draining"
	reasonKeyRefused = "api_key_refused"

	degradedAPI = "api_unreachable"
)

// ReadyJournal says whether the journal can be written now.
type ReadyJournal interface {
	Ready(ctx context.Context) error
}

// AgentsAPI is what the last answers said about the API. Its methods must not wait.
type AgentsAPI interface {
	// KeyRefused reports whether the API refuses the key.
	KeyRefused() bool
	// Degraded reports whether the API cannot be reached.
	Degraded() bool
}

// Readiness answers /readyz: whether the bridge can do its work now.
type Readiness struct {
	Journal ReadyJournal
	API     AgentsAPI
	// HasTable reports whether there is a route table; Draining whether the
	// bridge is about to stop. They must not wait.
	HasTable, Draining func() bool
	Logger             *slog.Logger

	probes singleflight.Group
}

type readyAnswer struct {
	Status   string   `json:"status"`
	Degraded []string `json:"degraded,omitempty"`
	Reasons  []string `json:"reasons,omitempty"`
}

// Readyz answers 200 "ready", with what is degraded, or 503 "not_ready" with
// the reasons.
func (rd *Readiness) Readyz(w http.ResponseWriter, r *http.Request) {
	if reasons := rd.reasons(r.Context()); len(reasons) > 0 {
		answer(w, rd.Logger, http.StatusServiceUnavailable, readyAnswer{Status: "not_ready", Reasons: reasons})
		return
	}
	ready := readyAnswer{Status: "ready"}
	if rd.API.Degraded() {
		ready.Degraded = []string{degradedAPI}
	}
	answer(w, rd.Logger, http.StatusOK, ready)
}

func (rd *Readiness) reasons(ctx context.Context) []string {
	var reasons []string
	for _, check := range []struct {
		failed bool
		reason string
	}{
		{!rd.HasTable(), reasonNoTable},
		{!rd.writable(ctx), reasonJournal},
		{rd.Draining(), reasonDraining},
		{rd.API.KeyRefused(), reasonKeyRefused},
	} {
		if check.failed {
			reasons = append(reasons, check.reason)
		}
	}
	return reasons
}

// writable asks the journal, and gives it up when it does not answer. All who
// ask at once share one probe, so that a journal that hangs collects no pile of
// them; the probe ends by itself, whoever has gone.
func (rd *Readiness) writable(ctx context.Context) bool {
	probe := rd.probes.DoChan("journal", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
		defer cancel()
		return nil, rd.Journal.Ready(ctx)
	})
	patience := time.NewTimer(probeTimeout)
	defer patience.Stop()
	select {
	case result := <-probe:
		return result.Err == nil
	case <-patience.C:
	case <-ctx.Done():
	}
	return false
}

// Healthz answers 200: the process lives and serves.
func Healthz(w http.ResponseWriter, _ *http.Request) {
	send(w, http.StatusOK, "application/json", []byte(`{"status":"ok"}`+"\n"))
}
