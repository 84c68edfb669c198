package flip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/relay"
	"github.com/noetl/ehdb-gateway/cutover/reverse"
)

// A canary is a consumer that is served from the copy while the servers have the say about the stream. It was taken
// over with all that it remembered; a mirror takes and acknowledges on the servers what clients take and acknowledge
// here. A client whose ack is to be confirmed hears so when it is durable here and the servers have confirmed it as
// well: so whoever serves next, and even without this gateway, nothing behind a confirmed ack is delivered again.

// canary is one of them.
type canary struct {
	Canary
	cfg     server.ConsumerConfig
	created time.Time
	ghost   *reverse.Single
	mirror  *mirror
	turn    chan struct{} // one brings the servers' consumer near at a time
	state   relay.State   // guarded by Engine.mu

	mu sync.Mutex
	// The following are guarded by mu.
	at   time.Time // when the servers' consumer was last where this one was
	err  error     // why it is not, since
	info cutover.ConsumerCopy
	next time.Time       // when the ack wait on the servers is begun anew
	kept map[uint64]bool // what the servers have sent and no client has got, once it is to be given back; nil before
}

// Canary is a consumer that is served from here while the servers have the say about its stream.
type Canary struct {
	Consumer string    `json:"consumer"`
	Since    time.Time `json:"since"`
	By       string    `json:"by,omitempty"`
	Abort    []string  `json:"abort_on,omitempty"` // gates that end it when they fail
}

// CanaryStatus is how one stands.
type CanaryStatus struct {
	Canary
	Delivered uint64    // stream sequence
	AckFloor  uint64    // likewise
	Pending   int       // delivered here without an ack
	At        time.Time // when the servers' consumer was last where this one was
	Error     string    // why it is not
}

// Canary serves a consumer from here. An error means that the servers still do.
func (e *Engine) Canary(ctx context.Context, name cutover.Scope, consumer string, abort []string, o MoveOptions) error {
	s, release, err := e.hold(name)
	if err != nil {
		return err
	}
	defer release()
	info, err := e.canaryRefused(ctx, s, consumer)
	if err != nil {
		return err
	}
	k := Canary{Consumer: consumer, Since: time.Now(), By: o.By, Abort: abort}
	c, err := e.newCanary(s, k, info.Config, info.Created)
	if err != nil {
		return err
	}
	if o.Fence <= 0 {
		o.Fence = DefaultFence
	}
	fenced, cancel := context.WithTimeoutCause(ctx, o.Fence, ErrBudget)
	defer cancel()
	since := time.Now()
	pull, err := e.takeConsumer(fenced, s, c, &o)
	if err != nil {
		return spent(fenced, err)
	}
	e.pullConsumer(s, pull)
	e.o.Logger.Info("Consumer {consumer} of {stream} is served from here, held for {fence}",
		slog.String("consumer", consumer), slog.String("stream", name.String()),
		slog.Duration("fence", time.Since(since)))
	e.changed(name)
	return nil
}

