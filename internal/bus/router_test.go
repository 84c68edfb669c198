package bus_test

import (
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/internal/bus/bustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open makes a party in account A.
func open(tb testing.TB, r *bus.Router, kind bus.Kind, id bus.Identity) (bus.Session, *bustest.Sink) {
	tb.Helper()
	sink := &bustest.Sink{}
	s, err := r.Open(kind, id, sink)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s, sink
}

func client(tb testing.TB, r *bus.Router) (bus.Session, *bustest.Sink) {
	tb.Helper()
	return open(tb, r, bus.KindClient, bus.Identity{Account: "A"})
}

func subscribe(tb testing.TB, s bus.Session, sid, filter, queue string) *bus.Subscription {
	tb.Helper()
	sub, err := s.Subscribe(sid, filter, queue)
	if err != nil {
		tb.Fatal(err)
	}
	return sub
}

func publish(s bus.Session, subject string) bool {
	return s.Publish(&bus.Msg{Subject: []byte(subject)})
}

// sids returns the sids of what the sink got since the last call, in order.
func sids(sink *bustest.Sink) string {
	out := ""
	for _, r := range sink.Take() {
		out += r.SID
	}
	return out
}

func want(tb testing.TB, what string, got, want any) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestFanOutInOneBatchPerSink(t *testing.T) {
	r := bus.NewRouter()
	p, _ := client(t, r)
	a, aSink := client(t, r)
	b, bSink := client(t, r)
	subscribe(t, a, "1", "x.*", "")
	subscribe(t, b, "2", "x.y", "")
	other, otherSink := open(t, r, bus.KindClient, bus.Identity{Account: "B"})
	subscribe(t, other, "3", ">", "")

	for i := range 3 {
		m := bus.Msg{Subject: []byte("x.y"), Reply: []byte("r"), Header: []byte("h"), Data: fmt.Append(nil, i)}
		want(t, "interest", p.Publish(&m), true)
	}
	want(t, "delivered before Flush", aSink.Len()+bSink.Len(), 0)
	want(t, "stall", p.Flush() == nil, true)
	for _, sink := range []*bustest.Sink{aSink, bSink} {
		want(t, "batches", sink.Batches(), 1)
		got := sink.Take()
		want(t, "messages", len(got), 3)
		for i, d := range got {
			want(t, "order", string(d.Msg.Data), fmt.Sprint(i))
			want(t, "parts", string(d.Msg.Subject)+string(d.Msg.Reply)+string(d.Msg.Header), "x.yrh")
		}
	}
	want(t, "the other account", otherSink.Len(), 0)
	want(t, "interest of none", publish(p, "z"), false)
}

func TestRouteIsMatchedAndSubjectIsShown(t *testing.T) {
	r := bus.NewRouter()
	p, _ := client(t, r)
	a, sink := client(t, r)
	subscribe(t, a, "1", "inbox", "")
	subscribe(t, a, "2", "stored", "")
	p.Publish(&bus.Msg{Subject: []byte("stored"), Route: []byte("inbox")})
	p.Flush()
	got := sink.Take()
	want(t, "messages", len(got), 1)
	want(t, "sid", got[0].SID, "1")
	want(t, "subject", string(got[0].Msg.Subject), "stored")
}

func TestSubscribeErrors(t *testing.T) {
	r := bus.NewRouter()
	p, _ := client(t, r)
	_, err := p.Subscribe("1", "a..b", "")
	want(t, "bad filter", errors.Is(err, bus.ErrInvalidSubject), true)
	mute, err := r.Open(bus.KindClient, bus.Identity{}, nil)
	want(t, "open without a sink", err, nil)
	_, err = mute.Subscribe("1", "a", "")
	want(t, "no sink", err, bus.ErrNoSink)
	p.Close()
	p.Close()
	_, err = p.Subscribe("1", "a", "")
	want(t, "closed", err, bus.ErrClosed)
	want(t, "publish when closed", publish(p, "a"), false)
	_, err = r.Open(0, bus.Identity{}, nil)
	want(t, "unknown kind", err, bus.ErrUnknownKind)
}

func TestSameSIDKeepsTheEarlier(t *testing.T) {
	r := bus.NewRouter()
	p, sink := client(t, r)
	first := subscribe(t, p, "1", "a", "")
	want(t, "the same", subscribe(t, p, "1", "b", "") == first, true)
	want(t, "interest in the ignored", r.HasInterest("A", "b"), false)
	publish(p, "a")
	p.Flush()
	want(t, "got", sids(sink), "1")
	want(t, "number", p.NumSubscriptions(), 1)
}

func TestMaxIsExactAndEndsTheSubscription(t *testing.T) {
	r := bus.NewRouter()
	p, _ := client(t, r)
	a, sink := client(t, r)
	subscribe(t, a, "1", "a", "")
	publish(p, "a")
	a.Unsubscribe("1", 3)
	want(t, "interest", publish(p, "a"), true)
	want(t, "interest in the last", publish(p, "a"), true)
	want(t, "interest past max", publish(p, "a"), false)
	p.Flush()
	want(t, "delivered", sids(sink), "111")
	want(t, "interest afterwards", r.HasInterest("A", "a"), false)
	want(t, "number", a.NumSubscriptions(), 0)

	sub := subscribe(t, a, "1", "a", "")
	publish(p, "a")
	publish(p, "a")
	a.Unsubscribe("1", 2)
	want(t, "reached already", r.HasInterest("A", "a"), false)
	want(t, "delivered", sub.Delivered(), int64(2))
	a.Unsubscribe("no such", 0)
}

func TestQueueGroupSpreadsAndSkipsTheExhausted(t *testing.T) {
	r := bus.NewRouter()
	p, _ := client(t, r)
	var sinks []*bustest.Sink
	for i := range 4 {
		s, sink := client(t, r)
		subscribe(t, s, "q", "a", "g")
		if i == 0 {
			s.Unsubscribe("q", 5)
		}
		sinks = append(sinks, sink)
	}
	wild, wildSink := client(t, r)
	subscribe(t, wild, "q", "*", "g") // the same group through another filter
	subscribe(t, wild, "o", "a", "other")
	const n = 400
	for range n {
		publish(p, "a")
	}
	p.Flush()
	other := 0
	total := 0
	for _, d := range wildSink.Take() {
		if d.SID == "o" {
			other++
		} else {
			total++
		}
	}
	want(t, "every message to the other group", other, n)
	want(t, "the limited member", sinks[0].Len(), 5)
	for _, sink := range sinks {
		if total += sink.Len(); sink.Len() == 0 {
			t.Error("a member got nothing")
		}
	}
	want(t, "each message once", total, n)
}

func TestNoEcho(t *testing.T) {
	r := bus.NewRouter()
	p, sink := open(t, r, bus.KindClient, bus.Identity{Account: "A", NoEcho: true})
	subscribe(t, p, "1", "a", "")
	subscribe(t, p, "2", "a", "g")
	want(t, "interest", publish(p, "a"), false)
	q, qSink := client(t, r)
	subscribe(t, q, "3", "a", "g")
	for range 20 {
		want(t, "interest", publish(p, "a"), true)
	}
	p.Flush()
	want(t, "echoed", sink.Len(), 0)
	want(t, "to the other member", qSink.Len(), 20)
}

func TestMirrorReachesServicesAlone(t *testing.T) {
	r := bus.NewRouter()
	m, _ := open(t, r, bus.KindMirror, bus.Identity{Account: "A"})
	c, cSink := client(t, r)
	subscribe(t, c, "1", ">", "")
	subscribe(t, c, "2", ">", "g")
	want(t, "interest of clients", publish(m, "a"), false)
	s, sSink := open(t, r, bus.KindService, bus.Identity{Account: "A"})
	subscribe(t, s, "3", "a", "g")
	for range 10 {
		want(t, "interest of services", publish(m, "a"), true)
	}
	m.Flush()
	want(t, "clients", cSink.Len(), 0)
	want(t, "services", sSink.Len(), 10)
}

func TestClosedSinkIsNotCalled(t *testing.T) {
	r := bus.NewRouter()
	p, _ := client(t, r)
	a, sink := client(t, r)
	subscribe(t, a, "1", "a", "")
	publish(p, "a")
	a.Close()
	p.Flush()
	want(t, "delivered", sink.Batches(), 0)
	want(t, "interest", r.HasInterest("A", "a"), false)
}

// A request that was queued for a service which then closes is not left without an answer.
func TestRequestToClosedServiceIsAnswered(t *testing.T) {
	r := bus.NewRouter()
	p, answers := client(t, r)
	subscribe(t, p, "9", "inbox.>", "")
	s, sink := open(t, r, bus.KindService, bus.Identity{Account: "A"})
	subscribe(t, s, "1", "a", "")
	for i := range 3 {
		want(t, "interest", p.Publish(&bus.Msg{Subject: []byte("a"), Reply: fmt.Appendf(nil, "inbox.%d", i)}), true)
	}
	publish(p, "a") // wants no answer
	s.Close()
	p.Flush()
	want(t, "delivered", sink.Len(), 0)
	want(t, "answers", answers.Len(), 3)
	for _, d := range answers.Received() {
		want(t, "header", string(d.Msg.Header), "NATS/1.0 503\r\n\r\n")
	}
	p.Flush()
	want(t, "answers later", answers.Len(), 3)
}

func TestFirstStallIsReturned(t *testing.T) {
	r := bus.NewRouter()
	p, _ := client(t, r)
	var stalls []chan struct{}
	for range 3 {
		s, sink := client(t, r)
		subscribe(t, s, "1", "a", "")
		stall := make(chan struct{})
		sink.Stall(stall)
		stalls = append(stalls, stall)
	}
	publish(p, "a")
	got := p.Flush()
	found := false
	for _, stall := range stalls {
		found = found || got == (<-chan struct{})(stall)
	}
	want(t, "one of the stalls", found, true)
	want(t, "stall of an empty flush", p.Flush() == nil, true)
}

func TestBarrierIsImmediate(t *testing.T) {
	p, _ := client(t, bus.NewRouter())
	done := false
	p.Barrier(func() { done = true })
	want(t, "done", done, true)
}
