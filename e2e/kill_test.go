package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// rounds is how often the kill tests kill: a few in the ordinary run, fifty in the slow suite.
func rounds() int {
	if os.Getenv("EHDB_SLOW") != "" {
		return 50
	}
	return 4
}

// ledger is what the clients know for certain: what was acknowledged to them, and what they acknowledged.
type ledger struct {
	mu        sync.Mutex
	published map[uint64]string // sequence -> data, for each PubAck received
	maybe     map[string]bool   // data sent
	confirmed map[uint64]bool   // sequences whose ack was confirmed
	problems  []string
}

func newLedger() *ledger {
	return &ledger{published: map[uint64]string{}, maybe: map[string]bool{}, confirmed: map[uint64]bool{}}
}

func (l *ledger) problem(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.problems) < 20 {
		l.problems = append(l.problems, fmt.Sprintf(format, args...))
	}
}

func (l *ledger) sent(data string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maybe[data] = true
}

func (l *ledger) acked(seq uint64, data string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, dup := l.published[seq]; dup && len(l.problems) < 20 {
		l.problems = append(l.problems, fmt.Sprintf("sequence %d was acknowledged for %q and for %q", seq, old, data))
	}
	l.published[seq] = data
}

// TestKillLosesNothing kills the gateway with SIGKILL at random moments under load. After each restart every acknowledged
// message is there with its bytes and its sequence, nothing is there that nobody sent, no confirmed ack is delivered
// again, and the first delivery comes within three seconds.
func TestKillLosesNothing(t *testing.T) {
	dir, l := t.TempDir(), newLedger()
	p := startGateway(t, dir)
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "K", Subjects: []string{"k.>"}})
	noErr(t, err)
	_, err = js.CreateConsumer(ctx, "K", jetstream.ConsumerConfig{
		Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxAckPending: 5000,
	})
	noErr(t, err)
	for round := range rounds() {
		p = endUnderLoad(t, p, l, round, (*process).Kill)
		verify(t, p, l)
		if len(l.problems) > 0 {
			t.Fatalf("round %d:\n%s", round, strings.Join(l.problems, "\n"))
		}
	}
	if len(l.published) == 0 || len(l.confirmed) == 0 {
		t.Fatalf("nothing was shown: %d acknowledged, %d confirmed", len(l.published), len(l.confirmed))
	}
	t.Logf("%d rounds: %d acknowledged, %d confirmed, 0 lost", rounds(), len(l.published), len(l.confirmed))
}

// endUnderLoad publishes and consumes, ends the process at a random moment and starts it again.
func endUnderLoad(t *testing.T, p *process, l *ledger, round int, end func(*process)) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { publisher(ctx, p.URL, l, fmt.Sprintf("%d.%d", round, i)) })
	}
	for range 2 {
		wg.Go(func() { consumer(ctx, p.URL, l) })
	}
	time.Sleep(time.Duration(100+rand.IntN(500)) * time.Millisecond)
	end(p)
	cancel()
	wg.Wait()
	start := time.Now()
	p = startGateway(t, p.dir)
	firstDelivery(t, p, start)
	return p
}

// firstDelivery publishes one message and demands that the restarted gateway delivers something soon.
func firstDelivery(t *testing.T, p *process, start time.Time) {
	t.Helper()
	js, ctx := jetStream(t, connect(t, p.URL))
	c, err := js.OrderedConsumer(ctx, "K", jetstream.OrderedConsumerConfig{})
	noErr(t, err)
	m, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
	noErr(t, err)
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("the first delivery (%s) took %v after the restart", m.Subject(), took)
	}
}

// publisher publishes until ctx ends or the connection breaks: one at a time, or several at once for names that end in an
// even digit.
func publisher(ctx context.Context, url string, l *ledger, name string) {
	async := (name[len(name)-1]-'0')%2 == 0
	nc, err := nats.Connect(url, nats.MaxReconnects(0))
	if err != nil {
		return // the server is gone already
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(256))
	if err != nil {
		l.problem("%v", err)
		return
	}
	type promise struct {
		data string
		f    jetstream.PubAckFuture
	}
	var open []promise
	for n := 0; ctx.Err() == nil && !nc.IsClosed(); n++ {
		data := fmt.Sprintf("%s.%d", name, n)
		l.sent(data)
		if !async {
			pctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			if a, err := js.Publish(pctx, "k."+name, []byte(data)); err == nil {
				l.acked(a.Sequence, data)
			}
			cancel()
			continue
		}
		if f, err := js.PublishAsync("k."+name, []byte(data)); err == nil {
			open = append(open, promise{data, f})
		}
		if n%50 == 49 { // the whole stream is read again after each round: it must not grow out of hand
			time.Sleep(5 * time.Millisecond)
		}
	}
	for _, o := range open {
		select {
		case a := <-o.f.Ok():
			l.acked(a.Sequence, o.data)
		default: // never acknowledged: it may be there or not
		}
	}
}