func (e *Engine) newCanary(s *stream, k Canary, cfg *server.ConsumerConfig, created time.Time) (*canary, error) {
	c := &canary{
		Canary: k, cfg: *cfg, created: created, state: relay.Held, turn: make(chan struct{}, 1),
	}
	c.ghost = reverse.NewSingle(s.site.Conn(), s.copy, s.up, s.name.Stream, k.Consumer, func(seq uint64) {
		if f := e.o.Offered; f != nil {
			f(s.name, []byte(k.Consumer), seq)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.kept != nil {
			c.kept[seq] = true
		}
	})
	return c, e.newMirror(s, c)
}

// canaryRefused returns what the servers say of a consumer, if it may be served from here.
func (e *Engine) canaryRefused(ctx context.Context, s *stream, consumer string) (*server.ConsumerInfo, error) {
	refuse := func(format string, args ...any) (*server.ConsumerInfo, error) {
		return nil, fmt.Errorf("%w: consumer %s of %s: %s", ErrRefused, consumer, s.name, fmt.Sprintf(format, args...))
	}
	e.mu.Lock()
	phase, known := s.phase, s.canaries[consumer] != nil
	e.mu.Unlock()
	switch {
	case phase != PhaseShadow:
		return refuse("the stream is in phase %s, not %s", phase, PhaseShadow)
	case known:
		return refuse("it is served from here already")
	}
	if why := e.pausing(s); why != "" {
		return refuse("copying is paused: %s (ehdbctl resume)", why)
	}
	if why := strangers(e.o.Relay.Strangers(s.name.Account)); why != "" {
		return refuse("%s", why)
	}
	info, err := reverse.NewSingle(s.site.Conn(), s.copy, s.up, s.name.Stream, consumer, nil).Info(ctx)
	if err != nil {
		return nil, err
	}
	if why := notServable(info); why != "" {
		return refuse("%s", why)
	}
	return info, nil
}

// notServable is why a consumer cannot be served here alone; empty: it can.
func notServable(info *server.ConsumerInfo) string {
	cfg := info.Config
	switch {
	case cfg.Durable == "":
		return "it is no durable one"
	case cfg.DeliverSubject != "":
		return "it pushes, and the servers would go on pushing: move its stream"
	case cfg.AckPolicy != server.AckExplicit:
		return "its ack policy is not explicit: move its stream"
	case cfg.PriorityPolicy != server.PriorityNone:
		return "it has priority groups, and who is pinned is known to the servers alone: move its stream"
	case cfg.InactiveThreshold > 0:
		return "it has an inactive threshold: the servers might remove it"
	case info.Paused:
		return "it is paused"
	}
	return ""
}

// pauseMore is for how much longer than a fence a consumer is paused, should nobody end that.
const pauseMore = time.Second

// takeConsumer takes a consumer over, and returns what is left of its pull requests.
func (e *Engine) takeConsumer(ctx context.Context, s *stream, c *canary, o *MoveOptions) (
	list []relay.Pull, err error,
) {
	e.setCanary(s, c)
	if err := e.route(); err != nil {
		return nil, err
	}
	resume := func() error {
		gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseMore)
		defer cancel()
		return c.ghost.Pause(gone, time.Time{})
	}
	abandon := func(cause error) error {
		e.dropCanary(s, c)
		c.mirror.session.Close()
		rest := s.copy.RestConsumer(context.WithoutCancel(ctx), c.Consumer)
		return errors.Join(cause, rest, resume(), e.route())
	}
	if err := c.ghost.Pause(ctx, time.Now().Add(o.Fence+pauseMore)); err != nil {
		return nil, abandon(err)
	}
	if err := e.importQuiet(ctx, s, c); err != nil {
		return nil, abandon(err)
	}
	if err := s.copy.ServeConsumer(ctx, c.Consumer); err != nil {
		return nil, abandon(err)
	}
	if err := e.record(&Entry{
		Scope: s.name, Event: EventCanary, Consumer: c.Consumer, Abort: c.Abort, By: o.By, Reason: o.Reason,
	}); err != nil {
		return nil, abandon(err)
	}
	e.mu.Lock()
	c.state = relay.Here
	e.mu.Unlock()
	err = e.route()
	list = e.o.Relay.MovePulls(s.notes, c.Consumer)
	if err := resume(); err != nil { // its pause ends by itself
		e.o.Logger.Warn("Consumer {consumer} of {stream} stays paused on the servers for a moment: {error}",
			slog.String("consumer", c.Consumer), slog.String("stream", s.name.String()), slog.Any("error", err))
	}
	e.startMirror(s, c, nil)
	return list, err
}

// importQuiet imports the state of a consumer that is held and paused, once nothing of it is on its way.
func (e *Engine) importQuiet(ctx context.Context, s *stream, c *canary) error {
	for before := uint64(0); ; {
		if err := e.barrier(ctx); err != nil {
			return err
		}
		info, err := c.ghost.Info(ctx)
		if err != nil {
			return err
		}
		s.notes.Settle([]*server.ConsumerInfo{info})
		in, err := s.consumer(ctx, info)
		if err != nil {
			return err
		}
		if in.Exact && info.Delivered.Consumer == before {
			in.Config.PauseUntil = nil
			if err := s.copy.Durable(ctx, info.Delivered.Stream); err != nil { // it must not be ahead of the copy
				return err
			}
			return s.copy.ImportConsumer(ctx, in)
		}
		before = info.Delivered.Consumer
		if err := sleep(ctx, pollTime); err != nil {
			return fmt.Errorf("%d messages are outstanding, not all of which were seen from here: what was delivered "+
				"before "+
				"the gateway came has to be acknowledged first: %w", info.NumAckPending, err)
		}
	}
}

// EndCanary lets the servers serve a consumer again, once theirs is where the one here is. An error means that it is
// still served from here.
func (e *Engine) EndCanary(ctx context.Context, name cutover.Scope, consumer string, o MoveOptions) error {
	s, release, err := e.hold(name)
	if err != nil {
		return err
	}
	defer release()
	return e.endCanary(ctx, s, consumer, false, o)
}

