package gateway

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// raw is a client that speaks the protocol by hand.
type raw struct {
	net.Conn
	in *bufio.Reader
}

// dialRaw connects and reads the first INFO.
func dialRaw(tb testing.TB, s *Server) *raw {
	tb.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	check(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	r := &raw{c, bufio.NewReader(c)}
	if line := r.line(tb); !strings.HasPrefix(line, "INFO {") {
		tb.Fatalf("got %q, want INFO", line)
	}
	return r
}

func (r *raw) send(tb testing.TB, text string) {
	tb.Helper()
	_, err := io.WriteString(r, text)
	check(tb, err)
}

// line reads one line, without its CRLF; "EOF" at the end.
func (r *raw) line(tb testing.TB) string {
	tb.Helper()
	check(tb, r.SetReadDeadline(time.Now().Add(10*time.Second)))
	line, err := r.in.ReadString('\n')
	if err != nil {
		if line == "" {
			return "EOF"
		}
		tb.Fatalf("got %q, %v", line, err)
	}
	return strings.TrimRight(line, "\r\n")
}

// expect reads lines and compares them.
func (r *raw) expect(tb testing.TB, want ...string) {
	tb.Helper()
	for _, w := range want {
		if got := r.line(tb); got != w {
			tb.Fatalf("got %q, want %q", got, w)
		}
	}
}

// eventually waits until ok holds.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not in time", what)
		}
	}
}

// lastReason waits until n connections have ended and returns why the last of them did.
func lastReason(tb testing.TB, s *Server, n int) CloseReason {
	tb.Helper()
	eventually(tb, "a connection ends", func() bool { return len(s.ClosedConnections()) >= n })
	closed := s.ClosedConnections()
	return closed[len(closed)-1].Reason
}

// rawConn is a connection whose INFO has been read, for either server.
type rawConn struct{ net.Conn }

func dialPlain(tb testing.TB, addr string) *rawConn {
	tb.Helper()
	c, err := net.Dial("tcp", addr)
	check(tb, err)
	if got := firstLine(c); !strings.HasPrefix(got, "INFO ") {
		tb.Fatalf("got %q", got)
	}
	return &rawConn{c}
}

func (c *rawConn) say(tb testing.TB, text string) {
	tb.Helper()
	_, err := io.WriteString(c, text)
	check(tb, err)
}
