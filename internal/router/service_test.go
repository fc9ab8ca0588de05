package router_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"functionbridge/internal/router"
)

func TestLimitsAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	rate := func(events float64, burst int) router.Rate { return router.Rate{Events: events, Burst: burst} }
	for text, want := range map[string]router.Limits{
		``:                                {MaxQueue: 1000},
		`max_concurrent: 64`:              {MaxConcurrent: 64, MaxQueue: 1000},
		`max_concurrent: 1, max_queue: 0`: {MaxConcurrent: 1},
		`max_queue: 1000000`:              {MaxQueue: 1_000_000},
		`rate_limit: 100/s`:               {MaxQueue: 1000, Rate: rate(100, 10)},
		`rate_limit: 9/s`:                 {MaxQueue: 1000, Rate: rate(9, 1)},
		`rate_limit: 60/m`:                {MaxQueue: 1000, Rate: rate(1, 6)},
		`rate_limit: 0.5/m`:               {MaxQueue: 1000, Rate: rate(0.5/60, 1)},
		`rate_limit: 36000/h`:             {MaxQueue: 1000, Rate: rate(10, 3600)},
		`circuit_breaker: { failures: 3, open_for: 1m30s }`: {MaxQueue: 1000, Breaker: router.Breaker{Failures: 3, OpenFor: 90 * time.Second}},
		`circuit_breaker: { failures: 10 }`:                 {MaxQueue: 1000, Breaker: router.Breaker{Failures: 10, OpenFor: 30 * time.Second}},
	} {
		table := parse(t, `
version: 1
upstreams: { u: { url: "http://host", `+text+` } }
routes:
  f: { upstream: u, path: /x }
  g: { url: "http://host/", `+text+` }
`, nil)
		for name, got := range map[string]router.Limits{"upstream": lookup(t, table, "f").Service.Limits, "route": lookup(t, table, "g").Limits} {
			same := got.Rate.Events == want.Rate.Events && got.Rate.Burst == want.Rate.Burst
			if got.Rate = want.Rate; !same || got != want {
				t.Errorf("%s of the %s: got %+v, want %+v", text, name, got, want)
			}
		}
	}
}

func TestDescribeShowsLimits(t *testing.T) {
	t.Parallel()
	table, err := parseFixture(t, "testdata/good/limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	infos := table.Describe()
	own, shared := infos[1].Limits, infos[1].Service.Limits
	if own.MaxConcurrent != 1 || own.MaxQueue != 1_000_000 || own.RateLimit != "36000/h" || own.CircuitBreaker.OpenFor != "1m30s" || infos[0].Service != nil ||
		shared.MaxConcurrent != 64 || shared.MaxQueue != 0 || shared.RateLimit != "100/s" || shared.CircuitBreaker.Failures != 10 || infos[0].Limits.RateLimit != "0.5/m" {
		t.Errorf("%+v, %+v, %+v", infos[0].Limits, own, shared)
	}
	if info := parse(t, "version: 1\nroutes:\n  f: http://h/\n", nil).Describe()[0]; info.Limits != nil || info.Service != nil {
		t.Errorf("%+v", info)
	}
}

// authority writes the files of a new authority, and starts a server that its
// clients alone may ask; the server's own certificate is in server.pem.
func authority(t *testing.T, dir string) *httptest.Server {
	t.Helper()
	ca, cert, key := newAuthority()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.TLS.ServerName + " " + r.TLS.PeerCertificates[0].Subject.CommonName))
	}))
	server.TLS = &tls.Config{ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, data := range map[string][]byte{"cert.pem": cert, "key.pem": key, "server.pem": own, "client-ca.pem": ca} {
		write(t, filepath.Join(dir, name), string(data))
	}
	return server
}

func ask(t *testing.T, url string, config *tls.Config) (string, error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var text strings.Builder
	err = response.Write(&text)
	return text.String(), err
}

func TestTLSReachesAServerThatAsksForACertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := authority(t, dir)
	for settings, want := range map[string]string{
		`ca_file: "${DIR}/server.pem", cert_file: "${DIR}/cert.pem", key_file: "${DIR}/key.pem", server_name: example.com`: "example.com bridge",
		`ca_file: "${DIR}/server.pem", cert_file: "${DIR}/cert.pem", key_file: "${DIR}/key.pem"`:                           " bridge",
		`ca_file: "${DIR}/server.pem"`: "certificate required",
		`ca_file: "${DIR}/client-ca.pem", cert_file: "${DIR}/cert.pem", key_file: "${DIR}/key.pem"`:                          "unknown authority",
		`ca_file: "${DIR}/server.pem", cert_file: "${DIR}/cert.pem", key_file: "${DIR}/key.pem", server_name: other.invalid`: "other.invalid",
	} {
		_, service := serviceOf(t, "tls: { "+settings+" }", map[string]string{"DIR": dir})
		config, err := service.TLS.Config()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ask(t, server.URL, config)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", settings, got, want)
		}
	}
	_, service := serviceOf(t, "headers: { X-A: a }", nil)
	if config, err := service.TLS.Config(); config != nil || err != nil {
		t.Errorf("without tls: %v, %v", config, err)
	}
}

func TestTLSConfigIsAnotherOneWhenAFileChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		files := func() {
			ca, cert, key := newAuthority()
			for name, data := range map[string][]byte{"ca.pem": ca, "cert.pem": cert, "key.pem": key} {
				write(t, filepath.Join(dir, name), string(data))
			}
		}
		files()
		_, service := serviceOf(t, `tls: { ca_file: "${DIR}/ca.pem", cert_file: "${DIR}/cert.pem", key_file: "${DIR}/key.pem" }`, map[string]string{"DIR": dir})
		config := func() *tls.Config {
			t.Helper()
			c, err := service.TLS.Config()
			if err != nil {
				t.Error(err)
			}
			return c
		}
		first := config()
		time.Sleep(time.Minute) // fake clock
		age(t, filepath.Join(dir, "ca.pem"))
		if config() != first {
			t.Error("another config although nothing changed")
		}
		old, err := os.ReadFile(filepath.Join(dir, "key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		files()
		fresh, err := os.ReadFile(filepath.Join(dir, "key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		// As between the two writes of a renewal.
		write(t, filepath.Join(dir, "key.pem"), string(old))
		time.Sleep(time.Second) // fake clock
		kept, err := service.TLS.Config()
		if kept != first || err == nil || !strings.HasPrefix(err.Error(), "upstreams.crm.tls.key_file: the key does not belong to the certificate") {
			t.Errorf("kept %v, %v", kept == first, err)
		}
		write(t, filepath.Join(dir, "key.pem"), string(fresh))
		time.Sleep(time.Second) // fake clock
		second := config()
		if second == first || second.RootCAs.Equal(first.RootCAs) || len(second.Certificates) != 1 {
			t.Error("the config did not change")
		}
	})
}
