package flip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/cutover/reverse"
	"github.com/noetl/ehdb-gateway/internal/bus"
)

// Options of an Engine.
type Options struct {
	Dir   string // of the journal
	Local cutover.Local
	Relay *relay.Relay
	Bus   bus.Bus // the gateway's own
	// Barrier waits until the servers have taken all that clients have sent.
	Barrier func(context.Context) error
	// Site returns the servers as an account sees them.
	Site func(account string) (Site, error)
	// Acknowledged is told of what the servers have acknowledged; may be nil. It must not block.
	Acknowledged func(cutover.Scope, *relay.Noted)
	// Offered is told of what consumers of the servers deliver; may be nil. It must not block.
	Offered func(name cutover.Scope, consumer []byte, seq uint64)
	// Served is told of what consumers here deliver to clients of a stream whose flip is observed; may be nil. It must
	// not block.
	Served func(name cutover.Scope, consumer []byte, seq uint64)
	// Changed is told that a stream came under watch, changed its phase, or is not watched any more; may be nil.
	Changed func(name cutover.Scope)
	// Claim tells the servers that the gateway is about to have the say about a stream, before the journal does: an
	// error is a reason not to. done is called when the journal says what came of it. May be nil.
	Claim func(ctx context.Context, scope cutover.Scope) (done func(), err error)
	// Epoch is one that there was already, beside those in the journal.
	Epoch uint64
	// Refuse returns why a stream may not be taken over, or given back, now; nil: nothing speaks against it.
	Refuse func(ctx context.Context, scope cutover.Scope, to cutover.Role) []string
	// Step is told the steps of a move as they are reached (Steps); may be nil. It is for tests, which stop there.
	Step   func(Step)
	Logger *slog.Logger
}

// Site is the servers as one account sees them.
type Site interface {
	// Conn is the gateway's own connection.
	Conn() *nats.Conn
	Stream(name string) cutover.Upstream
	// Capture returns what copies a stream into its standby. It runs from Start to Stop.
	Capture(name string, to cutover.Copy) Capture
}

// Capture copies one stream.
type Capture interface {
	Start()
	Stop()
	// Pause stops reading for a reason, what is new too, until it is called with none.
	Pause(reason string)
	// Nudge says that the servers have stored something, up to last; 0: the stream may have changed otherwise.
	Nudge(last uint64)
	// Settle waits until the standby is durably equal to the stream, whose last sequence is last and which does not
	// change.
	Settle(ctx context.Context, last uint64) error
}

// Engine moves streams. Safe for concurrent use.
type Engine struct {
	o       Options
	journal *journal
	ctx     context.Context // of everything that runs beside; ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu        sync.Mutex
	epoch     uint64
	marked    bool // some stream was here once
	streams   map[cutover.Scope]*stream
	dismissed map[cutover.Scope]bool   // what is not under watch any more
	paused    map[cutover.Scope]string // why nothing is copied; no stream: of all
	// throttled and limits are the speed of copying; no stream: of all.
	throttled map[cutover.Scope]Throttled
	limits    map[cutover.Scope]Limits
}

// Phase is where a stream is on its way.
type Phase string

// The phases.
const (
	PhaseShadow      Phase = "shadow"   // the servers have the say, a copy is kept here
	PhaseFlipping    Phase = "flipping" // about to be taken over
	PhaseEHDB        Phase = "ehdb"     // the gateway has the say, the servers are kept equal
	PhaseRollingBack Phase = "rolling_back"
	PhaseComplete    Phase = "complete" // the gateway has the say, for good
)

