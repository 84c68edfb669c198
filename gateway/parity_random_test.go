package gateway

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// randomInput returns what a client, careless or broken, might send. It fits into the first read of either server, so
// that neither throws an answer away by closing a socket with unread bytes.
func randomInput(r *rand.Rand) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	subject := func() string {
		return pick("foo", "foo.bar", "foo.*", "foo.>", ">", "*", "foo.", "a..b", "_INBOX.x", "in.1", "$JS.ACK.a", "foo.*.b", "x\ty")
	}
	gap := func() string { return pick(" ", " ", " ", "\t", "  ") }
	eol := func() string { return pick("\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", " \r\n") }
	sid := func() string { return strconv.Itoa(r.IntN(4)) }
	payload := func() string {
		body := strings.Repeat("x", r.IntN(12))
		size := len(body)
		if r.IntN(25) == 0 {
			size += r.IntN(5) - 2
		}
		return fmt.Sprintf("%d%s%s%s", size, eol(), body, pick("\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n"))
	}
	var b strings.Builder
	if r.IntN(3) > 0 {
		fmt.Fprintf(&b, "CONNECT {\"verbose\":%v,\"pedantic\":%v,\"headers\":%v,\"no_responders\":%v,\"echo\":%v}\r\n",
			r.IntN(4) == 0, r.IntN(3) == 0, r.IntN(5) > 0, r.IntN(3) == 0, r.IntN(5) > 0)
	}
	for range 1 + r.IntN(12) {
		switch r.IntN(12) {
		case 0, 1, 2:
			id := sid() // a queue of its own: which member gets a message is left to chance
			b.WriteString(pick("SUB", "sub", "Sub") + gap() + subject() + gap() + pick("", "", "q"+id+" ") + id + eol())
		case 3:
			b.WriteString("UNSUB" + gap() + sid() + pick("", " 1", " 2", " x", " 0") + eol())
		case 4, 5, 6, 7:
			b.WriteString(pick("PUB", "pub") + gap() + subject() + gap() + pick("", "", "in.1 ", "_R_.x ") + payload())
		case 8:
			h := "NATS/1.0\r\n" + pick("", "A: b\r\n") + "\r\n"
			fmt.Fprintf(&b, "HPUB %s %s%d %d\r\n%sabc\r\n", subject(), pick("", "in.1 "), len(h), len(h)+3, h)
		case 9:
			b.WriteString(pick("PING", "PONG", "ping", "+OK", "PING x") + eol())
		case 10:
			b.WriteString(pick("PING\r\n", "CONNECT {}\r\n", "INFO {}\r\n", "-ERR 'x'\r\n", "PU", "X", "\r\n"))
		default:
			b.WriteString("PING\r\n")
		}
		if b.Len() > 350 {
			break
		}
	}
	return b.String()
}

// converse sends text, ends its side and returns what came back, sorted: the order of two subscriptions to one message
// is not defined.
func converse(addr, text string) (string, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	first := firstLine(c)
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	if half, ok := c.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
	out, err := io.ReadAll(c)
	if err != nil && !strings.Contains(err.Error(), "reset by peer") {
		return "", err
	}
	lines := strings.SplitAfter(normalise(string(out)), "\r\n")
	slices.Sort(lines)
	// nats-server sends this one again for a message that comes in two reads.
	lines = slices.CompactFunc(lines, func(a, b string) bool { return a == b && strings.Contains(a, errPublishSubject) })
	return first + strings.Join(lines, ""), nil
}

// Whatever a client sends, the answers are nats-server's. RANDOM_CASES asks for more cases, RANDOM_SEED for others.
func TestParityRandom(t *testing.T) {
	number := func(name string, value int) int {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
			return n
		}
		return value
	}
	cases, seed := number("RANDOM_CASES", 500), number("RANDOM_SEED", 1)
	ns, s := oracle(t, &server.Options{}), start(t, nil)
	theirs, ours := ns.Addr().String(), s.Addr().String()
	r := rand.New(rand.NewPCG(uint64(seed), 3))
	// Clients of one server hear each other, so that cases run one after the other; the two servers run side by side.
	for i := range cases {
		text := randomInput(r)
		var want, got string
		var wantErr, gotErr error
		var wg sync.WaitGroup
		wg.Go(func() { want, wantErr = converse(theirs, text) })
		wg.Go(func() { got, gotErr = converse(ours, text) })
		wg.Wait()
		check(t, wantErr)
		check(t, gotErr)
		if want != got {
			t.Errorf("case %d: %q\nnats-server: %q\ngateway:     %q", i, text, want, got)
		}
	}
}
