package flip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/cutover/relay"
)

func (e *Engine) setCanary(s *stream, c *canary) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.canaries == nil {
		s.canaries = make(map[string]*canary)
	}
	s.canaries[c.Consumer] = c
}

func (e *Engine) stateOf(c *canary) relay.State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return c.state
}

func (e *Engine) dropCanary(s *stream, c *canary) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(s.canaries, c.Consumer)
}

// endCanaries gives all consumers of a stream back that are served from here; s.op is held.
func (e *Engine) endCanaries(ctx context.Context, s *stream, o MoveOptions) error {
	for _, c := range e.canariesOf(s) {
		if err := e.endCanary(ctx, s, c.Consumer, false, o); err != nil {
			return fmt.Errorf("consumer %s, which is served from here, cannot be given back: %w", c.Consumer, err)
		}
	}
	return nil
}

func (e *Engine) canariesOf(s *stream) []*canary {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]*canary, 0, len(s.canaries))
	for _, c := range s.canaries {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *canary) int { return a.Since.Compare(b.Since) })
	return list
}

// canaryNamed returns one of a stream, nil if the servers serve it.
func (e *Engine) canaryNamed(s *stream, consumer string) *canary {
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.canaries[consumer]
}

// resumeCanaries serves again after a restart what was served from here: what concerns it waits until it is verified.
func (e *Engine) resumeCanaries(s *stream, list map[string]Canary) error {
	infos, err := s.copy.Consumers()
	if err != nil && len(list) > 0 {
		return err
	}
	for consumer, k := range list {
		i := slices.IndexFunc(infos, func(in cutover.ConsumerCopy) bool { return in.Name == consumer })
		if i < 0 { // the copy was made anew
			gone := &Entry{Scope: s.name, Event: EventCanaryEnd, Consumer: consumer, Reason: errLost.Error()}
			if err := e.record(gone); err != nil {
				return err
			}
			continue
		}
		c, err := e.newCanary(s, k, &infos[i].Config, infos[i].Created)
		if err != nil {
			return err
		}
		c.state = relay.HeldHere
		e.setCanary(s, c)
		e.startMirror(s, c, e.verify)
	}
	return nil
}

// errTaken says that the servers' consumer is not as the mirror has left it. It knows best then: every ack that was
// confirmed to a client was confirmed by the servers.
var errTaken = errors.New("others have taken messages of it from the servers while the gateway was away")

// verify serves a consumer from here once the servers say that nobody else has taken messages of it meanwhile.
func (e *Engine) verify(ctx context.Context, s *stream, c *canary) error {
	last, err := c.bring(ctx, s)
	if err != nil {
		return err
	}
	missed, err := c.ghost.Missed(ctx, last.at, last.info)
	if err != nil {
		return err
	}
	if missed {
		return errTaken
	}
	if err := s.copy.ServeConsumer(ctx, c.Consumer); err != nil {
		return err
	}
	e.mu.Lock()
	c.state = relay.Here
	e.mu.Unlock()
	return e.route()
}

// checkCanaries ends those whose consumer the servers have changed or deleted, and serves the others again if the data
// directory was opened anew.
func (e *Engine) checkCanaries(ctx context.Context, s *stream, infos []*server.ConsumerInfo) {
	if !s.op.TryLock() {
		return // what is being moved is looked at later
	}
	defer s.op.Unlock()
	for _, c := range e.canariesOf(s) {
		why, lost := c.astray(infos)
		var err error
		switch {
		case why == "" && e.stateOf(c) == relay.Here:
			err = s.copy.ServeConsumer(ctx, c.Consumer)
		case why != "":
			err = e.endCanary(ctx, s, c.Consumer, lost, MoveOptions{By: "gateway", Reason: why})
		}
		if err != nil {
			e.o.Logger.Warn("Consumer {consumer} of {stream}, which is served from here: {error}",
				slog.String("consumer", c.Consumer), slog.String("stream", s.name.String()), slog.Any("error", err))
		}
	}
}

// astray is why the servers have to serve a consumer again, of which they say infos; empty: they need not. lost: one of
// the sides has not got it any more.
func (c *canary) astray(infos []*server.ConsumerInfo) (why string, lost bool) {
	i := slices.IndexFunc(infos, func(in *server.ConsumerInfo) bool { return in.Name == c.Consumer })
	switch {
	case i < 0:
		return "the servers have it no more", true
	case !infos[i].Created.Equal(c.created):
		return "the servers have another one of that name", true
	case errors.Is(c.failure(), errLost) || errors.Is(c.failure(), errTaken):
		return c.failure().Error(), true
	case !sameConsumer(c.cfg, *infos[i].Config):
		return "its configuration was changed on the servers", false
	}
	return "", false
}

// errLost says that the copy was made anew without the consumer.
var errLost = errors.New("the copy has lost the consumer")

func (c *canary) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *canary) met(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// status is how the canary stands.
func (c *canary) status() CanaryStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := CanaryStatus{
		Canary: c.Canary, Delivered: c.info.State.Delivered.Stream, AckFloor: c.info.State.AckFloor.Stream,
		Pending: len(c.info.State.Pending), At: c.at,
	}
	if c.err != nil {
		out.Error = c.err.Error()
	}
	return out
}

// Canaries returns the consumers of a stream that are served from here, the oldest first.
func (e *Engine) Canaries(name cutover.Scope) ([]CanaryStatus, error) {
	s, err := e.find(name)
	if err != nil {
		return nil, err
	}
	out := []CanaryStatus{}
	for _, c := range e.canariesOf(s) {
		out = append(out, c.status())
	}
	return out, nil
}