// stream is a stream under watch.
type stream struct {
	name  cutover.Scope
	op    sync.Mutex // held by what moves it
	notes *relay.Scope
	copy  cutover.Copy
	up    cutover.Upstream
	site  Site
	cap   captor
	ids   window

	forgets atomic.Bool // the stream forgets what is acknowledged
	swept   uint64      // how often the servers were connected to again, when fillers were last looked for
	turning sync.Mutex  // held while routes are made from how the stream is configured here

	// The following are guarded by Engine.mu.
	phase    Phase
	cut      bool // in phase flipping: what consumers of the servers still send is kept from clients
	held     bool // in phase shadow: what is left of a rollback comes before what clients say
	config   server.StreamConfig
	deliver  []string // where consumers push to
	canaries map[string]*canary
	here     *authority
	straddle *straddle // nil: clients hold nothing that was delivered here
	since    time.Time // of phase
	lastErr  string    // of the last attempt to move it
	lastMove *Move
	ours     bool   // the journal says that the gateway has the say; the phase follows
	turns    uint64 // changes of the routes here
	settled  uint64 // of these, those that nothing on its way is older than
	oneWay   bool   // flipped without a way back
	from     uint64 // the last sequence before the gateway had the say
	undone   int    // what the servers' consumers had not done with then, if it is oneWay
	observed *Observation
	leftover bool // Move.Leftover of the last rollback, and the copy was not reset since
}

