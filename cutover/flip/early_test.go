package flip_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestAskedBeforeTheWatch: what clients asked the servers for before the stream came under watch, and still wait for when
// it has come here, comes from here: pull requests with and without an end, what is pushed, ordered consumers, watchers.
func TestAskedBeforeTheWatch(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nc := r.connect(r.gw.ClientURL())
	js, err := jetstream.New(nc)
	check(t, err)
	old, err := nc.JetStream()
	check(t, err)
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	check(t, err)
	got := make(chan string, 1000)
	hear := func(name string) func(*nats.Msg) {
		return func(m *nats.Msg) { got <- fmt.Sprintf("%s %s%s", name, m.Header.Get("Status"), m.Data) }
	}
	_, err = s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "next", AckWait: time.Minute})
	check(t, err)
	_, err = js.Publish(ctx, "orders.first", nil)
	check(t, err)
	first, err := nc.Request("$JS.API.CONSUMER.MSG.NEXT.ORDERS.next", nil, 2*time.Second)
	check(t, err)
	inbox := nats.NewInbox()
	_, err = nc.Subscribe(inbox, hear("next"))
	check(t, err)
	check(t, nc.PublishRequest(first.Reply, inbox, []byte("+NXT")))
	for name, request := range map[string]string{
		"raw": "", "two": "2", "long": `{"batch":5,"expires":3600000000000}`, "endless": `{"batch":5}`,
		"beats": `{"batch":5,"expires":3600000000000,"idle_heartbeat":60000000000}`,
	} {
		_, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: name, DeliverPolicy: jetstream.DeliverNewPolicy})
		check(t, err)
		inbox := nats.NewInbox()
		_, err = nc.Subscribe(inbox, hear(name))
		check(t, err)
		check(t, nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.ORDERS."+name, inbox, []byte(request)))
	}
	_, err = old.Subscribe("orders.>", hear("push"), nats.DeliverNew())
	check(t, err)
	_, err = old.Subscribe("orders.>", hear("ordered"), nats.OrderedConsumer(), nats.DeliverNew())
	check(t, err)
	oc, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
	check(t, err)
	it, err := oc.Messages(jetstream.PullExpiry(10 * time.Minute))
	check(t, err)
	defer it.Stop()
	go func() {
		for {
			m, err := it.Next()
			if err != nil {
				return
			}
			got <- "pulled " + string(m.Data())
		}
	}()
	time.Sleep(200 * time.Millisecond)
	check(t, nc.Flush())

	check(t, r.engine.Watch(ctx, orders, "test"))
	_, err = r.engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 3})
	check(t, err)
	want := map[string]int{"raw": 1, "next": 1, "two": 2, "long": 3, "endless": 3, "beats": 3, "push": 3, "ordered": 3, "pulled": 3}
	for i := range 3 {
		_, err := js.Publish(ctx, "orders.x", fmt.Append(nil, "m", i))
		check(t, err)
	}
	have := map[string]int{}
	for quiet := false; !quiet; {
		select {
		case g := <-got:
			name, data, _ := strings.Cut(g, " ")
			if data != fmt.Sprint("m", have[name]) {
				t.Errorf("%s got %q behind %d messages", name, data, have[name])
			}
			have[name]++
		case <-time.After(2 * time.Second):
			quiet = true
		}
	}
	for name, n := range want {
		if have[name] != n {
			t.Errorf("%s got %d messages, not %d", name, have[name], n)
		}
	}
}

// TestAskedOnce: a pull request that waits while its stream comes here, goes back and comes again is served as often as
// it says, wherever the messages are published.
func TestAskedOnce(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nc := r.connect(r.gw.ClientURL())
	js, err := jetstream.New(nc)
	check(t, err)
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	check(t, err)
	check(t, r.engine.Watch(ctx, orders, "test"))
	const batch = 5
	got := map[string]*nats.Subscription{}
	for name, request := range map[string]string{
		"endless": `{"batch":5}`, "long": `{"batch":5,"expires":3600000000000}`, "none": `{"batch":5}`,
	} {
		policy := jetstream.AckExplicitPolicy
		if name == "none" {
			policy = jetstream.AckNonePolicy
		}
		_, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: name, AckPolicy: policy})
		check(t, err)
		inbox := nats.NewInbox()
		got[name], err = nc.SubscribeSync(inbox)
		check(t, err)
		check(t, nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.ORDERS."+name, inbox, []byte(request)))
	}
	check(t, nc.Flush())
	published := 0
	publish := func(n int) {
		for range n {
			_, err := js.Publish(ctx, "orders.x", fmt.Append(nil, "m", published))
			check(t, err)
			published++
		}
	}
	for _, move := range []func(context.Context, cutover.Scope, flip.MoveOptions) (*flip.Move, error){
		r.engine.Flip, r.engine.Rollback, r.engine.Flip, r.engine.Rollback,
	} {
		_, err := move(ctx, orders, flip.MoveOptions{By: "test", Retries: 3})
		check(t, err)
		publish(1)
	}
	publish(2 * batch)
	time.Sleep(time.Second)
	for name, sub := range got {
		for i := 0; ; i++ {
			m, err := sub.NextMsg(100 * time.Millisecond)
			if errors.Is(err, nats.ErrTimeout) {
				if i != batch {
					t.Errorf("%s got %d messages, not %d", name, i, batch)
				}
				break
			}
			check(t, err)
			if want := fmt.Sprint("m", i); string(m.Data) != want {
				t.Errorf("%s got %q %v, not %s", name, m.Data, m.Header, want)
			}
		}
	}
}
