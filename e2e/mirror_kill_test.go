package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What a mirror and sources have copied is there after a SIGKILL, and nothing of it twice: in a mirror, in a stream, by
// way of an interest stream that deletes what was copied on, and in a work queue that deletes what was done.
func TestKillKeepsCopiesExact(t *testing.T) {
	dir, l := t.TempDir(), newLedger()
	p := startGateway(t, dir)
	change(t, connect(t, p.URL), `
		STREAM.CREATE.K {"name":"K","subjects":["k.>"]}
		STREAM.CREATE.M {"name":"M","mirror":{"name":"K"}}
		STREAM.CREATE.S {"name":"S","sources":[{"name":"K"}]}
		STREAM.CREATE.Z {"name":"Z","sources":[{"name":"I"}]}
		STREAM.CREATE.I {"name":"I","retention":"interest","sources":[{"name":"K"}]}
		STREAM.CREATE.W {"name":"W","retention":"workqueue","sources":[{"name":"K"}]}`)
	done := &workDone{by: make(map[string]uint64)}
	linked(t, connect(t, p.URL), "Z") // from here on the interest stream has somebody who wants its messages
	for round := range rounds() {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() { publisher(ctx, p.URL, l, fmt.Sprintf("%d.%d", round, i)) })
		}
		wg.Go(func() { done.work(ctx, p.URL) })
		time.Sleep(time.Duration(200+rand.IntN(400)) * time.Millisecond)
		p.Kill()
		cancel()
		wg.Wait()
		p = startGateway(t, dir)
		checkCopies(t, connect(t, p.URL))
		if len(done.problems) > 0 {
			t.Fatalf("round %d: %s", round, strings.Join(done.problems, "\n"))
		}
	}
	t.Logf("%d rounds: %d published, %d worked off", rounds(), len(l.published), len(done.by))
}

// workDone is what came out of the work queue: the sequence it had there, by what it was copied from.
type workDone struct {
	by       map[string]uint64
	problems []string
}

// work takes from the work queue until ctx ends or the connection breaks.
func (d *workDone) work(ctx context.Context, url string) {
	nc, err := nats.Connect(url, nats.MaxReconnects(0))
	if err != nil {
		return // the server is gone already
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return
	}
	c, err := js.CreateOrUpdateConsumer(ctx, "W", jetstream.ConsumerConfig{Durable: "C", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		return
	}
	for ctx.Err() == nil && !nc.IsClosed() {
		batch, err := c.Fetch(100, jetstream.FetchMaxWait(100*time.Millisecond))
		if err != nil {
			return
		}
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				continue
			}
			source := m.Headers().Get("Nats-Stream-Source")
			if at, ok := d.by[source]; ok && at != meta.Sequence.Stream {
				d.problems = append(d.problems, fmt.Sprintf("%q is in the work queue as %d and as %d", source, at, meta.Sequence.Stream))
			}
			d.by[source] = meta.Sequence.Stream
			_ = m.Ack() // one that is lost comes again, with the same sequence
		}
	}
}

// checkCopies waits until the streams have copied everything, and demands that they have it once and in order.
func checkCopies(t *testing.T, nc *nats.Conn) {
	t.Helper()
	info := func(stream string) *server.StreamInfo {
		var resp server.JSApiStreamInfoResponse
		noErr(t, json.Unmarshal(request(t, nc, "$JS.API.STREAM.INFO."+stream, ""), &resp))
		if resp.Error != nil {
			t.Fatal(resp.Error)
		}
		return resp.StreamInfo
	}
	last := info("K").State.LastSeq
	for _, name := range []string{"M", "S", "Z", "I", "W"} {
		within(t, 20*time.Second, func() error {
			if st := info(name).State; st.LastSeq != last {
				return fmt.Errorf("%s ends at %d, its origin at %d", name, st.LastSeq, last)
			}
			return nil
		})
	}
	within(t, 20*time.Second, func() error {
		if st := info("I").State; st.Msgs != 0 {
			return fmt.Errorf("%d messages are left in the interest stream", st.Msgs)
		}
		return nil
	})
	for _, name := range []string{"M", "S", "Z"} {
		if st := info(name).State; st.Msgs != last || st.FirstSeq != 1 {
			t.Errorf("%s has %d messages from %d on, of %d", name, st.Msgs, st.FirstSeq, last)
		}
	}
	want := everyHeader(t, nc, "K")
	for _, name := range []string{"S", "Z"} {
		for i, source := range everyHeader(t, nc, name) {
			f := strings.Fields(source.header)
			if len(f) < 2 || f[1] != fmt.Sprint(i+1) || source.data != want[i].data {
				t.Fatalf("%s: message %d has source %q and data %q, want sequence %d and %q",
					name, i+1, source.header, source.data, i+1, want[i].data)
			}
		}
	}
	for i, m := range everyHeader(t, nc, "M") {
		if m.data != want[i].data {
			t.Fatalf("M: message %d is %q, want %q", i+1, m.data, want[i].data)
		}
	}
}

type copied struct{ header, data string }

// everyHeader reads a stream: of each message where it comes from, and its data.
func everyHeader(t *testing.T, nc *nats.Conn, stream string) (out []copied) {
	t.Helper()
	js, ctx := jetStream(t, nc)
	s, err := js.Stream(ctx, stream)
	noErr(t, err)
	n := int(s.CachedInfo().State.Msgs) //nolint:gosec // a test's
	c, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
	noErr(t, err)
	for len(out) < n {
		batch, err := c.Fetch(min(5000, n-len(out)), jetstream.FetchMaxWait(5*time.Second))
		noErr(t, err)
		before := len(out)
		for m := range batch.Messages() {
			out = append(out, copied{m.Headers().Get("Nats-Stream-Source"), string(m.Data())})
		}
		if len(out) == before {
			t.Fatalf("%s: read %d of %d messages: %v", stream, len(out), n, batch.Error())
		}
	}
	return out
}
