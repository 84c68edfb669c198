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
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/reverse"
)

// TestDeletedOnTheServers: somebody deletes the servers' stream, around the gateway, while it is served from here. A
// rollback is refused, and says what to do; then it loses nothing.
func TestDeletedOnTheServers(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nc := r.connect(r.gw.ClientURL())
	js, err := nc.JetStream()
	check(t, err)
	there, err := r.conn.JetStream()
	check(t, err)
	_, err = js.AddStream(&nats.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	check(t, err)
	_, err = js.AddConsumer("ORDERS", &nats.ConsumerConfig{Durable: "W", AckPolicy: nats.AckExplicitPolicy})
	check(t, err)
	check(t, r.engine.Watch(ctx, orders, "test"))
	_, err = js.Publish("orders.x", []byte("1"))
	check(t, err)
	_, err = r.engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 3})
	check(t, err)
	_, err = js.Publish("orders.x", []byte("2"))
	check(t, err)
	time.Sleep(200 * time.Millisecond)
	check(t, there.DeleteStream("ORDERS"))
	_, err = js.Publish("orders.x", []byte("3"))
	check(t, err)
	time.Sleep(1500 * time.Millisecond)
	for _, emergency := range []bool{false, true} {
		since := time.Now()
		_, err := r.engine.Rollback(ctx, orders, flip.MoveOptions{By: "test", Emergency: emergency})
		if err == nil || !strings.Contains(err.Error(), "there again") || time.Since(since) > 5*time.Second {
			t.Errorf("emergency %v: %v after %v", emergency, err, time.Since(since))
		}
	}
	_, err = there.AddStream(&nats.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	check(t, err)
	until(t, "the way back is open", func() bool {
		b, err := r.engine.RollbackBound(orders)
		check(t, err)
		return b.Lossless && b.Lost == 0
	})
	_, err = r.engine.Rollback(ctx, orders, flip.MoveOptions{By: "test"})
	check(t, err)
	sub, err := js.PullSubscribe("orders.>", "W", nats.BindStream("ORDERS"))
	check(t, err)
	for i := range 3 {
		list, err := sub.Fetch(1, nats.MaxWait(5*time.Second))
		check(t, err)
		if string(list[0].Data) != fmt.Sprint(i+1) {
			t.Errorf("%q came, not %d", list[0].Data, i+1)
		}
	}
}

// TestResetInAFence: the copy of a stream is not filled anew while the stream is about to be served from it.
func TestResetInAFence(t *testing.T) {
	r := newRig(t)
	js, name := r.filled(jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}, 20)
	tried := false
	ask := func(at flip.Step) {
		if at != flip.FlipVerified {
			return
		}
		v, err := r.engine.View(name)
		check(t, err)
		c, ok := v.Capture.(*capture.Capturer)
		if !ok {
			t.Fatalf("%T", v.Capture)
		}
		err = r.engine.Renew(t.Context(), name, c.Reset, flip.MoveOptions{By: "test"})
		if tried = true; !errors.Is(err, flip.ErrBusy) || !errors.Is(err, flip.ErrRefused) {
			t.Errorf("a reset in a fence: %v", err)
		}
	}
	r.step.Store(&ask)
	_, err := r.engine.Flip(t.Context(), name, flip.MoveOptions{By: "test", Retries: 3})
	check(t, err)
	s, err := js.Stream(t.Context(), "S")
	check(t, err)
	if n := s.CachedInfo().State.Msgs; n != 20 || !tried {
		t.Errorf("%d messages of 20", n)
	}
	err = r.engine.Renew(t.Context(), name, func(context.Context) error { return errors.New("it was done") }, flip.MoveOptions{})
	if !errors.Is(err, flip.ErrRefused) {
		t.Errorf("a reset of what is served from here: %v", err)
	}
}

// TestConfiguredJustBefore: what a client has changed about a stream right before it is flipped stays so, on both sides.
func TestConfiguredJustBefore(t *testing.T) {
	r := newRig(t)
	r.reconcile = time.Minute
	cfg := jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Description: "one"}
	js, name := r.filled(cfg, 5)
	cfg.Description, cfg.MaxMsgSize = "two", 1000
	_, err := js.UpdateStream(t.Context(), cfg)
	check(t, err)
	_, err = r.engine.Flip(t.Context(), name, flip.MoveOptions{By: "test", Retries: 3})
	check(t, err)
	time.Sleep(1200 * time.Millisecond) // the servers follow
	there, err := jetstream.New(r.conn)
	check(t, err)
	for side, js := range map[string]jetstream.JetStream{"here": js, "there": there} {
		s, err := js.Stream(t.Context(), "S")
		check(t, err)
		if c := s.CachedInfo().Config; c.Description != "two" || c.MaxMsgSize != 1000 {
			t.Errorf("%s it is %q, at most %d", side, c.Description, c.MaxMsgSize)
		}
	}
}

// TestGivenOutComesAgain: what the servers have given out for a consumer that was served from here, and no client has got,
// comes again at once when it is theirs again, whatever was acknowledged before.
func TestGivenOutComesAgain(t *testing.T) {
	r := newRig(t)
	k := r.newRide(t, jetstream.StreamConfig{})
	k.watch()
	c := k.consumer(jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute})
	k.put(1, "a", "x")
	list, _ := k.fetch(c, 1)
	k.ack(list[0], 1)
	k.put(3, "a", "x")
	k.fetch(c, 3)
	v, err := r.engine.View(k.name)
	check(t, err)
	until(t, "the copy has them", func() bool { last, _ := v.Copy.Progress(); return last == 4 })
	ghost := reverse.NewSingle(r.own.NATS(), v.Copy, v.Upstream, k.name.Stream, "C", nil)
	info, err := ghost.Info(t.Context())
	check(t, err)
	at := &cutover.ConsumerCopy{Name: "C", Config: *info.Config}
	at.State.Delivered.Stream, at.State.AckFloor.Stream = 1, 1
	info.Delivered.Stream = 3 // 4 was given out since
	check(t, ghost.Return(t.Context(), at, info, []uint64{3, 4}))
	if _, seqs := k.fetch(c, 3); len(seqs) != 3 {
		t.Errorf("came %v of 2, 3 and 4", seqs)
	}
	k.nothing(c, 200*time.Millisecond)
}
