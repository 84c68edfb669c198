package jetstreamapi

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/jetstreamapi/consumer"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// A consumer of a standby can be served from here while the stream's authority is elsewhere: it delivers what is in the
// log, and takes acks. It removes nothing from the log: that is the authority's, which learns of the acks by the way of
// the cutover.

// quiet is a standby as one of its consumers sees it.
type quiet struct{ e *streamEntry }

var _ consumer.Stream = quiet{}

func (q quiet) Name() string                { return q.e.name }
func (q quiet) Config() server.StreamConfig { return *q.e.config() }
func (q quiet) Log() *storage.Log           { return q.e.log }

// asStream is the stream as its consumers see it.
func (e *streamEntry) asStream() consumer.Stream {
	if e.stream == nil {
		return quiet{e}
	}
	return e.stream
}

// wakeServed tells the consumers that are served of what is visible now.
func (e *streamEntry) wakeServed(visible uint64) {
	if list := e.standby.served.Load(); list != nil {
		for _, c := range *list {
			c.Wake(visible)
		}
	}
}

// trimServed tells them that records are gone.
func (e *streamEntry) trimServed() {
	if list := e.standby.served.Load(); list != nil {
		for _, c := range *list {
			c.Trimmed()
		}
	}
}

// replaceConsumer puts c in the place of the consumer of its name, and notes which are served. change is held.
func (e *streamEntry) replaceConsumer(c *consumerEntry) {
	e.acc.mu.Lock()
	defer e.acc.mu.Unlock()
	e.consumers[c.name] = c
	e.noteServed()
}

// noteServed notes which consumers are served. acc.mu is held.
func (e *streamEntry) noteServed() {
	var list []*consumer.Consumer
	for _, c := range e.consumers {
		if c.consumer != nil {
			list = append(list, c.consumer)
		}
	}
	e.standby.served.Store(&list)
}

// isServed reports whether a consumer of a standby is served from here. change is held.
func (e *streamEntry) isServed() (name string, served bool) {
	e.acc.mu.RLock()
	defer e.acc.mu.RUnlock()
	for _, c := range e.consumers {
		if c.consumer != nil {
			return c.name, true
		}
	}
	return "", false
}

// again returns an entry for the same consumer that does not run.
func (c *consumerEntry) again() *consumerEntry {
	out := &consumerEntry{
		stream: c.stream, name: c.name, created: c.created, logID: c.logID, memory: c.memory,
		state: c.state, exact: c.exact,
	}
	out.cfg.Store(c.config())
	out.durable.Store(c.durable.Load())
	return out
}

// ServeConsumer implements cutover.Copy.
func (c *streamCopy) ServeConsumer(ctx context.Context, name string) error {
	return c.administer(ctx, "serving consumer "+name, func(e *streamEntry, done storage.Done) error {
		if e.role != roleStandby {
			return fmt.Errorf("%w: it is the authority", cutover.ErrRole)
		}
		o := e.findConsumer(name)
		switch {
		case o == nil:
			return cutover.ErrNoConsumer
		case o.offline != nil:
			return o.offline
		case o.consumer != nil:
			done(nil)
			return nil
		}
		served := o.again()
		if err := served.start(served.state, false); err != nil {
			return err
		}
		e.replaceConsumer(served)
		served.consumer.Wake(e.log.Visible())
		done(nil)
		return nil
	})
}

// RestConsumer implements cutover.Copy.
func (c *streamCopy) RestConsumer(ctx context.Context, name string) error {
	return c.administer(ctx, "serving consumer "+name+" no more", func(e *streamEntry, done storage.Done) error {
		if e.role != roleStandby {
			return fmt.Errorf("%w: it is the authority", cutover.ErrRole)
		}
		o := e.findConsumer(name)
		if o == nil || o.consumer == nil {
			done(nil)
			return nil
		}
		if err := o.settle(ctx); err != nil {
			return errors.Join(err, e.takeUp(o))
		}
		rests := o.again()
		rests.exact = true
		e.replaceConsumer(rests)
		e.log.Sync(done)
		return nil
	})
}

// settle ends a running consumer once it has done with what came in.
func (c *consumerEntry) settle(ctx context.Context) error {
	c.session.Close()
	c.consumer.Hold()
	err := c.consumer.Settle(ctx)
	c.moved()
	return errors.Join(err, c.consumer.Settle(ctx))
}

// takeUp runs a consumer again that was ended.
func (e *streamEntry) takeUp(o *consumerEntry) error {
	served := o.again()
	if err := served.start(served.state, false); err != nil {
		return err
	}
	e.replaceConsumer(served)
	return nil
}

// Served returns the names of the consumers that are served from here, sorted.
func (c *streamCopy) Served() []string {
	e, err := c.entry()
	if err != nil || e.role != roleStandby {
		return nil
	}
	e.acc.mu.RLock()
	defer e.acc.mu.RUnlock()
	var out []string
	for _, o := range e.consumers {
		if o.consumer != nil {
			out = append(out, o.name)
		}
	}
	slices.Sort(out)
	return out
}

// endServed ends the consumers of a standby that goes away; waiting pull requests are answered with the status.
func (e *streamEntry) endServed(status string) {
	e.acc.mu.RLock()
	var list []*consumerEntry
	for _, c := range e.consumers {
		if c.consumer != nil {
			list = append(list, c)
		}
	}
	e.acc.mu.RUnlock()
	for _, c := range list {
		c.stop(status)
	}
	e.standby.served.Store(nil)
}

// endServed ends the consumers of all standbys: the server stops.
func (a *account) endServed() {
	a.mu.RLock()
	list := make([]*streamEntry, 0, len(a.standbys))
	for _, e := range a.standbys {
		list = append(list, e)
	}
	a.mu.RUnlock()
	for _, e := range list {
		e.endServed(jsapi.StatusShutdown)
	}
}
