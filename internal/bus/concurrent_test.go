package bus_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/noetl/ehdb-gateway/internal/bus"
)

// orderSink checks that each publisher's numbers come without a gap, and counts.
type orderSink struct {
	mu   sync.Mutex
	next map[byte]uint32
	n    int
	bad  string
}

func (s *orderSink) Deliver(batch []bus.Delivery) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = map[byte]uint32{}
	}
	for _, d := range batch {
		from, n := d.Msg.Data[0], uint32(d.Msg.Data[1])|uint32(d.Msg.Data[2])<<8|uint32(d.Msg.Data[3])<<16
		if s.next[from] != n && s.bad == "" {
			s.bad = fmt.Sprintf("publisher %d: message %d where %d was due", from, n, s.next[from])
		}
		s.next[from] = n + 1
		s.n++
	}
	return nil
}

// tally is a sink that counts.
type tally struct{ n atomic.Int64 }

func (s *tally) Deliver(batch []bus.Delivery) <-chan struct{} {
	s.n.Add(int64(len(batch)))
	return nil
}

const (
	publishers = 4
	perRound   = 16
	messages   = 3000 // of each publisher
)

func payload(from, n int) []byte { return []byte{byte(from), byte(n), byte(n >> 8), byte(n >> 16)} }

// TestConcurrent runs publishers against churn: steady subscribers get everything in order, a queue group gets each
// message once, a limited subscription gets its limit, and nothing is left over.
func TestConcurrent(t *testing.T) {
	r := bus.NewRouter()
	openTo := func(sink bus.Sink) bus.Session {
		s, err := r.Open(bus.KindClient, bus.Identity{Account: "A"}, sink)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	var steady [2]orderSink
	subscribe(t, openTo(&steady[0]), "1", "work.*.new", "")
	subscribe(t, openTo(&steady[1]), "1", "work.>", "")
	var group, limited tally
	for range 3 {
		subscribe(t, openTo(&group), "1", "work.eu.new", "g")
	}
	const limit = publishers*messages - 777
	l := openTo(&limited)
	sub := subscribe(t, l, "1", ">", "")

	stop := make(chan struct{})
	var churn, work sync.WaitGroup
	for i, filter := range []string{"_INBOX.%d", "work.eu.%d", "work.eu.new", "*.*.new"} {
		churn.Go(func() { churner(t, openTo(&tally{}), filter, int64(i%2*2), stop) })
	}
	for from := range publishers {
		work.Go(func() {
			p := openTo(nil)
			for n := range messages {
				p.Publish(&bus.Msg{Subject: []byte("work.eu.new"), Data: payload(from, n)})
				if n%perRound == 0 {
					p.Flush()
				}
			}
			p.Flush()
			p.Close()
		})
	}
	l.Unsubscribe("1", limit)
	work.Wait()
	close(stop)
	churn.Wait()

	for i := range steady {
		want(t, "order", steady[i].bad, "")
		want(t, "messages of a steady subscriber", steady[i].n, publishers*messages)
	}
	want(t, "messages of the group", group.n.Load(), int64(publishers*messages))
	want(t, "messages of the limited", limited.n.Load(), int64(limit))
	want(t, "its count", sub.Delivered(), int64(limit))
	want(t, "subscriptions left", r.NumSubscriptions("A"), 5)
	s := r.AccountStats("A")
	want(t, "matches", s.Matches, int64(publishers*messages))
	want(t, "cached once all publishers are closed", s.Cached, 0)
}

// churner subscribes and ends until stop.
func churner(t *testing.T, s bus.Session, filter string, limit int64, stop <-chan struct{}) {
	t.Helper()
	defer s.Close()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		f := filter
		if f != "work.eu.new" && f != "*.*.new" {
			f = fmt.Sprintf(filter, i)
		}
		if _, err := s.Subscribe("1", f, ""); err != nil {
			t.Error(err)
			return
		}
		if limit > 0 {
			s.Unsubscribe("1", limit)
		}
		s.Unsubscribe("1", 0)
	}
}

