package gateway

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// startCopier passes bytes on without a look at them: what a passage is measured against.
func startCopier(b *testing.B, to string) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(b, err)
	b.Cleanup(func() { _ = l.Close() })
	pass := func(to, from net.Conn) {
		buf := make([]byte, 64<<10)
		_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, buf) // no splice
		_ = to.Close()
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				_ = c.Close()
				continue
			}
			go pass(up, c)
			go pass(c, up)
		}
	}()
	return "nats://" + l.Addr().String()
}

// BenchmarkPassage sends messages from one client to another: directly, through a copier of bytes, through a gateway.
// Servers and clients share the machine. The request cases are one message at a time.
func BenchmarkPassage(b *testing.B) {
	ns := oracle(b, &server.Options{})
	direct := ns.ClientURL()
	ways := []struct{ name, url string }{
		{"direct", direct},
		{"copier", startCopier(b, strings.TrimPrefix(direct, "nats://"))},
		{"gateway", startBefore(b, ns, nil).ClientURL()},
	}
	connect := func(b *testing.B, url string) *nats.Conn {
		b.Helper()
		nc, err := nats.Connect(url)
		check(b, err)
		b.Cleanup(nc.Close)
		return nc
	}
	for _, size := range []int{128, 16 << 10} {
		data := make([]byte, size)
		for _, way := range ways {
			b.Run(way.name+"/"+map[int]string{128: "128B", 16 << 10: "16KiB"}[size], func(b *testing.B) {
				pub, sub := connect(b, way.url), connect(b, way.url)
				var got atomic.Int64
				s, err := sub.Subscribe("bench", func(*nats.Msg) { got.Add(1) })
				check(b, err)
				check(b, s.SetPendingLimits(-1, -1))
				check(b, sub.Flush())
				b.SetBytes(int64(size))
				sent := int64(0)
				for ; b.Loop(); sent++ {
					check(b, pub.Publish("bench", data))
					for sent-got.Load() > 10_000 { //nolint:mnd // as many as are under way
						time.Sleep(100 * time.Microsecond)
					}
				}
				check(b, pub.Flush())
				for got.Load() < sent {
					time.Sleep(100 * time.Microsecond)
				}
			})
		}
	}
	for _, way := range ways {
		b.Run(way.name+"/request", func(b *testing.B) {
			echo, nc := connect(b, direct), connect(b, way.url)
			_, err := echo.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) })
			check(b, err)
			check(b, echo.Flush())
			data := make([]byte, 128)
			for b.Loop() {
				_, err := nc.Request("echo", data, 5*time.Second)
				check(b, err)
			}
		})
	}
}
