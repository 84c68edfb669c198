package flip_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/flip"
)

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

// TestConfigFollows changes a stream and its consumers while it is served here: the servers have all of it after a
// rollback, and the messages on its new subject.
func TestConfigFollows(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(t, err)
	there, err := jetstream.New(r.conn)
	check(t, err)
	cfg := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}
	s, err := js.CreateStream(ctx, cfg)
	check(t, err)
	for _, name := range []string{"KEPT", "DELETED"} {
		_, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy})
		check(t, err)
	}
	_, err = js.Publish(ctx, "orders.1", []byte("1"))
	check(t, err)
	check(t, r.engine.Watch(ctx, orders, "test"))
	_, err = r.engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 5})
	check(t, err)

	cfg.Subjects, cfg.MaxMsgs = []string{"orders.>", "returns.>"}, 1000
	_, err = js.UpdateStream(ctx, cfg)
	check(t, err)
	_, err = s.UpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "KEPT", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 7 * time.Second, Description: "another one",
	})
	check(t, err)
	check(t, s.DeleteConsumer(ctx, "DELETED"))
	made, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "MADE", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "returns.>",
	})
	check(t, err)
	until(t, "the new subject", func() bool {
		_, err := js.Publish(ctx, "returns.1", []byte("2"))
		return err == nil
	})
	m, err := made.Next(jetstream.FetchMaxWait(5 * time.Second))
	check(t, err)
	check(t, m.DoubleAck(ctx))

	plan, err := r.engine.PlanRollback(ctx, orders)
	check(t, err)
	if all := strings.Join(plan.Steps, "\n"); !strings.Contains(all, "configuration") {
		t.Errorf("the plan does not speak of the configuration: %s", all)
	}
	_, err = r.engine.Rollback(ctx, orders, flip.MoveOptions{By: "test", Retries: 5})
	check(t, err)
	s, err = there.Stream(ctx, "ORDERS")
	check(t, err)
	if got := s.CachedInfo(); fmt.Sprint(got.Config.Subjects) != "[orders.> returns.>]" || got.Config.MaxMsgs != 1000 || got.State.LastSeq < 2 {
		t.Errorf("the servers have %+v, %+v", got.Config, got.State)
	}
	kept, err := s.Consumer(ctx, "KEPT")
	check(t, err)
	if got := kept.CachedInfo().Config; got.AckWait != 7*time.Second || got.Description != "another one" {
		t.Errorf("KEPT is %+v", got)
	}
	got, err := s.Consumer(ctx, "MADE")
	check(t, err)
	if i := got.CachedInfo(); i.Config.DeliverPolicy != jetstream.DeliverAllPolicy || i.NumAckPending != 0 || i.AckFloor.Stream < 2 {
		t.Errorf("MADE is %+v", i)
	}
	if _, err := s.Consumer(ctx, "DELETED"); err == nil {
		t.Error("DELETED is there")
	}
	_, err = js.CreateOrUpdateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{ // as programs do when they start
		Durable: "MADE", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "returns.>",
	})
	check(t, err)
}

// TestNothingTwiceBehindAnAck gives a stream back while the servers count acks of their own as outstanding that were
// confirmed here, as after a kill at any point: with a backlog, holes in what is acknowledged, and clients' pulls still
// with the servers.
func TestNothingTwiceBehindAnAck(t *testing.T) {
	for _, retention := range []jetstream.RetentionPolicy{jetstream.LimitsPolicy, jetstream.WorkQueuePolicy} {
		t.Run(retention.String(), func(t *testing.T) { nothingTwice(t, retention) })
	}
}

func nothingTwice(t *testing.T, retention jetstream.RetentionPolicy) {
	t.Helper()
	r := newRig(t)
	ctx := t.Context()
	js, err := jetstream.New(r.connect(r.gw.ClientURL(), nats.Name("client")))
	check(t, err)
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Retention: retention})
	check(t, err)
	c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "W", AckWait: time.Minute, AckPolicy: jetstream.AckExplicitPolicy})
	check(t, err)
	check(t, r.engine.Watch(ctx, orders, "test"))
	const n = 600
	publish := func(from, to int) {
		for i := from; i < to; i++ {
			_, err := js.Publish(ctx, "orders.x", []byte(fmt.Sprint(i)))
			check(t, err)
		}
	}
	confirmed, held := map[string]bool{}, 0
	work := func(most int) {
		b, err := c.FetchNoWait(most)
		check(t, err)
		i := 0
		for m := range b.Messages() {
			if confirmed[string(m.Data())] {
				md, _ := m.Metadata()
				t.Errorf("%s came again behind its ack: %+v", m.Data(), md)
			}
			if i++; i%10 == 0 { // in a client's hands, and never acknowledged
				held++
				continue
			}
			check(t, m.DoubleAck(ctx))
			confirmed[string(m.Data())] = true
		}
	}
	publish(0, n/3)
	work(n / 6)
	for round := range 3 {
		_, err = r.engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 5})
		check(t, err)
		publish(n/3+round*50, n/3+(round+1)*50)
		work(80)
		r.engine.Close() // as a kill does: what only RAM has is gone
		r.open()
		work(80)
		_, err = r.engine.Rollback(ctx, orders, flip.MoveOptions{By: "test", Retries: 5})
		check(t, err)
		up, err := r.conn.JetStream()
		check(t, err)
		info, err := up.ConsumerInfo("ORDERS", "W")
		check(t, err)
		if info.NumAckPending != held {
			t.Errorf("round %d: %d outstanding upstream, clients hold %d", round, info.NumAckPending, held)
		}
		work(30)
	}
	work(n)
	st, err := s.Info(ctx)
	check(t, err)
	if want := uint64(n/3 + 150 - len(confirmed)); retention == jetstream.WorkQueuePolicy && st.State.Msgs != want {
		t.Errorf("%d messages left, want %d", st.State.Msgs, want)
	}
}
