package flip_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/flip"
)

var orders = cutover.Scope{Account: "$G", Stream: "ORDERS"}

// load publishes and consumes by way of the gateway, and keeps account.
type load struct {
	t    *testing.T
	js   jetstream.JetStream
	stop chan struct{}
	wg   sync.WaitGroup

	mu        sync.Mutex
	acked     map[uint64]string // by sequence
	processed map[string]int    // by payload
	slowest   time.Duration
	failures  atomic.Int64
}

func (r *rig) load(workers int) *load {
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(r.t, err)
	l := &load{t: r.t, js: js, stop: make(chan struct{}), acked: map[uint64]string{}, processed: map[string]int{}}
	for w := range workers {
		l.wg.Go(func() { l.publish(w) })
	}
	return l
}

func (l *load) publish(w int) {
	for i := 0; ; i++ {
		select {
		case <-l.stop:
			return
		default:
		}
		id := fmt.Sprintf("%d-%d", w, i)
		since := time.Now()
		ack, err := l.js.Publish(l.t.Context(), fmt.Sprintf("orders.%d", w), []byte(id), jetstream.WithMsgID(id))
		if err != nil {
			l.failures.Add(1)
			l.t.Errorf("publish of %s: %v", id, err)
			return
		}
		l.mu.Lock()
		if before, twice := l.acked[ack.Sequence]; twice {
			l.t.Errorf("sequence %d was given to %s and to %s", ack.Sequence, before, id)
		}
		l.acked[ack.Sequence] = id
		l.slowest = max(l.slowest, time.Since(since))
		l.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

// consume takes messages of a durable consumer until nothing more comes for a while.
func (l *load) consume(ctx context.Context, name string) {
	c, err := l.js.Consumer(ctx, "ORDERS", name)
	check(l.t, err)
	it, err := c.Messages(jetstream.PullMaxMessages(50), jetstream.PullExpiry(2*time.Second))
	check(l.t, err)
	l.wg.Go(func() {
		<-ctx.Done()
		it.Stop()
	})
	l.wg.Go(func() {
		for {
			m, err := it.Next()
			if err != nil {
				if ctx.Err() == nil {
					l.t.Errorf("the consumer ended: %v", err)
				}
				return
			}
			l.mu.Lock()
			l.processed[string(m.Data())]++
			l.mu.Unlock()
			if err := m.DoubleAck(ctx); err != nil && ctx.Err() == nil {
				l.t.Errorf("ack of %s: %v", m.Data(), err)
			}
		}
	})
}

// TestThereAndBack moves a stream to the gateway, back, and again, while clients publish and consume: nothing is lost,
// nothing comes twice, no client sees an error.
func TestThereAndBack(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nc := r.connect(r.gw.ClientURL())
	js, err := nc.JetStream()
	check(t, err)
	_, err = js.AddStream(&nats.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Duplicates: time.Minute})
	check(t, err)
	_, err = js.AddConsumer("ORDERS", &nats.ConsumerConfig{Durable: "W", AckPolicy: nats.AckExplicitPolicy, AckWait: 20 * time.Second})
	check(t, err)
	check(t, r.engine.Watch(ctx, orders, "test"))

	l := r.load(4)
	consuming, done := context.WithCancel(ctx)
	l.consume(consuming, "W")
	pause := func() { time.Sleep(700 * time.Millisecond) }
	pause()
	for round := range 2 {
		m, err := r.engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 3})
		check(t, err)
		t.Logf("flip %d: %+v", round, m)
		if m.Duplicates != 0 {
			t.Errorf("may deliver %d messages twice: %v", m.Duplicates, m.Inexact)
		}
		pause()
		m, err = r.engine.Rollback(ctx, orders, flip.MoveOptions{By: "test", Retries: 3})
		check(t, err)
		t.Logf("rollback %d: %+v", round, m)
		pause()
	}
	m, err := r.engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 3})
	check(t, err)
	t.Logf("last flip: %+v", m)
	pause()
	close(l.stop)
	l.finish()
	done()
	l.wg.Wait()
	l.account()
}

// finish waits until all is processed, or nothing was for 10 s: a slow disk takes its time for each ack.
func (l *load) finish() {
	before := -1
	for since := time.Now(); time.Since(since) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
		l.mu.Lock()
		got, all := len(l.processed), len(l.acked)
		l.mu.Unlock()
		if got == all {
			return
		}
		if got > before {
			before, since = got, time.Now()
		}
	}
}

// account compares what was published with what came.
func (l *load) account() {
	lost, twice := 0, 0
	for _, id := range l.acked {
		switch n := l.processed[id]; {
		case n == 0:
			lost++
		case n > 1:
			twice++
		}
	}
	l.t.Logf("published %d, processed %d, lost %d, twice %d, slowest publish %v", len(l.acked), len(l.processed), lost, twice, l.slowest)
	if lost > 0 || twice > 0 || len(l.processed) != len(l.acked) {
		l.t.Errorf("lost %d, twice %d, %d processed of %d", lost, twice, len(l.processed), len(l.acked))
	}
	for seq := uint64(1); seq <= uint64(len(l.acked)); seq++ {
		if _, ok := l.acked[seq]; !ok {
			l.t.Errorf("sequence %d was given to nobody", seq)
			return
		}
	}
}
