package bus

import (
	"fmt"
	"testing"
)

// countSink counts the calls and the messages.
type countSink struct{ calls, messages int }

func (s *countSink) Deliver(batch []Delivery) <-chan struct{} {
	s.calls++
	s.messages += len(batch)
	return nil
}

func openSession(t *testing.T, r *Router, out Sink) *session {
	t.Helper()
	opened, err := r.Open(KindClient, Identity{}, out)
	if err != nil {
		t.Fatal(err)
	}
	s, ok := opened.(*session)
	if !ok {
		t.Fatalf("a session is a %T", opened)
	}
	t.Cleanup(s.Close)
	return s
}

func mustSubscribe(t *testing.T, s *session, sid, filter string) {
	t.Helper()
	if _, err := s.Subscribe(sid, filter, ""); err != nil {
		t.Fatal(err)
	}
}

func publishTo(s *session, format string, args ...any) {
	s.Publish(&Msg{Subject: fmt.Appendf(nil, format, args...)})
}

// TestReceiversAreForgotten: the receivers a session remembers are bounded, and forgetting them leaves no second batch
// for one of them, which would split its messages and break their order.
func TestReceiversAreForgotten(t *testing.T) {
	r := NewRouter()
	var hot countSink
	p, h := openSession(t, r, nil), openSession(t, r, &hot)
	const receivers = 2 * maxBatches
	for i := range receivers { // all before the first publish: nothing becomes stale
		mustSubscribe(t, openSession(t, r, &countSink{}), "1", fmt.Sprintf("in.%d", i))
	}
	mustSubscribe(t, h, "1", "hot.>")
	for i := range receivers {
		publishTo(p, "in.%d", i)
		p.Flush()
		if n := len(p.batches); n > maxBatches {
			t.Fatalf("%d receivers are remembered", n)
		}
		hot = countSink{}
		publishTo(p, "hot.x")
		publishTo(p, "hot.%d", i) // most often not cached
		publishTo(p, "hot.x")
		p.Flush()
		if hot.calls != 1 || hot.messages != 3 {
			t.Fatalf("after %d receivers: 3 messages became %d in %d batches", i, hot.messages, hot.calls)
		}
	}
}

func TestCacheLetsGoOfWhatNoLongerHolds(t *testing.T) {
	r := NewRouter()
	p, a := openSession(t, r, nil), openSession(t, r, &countSink{})
	mustSubscribe(t, a, "1", "a.b")
	for range 2 {
		publishTo(p, "a.b")
	}
	if n := len(p.cache.results); n != 1 {
		t.Fatalf("%d results", n)
	}
	a.Unsubscribe("1", 0)
	for range sweepFlushes {
		p.Flush()
	}
	if n := len(p.cache.results); n != 0 || p.cache.total != 0 {
		t.Errorf("%d results of size %d are still there", n, p.cache.total)
	}
}

func TestCacheIsBoundedInSize(t *testing.T) {
	r := NewRouter()
	p, a := openSession(t, r, nil), openSession(t, r, &countSink{})
	for i := range 300 {
		mustSubscribe(t, a, fmt.Sprint(i), "wide.>")
	}
	for i := range 400 {
		publishTo(p, "wide.%d", i%200)
		publishTo(p, "wide.%d", i%200)
		if i%100 == 0 { // all stale, to be filled again with more
			mustSubscribe(t, a, fmt.Sprint("more", i), "wide.>")
		}
		sum := 0
		for _, result := range p.cache.results {
			sum += result.size()
		}
		if p.cache.total != sum || sum > maxCachedTotal {
			t.Fatalf("the cache holds %d, counts %d", sum, p.cache.total)
		}
		p.Flush()
	}
	if len(p.cache.results) == 0 {
		t.Error("nothing is cached")
	}
	for i := range maxCachedTarget {
		mustSubscribe(t, a, fmt.Sprint("huge", i), "wide.>")
	}
	for range 3 {
		publishTo(p, "wide.too.wide")
	}
	p.Flush()
	if p.cache.results["wide.too.wide"] != nil {
		t.Error("a result that is too large is cached")
	}
}

// TestSubjectsUsedOnceCostLittle: most of them are not let into the cache.
func TestSubjectsUsedOnceCostLittle(t *testing.T) {
	r := NewRouter()
	p, a := openSession(t, r, nil), openSession(t, r, &countSink{})
	mustSubscribe(t, a, "1", "ack.>")
	const n = 800 // less than the cache holds
	for i := range n {
		publishTo(p, "ack.%d", i)
	}
	p.Flush()
	if got := len(p.cache.results); got > n/4 {
		t.Errorf("%d of %d are cached", got, n)
	}
}

func TestScratchIsBounded(t *testing.T) {
	r := NewRouter()
	p, a := openSession(t, r, nil), openSession(t, r, &countSink{})
	for i := range maxScratch + 1 {
		mustSubscribe(t, a, fmt.Sprint(i), ">")
	}
	publishTo(p, "x")
	p.Flush()
	if n := cap(p.matched); n > maxScratch {
		t.Errorf("room for %d matches is kept", n)
	}
	if n := cap(p.scratch.plain); n > maxScratch {
		t.Errorf("room for %d targets is kept", n)
	}
}

func TestMaxIsShown(t *testing.T) {
	r := NewRouter()
	a := openSession(t, r, &countSink{})
	mustSubscribe(t, a, "1", "a")
	a.Unsubscribe("1", 9)
	if n := a.Subscriptions()[0].Max(); n != 9 {
		t.Errorf("Max = %d", n)
	}
}
