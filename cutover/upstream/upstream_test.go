package upstream

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/gateway/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// startNATS runs a real nats-server until the test ends.
func startNATS(t *testing.T, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true}
	if change != nil {
		change(o)
	}
	s, err := server.NewServer(o)
	check(t, err)
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

func urls(t *testing.T, list ...string) (out []*url.URL) {
	t.Helper()
	for _, text := range list {
		at, err := url.Parse(text)
		check(t, err)
		out = append(out, at)
	}
	return out
}

func open(t *testing.T, o Options) (net.Conn, error) {
	t.Helper()
	u, err := New(o)
	check(t, err)
	from := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 7777}
	to := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4222}
	conn, _, err := u.Open(t.Context(), from, to)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// pinged demands that a connection works.
func pinged(t *testing.T, conn net.Conn) {
	t.Helper()
	check(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	_, err := io.WriteString(conn, "CONNECT {\"verbose\":false,\"protocol\":0}\r\nPING\r\n")
	check(t, err)
	in := bufio.NewReader(conn)
	for line := ""; line != "PONG\r\n"; {
		if line, err = in.ReadString('\n'); err != nil || strings.HasPrefix(line, "-ERR") {
			t.Fatalf("%q, %v", line, err)
		}
	}
}

// certificate returns a server's certificate for 127.0.0.1, and who trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	check(t, err)
	leaf, err := x509.ParseCertificate(der)
	check(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestTLS(t *testing.T) {
	cert, pool := certificate(t)
	secure := func(o *server.Options) {
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		o.TLSTimeout = 5
	}
	plain := startNATS(t, nil)
	required := startNATS(t, secure)
	available := startNATS(t, func(o *server.Options) { secure(o); o.AllowNonTLS = true })
	first := startNATS(t, func(o *server.Options) { secure(o); o.TLSHandshakeFirst = true })
	trusting := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	for name, tc := range map[string]struct {
		to     *server.Server
		scheme string
		o      Options
		secure bool
		want   string // part of the error
	}{
		"plain":                       {plain, "nats", Options{TLS: trusting}, false, ""},
		"plain where TLS is wanted":   {plain, "tls", Options{TLS: trusting}, false, "does not offer TLS"},
		"required":                    {required, "nats", Options{TLS: trusting}, true, ""},
		"required and not trusted":    {required, "nats", Options{}, false, "x509"},
		"available":                   {available, "nats", Options{TLS: trusting}, false, ""},
		"available and wanted":        {available, "tls", Options{TLS: trusting}, true, ""},
		"handshake first":             {first, "tls", Options{TLS: trusting, HandshakeFirst: true}, true, ""},
		"handshake first, not wanted": {first, "tls", Options{TLS: trusting}, false, "INFO"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.o.URLs = urls(t, tc.scheme+"://"+tc.to.Addr().String())
			tc.o.Timeout = 10 * time.Second
			if tc.want != "" {
				tc.o.Timeout = time.Second
			}
			conn, err := open(t, tc.o)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, ErrUnreachable) {
					t.Fatalf("got %v, want %q", err, tc.want)
				}
				return
			}
			check(t, err)
			if _, is := conn.(*tls.Conn); is != tc.secure {
				t.Errorf("TLS: %v", is)
			}
			pinged(t, conn)
		})
	}
}

// With the PROXY protocol the server knows the client's address.
func TestProxyProtocol(t *testing.T) {
	ns := startNATS(t, func(o *server.Options) { o.ProxyProtocol = true })
	conn, err := open(t, Options{URLs: urls(t, ns.ClientURL()), ProxyProtocol: true})
	check(t, err)
	pinged(t, conn)
	z, err := ns.Connz(nil)
	check(t, err)
	if len(z.Conns) != 1 || z.Conns[0].IP != "192.0.2.7" || z.Conns[0].Port != 7777 {
		t.Errorf("connz: %+v", z.Conns)
	}
	u, err := New(Options{URLs: urls(t, ns.ClientURL()), ProxyProtocol: true})
	check(t, err)
	check(t, u.Check(t.Context())) // for nobody in particular
}

