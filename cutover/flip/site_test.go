package flip_test

import (
	"cmp"
	"context"
	"log/slog"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/origin"
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

// rig is a NATS server, a gateway in front of it, the gateway's own JetStream, and what moves streams between them.
type rig struct {
	t         *testing.T
	nats      *server.Server
	gw        *gateway.Server
	relay     *relay.Relay
	router    *bus.Router
	svc       *jetstreamapi.Service
	conn      *nats.Conn   // a client of the server itself
	own       *origin.Conn // the gateway's
	engine    *flip.Engine
	dir       string
	reconcile time.Duration
	step      atomic.Pointer[func(flip.Step)] // nil: nothing
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigWith(t, &server.Options{}, &server.Options{})
}

// newRigWith is newRig with more options of the NATS server and of the gateway.
func newRigWith(t *testing.T, of, front *server.Options) *rig {
	t.Helper()
	r := &rig{t: t, relay: relay.New(""), router: bus.NewRouter(), dir: t.TempDir()}
	of.Host, of.Port, of.NoLog, of.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, true
	of.JetStream, of.StoreDir = true, t.TempDir()
	ns, err := server.NewServer(of)
	check(t, err)
	ns.Start()
	if !ns.ReadyForConnections(10 * time.Second) {
		t.Fatal("nats-server is not ready")
	}
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	r.nats = ns
	r.svc = jetstreamapi.New(jetstreamapi.Options{
		Bus: r.router, Storage: storage.Options{Dir: t.TempDir(), Shards: 1}, ServerName: "S", ServerID: "SID", MaxPayload: 1 << 20,
	})
	check(t, r.svc.Start(t.Context()))
	t.Cleanup(func() { check(t, r.svc.Stop(context.Background())) })
	to, err := url.Parse(ns.ClientURL())
	check(t, err)
	up, err := upstream.New(upstream.Options{URLs: []*url.URL{to}})
	check(t, err)
	front.Host, front.Port = "127.0.0.1", server.RANDOM_PORT
	r.gw, err = gateway.New(gateway.Options{
		Server: front, Bus: r.router, Upstream: up, Director: r.relay,
	})
	check(t, err)
	check(t, r.gw.Start())
	t.Cleanup(r.gw.Shutdown)
	r.conn = r.connect(ns.ClientURL())
	r.own, err = origin.Dial(origin.Options{Account: "$G", URLs: []string{ns.ClientURL()}, ServerName: "S"})
	check(t, err)
	t.Cleanup(r.own.Close)
	r.open()
	t.Cleanup(func() { r.engine.Close() })
	return r
}

// open opens the engine.
func (r *rig) open() {
	var err error
	r.engine, err = flip.Open(r.t.Context(), flip.Options{
		Dir: r.dir, Local: r.svc.Cutover(), Relay: r.relay, Bus: r.router, Barrier: r.gw.Barrier,
		Site: func(string) (flip.Site, error) { return site{r.own, r.svc.Cutover(), r.reconcile}, nil },
		Step: func(s flip.Step) {
			if f := r.step.Load(); f != nil {
				(*f)(s)
			}
		},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	check(r.t, err)
}

func (r *rig) connect(at string, opts ...nats.Option) *nats.Conn {
	r.t.Helper()
	nc, err := nats.Connect(at, opts...)
	check(r.t, err)
	r.t.Cleanup(nc.Close)
	return nc
}

// site is the servers as the engine sees them.
type site struct {
	conn  *origin.Conn
	local cutover.Local
	every time.Duration // what is no message is compared; 0: often
}

func (s site) Conn() *nats.Conn { return s.conn.NATS() }

func (s site) Stream(name string) cutover.Upstream { return s.conn.Stream(name) }

func (s site) Capture(name string, _ cutover.Copy) flip.Capture {
	return capture.New(capture.Options{
		Scope: cutover.Scope{Account: "$G", Stream: name}, From: s.conn.Stream(name), To: s.local,
		Reconcile: cmp.Or(s.every, 200*time.Millisecond),
	})
}
