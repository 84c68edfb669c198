package relay_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/origin"
	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/cutover/upstream"
	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/gateway/auth"
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

// site is a NATS server, a gateway in front of it, and the gateway's own JetStream.
type site struct {
	nats   *server.Server
	o      *server.Options // of nats
	gw     *gateway.Server
	relay  *relay.Relay
	router *bus.Router
}

func newSite(t *testing.T, o *server.Options, own ...nats.Option) *site {
	t.Helper()
	if o == nil {
		o = &server.Options{}
	}
	o.Host, o.Port, o.NoLog, o.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, true
	o.JetStream, o.StoreDir = true, t.TempDir()
	ns, err := server.NewServer(o)
	check(t, err)
	ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	o.Port = ns.Addr().(*net.TCPAddr).Port
	s := &site{nats: ns, o: o, relay: relay.New(""), router: bus.NewRouter()}
	t.Cleanup(s.stopNATS)

	svc := jetstreamapi.New(jetstreamapi.Options{
		Bus: s.router, Storage: storage.Options{Dir: t.TempDir(), Shards: 1}, ServerName: "S", ServerID: "SID",
		MaxPayload: 1 << 20,
	})
	check(t, svc.Start(t.Context()))
	t.Cleanup(func() { check(t, svc.Stop(context.Background())) })

	to, err := url.Parse(ns.ClientURL())
	check(t, err)
	up, err := upstream.New(upstream.Options{URLs: []*url.URL{to}})
	check(t, err)
	svc.SetElsewhere(&elsewhere{origin.Over(connect(t, ns.ClientURL(), own...), origin.Options{Account: "$G"})})
	s.gw, err = gateway.New(gateway.Options{
		Server: &server.Options{
			Host: "127.0.0.1", Port: server.RANDOM_PORT,
			Websocket: server.WebsocketOpts{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoTLS: true},
		},
		Bus: s.router, Upstream: up, Director: s.relay,
		Memory: auth.NewMemory(time.Hour, false),
	})
	check(t, err)
	check(t, s.gw.Start())
	t.Cleanup(s.gw.Shutdown)
	return s
}

// elsewhere are the servers; ORDERS is served here.
type elsewhere struct{ conn *origin.Conn }

func (*elsewhere) Here(_, stream string) bool { return stream == "ORDERS" }

func (e *elsewhere) Names(ctx context.Context, _, subject string) ([]string, error) {
	return e.conn.Names(ctx, subject)
}

func (e *elsewhere) Infos(ctx context.Context, _, subject string, offset, n int) (*cutover.Infos, error) {
	return e.conn.Infos(ctx, subject, offset, n)
}

func (e *elsewhere) Usage(ctx context.Context, _ string) (*server.JetStreamAccountStats, error) {
	return e.conn.Usage(ctx)
}

func (s *site) stopNATS() {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
}

func (s *site) startNATS(t *testing.T) {
	t.Helper()
	ns, err := server.NewServer(s.o)
	check(t, err)
	ns.Start()
	if s.nats = ns; !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
}

func connect(t *testing.T, at string, o ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(at, o...)
	check(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// local makes a stream in the gateway's own JetStream.
func (s *site) request(t *testing.T, subject, body string) string {
	t.Helper()
	got := make(chan string, 1)
	p, err := s.router.Open(bus.KindService, bus.Identity{Account: "$G"}, sink(func(m *bus.Msg) { got <- string(m.Data) }))
	check(t, err)
	defer p.Close()
	_, err = p.Subscribe("1", "test.reply", "")
	check(t, err)
	p.Publish(&bus.Msg{Subject: []byte(subject), Reply: []byte("test.reply"), Data: []byte(body)})
	p.Flush()
	select {
	case a := <-got:
		return a
	case <-time.After(5 * time.Second):
		t.Fatal("no answer to " + subject)
		return ""
	}
}

type sink func(*bus.Msg)

func (f sink) Deliver(batch []bus.Delivery) <-chan struct{} {
	for i := range batch {
		f(&batch[i].Msg)
	}
	return nil
}

// notes collects what a scope reports.
type notes struct {
	mu    sync.Mutex
	acked []relay.Noted
	stray []string
}

func (n *notes) options() relay.Options {
	return relay.Options{
		Acknowledged: func(a *relay.Noted) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.acked = append(n.acked, *a)
		},
		Stray: func(_, reply []byte) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.stray = append(n.stray, string(reply))
		},
	}
}

