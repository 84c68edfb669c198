package flip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/reverse"
)

// authority is what runs while the gateway has the say about a stream.
type authority struct {
	chain    *reverse.Chain // nil: the way back was given up
	ghosts   *reverse.Ghosts
	nudge    chan struct{} // a client asked for another configuration
	turn     chan struct{} // likewise, for the routes
	bringing chan struct{} // held by what brings the servers near: a rollback keeps it
	limited  atomic.Bool   // the servers keep the stream's limits
	pruned   time.Time     // guarded by bringing: when it was looked what was removed here
	attended bool          // the chain's: limits were lifted upstream
	changed  atomic.Int64  // when a client asked for a change last, in Unix nanoseconds
	level    int64         // the chain's: a time of a change; what was removed before it was removed upstream
	stop     context.CancelFunc
	ended    sync.WaitGroup
}

// serve runs what the gateway has to do beside while it has the say about s.
func (e *Engine) serve(s *stream) {
	ctx, cancel := context.WithCancel(e.ctx)
	h := &authority{
		stop: cancel, nudge: make(chan struct{}, 1), turn: make(chan struct{}, 1), bringing: make(chan struct{}, 1),
	}
	h.changed.Store(time.Now().UnixNano()) // what was asked for before is not known
	replaced := e.replaced(s)
	e.mu.Lock()
	defer e.mu.Unlock()
	s.here = h
	h.ended.Go(func() { e.steer(ctx, s, h) })
	if s.phase == PhaseComplete || s.oneWay {
		h.ended.Go(func() { e.follow(ctx, s, h) })
		return
	}
	h.chain = reverse.NewChain(s.site.Conn(), s.copy, s.up, s.name.Stream, e.epoch, e.o.Logger)
	h.ghosts = reverse.NewGhosts(s.site.Conn(), s.copy, s.up, s.name.Stream, e.o.Logger)
	h.chain.Attend = func(ctx context.Context) error { return e.attend(ctx, s, h) }
	h.ended.Go(func() {
		if replaced != nil { // since before a restart: the chain would not know
			return
		}
		if err := h.chain.Run(ctx); errors.Is(err, reverse.ErrForked) {
			e.o.Logger.Error("Reverse chain of {stream} has ended, a rollback would lose messages: {error}",
				slog.String("stream", s.name.String()), slog.Any("error", err))
		}
	})
	h.ended.Go(func() { e.follow(ctx, s, h) })
}

// removalTime is how long a request may be on its way to the stream here.
const removalTime = time.Second

// attend brings what has to be upstream before the chain publishes.
func (e *Engine) attend(ctx context.Context, s *stream, h *authority) error {
	if !h.attended {
		if err := e.bringLifted(ctx, s, h); err != nil && !reverse.Refused(err) { // who follows tells the latter
			return err
		}
		h.attended = true
	}
	// A limit that is not lifted would remove what is still here in the place of what clients have removed here. Where
	// they may not, or where there is one message of a subject, nothing else is removed before what limits remove.
	cfg := s.copy.Config()
	limited := cfg.MaxMsgsPer > 1 || cfg.MaxMsgs > 0 && cfg.DenyPurge
	changed := h.changed.Load()
	if limited && cfg.Discard == server.DiscardOld && !cfg.DenyDelete && changed != h.level {
		asked := time.Now()
		if err := e.pruneAll(ctx, s); err != nil {
			return err
		}
		if asked.Sub(time.Unix(0, changed)) > removalTime {
			h.level = changed
		}
	}
	return h.ghosts.Attend(ctx)
}

// unserve ends what serve runs.
func (e *Engine) unserve(s *stream) {
	e.mu.Lock()
	h := s.here
	s.here = nil
	e.mu.Unlock()
	if h == nil {
		return
	}
	h.halt()
	if h.ghosts != nil {
		h.ghosts.Close()
	}
}

// halt ends what runs beside.
func (h *authority) halt() {
	h.stop()
	h.ended.Wait()
}

const (
	followEvery = time.Second
	// followPause is between what a client asks for and looking what became of it.
	followPause = 50 * time.Millisecond
	// steerFirst and steerLast are the pauses between the looks for what a client has asked for, ever longer.
	steerFirst = time.Millisecond
	steerLast  = 500 * time.Millisecond
)

// steer makes the routes follow what a client asks for at once, however slow the servers are: a client may publish to a
// new subject as soon as it was told that the stream stores it.
func (e *Engine) steer(ctx context.Context, s *stream, h *authority) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.turn:
		}
		for pause := steerFirst; pause < steerLast; pause *= 2 {
			if moved, err := e.turn(s); moved || err != nil || sleep(ctx, pause) != nil {
				break // an error is met again by who follows
			}
		}
	}
}

