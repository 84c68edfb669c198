package flip_test

import (
	"context"
	"fmt"
	"log/slog"
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

// TestHolesOfABucket: holes are holes on the servers too where clients may not delete messages, as in every bucket; and
// what is purged here goes from there.
func TestHolesOfABucket(t *testing.T) {
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	js, err := r.conn.JetStream()
	check(t, err)
	_, err = js.CreateKeyValue(&nats.KeyValueConfig{Bucket: "B", History: 5})
	check(t, err)
	up := r.own.Stream("KV_B")
	info, err := up.Info(ctx)
	check(t, err)
	if !info.Config.DenyDelete {
		t.Fatal("a bucket's messages can be deleted")
	}
	copied, err := r.svc.Cutover().Create(ctx, "$G", &info.Config, info.Created, 1)
	check(t, err)
	var batch []cutover.Record
	for _, x := range []struct {
		seq uint64
		key string
	}{{1, "a"}, {4, "b"}, {9, "a"}, {10, "b"}} {
		batch = append(batch, cutover.Record{
			Seq: x.seq, Subject: []byte("$KV.B." + x.key), Data: []byte("v"), Time: time.Now().UnixNano(),
		})
	}
	_, _, err = copied.Apply(batch)
	check(t, err)
	check(t, copied.Durable(ctx, 10))
	chain := reverse.NewChain(r.own.NATS(), copied, up, "KV_B", 1, slog.New(slog.DiscardHandler))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- chain.Run(running) }()
	for chain.Position() < 10 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	<-ended
	state := func() string {
		t.Helper()
		st, err := up.State(ctx, true)
		check(t, err)
		return fmt.Sprintf("%d to %d without %v", st.FirstSeq, st.LastSeq, st.Deleted)
	}
	if got := state(); got != "1 to 10 without [2 3 5 6 7 8]" {
		t.Fatalf("the servers have %s", got)
	}
	check(t, copied.Remove([]uint64{4}))
	check(t, copied.Durable(ctx, 10))
	if n, err := reverse.Prune(ctx, r.own.NATS(), copied, up, 10); n != 1 || err != nil {
		t.Errorf("%d removed, %v", n, err)
	}
	check(t, copied.Remove([]uint64{10})) // the only one of its key now
	check(t, copied.Remove([]uint64{9}))  // behind one that stays
	check(t, copied.Durable(ctx, 10))
	if n, err := reverse.Prune(ctx, r.own.NATS(), copied, up, 10); n != 1 || err != nil {
		t.Errorf("%d removed, %v", n, err)
	}
	if got := state(); got != "1 to 10 without [2 3 4 5 6 7 8 10]" {
		t.Errorf("in the end the servers have %s", got)
	}
}
