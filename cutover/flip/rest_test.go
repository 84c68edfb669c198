package flip_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestAtRest: another gateway may take over where nothing is served from here, and only there, also behind the end.
func TestAtRest(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	js, err := jetstream.New(r.connect(r.gw.ClientURL()))
	check(t, err)
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	check(t, err)
	_, err = s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "W", AckPolicy: jetstream.AckExplicitPolicy})
	check(t, err)
	for i := range 5 {
		_, err = js.Publish(ctx, "orders.1", fmt.Append(nil, i))
		check(t, err)
	}
	rests := func(when string, want bool) {
		t.Helper()
		if got := r.engine.AtRest(); got != want {
			t.Errorf("%s: at rest: %t", when, got)
		}
	}
	o := flip.MoveOptions{By: "test", Retries: 5}
	rests("nothing", true)
	check(t, r.engine.Watch(ctx, orders, "test"))
	rests("shadow", true)
	check(t, r.engine.Canary(ctx, orders, "W", nil, o))
	rests("a canary", false)
	check(t, r.engine.EndCanary(ctx, orders, "W", o))
	rests("without it", true)
	_, err = r.engine.Flip(ctx, orders, o)
	check(t, err)
	rests("flipped", false)
	r.engine.Close()
	rests("flipped, and ended", false)
	r.open()
	rests("flipped, and begun again", false)
	_, err = r.engine.Rollback(ctx, orders, o)
	check(t, err)
	until(t, "all is the servers'", func() bool { return r.engine.AtRest() })
	r.engine.Close()
	rests("ended", true)
	r.open()
}
