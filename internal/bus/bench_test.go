package bus_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// counting is a sink that costs nothing.
type counting struct{}

func (counting) Deliver([]bus.Delivery) <-chan struct{} { return nil }

func benchSession(tb testing.TB, r *bus.Router) bus.Session {
	tb.Helper()
	s, err := r.Open(bus.KindClient, bus.Identity{Account: "A"}, counting{})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// perFlush is how many messages of one read go out together.
const perFlush = 32

func benchFanOut(b *testing.B, n int) {
	b.Helper()
	const subject = "orders.eu.new"
	r := bus.NewRouter()
	p := benchSession(b, r)
	for i := range n {
		subscribe(b, benchSession(b, r), strconv.Itoa(i), subject, "")
	}
	m := bus.Msg{Subject: []byte(subject), Data: make([]byte, 128)}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		p.Publish(&m)
		if i++; i%perFlush == 0 {
			p.Flush()
		}
	}
}

func BenchmarkPublish1to1(b *testing.B)   { benchFanOut(b, 1) }
func BenchmarkPublish1to4(b *testing.B)   { benchFanOut(b, 4) }
func BenchmarkPublish1to1k(b *testing.B)  { benchFanOut(b, 1000) }
func BenchmarkPublishNobody(b *testing.B) { benchFanOut(b, 0) }

func BenchmarkPublishFlush1to1(b *testing.B) {
	r := bus.NewRouter()
	p := benchSession(b, r)
	subscribe(b, benchSession(b, r), "1", "orders.*.new", "")
	m := bus.Msg{Subject: []byte("orders.eu.new"), Data: make([]byte, 128)}
	b.ReportAllocs()
	for b.Loop() {
		p.Publish(&m)
		p.Flush()
	}
}

func BenchmarkPublishQueueOf4(b *testing.B) {
	r := bus.NewRouter()
	p := benchSession(b, r)
	for i := range 4 {
		subscribe(b, benchSession(b, r), strconv.Itoa(i), "orders.*.new", "workers")
	}
	m := bus.Msg{Subject: []byte("orders.eu.new")}
	b.ReportAllocs()
	for b.Loop() {
		p.Publish(&m)
		p.Flush()
	}
}

// million makes 1 M subscriptions of 1000 parties.
func million(b *testing.B, r *bus.Router) {
	b.Helper()
	for i := range 1000 {
		s := benchSession(b, r)
		for j := range 1000 {
			subscribe(b, s, strconv.Itoa(j), fmt.Sprintf("device.%d.%d.>", i, j), "")
		}
	}
}

// BenchmarkMillionSubs publishes to subjects that are known to the cache, and to ever new ones.
func BenchmarkMillionSubs(b *testing.B) {
	r := bus.NewRouter()
	million(b, r)
	p := benchSession(b, r)
	subjects := make([][]byte, 1<<16)
	for i := range subjects {
		subjects[i] = fmt.Appendf(nil, "device.%d.%d.state", i%1000, i/1000)
	}
	for _, n := range []int{1, 500, len(subjects)} {
		b.Run(fmt.Sprintf("subjects=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var m bus.Msg
			i := 0
			for b.Loop() {
				m.Subject = subjects[i%n]
				p.Publish(&m)
				if i++; i%perFlush == 0 {
					p.Flush()
				}
			}
		})
	}
}

// BenchmarkChurn publishes to a steady subject while others subscribe and unsubscribe inboxes, as request/reply does.
func BenchmarkChurn(b *testing.B) {
	for _, churn := range []string{"none", "_INBOX.%d", "orders.x%d", "*.%d"} {
		b.Run(churn, func(b *testing.B) {
			r := bus.NewRouter()
			p := benchSession(b, r)
			q := benchSession(b, r)
			subscribe(b, benchSession(b, r), "1", "orders.*.new", "")
			m := bus.Msg{Subject: []byte("orders.eu.new")}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if churn != "none" {
					b.StopTimer()
					subscribe(b, q, "i", fmt.Sprintf(churn, i), "")
					q.Unsubscribe("i", 0)
					b.StartTimer()
				}
				for range 100 {
					p.Publish(&m)
					p.Flush()
				}
				i++
			}
			s := r.AccountStats("A")
			b.ReportMetric(s.CacheHitRate(), "hits/op")
		})
	}
}

func BenchmarkSubscribeUnsubscribe(b *testing.B) {
	r := bus.NewRouter()
	s := benchSession(b, r)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Subscribe("1", "_INBOX.abc.1", ""); err != nil {
			b.Fatal(err)
		}
		s.Unsubscribe("1", 0)
	}
}

// BenchmarkRequestReply is a request with an inbox of its own, answered by a service.
func BenchmarkRequestReply(b *testing.B) {
	r := bus.NewRouter()
	p, q := benchSession(b, r), benchSession(b, r)
	subscribe(b, q, "1", "svc", "")
	b.ReportAllocs()
	i := 0
	var inbox []byte
	for b.Loop() {
		i++
		inbox = strconv.AppendInt(append(inbox[:0], "_INBOX.q."...), int64(i), 10)
		if _, err := p.Subscribe("2", string(inbox), ""); err != nil {
			b.Fatal(err)
		}
		p.Unsubscribe("2", 1)
		p.Publish(&bus.Msg{Subject: []byte("svc"), Reply: inbox})
		p.Flush()
		q.Publish(&bus.Msg{Subject: inbox})
		q.Flush()
	}
}

func BenchmarkParallel(b *testing.B) {
	r := bus.NewRouter()
	var mu sync.Mutex
	n := 0
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		mu.Lock()
		n++
		subject := fmt.Sprintf("orders.%d", n)
		p := benchSession(b, r)
		subscribe(b, benchSession(b, r), "1", subject, "")
		mu.Unlock()
		m := bus.Msg{Subject: []byte(subject)}
		i := 0
		for pb.Next() {
			p.Publish(&m)
			if i++; i%perFlush == 0 {
				p.Flush()
			}
		}
	})
}
