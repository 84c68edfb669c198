package flip_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover/flip"
)

// TestDownstream: a mirror and a stream with sources on the servers go on behind a flip of their origin: they get the
// messages that are published here by the reverse chain, with its sequences, and nothing of its marks is seen in them.
func TestDownstream(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	nc := r.connect(r.gw.ClientURL())
	js, err := nc.JetStream()
	check(t, err)
	for _, cfg := range []nats.StreamConfig{
		{Name: "ORDERS", Subjects: []string{"orders.>"}},
		{Name: "MIRROR", Mirror: &nats.StreamSource{Name: "ORDERS"}},
		{Name: "TOTAL", Sources: []*nats.StreamSource{{Name: "ORDERS"}}},
	} {
		_, err = js.AddStream(&cfg)
		check(t, err)
	}
	check(t, r.engine.Watch(ctx, orders, "test"))
	publish := func(n int) {
		t.Helper()
		for range n {
			_, err := js.Publish("orders.a", []byte("x"))
			check(t, err)
		}
	}
	publish(5)
	_, err = r.engine.Flip(ctx, orders, flip.MoveOptions{By: "test", Retries: 3})
	check(t, err)
	publish(5)
	for _, name := range []string{"MIRROR", "TOTAL"} {
		for {
			info, err := js.StreamInfo(name, nats.Context(ctx))
			check(t, err)
			if info.State.LastSeq == 10 && info.State.Msgs == 10 {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		sub, err := js.SubscribeSync("", nats.BindStream(name), nats.OrderedConsumer())
		check(t, err)
		for seq := uint64(1); seq <= 10; seq++ {
			m, err := sub.NextMsgWithContext(ctx)
			check(t, err)
			md, err := m.Metadata()
			check(t, err)
			var header bytes.Buffer
			for k, v := range m.Header {
				header.WriteString(k + ": " + strings.Join(v, ",") + "\n")
			}
			if md.Sequence.Stream != seq || string(m.Data) != "x" || strings.Contains(header.String(), "Ehdb-") ||
				strings.Contains(header.String(), nats.ExpectedLastSeqHdr) {
				t.Errorf("%s has %d at %d, with %q", name, md.Sequence.Stream, seq, header.String())
			}
		}
	}
	_, err = r.engine.Rollback(ctx, orders, flip.MoveOptions{By: "test", Retries: 3})
	check(t, err)
}