func consumer(ctx context.Context, url string, l *ledger) {
	nc, err := nats.Connect(url, nats.MaxReconnects(0))
	if err != nil {
		return // the server is gone already
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		l.problem("%v", err)
		return
	}
	c, err := js.Consumer(ctx, "K", "C")
	if err != nil {
		return
	}
	for ctx.Err() == nil && !nc.IsClosed() {
		batch, err := c.Fetch(50, jetstream.FetchMaxWait(200*time.Millisecond))
		if err != nil {
			return
		}
		for m := range batch.Messages() {
			handle(ctx, l, m)
		}
	}
}

// handle checks one delivery against the ledger, acknowledges it, and reports whether that was confirmed.
func handle(ctx context.Context, l *ledger, m jetstream.Msg) bool {
	meta, err := m.Metadata()
	if err != nil {
		l.problem("%v", err)
		return false
	}
	seq := meta.Sequence.Stream
	l.mu.Lock()
	again := l.confirmed[seq]
	l.mu.Unlock()
	if again {
		l.problem("sequence %d was delivered again (delivery %d) after its ack was confirmed", seq, meta.NumDelivered)
	}
	actx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if m.DoubleAck(actx) != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.confirmed[seq] = true
	return true
}

// verify reads the whole stream and holds it against the ledger.
func verify(t *testing.T, p *process, l *ledger) {
	t.Helper()
	js, ctx := jetStream(t, connect(t, p.URL))
	s, err := js.Stream(ctx, "K")
	noErr(t, err)
	state := s.CachedInfo().State
	stored := map[uint64]string{}
	c, err := js.OrderedConsumer(ctx, "K", jetstream.OrderedConsumerConfig{})
	noErr(t, err)
	for uint64(len(stored)) < state.Msgs {
		batch, err := c.Fetch(int(min(5000, state.Msgs-uint64(len(stored)))), jetstream.FetchMaxWait(5*time.Second))
		noErr(t, err)
		n := 0
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			noErr(t, err)
			stored[meta.Sequence.Stream] = string(m.Data())
			n++
		}
		if n == 0 {
			t.Fatalf("read %d of %d messages: %v", len(stored), state.Msgs, batch.Error())
		}
	}
	l.mu.Lock()
	published := l.published
	l.mu.Unlock()
	for seq, data := range published {
		if got, ok := stored[seq]; !ok || got != data {
			l.problem("sequence %d: acknowledged %q, stored %q (there: %v)", seq, data, got, ok)
		}
	}
	for seq, data := range stored {
		if !l.maybe[data] {
			l.problem("sequence %d holds %q, which nobody sent", seq, data)
		}
	}
	if state.FirstSeq != 1 || state.LastSeq != state.Msgs {
		l.problem("sequences are not gapless: %d..%d with %d messages", state.FirstSeq, state.LastSeq, state.Msgs)
	}
}

// TestSecondProcessIsRefused starts a second gateway on the same data directory.
func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	p := startGateway(t, dir)
	second, err := launch(dir)
	if err == nil {
		second.Kill()
		t.Fatal("the second gateway started")
	}
	if pid := fmt.Sprint(p.cmd.Process.Pid); !strings.Contains(second.Log(), pid) {
		t.Errorf("the refusal does not name the first process %s:\n%s", pid, second.Log())
	}
	if _, err := nats.Connect(p.URL); err != nil {
		t.Errorf("the first is harmed: %v", err)
	}
}

// TestGracefulStop publishes up to a SIGTERM: the exit is clean and everything acknowledged is there afterwards.
func TestGracefulStop(t *testing.T) {
	dir, l := t.TempDir(), newLedger()
	p := startGateway(t, dir)
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "K", Subjects: []string{"k.>"}})
	noErr(t, err)
	pubs, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { publisher(pubs, p.URL, l, fmt.Sprint("g.", i)) })
	}
	time.Sleep(300 * time.Millisecond)
	if err := p.Stop(); err != nil {
		t.Errorf("exit: %v", err)
	}
	cancel()
	wg.Wait()
	p = startGateway(t, dir)
	verify(t, p, l)
	if len(l.problems) > 0 || len(l.published) == 0 {
		t.Fatal(errors.New(strings.Join(l.problems, "\n")), len(l.published))
	}
}
