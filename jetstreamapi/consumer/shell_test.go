package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/internal/bus/bustest"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// eventually waits until ok holds.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("%s: not within 10s", what)
		}
	}
}

func TestStateIsRecovered(t *testing.T) {
	r := newRig(t, 2)
	o := r.options("C", server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit, AckWait: 200 * time.Millisecond},
		nil)
	c := r.start(o)
	r.subscribe("inbox")
	for i := range 10 {
		r.put("a.b", fmt.Sprint(i))
	}
	c.Pull([]byte("inbox"), nil, []byte("5"))
	got := r.wait(5)
	for _, i := range []int{0, 1, 3} {
		c.Ack(ackID(t, got[i].Msg.Reply), nil, []byte("inbox"))
	}
	r.wait(3)
	before := c.Info()
	c.Stop(409, jsapi.StatusShutdown)
	eventually(t, "the consumer stops", func() bool { return c.run.state.Load() == stateIdle })

	c = r.start(o)
	after := c.Info()
	before.TimeStamp, after.TimeStamp, before.AckFloor.Last, after.AckFloor.Last = time.Time{}, time.Time{}, nil, nil
	before.Delivered.Last, after.Delivered.Last = nil, nil
	before.Config, after.Config = nil, nil
	if a, b := fmt.Sprintf("%+v", *before), fmt.Sprintf("%+v", *after); a != b {
		t.Errorf("before\n%s\nafter\n%s", a, b)
	}
	// what was outstanding comes again, before what is new
	c.Pull([]byte("inbox"), nil, []byte(`{"batch":7,"expires":5000000000}`))
	seen := map[uint64]uint64{}
	for _, g := range r.wait(7) {
		id := ackID(t, g.Msg.Reply)
		seen[id.StreamSeq] = id.Delivered
	}
	for _, seq := range []uint64{3, 5} {
		if seen[seq] != 2 {
			t.Errorf("message %d came with count %d, want 2 (%v)", seq, seen[seq], seen)
		}
	}
}

func TestHeldConsumerSendsNothing(t *testing.T) {
	r := newRig(t, 1)
	o := r.options("C", server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit}, nil)
	o.Held = true
	c := r.start(o)
	r.subscribe("inbox")
	r.put("a.b", "1")
	c.Pull([]byte("inbox"), nil, []byte("1"))
	time.Sleep(20 * time.Millisecond)
	if n := c.Info().Delivered.Consumer; n != 0 {
		t.Fatalf("%d messages were delivered before the release", n)
	}
	c.Release()
	r.wait(1)
}

func TestStateAheadOfTheLogIsClamped(t *testing.T) {
	r := newRig(t, 1)
	o := r.options("C", server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit}, nil)
	// the state of a consumer that was given message 7 and 9, of a log that now ends at 2
	m := newMachine(newSettings("S", "C", o.Config, 0, 0), 1)
	m.led = newLedger(1)
	m.w = &logWorld{Cursor: r.stream.log.NewCursor(10, nil), log: r.stream.log, bus: r.bus, account: account}
	for _, seq := range []uint64{1, 7, 9} {
		m.led.add(seq, 1, never)
	}
	if err := o.State.Checkpoint(m.checkpoint(nil), nil); err != nil {
		t.Fatal(err)
	}
	r.subscribe("inbox")
	r.put("a.b", "1")
	r.put("a.b", "2")
	c := r.start(o)
	if s := c.Stats(); !s.Clamped || s.AckPending != 1 {
		t.Errorf("stats %+v", s)
	}
	c.Pull([]byte("inbox"), nil, nil)
	r.put("a.b", "3")
	if g := r.wait(1)[0]; string(g.Msg.Data) != "3" {
		t.Errorf("after the clamp: %s", show([]bustest.Received{g}))
	}
}

