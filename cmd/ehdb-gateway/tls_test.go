package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// selfSigned writes a certificate for 127.0.0.1 that signs itself to dir/name.pem, and its key beside it.
func selfSigned(t *testing.T, dir, name string) (cert *x509.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: raw},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, certFile, keyFile
}

func trusting(certs ...*x509.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
}

// Flags alone make a server that speaks TLS, with its monitor.
func TestTLSFlags(t *testing.T) {
	cert, certFile, keyFile := selfSigned(t, t.TempDir(), "one")
	p := start(t, "-m", "0", "-ms", "-1", "--tls", "--tlscert", certFile, "--tlskey", keyFile)
	if !strings.HasPrefix(p.ports.Nats[0], "tls://") || !strings.HasPrefix(p.http(), "https://") {
		t.Fatalf("%+v", p.ports)
	}
	nc := p.connect(nats.Secure(trusting(cert)))
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(cert)}}
	resp, err := client.Get(p.http() + "/connz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"tls_version": "1.3"`, `"tls_cipher_suite": "TLS_`} {
		if !strings.Contains(string(body), want) {
			t.Errorf("connz without %s: %s", want, body)
		}
	}
	p.stop()
}

// A certificate that was replaced is in use after a reload, for clients and for the monitor; one that cannot be read
// changes nothing.
func TestTLSReload(t *testing.T) {
	dir := t.TempDir()
	one, certFile, keyFile := selfSigned(t, dir, "srv")
	file := filepath.Join(dir, "nats.conf")
	text := fmt.Sprintf("https_port: -1\ntls { cert_file: %q, key_file: %q }\n", certFile, keyFile)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "-m", "0", "-c", file)
	old := p.connect(nats.Secure(trusting(one)))
	two, _, _ := selfSigned(t, dir, "srv")
	p.signal(syscall.SIGHUP)
	p.awaitLog("[INF] Reloaded server configuration")
	p.connect(nats.Secure(trusting(two)))
	if _, err := nats.Connect(p.ports.Nats[0], nats.Secure(trusting(one))); err == nil {
		t.Error("the old certificate is still shown")
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(two)}}
	resp, err := client.Get(p.http() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if err := old.Flush(); err != nil {
		t.Errorf("a client from before: %v", err)
	}
	if err := os.WriteFile(keyFile, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGHUP)
	p.awaitLog("[ERR] Failed to reload server configuration: ")
	p.connect(nats.Secure(trusting(two)))
	if strings.Contains(p.logged(), "PRIVATE KEY") {
		t.Error("the log has a key")
	}
}

func TestHTTPSNeedsACertificate(t *testing.T) {
	if _, errs, code := once(t, "-a", "127.0.0.1", "-p", "-1", "-ms", "-1"); code == 0 || !strings.Contains(errs, "TLS cert and key required for HTTPS") {
		t.Errorf("%d %s", code, errs)
	}
	if _, errs, code := once(t, "-a", "127.0.0.1", "-p", "-1", "-m", "-1", "-ms", "-1"); code == 0 || !strings.Contains(errs, "can't specify both HTTP") {
		t.Errorf("%d %s", code, errs)
	}
}