// A server that wants to be sure that its clients come by the gateway is told so.
func TestTrustedProxy(t *testing.T) {
	key, err := nkeys.CreateServer()
	check(t, err)
	pub, err := key.PublicKey()
	check(t, err)
	ns := startNATS(t, func(o *server.Options) {
		o.Proxies = &server.ProxiesConfig{Trusted: []*server.ProxyConfig{{Key: pub}}}
	})
	u, err := New(Options{URLs: urls(t, ns.ClientURL()), ProxyKey: key})
	check(t, err)
	conn, doc, err := u.Open(t.Context(), nil, nil)
	check(t, err)
	defer conn.Close()
	var info wire.Info
	check(t, json.Unmarshal(doc, &info))
	_, err = fmt.Fprintf(conn, "CONNECT {\"verbose\":true,\"proxy_sig\":%q}\r\nPING\r\n", u.Sign(info.Nonce))
	check(t, err)
	check(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || line != "+OK\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	z, err := ns.Connz(nil)
	check(t, err)
	if len(z.Conns) != 1 || z.Conns[0].Proxy == nil || z.Conns[0].Proxy.Key != pub {
		t.Errorf("connz: %+v", z.Conns[0])
	}
}

// What is not a NATS server is called so.
func TestNotNATS(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "SSH-2.0-x\r\n")
			_ = c.Close()
		}
	}()
	_, err = open(t, Options{URLs: urls(t, "nats://"+l.Addr().String()), Timeout: 100 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), `not a NATS server: it begins with "SSH-2.0-x"`) {
		t.Errorf("got %v", err)
	}
}

// An Open ends in time, whatever the servers do, and at once when the client has gone.
func TestOpenIsBounded(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer silent.Close()
	start := time.Now()
	_, err = open(t, Options{URLs: urls(t, "nats://"+silent.Addr().String(), "nats://127.0.0.1:1"), Timeout: 400 * time.Millisecond})
	if took := time.Since(start); err == nil || took < 300*time.Millisecond || took > 5*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	u, err := New(Options{URLs: urls(t, "nats://"+silent.Addr().String()), Timeout: time.Minute})
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start = time.Now()
	if _, _, err = u.Open(ctx, nil, nil); err == nil || time.Since(start) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

// A server that is down is left aside, and used again once it is back.
func TestOrder(t *testing.T) {
	good := startNATS(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	check(t, l.Close())
	u, err := New(Options{URLs: urls(t, "nats://"+l.Addr().String(), good.ClientURL())})
	check(t, err)
	dial := func() string {
		conn, _, err := u.Open(t.Context(), nil, nil)
		check(t, err)
		defer conn.Close()
		return conn.RemoteAddr().String()
	}
	for range 200 {
		if dial() != good.Addr().String() {
			t.Fatal("connected to nothing")
		}
	}
	if s := u.Stats(); s[0].Failures == 0 || s[0].Failures > 20 || s[0].LastErr == "" || s[1].Failures != 0 {
		t.Errorf("the server that is down was tried too often or never: %+v", s)
	}
	back := startNATS(t, func(o *server.Options) { o.Port = port })
	end := time.Now().Add(20 * time.Second)
	for dial() != back.Addr().String() {
		if time.Now().After(end) {
			t.Fatal("a server that is back is not used")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A name is looked up at each connection.
func TestLookup(t *testing.T) {
	ns := startNATS(t, nil)
	_, port, err := net.SplitHostPort(ns.Addr().String())
	check(t, err)
	conn, err := open(t, Options{URLs: urls(t, "nats://localhost:"+port)})
	check(t, err)
	pinged(t, conn)
	_, err = open(t, Options{URLs: urls(t, "nats://does-not-exist.invalid:4222"), Timeout: 200 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "does-not-exist.invalid") {
		t.Errorf("got %v", err)
	}
}

func TestCheckIsRemembered(t *testing.T) {
	ns := startNATS(t, nil)
	u, err := New(Options{URLs: urls(t, ns.ClientURL())})
	check(t, err)
	for range 50 {
		check(t, u.Check(t.Context()))
	}
	if n := u.Stats()[0].Dials; n > 5 {
		t.Errorf("%d dials for 50 checks", n)
	}
}