func TestStopAnswersWhoeverWaits(t *testing.T) {
	r := newRig(t, 2)
	c := r.consumer("C", server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit})
	r.subscribe("inbox")
	c.Pull([]byte("inbox"), nil, []byte(`{"batch":7,"expires":60000000000}`))
	c.Stop(409, jsapi.StatusConsumerDeleted)
	c.Pull([]byte("inbox"), nil, nil)
	for _, g := range r.wait(2) {
		if string(g.Msg.Header) != "NATS/1.0 409 Consumer Deleted\r\n\r\n" {
			t.Errorf("header %q", g.Msg.Header)
		}
	}
}

func TestAPILevel(t *testing.T) {
	r := newRig(t, 1)
	c := r.consumer("C", server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit})
	r.subscribe("inbox")
	c.Pull([]byte("inbox"), []byte("NATS/1.0\r\nNats-Required-Api-Level: 99\r\n\r\n"), nil)
	if g := r.wait(1)[0]; !bytes.HasPrefix(g.Msg.Header, []byte("NATS/1.0 412 Required Api Level")) {
		t.Errorf("header %q", g.Msg.Header)
	}
}

func TestPushFollowsInterest(t *testing.T) {
	r := newRig(t, 2)
	c := r.consumer("C", server.ConsumerConfig{Durable: "C", DeliverSubject: "deliver", AckPolicy: server.AckExplicit})
	r.put("a.b", "1")
	if i := c.Info(); i.PushBound || i.NumPending != 1 {
		t.Errorf("nobody listens: %+v", i)
	}
	r.subscribe("deliver")
	r.wait(1)
	if i := c.Info(); !i.PushBound || i.NumPending != 0 {
		t.Errorf("somebody listens: %+v", i)
	}
	r.client.Unsubscribe("deliver", 0)
	eventually(t, "the consumer notices", func() bool { return !c.Info().PushBound })
	r.put("a.b", "2")
	if i := c.Info(); i.NumPending != 1 {
		t.Errorf("nobody listens any more: %+v", i)
	}
	r.subscribe("deliver")
	r.wait(1)
}

// TestOrderedPush is what a client's ordered consumer does: no acks, flow control, every sequence in its place.
func TestOrderedPush(t *testing.T) {
	r := newRig(t, 2)
	const n = 20_000
	r.subscribe("deliver")
	r.fill(n, 200)
	c := r.consumer("C", server.ConsumerConfig{
		DeliverSubject: "deliver", FlowControl: true, Heartbeat: 5 * time.Second, MaxDeliver: 1, MemoryStorage: true,
	})
	next, answers := uint64(1), 0
	for next <= n {
		for _, g := range r.wait(1) {
			if len(g.Msg.Reply) > 0 && bytes.HasPrefix(g.Msg.Reply, []byte("$JS.FC.S.C.")) {
				answers++
				c.FlowControlReply(g.Msg.Reply[len("$JS.FC.S.C."):])
				continue
			}
			id := ackID(t, g.Msg.Reply)
			if id.StreamSeq != next || id.ConsumerSeq != next || id.Pending != n-next {
				t.Fatalf("got %+v, want sequence %d", id, next)
			}
			next++
		}
	}
	if answers == 0 {
		t.Error("there was no flow control")
	}
}

func TestInactiveIsToldOnce(t *testing.T) {
	r := newRig(t, 1)
	o := r.options("E", server.ConsumerConfig{Name: "E", AckPolicy: server.AckNone, InactiveThreshold: time.Millisecond}, nil)
	var told atomic.Int32
	o.Inactive = func() { told.Add(1) }
	r.start(o)
	eventually(t, "inactive", func() bool { return told.Load() > 0 })
	time.Sleep(20 * time.Millisecond)
	if n := told.Load(); n != 1 {
		t.Errorf("told %d times", n)
	}
}

