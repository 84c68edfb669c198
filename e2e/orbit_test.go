package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// TestBatchClient uses the Go client's own batch publishers.
func TestBatchClient(t *testing.T) {
	compare(t, func(t *testing.T, e endpoint, tr *transcript) {
		js, ctx := jetStream(t, connect(t, e.URL))
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: "S", Subjects: []string{"s.>"}, AllowAtomicPublish: true, AllowBatchPublish: true,
		})
		noErr(t, err)
		ack := func(label string, a *jetstreamext.BatchAck, err error) {
			if a != nil {
				a.BatchID = ""
			}
			tr.JSON(label, a)
			tr.Add("%s: %v", label, err)
		}

		b, err := jetstreamext.NewBatchPublisher(js, jetstreamext.BatchFlowControl{AckFirst: true, AckEvery: 10, AckTimeout: 5 * time.Second})
		noErr(t, err)
		for i := range 99 {
			noErr(t, b.Add(fmt.Sprintf("s.%d", i%7), []byte("x")))
		}
		a, err := b.Commit(ctx, "s.last", []byte("y"), jetstreamext.WithBatchExpectLastSequencePerSubject(0))
		ack("atomic", a, err)

		list := []*nats.Msg{nats.NewMsg("s.a"), nats.NewMsg("s.b"), nats.NewMsg("s.c")}
		a, err = jetstreamext.PublishMsgBatch(ctx, js, list)
		ack("list", a, err)
		list[1].Header.Set("Nats-Expected-Last-Sequence", "1")
		a, err = jetstreamext.PublishMsgBatch(ctx, js, list)
		ack("list with a wrong sequence", a, err)

		for _, flow := range []uint16{1, 10, 500} {
			f, err := jetstreamext.NewFastPublisher(js, jetstreamext.FastPublishFlowControl{Flow: flow})
			noErr(t, err)
			for range 1500 {
				_, err = f.Add("s.fast", []byte("z"))
				noErr(t, err)
			}
			if flow == 10 {
				a, err = f.Close(ctx)
			} else {
				a, err = f.Commit(ctx, "s.fast", []byte("end"))
			}
			ack(fmt.Sprintf("fast, flow %d", flow), a, err)
		}
		s, err := js.Stream(ctx, "S")
		noErr(t, err)
		info, err := s.Info(ctx)
		noErr(t, err)
		tr.Add("%d messages", info.State.Msgs)
	})
}

// TestKillBatches kills the gateway with SIGKILL while it commits atomic batches: afterwards each is there as a whole or
// not at all, and those that were acknowledged are there.
func TestKillBatches(t *testing.T) {
	t.Run("one shard", func(t *testing.T) { killBatches(t, t.TempDir()) })
	t.Run("spread", func(t *testing.T) {
		dir := t.TempDir()
		killBatches(t, dir, spreadConfig(t, dir, `{ subject: "s.*.*.*.*", shards: all, tokens: 5 }`)...)
	})
}

func killBatches(t *testing.T, dir string, args ...string) {
	const size = 20
	p := startGateway(t, dir, args...)
	js, ctx := jetStream(t, connect(t, p.URL))
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, AllowAtomicPublish: true})
	noErr(t, err)
	var mu sync.Mutex
	acked := map[string]bool{}
	for round := range rounds() {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				for id := range commitBatches(p.URL, fmt.Sprintf("%d.%d", round, i), size) {
					mu.Lock()
					acked[id] = true
					mu.Unlock()
				}
			})
		}
		time.Sleep(time.Duration(50+rand.IntN(300)) * time.Millisecond)
		p.Kill()
		wg.Wait()
		p = startGateway(t, dir, args...)
		count := countBatches(t, p.URL)
		for id, n := range count {
			if n != size {
				t.Fatalf("round %d: %d messages of batch %s are there, of %d", round, n, id, size)
			}
		}
		for id := range acked {
			if count[id] != size {
				t.Fatalf("round %d: batch %s was acknowledged and is not there", round, id)
			}
		}
	}
	if len(args) > 0 {
		spreadOver(t, p, 4)
	}
	if len(acked) < 10 {
		t.Fatalf("only %d batches were acknowledged", len(acked))
	}
	t.Logf("%d batches acknowledged", len(acked))
}

// commitBatches commits batches until the connection breaks, and yields the names of those that were acknowledged.
func commitBatches(url, name string, size int) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		nc, err := nats.Connect(url, nats.MaxReconnects(0))
		if err != nil {
			return
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return
		}
		for i := 0; ; i++ {
			id := fmt.Sprintf("%s.%d", name, i)
			list := make([]*nats.Msg, size)
			for j := range list {
				list[j] = nats.NewMsg(fmt.Sprintf("s.%s.%d", id, j%17))
				list[j].Data = []byte(strings.Repeat("x", rand.IntN(300)))
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			_, err := jetstreamext.PublishMsgBatch(ctx, js, list)
			cancel()
			if err != nil || !yield(id) {
				return
			}
		}
	}
}

// countBatches returns how many messages there are of each batch.
func countBatches(t *testing.T, url string) map[string]int {
	t.Helper()
	js, ctx := jetStream(t, connect(t, url))
	s, err := js.Stream(ctx, "S")
	noErr(t, err)
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	noErr(t, err)
	out := map[string]int{}
	for subject, n := range info.State.Subjects {
		id := strings.TrimPrefix(subject[:strings.LastIndexByte(subject, '.')], "s.")
		out[id] += int(n)
	}
	if len(out) == 0 {
		noErr(t, errors.New("nothing is there"))
	}
	return out
}
