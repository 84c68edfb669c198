package flip_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestNewSubjectAtOnce: what a stream that is served from here stores since a moment ago is stored here, though the servers
// say nothing.
func TestNewSubjectAtOnce(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(t, err)
	cfg := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}
	_, err = js.CreateStream(ctx, cfg)
	check(t, err)
	check(t, r.engine.Watch(ctx, orders, "test"))
	_, err = r.engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 3})
	check(t, err)
	for i, more := range []string{"a.>", "b.>", "c.>", "d.>"} {
		cfg.Subjects = append(cfg.Subjects, more)
		_, err := js.UpdateStream(ctx, cfg)
		check(t, err)
		time.Sleep(20 * time.Millisecond)
		ack, err := js.Publish(ctx, more[:1]+".x", nil, jetstream.WithRetryAttempts(0))
		if err != nil || ack.Sequence != uint64(i)+1 {
			t.Errorf("%s: %+v, %v", more, ack, err)
		}
	}
}

// TestNewSubjectIsNoted: what a client publishes to a subject that it has just added is noted, though the servers have the
// say: it is not taken for what came around the gateway.
func TestNewSubjectIsNoted(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(t, err)
	cfg := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}
	_, err = js.CreateStream(ctx, cfg)
	check(t, err)
	check(t, r.engine.Watch(ctx, orders, "test"))
	list := []string{"a.>", "b.>", "c.>", "d.>", "e.>"}
	for _, more := range list {
		cfg.Subjects = append(cfg.Subjects, more)
		_, err := js.UpdateStream(ctx, cfg)
		check(t, err)
		_, err = js.Publish(ctx, more[:1]+".x", nil)
		check(t, err)
	}
	v, err := r.engine.View(orders)
	check(t, err)
	if n := v.Scope.Counts().Acknowledged; n != uint64(len(list)) {
		t.Errorf("%d of %d publishes were noted", n, len(list))
	}
}
