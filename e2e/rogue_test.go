package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/gate"
)

// detection is how soon a message around the gateway has to be found: a second, in the slow suite, which has the machine
// to itself.
func detection() time.Duration {
	if os.Getenv("EHDB_SLOW") != "" {
		return time.Second
	}
	return 10 * time.Second
}

// TestRogueWriters: who publishes around the gateway is found out within a second, in shadow while connected and when gone
// again, and blocks the flip; and on the way back, where a rollback would lose messages.
func TestRogueWriters(t *testing.T) {
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about the cutover")
	}
	ns := startOracle(t, nil)
	b := startShadow(t, []string{ns.ClientURL()}, []string{"http://" + ns.MonitorAddr().String()})
	js, ctx := jetStream(t, connect(t, b.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	noErr(t, err)
	publish := func(js jetstream.JetStream, n int) {
		t.Helper()
		for i := range n {
			_, err := js.Publish(ctx, fmt.Sprintf("orders.%d", i), []byte("x"))
			noErr(t, err)
		}
	}
	until(t, "shadow", time.Minute, func() error { _, err := b.stream("ORDERS"); return err })
	publish(js, 200)
	g8 := func(want gate.State) func() error {
		return func() error {
			if g := b.gate("ORDERS", "G8"); g.State != want {
				return fmt.Errorf("G8 is %s: %s of %s (%s)", g.State, g.Value, g.Threshold, g.Source)
			}
			return nil
		}
	}
	until(t, "nobody goes around", time.Minute, g8(gate.Pass))
	refused := func() {
		t.Helper()
		if m, err := b.flip("ORDERS"); err == nil || !strings.Contains(err.Error(), "FAIL G8") {
			t.Fatalf("beside a rogue: %+v, %v", m, err)
		}
	}

	rogue := connect(t, ns.ClientURL(), nats.Name("report-cron"))
	t.Logf("a connection: found after %v", until(t, "a rogue connection", detection(), g8(gate.Fail)))
	refused()
	rogue.Close()
	until(t, "the connection is gone", 10*time.Second, g8(gate.Pass))

	rogue = connect(t, ns.ClientURL())
	around, _ := jetStream(t, rogue)
	publish(around, 1)
	rogue.Close()
	gone := until(t, "a message around the gateway", detection(), g8(gate.Fail))
	t.Logf("a message: found after %v", gone)
	refused()
	publish(js, 10)
	time.Sleep(2 * time.Second)
	noErr(t, g8(gate.Fail)()) // it does not go away by itself
	if n := metric(t, b.process, `ehdb_cutover_strays{account="$G",stream="ORDERS"}`); n != 1 {
		t.Errorf("/metrics tells of %v strays", n)
	}
}

// TestRogueOnTheWayBack: a message that somebody publishes to the servers while the gateway has the say is found within a
// second, and a rollback is refused: it would lose messages.
func TestRogueOnTheWayBack(t *testing.T) {
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about the cutover")
	}
	ns := startOracle(t, nil)
	b := startShadow(t, []string{ns.ClientURL()}, []string{"http://" + ns.MonitorAddr().String()})
	js, ctx := jetStream(t, connect(t, b.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	noErr(t, err)
	publish := func() (last uint64) {
		t.Helper()
		ack, err := js.Publish(ctx, "orders.x", []byte("x"))
		noErr(t, err)
		return ack.Sequence
	}
	until(t, "flip", time.Minute, func() error {
		publish()
		_, err := b.flip("ORDERS")
		return err
	})
	last := publish()
	until(t, "the way back is open", 10*time.Second, func() error {
		s, err := b.stream("ORDERS")
		if err == nil && (!s.Back.Lossless || s.Reverse == nil || s.Reverse.Last != last) {
			err = fmt.Errorf("%+v %+v", s.Back, s.Reverse)
		}
		return err
	})
	around, _ := jetStream(t, connect(t, ns.ClientURL()))
	_, err = around.Publish(ctx, "orders.x", []byte("rogue"))
	noErr(t, err)
	took := until(t, "a message in the chain's way", detection(), func() error {
		s, err := b.stream("ORDERS")
		if err == nil && (s.Back.Lossless || s.Back.Why == "") {
			err = fmt.Errorf("%+v", s.Back)
		}
		return err
	})
	t.Logf("found after %v", took)
	if m, err := b.rollback("ORDERS"); err == nil || !strings.Contains(err.Error(), `"kind": "refused"`) ||
		!strings.Contains(err.Error(), `"error": "refused: $G/ORDERS: [the servers have a message of their own`) {
		t.Errorf("%+v, %v", m, err)
	}
	publish() // clients go on
}
