package jetstreamapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/jetstreamapi/consumer"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// promote makes a standby the authority. Nothing is delivered before that is durable.
func (e *streamEntry) promote(ctx context.Context) error {
	if err := e.awaitDurable(ctx); err != nil { // consumers must not be ahead of the log
		return err
	}
	durable := make(chan error, 1)
	ne, err := e.enterAuthority(func(err error) { durable <- err })
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		if err := <-durable; err != nil {
			done <- err
			return
		}
		ne.serve()
		ne.log.Sync(func(err error) { done <- err }) // what the limits removed is to be seen
	}()
	return awaitDone(ctx, done)
}

// awaitDone returns what done gives, or that ctx has ended.
func awaitDone(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// serve lets a new authority deliver.
func (e *streamEntry) serve() {
	e.stream.Reconcile()
	e.startLinks()
	pulls := e.standby.takePulls()
	e.acc.mu.RLock()
	defer e.acc.mu.RUnlock()
	for _, c := range e.consumers {
		if c.offline == nil {
			c.consumer.Release()
		}
	}
	for i := range pulls { // they have waited through it
		if c := e.consumers[pulls[i].Consumer]; c != nil && c.offline == nil {
			c.consumer.Pull([]byte(pulls[i].Inbox), nil, pulls[i].Request)
		}
	}
}

// takePulls returns the requests that waited when the stream became a standby, once.
func (s *standby) takePulls() []cutover.Pull {
	s.moving.Lock()
	defer s.moving.Unlock()
	list := s.pulls
	s.pulls = nil
	return list
}

func (s *standby) keepPulls(list []cutover.Pull) {
	s.moving.Lock()
	defer s.moving.Unlock()
	s.pulls = list
}

// enterAuthority writes the role to the catalog and starts the stream and its consumers, which hold their messages
// back.
func (e *streamEntry) enterAuthority(durable storage.Done) (*streamEntry, error) {
	a := e.acc
	a.change.Lock()
	defer a.change.Unlock()
	if err := a.checkPromotion(e); err != nil {
		return nil, err
	}
	if name, served := e.isServed(); served {
		return nil, fmt.Errorf("%w: consumer %s is served from here: end that first", cutover.ErrRole, name)
	}
	e.standby.close()
	ne := e.reborn(roleAuthority)
	ne.standby.dedupe = e.standby.dedupe
	ne.standby.keepPulls(e.standby.takePulls())
	err := ne.needPositions(ne.config())
	if err == nil {
		err = a.record(ne.record(ne.config()), durable)
	}
	if err != nil {
		e.standby.keepPulls(ne.standby.takePulls())
		a.back(e)
		return nil, err
	}
	if err := ne.run(true); err != nil {
		err = errors.Join(err, a.record(e.record(e.config()), nil))
		e.standby.keepPulls(ne.standby.takePulls())
		a.back(e)
		return nil, err
	}
	ne.standby.dedupe = nil
	a.mu.Lock()
	delete(a.standbys, e.name)
	a.mu.Unlock()
	a.addStream(ne)
	e.standby.wake()
	return ne, nil
}

// back makes e, which was closed, a standby of the account again. change is held.
func (a *account) back(e *streamEntry) {
	ne := e.reborn(roleStandby)
	ne.standby.dedupe = e.standby.dedupe
	ne.standby.keepPulls(e.standby.takePulls())
	ne.keep(e.log)
	a.addStandby(ne)
	e.standby.wake()
}

// checkPromotion checks that e is a standby of the account which it could have as a stream. change is held.
func (a *account) checkPromotion(e *streamEntry) error {
	a.mu.RLock()
	current := a.standbys[e.name] == e
	a.mu.RUnlock()
	if !current {
		return fmt.Errorf("%w: it has just changed", cutover.ErrRole)
	}
	if err := a.checkStandby(e.config()); err != nil {
		return err
	}
	return e.affords(e.log, nil)
}

// run starts the stream and its consumers. held keeps back deliveries until serve. On an error nothing runs.
func (e *streamEntry) run(held bool) error {
	if err := e.start(e.log); err != nil {
		return err
	}
	for _, c := range e.consumers {
		if err := c.start(c.state, held); err != nil {
			for _, c := range e.consumers {
				c.stop(jsapi.StatusShutdown)
			}
			e.stop()
			return err
		}
	}
	return nil
}

// demote makes an authority a standby. What came in before is done with.
func (e *streamEntry) demote(ctx context.Context) error {
	durable := make(chan error, 1)
	ne, err := e.enterStandby(ctx, func(err error) { durable <- err })
	if err != nil {
		return err
	}
	if err := awaitDone(ctx, durable); err != nil {
		return err
	}
	return ne.awaitDurable(ctx)
}

func (e *streamEntry) enterStandby(ctx context.Context, durable storage.Done) (*streamEntry, error) {
	a := e.acc
	a.change.Lock()
	defer a.change.Unlock()
	if !e.live() || e.offline != nil {
		return nil, fmt.Errorf("%w: it has just changed, or is offline", cutover.ErrRole)
	}
	pulls, quiet := e.quiesce(ctx)
	ne := e.reborn(roleStandby)
	ne.standby.dedupe = e.stream.Dedupe()
	e.stop()
	for _, c := range ne.consumers {
		c.exact, c.pin = true, consumer.Pin{}
	}
	err := quiet
	if err == nil {
		err = a.record(ne.record(ne.config()), durable)
	}
	if err != nil {
		return nil, errors.Join(err, a.revive(e, pulls))
	}
	ne.standby.keepPulls(pulls)
	ne.keep(e.log)
	a.addStandby(ne)
	a.removeStream(e)
	e.standby.close()
	return ne, nil
}

// quiesce ends the consumers once they have done with what came in, and returns the requests that wait at them.
func (e *streamEntry) quiesce(ctx context.Context) (pulls []cutover.Pull, err error) {
	e.acc.mu.RLock()
	consumers := make([]*consumerEntry, 0, len(e.consumers))
	for _, c := range e.consumers {
		if c.offline == nil {
			consumers = append(consumers, c)
		}
	}
	e.acc.mu.RUnlock()
	e.unlink()
	for _, c := range consumers {
		c.session.Close()
		c.consumer.Hold()
	}
	var errs []error
	for _, c := range consumers {
		errs = append(errs, c.consumer.Settle(ctx))
	}
	e.stream.Quiesce()
	for _, c := range consumers {
		for _, w := range c.consumer.Leave(timedOut, jsapi.StatusRequestTimeout) {
			pulls = append(pulls, cutover.Pull{Consumer: c.name, Inbox: w.Inbox, Request: w.Request})
		}
		c.moved()
		errs = append(errs, c.consumer.Settle(ctx))
	}
	return pulls, errors.Join(errs...)
}

// revive starts a stream again that was stopped to become a standby, and could not. change is held.
func (a *account) revive(e *streamEntry, pulls []cutover.Pull) error {
	ne := e.reborn(roleAuthority)
	ne.standby.keepPulls(pulls)
	if err := ne.run(false); err != nil {
		ne.logger().Error("a stream could not be started again", slog.Any("error", err))
		ne = ne.offlineCopy(err)
		a.addStream(ne)
		return err
	}
	a.addStream(ne)
	ne.serve()
	return nil
}