// Open reads the journal and takes up what it says: streams that are served from here are so before Open returns.
func Open(ctx context.Context, o Options) (*Engine, error) {
	j, err := openJournal(o.Dir)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		o: o, journal: j, streams: make(map[cutover.Scope]*stream), dismissed: make(map[cutover.Scope]bool),
	}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	of, epoch := standings(j.all())
	e.epoch, e.paused = max(epoch, o.Epoch), pausesOf(of)
	e.throttled, e.limits = speeds(of)
	e.running.Go(e.expire)
	survives := func(st *standing) bool { return st.here && !st.complete }
	if slices.ContainsFunc(slices.Collect(maps.Values(of)), survives) {
		if err := e.record(&Entry{Event: EventStart}); err != nil {
			e.Close()
			return nil, err
		}
	}
	for name, st := range of {
		if st.dismissed {
			e.dismissed[name] = true
		}
		e.marked = e.marked || !st.since.IsZero()
		if !st.watched {
			continue
		}
		if err := e.resume(ctx, name, st); err != nil {
			e.Close()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return e, e.route()
}

// resume takes a stream up after a restart. An intent that has no end is one that had no effect.
func (e *Engine) resume(ctx context.Context, name cutover.Scope, st *standing) error {
	if st.open != "" {
		ended := &Entry{Scope: name, Event: EventAbort, Reason: "the gateway ended in the middle"}
		if err := e.record(ended); err != nil {
			return err
		}
	}
	c := e.o.Local.Named(name.Account, name.Stream)
	s, err := e.newStream(name, c)
	if err != nil {
		return err
	}
	s.lastMove, s.leftover = st.move, st.leftover
	if !st.here {
		err := c.SetRole(ctx, cutover.Standby)                  // a rollback may have ended in the middle
		if err != nil && !errors.Is(err, cutover.ErrNoStream) { // it may have ended before the copy was made anew
			return err
		}
		e.shadow(s, c.Config())
		if err := e.resumeCanaries(s, st.canaries); err != nil {
			return err
		}
		if len(st.dormant) > 0 { // the rollback ended before they were made
			g := reverse.NewGhosts(s.site.Conn(), c, s.up, name.Stream, e.o.Logger)
			e.running.Go(func() {
				if e.awaken(s, g, remainder{dormant: st.dormant}) {
					e.released(s, nil)
				}
			})
		}
		return nil
	}
	err = c.SetRole(ctx, cutover.Authority) // it may have ended right behind the record
	if why := e.replaced(s); err != nil && why != nil {
		e.o.Logger.Error("Stream {stream} is served as it is here: {error}", slog.String("stream", name.String()),
			slog.Any("error", why))
	} else if err != nil {
		return err
	}
	s.phase, s.since, s.ours = PhaseEHDB, st.since, true
	s.oneWay, s.from, s.undone = st.oneWay, st.last, st.undone
	e.observed(s, st.observation())
	s.configured(e.stored(ctx, s))
	if st.complete {
		s.phase = PhaseComplete
	}
	e.mu.Lock()
	e.streams[name] = s
	e.mu.Unlock()
	s.setDeliver(e)
	e.serve(s)
	return nil
}

// newStream returns a stream that is in no phase yet.
func (e *Engine) newStream(name cutover.Scope, c cutover.Copy) (*stream, error) {
	site, err := e.o.Site(name.Account)
	if err != nil {
		return nil, err
	}
	s := &stream{name: name, copy: c, site: site, up: site.Stream(name.Stream)}
	s.notes = relay.NewScope(name, relay.Options{
		Acknowledged: func(n *relay.Noted) {
			s.ids.note(n)
			if f := e.o.Acknowledged; f != nil {
				f(name, n)
			}
			s.cap.nudge(n.Seq)
		},
		Offered: func(consumer []byte, seq uint64) {
			if f := e.o.Offered; f != nil {
				f(name, consumer, seq)
			}
		},
		Served: func(consumer []byte, seq uint64) {
			if f := e.o.Served; f != nil {
				f(name, consumer, seq)
			}
		},
		Barrier: s.barrier,
		Stray:   func(consumer, reply []byte) { e.stray(s, string(consumer), string(reply)) },
		Mirror: func(a *relay.Mirrored) {
			if c := e.canaryNamed(s, a.Consumer); c != nil {
				c.mirror.acked(a)
			}
		},
		Configured: func(cfg *server.StreamConfig) { e.configure(s, cfg) },
		Changed:    func() { e.nudge(s) },
	})
	return s, nil
}

// barrier holds acks of streams that forget what is acknowledged until the copy is durable.
func (s *stream) barrier(seq uint64) <-chan struct{} {
	if !s.forgets.Load() {
		return nil
	}
	durable, moved := s.copy.Progress()
	if seq <= durable {
		return nil
	}
	s.cap.nudge(seq)
	return moved
}

// configured notes the configuration, and reports whether the stream stores other subjects now. Engine.mu is held,
// where others know of s.
func (s *stream) configured(cfg server.StreamConfig) (moved bool) {
	moved = !slices.Equal(s.config.Subjects, cfg.Subjects)
	s.config = cfg
	s.forgets.Store(cfg.Retention != server.LimitsPolicy)
	return moved
}

// nudge says that a client has asked for what may change the stream, on the side that has the say.
func (e *Engine) nudge(s *stream) {
	s.cap.nudge(0)
	e.mu.Lock()
	h := s.here
	e.mu.Unlock()
	if h == nil {
		return
	}
	h.changed.Store(time.Now().UnixNano())
	for _, c := range []chan struct{}{h.nudge, h.turn} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (e *Engine) stray(s *stream, consumer, reply string) {
	e.mu.Lock()
	h, c := s.here, s.canaries[consumer]
	e.mu.Unlock()
	switch {
	case c != nil:
		c.ghost.Stray(reply)
	case h != nil && h.ghosts != nil:
		h.ghosts.Stray(reply)
	}
}

// record makes an entry durable. Events that change authority begin an epoch.
func (e *Engine) record(entry *Entry) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	entry.Time, entry.Epoch = time.Now().UTC(), e.epoch
	if entry.Event == EventFlip || entry.Event == EventRollback {
		entry.Epoch++
	}
	if err := e.journal.add(entry); err != nil {
		return err
	}
	if entry.Event == EventForget {
		delete(e.throttled, entry.Scope)
		delete(e.limits, entry.Scope)
	}
	if entry.Epoch != e.epoch {
		e.epoch, e.marked = entry.Epoch, true
		if s := e.streams[entry.Scope]; s != nil {
			s.ours = entry.Event == EventFlip
		}
	}
	return nil
}

// Raise makes the next epoch a later one than that.
func (e *Engine) Raise(epoch uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.epoch = max(e.epoch, epoch)
}

// Standing returns the epoch, and the streams that the gateway has the say about.
func (e *Engine) Standing() (epoch uint64, here []cutover.Scope) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, s := range e.streams {
		if s.phase == PhaseEHDB || s.phase == PhaseRollingBack || s.phase == PhaseComplete {
			here = append(here, name)
		}
	}
	return e.epoch, here
}

