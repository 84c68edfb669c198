package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// lameDuckConf has a short grace period; the lame duck duration is as short as nats-server permits it to be.
func lameDuckConf(t *testing.T) string {
	t.Helper()
	return writeFile(t, "lameduck.conf", loose()+"lame_duck_grace_period: 1s\nlame_duck_duration: 30s\n")
}

// retire puts p into lame duck mode and waits until it has ended by itself.
func retire(p *process) { p.Signal(syscall.SIGUSR2); <-p.done }

// TestLameDuckLosesNothing: clients that publish, consume and acknowledge on until they are closed have lost nothing that
// was confirmed to them, after the next process has taken over.
func TestLameDuckLosesNothing(t *testing.T) {
	l := newLedger()
	p := startGateway(t, t.TempDir(), "-c", lameDuckConf(t))
	makeLedgerStream(t, p)
	p = endUnderLoad(t, p, l, 0, retire)
	verify(t, p, l)
	if len(l.problems) > 0 {
		t.Fatal(strings.Join(l.problems, "\n"))
	}
	if len(l.published) == 0 || len(l.confirmed) == 0 {
		t.Fatalf("nothing was shown: %d acknowledged, %d confirmed", len(l.published), len(l.confirmed))
	}
	t.Logf("%d sent, %d acknowledged, %d confirmed, 0 lost", len(l.maybe), len(l.published), len(l.confirmed))
}

func makeLedgerStream(t *testing.T, p *process) {
	t.Helper()
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "K", Subjects: []string{"k.>"}})
	noErr(t, err)
	_, err = js.CreateConsumer(ctx, "K", jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy})
	noErr(t, err)
}

// TestLameDuckAnswersEverything: clients that heed the notice, stop and wait for what is under way get every answer: each
// message is acknowledged and stored once, and each ack is confirmed.
func TestLameDuckAnswersEverything(t *testing.T) {
	l := newLedger()
	p := startGateway(t, t.TempDir(), "-c", lameDuckConf(t))
	makeLedgerStream(t, p)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { heedingPublisher(t, p.URL, l, fmt.Sprint("h", i)) })
	}
	for range 2 {
		wg.Go(func() { heedingConsumer(t, p.URL, l) })
	}
	time.Sleep(500 * time.Millisecond)
	p.Signal(syscall.SIGUSR2)
	wg.Wait()
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		t.Fatal("the gateway does not end")
	}
	p = startGateway(t, p.dir)
	verify(t, p, l)
	if len(l.problems) > 0 {
		t.Fatal(strings.Join(l.problems, "\n"))
	}
	if len(l.maybe) != len(l.published) || len(l.published) == 0 || len(l.confirmed) == 0 {
		t.Errorf("%d sent, %d acknowledged, %d confirmed", len(l.maybe), len(l.published), len(l.confirmed))
	}
	t.Logf("%d sent, %d acknowledged, %d confirmed", len(l.maybe), len(l.published), len(l.confirmed))
}

// toldOfLameDuck connects a client whose context ends with the notice of lame duck mode.
func toldOfLameDuck(t *testing.T, url string) (nc *nats.Conn, told context.Context) {
	told, cancel := context.WithCancel(t.Context())
	nc, err := nats.Connect(url, nats.NoReconnect(), nats.LameDuckModeHandler(func(*nats.Conn) { cancel() }))
	if err != nil {
		t.Error(err)
		cancel()
		return nil, told
	}
	return nc, told
}

// heedingPublisher publishes until it is told to go, waits for all answers and goes.
func heedingPublisher(t *testing.T, url string, l *ledger, name string) {
	nc, told := toldOfLameDuck(t, url)
	if nc == nil {
		return
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(256))
	if err != nil {
		t.Error(err)
		return
	}
	var futures []jetstream.PubAckFuture
	for n := 0; told.Err() == nil; n++ {
		data := fmt.Sprint(name, ".", n)
		f, err := js.PublishAsync("k."+name, []byte(data))
		if err != nil {
			t.Errorf("%s: %v", data, err)
			return
		}
		l.sent(data)
		futures = append(futures, f)
		if n%50 == 49 { // the whole stream is read again
			time.Sleep(5 * time.Millisecond)
		}
	}
	for _, f := range futures {
		select {
		case a := <-f.Ok():
			l.acked(a.Sequence, string(f.Msg().Data))
		case err := <-f.Err():
			t.Errorf("%s: %v", f.Msg().Data, err)
			return
		case <-time.After(10 * time.Second):
			t.Errorf("%s was never answered", f.Msg().Data)
			return
		}
	}
}

// heedingConsumer works until it is told to go; each ack must be confirmed.
func heedingConsumer(t *testing.T, url string, l *ledger) {
	nc, told := toldOfLameDuck(t, url)
	if nc == nil {
		return
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Error(err)
		return
	}
	c, err := js.Consumer(told, "K", "C")
	if err != nil {
		t.Error(err)
		return
	}
	for told.Err() == nil {
		batch, err := c.Fetch(20, jetstream.FetchMaxWait(200*time.Millisecond))
		if err != nil {
			t.Error(err)
			return
		}
		for m := range batch.Messages() {
			if !handle(t.Context(), l, m) {
				t.Errorf("the ack of %s was not confirmed", m.Data())
			}
		}
	}
}