func TestAFullReceiverHoldsDeliveriesButNotAcks(t *testing.T) {
	r := newRig(t, 1)
	c := r.consumer("C", server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit, MaxAckPending: -1})
	r.fill(3*deliverBatch, 10)
	r.subscribe("inbox")
	r.subscribe("confirm")
	stall := make(chan struct{})
	r.sink.Stall(stall)
	c.Pull([]byte("inbox"), nil, fmt.Appendf(nil, `{"batch":%d,"expires":60000000000}`, 3*deliverBatch))
	got := r.wait(deliverBatch)
	if len(got) != deliverBatch {
		t.Fatalf("%d messages came although the receiver is full", len(got))
	}
	r.sink.Stall(nil)
	c.Ack(ackID(t, got[0].Msg.Reply), nil, []byte("confirm"))
	if g := r.wait(1); len(g) != 1 || g[0].SID != "confirm" {
		t.Fatalf("while deliveries are held: %s", show(g))
	}
	close(stall)
	for n := deliverBatch; n < 3*deliverBatch; {
		n += len(r.wait(1))
	}
}

func TestAcksAreRefusedWhenTheStoreHasStopped(t *testing.T) {
	r := newRig(t, 1)
	other, err := storage.Open(context.Background(), storage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	state, err := other.CreateStateLog(0, "C", false)
	if err != nil {
		t.Fatal(err)
	}
	c := r.start(r.options("C", server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit}, state))
	r.subscribe("inbox")
	r.subscribe("confirm")
	r.put("a.b", "1")
	c.Pull([]byte("inbox"), nil, nil)
	id := ackID(t, r.wait(1)[0].Msg.Reply)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	c.Ack(id, nil, []byte("confirm"))
	if g := r.wait(1)[0]; g.SID != "confirm" || !bytes.HasPrefix(g.Msg.Header, []byte("NATS/1.0 503")) {
		t.Errorf("an ack that cannot be kept: %s", show([]bustest.Received{g}))
	}
	if s := c.Stats(); !errors.Is(s.StoreFault, storage.ErrStopped) {
		t.Errorf("fault %v", s.StoreFault)
	}
}

// TestFairness: a consumer with a large backlog lets another one have its turn.
func TestFairness(t *testing.T) {
	r := newRig(t, 1)
	big := r.consumer("BIG", server.ConsumerConfig{Durable: "BIG", AckPolicy: server.AckNone})
	small := r.consumer("SMALL", server.ConsumerConfig{Durable: "SMALL", AckPolicy: server.AckNone})
	const n = 50_000
	r.fill(n, 10)
	r.subscribe("big")
	r.subscribe("small")
	big.Pull([]byte("big"), nil, fmt.Appendf(nil, `{"batch":%d,"expires":60000000000}`, n))
	r.wait(1)
	small.Pull([]byte("small"), nil, nil)
	for seen := 0; ; {
		for _, g := range r.wait(1) {
			if g.SID == "small" {
				return
			}
			if seen++; seen > n-2*deliverBatch {
				t.Fatal("the small consumer had to wait for the big one")
			}
		}
	}
}

func TestMailboxAsksSendersToPause(t *testing.T) {
	var b mailbox
	var stall <-chan struct{}
	for i := range mailLimit {
		if stall != nil {
			t.Fatalf("asked to pause after %d letters", i)
		}
		stall = b.put(letter{kind: mailPull, reply: []byte("r")})
	}
	if stall == nil {
		t.Fatal("not asked to pause")
	}
	l := b.take()
	if len(l.list) != mailLimit {
		t.Errorf("%d letters", len(l.list))
	}
	select {
	case <-stall:
	default:
		t.Error("not told to go on")
	}
	l.free()
	if b.take() != nil {
		t.Error("something is left")
	}
}

// worker of TestManyWorkers: pulls, acknowledges in all kinds of ways, and goes away in the middle now and then.
type testWorker struct {
	r     *rig
	c     *Consumer
	inbox string
	s     bus.Session
	sink  *bustest.Sink
	done  *sync.Map // stream sequence -> how often it was confirmed
	rnd   *rand.Rand
}

