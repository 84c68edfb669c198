package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// soakFor is how long the soak loads the gateway: EHDB_SOAK (a duration), a minute in the slow suite, else some seconds.
func soakFor() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("EHDB_SOAK")); err == nil {
		return d
	}
	if os.Getenv("EHDB_SLOW") != "" {
		return time.Minute
	}
	return 6 * time.Second
}

// soakBook is what the clients of one consumer know.
type soakBook struct {
	stream, name string
	push         bool // messages come to a deliver group, else they are fetched
	mu           sync.Mutex
	delivered    map[uint64]bool // received at least once
	tried        map[uint64]bool // an ack or a term was sent
	confirmed    map[uint64]bool // an ack was confirmed
}

// soak is what all clients know.
type soak struct {
	*ledger                            // problems
	acked   map[string]map[uint64]bool // by stream: the sequences of the PubAcks
	books   []*soakBook

	added, maybe uint64 // increments of the key that were confirmed, and those whose fate is unknown
}

// TestSoak loads streams of every retention with publishers, workers that acknowledge, refuse, give up and forget, and
// key-value counters, and kills the gateway with SIGKILL again and again. After each kill the books are balanced: what was
// acknowledged to publishers is stored or done, each consumer's pending and outstanding messages are what is stored and not
// done, and whoever asks is given something. At the end everything was delivered to everybody.
func TestSoak(t *testing.T) {
	s := &soak{ledger: newLedger(), acked: map[string]map[uint64]bool{}}
	p := startGateway(t, t.TempDir())
	s.setUp(t, p)
	end, kills := time.Now().Add(soakFor()), 0
	for time.Now().Before(end) && len(s.problems) == 0 {
		p = s.round(t, p)
		s.balance(t, p)
		kills++
	}
	s.drain(t, p)
	s.finish(t, p)
	if len(s.problems) > 0 {
		t.Fatal(strings.Join(s.problems, "\n"))
	}
	for _, b := range s.books {
		t.Logf("%s > %s: %d delivered, %d confirmed", b.stream, b.name, len(b.delivered), len(b.confirmed))
		if len(b.delivered) == 0 || len(b.confirmed) == 0 {
			t.Errorf("%s > %s has seen nothing", b.stream, b.name)
		}
	}
	t.Logf("%d kills, %d increments (%d unknown)", kills, s.added, s.maybe)
}

func (s *soak) setUp(t *testing.T, p *process) {
	t.Helper()
	js, ctx := jetStream(t, connect(t, p.URL))
	for stream, retention := range map[string]jetstream.RetentionPolicy{
		"L": jetstream.LimitsPolicy, "W": jetstream.WorkQueuePolicy, "I": jetstream.InterestPolicy,
	} {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: stream, Subjects: []string{stream + ".>"}, Retention: retention,
		})
		noErr(t, err)
		s.acked[stream] = map[uint64]bool{}
	}
	for _, b := range []struct{ stream, name string }{
		{"L", "one"}, {"L", "two"}, {"L", "push"}, {"W", "work"}, {"I", "one"}, {"I", "push"},
	} {
		cfg := jetstream.ConsumerConfig{
			Durable: b.name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxAckPending: 64,
		}
		var err error
		if b.name == "push" {
			cfg.DeliverSubject, cfg.DeliverGroup = "deliver."+b.stream, "g"
			_, err = js.CreatePushConsumer(ctx, b.stream, cfg)
		} else {
			_, err = js.CreateConsumer(ctx, b.stream, cfg)
		}
		noErr(t, err)
		s.books = append(s.books, &soakBook{
			stream: b.stream, name: b.name, push: b.name == "push",
			delivered: map[uint64]bool{}, tried: map[uint64]bool{}, confirmed: map[uint64]bool{},
		})
	}
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "K", History: 5})
	noErr(t, err)
	_, err = kv.Put(ctx, "n", []byte("0"))
	noErr(t, err)
}

// round loads the gateway, kills it and starts it again.
func (s *soak) round(t *testing.T, p *process) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	work := func(f func(context.Context, jetstream.JetStream, *nats.Conn)) {
		wg.Go(func() {
			nc, err := nats.Connect(p.URL, nats.MaxReconnects(0))
			if err != nil {
				return // it was killed already
			}
			defer nc.Close()
			if js, err := jetstream.New(nc); err == nil {
				f(ctx, js, nc)
			}
		})
	}
	for stream := range s.acked {
		work(func(ctx context.Context, js jetstream.JetStream, nc *nats.Conn) { s.publish(ctx, js, nc, stream) })
	}
	for _, b := range s.books {
		for range 2 {
			work(func(ctx context.Context, js jetstream.JetStream, nc *nats.Conn) { s.consume(ctx, js, nc, b) })
		}
	}
	for range 2 {
		work(s.increment)
	}
	time.Sleep(time.Duration(200+rand.IntN(1200)) * time.Millisecond)
	p.Kill()
	cancel()
	wg.Wait()
	return startGateway(t, p.dir)
}

