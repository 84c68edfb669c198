package gateway

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// stamp makes a payload that names its sender and number and carries a checksum.
func stamp(sender, n, size int) []byte {
	b := make([]byte, max(size, 12))
	binary.LittleEndian.PutUint32(b[4:], uint32(sender))
	binary.LittleEndian.PutUint32(b[8:], uint32(n))
	for i := 12; i < len(b); i++ {
		b[i] = byte(i * (n + 7))
	}
	binary.LittleEndian.PutUint32(b, crc32.ChecksumIEEE(b[4:]))
	return b
}

// unstamp checks a payload.
func unstamp(b []byte) (sender, n int, err error) {
	if len(b) < 12 || crc32.ChecksumIEEE(b[4:]) != binary.LittleEndian.Uint32(b) {
		return 0, 0, fmt.Errorf("damaged payload of %d bytes", len(b))
	}
	return int(binary.LittleEndian.Uint32(b[4:])), int(binary.LittleEndian.Uint32(b[8:])), nil
}

// Many publishers and subscribers at once, all sizes: every message arrives whole, once, in its publisher's order.
func TestEverythingArrivesInOrder(t *testing.T) {
	const publishers, subscribers, each = 3, 3, 600
	s := start(t, nil)
	errs := make(chan error, subscribers)
	for range subscribers {
		nc := connect(t, s)
		next := make([]int, publishers)
		total := 0
		sub, err := nc.Subscribe("data.>", func(m *nats.Msg) {
			sender, n, err := unstamp(m.Data)
			if err == nil && (n != next[sender] || m.Header.Get("N") != fmt.Sprint(n)) {
				err = fmt.Errorf("got %d %q of %d, want %d", n, m.Header.Get("N"), sender, next[sender])
			}
			if err != nil {
				errs <- err
				return
			}
			next[sender]++
			if total++; total == publishers*each {
				errs <- nil
			}
		})
		check(t, err)
		check(t, sub.SetPendingLimits(-1, -1))
		check(t, nc.Flush())
	}
	var wg sync.WaitGroup
	for p := range publishers {
		nc := connect(t, s)
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(p), 7))
			for n := range each {
				size := r.IntN(600)
				switch r.IntN(30) {
				case 0:
					size = r.IntN(200 << 10)
				case 1, 2:
					size = 3000 + r.IntN(3000) // around the bound of what stays in one buffer
				}
				m := nats.NewMsg(fmt.Sprintf("data.%d", p))
				m.Data = stamp(p, n, size)
				m.Header.Set("N", fmt.Sprint(n))
				_ = nc.PublishMsg(m)
			}
			_ = nc.Flush()
		})
	}
	wg.Wait()
	for range subscribers {
		select {
		case err := <-errs:
			check(t, err)
		case <-time.After(30 * time.Second):
			t.Fatal("not everything has arrived")
		}
	}
}

// A client that does not read while services send it single messages gets all of them, those of each service in order, when
// it does: what its socket does not take at once, and what comes after that, goes the writer's way.
func TestAnswersToFullSocket(t *testing.T) {
	const services, each, size = 3, 2500, 1000
	s := start(t, nil)
	slow := dialRaw(t, s)
	slow.send(t, "CONNECT {\"verbose\":false}\r\nSUB data 1\r\nPING\r\n")
	slow.expect(t, "PONG")
	var wg sync.WaitGroup
	for id := range services {
		session, err := s.options.Bus.Open(bus.KindService, bus.Identity{Account: "$G"}, nil)
		check(t, err)
		t.Cleanup(session.Close)
		wg.Go(func() {
			for i := range each {
				session.Publish(&bus.Msg{Subject: []byte("data"), Data: fmt.Appendf(nil, "%d %0*d", id, size, i)})
				session.Flush()
			}
		})
	}
	wg.Wait()
	var next [services]int
	for got := 0; got < services*each; {
		line := slow.line(t)
		if line == "PING" || strings.HasPrefix(line, "MSG data 1 ") {
			continue
		}
		var id, i int
		if _, err := fmt.Sscanf(line, "%d %d", &id, &i); err != nil || len(line) != size+2 {
			t.Fatalf("got %q: %v", line, err)
		}
		if i != next[id] {
			t.Fatalf("got message %d of service %d, want %d", i, id, next[id])
		}
		next[id]++
		got++
	}
	eventually(t, "nothing waits", func() bool { return s.Connections()[0].PendingBytes == 0 })
}

func TestLargestMessage(t *testing.T) {
	s := start(t, &server.Options{MaxPayload: 8 << 20})
	nc := connect(t, s)
	sub, err := nc.SubscribeSync("big")
	check(t, err)
	for _, size := range []int{8 << 20, 64 << 10, 64<<10 - 20, 4096, 4095, 4097, 1 << 20, 0} {
		want := bytes.Repeat([]byte{byte(size >> 10)}, size)
		check(t, nc.Publish("big", want))
		m, err := sub.NextMsg(10 * time.Second)
		check(t, err)
		if !bytes.Equal(m.Data, want) {
			t.Fatalf("size %d differs", size)
		}
	}
	if err := nc.Publish("big", make([]byte, 8<<20+1)); err == nil {
		t.Fatal("the client does not know max_payload")
	}
}

