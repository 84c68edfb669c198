package jetstreamapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/cutover"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
)

// Cutover returns the service as the cutover sees it.
func (s *Service) Cutover() cutover.Local { return &local{s} }

// local implements cutover.Local.
type local struct{ svc *Service }

// Create implements cutover.Local.
func (l *local) Create(
	ctx context.Context, accountName string, given *server.StreamConfig, created time.Time, first uint64,
) (cutover.Copy, error) {
	c := &streamCopy{l.svc, cutover.Scope{Account: accountName, Stream: given.Name}}
	a := l.svc.account(accountName)
	if a == nil {
		return nil, c.fail("making a standby", fmt.Errorf("account %s has no JetStream here", accountName))
	}
	cfg := cloneConfig(given)
	cfg.Metadata = withoutServer(cfg.Metadata)
	durable := make(chan error, 1)
	err := a.createStandby(cfg, created.UTC(), first, func(err error) { durable <- err })
	if err == nil {
		err = awaitDone(ctx, durable)
	}
	if err != nil {
		return nil, c.fail("making a standby", err)
	}
	return c, nil
}

// createStandby makes a standby, or brings the configuration of one up to date.
func (a *account) createStandby(cfg *server.StreamConfig, created time.Time, first uint64, done storage.Done) error {
	a.change.Lock()
	defer a.change.Unlock()
	a.mu.RLock()
	served, e := a.streams[cfg.Name], a.standbys[cfg.Name]
	a.mu.RUnlock()
	switch {
	case served != nil && served.role == roleAuthority:
		return fmt.Errorf("%w: it is the authority", cutover.ErrRole)
	case served != nil:
		return fmt.Errorf("%w: a client made a stream of that name here, delete it if it is not needed",
			cutover.ErrRole)
	case e != nil && e.offline != nil:
		return e.offline
	case e != nil && !e.created.Equal(created):
		return fmt.Errorf("%w: the standby is that of the one made at %v, not at %v", cutover.ErrIncarnation, e.created,
			created)
	case e != nil && e.config().Storage != cfg.Storage:
		return errors.New("the storage type of a stream cannot change")
	}
	if err := a.checkStandby(cfg); err != nil {
		return err
	}
	if e == nil {
		return a.makeStandby(cfg, created, first, done)
	}
	if sameJSON(cfg, e.config()) {
		e.log.Sync(done)
		return nil
	}
	if err := a.record(e.record(cfg), done); err != nil {
		return err
	}
	e.cfg.Store(cfg)
	return nil
}

// Stream implements cutover.Local.
func (l *local) Stream(accountName, name string) (cutover.Copy, error) {
	c := &streamCopy{l.svc, cutover.Scope{Account: accountName, Stream: name}}
	if _, err := c.entry(); err != nil {
		return nil, err
	}
	return c, nil
}

// Named implements cutover.Local.
func (l *local) Named(accountName, name string) cutover.Copy {
	return &streamCopy{l.svc, cutover.Scope{Account: accountName, Stream: name}}
}

// Scopes implements cutover.Local.
func (l *local) Scopes() map[cutover.Scope]cutover.Role {
	out := make(map[cutover.Scope]cutover.Role)
	for _, a := range l.svc.sortedAccounts() {
		a.mu.RLock()
		for name := range a.standbys {
			out[cutover.Scope{Account: a.name, Stream: name}] = cutover.Standby
		}
		for name, e := range a.streams {
			if e.role == roleAuthority {
				out[cutover.Scope{Account: a.name, Stream: name}] = cutover.Authority
			}
		}
		a.mu.RUnlock()
	}
	return out
}

// streamCopy implements cutover.Copy. It finds the stream anew for each call: the entry changes with the role, and when
// the data directory was opened again.
type streamCopy struct {
	svc   *Service
	scope cutover.Scope
}

// fail adds what was done, and to which stream, to an error.
func (c *streamCopy) fail(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("stream %s here: %s: %w", c.scope, what, err)
}

