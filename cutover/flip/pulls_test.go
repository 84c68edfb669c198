package flip_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestPullsAtRollback: a client that works slowly has two pull requests waiting when its stream goes back to the servers.
// It asks for no more than it has room for afterwards: what has no room is dropped by it, and comes after its ack wait.
func TestPullsAtRollback(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var dropped atomic.Int64
	nc := r.connect(r.gw.ClientURL(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrSlowConsumer) {
			dropped.Add(1)
		}
	}))
	js, err := jetstream.New(nc)
	check(t, err)
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	check(t, err)
	c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "W", AckWait: 30 * time.Second})
	check(t, err)
	check(t, r.engine.Watch(ctx, orders, "test"))
	_, err = r.engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 3})
	check(t, err)

	const room = 10
	it, err := c.Messages(jetstream.PullMaxMessages(room), jetstream.PullExpiry(20*time.Second))
	check(t, err)
	defer it.Stop()
	published := 0
	publish := func(n int) {
		for range n {
			_, err := js.Publish(ctx, "orders.x", fmt.Append(nil, published))
			check(t, err)
			published++
		}
	}
	taken := 0
	take := func(n int) {
		for range n {
			m, err := it.Next(jetstream.NextMaxWait(10 * time.Second))
			check(t, err)
			if string(m.Data()) != fmt.Sprint(taken) {
				t.Fatalf("message %s, not %d", m.Data(), taken)
			}
			check(t, m.DoubleAck(ctx))
			taken++
		}
	}
	publish(room/2 + 1)
	take(room/2 + 1) // behind the last of them it asks for as many more
	go func() { _, _ = it.Next(jetstream.NextMaxWait(100 * time.Millisecond)) }()
	time.Sleep(300 * time.Millisecond)

	_, err = r.engine.Rollback(ctx, orders, flip.MoveOptions{By: "test", Retries: 3})
	check(t, err)
	_, err = it.Next(jetstream.NextMaxWait(200 * time.Millisecond)) // it hears what became of its requests
	if !errors.Is(err, nats.ErrTimeout) {
		t.Fatal(err)
	}
	publish(4 * room)
	time.Sleep(300 * time.Millisecond)
	take(4 * room)
	if n := dropped.Load(); n > 0 {
		t.Errorf("the client has dropped messages, %d times", n)
	}
}

// TestPullsThatShareAnInbox: two requests of one inbox are served in turn by the servers when their stream comes here. What
// is left of them is served from here, once: the client hears as much of their ends as it would have without a move.
func TestPullsThatShareAnInbox(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nc := r.connect(r.gw.ClientURL())
	js, err := jetstream.New(nc)
	check(t, err)
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	check(t, err)
	_, err = s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "W", AckWait: 30 * time.Second})
	check(t, err)
	check(t, r.engine.Watch(ctx, orders, "test"))
	inbox := nats.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	check(t, err)
	const batch, published = 4, 5
	const lasts = 3 * time.Second
	for range 2 {
		check(t, nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.ORDERS.W", inbox, fmt.Appendf(nil, `{"batch":%d,"expires":%d}`, batch, lasts)))
	}
	check(t, nc.Flush())
	for range published {
		_, err := js.Publish(ctx, "orders.x", nil)
		check(t, err)
	}
	_, err = r.engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 3})
	check(t, err)
	_, err = js.Publish(ctx, "orders.x", nil)
	check(t, err)
	messages, left := 0, 0
	for end := time.Now().Add(lasts + 2*time.Second); ; {
		m, err := sub.NextMsg(time.Until(end))
		if errors.Is(err, nats.ErrTimeout) {
			break
		}
		check(t, err)
		if len(m.Reply) > 0 {
			messages++
			continue
		}
		n, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
		check(t, err)
		left += n
	}
	if messages != published+1 || messages+left != 2*batch {
		t.Errorf("%d messages, and %d less than were asked for; %d were", messages, left, 2*batch)
	}
}
