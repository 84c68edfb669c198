package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// The benchmarks run the same raw client against the gateway and a real nats-server, side by side: compare ratios.

// servers runs a benchmark on both. PINGs of the server are put off: the raw clients do not expect them.
func servers(b *testing.B, run func(b *testing.B, addr net.Addr)) {
	b.Helper()
	b.Run("server=gateway", func(b *testing.B) { run(b, start(b, &server.Options{DisableShortFirstPing: true}).Addr()) })
	b.Run("server=nats-server", func(b *testing.B) { run(b, oracle(b, &server.Options{DisableShortFirstPing: true}).Addr()) })
}

// dialBench connects and waits until the server has taken the CONNECT.
func dialBench(b *testing.B, addr net.Addr, more string) net.Conn {
	b.Helper()
	c, err := net.Dial("tcp", addr.String())
	check(b, err)
	b.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, `CONNECT {"verbose":false,"pedantic":false,"headers":true}`+"\r\n"+more+"PING\r\n")
	check(b, err)
	waitFor(b, c, "PONG\r\n")
	return c
}

// waitFor reads until what came ends with text.
func waitFor(b *testing.B, c net.Conn, text string) {
	b.Helper()
	var got []byte
	buf := make([]byte, 4096)
	for !bytes.HasSuffix(got, []byte(text)) {
		n, err := c.Read(buf)
		check(b, err)
		got = append(got, buf[:n]...)
		if len(got) > 8192 {
			got = got[len(got)-4096:]
		}
	}
}

// flood writes n messages in buffers of about 32 KiB, as clients do.
func flood(b *testing.B, c net.Conn, message string, n int) {
	b.Helper()
	per := max(1, 32<<10/len(message))
	batch := []byte(strings.Repeat(message, per))
	for n > 0 {
		k := min(n, per)
		_, err := c.Write(batch[:k*len(message)])
		check(b, err)
		n -= k
	}
}

func pub(size int) string {
	return fmt.Sprintf("PUB foo %d\r\n%s\r\n", size, strings.Repeat("x", size))
}

func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{16, 128, 1024} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			servers(b, func(b *testing.B, addr net.Addr) {
				b.Helper()
				c := dialBench(b, addr, "")
				b.SetBytes(int64(size))
				b.ResetTimer()
				flood(b, c, pub(size), b.N)
				_, err := io.WriteString(c, "PING\r\n")
				check(b, err)
				waitFor(b, c, "PONG\r\n")
			})
		})
	}
}

func BenchmarkFanOut(b *testing.B) {
	for _, receivers := range []int{1, 10} {
		for _, size := range []int{128, 4096} {
			b.Run(fmt.Sprintf("receivers=%d/size=%d", receivers, size), func(b *testing.B) {
				servers(b, func(b *testing.B, addr net.Addr) { b.Helper(); fanOut(b, addr, receivers, size) })
			})
		}
	}
}

func fanOut(b *testing.B, addr net.Addr, receivers, size int) {
	b.Helper()
	done := make(chan error, receivers)
	want := int64(b.N) * int64(len(fmt.Sprintf("MSG foo 1 %d\r\n", size))+size+2)
	for range receivers {
		c := dialBench(b, addr, "SUB foo 1\r\n")
		go func() {
			_, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{io.LimitReader(c, want)}, make([]byte, 64<<10))
			done <- err
		}()
	}
	c := dialBench(b, addr, "")
	b.SetBytes(int64(size))
	b.ResetTimer()
	flood(b, c, pub(size), b.N)
	for range receivers {
		check(b, <-done)
	}
}

func BenchmarkRequest(b *testing.B) {
	servers(b, func(b *testing.B, addr net.Addr) {
		b.Helper()
		reply := []byte("PUB in 2\r\nhi\r\n")
		r := dialBench(b, addr, "SUB req 1\r\n")
		go func() {
			buf := make([]byte, 4096)
			for {
				n, err := r.Read(buf)
				if err != nil {
					return
				}
				for range bytes.Count(buf[:n], []byte("MSG")) {
					_, _ = r.Write(reply)
				}
			}
		}()
		c := dialBench(b, addr, "SUB in 1\r\n")
		b.ResetTimer()
		for range b.N {
			_, err := io.WriteString(c, "PUB req in 2\r\nhi\r\n")
			check(b, err)
			waitFor(b, c, "MSG in 1 2\r\nhi\r\n")
		}
	})
}
