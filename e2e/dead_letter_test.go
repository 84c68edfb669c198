package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestDeadLetterMaxDeliver: what was delivered too often is in one of two places, also across a SIGKILL, and waits
// while the other stream does not take it. Both streams may be spread over shards.
func TestDeadLetterMaxDeliver(t *testing.T) {
	t.Run("one shard", func(t *testing.T) { deadLetterMaxDeliver(t, t.TempDir()) })
	t.Run("spread", func(t *testing.T) {
		dir := t.TempDir()
		deadLetterMaxDeliver(t, dir, spreadConfig(t, dir,
			`{ subject: "w.*", shards: all, tokens: 2 }, { subject: "d.*", shards: "1-2", tokens: 2 }`)...)
	})
}

func deadLetterMaxDeliver(t *testing.T, dir string, args ...string) {
	p := startGateway(t, dir, args...)
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "W", Subjects: []string{"w.>"}, Retention: jetstream.WorkQueuePolicy,
	})
	noErr(t, err)
	dead := jetstream.StreamConfig{Name: "D", Subjects: []string{"d.*"}, MaxMsgs: 3, Discard: jetstream.DiscardNew}
	_, err = js.CreateStream(ctx, dead)
	noErr(t, err)
	c, err := js.CreateConsumer(ctx, "W", jetstream.ConsumerConfig{
		Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 2, AckWait: 200 * time.Millisecond,
		Metadata: map[string]string{"ehdb.dead_letter": "D"},
	})
	noErr(t, err)
	const n = 8
	for i := range n {
		m := nats.NewMsg(fmt.Sprintf("w.%d", i))
		m.Header = nats.Header{"Nats-Msg-Id": {fmt.Sprint(i)}, "Own": {"kept"}}
		_, err = js.PublishMsg(ctx, m)
		noErr(t, err)
	}
	for range 2 {
		got, err := c.Fetch(n, jetstream.FetchMaxWait(3*time.Second))
		noErr(t, err)
		i := 0
		for m := range got.Messages() {
			if i%2 == 0 {
				noErr(t, m.Nak())
			}
			i++
		}
		if i != n {
			t.Fatalf("got %d messages", i)
		}
	}
	counts := func() (waiting, buried uint64) {
		return streamMsgs(t, js, "W"), streamMsgs(t, js, "D")
	}
	eventually(t, func() bool { _, buried := counts(); return buried > 0 })
	if waiting, buried := counts(); waiting+buried != n || buried > 3 {
		t.Fatalf("%d wait, %d are dead letters", waiting, buried)
	}
	p.Kill()
	p = startGateway(t, dir, args...)
	js, ctx = jetStream(t, connect(t, p.URL))
	if waiting, buried := counts(); waiting+buried != n {
		t.Fatalf("after a kill %d wait, %d are dead letters", waiting, buried)
	}
	dead.MaxMsgs = -1
	_, err = js.UpdateStream(ctx, dead)
	noErr(t, err)
	eventually(t, func() bool { waiting, buried := counts(); return waiting == 0 && buried == n })
	d, err := js.Stream(ctx, "D")
	noErr(t, err)
	for seq := uint64(1); seq <= n; seq++ {
		m, err := d.GetMsg(ctx, seq)
		noErr(t, err)
		h := m.Header
		if h.Get("Ehdb-Dead-Letter-Reason") != "max_deliver" || h.Get("Ehdb-Dead-Letter-Deliveries") != "2" ||
			h.Get("Own") != "kept" || h.Get("Nats-Msg-Id") != "" ||
			m.Subject != fmt.Sprintf("w.%d", must(t, h.Get("Ehdb-Dead-Letter-Sequence"))-1) {
			t.Errorf("letter %d: %s %v", seq, m.Subject, h)
		}
	}
	c, err = js.Consumer(ctx, "W", "C")
	noErr(t, err)
	if len(args) > 0 {
		spreadOver(t, p, 3)
	}
	info, err := c.Info(ctx)
	noErr(t, err)
	if info.NumAckPending != 0 || info.NumPending != 0 {
		t.Errorf("%+v", info)
	}
}