const ordersConfig = `{"name":"ORDERS","subjects":["orders.>"],"allow_direct":true}`

// TestHandOver takes a stream from the servers to the gateway under clients that notice nothing.
func TestHandOver(t *testing.T) {
	s := newSite(t, nil)
	nc := connect(t, s.gw.ClientURL())
	js, err := nc.JetStream()
	check(t, err)
	_, err = js.AddStream(&nats.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	check(t, err)
	_, err = js.AddConsumer("ORDERS", &nats.ConsumerConfig{Durable: "W", AckPolicy: nats.AckExplicitPolicy})
	check(t, err)

	var n notes
	scope := relay.NewScope(cutover.Scope{Account: "$G", Stream: "ORDERS"}, n.options())
	table := func(epoch uint64, state relay.State) *relay.Table {
		tb, err := relay.NewTable(epoch, []relay.Route{{Scope: scope, State: state, Subjects: []string{"orders.>"}}}, state == relay.Here)
		check(t, err)
		return tb
	}
	s.relay.Use(table(1, relay.Upstream))
	for i := range 10 {
		ack, err := js.Publish("orders.a", fmt.Append(nil, i))
		check(t, err)
		if ack.Sequence != uint64(i+1) {
			t.Fatalf("ack %+v", ack)
		}
	}
	check(t, nc.Publish("orders.b", []byte("no answer wanted")))
	check(t, nc.Flush())
	sub, err := js.PullSubscribe("orders.>", "", nats.Bind("ORDERS", "W"))
	check(t, err)
	msgs, err := sub.Fetch(5)
	check(t, err)
	check(t, msgs[0].AckSync())
	check(t, msgs[2].AckSync())
	check(t, msgs[3].Nak())
	check(t, nc.Flush())

	n.mu.Lock()
	if len(n.acked) != 10 || n.acked[9].Seq != 10 || n.acked[9].Hash != cutover.Hash([]byte("orders.a"), nil, []byte("9")) {
		t.Errorf("noted %+v", n.acked)
	}
	n.mu.Unlock()
	if c := scope.Counts(); c.Acknowledged != 10 || c.Unasked != 1 || c.InFlight != 0 {
		t.Errorf("counts %+v", c)
	}
	pending, done, complete := scope.Outstanding("W")
	if len(pending) != 3 || len(done) != 2 || !complete || !pending[4].Naked || pending[2].Deliveries != 1 {
		t.Errorf("outstanding %+v, done %+v, %v", pending, done, complete)
	}
	if got := s.relay.Strangers("$G"); len(got) != 0 {
		t.Errorf("not known: %+v", got)
	}

	// The fence: what concerns the stream waits, the rest passes.
	s.relay.Use(table(2, relay.Held))
	core := connect(t, s.gw.ClientURL())
	heard, err := core.SubscribeSync("orders.>")
	check(t, err)
	check(t, core.Flush())
	published := make(chan *nats.PubAck, 1)
	go func() {
		ack, err := js.Publish("orders.c", []byte("first here"))
		if err != nil {
			t.Error(err)
		}
		published <- ack
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	time.Sleep(50 * time.Millisecond)
	check(t, s.gw.Barrier(ctx))
	select {
	case <-published:
		t.Fatal("a publish passed the fence")
	default:
	}
	if r, err := core.Request("$JS.API.INFO", nil, time.Second); err != nil || len(r.Data) == 0 {
		t.Fatalf("what does not concern the stream: %v", err)
	}
	s.request(t, "$JS.API.STREAM.CREATE.ORDERS", ordersConfig)
	s.relay.Use(table(3, relay.Here))
	if ack := <-published; ack == nil || ack.Sequence != 1 {
		t.Fatalf("ack %+v of the own stream, which is new", ack)
	}
	m, err := heard.NextMsg(time.Second)
	check(t, err)
	if string(m.Data) != "first here" {
		t.Errorf("a subscriber heard %q", m.Data)
	}
	if i, err := s.nats.LookupAccount("$G"); err != nil || i == nil {
		t.Fatal(err)
	}
	direct := connect(t, s.nats.ClientURL())
	djs, err := direct.JetStream()
	check(t, err)
	info, err := djs.StreamInfo("ORDERS")
	check(t, err)
	if info.State.LastSeq != 11 {
		t.Errorf("the servers have %d messages", info.State.LastSeq)
	}
	info, err = js.StreamInfo("ORDERS")
	check(t, err)
	if info.State.LastSeq != 1 {
		t.Errorf("the gateway's stream has %d messages", info.State.LastSeq)
	}
	// In a list each stream is there once, as it stands where it is served.
	_, err = js.AddStream(&nats.StreamConfig{Name: "OTHER", Subjects: []string{"other"}})
	check(t, err)
	listed := make(map[string]uint64)
	for i := range js.Streams() {
		listed[i.Config.Name] += 1000 + i.State.LastSeq
	}
	if len(listed) != 2 || listed["ORDERS"] != 1001 || listed["OTHER"] != 1000 {
		t.Errorf("listed %v", listed)
	}
	if i, err := js.AccountInfo(); err != nil || i.Streams != 2 || i.Consumers != 0 { // W is the servers' alone
		t.Errorf("the account has %+v, %v", i, err)
	}
	// What the reverse chain publishes reaches those who are connected directly, and nobody twice.
	far, err := direct.SubscribeSync("orders.>")
	check(t, err)
	check(t, direct.Flush())
	back := nats.NewMsg("orders.c")
	back.Header.Set(cutover.HeaderOrigin, "1")
	check(t, direct.PublishMsg(back))
	_, err = far.NextMsg(time.Second)
	check(t, err)
	check(t, core.Flush())
	if m, err := heard.NextMsg(200 * time.Millisecond); err == nil {
		t.Errorf("heard twice: %q", m.Data)
	}

	// Without the servers it is not known what they have, and that is said.
	s.nats.Shutdown()
	if r := s.request(t, "$JS.API.STREAM.NAMES", ""); !strings.Contains(r, `"err_code":10008`) || !strings.Contains(r, "$G") {
		t.Errorf("without the servers: %s", r)
	}
}

// TestUnknown: what clients ask of an API that has no such request is known, the last of it however much that was.
func TestUnknown(t *testing.T) {
	s := newSite(t, nil)
	nc := connect(t, s.gw.ClientURL())
	scope := relay.NewScope(cutover.Scope{Account: "$G", Stream: "ORDERS"}, relay.Options{})
	tb, err := relay.NewTable(1, []relay.Route{{Scope: scope, State: relay.Upstream, Subjects: []string{"orders.>"}}}, false)
	check(t, err)
	s.relay.Use(tb)
	use := func(subjects ...string) []string {
		t.Helper()
		began := time.Now()
		for _, subject := range subjects {
			check(t, nc.PublishRequest(subject, nc.NewRespInbox(), nil))
		}
		check(t, nc.Flush())
		return s.relay.Unknown(began)
	}
	if got := use("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.ORDERS", "$JS.API.CONSUMER.LIST.X"); len(got) > 0 {
		t.Errorf("served, and said to be unknown: %q", got)
	}
	if got := use("$JS.API.STREAM.ROTATE.ORDERS", "$JS.HUB.API.NONSENSE"); !slices.Equal(got, []string{"NONSENSE", "STREAM.ROTATE.ORDERS"}) {
		t.Errorf("unknown: %q", got)
	}
	for i := range 150 {
		use(fmt.Sprint("$JS.API.NEW.", i))
	}
	if got := use("$JS.API.LAST"); !slices.Equal(got, []string{"LAST"}) {
		t.Errorf("after many others: %q", got)
	}
	if n := len(s.relay.Unknown(time.Time{})); n != 100 {
		t.Errorf("%d are remembered", n)
	}
}