// Standing is what the journal in dir says of that, before an engine is opened.
func Standing(dir string) (epoch uint64, here []cutover.Scope, err error) {
	j, err := openJournal(dir)
	if err != nil {
		return 0, nil, err
	}
	of, epoch := standings(j.all())
	for name, st := range of {
		if st.watched && st.here {
			here = append(here, name)
		}
	}
	return epoch, here, j.close()
}

// Note puts into the journal what happened and decides nothing: EventPostponed, EventHook, EventVeto, EventAbort,
// EventDrill, EventGiveWay, EventGoOn, EventApproved.
func (e *Engine) Note(entry *Entry) error {
	notes := []Event{
		EventPostponed, EventHook, EventVeto, EventAbort, EventDrill, EventGiveWay, EventGoOn, EventApproved,
	}
	if !slices.Contains(notes, entry.Event) {
		return fmt.Errorf("flip: %s is no note", entry.Event)
	}
	return e.record(entry)
}

// Dismissed reports whether the watch of a stream was ended, and not begun again since.
func (e *Engine) Dismissed(name cutover.Scope) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dismissed[name]
}

// find returns a stream under watch.
func (e *Engine) find(name cutover.Scope) (*stream, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.streams[name]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("%w: %s is not under watch: ehdbctl shadow start %s", cutover.ErrNoStream, name, name.Flag())
}

// hold is find for what moves the stream, which nothing else does until it is released: ErrBusy, with ErrRefused, if
// something does.
func (e *Engine) hold(name cutover.Scope) (s *stream, release func(), err error) {
	if s, err = e.find(name); err != nil {
		return nil, nil, err
	}
	if !s.op.TryLock() {
		return nil, nil, fmt.Errorf("%w: %s is %w", ErrRefused, name, ErrBusy)
	}
	return s, s.op.Unlock, nil
}

// Close ends everything. Who has the say does not change.
func (e *Engine) Close() {
	e.cancel()
	e.mu.Lock()
	list := make([]*stream, 0, len(e.streams))
	for _, s := range e.streams {
		list = append(list, s)
	}
	e.mu.Unlock()
	for _, s := range list {
		e.unserve(s)
		e.unstraddle(s)
		s.cap.stop()
	}
	e.running.Wait()
	_ = e.journal.close() // every entry was synced
}

// AtRest reports whether the servers have the say about everything, and nothing is left to do of what was begun: then
// another gateway, which knows nothing of the journal here, may go on. After Close that does not change any more.
func (e *Engine) AtRest() bool {
	of, _ := standings(e.journal.all())
	for _, s := range of {
		if s.here || len(s.dormant) > 0 || len(s.canaries) > 0 {
			return false
		}
	}
	return true
}

// Streams returns the streams under watch, by name.
func (e *Engine) Streams() []cutover.Scope {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]cutover.Scope, 0, len(e.streams))
	for name := range e.streams {
		list = append(list, name)
	}
	slices.SortFunc(list, func(a, b cutover.Scope) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Stream, b.Stream))
	})
	return list
}

// View is a stream as others may look at it.
type View struct {
	Phase    Phase
	Copy     cutover.Copy
	Upstream cutover.Upstream
	Capture  Capture // nil: none yet
	Scope    *relay.Scope
	Config   server.StreamConfig
	Canaries map[string]bool // the consumers that are served from here by themselves
	OneWay   bool            // it was taken over without a way back
}

// View returns a stream under watch.
func (e *Engine) View(name cutover.Scope) (*View, error) {
	s, err := e.find(name)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	v := &View{s.phase, s.copy, s.up, s.cap.get(), s.notes, s.config, make(map[string]bool), s.oneWay}
	for consumer := range s.canaries {
		v.Canaries[consumer] = true
	}
	return v, nil
}

// Journal returns what was decided, oldest first.
func (e *Engine) Journal() []Entry { return e.journal.all() }
