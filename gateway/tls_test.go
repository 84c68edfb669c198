package gateway

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const hello = `CONNECT {"verbose":false,"pedantic":false,"protocol":0,"tls_required":true}` + "\r\nPING\r\n"

// patience is how many times the usual time is waited.
type patience int

func (p patience) of(d time.Duration) time.Duration { return time.Duration(p) * d }

// approach is a way to open a connection; it returns what came until silence. On a slow machine it is made with more
// patience.
type approach struct {
	name string
	do   func(c net.Conn, patience patience) string
}

func upgradeWithin(c net.Conn, config *tls.Config, text string, patience patience) string {
	s := tls.Client(c, config)
	_ = c.SetDeadline(time.Now().Add(patience.of(3 * time.Second)))
	if err := s.Handshake(); err != nil {
		return "<handshake: " + vague(err) + ">"
	}
	_, _ = io.WriteString(s, text)
	return listen(s, patience.of(400*time.Millisecond))
}

// vague is an error without what differs from one machine's moment to the next: a server that closes a socket with
// unread bytes resets it.
func vague(err error) string {
	if strings.Contains(err.Error(), "reset by peer") || strings.Contains(err.Error(), "broken pipe") {
		return "EOF"
	}
	return err.Error()
}

func approaches(configs map[string]*tls.Config) []approach {
	out := []approach{
		{"plain", func(c net.Conn, patience patience) string {
			got := firstLineWithin(c, patience.of(2500*time.Millisecond))
			_, _ = io.WriteString(c, hello)
			return got + listen(c, patience.of(time.Second))
		}},
		{"plain without waiting", func(c net.Conn, patience patience) string {
			_, _ = io.WriteString(c, hello)
			return listen(c, patience.of(time.Second))
		}},
		{"silent", func(c net.Conn, patience patience) string { return listen(c, patience.of(1500*time.Millisecond)) }},
		{"half a hello", func(c net.Conn, patience patience) string {
			got := firstLineWithin(c, patience.of(2500*time.Millisecond))
			_, _ = c.Write([]byte{0x16, 3})
			return got + listen(c, patience.of(5*time.Second))
		}},
		{"garbage record", func(c net.Conn, patience patience) string {
			_, _ = c.Write([]byte{0x16, 3, 1, 0xff, 0xff, 1, 2, 3})
			return strings.ReplaceAll(listen(c, patience.of(1500*time.Millisecond)), "\x15\x03\x01\x00\x02\x02", "<alert>")
		}},
	}
	for name, config := range configs {
		out = append(out,
			approach{name + " after INFO", func(c net.Conn, patience patience) string {
				return firstLineWithin(c, patience.of(2500*time.Millisecond)) + upgradeWithin(c, config, hello, patience)
			}},
			approach{name + " first", func(c net.Conn, patience patience) string { return upgradeWithin(c, config, hello, patience) }})
	}
	return out
}

// firstLineWithin is firstLine that gives up after wait.
func firstLineWithin(c net.Conn, wait time.Duration) string {
	_ = c.SetReadDeadline(time.Now().Add(wait))
	var got []byte
	for b := make([]byte, 1); !strings.HasSuffix(string(got), "\r\n"); {
		if _, err := c.Read(b); err != nil {
			return normalise(string(got)) + "<nothing>"
		}
		got = append(got, b[0])
	}
	return normalise(string(got))
}

// Whatever the options say of TLS, a client meets the same here as at a nats-server.
func TestParityTLS(t *testing.T) {
	ca := newAuthority(t)
	ca.server(t, "srv")
	leaf := ca.client(t, "alice", &x509.Certificate{Subject: pkix.Name{CommonName: "alice"}, EmailAddresses: []string{"alice@example.com"}})
	ca.client(t, "bob", &x509.Certificate{Subject: pkix.Name{CommonName: "bob", Organization: []string{"Bees"}}})
	other := newAuthority(t)
	other.client(t, "mallory", &x509.Certificate{Subject: pkix.Name{CommonName: "mallory"}})
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	strange := ca.trust(t, "")
	strange.Certificates = other.trust(t, "mallory").Certificates
	old := ca.trust(t, "alice")
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	configs := map[string]*tls.Config{
		"nobody": ca.trust(t, ""), "alice": ca.trust(t, "alice"), "bob": ca.trust(t, "bob"), "mallory": strange, "alice by 1.2": old,
	}
	files := fmt.Sprintf("cert_file: %q, key_file: %q, timeout: 2", ca.file("srv.pem"), ca.file("srv.key"))
	withCA := files + fmt.Sprintf(", ca_file: %q", ca.file("ca.pem"))
	var wg sync.WaitGroup
	gate := make(chan struct{}, 24)
	for name, text := range map[string]string{
		"tls":             `tls { ` + files + ` }`,
		"verify":          `tls { ` + withCA + `, verify: true }`,
		"pinned":          `tls { ` + withCA + `, verify: true, pinned_certs: ["` + hex.EncodeToString(sum[:]) + `"] }`,
		"1.3 only":        `tls { ` + files + `, min_version: "1.3", curve_preferences: ["X25519"] }`,
		"ciphers":         `tls { ` + files + `, cipher_suites: ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"] }`,
		"mixed":           `allow_non_tls: true, tls { ` + files + ` }`,
		"first":           `tls { ` + files + `, handshake_first: true }`,
		"first auto":      `tls { ` + files + `, handshake_first: auto }`,
		"first 1500ms":    `tls { ` + files + `, handshake_first: "1500ms" }`,
		"first and mixed": `allow_non_tls: true, tls { ` + files + `, handshake_first: "1500ms" }`,
		"only first":      `allow_non_tls: true, tls { ` + files + `, handshake_first: true }`,
		"user":            `tls { ` + withCA + `, verify: true }, authorization { user: u, password: p }`,
		"one slot":        `max_connections: -1, tls { ` + files + ` }`,
	} {
		opts := config(t, text)
		a, b := oracle(t, opts()), start(t, opts())
		for _, ap := range approaches(configs) {
			if name == "first auto" && strings.HasSuffix(ap.name, " first") {
				continue // 50 ms are too little for a machine that is busy with tests
			}
			run := func(addr net.Addr, patience patience) string {
				c, err := net.Dial("tcp", addr.String())
				if err != nil {
					return err.Error()
				}
				defer c.Close()
				return strings.ReplaceAll(ap.do(c, patience), "<EOF>", "<closed>")
			}
			wg.Go(func() {
				var want, got string
				gate <- struct{}{}
				defer func() { <-gate }()
				for i := range patience(4) {
					var both sync.WaitGroup
					both.Go(func() { want = run(a.Addr(), i+1) })
					both.Go(func() { got = run(b.Addr(), i+1) })
					if both.Wait(); want == got {
						return
					}
				}
				t.Errorf("%s, %s:\nnats-server: %q\ngateway:     %q", name, ap.name, want, got)
			})
		}
	}
	wg.Wait()
}

