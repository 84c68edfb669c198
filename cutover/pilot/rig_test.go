package pilot_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/origin"
	"github.com/noetl/ehdb-gateway/cutover/pilot"
	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/cutover/upstream"
	"github.com/noetl/ehdb-gateway/gateway"
	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi"
	"github.com/noetl/ehdb-gateway/storage"
)

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// until waits for something to come about.
func until(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	const patience = 20 * time.Second
	for end := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// rig is a NATS server, a gateway in front of it, and a pilot, whose own connection to the server may be slowed down.
type rig struct {
	t     *testing.T
	nats  *server.Server
	gw    *gateway.Server
	js    jetstream.JetStream // of a client of the gateway
	slow  atomic.Int64        // how long what the server sends to the pilot takes
	pilot *pilot.Pilot
	again func() // opens the pilot, after a Close
}

func newRig(t *testing.T, change func(*pilot.Options)) *rig {
	t.Helper()
	r := &rig{t: t}
	var err error
	r.nats, err = server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, HTTPHost: "127.0.0.1", HTTPPort: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: t.TempDir(),
	})
	check(t, err)
	r.nats.Start()
	if !r.nats.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	t.Cleanup(func() { r.nats.Shutdown(); r.nats.WaitForShutdown() })
	router, way := bus.NewRouter(), relay.New("")
	svc := jetstreamapi.New(jetstreamapi.Options{
		Bus: router, Storage: storage.Options{Dir: t.TempDir(), Shards: 1}, ServerName: "gw", ServerID: "GWID", MaxPayload: 1 << 20,
	})
	check(t, svc.Start(t.Context()))
	t.Cleanup(func() { check(t, svc.Stop(context.Background())) })
	to, err := url.Parse(r.nats.ClientURL())
	check(t, err)
	up, err := upstream.New(upstream.Options{URLs: []*url.URL{to}})
	check(t, err)
	r.gw, err = gateway.New(gateway.Options{
		Server: &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT}, Bus: router, Upstream: up, Director: way,
	})
	check(t, err)
	check(t, r.gw.Start())
	t.Cleanup(r.gw.Shutdown)
	own, err := origin.Dial(origin.Options{Account: "$G", URLs: []string{r.proxy(to.Host)}, ServerName: "gw"})
	check(t, err)
	t.Cleanup(own.Close)
	monitor, err := url.Parse("http://" + r.nats.MonitorAddr().String())
	check(t, err)
	o := pilot.Options{
		Dir: t.TempDir(), Mode: pilot.ModeShadow, Profile: gate.Drill, Conns: map[string]*origin.Conn{"$G": own}, Local: svc.Cutover(),
		Relay: way, Bus: router, Barrier: r.gw.Barrier, Addrs: r.gw.UpstreamAddrs, Monitor: []*url.URL{monitor}, Server: "gw",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if change != nil {
		change(&o)
	}
	r.again = func() {
		r.pilot, err = pilot.Open(t.Context(), o)
		check(t, err)
	}
	r.again()
	t.Cleanup(func() { r.pilot.Close() })
	r.js, err = jetstream.New(r.connect(r.gw.ClientURL()))
	check(t, err)
	return r
}

func (r *rig) connect(at string, opts ...nats.Option) *nats.Conn {
	r.t.Helper()
	nc, err := nats.Connect(at, opts...)
	check(r.t, err)
	r.t.Cleanup(nc.Close)
	return nc
}

// proxy is the server's address as the pilot knows it.
func (r *rig) proxy(to string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(r.t, err)
	r.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go r.slowly(in, out)
		}
	}()
	return "nats://" + l.Addr().String()
}

func (r *rig) slowly(in, out net.Conn) {
	defer func() { _ = in.Close() }()
	for b := make([]byte, 1<<16); ; {
		n, err := out.Read(b)
		time.Sleep(time.Duration(r.slow.Load()))
		if _, failed := in.Write(b[:n]); err != nil || failed != nil {
			return
		}
	}
}

// stream makes a stream of n messages, published through the gateway, and has it under watch.
func (r *rig) stream(cfg jetstream.StreamConfig, n int) cutover.Scope {
	r.t.Helper()
	_, err := r.js.CreateStream(r.t.Context(), cfg)
	check(r.t, err)
	r.publish(cfg.Subjects[0], n)
	name := cutover.Scope{Account: "$G", Stream: cfg.Name}
	until(r.t, "the stream is under watch", func() bool { return r.state(name) != nil })
	return name
}

func (r *rig) publish(subject string, n int) {
	r.t.Helper()
	for range n {
		_, err := r.js.Publish(r.t.Context(), subject, []byte("some data"))
		check(r.t, err)
	}
}

// state is how a stream stands; nil: it is not under watch.
func (r *rig) state(name cutover.Scope) *face.StreamState {
	r.t.Helper()
	st, err := r.pilot.Status(r.t.Context())
	check(r.t, err)
	for i := range st.Streams {
		if st.Streams[i].Scope == name {
			return &st.Streams[i]
		}
	}
	return nil
}

// event is the text of the last event of a kind; empty: there is none.
func (r *rig) event(kind string) (text string) {
	r.t.Helper()
	list, err := r.pilot.Events(r.t.Context(), 0, 1000, false)
	check(r.t, err)
	for i := range list {
		if e := &list[i]; e.Kind == kind {
			text = strings.Join([]string{e.Scope.String(), e.By, e.Reason, e.Text}, " | ")
		}
	}
	return text
}