// entry returns the stream's entry.
func (c *streamCopy) entry() (*streamEntry, error) {
	a := c.svc.account(c.scope.Account)
	if a == nil {
		return nil, c.fail("finding it", cutover.ErrNoStream)
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	if e := a.standbys[c.scope.Stream]; e != nil {
		return e, nil
	}
	if e := a.streams[c.scope.Stream]; e != nil {
		return e, nil
	}
	return nil, c.fail("finding it", cutover.ErrNoStream)
}

// serving returns the stream's entry, which has a log.
func (c *streamCopy) serving() (*streamEntry, error) {
	e, err := c.entry()
	if err == nil && e.offline != nil {
		return nil, c.fail("using it", e.offline)
	}
	return e, err
}

// administer calls fn while no asset of the account changes, and waits for done.
func (c *streamCopy) administer(ctx context.Context, what string, fn func(*streamEntry, storage.Done) error) error {
	durable := make(chan error, 1)
	err := func() error {
		a := c.svc.account(c.scope.Account)
		if a == nil {
			return cutover.ErrNoStream
		}
		a.change.Lock()
		defer a.change.Unlock()
		e, err := c.serving()
		if err != nil {
			return err
		}
		return fn(e, func(err error) { durable <- err })
	}()
	if err == nil {
		err = awaitDone(ctx, durable)
	}
	return c.fail(what, err)
}

// Role implements cutover.Copy. A stream that is gone has none: it counts as a standby.
func (c *streamCopy) Role() cutover.Role {
	e, err := c.entry()
	if err != nil || e.role == roleStandby {
		return cutover.Standby
	}
	return cutover.Authority
}

// Config implements cutover.Copy; it is zero once the stream is gone.
func (c *streamCopy) Config() server.StreamConfig {
	e, err := c.entry()
	if err != nil {
		return server.StreamConfig{}
	}
	return *cloneConfig(e.config())
}

// TakePulls implements cutover.Copy.
func (c *streamCopy) TakePulls() []cutover.Pull {
	e, err := c.entry()
	if err != nil {
		return nil
	}
	return e.standby.takePulls()
}

// Created implements cutover.Copy; it is zero once the stream is gone.
func (c *streamCopy) Created() time.Time {
	e, err := c.entry()
	if err != nil {
		return time.Time{}
	}
	return e.created
}

// State implements cutover.Reader.
func (c *streamCopy) State(_ context.Context, deleted bool) (server.StreamState, error) {
	e, err := c.serving()
	if err != nil {
		return server.StreamState{}, err
	}
	if e.stream != nil {
		return e.state(deleted, ""), nil
	}
	st := stream.StateOf(e.log, deleted)
	st.Consumers = e.countConsumers(func(cfg *server.ConsumerConfig) bool { return !cfg.Direct })
	if st.LastSeq == 0 {
		st.FirstSeq = 0 // nothing was ever stored
	}
	return st, nil
}

// Read implements cutover.Reader.
func (c *streamCopy) Read(ctx context.Context, from uint64, fn func(*cutover.Record, error) bool) error {
	e, err := c.serving()
	if err != nil {
		return err
	}
	cursor := e.log.NewCursor(from, nil)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		m, err := cursor.Next()
		if err == nil {
			if !fn(&cutover.Record{Seq: m.Seq, Time: m.Time, Subject: m.Key, Header: m.Header, Data: m.Data}, nil) {
				return nil
			}
			continue
		}
		if errors.Is(err, storage.ErrEOF) {
			return nil
		}
		bad, ok := unreadable(e.log, cursor.Position(), err)
		if !ok {
			return c.fail("reading it", err)
		}
		if !fn(nil, bad) {
			return nil
		}
		cursor.Seek(bad.Seq + 1)
	}
}

// unreadable finds the record at or after from that cannot be read; ok is false if that is not what keeps a cursor from
// going on.
func unreadable(log *storage.Log, from uint64, cause error) (bad *cutover.UnreadableError, ok bool) {
	if errors.Is(cause, storage.ErrStopped) {
		return nil, false
	}
	for seq := from; seq <= log.Visible(); seq++ {
		_, err := log.Get(seq)
		switch {
		case err == nil || errors.Is(err, storage.ErrEOF):
			return nil, false
		case !errors.Is(err, storage.ErrNotFound):
			return &cutover.UnreadableError{Seq: seq, Err: err}, true
		}
	}
	return nil, false
}

// Get implements cutover.Reader.
func (c *streamCopy) Get(_ context.Context, seq uint64) (*cutover.Record, error) {
	e, err := c.serving()
	if err != nil {
		return nil, err
	}
	m, err := e.log.Get(seq)
	switch {
	case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrEOF):
		return nil, cutover.ErrNoRecord
	case err != nil:
		return nil, c.fail("reading a record", &cutover.UnreadableError{Seq: seq, Err: err})
	}
	return &cutover.Record{
		Seq: m.Seq, Time: m.Time,
		Subject: slices.Clone(m.Key), Header: slices.Clone(m.Header), Data: slices.Clone(m.Data),
	}, nil
}

