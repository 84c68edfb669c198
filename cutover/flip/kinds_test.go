package flip_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// shuttle moves a stream there and back until ctx ends, and once more to the gateway. It returns the number of moves.
func (r *rig) shuttle(ctx context.Context, name cutover.Scope, pause time.Duration) (moves int) {
	here := false
	for ; ctx.Err() == nil || !here; moves++ {
		move := r.engine.Flip
		if here {
			move = r.engine.Rollback
		}
		since := time.Now()
		m, err := move(r.t.Context(), name, flip.MoveOptions{By: "test", Retries: 5})
		r.t.Logf("%s move %d done at %s: %+v", since.Format("05.000"), moves, time.Now().Format("05.000"), m)
		if err != nil {
			r.t.Errorf("move %d: %v", moves, err)
			return moves
		}
		if m.Duplicates > 0 {
			r.t.Errorf("move %d: may deliver %d messages twice: %v", moves, m.Duplicates, m.Inexact)
		}
		here = !here
		time.Sleep(pause)
	}
	return moves
}

// TestCounters has clients count in a key-value bucket by compare-and-swap while its stream moves.
func TestCounters(t *testing.T) {
	r := newRig(t)
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(t, err)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "C", History: 3})
	check(t, err)
	_, err = kv.PutString(t.Context(), "n", "0")
	check(t, err)
	name := cutover.Scope{Account: "$G", Stream: "KV_C"}
	check(t, r.engine.Watch(t.Context(), name, "test"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var added atomic.Int64
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				e, err := kv.Get(t.Context(), "n")
				if err != nil {
					t.Error(err)
					return
				}
				n, err := strconv.Atoi(string(e.Value()))
				check(t, err)
				_, err = kv.Update(t.Context(), "n", []byte(strconv.Itoa(n+1)), e.Revision())
				switch {
				case err == nil:
					added.Add(1)
				case !jetstreamConflict(err):
					t.Error(err)
					return
				}
			}
		})
	}
	moves := r.shuttle(ctx, name, 300*time.Millisecond)
	wg.Wait()
	e, err := kv.Get(t.Context(), "n")
	check(t, err)
	t.Logf("%d moves, %s counted, %d added", moves, e.Value(), added.Load())
	if string(e.Value()) != fmt.Sprint(added.Load()) || moves < 3 {
		t.Errorf("%s counted, %d added, %d moves", e.Value(), added.Load(), moves)
	}
}

func jetstreamConflict(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// TestOrdered has an ordered consumer read a stream that moves: everything, once, in order.
func TestOrdered(t *testing.T) {
	r := newRig(t)
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(t, err)
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	check(t, err)
	check(t, r.engine.Watch(t.Context(), orders, "test"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	// The older client's ordered consumer is pushed to; the newer one's pulls.
	old, err := r.connect(r.gw.ClientURL()).JetStream()
	check(t, err)
	var pushed, pulled atomic.Uint64
	sub, err := old.Subscribe("orders.>", func(m *nats.Msg) {
		md, err := m.Metadata()
		if err != nil || !pushed.CompareAndSwap(md.Sequence.Stream-1, md.Sequence.Stream) {
			t.Errorf("pushed %d behind %d: %v", md.Sequence.Stream, pushed.Load(), err)
		}
	}, nats.OrderedConsumer())
	check(t, err)
	c, err := s.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	check(t, err)
	cc, err := c.Consume(func(m jetstream.Msg) {
		md, err := m.Metadata()
		if err != nil || !pulled.CompareAndSwap(md.Sequence.Stream-1, md.Sequence.Stream) {
			t.Errorf("pulled %d behind %d: %v", md.Sequence.Stream, pulled.Load(), err)
		}
	})
	check(t, err)
	var last atomic.Uint64
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			ack, err := js.Publish(t.Context(), "orders.x", nil)
			if err != nil {
				t.Error(err)
				return
			}
			last.Store(ack.Sequence)
		}
	})
	moves := r.shuttle(ctx, orders, 300*time.Millisecond)
	wg.Wait()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if pushed.Load() >= last.Load() && pulled.Load() >= last.Load() {
			break
		}
	}
	t.Logf("%d moves, %d published, %d pushed, %d pulled", moves, last.Load(), pushed.Load(), pulled.Load())
	if pushed.Load() != last.Load() || pulled.Load() != last.Load() {
		t.Errorf("%d published, %d pushed, %d pulled", last.Load(), pushed.Load(), pulled.Load())
	}
	cc.Stop()
	check(t, sub.Unsubscribe())
}

