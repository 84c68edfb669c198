package flip_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/reverse"
)

// TestSweep: fillers that the servers have again are deleted, below the copy's first message and within it; what
// clients have published is not, though the copy lacks it.
func TestSweep(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	js, err := r.conn.JetStream()
	check(t, err)
	_, err = js.AddStream(&nats.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}})
	check(t, err)
	publish := func(subject, data string, origin bool) {
		t.Helper()
		m := nats.NewMsg(subject)
		if m.Data = []byte(data); origin {
			m.Header.Set(cutover.HeaderOrigin, "1")
		}
		_, err := js.PublishMsg(m)
		check(t, err)
	}
	filler := func(seq int) string { return fmt.Sprint("orders.ehdb-filler-", seq) }
	publish(filler(1), "", true)
	publish("orders.a", "", true) // published by the chain, and removed here since
	publish("orders.a", "x", true)
	publish(filler(4), "", true)
	publish(filler(5), "", false) // a client's
	publish(filler(6), "x", true) // likewise, published by the chain
	publish("orders.a", "x", true)
	up := r.own.Stream("ORDERS")
	info, err := up.Info(ctx)
	check(t, err)
	copied, err := r.svc.Cutover().Create(ctx, "$G", &info.Config, info.Created, 3)
	check(t, err)
	for _, seq := range []uint64{3, 7} {
		rec, err := up.Get(ctx, seq)
		check(t, err)
		_, _, err = copied.Apply([]cutover.Record{*rec})
		check(t, err)
	}
	check(t, copied.Durable(ctx, 7))
	n, err := reverse.Sweep(ctx, r.own.NATS(), copied, up)
	check(t, err)
	st, err := up.State(ctx, true)
	check(t, err)
	if n != 2 || st.FirstSeq != 2 || fmt.Sprint(st.Deleted) != "[4]" {
		t.Errorf("%d deleted; the servers begin at %d and lack %v", n, st.FirstSeq, st.Deleted)
	}
	if n, err = reverse.Sweep(ctx, r.own.NATS(), copied, up); n != 0 || err != nil {
		t.Errorf("once more: %d, %v", n, err)
	}
}