// follow keeps the servers' stream near the one here in all that is no message, its configuration and its consumers,
// and the routes to it.
func (e *Engine) follow(ctx context.Context, s *stream, h *authority) {
	t := time.NewTicker(followEvery)
	defer t.Stop()
	said := ""
	for {
		err := e.bring(ctx, s, h)
		if err == nil {
			said = ""
		} else if text := err.Error(); text != said && ctx.Err() == nil {
			said = text
			e.o.Logger.Warn("Stream {stream} upstream could not be kept near the one here: {error}",
				slog.String("stream", s.name.String()), slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-h.nudge:
			_ = sleep(ctx, followPause)
		case <-t.C:
		}
	}
}

// bring brings the servers' stream near the one here, once. Without a way back only the routes follow.
func (e *Engine) bring(ctx context.Context, s *stream, h *authority) error {
	if h.chain == nil {
		return e.reroute(ctx, s)
	}
	if err := e.replaced(s); err != nil { // what is on the servers is not this stream
		return errors.Join(err, e.reroute(ctx, s))
	}
	select {
	case h.bringing <- struct{}{}:
		defer func() { <-h.bringing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return errors.Join(e.bringLifted(ctx, s, h), e.trim(ctx, s), e.prune(ctx, s, h), h.ghosts.Sync(ctx))
}

// pruneEvery bounds how often what clients have removed is looked for: the sequences that lack may be many.
const pruneEvery = 10 * time.Second

// prune removes from the servers' stream what clients have removed here, so that a rollback has little of that to do
// behind its fence. Where acks remove messages, those upstream do.
func (e *Engine) prune(ctx context.Context, s *stream, h *authority) error {
	if time.Since(h.pruned) < pruneEvery {
		return nil
	}
	ours, err := s.copy.State(ctx, false)
	if err != nil {
		return err
	}
	theirs, err := s.up.State(ctx, false)
	if err != nil || theirs.Msgs <= ours.Msgs { // else those that the chain has yet to bring are more than those
		return err
	}
	h.pruned = time.Now()
	return e.pruneAll(ctx, s)
}

// pruneAll is prune, without a look at how much there is to do.
func (e *Engine) pruneAll(ctx context.Context, s *stream) error {
	if s.copy.Config().Retention != server.LimitsPolicy {
		return nil
	}
	last, _ := s.copy.Progress()
	_, err := reverse.Prune(ctx, s.site.Conn(), s.copy, s.up, last)
	return err
}

// bringLifted is bringConfig without the limits that would be in the chain's way, if the servers allow that.
func (e *Engine) bringLifted(ctx context.Context, s *stream, h *authority) error {
	err := e.bringConfig(ctx, s, h.lifted)
	if !reverse.Refused(err) || h.limited.Swap(true) {
		return err
	}
	e.o.Logger.Warn("Limits of {stream} stay as they are upstream, where messages are larger: {error}",
		slog.String("stream", s.name.String()), slog.Any("error", err))
	return e.bringConfig(ctx, s, h.lifted)
}

// lifted is the configuration that the servers' stream is to have while the gateway has the say: that of here, without
// the limits that would be in the chain's way. Servers that do not allow that, an account may demand them, keep them.
func (h *authority) lifted(cfg server.StreamConfig) server.StreamConfig {
	if h.limited.Load() {
		return cfg
	}
	return reverse.Lifted(cfg)
}

// bringConfig gives the servers' stream the configuration that it has here, as shape makes it. What it stores is routed
// here before the servers store it, too.
func (e *Engine) bringConfig(
	ctx context.Context, s *stream, shape func(server.StreamConfig) server.StreamConfig,
) error {
	cfg := s.copy.Config()
	if cfg.Name == "" {
		return fmt.Errorf("%w: %s", cutover.ErrNoStream, s.name)
	}
	if err := e.reroute(ctx, s); err != nil {
		return err
	}
	changed, err := reverse.BringConfig(ctx, s.site.Conn(), shape(cfg), s.up)
	if err == nil && len(changed) > 0 {
		e.o.Logger.Info("Stream {stream} upstream has got the configuration it has here: {changed}",
			slog.String("stream", s.name.String()), slog.Any("changed", changed))
	}
	return err
}

// trim removes from the servers' stream what the limits have removed here and, lifted, do not remove there.
func (e *Engine) trim(ctx context.Context, s *stream) error {
	cfg := s.copy.Config()
	if cfg.MaxBytes <= 0 && cfg.MaxMsgs <= 0 || cfg.Discard == server.DiscardNew || cfg.DenyPurge {
		return nil
	}
	return reverse.Trim(ctx, s.site.Conn(), s.copy, s.up, s.name.Stream)
}

// turn sends here what the stream stores and where its consumers push to, as it is configured now.
func (e *Engine) turn(s *stream) (moved bool, err error) {
	s.turning.Lock()
	defer s.turning.Unlock()
	cfg := s.copy.Config()
	if cfg.Name == "" { // it is gone: its subjects stay here, where their publishers hear of it
		return false, nil
	}
	pushed := s.setDeliver(e)
	e.mu.Lock()
	moved = s.configured(cfg) || pushed
	if moved {
		s.turns++
	}
	e.mu.Unlock()
	if moved {
		err = e.route()
	}
	return moved, err
}

// reroute is turn that waits until nothing is on its way that went by the routes of before.
func (e *Engine) reroute(ctx context.Context, s *stream) error {
	if _, err := e.turn(s); err != nil {
		return err
	}
	e.mu.Lock()
	turns, settled := s.turns, s.settled
	e.mu.Unlock()
	if turns == settled {
		return nil
	}
	if err := e.barrier(ctx); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.settled = turns
	return nil
}
