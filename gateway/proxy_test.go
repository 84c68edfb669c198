package gateway

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// headerV2 is a header of version 2.
func headerV2(command, family byte, payload ...byte) string {
	b := []byte("\r\n\r\n\x00\r\nQUIT\n")
	b = append(b, 0x20|command, family)
	b = binary.BigEndian.AppendUint16(b, uint16(len(payload))) //nolint:gosec // a test's
	return string(append(b, payload...))
}

func payload4(more ...byte) []byte {
	return append([]byte{10, 1, 2, 3, 10, 0, 0, 9, 0x30, 0x39, 0x10, 0x7e}, more...)
}

func TestParityProxyProtocol(t *testing.T) {
	ca := newAuthority(t)
	ca.server(t, "srv")
	files := fmt.Sprintf("cert_file: %q, key_file: %q, timeout: 1", ca.file("srv.pem"), ca.file("srv.key"))
	v6 := append(append(bytes.Repeat([]byte{0xfd}, 16), bytes.Repeat([]byte{0xfe}, 16)...), 0x30, 0x39, 0x10, 0x7e)
	headers := map[string]string{
		"none": "", "v1": "PROXY TCP4 10.1.2.3 10.0.0.9 12345 4222\r\n", "v1 six": "PROXY TCP6 fd00::1 fd00::2 12345 4222\r\n",
		"v1 unknown": "PROXY UNKNOWN\r\n", "v1 garbage": "PROXY BANANA 1 2 3 4\r\n", "v1 short": "PROXY TCP4 10.1.2.3\r\n",
		"v1 mixed": "PROXY TCP4 fd00::1 10.0.0.9 1 2\r\n", "v1 port": "PROXY TCP4 10.1.2.3 10.0.0.9 123456 4222\r\n",
		"v1 endless": "PROXY TCP4 " + strings.Repeat("1", 300), "v1 no space": "PROXYTCP4 10.1.2.3 10.0.0.9 1 2\r\n",
		"v2": headerV2(1, 0x11, payload4()...), "v2 tlv": headerV2(1, 0x11, payload4(4, 0, 1, 'x')...), "v2 six": headerV2(1, 0x21, v6...),
		"v2 local": headerV2(0, 0), "v2 local with address": headerV2(0, 0x11, payload4()...), "v2 short": headerV2(1, 0x11, 1, 2, 3),
		"v2 datagram": headerV2(1, 0x12, payload4()...), "v2 unix": headerV2(1, 0x31, make([]byte, 216)...), "v2 command": headerV2(5, 0x11, payload4()...),
		"v2 version": strings.Replace(headerV2(1, 0x11, payload4()...), "QUIT\n!", "QUIT\n1", 1),
	}
	const hi = `CONNECT {"verbose":false,"pedantic":false,"protocol":1}` + "\r\nPING\r\n"
	var wg sync.WaitGroup
	gate := make(chan struct{}, 12)
	for name, text := range map[string]string{
		"plain": "proxy_protocol: true", "tls": "proxy_protocol: true, tls {" + files + "}",
		"mixed": "proxy_protocol: true, allow_non_tls: true, tls {" + files + "}",
		"first": "proxy_protocol: true, tls {" + files + ", handshake_first: true }",
	} {
		opts := config(t, text)
		a, b := oracle(t, opts()), start(t, opts())
		for header, bytes := range headers {
			run := func(addr net.Addr, patience patience) string {
				c, err := net.Dial("tcp", addr.String())
				if err != nil {
					return err.Error()
				}
				defer c.Close()
				_, _ = io.WriteString(c, bytes)
				switch name {
				case "first":
					return upgradeWithin(c, ca.trust(t, ""), hi, patience)
				case "tls":
					return firstLineWithin(c, 2*time.Second) + upgradeWithin(c, ca.trust(t, ""), hi, patience)
				}
				got := firstLineWithin(c, 2*time.Second)
				_, _ = io.WriteString(c, hi)
				return got + listen(c, patience.of(400*time.Millisecond))
			}
			wg.Go(func() {
				var want, got string
				gate <- struct{}{}
				defer func() { <-gate }()
				for i := range patience(4) {
					if want, got = run(a.Addr(), i+1), run(b.Addr(), i+1); want == got {
						return
					}
				}
				t.Errorf("%s, %s:\nnats-server: %q\ngateway:     %q", name, header, want, got)
			})
		}
	}
	wg.Wait()
}

// A header that comes in pieces, with all that follows behind it, is the same header.
func TestProxyHeaderInPieces(t *testing.T) {
	s := start(t, &server.Options{ProxyProtocol: true})
	for _, header := range []string{"PROXY TCP4 10.1.2.3 10.0.0.9 12345 4222\r\n", headerV2(1, 0x11, payload4()...)} {
		c := dialRaw(t, s)
		text := header + "CONNECT {\"verbose\":false}\r\nPING\r\n"
		for i := range text {
			c.send(t, text[i:i+1])
			if i < len(header) {
				time.Sleep(time.Millisecond)
			}
		}
		c.expect(t, "PONG")
		if got := s.Connections(); got[0].IP != "10.1.2.3" || got[0].Port != 12345 {
			t.Fatalf("%s:%d", got[0].IP, got[0].Port)
		}
		_ = c.Close()
		eventually(t, "it is gone", func() bool { return len(s.Connections()) == 0 })
	}
}

// FuzzProxyHeader reads headers in any split: the result is the same, and nothing beyond the header is taken.
func FuzzProxyHeader(f *testing.F) {
	for _, s := range []string{
		"", "PING\r\n", "P", "PROXY UNKNOWN\r\nPING\r\n", "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nx", headerV2(1, 0x11, payload4(1, 0, 0)...) + "PING",
		headerV2(0, 0), "\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for i := range b {
			more, err := unfinishedHeader(b[:i])
			if more && err != nil {
				t.Fatal("an error and more to read")
			}
			if !more {
				break
			}
			if i > proxyFixed+proxyMaxV2 {
				t.Fatalf("more than %d bytes are wanted", i)
			}
		}
		if more, err := unfinishedHeader(b); more || err != nil {
			return
		}
		from, rest, err := parseProxyHeader(b)
		if err == nil && !bytes.HasSuffix(b, rest) {
			t.Fatal("what follows is not the end of what came")
		}
		if from != nil && net.ParseIP(from.host) == nil {
			t.Fatalf("address %q", from.host)
		}
	})
}
