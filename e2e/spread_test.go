package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestSpreadStreamLosesNothing is TestKillLosesNothing for a stream whose subjects live in several shards: there is one
// sequence, without a gap, consumers see every message in its order, and a work queue beside it, spread as well, is
// worked off to the last message.
func TestSpreadStreamLosesNothing(t *testing.T) {
	if os.Getenv("EHDB_E2E_BIN") != "" {
		t.Skip("a nats-server has no shards")
	}
	dir, l := t.TempDir(), newLedger()
	args := spreadConfig(t, dir,
		`{ subject: "k.>", shards: all, tokens: 2 }, { subject: "q.*", shards: "1-3", tokens: 2 }`)
	p := startGateway(t, dir, args...)
	js, ctx := jetStream(t, connect(t, p.URL))
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "K", Subjects: []string{"k.>"}},
		{Name: "Q", Subjects: []string{"q.*"}, Retention: jetstream.WorkQueuePolicy},
	} {
		_, err := js.CreateStream(ctx, cfg)
		noErr(t, err)
		_, err = js.CreateConsumer(ctx, cfg.Name, jetstream.ConsumerConfig{
			Durable: "C", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxAckPending: 5000,
		})
		noErr(t, err)
	}
	queued := 0
	for round := range rounds() {
		queued += enqueue(ctx, t, js, queued)
		work, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() { publisher(work, p.URL, l, fmt.Sprintf("%d-%d", round, i)) })
		}
		wg.Go(func() { consumer(work, p.URL, l) })
		time.Sleep(time.Duration(100+rand.IntN(500)) * time.Millisecond)
		p.Kill()
		cancel()
		wg.Wait()
		p = startGateway(t, dir, args...)
		verify(t, p, l)
		if len(l.problems) > 0 {
			t.Fatalf("round %d:\n%s", round, strings.Join(l.problems, "\n"))
		}
		js, ctx = jetStream(t, connect(t, p.URL))
		queued -= workOff(ctx, t, js, queued/2)
	}
	queued -= workOff(ctx, t, js, queued)
	s, err := js.Stream(ctx, "Q")
	noErr(t, err)
	if left := s.CachedInfo().State.Msgs; queued != 0 || left != 0 {
		t.Errorf("%d messages are left in the queue", left)
	}
	spreadOver(t, p, 4)
	t.Logf("%d rounds: %d acknowledged, %d confirmed, 0 lost", rounds(), len(l.published), len(l.confirmed))
}

// spreadConfig writes a configuration with four shards and this subject map, and returns the arguments that name it.
func spreadConfig(t *testing.T, dir, rules string) []string {
	t.Helper()
	conf := filepath.Join(dir, "spread.conf")
	noErr(t, os.WriteFile(conf, fmt.Appendf(nil,
		"ehdb { allow_tmp_store: true, seal_max_age: \"100ms\", shards: 4, map: [ %s ] }", rules), 0o600))
	return []string{"-c", conf}
}

// spreadOver demands that at least so many of the four shards have something.
func spreadOver(t *testing.T, p *process, least int) {
	t.Helper()
	n := 0
	for shard := range 4 {
		if metric(t, p, fmt.Sprintf(`ehdb_feed_shard_committed{shard="%d"}`, shard)) > 0 {
			n++
		}
	}
	if n < least {
		t.Errorf("there is something in %d shards, want %d", n, least)
	}
}

// enqueue publishes messages to the queue, on subjects of all its shards; their data goes on from n.
func enqueue(ctx context.Context, t *testing.T, js jetstream.JetStream, n int) int {
	t.Helper()
	const more = 200
	for i := range more {
		_, err := js.Publish(ctx, fmt.Sprintf("q.%d", i%17), fmt.Appendf(nil, "%d", n+i))
		noErr(t, err)
	}
	return more
}

// workOff takes n messages from the queue, which come in the order of their sequences, and acknowledges them.
func workOff(ctx context.Context, t *testing.T, js jetstream.JetStream, n int) int {
	t.Helper()
	c, err := js.Consumer(ctx, "Q", "C")
	noErr(t, err)
	last := uint64(0)
	for done := 0; done < n; {
		batch, err := c.Fetch(n-done, jetstream.FetchMaxWait(5*time.Second))
		noErr(t, err)
		got := 0
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			noErr(t, err)
			if meta.Sequence.Stream <= last {
				t.Fatalf("message %d came after %d", meta.Sequence.Stream, last)
			}
			last = meta.Sequence.Stream
			noErr(t, m.DoubleAck(ctx))
			got++
		}
		if got == 0 {
			t.Fatalf("%d of %d messages came: %v", done, n, batch.Error())
		}
		done += got
	}
	return n
}
