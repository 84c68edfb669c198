package flip_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestDeletedByAClient deletes a stream that is served from here, and makes another of its name: nothing of that reaches
// the servers' stream, a rollback is refused before anything is held, a restart takes it up as it is, and an emergency
// gives back what the servers have.
func TestDeletedByAClient(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("again=%t", again), func(t *testing.T) { deletedByAClient(t, again) })
	}
}

func deletedByAClient(t *testing.T, again bool) { //nolint:revive // one of its two cases
	t.Helper()
	r := newRig(t)
	ctx := t.Context()
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(t, err)
	there, err := jetstream.New(r.conn)
	check(t, err)
	cfg := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}
	_, err = js.CreateStream(ctx, cfg)
	check(t, err)
	for i := range 5 {
		_, err = js.Publish(ctx, "orders.old", fmt.Append(nil, i))
		check(t, err)
	}
	check(t, r.engine.Watch(ctx, orders, "test"))
	_, err = r.engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 5})
	check(t, err)

	check(t, js.DeleteStream(ctx, "ORDERS"))
	made := 0
	if again {
		made = 9 // more than the servers have: these must not be put behind the old ones
		cfg.MaxMsgs = 100
		_, err = js.CreateStream(ctx, cfg)
		check(t, err)
		for i := range made {
			_, err = js.Publish(ctx, "orders.new", fmt.Append(nil, i))
			check(t, err)
		}
	}
	look := func() {
		t.Helper()
		time.Sleep(1500 * time.Millisecond) // the chain, and what follows the configuration, had time
		s, err := there.Stream(ctx, "ORDERS")
		check(t, err)
		if i := s.CachedInfo(); i.State.LastSeq != 5 || i.Config.MaxMsgs == 100 {
			t.Errorf("the servers' stream: %+v %+v", i.State, i.Config)
		}
		bound, err := r.engine.RollbackBound(orders)
		check(t, err)
		if bound.Lossless || bound.Lost != uint64(made) || !strings.Contains(bound.Why, "--emergency") {
			t.Errorf("a rollback would cost %+v", bound)
		}
		_, err = r.engine.Rollback(ctx, orders, flip.MoveOptions{By: "test"})
		if !errors.Is(err, flip.ErrRefused) || !strings.Contains(err.Error(), "a client has deleted") {
			t.Errorf("a rollback: %v", err)
		}
		_, err = js.Publish(ctx, "orders.new", []byte("more"))
		if again {
			check(t, err)
			made++
		} else if err == nil {
			t.Error("a publish to a stream that was deleted was taken")
		}
	}
	look()
	r.engine.Close()
	r.open()
	look()

	m, err := r.engine.Rollback(ctx, orders, flip.MoveOptions{By: "test", Emergency: true})
	check(t, err)
	if m.Lost != uint64(made) || m.Last != 5 {
		t.Errorf("the emergency: %+v", m)
	}
	ack, err := js.Publish(ctx, "orders.old", []byte("back"))
	check(t, err)
	if ack.Sequence != 6 {
		t.Errorf("published as %d", ack.Sequence)
	}
	until(t, "another copy", func() bool {
		c, err := r.svc.Cutover().Stream("$G", "ORDERS")
		if err != nil {
			return false
		}
		last, _ := c.Progress()
		return last == 6
	})
	_, err = r.engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 5})
	check(t, err)
	_, err = r.engine.Rollback(ctx, orders, flip.MoveOptions{By: "test", Retries: 5})
	check(t, err)
}

// TestStartWithoutACopy starts where a copy was deleted, to be filled anew, and had not been made when the gateway ended.
func TestStartWithoutACopy(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(t, err)
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	check(t, err)
	_, err = js.Publish(ctx, "orders.1", []byte("1"))
	check(t, err)
	check(t, r.engine.Watch(ctx, orders, "test"))
	r.engine.Close()
	c, err := r.svc.Cutover().Stream("$G", "ORDERS")
	check(t, err)
	check(t, c.Delete(ctx))
	r.open()
	_, err = r.engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 20})
	check(t, err)
	ack, err := js.Publish(ctx, "orders.1", []byte("2"))
	check(t, err)
	if ack.Sequence != 2 {
		t.Errorf("published as %d", ack.Sequence)
	}
}