// TestLimitIsExactUnderRace sets the limit while publishers run: whatever the moment, nothing comes past it, and the
// subscription ends.
func TestLimitIsExactUnderRace(t *testing.T) {
	for round := range 300 {
		r := bus.NewRouter()
		var got tally
		s, err := r.Open(bus.KindClient, bus.Identity{}, &got)
		if err != nil {
			t.Fatal(err)
		}
		sub := subscribe(t, s, "1", "a", []string{"", "g"}[round%2])
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				p, err := r.Open(bus.KindClient, bus.Identity{}, nil)
				if err != nil {
					t.Error(err)
					return
				}
				for range 40 {
					publish(p, "a")
				}
				p.Flush()
			})
		}
		limit := int64(round%100 + 1)
		var after int64
		wg.Go(func() {
			s.Unsubscribe("1", limit)
			after = sub.Delivered()
		})
		wg.Wait()
		// Past the limit come at most the publishes that were under way when it was set.
		n := sub.Delivered()
		if n != got.n.Load() || n < limit || (after < limit && n > limit) || n > max(limit, after)+3 {
			t.Fatalf("limit %d, at %d when set: counted %d, delivered %d", limit, after, n, got.n.Load())
		}
		if r.HasInterest("", "a") || s.NumSubscriptions() != 0 {
			t.Fatalf("limit %d: the subscription has not ended after %d", limit, sub.Delivered())
		}
		s.Close()
	}
}

// closeSink knows, as Deliver runs on the publisher's goroutine, whether this flush began after the close.
type closeSink struct {
	begunAfter *bool
	bad        *atomic.Bool
}

func (s closeSink) Deliver([]bus.Delivery) <-chan struct{} {
	if *s.begunAfter {
		s.bad.Store(true)
	}
	return nil
}

func TestNoDeliveryByFlushesAfterClose(t *testing.T) {
	r := bus.NewRouter()
	var bad atomic.Bool
	for range 200 {
		var closed atomic.Bool
		begunAfter := false
		s, err := r.Open(bus.KindClient, bus.Identity{}, closeSink{&begunAfter, &bad})
		if err != nil {
			t.Fatal(err)
		}
		subscribe(t, s, "1", "a", "")
		var wg sync.WaitGroup
		wg.Go(func() {
			s.Close()
			closed.Store(true)
		})
		wg.Go(func() {
			p, err := r.Open(bus.KindClient, bus.Identity{}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			for i := 0; i < 100 && !begunAfter; i++ {
				publish(p, "a")
				begunAfter = closed.Load()
				p.Flush()
			}
		})
		wg.Wait()
	}
	want(t, "a sink was called by a flush that began after Close", bad.Load(), false)
}

// TestSubscribeAgainstClose: whichever comes first, nothing stays behind.
func TestSubscribeAgainstClose(t *testing.T) {
	r := bus.NewRouter()
	for range 300 {
		s, err := r.Open(bus.KindClient, bus.Identity{}, &tally{})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range 20 {
				if _, err := s.Subscribe(fmt.Sprint(i), "a.*", ""); err != nil {
					return
				}
			}
		})
		wg.Go(s.Close)
		wg.Wait()
	}
	want(t, "subscriptions", r.NumSubscriptions(""), 0)
	want(t, "interest", r.HasInterest("", "a.b"), false)
}

func TestWatchersAddUpUnderRace(t *testing.T) {
	r := bus.NewRouter()
	var balance atomic.Int64
	cancel := r.WatchListeners("", "a.b", "", func(listens bool) {
		if listens {
			balance.Add(1)
		} else {
			balance.Add(-1)
		}
	})
	defer cancel()
	var wg sync.WaitGroup
	for i, filter := range []string{"a.b", "a.*", ">", "a.c"} {
		wg.Go(func() {
			s, err := r.Open(bus.KindClient, bus.Identity{}, &tally{})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for range 2000 + i%2 {
				if _, err := s.Subscribe("1", filter, ""); err != nil {
					t.Error(err)
				}
				s.Unsubscribe("1", 0)
			}
		})
	}
	wg.Wait()
	want(t, "appeared less ended", balance.Load(), int64(0))
	last, err := r.Open(bus.KindClient, bus.Identity{}, &tally{})
	if err != nil {
		t.Fatal(err)
	}
	subscribe(t, last, "1", "a.b", "")
	want(t, "appeared less ended", balance.Load(), int64(1))
	last.Close()
	want(t, "appeared less ended", balance.Load(), int64(0))
}
