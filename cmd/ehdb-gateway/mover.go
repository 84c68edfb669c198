package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/console"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/keda"
	"github.com/noetl/ehdb-gateway/cutover/origin"
	"github.com/noetl/ehdb-gateway/cutover/pilot"
	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/internal/config"
	"github.com/noetl/ehdb-gateway/internal/metrics"
)

// mover moves streams between the NATS servers and this one.
type mover struct {
	a     *app
	relay *relay.Relay
	pilot *pilot.Pilot // nil before open
	conns map[string]*origin.Conn
	pages atomic.Pointer[map[string]http.Handler] // nil before open
	seen  *console.Console                        // nil before open

	mirrors *metrics.Mirrors
	scrapes scrapes
}

// newMover returns nil when no stream is, or is to be, on its way.
func newMover(a *app) *mover {
	if !a.cfg.Bus.Cutover {
		return nil
	}
	m := &mover{a: a, relay: relay.New(a.cfg.Server.JetStreamDomain), conns: make(map[string]*origin.Conn)}
	m.mirrors = metrics.NewMirrors(m.mirrored)
	return m
}

// open takes up what is on its way, before any client is served.
func (m *mover) open(ctx context.Context) error {
	if err := m.dial(); err != nil {
		return err
	}
	dir, b := filepath.Join(m.a.cfg.Server.StoreDir, config.JournalDir), &m.a.cfg.Bus
	token, approver, err := tokens(dir)
	if err != nil {
		return err
	}
	m.pilot, err = pilot.Open(ctx, pilot.Options{
		Dir: dir, Mode: pilot.Mode(b.Mode), Profile: gate.Profile(b.Profile), Streams: b.Streams,
		Observe: b.Observe, ObserveGates: b.ObserveGates, Window: b.ChangeWindow, Waivers: waivers(b.Waivers),
		Approvers: approver != "", Autoscalers: autoscalers(),
		Hooks: b.Hooks, CopyRate: int(b.CopyRate), Busy: m.busy, Copied: m.mirrors.Copied,
		Conns: m.conns, Local: m.a.streams.svc.Cutover(), Relay: m.relay, Bus: m.a.router, Barrier: m.a.gw.Barrier,
		Addrs: m.a.gw.UpstreamAddrs, Monitor: b.Monitor,
		Servers: m.servers, Outage: m.outage, Scrapes: m.scrapes.list, Shards: m.a.streams.svc.Placed,
		Front: m.a.gw.ClientURL, Used: m.used,
		Queues: func() []face.QueueGroup { return queues(m.a.gw) },
		Server: m.a.gw.Stats().ServerName, Version: version(), Facts: logFacts{m.a.streams}, Faults: m.faults(),
		Deposed: func(err error) { m.a.deposed <- err }, Logger: m.a.log.Logger,
	})
	if err != nil {
		return err
	}
	if m.a.nats != nil { // else clients have what is here
		m.a.streams.svc.SetElsewhere(m.pilot.Elsewhere())
	}
	m.seen = console.New(console.Options{Engine: m.pilot, Logger: m.a.log.Logger})
	pages := moverPages(face.Options{
		Engine: m.pilot, Token: token, Approver: approver, Logger: m.a.log.Logger,
	}, m.seen)
	m.pages.Store(&pages)
	return nil
}

// autoscalers is what looks at ScaledObjects; nil: this is not Kubernetes.
func autoscalers() func(context.Context) (int, []string, error) {
	c, err := keda.InCluster(keda.Account, os.Getenv)
	switch {
	case err != nil:
		err = fmt.Errorf("the pod has no service account (deploy/kubernetes/autoscaling/rbac.yaml): %w", err)
		return func(context.Context) (int, []string, error) { return 0, nil, err }
	case c == nil:
		return nil
	}
	return c.Look
}

func waivers(list []config.Waiver) []gate.Waiver {
	out := make([]gate.Waiver, len(list))
	for i, w := range list {
		out[i] = gate.Waiver{Reason: w.Reason, Why: w.Why, Expires: w.Expires}
	}
	return out
}

// tokens are those of the operator, which is made if there is none, and of the approvers, if there is one.
func tokens(dir string) (operator, approver string, err error) {
	if err = os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	if operator, err = face.Token(dir); err != nil {
		return "", "", err
	}
	approver, err = face.ApproverToken(dir, operator)
	return operator, approver, err
}

