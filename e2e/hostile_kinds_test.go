package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"
)

const (
	connectGood = `CONNECT {"verbose":false,"user":"good","pass":"good"}` + "\r\n"
	connectBad  = `CONNECT {"verbose":false,"user":"bad","pass":"bad"}` + "\r\n"
	upgrade     = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
	deflating = "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n"
)

var hostileKinds = []hostile{
	{name: "never says CONNECT", do: says()},
	{name: "half a CONNECT", do: says(connectGood[:30])},
	{name: "CONNECT byte by byte", do: drips(connectGood)},
	{name: "garbage", do: floods(noise)},
	{name: "endless line", do: floods(repeats("CONNECT {", "x"))},
	{name: "endless blanks", do: floods(repeats("CONNECT", " "))},
	{name: "deep JSON", do: says("CONNECT {\"user\":" + strings.Repeat("[", 4000) + "\r\n")},
	{name: "HTTP", do: says("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")},
	{name: "wrong password", do: says("CONNECT {\"user\":\"good\",\"pass\":\"bad\"}\r\nPING\r\n")},
	{name: "long wrong user", do: says("CONNECT {\"user\":\"" + strings.Repeat("\x01", 3000) + "\"}\r\nPING\r\n")},
	{name: "TLS never finished", do: says("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")},
	{name: "TLS garbage", do: floods(repeats("\x16\x03\x01", "\x40\x00\x16\x16"))},
	{name: "TLS, then silence", do: overTLS(says())},
	{name: "TLS, then garbage", do: overTLS(floods(noise))},

	{name: "payload never finished", loggedIn: true, do: says(connectGood, "PUB foo 65536\r\n", "x")},
	{name: "payload too large", loggedIn: true, do: floods(repeats(connectGood+"PUB foo 999999999\r\n", "x"))},
	{name: "slow reader", loggedIn: true, do: func(c net.Conn, done <-chan struct{}) {
		me := "of." + strings.ReplaceAll(c.LocalAddr().String(), ".", "-")
		deaf(connectGood+"SUB "+me+" 1\r\n", "PUB "+me+" 1000\r\n"+strings.Repeat("x", 1000)+"\r\n")(c, done)
	}},
	{name: "silent after login", loggedIn: true, do: says(connectGood + "SUB foo 1\r\n")},
	{name: "publishes without permission", loggedIn: true, do: floods(repeats(connectBad, "PUB not.allowed 2\r\nhi\r\n"))},
	{name: "subscribes without permission", loggedIn: true, do: floods(repeats(connectBad, "SUB not.allowed 1\r\n"))},
	{name: "subscribes to the limit", loggedIn: true, do: floods(subscriptions)},
	{name: "subscribes to nonsense", loggedIn: true, do: floods(repeats(connectGood, "SUB a..b 1\r\n"))},
	{name: "CONNECT in a loop", loggedIn: true, do: floods(repeats("", connectGood))},
	{name: "PING in a loop, deaf", loggedIn: true, do: deaf(connectGood, "PING\r\n")},

	{name: "upgrade never finished", web: true, do: says(upgrade)},
	{name: "upgrade byte by byte", web: true, do: drips(upgrade)},
	{name: "endless request", web: true, do: floods(repeats("GET /", "x"))},
	{name: "endless headers", web: true, do: floods(repeats(upgrade, "Cookie: a="+strings.Repeat("x", 4000)+"\r\n"))},
	{name: "garbage instead of a request", web: true, do: floods(noise)},
	{name: "garbage instead of frames", web: true, do: floods(func(i int) string {
		if i == 0 {
			return upgrade + "\r\n"
		}
		return noise(i)
	})},
	{name: "frame never finished", web: true, do: says(upgrade+"\r\n", "\x82\xfe\x10\x00\x00\x00\x00\x00", "CONNECT ")},
	{name: "endless frame", web: true, do: floods(repeats(upgrade+"\r\n\x82\xff\x00\x00\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00CONNECT ", "x"))},
	{name: "compressed message without end", web: true, do: floods(repeats(
		upgrade+deflating+"\r\n", "\x42\xfe\x03\xe8\x00\x00\x00\x00"+strings.Repeat("x", 1000)))},
	{name: "control frames without end", web: true, do: deaf(upgrade+"\r\n", "\x89\x84\x00\x00\x00\x00ping")},

	{name: "no header of a proxy", proxied: true, do: says()},
	{name: "half a header of a proxy", proxied: true, do: says("PROXY TCP4 1.2.3.4")},
	{name: "endless header of a proxy", proxied: true, do: floods(repeats("PROXY ", "x"))},
	{name: "binary header of a proxy, too long", proxied: true, do: floods(repeats("\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff", "x"))},
	{name: "binary header of a proxy, garbage", proxied: true, do: says("\r\n\r\n\x00\r\nQUIT\n\xff\xff\x00\x01x")},
}

