package gateway

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// hostiles is how many bad connections there are at once.
const hostiles = 200

// While bad connections do their worst, a good client's round trip stays short and memory stays small.
func TestHostileClients(t *testing.T) {
	s := start(t, &server.Options{
		Users: []*server.User{{Username: "good", Password: "x"}}, AuthTimeout: 0.5,
		PingInterval: time.Second, MaxPending: 4 << 20, WriteDeadline: time.Second,
	})
	login := "CONNECT {\"verbose\":false,\"user\":\"good\",\"pass\":\"x\"}\r\n"
	slowly := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			for i := range text {
				if _, err := c.Write([]byte{text[i]}); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
	once := func(text string) func(net.Conn) { return func(c net.Conn) { _, _ = io.WriteString(c, text) } }
	kinds := map[string]func(net.Conn){
		"silent":              func(net.Conn) {},
		"slow connect":        slowly("CONNECT {\"verbose\":false,\"user\":\"good\",\"pass\":\"x\"}"),
		"slow after login":    slowly(login + strings.Repeat("PUB foo 100000\r\n", 10)),
		"http":                once("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n"),
		"tls":                 once("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
		"wrong password":      once("CONNECT {\"user\":\"good\",\"pass\":\"y\"}\r\nPING\r\n"),
		"endless line":        once("CONNECT " + strings.Repeat("x", 100_000)),
		"giant payload":       once(login + "PUB foo 999999999\r\n" + strings.Repeat("x", 100_000)),
		"largest, then quiet": once(login + "PUB foo 1048576\r\nx"),
		"bad json":            once("CONNECT {\"user\":" + strings.Repeat("[", 2000) + "\r\n"),
		"no reader":           once(login + "SUB > 1\r\n" + strings.Repeat("PUB foo 1000\r\n"+strings.Repeat("x", 1000)+"\r\n", 50)),
		"stale":               once(login + "SUB foo 1\r\n"),
		"blanks":              once(login + "PUB " + strings.Repeat(" ", 200_000)),
		"ping with a novel":   once(login + "PING " + strings.Repeat("x", 200_000)),
	}
	addr := s.Addr().String()
	nc := connect(t, s, nats.UserInfo("good", "x"), nats.PingInterval(time.Second))
	stop := make(chan struct{})
	var attackers sync.WaitGroup
	for _, attack := range kinds {
		for range hostiles / len(kinds) { // each comes back when it has been thrown out
			attackers.Go(func() {
				for range 5 {
					select {
					case <-stop:
						return
					default:
					}
					oneAttack(addr, attack, stop)
				}
			})
		}
	}
	trips := make([]time.Duration, 200)
	for i := range trips {
		begin := time.Now()
		check(t, nc.FlushTimeout(10*time.Second))
		trips[i] = time.Since(begin)
		time.Sleep(10 * time.Millisecond)
	}
	slices.Sort(trips)
	usual, worst := trips[len(trips)*9/10], trips[len(trips)-1]
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	close(stop)
	attackers.Wait()
	if limit := time.Second; usual > limit { // 100 ms on a machine of its own; this one has the attackers as well
		t.Errorf("the good client waited for %v nine times in ten, limit %v", usual, limit)
	}
	if m.HeapAlloc > 512<<20 {
		t.Errorf("%d MiB of heap", m.HeapAlloc>>20)
	}
	t.Logf("round trip %v nine times in ten, worst %v, heap %d MiB", usual, worst, m.HeapAlloc>>20)
	eventually(t, "all bad connections are gone", func() bool { return s.Stats().Connections == 1 })
}

func oneAttack(addr string, attack func(net.Conn), stop <-chan struct{}) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	attack(c)
	select {
	case <-stop:
	case <-time.After(time.Duration(300+rand.IntN(700)) * time.Millisecond):
	}
}

// Nothing that a client may send, well-formed or not, makes the server fail or keep the connection's memory.
func TestRandomBytes(t *testing.T) {
	s := start(t, nil)
	words := []string{"PUB ", "SUB ", "UNSUB ", "HPUB ", "CONNECT ", "{}", "PING\r\n", "foo ", "* ", "> ", "1 ", "5 ", "\r\n", "\n", "hello", "{\"headers\":true,\"verbose\":false}", "\x00", "NATS/1.0\r\n\r\n", "12 "}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		c, err := net.Dial("tcp", s.Addr().String())
		check(t, err)
		var b strings.Builder
		for range 1 + r.IntN(40) {
			b.WriteString(words[r.IntN(len(words))])
		}
		_, _ = io.WriteString(c, b.String())
		if i%2 == 0 {
			_, _ = fmt.Fprintf(c, "\r\nPING\r\n")
		}
		_ = c.Close()
	}
	nc := connect(t, s)
	check(t, nc.Flush())
	eventually(t, "all are gone", func() bool { return s.Stats().Connections == 1 })
}
