package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// queueLedger is what the workers of a work queue know for certain.
type queueLedger struct {
	mu        sync.Mutex
	delivered map[uint64]int
	confirmed map[uint64]time.Time // when the answer to an ack came in
	again     []uint64             // delivered well after that
}

// arrived is called as soon as a delivery is off the socket.
func (l *queueLedger) arrived(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delivered[seq]++
	// A delivery that was on its way when the answer came is no mistake: its lease had ended before.
	if at, ok := l.confirmed[seq]; ok && time.Since(at) > 50*time.Millisecond {
		l.again = append(l.again, seq)
	}
}

func (l *queueLedger) ackConfirmed(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.confirmed[seq]; !ok {
		l.confirmed[seq] = time.Now()
	}
}

// work pulls from consumer C of stream Q until ctx ends: some messages are given back, some forgotten, the others
// acknowledged with a confirmation.
func (l *queueLedger) work(ctx context.Context, url string) {
	nc, err := nats.Connect(url, nats.NoReconnect())
	if err != nil {
		return // it was killed just now
	}
	defer nc.Close()
	inbox, todo := nats.NewInbox(), make(chan *nats.Msg, 10_000)
	_, err = nc.Subscribe(inbox, func(m *nats.Msg) {
		if md, err := m.Metadata(); err == nil {
			l.arrived(md.Sequence.Stream)
			todo <- m
		}
	})
	for err == nil && ctx.Err() == nil {
		err = nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.Q.C", inbox, []byte(`{"batch":20,"expires":300000000}`))
		for deadline := time.After(20 * time.Millisecond); deadline != nil; {
			select {
			case m := <-todo:
				l.settle(nc, m)
			case <-deadline:
				deadline = nil
			}
		}
	}
}

func (l *queueLedger) settle(nc *nats.Conn, m *nats.Msg) {
	switch rand.IntN(10) {
	case 0:
		_ = m.Nak() // its loss is a lease that ends
	case 1: // forgotten
	default:
		md, err := m.Metadata()
		if err != nil {
			return
		}
		if _, err := nc.Request(m.Reply, []byte("+ACK"), 400*time.Millisecond); err == nil {
			l.ackConfirmed(md.Sequence.Stream)
		}
	}
}

// TestBreakWorkQueueAccounts kills a work queue's server under workers that give back, forget and acknowledge. Nothing
// whose ack was confirmed comes again or stays, everything else is pending, and the counts add up.
func TestBreakWorkQueueAccounts(t *testing.T) {
	p := startGateway(t, t.TempDir())
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "Q", Subjects: []string{"q.>"}, Retention: jetstream.WorkQueuePolicy,
	})
	noErr(t, err)
	_, err = js.CreateConsumer(ctx, "Q", jetstream.ConsumerConfig{
		Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 500 * time.Millisecond, MaxAckPending: 200,
	})
	noErr(t, err)
	l := &queueLedger{delivered: map[uint64]int{}, confirmed: map[uint64]time.Time{}}
	for range 4 {
		js, ctx := jetStream(t, connect(t, p.URL))
		for i := range 300 {
			_, err := js.PublishAsync(fmt.Sprintf("q.%d", i), nil)
			noErr(t, err)
		}
		select {
		case <-js.PublishAsyncComplete():
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
		work, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() { l.work(work, p.URL) })
		}
		time.Sleep(time.Duration(150+rand.IntN(250)) * time.Millisecond)
		p.Kill()
		stop()
		wg.Wait()
		p = startGateway(t, p.dir)
	}
	l.settled(t, p)
}

// settled checks the books at the end.
func (l *queueLedger) settled(t *testing.T, p *process) {
	t.Helper()
	js, ctx := jetStream(t, connect(t, p.URL))
	s, err := js.Stream(ctx, "Q")
	noErr(t, err)
	c, err := js.Consumer(ctx, "Q", "C")
	noErr(t, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.confirmed) == 0 {
		t.Fatal("nothing was shown: no ack was confirmed")
	}
	if len(l.again) > 0 {
		t.Errorf("delivered after a confirmed ack: %v", l.again)
	}
	st, ci := s.CachedInfo().State, c.CachedInfo()
	if n := ci.NumPending + uint64(ci.NumAckPending); n != st.Msgs {
		t.Errorf("%d pending and %d unacknowledged, but %d messages in the stream", ci.NumPending, ci.NumAckPending, st.Msgs)
	}
	for seq := uint64(1); seq <= st.LastSeq; seq++ {
		_, err := s.GetMsg(ctx, seq)
		if _, acked := l.confirmed[seq]; acked && err == nil {
			t.Errorf("message %d is in the stream although its ack was confirmed", seq)
		}
		if l.delivered[seq] == 0 && err != nil {
			t.Errorf("message %d was never delivered and is gone: %v", seq, err)
		}
	}
}
