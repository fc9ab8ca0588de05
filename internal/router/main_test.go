package router_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// fixtureDir holds the secret and certificate files of the fixtures, which name
// it ${FILES}.
var fixtureDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "router-fixtures")
	must(err)
	defer os.RemoveAll(dir)
	fixtureDir = dir
	for name, data := range fixtureFiles() {
		must(os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	must(os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	m.Run()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// signingSecret is a secret of Standard Webhooks with a key of so many bytes.
func signingSecret(size int) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("s3cret"), size)[:size])
}

func fixtureFiles() map[string][]byte {
	ca, clientCert, clientKey := newAuthority()
	_, _, otherKey := newAuthority()
	encrypted := pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("s3cret")})
	return map[string][]byte{
		"token": []byte("s3cret-token\n"), "password": []byte("s3cret-password\r\n"), "empty": nil, "newline": []byte("\n"), "two-lines": []byte("s3cret\nlines\n"),
		"large": bytes.Repeat([]byte("s3cret"), 1<<18), "signing": []byte(signingSecret(32) + "\n"), "signing-two": []byte(signingSecret(24) + "\n" + signingSecret(25) + "\n"),
		"signing-three": []byte(signingSecret(24) + " " + signingSecret(25) + " " + signingSecret(26)), "signing-short": []byte(signingSecret(23)),
		"ca.pem": ca, "cert.pem": clientCert, "key.pem": clientKey, "other-key.pem": otherKey, "encrypted.pem": encrypted,
		"broken.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("s3cret")}), "both.pem": append(bytes.Clone(clientKey), clientCert...),
	}
}

// newAuthority makes a certificate authority and a client that it vouches for, in
// PEM.
func newAuthority() (ca, clientCert, clientKey []byte) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "bridge"}, NotAfter: time.Now().Add(time.Hour)}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, caKey.Public(), caKey)
	must(err)
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, root, key.Public(), caKey)
	must(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	inPEM := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return inPEM("CERTIFICATE", rootDER), inPEM("CERTIFICATE", leafDER), inPEM("PRIVATE KEY", keyDER)
}
