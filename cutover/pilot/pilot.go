// Package pilot runs a cutover: it puts the parts together, brings streams to where the bus's mode wants them, compares
// them, knows the facts for the gates, and is the engine behind what operators see and do (face.Engine).
//
//	pilot   the parts, and the streams they are about
//	facts   what the gates are told
//	show    what operators see
//	act     what operators do
//	hooks, postpone, abort, observe   what is asked before, waited for, and ended by itself
//	drill   exercises, whose outcome is evidence
//	faults  what is done and seen in one
package pilot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/capture"
	"github.com/noetl/ehdb-gateway/cutover/drill"
	"github.com/noetl/ehdb-gateway/cutover/face"
	"github.com/noetl/ehdb-gateway/cutover/flip"
	"github.com/noetl/ehdb-gateway/cutover/gate"
	"github.com/noetl/ehdb-gateway/cutover/hook"
	"github.com/noetl/ehdb-gateway/cutover/lease"
	"github.com/noetl/ehdb-gateway/cutover/origin"
	"github.com/noetl/ehdb-gateway/cutover/parity"
	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/cutover/window"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Mode is where the streams are to be.
type Mode string

// The modes, as those of the bus.
const (
	ModeNATS   Mode = "nats"
	ModeShadow Mode = "shadow"
	ModeEHDB   Mode = "ehdb"
)

// Options of a Pilot.
type Options struct {
	Dir     string // of the journal
	Mode    Mode
	Profile gate.Profile
	Streams []string // patterns of the streams that are brought under watch; none: all
	Conns   map[string]*origin.Conn
	Local   cutover.Local
	Relay   *relay.Relay
	Bus     bus.Bus
	// Barrier is that of the gateway.
	Barrier func(context.Context) error
	// Addrs are the gateway's addresses of its clients' connections to the servers, Monitor their monitoring pages.
	Addrs   func() map[string]bool
	Monitor []*url.URL
	// Servers are the NATS servers, Scrapes who reads the figures of consumers; may be nil.
	Servers func() []face.ServerState
	// Outage is how clients are served while no server can be reached; nil: one can, as far as it is known.
	Outage  func() *face.Outage
	Scrapes func() []face.Scrape
	// Queues are the queue groups of clients, Shards where a stream is in the log here, or would be; may be nil.
	Queues func() []face.QueueGroup
	Shards func(account, stream string, subjects []string) []uint32
	// Front is the URL of the gateway's own client port, Used what the process has used; may be nil.
	Front func() string
	Used  func() Use
	// Autoscalers returns how many autoscalers scale by consumers, and what is wrong with some of them; may be nil.
	Autoscalers func(ctx context.Context) (n int, problems []string, err error)
	Server      string // name
	Version     string
	// CopyRate bounds what is copied while a copy is behind, in bytes per second; 0: no bound. Busy returns why copying
	// has to wait; empty: it may go on.
	CopyRate int
	Busy     func() string
	// Observe is for how long a flip is observed, if who asks for it does not say; 0: not at all. ObserveGates are the
	// gates that take it back meanwhile.
	Observe      time.Duration
	ObserveGates []string
	// Hooks are the operator's programs; nil: none.
	Hooks *hook.Set
	// Copied is told how old a batch is when it is durable here; may be nil.
	Copied func(lag time.Duration)
	// Window is when streams may be moved here; none: always.
	Window window.Windows
	// Waivers are what need not be comparable (G5).
	Waivers []gate.Waiver
	// Approvers: there is a token of theirs, so approvals are made with it (Approve) and names are none.
	Approvers bool
	// Facts are what others know: of the log, the disk, the servers' connections.
	Facts gate.Inputs
	// Faults are what the gateway can do to itself, for drills.
	Faults drill.Faults
	// Deposed is told why the gateway has to end: another has the say. Nothing passes any more then. May be nil.
	Deposed func(error)
	Logger  *slog.Logger
}

// Pilot runs a cutover. Safe for concurrent use.
type Pilot struct {
	o      Options
	engine *flip.Engine
	opened atomic.Bool // engine is there; what it runs asks before that
	parity *parity.Engine
	book   *parity.Book
	// delivered is what consumers here have delivered, of the streams whose flip is observed.
	delivered *parity.Book
	start     time.Time
	lease     *lease.Lease
	drills    drills
	strays    strays
	probes    probes
	loads     *loads
	scaled    scaled
	live      context.Context // of everything that runs beside; ends with Close
	cancel    context.CancelFunc
	ended     sync.WaitGroup

	metrics *face.MoveMetrics
	done    *face.Moved
	telling chan told // what hooks are to be told

	mu sync.Mutex
	// The following are guarded by mu.
	seen      map[cutover.Scope]*seen
	given     map[cutover.Scope]bool // what was given back by hand in mode ehdb: the mode takes it not again
	postponed map[cutover.Scope]*pending
	failing   map[served]*failing
	gates     map[cutover.Scope]*gate.Report // of a flip, as they were computed last for the metrics
	observing map[cutover.Scope]*observing
	proof     gate.Fact // that the way back works
	moved     chan struct{}

	around around
}