func (s *soak) publish(ctx context.Context, js jetstream.JetStream, nc *nats.Conn, stream string) {
	for n := 0; ctx.Err() == nil && !nc.IsClosed(); n++ {
		pctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		a, err := js.Publish(pctx, fmt.Sprintf("%s.%d", stream, n%7), []byte(stream))
		cancel()
		if err != nil {
			continue
		}
		s.mu.Lock()
		s.acked[stream][a.Sequence] = true
		s.mu.Unlock()
	}
}

func (s *soak) consume(ctx context.Context, js jetstream.JetStream, nc *nats.Conn, b *soakBook) {
	if b.push {
		s.listen(ctx, js, b, func() bool { return ctx.Err() != nil || nc.IsClosed() }, func() int { return rand.IntN(12) })
		return
	}
	c, err := js.Consumer(ctx, b.stream, b.name)
	for err == nil && ctx.Err() == nil && !nc.IsClosed() {
		var batch jetstream.MessageBatch
		if batch, err = c.Fetch(20, jetstream.FetchMaxWait(200*time.Millisecond)); err != nil {
			return
		}
		for m := range batch.Messages() {
			s.handle(ctx, b, m, rand.IntN(12))
		}
	}
}

// listen is a member of the deliver group of a push consumer, until over says that it is.
func (s *soak) listen(ctx context.Context, js jetstream.JetStream, b *soakBook, over func() bool, what func() int) {
	c, err := js.PushConsumer(ctx, b.stream, b.name)
	if err != nil {
		return // killed
	}
	cc, err := c.Consume(func(m jetstream.Msg) { s.handle(ctx, b, m, what()) })
	if err != nil {
		return
	}
	defer cc.Stop()
	for !over() {
		time.Sleep(20 * time.Millisecond)
	}
}

// info asks what the gateway knows of the consumer.
func (b *soakBook) info(ctx context.Context, t *testing.T, js jetstream.JetStream) *jetstream.ConsumerInfo {
	t.Helper()
	if b.push {
		c, err := js.PushConsumer(ctx, b.stream, b.name)
		noErr(t, err)
		return c.CachedInfo()
	}
	c, err := js.Consumer(ctx, b.stream, b.name)
	noErr(t, err)
	return c.CachedInfo()
}

// handle does one of the things workers do; from 5 on that is a confirmed ack.
func (s *soak) handle(ctx context.Context, b *soakBook, m jetstream.Msg, what int) {
	meta, err := m.Metadata()
	if err != nil {
		s.problem("%v", err)
		return
	}
	seq := meta.Sequence.Stream
	b.mu.Lock()
	b.delivered[seq] = true
	b.tried[seq] = b.tried[seq] || what >= 3
	again := b.confirmed[seq]
	b.mu.Unlock()
	if again {
		s.problem("%s > %s: sequence %d was delivered again after its ack was confirmed", b.stream, b.name, seq)
	}
	switch what { // errors mean that the gateway was killed
	case 0:
		_ = m.Nak()
	case 1:
		_ = m.NakWithDelay(50 * time.Millisecond)
	case 2: // forgotten
	case 3:
		_ = m.Term()
	case 4:
		_ = m.Ack()
	default:
		actx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if m.DoubleAck(actx) == nil {
			b.mu.Lock()
			b.confirmed[seq] = true
			b.mu.Unlock()
		}
	}
}

// increment adds one to a key by compare-and-set, in competition with others.
func (s *soak) increment(ctx context.Context, js jetstream.JetStream, nc *nats.Conn) {
	kv, err := js.KeyValue(ctx, "K")
	for err == nil && ctx.Err() == nil && !nc.IsClosed() {
		kctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		e, err := kv.Get(kctx, "n")
		if err == nil {
			n, _ := strconv.Atoi(string(e.Value())) // ours
			_, err = kv.Update(kctx, "n", []byte(strconv.Itoa(n+1)), e.Revision())
			var refused *jetstream.APIError
			s.mu.Lock()
			switch {
			case err == nil:
				s.added++
			case !errors.As(err, &refused):
				s.maybe++
			}
			s.mu.Unlock()
		}
		cancel()
	}
}

// balance compares the gateway's books with the clients', while nobody works.
func (s *soak) balance(t *testing.T, p *process) {
	t.Helper()
	js, ctx := jetStream(t, connect(t, p.URL))
	stored := map[string]map[uint64]bool{}
	for stream := range s.acked {
		stored[stream] = storedIn(t, ctx, js, stream)
	}
	for _, b := range s.books {
		i := b.info(ctx, t, js)
		open, confirmed, tried := int(i.NumPending)+i.NumAckPending, 0, 0 //nolint:gosec // small
		for seq := range stored[b.stream] {
			if b.confirmed[seq] {
				confirmed++
			}
			if b.tried[seq] {
				tried++
			}
		}
		all := len(stored[b.stream])
		if open > all-confirmed || open < all-tried {
			s.problem("%s > %s: %d pending and %d outstanding of %d stored, of which %d are confirmed and %d were tried",
				b.stream, b.name, i.NumPending, i.NumAckPending, all, confirmed, tried)
		}
		if b.stream == "W" && open != all {
			s.problem("the work queue holds %d messages, of which %d are pending or outstanding", all, open)
		}
		s.lost(b, stored[b.stream])
		if !b.push && i.NumPending > 0 && i.NumAckPending < i.Config.MaxAckPending {
			s.given(ctx, t, js, b)
		}
	}
}