// A queue group shares the messages; every one reaches exactly one member.
func TestQueueGroup(t *testing.T) {
	s := start(t, nil)
	const members, n = 3, 3000
	got := make(chan int, n+1)
	for i := range members {
		nc := connect(t, s)
		_, err := nc.QueueSubscribe("work", "q", func(*nats.Msg) { got <- i })
		check(t, err)
		check(t, nc.Flush())
	}
	nc := connect(t, s)
	for range n {
		check(t, nc.Publish("work", nil))
	}
	check(t, nc.Flush())
	counts := make([]int, members)
	for range n {
		select {
		case i := <-got:
			counts[i]++
		case <-time.After(10 * time.Second):
			t.Fatalf("missing messages: %v", counts)
		}
	}
	for i, c := range counts {
		if c < n/members/3 {
			t.Errorf("member %d got %d of %d", i, c, n)
		}
	}
	select {
	case <-got:
		t.Fatal("a message came twice")
	case <-time.After(50 * time.Millisecond):
	}
}

// A consumer that reads, but slowly, gets everything: its producers are slowed down before it is lost.
func TestFastProducersAreSlowedDown(t *testing.T) {
	s := start(t, &server.Options{MaxPayload: 32 << 10, MaxPending: 4 << 20})
	c := dialRaw(t, s)
	c.send(t, "CONNECT {\"verbose\":false}\r\nSUB foo 1\r\nPING\r\n")
	c.expect(t, "PONG")
	const n, size = 1000, 32 << 10
	line := fmt.Sprintf("MSG foo 1 %d\r\n", size)
	done := make(chan int64, 1)
	go func() {
		buf := make([]byte, 64<<10)
		var total int64
		for total < int64(n*(len(line)+size+2)) {
			k, err := c.in.Read(buf)
			if err != nil {
				break
			}
			total += int64(k)
			if total%(1<<20) < int64(k) {
				time.Sleep(2 * time.Millisecond)
			}
		}
		done <- total
	}()
	nc := connect(t, s)
	for range n {
		check(t, nc.Publish("foo", make([]byte, size)))
	}
	check(t, nc.FlushTimeout(30*time.Second))
	if total := <-done; total < int64(n*(len(line)+size+2)) {
		t.Fatalf("the consumer got %d bytes; %+v", total, s.Stats())
	}
}

// With no_fast_producer_stall nobody waits and the slow consumer misses messages instead.
func TestNoFastProducerStall(t *testing.T) {
	s := start(t, &server.Options{MaxPayload: 32 << 10, MaxPending: 4 << 20, NoFastProducerStall: true})
	c := dialRaw(t, s)
	c.send(t, "CONNECT {\"verbose\":false}\r\nSUB foo 1\r\nPING\r\n")
	c.expect(t, "PONG")
	nc := connect(t, s)
	for range 1000 {
		check(t, nc.Publish("foo", make([]byte, 32<<10)))
	}
	check(t, nc.FlushTimeout(30*time.Second))
	if st := s.Stats(); st.Connections != 2 || st.Stalls != 0 {
		t.Fatalf("%+v", st)
	}
}

func TestReconnectAndResubscribe(t *testing.T) {
	s := start(t, nil)
	again := make(chan struct{}, 1)
	nc := connect(t, s, nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ReconnectHandler(func(*nats.Conn) { again <- struct{}{} }))
	sub, err := nc.SubscribeSync("foo")
	check(t, err)
	check(t, nc.Flush())
	s.Kick(s.Connections()[0].CID)
	select {
	case <-again:
	case <-time.After(5 * time.Second):
		t.Fatal("no reconnect")
	}
	check(t, nc.Publish("foo", nil))
	_, err = sub.NextMsg(5 * time.Second)
	check(t, err)
}

// The core path allocates nothing per message.
func TestNoAllocationPerMessage(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := start(t, nil)
	const n = 50_000
	message := "PUB some.subject 64\r\n" + strings.Repeat("x", 64) + "\r\n"
	in := []byte(strings.Repeat(message, 400))
	want := n * len("MSG some.subject 1 64\r\n"+message[len("PUB some.subject 64\r\n"):])
	sub, pub := dialRaw(t, s), dialRaw(t, s)
	sub.send(t, "CONNECT {\"verbose\":false}\r\nSUB some.* 1\r\nPING\r\n")
	sub.expect(t, "PONG")
	pub.send(t, "CONNECT {\"verbose\":false}\r\nPING\r\n")
	pub.expect(t, "PONG")
	round := func() {
		done := make(chan error, 1)
		go func() {
			buf := make([]byte, 64<<10)
			for total := 0; total < want; {
				k, err := sub.in.Read(buf)
				if err != nil {
					done <- err
					return
				}
				total += k
			}
			done <- nil
		}()
		for range n / 400 {
			_, err := pub.Write(in)
			check(t, err)
		}
		check(t, <-done)
	}
	round() // fills pools and caches
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	round()
	runtime.ReadMemStats(&after)
	if per := float64(after.Mallocs-before.Mallocs) / n; per > 0.05 {
		t.Fatalf("%.3f allocations per message", per)
	}
}
