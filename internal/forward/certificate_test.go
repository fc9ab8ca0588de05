package forward_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log" //nolint:depguard // what net/http takes
	"log/slog"
	"math/big"
	"net"
	"net/http/httptest"
	"testing"
	"time"
)

// newCertificate makes a self-signed one for 127.0.0.1.
func newCertificate(t *testing.T, from, to time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: from, NotAfter: to, IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// quiet is for servers of which failed handshakes are expected.
func quiet(s *httptest.Server) { s.Config.ErrorLog = quietLog() }

func quietLog() *log.Logger { return slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) }