// Clients on TLS survive a reload; new ones see the new certificate.
func TestReloadCertificate(t *testing.T) {
	ca := newAuthority(t)
	ca.server(t, "one")
	ca.server(t, "two")
	opts := func(name string) *server.Options {
		return config(t, fmt.Sprintf("tls { cert_file: %q, key_file: %q }", ca.file(name+".pem"), ca.file(name+".key")))()
	}
	s := start(t, opts("one"))
	seen := func(nc *nats.Conn) string {
		state, err := nc.TLSConnectionState()
		check(t, err)
		return state.PeerCertificates[0].Subject.CommonName
	}
	a := connect(t, s, nats.Secure(ca.trust(t, "")), nats.NoReconnect())
	check(t, s.SetOptions(opts("two")))
	b := connect(t, s, nats.Secure(ca.trust(t, "")))
	sub, err := a.SubscribeSync("x")
	check(t, err)
	check(t, a.Flush())
	big := make([]byte, 500_000)
	check(t, b.Publish("x", big))
	if m, err := sub.NextMsg(5 * time.Second); err != nil || len(m.Data) != len(big) {
		t.Fatalf("%v", err)
	}
	if seen(a) != "one" || seen(b) != "two" {
		t.Fatalf("certificates %q and %q", seen(a), seen(b))
	}
	check(t, s.SetOptions(&server.Options{}))
	if c := connect(t, s); c.TLSRequired() {
		t.Fatal("TLS is still required")
	}
	if err := a.Flush(); err != nil {
		t.Fatal(err)
	}
}

// A handshake that hangs holds nothing up: neither a shutdown nor, beyond its timeout, the connection.
func TestHangingHandshake(t *testing.T) {
	ca := newAuthority(t)
	ca.server(t, "srv")
	text := fmt.Sprintf("tls { cert_file: %q, key_file: %q, timeout: %%s }", ca.file("srv.pem"), ca.file("srv.key"))
	s := start(t, config(t, fmt.Sprintf(text, "0.2"))())
	var closed []time.Duration
	for range 20 {
		c := dialRaw(t, s)
		began := time.Now()
		_, _ = io.Copy(io.Discard, c)
		closed = append(closed, time.Since(began))
		if len(closed) == 3 {
			break
		}
	}
	if slices.Max(closed) > 5*time.Second {
		t.Fatalf("closed after %v", closed)
	}
	if r := lastReason(t, s, 1); r != ReasonTLSHandshake {
		t.Fatal(r)
	}
	patient := start(t, config(t, fmt.Sprintf(text, "60"))())
	for range 5 {
		_ = dialRaw(t, patient)
	}
	eventually(t, "all are in", func() bool { return len(patient.Connections()) == 5 })
	began := time.Now()
	patient.Shutdown()
	if d := time.Since(began); d > 5*time.Second {
		t.Fatalf("the shutdown took %v", d)
	}
}

func TestTLSRateLimit(t *testing.T) {
	ca := newAuthority(t)
	ca.server(t, "srv")
	opts := config(t, fmt.Sprintf("tls { cert_file: %q, key_file: %q, connection_rate_limit: 3 }", ca.file("srv.pem"), ca.file("srv.key")))
	for name, addr := range map[string]net.Addr{"nats-server": oracle(t, opts()).Addr(), "gateway": start(t, opts()).Addr()} {
		var in atomic.Int32
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				c, err := net.Dial("tcp", addr.String())
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_ = firstLine(c)
				if tls.Client(c, ca.trust(t, "")).Handshake() == nil {
					in.Add(1)
				}
			})
		}
		wg.Wait()
		if n := in.Load(); n < 3 || n > 9 { // a new second may have begun
			t.Errorf("%s: %d of 20 came in", name, n)
		}
	}
}
