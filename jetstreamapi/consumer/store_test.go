package consumer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus/bustest"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// TestStateOnDisk: confirmed acks are there after the directory was opened again.
func TestStateOnDisk(t *testing.T) {
	dir := t.TempDir()
	st, err := storage.Open(context.Background(), storage.Options{Dir: dir, SegmentSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	state, err := st.CreateStateLog(0, "C", false)
	if err != nil {
		t.Fatal(err)
	}
	id := state.ID()
	r := newRig(t, 1)
	cfg := server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit}
	c := r.start(r.options("C", cfg, state))
	r.subscribe("inbox")
	r.subscribe("confirm")
	const n = 50
	r.fill(n, 10)
	c.Pull([]byte("inbox"), nil, fmt.Append(nil, n))
	for _, g := range r.wait(n) {
		if a := ackID(t, g.Msg.Reply); a.StreamSeq%2 == 0 {
			c.Ack(a, nil, []byte("confirm"))
		}
	}
	r.wait(n / 2)
	c.Stop(409, jsapi.StatusShutdown)
	eventually(t, "the consumer stops", func() bool { return c.run.state.Load() == stateIdle })
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err = storage.Open(context.Background(), storage.Options{Dir: dir, SegmentSize: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	if state, err = st.OpenStateLog(id); err != nil {
		t.Fatal(err)
	}
	c = r.start(r.options("C", cfg, state))
	defer c.Stop(409, "")
	if i := c.Info(); i.NumAckPending != n/2 || i.NumPending != 0 || i.Delivered.Consumer != n {
		t.Errorf("info %+v", i)
	}
	for seq := uint64(1); seq <= n; seq++ {
		if done := c.Done(seq, []byte("a.b")); done != (seq%2 == 0) {
			t.Errorf("Done(%d) is %v", seq, done)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
}

// slowDisk is a disk in memory whose syncs can be held up or made to fail.
type slowDisk struct {
	gate atomic.Pointer[chan struct{}] // syncs wait until it is closed; nil: they do not
	fail atomic.Bool
}

func (d *slowDisk) hook(op vfs.Op) error {
	if op.Kind != vfs.OpSync {
		return nil
	}
	if g := d.gate.Load(); g != nil {
		<-*g
	}
	if d.fail.Load() {
		return errors.New("the disk is broken")
	}
	return nil
}

func (d *slowDisk) hold() (release func()) {
	gate := make(chan struct{})
	d.gate.Store(&gate)
	return func() {
		d.gate.Store(nil)
		close(gate)
	}
}

// state returns a state log on d.
func (d *slowDisk) state(t *testing.T, queue int64) *storage.StateLog {
	t.Helper()
	st, err := storage.Open(context.Background(), storage.Options{
		Dir: "d", FS: vfs.NewFault(vfs.NewMem(), d.hook), Shards: 1, QueueBytes: queue, SegmentSize: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	state, err := st.CreateStateLog(0, "C", false)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// TestFullShard: when a shard takes no more changes, acks wait and are confirmed later; none is lost or refused.
func TestFullShard(t *testing.T) {
	disk := new(slowDisk)
	state := disk.state(t, 1<<10)
	r := newRig(t, 1)
	o := r.options("C", server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit, MaxAckPending: -1}, state)
	var released atomic.Int64
	o.Acked = func(uint64) { released.Add(1) }
	c := r.start(o)
	r.subscribe("inbox")
	r.subscribe("confirm")
	const n = 1000
	r.fill(n, 10)
	c.Pull([]byte("inbox"), nil, fmt.Append(nil, n))
	var ids []AckID
	for len(ids) < n {
		for _, g := range r.wait(1) {
			ids = append(ids, ackID(t, g.Msg.Reply))
		}
	}
	release := disk.hold()
	for _, id := range ids {
		c.Ack(id, nil, []byte("confirm"))
		if id.StreamSeq%50 == 0 {
			time.Sleep(time.Millisecond) // so that it is many changes, not one
		}
	}
	eventually(t, "the shard is full", func() bool { return c.Stats().Chokes > 0 })
	if r.sink.Len() != 0 {
		t.Errorf("confirmed before it is durable: %s", show(r.sink.Take()))
	}
	release()
	for confirmed := 0; confirmed < n; {
		for _, g := range r.wait(1) {
			if g.SID != "confirm" || len(g.Msg.Header) != 0 {
				t.Fatalf("after %d confirmations: %s", confirmed, show([]bustest.Received{g}))
			}
			confirmed++
		}
	}
	if i := c.Info(); i.AckFloor.Stream != n || i.NumAckPending != 0 {
		t.Errorf("info %+v", i)
	}
	eventually(t, "the stream is told", func() bool { return released.Load() == n })
}

// TestAckSyncWaitsForTheDisk: an ack is confirmed when it is durable, not before, and refused when it never will be.
func TestAckSyncWaitsForTheDisk(t *testing.T) {
	disk := new(slowDisk)
	state := disk.state(t, 0)
	r := newRig(t, 1)
	c := r.start(r.options("C", server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit}, state))
	r.subscribe("inbox")
	r.subscribe("confirm")
	r.put("a.b", "1")
	r.put("a.b", "2")
	c.Pull([]byte("inbox"), nil, []byte("2"))
	got := r.wait(2)
	first, second := ackID(t, got[0].Msg.Reply), ackID(t, got[1].Msg.Reply)

	release := disk.hold()
	c.Ack(first, nil, []byte("confirm"))
	eventually(t, "the ack is taken", func() bool { return c.Info().AckFloor.Stream == 1 })
	time.Sleep(30 * time.Millisecond)
	if r.sink.Len() != 0 {
		t.Fatalf("confirmed before it is durable: %s", show(r.sink.Take()))
	}
	release()
	if g := r.wait(1)[0]; g.SID != "confirm" || len(g.Msg.Header) != 0 {
		t.Errorf("confirmation: %s", show([]bustest.Received{g}))
	}
	disk.fail.Store(true)
	c.Ack(second, nil, []byte("confirm"))
	if g := r.wait(1)[0]; g.SID != "confirm" || !bytes.HasPrefix(g.Msg.Header, []byte("NATS/1.0 503")) {
		t.Errorf("an ack that could not be kept: %s", show([]bustest.Received{g}))
	}
}
