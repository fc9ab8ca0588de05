package router

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"strings"
)

// TLS is what is special about the connections to a service.
type TLS struct {
	// ServerName is what the certificate of the service is checked against, empty for
	// the host of the URL.
	ServerName string

	// config is nil when the table says nothing of TLS; names are the keys of its
	// files.
	config *watched[*tls.Config]
	names  []string
	shown  map[string]string
}

// Config is for a client of the service, nil when the table says nothing of TLS.
// The files are looked at again when that was a second ago or more, and the pointer
// is another one when they changed. If they cannot be used, the config is the last
// good one and the error says why, in words that can be logged.
func (t TLS) Config() (*tls.Config, error) {
	if t.config == nil {
		return nil, nil
	}
	config, failed := t.config.get()
	return config, failed.named(t.names)
}

// tlsFiles are the keys of tls that name files, in the order in which tlsConfig
// takes their contents.
func tlsFiles() []string { return []string{"ca_file", "cert_file", "key_file"} }

// tls reads the tls of an upstream.
func (r *reader) tls(f field, env *environment) TLS {
	o, ok := r.object(f.path, f.value, keys{now: append(tlsFiles(), "server_name")})
	if !ok {
		return TLS{}
	}
	t := TLS{shown: map[string]string{}}
	if name, there := o.fields["server_name"]; there {
		t.ServerName = r.serverName(name, &t, env)
	}
	var files []field
	var paths []string
	for _, name := range tlsFiles() {
		file, there := o.fields[name]
		if !there {
			continue
		}
		path, shown := r.filePath(file, env)
		t.shown[name] = shown
		if path != "" {
			files, paths, t.names = append(files, file), append(paths, path), append(t.names, file.path)
		}
	}
	r.checkPair(o)
	var failed fileErrors
	t.config, failed = watch(paths, func(contents [][]byte) (*tls.Config, fileErrors) {
		return tlsConfig(t.ServerName, files, contents)
	})
	for _, e := range failed {
		r.reportFile(files[e.index], e, env)
	}
	return t
}

// checkPair demands the key of a certificate and the other way round.
func (r *reader) checkPair(o object) {
	cert, hasCert := o.fields["cert_file"]
	key, hasKey := o.fields["key_file"]
	switch {
	case hasCert && o.missing("key_file"):
		r.problems.addf(r.at(cert.key), "%s needs key_file: a client has both", cert.path)
	case hasKey && o.missing("cert_file"):
		r.problems.addf(r.at(key.key), "%s needs cert_file: a client has both", key.path)
	}
}

func (r *reader) serverName(f field, t *TLS, env *environment) string {
	if _, ok := r.text(f); !ok {
		return ""
	}
	v, ok := r.plain(f, env)
	if !ok {
		return ""
	}
	t.shown["server_name"] = v.shown
	if !v.unset && !isServerName(v.text) {
		r.wrongf(f, "must be the name of a host, or its IP address, without a port")
	}
	return v.text
}

func isServerName(name string) bool {
	if address, err := netip.ParseAddr(name); err == nil {
		return address.Zone() == ""
	}
	return name != "" && isASCII(name) && strings.IndexFunc(name, func(c rune) bool {
		return !isAlphanumeric(c) && c != '-' && c != '.' && c != '_'
	}) < 0
}

// tlsConfig makes the config of a client of the contents of its files.
func tlsConfig(serverName string, files []field, contents [][]byte) (*tls.Config, fileErrors) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	var failed fileErrors
	var certificate, key []byte
	keyIndex := 0
	for i, f := range files {
		problem := ""
		switch f.name {
		case "ca_file":
			config.RootCAs, problem = certificatePool(contents[i])
		case "cert_file":
			certificate = contents[i]
			_, problem = certificates(certificate)
		case "key_file":
			key, keyIndex = contents[i], i
			problem = keyProblem(key)
		}
		if problem != "" {
			failed = append(failed, fileError{index: i, problem: problem})
		}
	}
	if failed != nil || certificate == nil || key == nil {
		return config, failed
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fileErrors{{index: keyIndex, problem: "the key does not belong to the certificate, or cannot be read: " + strings.TrimPrefix(err.Error(), "tls: ")}}
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

func certificatePool(data []byte) (pool *x509.CertPool, problem string) {
	list, problem := certificates(data)
	pool = x509.NewCertPool()
	for _, c := range list {
		pool.AddCert(c)
	}
	return pool, problem
}

// certificates parses the certificates of a PEM file; problem says why there are
// none, or is empty.
func certificates(data []byte) (list []*x509.Certificate, problem string) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, "the file holds a certificate that cannot be read: " + strings.TrimPrefix(err.Error(), "x509: ")
		}
		list = append(list, c)
	}
	if list == nil {
		return nil, "the file holds no certificate in PEM (-----BEGIN CERTIFICATE-----)"
	}
	return list, ""
}

// keyProblem says why a file holds no private key that can be used, or is empty.
func keyProblem(data []byte) string {
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		switch {
		case block == nil:
			return "the file holds no private key in PEM (-----BEGIN PRIVATE KEY-----)"
		case block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
			return "the private key is encrypted: it must be readable without a password"
		case strings.HasSuffix(block.Type, "PRIVATE KEY"):
			return ""
		}
	}
}

// warnOfUselessTLS tells of tls where nothing is encrypted.
func (b *builder) warnOfUselessTLS(u *upstream, path string, at place) {
	if u.url == nil {
		return
	}
	for _, p := range u.url.head {
		if p.mark != nil && p.mark.unset {
			return
		}
	}
	token, _ := u.service.Auth.OAuth2.TokenURL.Reveal()
	if fixed, _ := fixedText(u.url.head); !isHTTPS(fixed) && !isHTTPS(token) {
		b.warnf(at, "%s.tls: has no effect: the url does not begin with https://", path)
	}
}

func isHTTPS(url string) bool {
	const scheme = "https://"
	return len(url) >= len(scheme) && strings.EqualFold(url[:len(scheme)], scheme)
}
