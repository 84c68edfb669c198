package ws

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/httphead"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsflate"
	"github.com/gobwas/ws/wsutil"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// accepted is what a server makes of one connection.
type accepted struct {
	conn *Conn
	req  *Request
	err  error
}

// serve upgrades one connection to a loopback address.
func serve(t *testing.T, o *Options) (addr string, result <-chan accepted) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ch := make(chan accepted, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			ch <- accepted{err: err}
			return
		}
		c, req, err := Upgrade(raw, o)
		if err != nil {
			_ = raw.Close()
		}
		ch <- accepted{c, req, err}
	}()
	return l.Addr().String(), ch
}

// dial connects a client and returns both ends.
func dial(t *testing.T, o *Options, d ws.Dialer) (client net.Conn, server *Conn, req *Request) {
	t.Helper()
	addr, result := serve(t, o)
	client, br, _, err := d.Dial(context.Background(), "ws://"+addr+"/")
	if err != nil {
		t.Fatal(err)
	}
	if br != nil {
		t.Fatal("server spoke first")
	}
	a := <-result
	if a.err != nil {
		t.Fatal(a.err)
	}
	t.Cleanup(func() { _, _ = client.Close(), a.conn.Close() })
	return client, a.conn, a.req
}

func header(kv ...string) ws.HandshakeHeader {
	h := http.Header{}
	for i := 0; i < len(kv); i += 2 {
		h.Set(kv[i], kv[i+1])
	}
	return ws.HandshakeHeaderHTTP(h)
}

func TestFramesCarryBytes(t *testing.T) {
	t.Parallel()
	client, server, req := dial(t, &Options{}, ws.Dialer{Header: header(
		"Cookie", "jwt=abc; other=x", "X-Forwarded-For", "192.0.2.7, 10.0.0.1")})
	if req.Cookies["jwt"] != "abc" || req.Forwarded != "192.0.2.7" || !req.Masked {
		t.Errorf("request is %+v", req)
	}
	want := make([]byte, 300_000)
	_, _ = rand.Read(want)
	go func() {
		for at := 0; at < len(want); at += 70_000 { // lengths of all three forms
			_ = wsutil.WriteClientBinary(client, want[at:min(at+70_000, len(want))])
			_ = wsutil.WriteClientMessage(client, ws.OpPing, []byte("hello"))
			_ = wsutil.WriteClientText(client, nil)
		}
	}()
	got := make([]byte, len(want))
	pongs := make(chan string, 1)
	go func() {
		f, err := readFrame(client)
		pongs <- fmt.Sprintf("%d %s %v", f.Header.OpCode, f.Payload, err)
		_, _ = io.Copy(io.Discard, client)
	}()
	if _, err := io.ReadFull(server, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("read something else (%v)", err)
	}
	if p := <-pongs; p != fmt.Sprintf("%d hello <nil>", ws.OpPong) {
		t.Errorf("answer to PING is %q", p)
	}
}

// TestReadGoesOnAfterDeadline: the gateway interrupts its readers with deadlines, wherever they are in a frame.
func TestReadGoesOnAfterDeadline(t *testing.T) {
	t.Parallel()
	client, server, _ := dial(t, &Options{}, ws.Dialer{})
	frame := ws.MustCompileFrame(ws.MaskFrame(ws.NewBinaryFrame([]byte(strings.Repeat("0123456789", 20)))))
	var got []byte
	buf := make([]byte, 64)
	for i := range frame {
		if _, err := client.Write(frame[i : i+1]); err != nil {
			t.Fatal(err)
		}
		_ = server.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
		n, err := server.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("after %d bytes: %v", i+1, err)
		}
	}
	_ = server.SetReadDeadline(time.Now().Add(5 * time.Second))
	for len(got) < 200 {
		n, err := server.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, buf[:n]...)
	}
	if string(got) != strings.Repeat("0123456789", 20) {
		t.Errorf("read %q", got)
	}
}