// TestWorkQueue moves a work queue whose workers refuse every seventh message once.
func TestWorkQueue(t *testing.T) {
	r := newRig(t)
	nc := r.connect(r.gw.ClientURL())
	js, err := jetstream.New(nc)
	check(t, err)
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "JOBS", Subjects: []string{"jobs.>"}, Retention: jetstream.WorkQueuePolicy,
	})
	check(t, err)
	c, err := s.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "W", AckWait: 20 * time.Second})
	check(t, err)
	name := cutover.Scope{Account: "$G", Stream: "JOBS"}
	check(t, r.engine.Watch(t.Context(), name, "test"))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var mu sync.Mutex
	trace := map[string]string{}
	published, done, refused := map[string]bool{}, map[string]int{}, map[string]int{}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			id := strconv.Itoa(i)
			if _, err := js.Publish(t.Context(), "jobs.x", []byte(id)); err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			published[id] = true
			mu.Unlock()
			time.Sleep(time.Millisecond)
		}
	})
	cc, err := c.Consume(func(m jetstream.Msg) {
		id := string(m.Data())
		n, _ := strconv.Atoi(id)
		md, _ := m.Metadata()
		mu.Lock()
		trace[id] += fmt.Sprintf(" %s:seq %d/%d x%d", time.Now().Format("05.000"), md.Sequence.Stream, md.Sequence.Consumer, md.NumDelivered)
		again := refused[id] > 0
		if n%7 == 0 && !again {
			refused[id]++
			mu.Unlock()
			if err := m.Nak(); err != nil {
				t.Error(err)
			}
			return
		}
		done[id]++
		mu.Unlock()
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Error(err)
		}
		mu.Lock()
		trace[id] += fmt.Sprintf(" acked %s", time.Now().Format("05.000"))
		mu.Unlock()
	}, jetstream.PullMaxMessages(20))
	check(t, err)
	moves := r.shuttle(ctx, name, 400*time.Millisecond)
	wg.Wait()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		mu.Lock()
		all := len(done) == len(published)
		mu.Unlock()
		if all {
			break
		}
	}
	cc.Stop()
	mu.Lock()
	defer mu.Unlock()
	twice := 0
	for id, n := range done {
		if n > 1 {
			twice++
			t.Logf("%s:%s", id, trace[id])
		}
	}
	info, err := s.Info(t.Context())
	check(t, err)
	t.Logf("%d moves, %d published, %d done, %d twice, %d left", moves, len(published), len(done), twice, info.State.Msgs)
	if len(done) != len(published) || twice > 0 || info.State.Msgs != 0 {
		t.Errorf("%d published, %d done, %d twice, %d left", len(published), len(done), twice, info.State.Msgs)
	}
}

// TestObject puts and gets a large object while its stream moves.
func TestObject(t *testing.T) {
	r := newRig(t)
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(t, err)
	o, err := js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "O"})
	check(t, err)
	name := cutover.Scope{Account: "$G", Stream: "OBJ_O"}
	check(t, r.engine.Watch(t.Context(), name, "test"))
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	data := make([]byte, 8<<20)
	_, err = io.ReadFull(rand.Reader, data)
	check(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := o.PutBytes(t.Context(), "x", data); err != nil {
				t.Errorf("put %d: %v", i, err)
				return
			}
			got, err := o.GetBytes(t.Context(), "x")
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("get %d: %d bytes, %v", i, len(got), err)
				return
			}
		}
	})
	moves := r.shuttle(ctx, name, 200*time.Millisecond)
	wg.Wait()
	t.Logf("%d moves", moves)
}
