package bus_test

import (
	"fmt"
	"testing"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

func TestSubjectsUsedOnceStayWithinTheBound(t *testing.T) {
	r := bus.NewRouter()
	p, _ := client(t, r)
	a, sink := client(t, r)
	subscribe(t, a, "1", "reply.>", "")
	const n = 40000
	for i := range n {
		publish(p, fmt.Sprintf("reply.%d", i))
		if i%100 == 0 {
			p.Flush()
		}
	}
	p.Flush()
	want(t, "delivered", sink.Len(), n)
	if s := r.AccountStats("A"); s.Cached > 1024 || s.Matches != n {
		t.Errorf("%+v", s)
	}
	p.Close()
	want(t, "cached after Close", r.AccountStats("A").Cached, 0)
}

func TestSubjectsUsedAgainAreCached(t *testing.T) {
	for _, n := range []int{1, 10, 800} {
		r := bus.NewRouter()
		p, _ := client(t, r)
		rounds := 20000/n + 100
		for range rounds {
			for i := range n {
				publish(p, fmt.Sprintf("state.%d", i))
			}
			p.Flush()
		}
		s := r.AccountStats("A")
		if s.CacheHitRate() < 0.6 {
			t.Errorf("%d subjects: %+v", n, s)
		}
		want(t, "cached", s.Cached <= n, true)
	}
}

// TestInboxChurnLeavesTheCachesOfOthers: what requests of others do is no reason to match again.
func TestInboxChurnLeavesTheCachesOfOthers(t *testing.T) {
	r := bus.NewRouter()
	p, _ := client(t, r)
	a, sink := client(t, r)
	b, _ := client(t, r)
	subscribe(t, a, "1", "orders.>", "")
	const n = 2000
	for i := range n {
		subscribe(t, b, "1", fmt.Sprintf("_INBOX.%d.*", i), "")
		b.Unsubscribe("1", 0)
		publish(p, "orders.new")
		p.Flush()
	}
	want(t, "delivered", sink.Len(), n)
	if s := r.AccountStats("A"); s.CacheHitRate() < 0.95 {
		t.Errorf("%+v", s)
	}
}

func TestLargeFanOutIsDeliveredEarlyAndInOrder(t *testing.T) {
	r := bus.NewRouter()
	p, _ := client(t, r)
	a, sink := client(t, r)
	const subs, n = 5000, 20
	for i := range subs {
		subscribe(t, a, fmt.Sprint(i), "a", "")
	}
	stall := make(chan struct{})
	sink.Stall(stall)
	for i := range n {
		p.Publish(&bus.Msg{Subject: []byte("a"), Data: []byte{byte(i)}})
	}
	early := sink.Len()
	if early == 0 || early == subs*n {
		t.Errorf("delivered before Flush: %d of %d", early, subs*n)
	}
	sink.Stall(nil)
	want(t, "the early stall is kept", p.Flush() == (<-chan struct{})(stall), true)
	got := sink.Take()
	want(t, "delivered", len(got), subs*n)
	for i, d := range got {
		if int(d.Msg.Data[0]) != i/subs {
			t.Fatalf("delivery %d is of message %d", i, d.Msg.Data[0])
		}
	}
	want(t, "largest fan-out", r.Stats().MaxFanout, subs)
}

func TestNoAllocationsInSteadyState(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, subs := range []int{0, 1, 4} {
		for _, queue := range []string{"", "g"} {
			r := bus.NewRouter()
			p := benchSession(t, r)
			for i := range subs {
				subscribe(t, benchSession(t, r), fmt.Sprint(i), "orders.*.new", queue)
			}
			m := bus.Msg{Subject: []byte("orders.eu.new"), Data: make([]byte, 64)}
			if n := testing.AllocsPerRun(1000, func() {
				for range 32 {
					p.Publish(&m)
				}
				p.Flush()
			}); n != 0 {
				t.Errorf("%d subscribers in group %q: %v allocations for 32 messages", subs, queue, n)
			}
			if n := testing.AllocsPerRun(100, func() { r.HasInterest("A", "orders.europe.with.a.long.subject.new") }); n != 0 {
				t.Errorf("HasInterest: %v allocations", n)
			}
		}
	}
}