func TestCompression(t *testing.T) {
	t.Parallel()
	client, server, _ := dial(t, &Options{Compression: true}, ws.Dialer{
		Extensions: []httphead.Option{wsflate.DefaultParameters.Option()},
	})
	text := strings.Repeat("PUB a 5\r\nhello\r\n", 1000)
	for range 3 {
		f, err := wsflate.CompressFrame(ws.NewBinaryFrame([]byte(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := ws.WriteFrame(client, ws.MaskFrame(f)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(server, got); err != nil || string(got) != text {
			t.Fatalf("read something else (%v)", err)
		}
		if _, err := server.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if f, err = readFrame(client); err != nil || len(f.Payload) > len(text)/10 {
			t.Fatalf("%d bytes for %d (%v)", len(f.Payload), len(text), err)
		}
		if f, err = wsflate.DecompressFrame(f); err != nil || string(f.Payload) != text {
			t.Fatalf("wrote something else (%v)", err)
		}
	}
}

func TestUnmaskedOnRequest(t *testing.T) {
	t.Parallel()
	var answer string
	client, server, _ := dial(t, &Options{Headers: map[string]string{"X-Extra": "1"}}, ws.Dialer{
		Header:   header(maskHeader, "true"),
		OnHeader: func(k, v []byte) error { answer += string(k) + "=" + string(v) + " "; return nil },
	})
	if !strings.Contains(answer, maskHeader+"=true") || !strings.Contains(answer, "X-Extra=1") {
		t.Errorf("headers of the answer: %s", answer)
	}
	if err := wsutil.WriteServerBinary(client, []byte("bare")); err != nil { // a server's frames are not masked
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(server, got); err != nil || string(got) != "bare" {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestBreachesAreToldAndEnd(t *testing.T) {
	t.Parallel()
	masked := func(f ws.Frame) []byte { return ws.MustCompileFrame(ws.MaskFrame(f)) }
	tests := map[string]struct {
		send []byte
		code ws.StatusCode
	}{
		"unmasked":             {ws.MustCompileFrame(ws.NewBinaryFrame([]byte("x"))), ws.StatusProtocolError},
		"lone continuation":    {masked(ws.NewFrame(ws.OpContinuation, true, []byte("x"))), ws.StatusProtocolError},
		"message in a message": {append(masked(ws.NewFrame(ws.OpBinary, false, nil)), masked(ws.NewBinaryFrame(nil))...), ws.StatusProtocolError},
		"unknown opcode":       {masked(ws.NewFrame(5, true, nil)), ws.StatusProtocolError},
		"long ping":            {masked(ws.NewFrame(ws.OpPing, true, make([]byte, 126))), ws.StatusProtocolError},
		"parted ping":          {masked(ws.NewFrame(ws.OpPing, false, nil)), ws.StatusProtocolError},
		"compressed unasked":   {masked(ws.Frame{Header: ws.Header{Fin: true, OpCode: ws.OpBinary, Rsv: ws.Rsv(true, false, false)}}), ws.StatusProtocolError},
		"client's close":       {masked(ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusGoingAway, "bye"))), ws.StatusGoingAway},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, server, _ := dial(t, &Options{}, ws.Dialer{})
			if _, err := client.Write(test.send); err != nil {
				t.Fatal(err)
			}
			if _, err := server.Read(make([]byte, 10)); err == nil {
				t.Error("was taken")
			}
			f, err := readFrame(client)
			if err != nil || f.Header.OpCode != ws.OpClose {
				t.Fatalf("answer is %+v, %v", f, err)
			}
			if code, _ := ws.ParseCloseFrameData(f.Payload); code != test.code {
				t.Errorf("status %d, want %d", code, test.code)
			}
		})
	}
}

func TestCompressedMessageIsBounded(t *testing.T) {
	t.Parallel()
	client, server, _ := dial(t, &Options{Compression: true, MaxCompressed: 1000}, ws.Dialer{
		Extensions: []httphead.Option{wsflate.DefaultParameters.Option()},
	})
	noise := make([]byte, 5000)
	_, _ = rand.Read(noise)
	f, err := wsflate.CompressFrame(ws.NewBinaryFrame(noise))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = ws.WriteFrame(client, ws.MaskFrame(f)) }()
	var breach *ProtocolError
	if _, err := server.Read(make([]byte, 10)); !errors.As(err, &breach) || !strings.Contains(breach.Reason, "1000 bytes") {
		t.Errorf("read: %v", err)
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	tests := []struct {
		o      Options
		origin string
		want   int
	}{
		{Options{}, "http://anywhere.test", http.StatusSwitchingProtocols},
		{Options{SameOrigin: true}, "", http.StatusSwitchingProtocols},
		{Options{SameOrigin: true}, "http://HOST", http.StatusSwitchingProtocols},
		{Options{SameOrigin: true}, "http://127.0.0.1:1", http.StatusForbidden},
		{Options{SameOrigin: true}, "http://other.test", http.StatusForbidden},
		{Options{SameOrigin: true}, "rubbish", http.StatusForbidden},
		{Options{AllowedOrigins: []string{"https://app.test"}}, "https://APP.test:443", http.StatusSwitchingProtocols},
		{Options{AllowedOrigins: []string{"https://app.test"}}, "http://app.test", http.StatusForbidden},
	}
	for _, test := range tests {
		addr, result := serve(t, &test.o)
		got := request(t, addr, "GET / HTTP/1.1", "Origin: "+strings.Replace(test.origin, "HOST", addr, 1))
		if got != test.want {
			t.Errorf("%+v, origin %q: %d, want %d", test.o, test.origin, got, test.want)
		}
		closeAccepted(<-result)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		lines []string
		want  int
	}{
		{[]string{"GET /leafnode HTTP/1.1"}, http.StatusNotFound},
		{[]string{"GET /mqtt?x=1 HTTP/1.1"}, http.StatusNotFound},
		{[]string{"POST / HTTP/1.1"}, http.StatusMethodNotAllowed},
		{
			append([]string{"GET / HTTP/1.1"}, strings.Split(strings.Repeat("X-A: b\n", maxHeaders+1), "\n")[:maxHeaders+1]...),
			http.StatusRequestHeaderFieldsTooLarge,
		},
		{
			append([]string{"GET / HTTP/1.1"}, slices.Repeat([]string{"X-A: " + strings.Repeat("b", maxHeader/2)}, 9)...),
			http.StatusRequestHeaderFieldsTooLarge,
		},
	} {
		addr, result := serve(t, &Options{})
		if got := request(t, addr, test.lines...); got != test.want {
			t.Errorf("%s: %d, want %d", test.lines[0], got, test.want)
		}
		closeAccepted(<-result)
	}
}

func closeAccepted(a accepted) {
	if a.conn != nil {
		_ = a.conn.Close()
	}
}

// request sends an upgrade request made by hand and returns the status of the answer.
func request(t *testing.T, addr string, lines ...string) int {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lines = append(lines, "Host: "+addr, "Upgrade: websocket", "Connection: Upgrade",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", "", "")
	if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// bytesConn is a connection that reads from memory and writes nowhere.
type bytesConn struct {
	net.Conn
	r io.Reader
}

func (c bytesConn) Read(p []byte) (int, error)       { return c.r.Read(p) }
func (c bytesConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c bytesConn) SetWriteDeadline(time.Time) error { return nil }

// FuzzRead: whatever a client sends, reading ends, and gives no more than was sent unless it was compressed.
func FuzzRead(f *testing.F) {
	f.Add(ws.MustCompileFrame(ws.MaskFrame(ws.NewBinaryFrame([]byte("PING\r\n")))), false)
	f.Add(ws.MustCompileFrame(ws.MaskFrame(ws.NewCloseFrame(nil))), false)
	small, _ := wsflate.CompressFrame(ws.NewBinaryFrame([]byte(strings.Repeat("x", 500))))
	f.Add(ws.MustCompileFrame(ws.MaskFrame(small)), true)
	f.Fuzz(func(t *testing.T, in []byte, deflated bool) {
		c := newConn(bytesConn{r: bytes.NewReader(in)}, &Options{MaxCompressed: 1 << 16}, true, deflated)
		n, err := io.Copy(io.Discard, io.LimitReader(c, 1<<24))
		if !deflated && n > int64(len(in)) {
			t.Errorf("%d bytes from %d", n, len(in))
		}
		_ = err // any error is fine, and so is none: io.EOF
	})
}

// FuzzUpgrade: whatever request comes, it is answered or refused.
func FuzzUpgrade(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nOrigin: http://a\r\n" +
		"Cookie: jwt=x\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		c, req, err := Upgrade(bytesConn{r: bytes.NewReader(in)}, &Options{Compression: true, SameOrigin: true})
		if err == nil && (c == nil || req == nil) {
			t.Error("neither a connection nor an error")
		}
	})
}

// readFrame reads one frame of a server that is trusted not to make it endless.
func readFrame(r io.Reader) (ws.Frame, error) {
	h, err := ws.ReadHeader(r)
	if err != nil {
		return ws.Frame{}, err
	}
	body := make([]byte, min(h.Length, 1<<21))
	_, err = io.ReadFull(r, body)
	return ws.Frame{Header: h, Payload: body}, err
}
