package relay_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/relay"
)

// TestExpire: a publish that no server answers any more (here one to a stream that gives no acknowledgements) does not stay in
// flight, which would keep its stream from being moved for as long as its client is connected.
func TestExpire(t *testing.T) {
	s := newSite(t, nil)
	js, err := connect(t, s.nats.ClientURL()).JetStream()
	check(t, err)
	_, err = js.AddStream(&nats.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, NoAck: true})
	check(t, err)
	scope := relay.NewScope(cutover.Scope{Account: "$G", Stream: "ORDERS"}, relay.Options{})
	table, err := relay.NewTable(1, []relay.Route{{Scope: scope, State: relay.Upstream, Subjects: []string{"orders.>"}}}, false)
	check(t, err)
	s.relay.Use(table)
	nc := connect(t, s.gw.ClientURL())
	began := time.Now()
	// settled is from when nothing waits any more, as seen a while later.
	settled := func() time.Duration { return scope.Settled(began.Add(3 * time.Second)).Sub(began) }
	for range 3 { // two with one inbox
		check(t, nc.PublishMsg(&nats.Msg{Subject: "orders.a", Reply: "inbox"}))
	}
	check(t, nc.PublishRequest("orders.a", "another", nil))
	check(t, nc.Flush())
	want := func(flying int64, lost uint64) {
		t.Helper()
		if c := scope.Counts(); c.InFlight != flying || c.Unanswered != lost || scope.InFlight() != flying {
			t.Fatalf("%+v, want %d in flight and %d unanswered", c, flying, lost)
		}
	}
	want(4, 0)
	s.relay.Expire(time.Now())
	want(4, 0)
	if at := settled(); at < -100*time.Millisecond || at > time.Second {
		t.Errorf("the oldest was sent after %v", at)
	}
	s.relay.Expire(time.Now().Add(10 * time.Second))
	want(0, 4)
	if at := settled(); at != 3*time.Second {
		t.Errorf("something was sent after %v", at)
	}
	check(t, nc.Publish("orders.a", nil))
	check(t, nc.PublishRequest("orders.a", "inbox", nil))
	check(t, nc.Flush())
	want(1, 4)
	nc.Close()
	for end := time.Now().Add(5 * time.Second); scope.InFlight() > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	want(0, 5)
}