// lost looks for messages that were acknowledged to a publisher and are gone, though the consumer is not done with them.
func (s *soak) lost(b *soakBook, stored map[uint64]bool) {
	for seq := range s.acked[b.stream] {
		if !stored[seq] && (b.stream == "L" || !b.tried[seq]) {
			s.problem("%s: sequence %d was acknowledged, is not stored, and %s is not done with it", b.stream, seq, b.name)
		}
	}
}

// given demands that somebody who asks a consumer with pending messages is given one.
func (s *soak) given(ctx context.Context, t *testing.T, js jetstream.JetStream, b *soakBook) {
	t.Helper()
	c, err := js.Consumer(ctx, b.stream, b.name)
	noErr(t, err)
	m, err := c.Next(jetstream.FetchMaxWait(5 * time.Second))
	if err != nil {
		s.problem("%s > %s: messages are pending, and a request was given nothing: %v", b.stream, b.name, err)
		return
	}
	s.handle(ctx, b, m, 5)
}

// drain acknowledges what is left of everything.
func (s *soak) drain(t *testing.T, p *process) {
	t.Helper()
	js, ctx := jetStream(t, connect(t, p.URL))
	for _, b := range s.books {
		before, last := -1, time.Now()
		over := func() bool {
			i := b.info(ctx, t, js)
			left := int(i.NumPending) + i.NumAckPending //nolint:gosec // small
			if left != before {
				before, last = left, time.Now()
			}
			if time.Since(last) > 5*time.Second {
				s.problem("%s > %s stalls with %d pending and %d outstanding", b.stream, b.name, i.NumPending, i.NumAckPending)
				return true
			}
			return left == 0
		}
		if b.push {
			s.listen(ctx, js, b, over, func() int { return 5 })
			continue
		}
		c, err := js.Consumer(ctx, b.stream, b.name)
		noErr(t, err)
		for !over() {
			batch, err := c.Fetch(200, jetstream.FetchMaxWait(300*time.Millisecond))
			noErr(t, err)
			for m := range batch.Messages() {
				s.handle(ctx, b, m, 5)
			}
		}
	}
}

// finish looks at the end of it all.
func (s *soak) finish(t *testing.T, p *process) {
	t.Helper()
	js, ctx := jetStream(t, connect(t, p.URL))
	for _, b := range s.books {
		stored := storedIn(t, ctx, js, b.stream)
		if b.stream != "L" && len(stored) > 0 {
			s.problem("%s holds %d messages that nobody wants", b.stream, len(stored))
		}
		for seq := range s.acked[b.stream] {
			if !b.delivered[seq] {
				s.problem("%s > %s: sequence %d was never delivered", b.stream, b.name, seq)
			}
		}
	}
	kv, err := js.KeyValue(ctx, "K")
	noErr(t, err)
	e, err := kv.Get(ctx, "n")
	noErr(t, err)
	if n, _ := strconv.ParseUint(string(e.Value()), 10, 64); n < s.added || n > s.added+s.maybe {
		s.problem("the key is %d after %d increments and %d whose fate is unknown", n, s.added, s.maybe)
	}
	if os.Getenv("EHDB_E2E_BIN") != "" || os.Getenv("EHDB_E2E_BUS") != "" {
		return // another server's monitoring
	}
	r, err := http.Get(p.Monitor + "/metrics") //nolint:noctx // loopback
	noErr(t, err)
	defer r.Body.Close()
	page, err := io.ReadAll(r.Body)
	noErr(t, err)
	if !strings.Contains(string(page), "\nehdb_consumer_miscounted_total 0\n") {
		s.problem("the gateway's own watch: a consumer had lost count")
	}
	if !strings.Contains(string(page), "\nehdb_consumer_stalled 0\n") {
		s.problem("the gateway's own watch: ehdb_consumer_stalled is not 0")
	}
}

// storedIn returns the sequences a stream holds.
func storedIn(t *testing.T, ctx context.Context, js jetstream.JetStream, name string) map[uint64]bool { //nolint:revive // t first
	t.Helper()
	st, err := js.Stream(ctx, name)
	noErr(t, err)
	i, err := st.Info(ctx, jetstream.WithDeletedDetails(true))
	noErr(t, err)
	stored := map[uint64]bool{}
	for seq := i.State.FirstSeq; seq != 0 && seq <= i.State.LastSeq; seq++ {
		stored[seq] = true
	}
	for _, seq := range i.State.Deleted {
		delete(stored, seq)
	}
	if uint64(len(stored)) != i.State.Msgs {
		t.Errorf("%s: %d messages, but %d sequences", name, i.State.Msgs, len(stored))
	}
	return stored
}