// says sends the parts, one after another, and listens until the server has had enough.
func says(parts ...string) func(net.Conn, <-chan struct{}) {
	return func(c net.Conn, done <-chan struct{}) {
		for _, p := range parts {
			if _, err := io.WriteString(c, p); err != nil {
				return
			}
		}
		_, _ = io.Copy(io.Discard, c)
	}
}

// drips sends text slowly and never the end of it.
func drips(text string) func(net.Conn, <-chan struct{}) {
	return func(c net.Conn, done <-chan struct{}) {
		for i := range len(text) - 1 {
			if _, err := c.Write([]byte{text[i]}); err != nil || !rest(done, 20*time.Millisecond) {
				return
			}
		}
		_, _ = io.Copy(io.Discard, c)
	}
}

// floods sends pieces without end and reads what comes.
func floods(piece func(i int) string) func(net.Conn, <-chan struct{}) {
	return func(c net.Conn, done <-chan struct{}) {
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(io.Discard, c)
		}()
		pour(c, done, piece)
		_ = c.Close()
		<-read
	}
}

// deaf sends first and then text without end, and reads nothing.
func deaf(first, text string) func(net.Conn, <-chan struct{}) {
	return func(c net.Conn, done <-chan struct{}) { pour(c, done, repeats(first, text)) }
}

// pour sends a piece ten times a second: the attackers share the machine with the server and the good client, and are not to
// win by using it up themselves.
func pour(c net.Conn, done <-chan struct{}, piece func(i int) string) {
	for i := 0; ; i++ {
		if _, err := io.WriteString(c, piece(i)); err != nil || !rest(done, 100*time.Millisecond) {
			return
		}
	}
}

// repeats is first and then text, in pieces of some KiB.
func repeats(first, text string) func(int) string {
	many := strings.Repeat(text, 4<<10/len(text)+1)
	return func(i int) string {
		if i == 0 {
			return first + many
		}
		return many
	}
}

func subscriptions(i int) string {
	var b strings.Builder
	if i == 0 {
		b.WriteString(connectGood)
	}
	for j := range 100 {
		fmt.Fprintf(&b, "SUB s.%d.%d %d\r\n", i, j, i*100+j)
	}
	return b.String()
}

// noise is random bytes.
func noise(int) string {
	b := make([]byte, 2<<10)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return string(b)
}

// overTLS does what do does inside TLS.
func overTLS(do func(net.Conn, <-chan struct{})) func(net.Conn, <-chan struct{}) {
	return func(c net.Conn, done <-chan struct{}) {
		line := make([]byte, 1)
		for line[0] != '\n' { // INFO comes before
			if _, err := io.ReadFull(c, line); err != nil {
				return
			}
		}
		secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
		if secure.Handshake() == nil {
			do(secure, done)
		}
	}
}

// selfSigned returns a certificate for 127.0.0.1 and its key in PEM.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	noErr(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(crand.Reader, template, template, &k.PublicKey, k)
	noErr(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(k)
	noErr(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}))
}
