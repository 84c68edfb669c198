package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// These replay failures of docs/failures-replayed.md that no other test is about.

// TestProducersDoNotOrder (row 1): ids that producers choose order nothing. What a producer with a low id publishes behind one
// with a high id, already consumed, is delivered; and with 40 producers whose ids come in swapped pairs everything is, while
// the consumer's figures never say that nothing is left before it is so.
func TestProducersDoNotOrder(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		js, ctx := jetStream(t, connect(t, e.URL))
		s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "C", Subjects: []string{"c.>"}})
		noErr(t, err)
		c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "W"})
		noErr(t, err)
		next := func() string {
			m, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
			noErr(t, err)
			noErr(t, m.DoubleAck(ctx))
			return string(m.Data())
		}
		for _, id := range []string{"100", "50"} {
			_, err := js.Publish(ctx, "c."+id, []byte(id), jetstream.WithMsgID(id))
			noErr(t, err)
			tr.Add("%s", next())
		}
		const producers, each = 40, 10
		var wg sync.WaitGroup
		for p := range producers {
			wg.Go(func() {
				for i := range each {
					id := strconv.Itoa(1000 + p*each + i ^ 1)
					if _, err := js.Publish(ctx, "c.x", []byte(id), jetstream.WithMsgID(id)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		got := map[string]bool{}
		for len(got) < producers*each {
			got[next()] = true
		}
		wg.Wait()
		i, err := c.Info(ctx)
		noErr(t, err)
		tr.Add("%d delivered, %d pending, %d not acknowledged", len(got), i.NumPending, i.NumAckPending)
	})
}

// TestPublishSpansARestart (row 8): with a client that reconnects as it does by default, a publish that is made while the
// gateway is away for two and a half seconds succeeds when it is back, and is stored once.
func TestPublishSpansARestart(t *testing.T) {
	port, dir := strconv.Itoa(freePort(t)), t.TempDir()
	p := startGateway(t, dir, "-p", port)
	var once sync.Once
	away := make(chan struct{})
	nc := connect(t, p.URL, nats.DisconnectErrHandler(func(*nats.Conn, error) { once.Do(func() { close(away) }) }))
	js, ctx := jetStream(t, nc)
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	noErr(t, err)
	p.Kill()
	<-away
	const n = 20
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if _, err := js.Publish(ctx, "s", fmt.Append(nil, i)); err != nil {
				t.Errorf("publish %d: %v", i, err)
			}
		})
	}
	time.Sleep(2500 * time.Millisecond)
	startGateway(t, dir, "-p", port)
	wg.Wait()
	s, err := js.Stream(ctx, "S")
	noErr(t, err)
	if st := s.CachedInfo().State; st.Msgs != n || st.LastSeq != n {
		t.Errorf("%d messages, last %d", st.Msgs, st.LastSeq)
	}
}

// TestGoneClientsPullNothing (row 22): the pull requests of a client that has gone are gone with it: what comes then goes to
// another at once, and not to nobody for the whole ack_wait.
func TestGoneClientsPullNothing(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		js, ctx := jetStream(t, connect(t, e.URL))
		s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
		noErr(t, err)
		c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "W", AckWait: time.Hour})
		noErr(t, err)
		gone := connect(t, e.URL)
		_, err = gone.SubscribeSync("gone")
		noErr(t, err)
		for range 5 {
			noErr(t, gone.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.W", "gone", []byte(`{"batch":10,"expires":60000000000}`)))
		}
		noErr(t, gone.Flush())
		waiting := func(want int) {
			t.Helper()
			until(t, "requests that wait", 10*time.Second, func() error {
				i, err := c.Info(ctx)
				if err == nil && i.NumWaiting != want {
					err = fmt.Errorf("%d wait, want %d", i.NumWaiting, want)
				}
				return err
			})
		}
		waiting(5)
		gone.Close()
		waiting(0)
		for range 3 {
			_, err := js.Publish(ctx, "s", nil)
			noErr(t, err)
			m, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
			noErr(t, err)
			md, err := m.Metadata()
			noErr(t, err)
			tr.Add("%d, delivery %d", md.Sequence.Stream, md.NumDelivered)
		}
	})
}

// TestDurablesShareOrEachGetAll (rows 28 and 40): two workers of one durable share its messages, two durables get all of them
// each, and who reads from the first message on without a durable begins there whatever a durable has acknowledged.
func TestDurablesShareOrEachGetAll(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		js, ctx := jetStream(t, connect(t, e.URL))
		s, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
		noErr(t, err)
		const n = 40
		for range n {
			_, err := js.Publish(ctx, "s", nil)
			noErr(t, err)
		}
		take := func(c jetstream.Consumer, want int) (seqs []uint64) {
			b, err := c.Fetch(want, jetstream.FetchMaxWait(10*time.Second))
			noErr(t, err)
			for m := range b.Messages() {
				md, err := m.Metadata()
				noErr(t, err)
				seqs = append(seqs, md.Sequence.Stream)
				if md.NumDelivered > 1 {
					t.Errorf("%d came %d times", md.Sequence.Stream, md.NumDelivered)
				}
				_ = m.DoubleAck(ctx) // an ephemeral one without acks has none
			}
			return seqs
		}
		shared, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "SHARED", AckPolicy: jetstream.AckExplicitPolicy})
		noErr(t, err)
		js2, _ := jetStream(t, connect(t, e.URL))
		same, err := js2.CreateOrUpdateConsumer(ctx, "S", shared.CachedInfo().Config) // a second worker makes it once more
		noErr(t, err)
		tr.Add("shared: %v, %v", take(shared, n/2), take(same, n/2))
		for _, name := range []string{"A", "B"} {
			c, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy})
			noErr(t, err)
			tr.Add("%s: %v", name, take(c, n))
		}
		all, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
		noErr(t, err)
		tr.Add("ephemeral: %v", take(all, n))
	})
}

// TestSecondGatewayIsRefused (row 33): beside a gateway that moves streams of the servers another one, with a data directory of
// its own, does not start, and says why; when the first has stopped it does.
func TestSecondGatewayIsRefused(t *testing.T) {
	t.Parallel()
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("it is about the cutover")
	}
	ns := startOracle(t, nil)
	first := startShadow(t, []string{ns.ClientURL()}, nil)
	conf := writeFile(t, "second.conf", fmt.Sprintf("ehdb { allow_tmp_store: true }\nbus { mode: shadow, upstream: [%q] }\n", ns.ClientURL()))
	dir := t.TempDir()
	second, err := launch(dir, "-c", conf)
	if err == nil {
		second.Kill()
		t.Fatal("two gateways move the streams of one system")
	}
	<-second.done
	if !strings.Contains(second.Log(), "another gateway") {
		t.Errorf("it does not say why:\n%s", second.Log())
	}
	noErr(t, first.Stop())
	// A clean stop gives the lease back: nobody has to wait until it has run out.
	third, err := launch(dir, "-c", conf)
	if err != nil || strings.Contains(third.Log(), "Waiting for the lease") {
		t.Fatalf("behind a clean stop: %v\n%s\n%s", err, first.Log(), third.Log())
	}
	// One that is killed does not.
	third.Kill()
	if os.Getenv("EHDB_SLOW") == "" {
		return // it takes half a minute
	}
	until(t, "another one starts", time.Minute, func() error {
		p, err := launch(t.TempDir(), "-c", conf)
		if err != nil {
			return errors.Join(err, errors.New(p.Log()))
		}
		p.Kill()
		return nil
	})
}
