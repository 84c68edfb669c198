package e2e

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// traced is what a client says to have it logged. The longest payload is cut.
const traced = "SUB foo 1\r\nSUB foo q 2\r\nPUB foo bar 5\r\nhello\r\nPUB foo 0\r\n\r\nHPUB foo 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n" +
	"PUB foo 30\r\n012345678901234567890123456789\r\nUNSUB 2\r\nUNSUB 1 9\r\nSUB a..b 3\r\nPING\r\n"

// TestTraceOfTheProtocol: -V logs what goes between a client and the server as nats-server does, with who the client is and
// without its password.
func TestTraceOfTheProtocol(t *testing.T) {
	if os.Getenv("EHDB_E2E_BUS") != "" {
		t.Skip("it is about the gateway's own log")
	}
	lines := func(bin string) []string {
		p := &process{cmd: exec.Command(bin, "-a", "127.0.0.1", "-p", "-1", "-DV", "--max_traced_msg_len", "20"), done: make(chan struct{})}
		noErr(t, p.start())
		defer p.Kill()
		c, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "nats://"))
		noErr(t, err)
		defer c.Close()
		noErr(t, c.SetDeadline(time.Now().Add(20*time.Second)))
		r := bufio.NewReader(c)
		await := func(end string) {
			for line := ""; !strings.HasPrefix(line, end); {
				line, err = r.ReadString('\n')
				noErr(t, err)
			}
		}
		_, err = io.WriteString(c, `CONNECT {"verbose":false,"pedantic":false,"user":"ann","pass":"secret","headers":true,"name":"me","lang":"go","version":"1.2"}`+"\r\nPING\r\n")
		noErr(t, err)
		await("PONG")
		_, err = io.WriteString(c, traced)
		noErr(t, err)
		await("PONG")
		p.Signal(syscall.SIGTERM)
		<-p.done
		if strings.Contains(p.Log(), "secret") {
			t.Errorf("the log has the password:\n%s", p.Log())
		}
		var out []string
		for line := range strings.Lines(p.Log()) {
			if _, said, ok := strings.Cut(line, "[TRC] "); ok && !strings.Contains(said, "DELSUB") && !strings.Contains(said, "CONNECT") {
				out = append(out, regexp.MustCompile(`127\.0\.0\.1:\d+ - cid:\d+`).ReplaceAllString(strings.TrimSpace(said), "CLIENT"))
			}
		}
		slices.Sort(out) // of two subscriptions either may be first
		return out
	}
	want, got := lines(natsServer(t)), lines(gatewayBin)
	if len(want) < 15 {
		t.Fatalf("nats-server traces only %q", want)
	}
	if differences := diff(want, got); len(differences) > 0 {
		t.Error(strings.Join(differences, "\n"))
	}
}
