package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover/face"
)

// flipWatching is flipArgs without doing without one gate, so that it counts behind the flip.
func flipWatching(gate string, more ...string) []string {
	args := flipArgs(more...)
	i := slices.Index(args, "--force") + 1
	list := slices.DeleteFunc(strings.Split(args[i], ","), func(s string) bool { return strings.HasPrefix(s, gate+"=") })
	args[i] = strings.Join(list, ",")
	return args
}

func observed(t *testing.T, d *desk, outcome string) float64 {
	t.Helper()
	return metric(t, d.process, `ehdb_flip_observed_total{account="$G",outcome="`+outcome+`",stream="ORDERS"}`)
}

// TestFlipIsTakenBackByItself: a flip whose workers get nothing any more is rolled back by itself within the time that it
// is observed, nothing is lost and nothing comes twice; the same one with its workers at work stays.
func TestFlipIsTakenBackByItself(t *testing.T) {
	t.Parallel() // it waits most of the time
	hooks, told := t.TempDir(), filepath.Join(t.TempDir(), "told")
	noErr(t, os.WriteFile(filepath.Join(hooks, "on-failure"), //nolint:gosec // a program
		[]byte("#!/bin/sh\necho \"$EHDB_VERB to $EHDB_TO by $EHDB_BY: $EHDB_ERROR\" >>"+told+"\n"), 0o755))
	d, js := newDesk(t, fmt.Sprintf("hooks: %q", hooks))
	ctx := t.Context()
	_, err := js.CreateOrUpdateConsumer(ctx, "ORDERS", jetstream.ConsumerConfig{
		Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxAckPending: 50,
	})
	noErr(t, err)
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
	when(t, "messages pass", func() bool { return c.count() > 250 })
	d.refused("for 1m0s: rolled back by itself, without a loss, if G4, G10, G11 fail", flipArgs("--dry-run")...)
	d.refused("observe it for 5s", flipArgs("--dry-run", "--observe", "5s")...)
	d.refused("do not observe it", flipArgs("--dry-run", "--observe", "0")...)
	d.refused("observe: 25h0m0s is not between", flipArgs("--observe", "25h")...)

	// Its workers are at work: it stays.
	d.ready()
	if n := observed(t, d, face.ObservedAccepted); n != 0 {
		t.Errorf("%v counted", n)
	}
	flipped := func(args []string) {
		t.Helper()
		until(t, "the flip", 30*time.Second, func() error { _, err := d.run(args...); return err })
	}
	flipped(flipWatching("G10", "--observe", "5s"))
	if s, err := d.stream("ORDERS"); err != nil || s.Observed == nil || strings.Join(s.Observed.Gates, " ") != "G4 G10" ||
		!slices.Contains(s.Legal, "flip accept") {
		t.Fatalf("%+v %v", s.Observed, err)
	}
	d.does("observed  for ", "status")
	when(t, "it is accepted", func() bool { s, err := d.stream("ORDERS"); return err == nil && s.Observed == nil })
	if s, err := d.stream("ORDERS"); err != nil || s.Phase != face.PhaseEHDB || observed(t, d, face.ObservedAccepted) != 1 {
		t.Fatalf("%+v %v", s, err)
	}
	d.does("nothing failed twice in a row", "events")
	d.does("authority NATS", "rollback", "--scope", "ORDERS")

	// They get nothing any more: within twice the ack wait that is a fault, and twice in a row it is taken back.
	d.ready()
	flipped(flipWatching("G10", "--observe", "40s"))
	before := c.count()
	when(t, "messages are served from here", func() bool { return c.count() > before+50 })
	leave()
	workers.Wait()
	since := time.Now()
	d.phase(face.PhaseShadow)
	t.Logf("rolled back %v after the workers got nothing", time.Since(since).Round(time.Millisecond))
	events, err := d.run("events")
	noErr(t, err)
	if !strings.Contains(events, "gateway under observation, failed twice in a row: G10") || observed(t, d, face.ObservedRolledBack) != 1 {
		t.Errorf("events:\n%s", events)
	}
	when(t, "the hook is told", func() bool {
		b, err := os.ReadFile(told)
		return err == nil && strings.Contains(string(b), "observe to nats by gateway: under observation, failed twice in a row: G10")
	})

	// The workers come back, and the servers serve them from where they were.
	c.end()
	publisher.Wait()
	c.settle(ctx, js)
}