// seen is what is remembered of a stream besides.
type seen struct {
	since   time.Time // under watch
	changed time.Time // of its configuration
	config  string
	fences  []face.Fence
	gaveUp  string // what became of a postponed flip, if nothing did
	changes int    // of its phase
	fresh   bool   // publishes to it may be on their way that nobody has noted
}

var _ face.Engine = (*Pilot)(nil)

// Open takes up what is on its way, before any client is served.
func Open(ctx context.Context, o Options) (*Pilot, error) {
	p := &Pilot{
		o: o, book: parity.NewBook(0), start: time.Now(), seen: make(map[cutover.Scope]*seen),
		given:     make(map[cutover.Scope]bool),
		postponed: make(map[cutover.Scope]*pending), failing: make(map[served]*failing), moved: make(chan struct{}),
		observing: make(map[cutover.Scope]*observing), delivered: parity.NewBook(0),
		probes: newProbes(), loads: newLoads(), telling: make(chan told, maxTold),
	}
	p.metrics = face.NewMoveMetrics(func(kind string) time.Time { return p.drills.log.Passed(kind, drill.Image()) })
	p.gates, p.done = make(map[cutover.Scope]*gate.Report), face.NewMoved()
	var err error
	p.parity, err = parity.New(parity.Options{
		Ledger: p.book, Deliveries: p.book, Window: parity.DefaultWindow(), Asynchronous: true, Logger: o.Logger,
		Busy: p.waits,
	})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	p.drills.open(&o)
	first, err := p.hold(ctx)
	if err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.live, p.cancel = run, cancel
	p.engine, err = flip.Open(ctx, flip.Options{
		Dir: o.Dir, Local: o.Local, Relay: o.Relay, Bus: o.Bus, Barrier: o.Barrier, Site: p.site, Logger: o.Logger,
		Acknowledged: func(s cutover.Scope, n *relay.Noted) {
			p.loads.acked(s.Account, n.Took)
			p.book.Note(s, cutover.Acked{Seq: n.Seq, Subject: n.Subject, MsgID: n.MsgID, Hash: n.Hash, When: n.Time})
		},
		Offered: func(s cutover.Scope, consumer []byte, seq uint64) { p.book.Offer(s, string(consumer), seq) },
		Served:  func(s cutover.Scope, consumer []byte, seq uint64) { p.delivered.Offer(s, string(consumer), seq) },
		Changed: p.changed, Claim: p.lease.Claim, Epoch: first,
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("can't take up the streams that are on their way: %w", err)
	}
	p.opened.Store(true)
	p.drills.log.Tell(p.toldDrill)
	for _, s := range p.engine.Streams() {
		p.changed(s)
	}
	p.ended.Go(func() { p.parity.Run(run) })
	p.ended.Go(func() { p.run(run) })
	p.ended.Go(func() { p.keep(run) })
	p.ended.Go(func() { p.ask(run) })
	p.ended.Go(func() { p.guard(run) })
	p.ended.Go(func() { p.tellAll(run) })
	p.ended.Go(func() { p.watchGates(run) })
	p.ended.Go(func() { p.endCanaries(run) })
	p.ended.Go(func() { p.observeFlips(run) })
	p.ended.Go(func() { p.tidyDrills(run) })
	p.ended.Go(func() { p.watchLoad(run) })
	return p, nil
}

// Close ends everything. Who has the say about a stream stays.
func (p *Pilot) Close() {
	p.leave()
	p.cancel()
	p.ended.Wait()
	p.untold()
	p.engine.Close()
}

// Engine is what moves the streams.
func (p *Pilot) Engine() *flip.Engine { return p.engine }

// Parity implements face.Engine.
func (p *Pilot) Parity() *parity.Engine { return p.parity }

// Metrics are the series about hooks and canaries.
func (p *Pilot) Metrics() prometheus.Collector { return p.metrics }

// Here reports whether the gateway has the say about a stream.
func (p *Pilot) Here(s cutover.Scope) bool {
	v, err := p.engine.View(s)
	return err == nil && v.Phase != flip.PhaseShadow && v.Phase != flip.PhaseFlipping
}

// site implements flip.Options.Site.
func (p *Pilot) site(account string) (flip.Site, error) {
	c := p.o.Conns[account]
	if c == nil {
		return nil, noLogin(account)
	}
	return &site{p, account, c}, nil
}

// site is the servers as an account sees them.
type site struct {
	p       *Pilot
	account string
	conn    *origin.Conn
}

func (s *site) Conn() *nats.Conn { return s.conn.NATS() }

func (s *site) Stream(name string) cutover.Upstream { return s.conn.Stream(name) }

func (s *site) Capture(name string, _ cutover.Copy) flip.Capture {
	scope := cutover.Scope{Account: s.account, Stream: name}
	var c *capture.Capturer
	c = capture.New(capture.Options{
		Scope: scope, From: s.conn.Stream(name), To: s.p.o.Local, Rate: s.p.o.CopyRate,
		Busy:   func() string { return s.p.waits(scope) },
		Logger: s.p.o.Logger,
		Copied: func(lag time.Duration, _ int) {
			s.p.loads.following(c, lag)
			s.p.parity.ObserveLag(scope, lag)
			if f := s.p.o.Copied; f != nil {
				f(lag)
			}
		},
	})
	return c
}

// Captured returns how far the copies of streams are, by account and stream.
func (p *Pilot) Captured() (out []capture.Status) {
	for _, s := range p.engine.Streams() {
		if v, err := p.engine.View(s); err == nil {
			if c, ok := v.Capture.(*capture.Capturer); ok {
				out = append(out, c.Status())
			}
		}
	}
	return out
}

// waits is why copying what is behind of a stream has to wait, and comparing all of it; of any if scope is none.
func (p *Pilot) waits(scope cutover.Scope) string {
	if !p.opened.Load() {
		return "the gateway starts"
	}
	if why := p.throttled(scope); why != "" || p.o.Busy == nil {
		return why
	}
	return p.o.Busy()
}

// wake has those look who wait for events.
func (p *Pilot) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.moved)
	p.moved = make(chan struct{})
}

