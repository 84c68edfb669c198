package flip

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/reverse"
)

// captor holds the capture of a stream, once there is one.
type captor struct{ at atomic.Pointer[Capture] }

func (c *captor) set(v Capture) { c.at.Store(&v) }

func (c *captor) get() Capture {
	if v := c.at.Load(); v != nil {
		return *v
	}
	return nil
}

func (c *captor) nudge(last uint64) {
	if v := c.get(); v != nil {
		v.Nudge(last)
	}
}

func (c *captor) stop() {
	if v := c.get(); v != nil {
		v.Stop()
	}
}

// Watch brings a stream of the servers under watch: its shadow begins.
func (e *Engine) Watch(ctx context.Context, name cutover.Scope, by string) error {
	e.mu.Lock()
	known := e.streams[name] != nil
	e.mu.Unlock()
	if known {
		return nil
	}
	if err := e.watch(ctx, name); err != nil {
		return err
	}
	if err := e.record(&Entry{Scope: name, Event: EventShadow, By: by}); err != nil {
		return err
	}
	e.mu.Lock()
	delete(e.dismissed, name)
	e.mu.Unlock()
	if err := e.route(); err != nil {
		return err
	}
	e.changed(name)
	if s, err := e.find(name); err == nil { // what was delivered up to here was not seen
		if infos, err := s.up.Consumers(ctx); err == nil {
			s.notes.Settle(infos)
		}
	}
	return nil
}

func (e *Engine) changed(name cutover.Scope) {
	if f := e.o.Changed; f != nil {
		f(name)
	}
}

func (e *Engine) watch(ctx context.Context, name cutover.Scope) error {
	site, err := e.o.Site(name.Account)
	if err != nil {
		return err
	}
	info, err := site.Stream(name.Stream).Info(ctx)
	if err != nil {
		return err
	}
	c, err := e.o.Local.Create(ctx, name.Account, &info.Config, info.Created, max(info.State.FirstSeq, 1))
	if err != nil {
		return err
	}
	s, err := e.newStream(name, c)
	if err != nil {
		return err
	}
	e.shadow(s, info.Config)
	return nil
}

// shadow begins to copy a stream.
func (e *Engine) shadow(s *stream, cfg server.StreamConfig) {
	s.phase, s.since = PhaseShadow, time.Now()
	s.configured(cfg)
	s.cap.set(s.site.Capture(s.name.Stream, s.copy))
	e.mu.Lock()
	e.streams[s.name] = s
	e.mu.Unlock()
	e.applyPause(s)
	s.cap.get().Start()
	e.running.Go(func() { e.observe(s) })
}

// expire gives up publishes that no server will answer any more, until the engine is closed.
func (e *Engine) expire() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case now := <-t.C:
			e.o.Relay.Expire(now)
		}
	}
}

// observeEvery is how often the servers are asked what a stream under watch is like.
const observeEvery = 2 * time.Second

// observe keeps what is known of a stream up to date while the servers have the say.
func (e *Engine) observe(s *stream) {
	t := time.NewTicker(observeEvery)
	defer t.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-t.C:
		}
		e.mu.Lock()
		phase, watched := s.phase, e.streams[s.name] == s
		e.mu.Unlock()
		if !watched || phase != PhaseShadow {
			if !watched || phase == PhaseComplete {
				return
			}
			continue
		}
		ctx, cancel := context.WithTimeout(e.ctx, observeEvery)
		err := e.refresh(ctx, s)
		cancel()
		if err != nil && e.ctx.Err() == nil {
			e.o.Logger.Warn("Stream {stream} upstream could not be looked at: {error}",
				slog.String("stream", s.name.String()), slog.Any("error", err))
		}
	}
}

// configure makes the routes those of how the servers have just configured a stream, while they have the say: what a
// client publishes to a new subject is noted from its first message on.
func (e *Engine) configure(s *stream, cfg *server.StreamConfig) {
	e.mu.Lock()
	moved := s.phase == PhaseShadow && e.streams[s.name] == s && s.configured(*cfg)
	s.turns++
	e.mu.Unlock()
	if !moved {
		return
	}
	if err := e.route(); err != nil {
		e.o.Logger.Error("Routes: {error}", slog.Any("error", err))
	}
}

// refresh asks the servers about a stream and its consumers.
func (e *Engine) refresh(ctx context.Context, s *stream) error {
	e.mu.Lock()
	turns := s.turns
	e.mu.Unlock()
	info, err := s.up.Info(ctx)
	if err != nil {
		return err
	}
	consumers, err := s.up.Consumers(ctx)
	if err != nil {
		return err
	}
	s.notes.Settle(consumers)
	e.checkCanaries(ctx, s, consumers)
	e.mu.Lock()
	moved := s.turns == turns && s.configured(info.Config) // else the answer may be older than what is known
	e.mu.Unlock()
	e.applyPause(s) // the retention may be another
	if moved {
		err = e.route()
	}
	return errors.Join(err, e.sweep(s))
}

// sweepTime bounds one look for fillers: a killed nats-server may have all messages again that were purged lately.
const sweepTime = 20 * time.Second

// sweep looks for fillers of the reverse chain that a nats-server has again: behind each start, and whenever the
// connection was interrupted, as when a server was killed.
func (e *Engine) sweep(s *stream) error {
	conn := s.site.Conn()
	at := conn.Stats().Reconnects + 1
	e.mu.Lock()
	done := s.swept == at || s.from == 0 && s.lastMove == nil // or it was never served from here
	e.mu.Unlock()
	if done {
		return nil
	}
	ctx, cancel := context.WithTimeout(e.ctx, sweepTime)
	defer cancel()
	n, err := reverse.Sweep(ctx, conn, s.copy, s.up)
	if n > 0 {
		e.o.Logger.Info("Stream {stream}: {messages} fillers that the servers had again are deleted",
			slog.String("stream", s.name.String()), slog.Int("messages", n))
	}
	if err == nil {
		s.swept = at
	}
	return err
}