// TestManyLargeDeadLetters: more than fit into one commit.
func TestManyLargeDeadLetters(t *testing.T) {
	p := startGateway(t, t.TempDir())
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "W", Subjects: []string{"w.>"}, Retention: jetstream.WorkQueuePolicy})
	noErr(t, err)
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "D", Subjects: []string{"d"}})
	noErr(t, err)
	c, err := js.CreateConsumer(ctx, "W", jetstream.ConsumerConfig{
		Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: 1,
		Metadata: map[string]string{"ehdb.dead_letter": "D"},
	})
	noErr(t, err)
	const large, small = 30, 600
	for range large {
		_, err = js.Publish(ctx, "w.large", make([]byte, 900<<10))
		noErr(t, err)
	}
	for range small {
		_, err = js.PublishAsync("w.small", []byte("x"))
		noErr(t, err)
	}
	<-js.PublishAsyncComplete()
	got, err := c.Fetch(large+small, jetstream.FetchMaxWait(10*time.Second))
	noErr(t, err)
	n := 0
	for range got.Messages() {
		n++
	}
	if n != large+small {
		t.Fatalf("got %d messages", n)
	}
	eventually(t, func() bool { return streamMsgs(t, js, "W") == 0 && streamMsgs(t, js, "D") == large+small })
}

// TestKillDeadLetters kills the gateway with SIGKILL while messages of a work queue are terminated: afterwards each that
// was acknowledged to its publisher is in the queue or among the dead letters, and never in both or twice.
func TestKillDeadLetters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startGateway(t, dir)
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "W", Subjects: []string{"w.>"}, Retention: jetstream.WorkQueuePolicy})
	noErr(t, err)
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "D", Subjects: []string{"d"}})
	noErr(t, err)
	_, err = js.CreateConsumer(ctx, "W", jetstream.ConsumerConfig{
		Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 300 * time.Millisecond, MaxDeliver: 3,
		Metadata: map[string]string{"ehdb.dead_letter": "D"},
	})
	noErr(t, err)
	published := map[uint64]bool{}
	for round := range rounds() {
		var wg sync.WaitGroup
		wg.Go(func() { terminateAll(p.URL) })
		var seqs []uint64
		wg.Go(func() { seqs = publishAll(p.URL) })
		time.Sleep(time.Duration(100+rand.IntN(400)) * time.Millisecond)
		p.Kill()
		wg.Wait()
		for _, seq := range seqs {
			published[seq] = true
		}
		p = startGateway(t, dir)
		checkPlaces(t, p.URL, published, round)
	}
	if len(published) < 50 {
		t.Fatalf("only %d messages were published", len(published))
	}
}

// checkPlaces demands that each message is in one place.
func checkPlaces(t *testing.T, url string, published map[uint64]bool, round int) {
	t.Helper()
	js, ctx := jetStream(t, connect(t, url))
	places := map[uint64]int{}
	for _, name := range []string{"W", "D"} {
		s, err := js.Stream(ctx, name)
		noErr(t, err)
		state := s.CachedInfo().State
		for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
			m, err := s.GetMsg(ctx, seq)
			switch {
			case errors.Is(err, jetstream.ErrMsgNotFound):
			case err != nil:
				t.Fatal(err)
			case name == "W":
				places[seq]++
			default:
				places[uint64(must(t, m.Header.Get("Ehdb-Dead-Letter-Sequence")))]++
			}
		}
	}
	for seq := range published {
		if places[seq] == 2 { //nolint:mnd // it may have moved between the two looks
			w, err := js.Stream(ctx, "W")
			noErr(t, err)
			if _, err := w.GetMsg(ctx, seq); errors.Is(err, jetstream.ErrMsgNotFound) {
				continue
			}
		}
		if places[seq] != 1 {
			t.Errorf("round %d: message %d is in %d places", round, seq, places[seq])
		}
	}
	t.Logf("round %d: %d messages, %d dead letters", round, len(places), streamMsgs(t, js, "D"))
}

// publishAll publishes until the connection breaks and returns what was acknowledged.
func publishAll(url string) (seqs []uint64) {
	nc, err := nats.Connect(url, nats.MaxReconnects(0))
	if err != nil {
		return nil
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil
	}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		ack, err := js.Publish(ctx, "w.x", []byte("x"))
		cancel()
		if err != nil {
			return seqs
		}
		seqs = append(seqs, ack.Sequence)
	}
}

// terminateAll terminates what it gets, but for some, which run into max_deliver, until the connection breaks.
func terminateAll(url string) {
	nc, err := nats.Connect(url, nats.MaxReconnects(0))
	if err != nil {
		return
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := js.Consumer(ctx, "W", "C")
	if err != nil {
		return
	}
	for nc.IsConnected() {
		got, err := c.Fetch(100, jetstream.FetchMaxWait(50*time.Millisecond))
		if err != nil {
			return
		}
		for m := range got.Messages() {
			if rand.IntN(5) > 0 {
				_ = m.TermWithReason("no good")
			}
		}
	}
}