// Apply implements cutover.Copy.
func (c *streamCopy) Apply(batch []cutover.Record) (done int, stall <-chan struct{}, err error) {
	e, err := c.entry()
	if err != nil {
		return 0, nil, err
	}
	done, stall, err = e.apply(batch)
	return done, stall, c.fail("storing records", err)
}

// Advance implements cutover.Copy.
func (c *streamCopy) Advance(last uint64, at int64) error {
	return c.change("passing over what was removed", func(e *streamEntry) error { return e.advance(last, at) })
}

// Remove implements cutover.Copy.
func (c *streamCopy) Remove(seqs []uint64) error {
	return c.change("removing records", func(e *streamEntry) error { return e.removeRecords(seqs) })
}

// RemoveBelow implements cutover.Copy.
func (c *streamCopy) RemoveBelow(first uint64) error {
	return c.change("removing records", func(e *streamEntry) error { return e.removeBelow(first) })
}

func (c *streamCopy) change(what string, fn func(*streamEntry) error) error {
	e, err := c.entry()
	if err != nil {
		return err
	}
	return c.fail(what, fn(e))
}

// Durable implements cutover.Copy.
func (c *streamCopy) Durable(ctx context.Context, seq uint64) error {
	for {
		e, err := c.serving()
		if err != nil {
			return err
		}
		moved := e.standby.wait()
		if err := e.awaitDurable(ctx); err != nil {
			return c.fail("making it durable", err)
		}
		if e.log.Visible() >= seq {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return c.fail("making it durable", context.Cause(ctx))
		}
	}
}

// Progress implements cutover.Copy.
func (c *streamCopy) Progress() (seq uint64, moved <-chan struct{}) {
	e, err := c.entry()
	if err != nil {
		soon := make(chan struct{}) // it may be made again
		time.AfterFunc(goneLook, func() { close(soon) })
		return 0, soon
	}
	moved = e.standby.wait()
	if e.offline != nil {
		return 0, moved
	}
	return e.log.Visible(), moved
}

// goneLook is when to look again for a stream that is not there.
const goneLook = 20 * time.Millisecond

// SetRole implements cutover.Copy.
func (c *streamCopy) SetRole(ctx context.Context, role cutover.Role) error {
	e, err := c.serving()
	switch {
	case err != nil:
		return err
	case e.role == "":
		return c.fail("changing its role", fmt.Errorf("%w: a client made it here", cutover.ErrRole))
	case role == cutover.Authority && e.role == roleStandby:
		return c.fail("making it the authority", e.promote(ctx))
	case role == cutover.Standby && e.role == roleAuthority:
		return c.fail("making it a standby", e.demote(ctx))
	}
	return c.fail("changing its role", e.awaitDurable(ctx))
}

// Delete implements cutover.Copy.
func (c *streamCopy) Delete(ctx context.Context) error {
	return c.administer(ctx, "deleting it", func(e *streamEntry, done storage.Done) error {
		if e.role == roleStandby {
			return e.acc.removeStandby(e, done)
		}
		return e.acc.deleteStream(e, done)
	})
}

// Dedup implements cutover.Copy.
func (c *streamCopy) Dedup() []cutover.DedupEntry {
	e, err := c.serving()
	if err != nil {
		return nil
	}
	var known []stream.Remembered
	if e.stream != nil {
		known = e.stream.Dedupe()
	} else {
		e.standby.mu.Lock()
		more := e.standby.dedupe
		e.standby.mu.Unlock()
		known = stream.ReadDedupe(e.log, e.config().Duplicates, more)
	}
	out := make([]cutover.DedupEntry, len(known))
	for i, r := range known {
		out[i] = cutover.DedupEntry(r)
	}
	return out
}

// ImportDedup implements cutover.Copy: it takes the place of what was imported before.
func (c *streamCopy) ImportDedup(entries []cutover.DedupEntry) error {
	return c.change("importing message ids", func(e *streamEntry) error {
		return e.change(func(*storage.Log) error {
			e.standby.dedupe = make([]stream.Remembered, len(entries))
			for i, r := range entries {
				e.standby.dedupe[i] = stream.Remembered(r)
			}
			return nil
		})
	})
}
