package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/face"
)

// TestCanaryEndsByItself: a consumer that is served from here is given back to the servers when a gate that it names fails for
// it twice: here because its workers are gone. Another consumer's trouble does not end it. Nothing is lost, nothing that was
// confirmed comes again, and the event, the series and the status say what happened.
func TestCanaryEndsByItself(t *testing.T) {
	t.Parallel() // it waits most of the time
	d, js := newDesk(t, "")
	ctx := t.Context()
	for _, name := range []string{"worker", "abandoned"} {
		_, err := js.CreateOrUpdateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{
			Durable: name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second, MaxAckPending: 50,
			DeliverPolicy: map[string]jetstream.DeliverPolicy{"abandoned": jetstream.DeliverAllPolicy}[name],
		})
		noErr(t, err)
	}
	c := &canaryClients{t: t, acked: map[string]bool{}, how: map[string]string{}}
	publishing, enough := context.WithCancel(ctx)
	working, leave := context.WithCancel(ctx)
	var publisher, workers sync.WaitGroup
	defer func() {
		enough()
		leave()
		publisher.Wait()
		workers.Wait()
	}()
	publisher.Go(func() { c.publish(publishing, js) })
	workers.Go(func() { c.take(working, js) })
	when(t, "messages pass", func() bool { return c.count() > 20 })
	d.refused("no gate G99", "canary", "add", "--scope", "consumer=ORDERS/worker", "--auto-abort-on", "G99")
	when(t, "it is served from here", func() bool {
		out, err := d.run("canary", "add", "--scope", "consumer=ORDERS/worker", "--auto-abort-on", "G10")
		if err != nil {
			t.Log(err)
		}
		return err == nil && strings.Contains(out, "UNDO")
	})
	// Nobody takes what "abandoned" has, so G10 of the stream fails; the canary's does not.
	when(t, "the other consumer is silent", func() bool { return d.gate("ORDERS", "G10").State == "FAIL" })
	before := c.count()
	when(t, "messages are served from here", func() bool { return c.count() > before+100 })
	if s, err := d.stream("ORDERS"); err != nil || s.Phase != face.PhaseCanary || len(s.Canaries) != 1 ||
		s.Canaries[0].Failing != "" || s.Canaries[0].Abort[0] != "G10" {
		t.Fatalf("%+v %v", s, err)
	}
	const series = `ehdb_canary_aborts_total{account="$G",consumer="worker",stream="ORDERS"}`
	if n := metric(t, d.process, series); n != 0 {
		t.Errorf("%v counted", n)
	}

	leave() // no workers: within twice the ack wait it is silent
	workers.Wait()
	since := time.Now()
	until(t, "it is given back", 30*time.Second, func() error {
		s, err := d.stream("ORDERS")
		if err == nil && len(s.Canaries) > 0 {
			err = fmt.Errorf("%+v", s.Canaries)
		}
		return err
	})
	t.Logf("given back %v after the workers had left", time.Since(since).Round(time.Millisecond))
	events, err := d.run("events")
	noErr(t, err)
	if !strings.Contains(events, "consumer worker is served by the servers  gateway --auto-abort-on: failed twice in a row: G10") {
		t.Errorf("events:\n%s", events)
	}
	if n := metric(t, d.process, series); n != 1 {
		t.Errorf("%v counted", n)
	}

	// The workers come back, and the servers serve them from where they were.
	c.end()
	publisher.Wait()
	c.settle(ctx, js)
}