// TestObservationOutlivesTheGateway: a gateway that is killed in the middle observes the flip to its end, once. One that is
// to be rolled back and cannot be says so wherever somebody looks, stays, and is never rolled back with a loss; somebody
// may accept it all the same.
func TestObservationOutlivesTheGateway(t *testing.T) {
	t.Parallel() // it waits most of the time
	if os.Getenv("EHDB_SLOW") == "" || os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("waits for the end of an observation: set EHDB_SLOW=1 (and the cutover is ours)")
	}
	ns := startOracle(t, nil)
	dir, client, monitor := t.TempDir(), strconv.Itoa(freePort(t)), strconv.Itoa(freePort(t))
	conf := writeFile(t, "observe.conf", fmt.Sprintf("ehdb { allow_tmp_store: true }\nbus { upstream: [%q], monitor: [%q], profile: drill }",
		ns.ClientURL(), "http://"+ns.MonitorAddr().String()))
	d := &desk{&before{t: t, store: dir}, buildCtl(t)}
	start := func() {
		d.process = startGateway(t, dir, "-c", conf, "--bus", "shadow", "-p", client, "-m", monitor)
	}
	start()
	js, ctx := jetStream(t, connect(t, d.URL, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond)))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	noErr(t, err)
	until(t, "shadow", time.Minute, func() error { _, err := d.stream("ORDERS"); return err })
	when(t, "the lag is measured", func() bool { // until then the window is wide
		publishOrders(t, js, 20)
		s, err := d.stream("ORDERS")
		return err == nil && s.Parity != nil && s.Parity.Lag.N > 100
	})
	d.ready()
	d.does("authority EHDB", flipArgs("--observe", "8s")...)
	s, err := d.stream("ORDERS")
	noErr(t, err)
	end := s.Observed.Until
	d.Kill()
	start()
	if s, err := d.stream("ORDERS"); err != nil || s.Observed == nil || !s.Observed.Until.Equal(end) {
		t.Fatalf("%+v %v", s, err)
	}
	when(t, "it is accepted", func() bool { s, err := d.stream("ORDERS"); return err == nil && s.Observed == nil })
	if late := time.Since(end); late < 0 || late > 10*time.Second {
		t.Errorf("accepted %v behind its end", late)
	}
	kinds := func() map[string]int {
		t.Helper()
		out, err := d.run("events", "--json")
		noErr(t, err)
		n := make(map[string]int)
		for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
			var e face.Event
			noErr(t, dec.Decode(&e))
			n[e.Kind]++
		}
		return n
	}
	if n := kinds(); n["accepted"] != 1 || n["rollback"]+n["kept"] > 0 {
		t.Errorf("%v", n)
	}
	d.does("authority NATS", "rollback", "--scope", "ORDERS")

	// Somebody publishes around the gateway: the servers cannot be kept equal, and no rollback is without a loss.
	d.ready()
	d.does("authority EHDB", flipArgs("--observe", "30s")...)
	publishOrders(t, js, 10)
	rogue := connect(t, ns.ClientURL())
	around, _ := jetStream(t, rogue)
	when(t, "the servers have everything", func() bool { s, err := d.stream("ORDERS"); return err == nil && s.Back.Lost == 0 })
	publishOrders(t, around, 1)
	rogue.Close()
	when(t, "it is said that it is kept", func() bool { s, err := d.stream("ORDERS"); return err == nil && s.Observed.Kept != "" })
	d.does("NOT ROLLED BACK: ", "status")
	d.does("the servers have a message of their own", "events")
	d.refused("LOOK  the flip of $G/ORDERS was to be rolled back by itself", "doctor")
	if n := observed(t, d, face.ObservedRefused); n != 1 {
		t.Errorf("%v counted", n)
	}
	d.Kill()
	start()
	if s, err := d.stream("ORDERS"); err != nil || s.Phase != face.PhaseEHDB || s.Observed == nil || s.Observed.Kept == "" {
		t.Fatalf("%+v %v", s.Observed, err)
	}
	d.refused("the servers have a message of their own", "rollback", "--scope", "ORDERS")
	d.does("the flip is accepted", "flip", "accept", "--scope", "ORDERS")
	if s, err := d.stream("ORDERS"); err != nil || s.Observed != nil || s.Phase != face.PhaseEHDB {
		t.Errorf("%+v %v", s.Observed, err)
	}
	d.refused("no flip of $G/ORDERS is under observation", "flip", "accept", "--scope", "ORDERS")
}