func (w *testWorker) run(ctx context.Context) {
	for ctx.Err() == nil {
		if w.rnd.IntN(20) == 0 { // gone, with a request open
			w.s.Unsubscribe("in", 0)
			if _, err := w.s.Subscribe("in", w.inbox, ""); err != nil {
				w.r.t.Error(err)
				return
			}
		}
		stall := w.c.Pull([]byte(w.inbox), nil,
			fmt.Appendf(nil, `{"batch":%d,"expires":20000000}`, 1+w.rnd.IntN(50)))
		if stall != nil {
			<-stall
		}
		wait, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
		got, _ := w.sink.Wait(wait, 1)
		cancel()
		for _, g := range got {
			w.take(&g)
		}
	}
}

func (w *testWorker) take(g *bustest.Received) {
	a, ok := jsapi.ParseAckSubject(g.Msg.Reply)
	if !ok {
		return // a status
	}
	id := AckID{a.Delivered, a.StreamSeq, a.ConsumerSeq, a.Time, a.Pending}
	switch w.rnd.IntN(10) {
	case 0:
		w.c.Ack(id, []byte("-NAK"), nil)
	case 1: // lost
	case 2:
		w.c.Ack(id, []byte("+WPI"), nil)
	default:
		n, _ := w.done.LoadOrStore(id.StreamSeq, new(atomic.Int64))
		if c, ok := n.(*atomic.Int64); ok {
			c.Add(1)
		}
		w.c.Ack(id, nil, nil)
	}
}

func TestManyWorkers(t *testing.T) {
	r := newRig(t, 3)
	acked := new(sync.Map)
	o := r.options("C", server.ConsumerConfig{
		Durable: "C", AckPolicy: server.AckExplicit, AckWait: 50 * time.Millisecond,
		MaxAckPending: 300,
	}, nil)
	o.Acked = func(seq uint64) { acked.Store(seq, true) }
	c := r.start(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := new(sync.Map)
	var wg sync.WaitGroup
	for i := range 6 {
		w := &testWorker{
			r: r, c: c, inbox: fmt.Sprintf("in%d", i), sink: new(bustest.Sink), done: done,
			rnd: rand.New(rand.NewPCG(uint64(i), 1)),
		}
		var err error
		if w.s, err = r.bus.Open(bus.KindClient, bus.Identity{Account: account}, w.sink); err != nil {
			t.Fatal(err)
		}
		defer w.s.Close()
		if _, err := w.s.Subscribe("in", w.inbox, ""); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() { w.run(ctx) })
	}
	const n = 3000
	for i := range n {
		r.put("a.b", fmt.Sprint(i))
	}
	eventually(t, "all is acknowledged", func() bool { return c.Info().AckFloor.Stream == n && c.Info().NumAckPending == 0 })
	cancel()
	wg.Wait()
	for seq := uint64(1); seq <= n; seq++ {
		if _, ok := done.Load(seq); !ok {
			t.Fatalf("message %d was counted as done and never acknowledged", seq)
		}
		if _, ok := acked.Load(seq); !ok {
			t.Fatalf("the stream was not told about message %d", seq)
		}
	}
}

// TestIdleConsumersHaveNoGoroutine: what waits, waits without one.
func TestIdleConsumersHaveNoGoroutine(t *testing.T) {
	r := newRig(t, 2)
	r.subscribe("inbox")
	before := runtime.NumGoroutine()
	for i := range 300 {
		name := fmt.Sprintf("C%d", i)
		c := r.consumer(name, server.ConsumerConfig{Durable: name, AckPolicy: server.AckExplicit})
		c.Pull([]byte("inbox"), nil, []byte(`{"batch":1,"expires":60000000000}`))
	}
	eventually(t, "all wait", func() bool {
		for _, c := range *r.wakes.Load() {
			if c.Stats().Waiting != 1 || c.run.state.Load() != stateIdle {
				return false
			}
		}
		return true
	})
	if n := runtime.NumGoroutine(); n > before+5 {
		t.Errorf("%d goroutines more", n-before)
	}
}
