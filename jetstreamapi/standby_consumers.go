package jetstreamapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/jetstreamapi/consumer"
	"github.com/noetl/ehdb-gateway/storage"
)

// copyConsumer returns the consumer with all that it remembers. A consumer that is offline is an error.
func (c *consumerEntry) copyConsumer(last uint64) (cutover.ConsumerCopy, error) {
	out := cutover.ConsumerCopy{Name: c.name, Created: c.created, Exact: true}
	if !copyJSON(c.config(), &out.Config) {
		out.Config = *c.config()
	}
	if c.offline != nil {
		return out, fmt.Errorf("consumer %s: %w", c.name, c.offline)
	}
	var s consumer.State
	if c.consumer != nil {
		s = c.consumer.State()
	} else {
		var err error
		out.Exact = c.exact
		if s, _, err = consumer.Read(c.state, c.stream.name, c.name, c.config()); err != nil {
			return out, fmt.Errorf("consumer %s: %w", c.name, err)
		}
	}
	out.State = s.NATS(c.config(), last, time.Now().UnixNano())
	return out, nil
}

// importConsumer makes a consumer with the state of in, in the place of one of that name; done is called once it is
// durable. change is held.
func (e *streamEntry) importConsumer(in *cutover.ConsumerCopy, done storage.Done) error {
	cfg, err := e.acc.checkImport(e, in)
	if err != nil {
		return err
	}
	s := consumer.FromNATS(cfg, &in.State, time.Now().UnixNano())
	old := e.findConsumer(in.Name)
	if e.role == roleStandby && old != nil && old.consumer != nil {
		return fmt.Errorf("%w: consumer %s is served from here", cutover.ErrRole, in.Name)
	}
	if e.role == roleStandby && old != nil && old.offline == nil && old.created.Equal(in.Created) {
		old.pin = consumer.Pin(in.Pin)
		return old.reimport(cfg, &s, in.Exact, done)
	}
	if old != nil {
		if err := e.dropConsumer(old); err != nil {
			return err
		}
	}
	c := &consumerEntry{
		stream: e, name: in.Name, created: in.Created, memory: e.memory || cfg.MemoryStorage || cfg.Direct,
		exact: in.Exact, pin: consumer.Pin(in.Pin),
	}
	c.cfg.Store(cfg)
	st := c.store()
	if st == nil {
		return storage.ErrStopped
	}
	c.state, err = st.CreateStateLog(c.home(st), e.acc.name+"/"+e.name+"/"+c.name, c.memory)
	if err != nil {
		return err
	}
	c.logID = c.state.ID()
	if err := consumer.Import(c.state, &s, nil); err != nil {
		return errors.Join(err, c.dropState())
	}
	durable, started := whenBoth(c.whenDurable(cfg, done))
	if err := e.acc.record(c.record(cfg), durable); err != nil {
		return errors.Join(err, c.dropState())
	}
	if e.role != roleStandby {
		if err := c.start(c.state, false); err != nil {
			started(errors.Join(err, e.acc.record(c.removal(), nil), c.dropState()))
			return nil
		}
	}
	e.acc.addConsumer(c)
	started(nil)
	return nil
}

// checkImport returns the configuration as it is kept, if this stream can have such a consumer.
func (a *account) checkImport(e *streamEntry, in *cutover.ConsumerCopy) (*server.ConsumerConfig, error) {
	cfg := new(server.ConsumerConfig)
	if !copyJSON(&in.Config, cfg) {
		*cfg = in.Config
	}
	if cfg.Name == "" {
		cfg.Name = in.Name
	}
	if in.Name == "" || cfg.Name != in.Name || cfg.Durable != "" && cfg.Durable != in.Name {
		return nil, fmt.Errorf("consumer %q: its configuration is that of %q", in.Name, cfg.Name)
	}
	cfg.Metadata = withoutServer(cfg.Metadata)
	complete := *cfg
	if apiErr := consumer.Complete(&complete, e.config(), a.consumerLimits(), false); apiErr != nil {
		return nil, fmt.Errorf("consumer %s cannot be served here: %w", in.Name, apiErr)
	}
	counts := !cfg.Direct && !cfg.Sourcing && e.findConsumer(in.Name) == nil
	if n := a.maxConsumers(e); counts && n > 0 && e.numLimited() >= n {
		return nil, fmt.Errorf("consumer %s does not fit here: a stream of account %s may have %d consumers",
			in.Name, a.name, n)
	}
	return cfg, nil
}

// reimport gives a consumer of a standby another configuration and state.
func (c *consumerEntry) reimport(cfg *server.ConsumerConfig, s *consumer.State, exact bool, done storage.Done) error {
	written, recorded := whenBoth(func(err error) {
		if err == nil {
			c.durable.Store(cfg)
		}
		done(err)
	})
	if err := consumer.Replace(c.state, s, written); err != nil {
		return err
	}
	c.exact = exact
	if sameJSON(cfg, c.config()) {
		recorded(nil)
		return nil
	}
	if err := c.stream.acc.record(c.record(cfg), recorded); err != nil {
		recorded(err)
		return nil
	}
	c.cfg.Store(cfg)
	return nil
}

// dropConsumer removes a consumer without telling anybody. change is held.
func (e *streamEntry) dropConsumer(c *consumerEntry) error {
	if err := e.acc.record(c.removal(), nil); err != nil {
		return err
	}
	c.gone.Store(true)
	c.moved()
	e.acc.removeConsumer(c)
	if err := c.dropState(); err != nil {
		c.logger().Warn("the state of a deleted consumer stays for now", slog.Any("error", err))
	}
	return nil
}

// Consumers implements cutover.Copy.
func (c *streamCopy) Consumers() ([]cutover.ConsumerCopy, error) {
	e, err := c.serving()
	if err != nil {
		return nil, err
	}
	last := e.log.State().LastSeq
	var out []cutover.ConsumerCopy
	for _, o := range e.acc.sortedConsumers(e) {
		one, err := o.copyConsumer(last)
		if err != nil {
			return nil, c.fail("reading its consumers", err)
		}
		out = append(out, one)
	}
	return out, nil
}

// ConsumerNames implements cutover.Copy.
func (c *streamCopy) ConsumerNames() ([]string, error) {
	e, err := c.serving()
	if err != nil {
		return nil, err
	}
	list := e.acc.sortedConsumers(e)
	out := make([]string, len(list))
	for i, o := range list {
		out[i] = o.name
	}
	return out, nil
}

// ImportConsumer implements cutover.Copy.
func (c *streamCopy) ImportConsumer(ctx context.Context, in *cutover.ConsumerCopy) error {
	return c.administer(ctx, "importing a consumer", func(e *streamEntry, done storage.Done) error {
		return e.importConsumer(in, done)
	})
}

// DeleteConsumer implements cutover.Copy.
func (c *streamCopy) DeleteConsumer(ctx context.Context, name string) error {
	return c.administer(ctx, "deleting a consumer", func(e *streamEntry, done storage.Done) error {
		if o := e.findConsumer(name); o != nil {
			if err := e.dropConsumer(o); err != nil {
				return err
			}
			if e.stream != nil {
				e.stream.DropUnneeded()
			}
		}
		e.log.Sync(done)
		return nil
	})
}
