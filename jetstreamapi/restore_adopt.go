package jetstreamapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// adopt makes what was loaded a stream of the account: one entry of the catalog brings it and its consumers into being.
// Nothing is delivered before that is durable.
func (l *loader) adopt() (*streamEntry, error) {
	durable := make(chan error, 1)
	if err := l.enter(func(err error) { durable <- err }); err != nil {
		return nil, err
	}
	select {
	case err := <-durable:
		if err != nil {
			return nil, fmt.Errorf("the stream is not known to be stored: %w", err)
		}
	case <-l.ctx.Done():
		return nil, fmt.Errorf("the stream is not known to be stored: %w", context.Cause(l.ctx))
	}
	l.e.stream.Reconcile()
	l.e.startLinks()
	for _, c := range l.consumers {
		c.entry.durable.Store(c.entry.config())
		c.entry.consumer.Release()
	}
	return l.e, nil
}

// enter writes the catalog and starts the stream and its consumers; durable is called once the catalog is.
func (l *loader) enter(durable storage.Done) error {
	a, cfg := l.acc, &l.req.StreamConfig
	a.change.Lock()
	defer a.change.Unlock()
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	if apiErr := a.checkStreamCount(cfg); apiErr != nil {
		return apiErr
	}
	if apiErr := a.checkRestorable(cfg); apiErr != nil {
		return apiErr
	}
	if l.e.store() != l.store {
		return storage.ErrStopped
	}
	if err := l.e.needPositions(cfg); err != nil {
		return err
	}
	if err := l.record(durable); err != nil {
		return err
	}
	l.unhold() // the stream counts its bytes from here on
	if err := l.start(); err != nil {
		return errors.Join(err, a.record(l.e.removal(), nil))
	}
	l.adopted = true
	a.addStream(l.e)
	a.adviseStream(l.e.name, server.CreateEvent)
	for _, c := range l.consumers {
		a.adviseConsumer(l.e.name, c.entry.name, server.CreateEvent)
	}
	return nil
}

// record writes the stream and its consumers to the catalog, but for those that live in memory.
func (l *loader) record(durable storage.Done) error {
	if l.e.memory {
		durable(nil)
		return nil
	}
	records := []catalogRecord{l.e.record(l.e.config())}
	for _, c := range l.consumers {
		if !c.entry.memory {
			records = append(records, c.entry.record(c.entry.config()))
		}
	}
	c, err := l.acc.svc.fileCatalog()
	if err != nil {
		return err
	}
	return c.putAll(records, durable)
}

func (l *loader) start() error {
	if err := l.e.start(l.log); err != nil {
		return err
	}
	for _, c := range l.consumers {
		err := c.entry.start(c.state, true)
		if err == nil {
			continue
		}
		for _, c := range l.consumers {
			c.entry.stop(jsapi.StatusShutdown)
		}
		l.e.stop()
		return err
	}
	return nil
}