// steerEvery is how often it is looked whether the streams are where the mode wants them.
const steerEvery = 2 * time.Second

// run brings the streams to where the mode wants them.
func (p *Pilot) run(ctx context.Context) {
	t := time.NewTicker(steerEvery)
	defer t.Stop()
	said := make(map[string]string)
	for {
		for scope, err := range p.steer(ctx) {
			text := err.Error()
			if said[scope] == text || ctx.Err() != nil {
				continue
			}
			if said[scope] = text; !strings.Contains(scope, "/") {
				p.o.Logger.Warn("The streams of account {account} on the servers are not known: {error}",
					slog.String("account", scope), slog.Any("error", err))
			} else {
				p.o.Logger.Warn("Stream {stream} is not where bus mode {mode} wants it: {error}",
					slog.String("stream", scope), slog.String("mode", string(p.o.Mode)), slog.Any("error", err))
			}
		}
		p.prove(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// steer makes one attempt, and returns what did not succeed, by stream. A restart in mode nats or ehdb is the
// operator's word: no gate is asked, but nothing that would lose a message is done.
func (p *Pilot) steer(ctx context.Context) map[string]error {
	failed := make(map[string]error)
	if p.o.Mode != ModeNATS {
		p.discover(ctx, failed)
	}
	o := flip.MoveOptions{By: "bus mode " + string(p.o.Mode), Retries: 2}
	for _, scope := range p.engine.Streams() {
		st, err := p.engine.Status(scope)
		switch {
		case err != nil:
		case p.o.Mode == ModeNATS && st.Phase == flip.PhaseEHDB:
			var m *flip.Move
			if m, err = p.engine.Rollback(ctx, scope, o); err == nil {
				p.outcome(scope, p.about(scope, "rollback", "nats", face.Actor{By: o.By}), m, nil)
			}
		case p.o.Mode == ModeEHDB && st.Phase == flip.PhaseShadow && !p.stays(scope):
			var m *flip.Move
			if m, err = p.engine.Flip(ctx, scope, o); err == nil {
				p.outcome(scope, p.about(scope, "flip", "ehdb", face.Actor{By: o.By}), m, nil)
			}
		}
		if err != nil {
			failed[scope.String()] = err
		}
	}
	return failed
}

// give says whether a stream was given back by hand.
//
//nolint:revive // given is that
func (p *Pilot) give(scope cutover.Scope, given bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if delete(p.given, scope); given {
		p.given[scope] = true
	}
}

// stays reports whether a stream was given back by hand, which is younger than the mode's word.
func (p *Pilot) stays(scope cutover.Scope) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.given[scope]
}

// discover brings the streams of the servers under watch, but for those whose watch was ended.
func (p *Pilot) discover(ctx context.Context, failed map[string]error) {
	known := p.engine.Streams()
	for account, c := range p.o.Conns {
		list, err := c.Streams(ctx)
		var missing *origin.MissingError
		if err != nil && !errors.As(err, &missing) {
			failed[account] = err
			continue
		}
		for _, info := range list {
			scope := cutover.Scope{Account: account, Stream: info.Config.Name}
			if slices.Contains(known, scope) || own(scope.Stream) || !origin.Selects(p.o.Streams, scope.Stream) ||
				p.engine.Dismissed(scope) {
				continue
			}
			if err := p.engine.Watch(ctx, scope, "discovered"); err != nil {
				failed[scope.String()] = err
			}
		}
	}
}
