package consumer

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/internal/bus/bustest"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const account = "$G"

// testStream is the part of a stream that a consumer sees, over a real log in memory.
type testStream struct {
	cfg server.StreamConfig
	log *storage.Log
}

func (s *testStream) Name() string                { return s.cfg.Name }
func (s *testStream) Config() server.StreamConfig { return s.cfg }
func (s *testStream) Log() *storage.Log           { return s.log }

// rig is everything a consumer needs, in memory.
type rig struct {
	t      testing.TB
	store  *storage.Store
	bus    *bus.Router
	sched  *Scheduler
	stream *testStream
	wakes  atomic.Pointer[[]*Consumer]
	seq    uint64
	client bus.Session
	sink   *bustest.Sink
}

func newRig(tb testing.TB, workers int) *rig {
	tb.Helper()
	st, err := storage.Open(context.Background(), storage.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	log, err := st.CreateLog(storage.LogSpec{Shards: []storage.ShardID{0}, Name: "S"})
	if err != nil {
		tb.Fatal(err)
	}
	r := &rig{t: tb, store: st, bus: bus.NewRouter(), sink: new(bustest.Sink)}
	r.sched = NewScheduler(r.bus, workers)
	r.stream = &testStream{cfg: server.StreamConfig{Name: "S", Subjects: []string{"a.>"}, Replicas: 1}, log: log}
	r.wakes.Store(new([]*Consumer))
	log.OnVisible(func(v uint64, _ error) {
		for _, c := range *r.wakes.Load() {
			c.Wake(v)
		}
	})
	r.client, err = r.bus.Open(bus.KindClient, bus.Identity{Account: account, ID: 1}, r.sink)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		for _, c := range *r.wakes.Load() {
			c.Stop(409, jsapi.StatusShutdown)
		}
		r.sched.Close()
		r.client.Close()
		_ = st.Close()
	})
	return r
}

// store appends a message and waits until it is visible.
func (r *rig) put(subject, data string) {
	r.t.Helper()
	r.seq++
	done := make(chan error, 1)
	rec := storage.Record{Seq: r.seq, Time: time.Now().UnixNano(), Key: []byte(subject), Data: []byte(data)}
	if err := r.stream.log.Append(&rec, func(err error) { done <- err }); err != nil {
		r.t.Fatal(err)
	}
	if err := <-done; err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) options(name string, cfg server.ConsumerConfig, state *storage.StateLog) Options {
	r.t.Helper()
	if err := Complete(&cfg, &r.stream.cfg, Limits{}, false); err != nil {
		r.t.Fatal(err)
	}
	if state == nil {
		var err error
		if state, err = r.store.CreateStateLog(0, name, false); err != nil {
			r.t.Fatal(err)
		}
	}
	return Options{
		Account: account, Name: name, Config: cfg, Created: time.Now(), Stream: r.stream, State: state, Bus: r.bus,
		Sched: r.sched,
	}
}

func (r *rig) start(o Options) *Consumer {
	r.t.Helper()
	c, err := New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	all := append(append([]*Consumer(nil), *r.wakes.Load()...), c)
	r.wakes.Store(&all)
	return c
}

func (r *rig) consumer(name string, cfg server.ConsumerConfig) *Consumer {
	r.t.Helper()
	return r.start(r.options(name, cfg, nil))
}

func (r *rig) subscribe(subject string) {
	r.t.Helper()
	if _, err := r.client.Subscribe(subject, subject, ""); err != nil {
		r.t.Fatal(err)
	}
}

// wait returns what the client got once it is n messages.
func (r *rig) wait(n int) []bustest.Received {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	got, err := r.sink.Wait(ctx, n)
	if err != nil {
		r.t.Fatalf("want %d messages, got:\n%s", n, show(r.sink.Take()))
	}
	return got
}

func show(got []bustest.Received) string {
	var b strings.Builder
	for _, g := range got {
		fmt.Fprintf(&b, "%s %s reply=%s hdr=%q %q\n", g.SID, g.Msg.Subject, g.Msg.Reply, g.Msg.Header, g.Msg.Data)
	}
	return b.String()
}

func ackID(tb testing.TB, reply []byte) AckID {
	tb.Helper()
	a, ok := jsapi.ParseAckSubject(reply)
	if !ok {
		tb.Fatalf("not an ack subject: %q", reply)
	}
	return AckID{a.Delivered, a.StreamSeq, a.ConsumerSeq, a.Time, a.Pending}
}

func TestPullAndAck(t *testing.T) {
	r := newRig(t, 2)
	c := r.consumer("C", server.ConsumerConfig{Durable: "C", AckPolicy: server.AckExplicit})
	r.subscribe("inbox")
	r.subscribe("confirm")
	for i := range 3 {
		r.put("a.b", fmt.Sprint(i))
	}
	c.Pull([]byte("inbox"), nil, []byte(`{"batch":2,"expires":1000000000}`))
	got := r.wait(2)
	for i, g := range got {
		if string(g.Msg.Subject) != "a.b" || string(g.Msg.Data) != fmt.Sprint(i) {
			t.Errorf("message %d: %s", i, show(got))
		}
		id := ackID(t, g.Msg.Reply)
		want := AckID{1, uint64(i + 1), uint64(i + 1), id.Time, uint64(2 - i)}
		if id != want {
			t.Errorf("ack subject %q: %+v, want %+v", g.Msg.Reply, id, want)
		}
	}
	if i := c.Info(); i.NumAckPending != 2 || i.NumPending != 1 || i.Delivered.Stream != 2 || i.AckFloor.Stream != 0 {
		t.Errorf("info %+v", i)
	}
	c.Ack(ackID(t, got[0].Msg.Reply), nil, []byte("confirm"))
	if g := r.wait(1)[0]; g.SID != "confirm" || len(g.Msg.Data) != 0 || len(g.Msg.Header) != 0 {
		t.Errorf("confirmation: %s", show([]bustest.Received{g}))
	}
	if i := c.Info(); i.NumAckPending != 1 || i.AckFloor.Stream != 1 || i.AckFloor.Consumer != 1 {
		t.Errorf("info after the ack %+v", i)
	}
	c.Pull([]byte("inbox"), nil, []byte("5"))
	if g := r.wait(1)[0]; string(g.Msg.Data) != "2" {
		t.Errorf("third message: %s", show([]bustest.Received{g}))
	}
	r.put("a.c", "late")
	if g := r.wait(1)[0]; string(g.Msg.Data) != "late" {
		t.Errorf("a message that came later: %s", show([]bustest.Received{g}))
	}
}

func TestInitialInfoIsFromBeforeTheFirstDelivery(t *testing.T) {
	r := newRig(t, 2)
	r.subscribe("deliver")
	for range 3 {
		r.put("a.b", "x")
	}
	c := r.consumer("C", server.ConsumerConfig{Durable: "C", DeliverSubject: "deliver", AckPolicy: server.AckExplicit})
	r.wait(3)
	if i := c.InitialInfo(); i.NumPending != 3 || i.Delivered.Consumer != 0 || !i.PushBound {
		t.Errorf("initial info %+v", i)
	}
	if i := c.InitialInfo(); i.NumPending != 0 || i.Delivered.Consumer != 3 {
		t.Errorf("info afterwards %+v", i)
	}
}
