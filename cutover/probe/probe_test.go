package probe_test

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/cutover/parity"
	"github.com/noetl/ehdb-gateway/cutover/probe"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi"
	"github.com/noetl/ehdb-gateway/storage"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// sides are a nats-server and the gateway's own JetStream.
func sides(t *testing.T) (there, here probe.Side) {
	t.Helper()
	ns, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
	})
	check(t, err)
	ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	nc, err := nats.Connect(ns.ClientURL())
	check(t, err)
	t.Cleanup(nc.Close)
	router := bus.NewRouter()
	svc := jetstreamapi.New(jetstreamapi.Options{
		Bus: router, Storage: storage.Options{Dir: t.TempDir(), Shards: 1}, ServerName: "S", ServerID: "SID", MaxPayload: 1 << 20,
	})
	check(t, svc.Start(t.Context()))
	t.Cleanup(func() { check(t, svc.Stop(context.Background())) })
	own, err := probe.NewOwn(router, "$G")
	check(t, err)
	t.Cleanup(own.Close)
	return probe.Servers(nc), own
}

var kinds = map[string]server.StreamConfig{
	"plain": {
		Name: "ORDERS", Subjects: []string{"orders.>"}, Storage: server.FileStorage, Replicas: 3, MaxConsumers: -1, MaxMsgs: -1,
		MaxBytes: -1, MaxMsgsPer: -1, MaxMsgSize: -1, Duplicates: 2 * time.Minute, AllowDirect: true,
	},
	"kv": {
		Name: "KV_B", Subjects: []string{"$KV.B.>"}, Storage: server.FileStorage, MaxMsgsPer: 3, Duplicates: time.Minute,
		AllowRollup: true, DenyDelete: true, AllowDirect: true, Discard: server.DiscardNew, MaxBytes: -1, MaxMsgs: -1,
	},
	"work queue": {
		Name: "W", Subjects: []string{"w.*", "v"}, Retention: server.WorkQueuePolicy, Storage: server.MemoryStorage,
		MaxAge: time.Hour, MaxBytes: 1 << 30, Duplicates: time.Minute,
	},
}

var consumers = []server.ConsumerConfig{
	{Durable: "a", AckPolicy: server.AckExplicit, AckWait: time.Second, MaxDeliver: 3, FilterSubject: "orders.a"},
	{Name: "b", DeliverSubject: "d", AckPolicy: server.AckNone, FlowControl: true, Heartbeat: time.Second, FilterSubject: "orders.b"},
	{Durable: "c", AckPolicy: server.AckAll, BackOff: []time.Duration{1, 2}, MaxDeliver: 4, FilterSubject: "orders.c"},
}

// The gateway answers as nats-server does for streams of all kinds.
func TestAnswersAlike(t *testing.T) {
	there, here := sides(t)
	for name, cfg := range kinds {
		var with []server.ConsumerConfig
		if name == "plain" {
			with = consumers
		}
		twin := probe.NewTwin(cfg, with, "EHDB_SCRATCH_TWIN", "_EHDB.twin")
		var api parity.API
		got, err := twin.Compare(t.Context(), there, here, &api)
		check(t, err)
		if got.Differ > 0 || got.Equal < 20 || api.Stats().Equal != uint64(got.Equal) {
			t.Errorf("%s: %d equal: %+v", name, got.Equal, got.Differences)
		}
	}
}

// altered is a side that answers otherwise.
type altered struct {
	probe.Side
	change func(m *probe.Message)
}

func (a altered) Request(ctx context.Context, subject string, header, data []byte) (*probe.Message, error) {
	m, err := a.Side.Request(ctx, subject, header, data)
	if err == nil {
		a.change(m)
	}
	return m, err
}

// One code or one field that is another is found, and what asks for it is named.
func TestAnswersDiffer(t *testing.T) {
	there, here := sides(t)
	for name, change := range map[string][2]string{
		"code": {`"err_code":10014`, `"err_code":10015`}, "field": {`"num_waiting"`, `"waiting"`}, "type": {`"num_pending":0`, `"num_pending":"0"`},
	} {
		twin := probe.NewTwin(kinds["plain"], consumers, "EHDB_SCRATCH_TWIN", "_EHDB.twin")
		var api parity.API
		got, err := twin.Compare(t.Context(), there, altered{here, func(m *probe.Message) {
			m.Data = bytes.ReplaceAll(m.Data, []byte(change[0]), []byte(change[1]))
		}}, &api)
		check(t, err)
		if got.Differ == 0 || len(got.Differences) != got.Differ || len(got.Differences[0].Differences) == 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Both sides are measured, and one that is slower is seen to be.
func TestLatency(t *testing.T) {
	there, here := sides(t)
	l := probe.NewLatency("EHDB_SCRATCH_LAT", "_EHDB.latency.probe")
	slow := slowed{here, 20 * time.Millisecond}
	check(t, l.Measure(t.Context(), there, slow, 20, time.Millisecond))
	a, b := l.Snapshot()
	for _, s := range []*probe.Times{&a, &b} {
		if s.Ack.N() != 20 || s.Deliver.N() < 15 || s.At.IsZero() {
			t.Errorf("%d acks, %d deliveries", s.Ack.N(), s.Deliver.N())
		}
	}
	if d := b.Ack.Quantiles(0.5)[0]; d < 20*time.Millisecond || d < a.Ack.Quantiles(0.5)[0] {
		t.Errorf("p50 %v", d)
	}
	if err := l.Measure(t.Context(), there, slow, 1, 0); err != nil { // the streams are gone and can be made again
		t.Error(err)
	}
}

// The way through something that takes its time is longer by that.
func TestRoundTrips(t *testing.T) {
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	check(t, err)
	ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	direct, err := nats.Connect(ns.ClientURL())
	check(t, err)
	t.Cleanup(direct.Close)
	through, err := nats.Connect(ns.ClientURL(), nats.SetCustomDialer(slowDialer{}))
	check(t, err)
	t.Cleanup(through.Close)
	trips, err := probe.RoundTrips(t.Context(), direct, through, 10, time.Millisecond)
	check(t, err)
	if d := trips.Overhead(0.5, 0.99); d[0] < 10*time.Millisecond || d[1] < d[0]/2 || trips.Through.N() != 10 || trips.Direct.N() != 10 {
		t.Errorf("%v", d)
	}
	trips, err = probe.RoundTrips(t.Context(), through, direct, 3, time.Millisecond)
	check(t, err)
	if d := trips.Overhead(0.5); d[0] != 0 {
		t.Errorf("%v", d)
	}
}

// slowDialer makes connections on which each read takes some time more.
type slowDialer struct{}

func (slowDialer) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return slowConn{c}, err
}

type slowConn struct{ net.Conn }

func (c slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	time.Sleep(15 * time.Millisecond)
	return n, err
}

type slowed struct {
	probe.Side
	by time.Duration
}

func (s slowed) Request(ctx context.Context, subject string, header, data []byte) (*probe.Message, error) {
	time.Sleep(s.by)
	return s.Side.Request(ctx, subject, header, data)
}