// endCanary is EndCanary; s.op is held. lost: one of the sides has not got it any more, so nothing is brought over.
//
//nolint:revive // lost is what was found
func (e *Engine) endCanary(ctx context.Context, s *stream, consumer string, lost bool, o MoveOptions) error {
	e.mu.Lock()
	c := s.canaries[consumer]
	e.mu.Unlock()
	if c == nil {
		return fmt.Errorf("%w: consumer %s of %s is served by the servers", ErrRefused, consumer, s.name)
	}
	if o.Fence <= 0 {
		o.Fence = DefaultFence
	}
	if !lost { // most of it comes before the fence
		if _, err := c.bring(ctx, s); err != nil {
			return fmt.Errorf("the servers' consumer is not where this one is: %w", err)
		}
	}
	fenced, cancel := context.WithTimeoutCause(ctx, o.Fence, ErrBudget)
	defer cancel()
	since := time.Now()
	before := e.stateOf(c)
	if lost {
		before = relay.HeldHere
	}
	if err := e.giveConsumer(fenced, s, c, lost, &o); err != nil {
		return errors.Join(spent(fenced, err), e.keepConsumer(s, c, before))
	}
	e.o.Logger.Info("Consumer {consumer} of {stream} is served by the servers, held for {fence}",
		slog.String("consumer", consumer), slog.String("stream", s.name.String()),
		slog.Duration("fence", time.Since(since)))
	e.changed(s.name)
	return nil
}

// giveConsumer gives a consumer back.
//
//nolint:revive // as in endCanary
func (e *Engine) giveConsumer(ctx context.Context, s *stream, c *canary, lost bool, o *MoveOptions) error {
	e.mu.Lock()
	c.state = relay.HeldHere
	e.mu.Unlock()
	if err := e.route(); err != nil {
		return err
	}
	if !lost {
		if err := e.barrier(ctx); err != nil { // what was on its way here when the fence rose is here
			return err
		}
	}
	if err := s.copy.RestConsumer(ctx, c.Consumer); err != nil {
		return err
	}
	var last brought
	if !lost {
		c.keep(make(map[uint64]bool))
		defer c.keep(nil)
		var err error
		if last, err = c.bring(ctx, s); err != nil {
			return err
		}
		if err := c.mirror.flush(ctx); err != nil {
			return err
		}
	}
	if err := e.record(&Entry{
		Scope: s.name, Event: EventCanaryEnd, Consumer: c.Consumer, By: o.By, Reason: o.Reason,
	}); err != nil {
		return err
	}
	c.mirror.close()
	if !lost {
		s.notes.Seed(c.Consumer, c.cfg.AckPolicy, &last.at.State)
	}
	e.mu.Lock()
	c.state = relay.Upstream
	e.mu.Unlock()
	err := e.route()
	if !lost && err == nil {
		e.giveAway(ctx, s, c, last)
	}
	e.dropCanary(s, c)
	return errors.Join(err, e.route())
}

// giveAway makes the servers deliver again what they have sent for a consumer before its route was theirs again.
func (e *Engine) giveAway(ctx context.Context, s *stream, c *canary, last brought) {
	err := e.barrier(ctx) // what was kept from clients is known
	c.mu.Lock()
	kept := slices.Collect(maps.Keys(c.kept))
	c.mu.Unlock()
	err = errors.Join(err, c.ghost.Return(ctx, last.at, last.info, kept))
	if err != nil { // they do all the same, after its ack wait
		e.o.Logger.Warn("Consumer {consumer} of {stream}: {error}", slog.String("consumer", c.Consumer),
			slog.String("stream", s.name.String()), slog.Any("error", err))
	}
}

func (c *canary) keep(kept map[uint64]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = kept
}

// keepConsumer serves a consumer on, after an attempt to give it back. One that was not verified waits on.
func (e *Engine) keepConsumer(s *stream, c *canary, before relay.State) error {
	e.mu.Lock()
	kept := s.canaries[c.Consumer] == c
	c.state = before
	e.mu.Unlock()
	if !kept {
		return nil // it was given back: what failed came behind
	}
	for before == relay.Here {
		err := s.copy.ServeConsumer(e.ctx, c.Consumer)
		if err == nil || e.ctx.Err() != nil {
			return e.route()
		}
		e.o.Logger.Error("Consumer {consumer} of {stream} cannot be served: {error}",
			slog.String("consumer", c.Consumer), slog.String("stream", s.name.String()), slog.Any("error", err))
		_ = sleep(e.ctx, retryPause)
	}
	return e.route()
}
