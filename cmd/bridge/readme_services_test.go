package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"functionbridge/internal/router"
)

// loadExample loads a route table of the README: one file, or, with --- between
// them, the files of a directory, each named in its first line.
func loadExample(t *testing.T, dir, text string, env router.Env) *router.Table {
	t.Helper()
	path := filepath.Join(dir, "routes.yaml")
	if files := strings.Split(text, "\n---\n"); len(files) > 1 {
		path = filepath.Join(dir, "routes")
		must(t, os.Mkdir(path, 0o700))
		for _, file := range files {
			name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(file, "version: 1 # "), "# "), "\n")
			write(t, filepath.Join(path, name), []byte(file+"\n"))
		}
	} else {
		write(t, path, []byte(text))
	}
	table, err := router.Load(path, env)
	must(t, err)
	return table
}

// start serves on two ports, in the clear and with TLS for the bridge's own
// certificate, which is put into the directory with the authority's. It returns
// how every host is reached.
func (s *exampleService) start(t *testing.T, dir string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	t.Helper()
	plain := httptest.NewServer(s)
	t.Cleanup(plain.Close)
	authority := newAuthority(t, dir)
	locked := httptest.NewUnstartedServer(s)
	locked.TLS = &tls.Config{
		Certificates: []tls.Certificate{authority.issue(t, "")}, ClientCAs: authority.pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}
	locked.StartTLS()
	t.Cleanup(locked.Close)
	authority.issue(t, filepath.Join(dir, "bridge"))
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		target := plain.Listener.Addr().String()
		if strings.HasSuffix(addr, ":443") {
			target = locked.Listener.Addr().String()
		}
		return (&net.Dialer{}).DialContext(ctx, network, target)
	}
}

// authority issues certificates; its own is ca.pem in a directory.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pool        *x509.CertPool
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "example authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	certificate, err := x509.ParseCertificate(der)
	must(t, err)
	write(t, filepath.Join(dir, "ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a := &authority{certificate, key, x509.NewCertPool()}
	a.pool.AddCert(certificate)
	return a
}

// issue makes a certificate for the services of the README, and writes it to
// base.pem and base.key where there is a base.
func (a *authority) issue(t *testing.T, base string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "example"}, NotAfter: time.Now().Add(time.Hour),
		DNSNames:    []string{"ledger.internal"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	must(t, err)
	if base != "" {
		private, err := x509.MarshalPKCS8PrivateKey(key)
		must(t, err)
		write(t, base+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
		write(t, base+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// signed verifies a request's signature as a receiver does.
func signed(secret string, body []byte, header http.Header) bool {
	webhook, err := standardwebhooks.NewWebhook(secret)
	return err == nil && webhook.Verify(body, header) == nil
}