func moverPages(o face.Options, c *console.Console) map[string]http.Handler {
	out := face.Routes(o)
	maps.Copy(out, c.Routes())
	return out
}

// routes are the pages of the cutover, which answer that they are not ready until open has ended.
func (m *mover) routes() map[string]http.Handler {
	out := make(map[string]http.Handler)
	for path := range moverPages(face.Options{}, console.New(console.Options{})) {
		out[path] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			pages := m.pages.Load()
			if pages == nil {
				http.Error(w, "not ready: streams are being recovered", http.StatusServiceUnavailable)
				return
			}
			(*pages)[path].ServeHTTP(w, r)
		})
	}
	return out
}

// noConsole is what the console says where nothing moves.
func noConsole(b *config.Bus) map[string]http.Handler {
	why := "in bus mode ehdb with no servers upstream there is nothing to move: all streams are kept and served here"
	if b.Mode == config.ModeNATS {
		why = "in bus mode nats the servers upstream serve everything, and no stream is on its way: " +
			"with bus mode shadow copies are kept here, and streams can be moved"
	}
	return console.None("There is no cutover: " + why + ".")
}

// closePages ends what follows the console.
func (m *mover) closePages() {
	if m.seen != nil {
		m.seen.Close()
	}
}

// dial makes the gateway's own connections to the servers.
func (m *mover) dial() error {
	b := &m.a.cfg.Bus
	list := b.Accounts
	if len(list) == 0 {
		list = []config.BusAccount{{Name: "$G"}}
	}
	var urls []string
	for _, at := range b.Upstream {
		urls = append(urls, at.String())
	}
	for i := range list {
		l := &list[i]
		o := origin.Options{
			Account: l.Name, URLs: urls, TLS: b.TLS, HandshakeFirst: b.HandshakeFirst,
			Credentials: origin.Credentials{
				User: l.User, Password: l.Password, Token: l.Token, Creds: l.Creds, Nkey: l.Nkey,
			},
			ServerName: m.a.gw.Stats().ServerName, Logger: m.a.log.Logger,
		}
		if m.a.cut != nil {
			o.Dialer = m.a.cut
		}
		c, err := origin.Dial(o)
		if err != nil {
			return err
		}
		m.conns[l.Name] = c
	}
	return nil
}

// busy returns why copying what is behind has to wait.
func (m *mover) busy() string {
	st := m.a.streams.svc.Store()
	switch {
	case st == nil:
		return "the data directory is being opened again"
	case st.Stall() != nil:
		return "the data directory has its hands full"
	}
	return ""
}

// used is what the process has used.
func (m *mover) used() pilot.Use {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return pilot.Use{}
	}
	return pilot.Use{
		CPU:     time.Duration(u.Utime.Nano() + u.Stime.Nano()),
		Syncing: time.Duration(m.a.streams.syncing.Load() / int64(max(len(m.a.streams.stats().Shards), 1))),
		Cores:   runtime.GOMAXPROCS(0),
	}
}

// servers are the NATS servers, as clients' connections to them were met.
func (m *mover) servers() []face.ServerState {
	out := []face.ServerState{}
	if m.a.nats == nil {
		return out
	}
	for _, s := range m.a.nats.Stats() {
		out = append(out, face.ServerState{
			URL: s.Name, Reachable: s.Dials > 0 && s.LastErr == "", Dials: s.Dials, Failures: s.Failures,
			LastError: s.LastErr,
		})
	}
	return out
}

// outage is how clients are served while no server can be reached; nil: one can, as far as it is known.
func (m *mover) outage() *face.Outage {
	up := m.a.gw.Stats().Upstream
	if up.Outage.IsZero() {
		return nil
	}
	return &face.Outage{Since: up.Outage, Clients: up.Alone}
}

// here reports whether the gateway has the say about a stream.
func (m *mover) here(account, stream string) bool {
	return m.pilot != nil && m.pilot.Here(cutover.Scope{Account: account, Stream: stream})
}

// stop ends what moves. Who has the say about a stream stays.
func (m *mover) stop() {
	if m.pilot != nil {
		m.pilot.Close()
	}
}

// leave gives up the servers, when no client comes by this gateway any more.
func (m *mover) leave() {
	if m.pilot != nil {
		m.pilot.GiveBack(context.Background())
	}
	for _, c := range m.conns {
		c.Close()
	}
}
