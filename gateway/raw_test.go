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
func dialRaw(t testing.TB, s *Server) *raw {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	check(t, err)
	t.Cleanup(func() { _ = c.Close() })
	r := &raw{c, bufio.NewReader(c)}
	if line := r.line(t); !strings.HasPrefix(line, "INFO {") {
		t.Fatalf("got %q, want INFO", line)
	}
	return r
}

func (r *raw) send(t testing.TB, text string) {
	t.Helper()
	_, err := io.WriteString(r, text)
	check(t, err)
}

// line reads one line, without its CRLF; "EOF" at the end.
func (r *raw) line(t testing.TB) string {
	t.Helper()
	check(t, r.SetReadDeadline(time.Now().Add(10*time.Second)))
	line, err := r.in.ReadString('\n')
	if err != nil {
		if line == "" {
			return "EOF"
		}
		t.Fatalf("got %q, %v", line, err)
	}
	return strings.TrimRight(line, "\r\n")
}

// expect reads lines and compares them.
func (r *raw) expect(t testing.TB, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := r.line(t); got != w {
			t.Fatalf("got %q, want %q", got, w)
		}
	}
}

// eventually waits until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in time", what)
		}
	}
}

// lastReason waits until n connections have ended and returns why the last of them did.
func lastReason(t testing.TB, s *Server, n int) CloseReason {
	t.Helper()
	eventually(t, "a connection ends", func() bool { return len(s.ClosedConnections()) >= n })
	closed := s.ClosedConnections()
	return closed[len(closed)-1].Reason
}
