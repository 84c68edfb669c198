package jetstreamapi

import (
	"errors"
	"log/slog"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"

	"github.com/noetl/ehdb-gateway/jetstreamapi/consumer"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// createConsumer makes or updates a consumer. done is called once it is durable, or with the error that kept it from
// being; the API error is for a request that is refused, done is not called then. change is held.
func (a *account) createConsumer(
	e *streamEntry, req *jsapi.ConsumerCreateRequest, done func(*consumerEntry, error),
) *jsapi.Error {
	cfg := &req.Config
	a.mu.RLock()
	old := e.consumers[cfg.Name]
	a.mu.RUnlock()
	if old != nil && cfg.Name != "" {
		if old.offline != nil {
			return server.NewJSConsumerOfflineReasonError(old.offline)
		}
		cfg.PauseUntil = old.config().PauseUntil // pausing has a call of its own
	}
	setConsumerLevel(cfg)
	if apiErr := consumer.Complete(cfg, e.config(), a.consumerLimits(), req.Pedantic); apiErr != nil {
		return apiErr
	}
	if apiErr := a.checkDeadLetter(e, cfg); apiErr != nil {
		return apiErr
	}
	if old == nil && cfg.Durable != "" {
		a.mu.RLock()
		old = e.consumers[cfg.Durable]
		a.mu.RUnlock()
	}
	if old != nil {
		return a.changeConsumer(old, cfg, req.Action, done)
	}
	if req.Action == server.ActionUpdate {
		return server.NewJSConsumerDoesNotExistError()
	}
	if apiErr := a.checkNewConsumer(e, cfg); apiErr != nil {
		return apiErr
	}
	if err := a.makeConsumer(e, cfg, done); err != nil {
		done(nil, err)
	}
	return nil
}

func (a *account) consumerLimits() consumer.Limits {
	srv, lim := &a.svc.opts.Limits, a.limits.Load()
	l := consumer.Limits{MaxAckPending: srv.MaxAckPending, MaxRequestBatch: srv.MaxRequestBatch}
	if lim.MaxAckPending > 0 && (l.MaxAckPending <= 0 || lim.MaxAckPending < l.MaxAckPending) {
		l.MaxAckPending = lim.MaxAckPending
	}
	return l
}

// changeConsumer serves a create of a consumer that exists.
func (a *account) changeConsumer(
	c *consumerEntry, cfg *server.ConsumerConfig, action server.ConsumerAction, done func(*consumerEntry, error),
) *jsapi.Error {
	old := c.config()
	if action == server.ActionCreate {
		same := *cfg
		same.Metadata = likeBefore(cfg.Metadata, old.Metadata)
		if !sameJSON(&same, old) {
			return server.NewJSConsumerAlreadyExistsError()
		}
	}
	setInactiveThreshold(cfg)
	if takesWork(c.stream.config(), cfg) && !c.stream.filtersFree(c.name, filtersOf(cfg)) {
		return server.NewJSConsumerWQConsumerNotUniqueError()
	}
	if sameJSON(cfg, old) {
		a.whenDurable(c, done)
		return nil
	}
	if apiErr := consumer.CheckUpdate(old, cfg); apiErr != nil {
		return apiErr
	}
	if old.DeliverSubject != cfg.DeliverSubject && c.consumer.Stats().Bound {
		return server.NewJSConsumerNameExistError() // somebody listens on the old one
	}
	if cfg.Sourcing { // it goes on after what was acknowledged
		if _, err := c.consumer.Reset(0); err != nil {
			return server.NewJSConsumerInvalidResetError(err)
		}
	}
	if err := a.updateConsumer(c, cfg, func(err error) { done(c, err) }); err != nil {
		done(c, err)
	}
	return nil
}

// whenDurable calls done once what made the consumer what it is, is durable.
func (a *account) whenDurable(c *consumerEntry, done func(*consumerEntry, error)) {
	if c.memory || c.durable.Load() == c.config() {
		done(c, nil)
		return
	}
	if err := a.record(c.record(c.config()), func(err error) { done(c, err) }); err != nil {
		done(c, err)
	}
}

// updateConsumer changes the running consumer and the catalog; done is called once that is durable. change is held.
func (a *account) updateConsumer(c *consumerEntry, cfg *server.ConsumerConfig, done storage.Done) error {
	if err := c.consumer.Update(*cfg); err != nil {
		return err
	}
	old := c.config()
	if s := c.stream.stream; s != nil && !consumer.SameFilters(old, cfg) {
		done = a.droppingUnneeded(s, done)
	}
	c.cfg.Store(cfg) // before done can be called
	if err := a.record(c.record(cfg), c.whenDurable(cfg, done)); err != nil {
		c.cfg.Store(old)
		return errors.Join(err, c.consumer.Update(*old))
	}
	return nil
}

// droppingUnneeded is done after the messages of an interest stream that nobody wants any more were deleted, for
// which a change must be durable.
func (a *account) droppingUnneeded(s *stream.Stream, done storage.Done) storage.Done {
	return func(err error) {
		if err != nil {
			done(err)
			return
		}
		open := a.writes.pushAlways(func(*publisher) {
			s.DropUnneeded()
			done(nil)
		})
		if !open {
			done(nil)
		}
	}
}

// checkNewConsumer checks a new consumer's name and what its stream and account allow.
func (a *account) checkNewConsumer(e *streamEntry, cfg *server.ConsumerConfig) *jsapi.Error {
	internal := cfg.Direct || cfg.Sourcing
	if n := a.maxConsumers(e); n > 0 && !internal && e.numLimited() >= n {
		return server.NewJSMaximumConsumersLimitError()
	}
	if takesWork(e.config(), cfg) && !internal {
		if apiErr := e.checkWorkQueue(cfg); apiErr != nil {
			return apiErr
		}
	}
	if len(cfg.Name) > server.JSMaxNameLen {
		return server.NewJSConsumerNameTooLongError(server.JSMaxNameLen)
	}
	if cfg.Name != "" && !jsapi.ValidAssetName(cfg.Name) {
		return server.NewJSConsumerBadDurableNameError()
	}
	return nil
}

// maxConsumers is how many consumers the stream may have; 0: any number.
func (a *account) maxConsumers(e *streamEntry) int {
	lim := a.limits.Load().MaxConsumers
	n := e.config().MaxConsumers
	if n <= 0 || (lim > 0 && lim < n) {
		n = lim
	}
	if n <= 0 {
		n = a.svc.opts.Limits.DefaultMaxConsumers
	}
	return max(n, 0)
}

// takesWork reports whether a consumer takes messages from a work queue.
func takesWork(stream *server.StreamConfig, cfg *server.ConsumerConfig) bool {
	return stream.Retention == server.WorkQueuePolicy && !consumer.Peeks(cfg)
}

// checkWorkQueue checks that a new consumer can be one of a work queue: every message goes to exactly one of them.
func (e *streamEntry) checkWorkQueue(cfg *server.ConsumerConfig) *jsapi.Error {
	if cfg.AckPolicy != server.AckExplicit && cfg.AckPolicy != server.AckFlowControl {
		return server.NewJSConsumerWQRequiresExplicitAckError()
	}
	if cfg.DeliverPolicy != server.DeliverAll {
		return server.NewJSConsumerWQConsumerNotDeliverAllError()
	}
	if e.numWorking() == 0 {
		return nil
	}
	filters := filtersOf(cfg)
	if len(filters) == 0 {
		return server.NewJSConsumerWQMultipleUnfilteredError()
	}
	if !e.filtersFree(cfg.Name, filters) {
		return server.NewJSConsumerWQConsumerNotUniqueError()
	}
	return nil
}

// filtersFree reports whether no consumer but the one called name has a filter that overlaps one of filters.
func (e *streamEntry) filtersFree(name string, filters []string) bool {
	e.acc.mu.RLock()
	defer e.acc.mu.RUnlock()
	for _, c := range e.consumers {
		cfg := c.config()
		if c.name == name || cfg.Direct || cfg.Sourcing || consumer.Peeks(cfg) {
			continue
		}
		if overlapsAnyPair(filtersOf(cfg), filters) {
			return false
		}
	}
	return true
}

// overlapsAnyPair reports whether a filter of theirs overlaps one of ours; none of theirs means all subjects.
func overlapsAnyPair(theirs, ours []string) bool {
	for _, o := range ours {
		if len(theirs) == 0 {
			return true
		}
		for _, t := range theirs {
			if subjects.Overlap(o, t) {
				return true
			}
		}
	}
	return false
}

func filtersOf(cfg *server.ConsumerConfig) []string {
	if cfg.FilterSubject != "" {
		return []string{cfg.FilterSubject}
	}
	return cfg.FilterSubjects
}

// makeConsumer makes the state log, writes the catalog and starts the consumer, in this order. change is held.
func (a *account) makeConsumer(e *streamEntry, cfg *server.ConsumerConfig, done func(*consumerEntry, error)) error {
	switch {
	case cfg.Durable != "":
		cfg.Name = cfg.Durable
	case cfg.Name == "":
		cfg.Name = a.newConsumerName(e)
	}
	setInactiveThreshold(cfg)
	c := &consumerEntry{
		stream: e, name: cfg.Name, created: time.Now().UTC(),
		memory: e.memory || cfg.MemoryStorage || cfg.Direct,
	}
	c.cfg.Store(cfg)
	st := c.store()
	if st == nil {
		return storage.ErrStopped
	}
	state, err := st.CreateStateLog(c.home(st), a.name+"/"+e.name+"/"+c.name, c.memory)
	if err != nil {
		return err
	}
	c.logID = state.ID()
	durable, started := whenBoth(c.whenDurable(cfg, func(err error) { done(c, err) }))
	if err := a.record(c.record(cfg), durable); err != nil {
		return errors.Join(err, c.dropState())
	}
	if err := c.start(state, true); err != nil {
		gone := c.removal()
		started(errors.Join(err, a.record(gone, nil), c.dropState()))
		return nil
	}
	a.addConsumer(c)
	a.adviseConsumer(e.name, c.name, server.CreateEvent)
	started(nil)
	return nil
}

// defaultInactiveThreshold is how long an ephemeral consumer may go unused.
const defaultInactiveThreshold = 5 * time.Second

// setInactiveThreshold shows the default of an ephemeral consumer in its configuration, but only once it exists: a
// request that compares configurations is about what the client set.
func setInactiveThreshold(cfg *server.ConsumerConfig) {
	if cfg.Durable == "" && cfg.InactiveThreshold <= 0 {
		cfg.InactiveThreshold = defaultInactiveThreshold
	}
}

// home is the shard of the consumer's state: its stream's home.
func (c *consumerEntry) home(st *storage.Store) storage.ShardID {
	if s := c.stream.shards; len(s) > 0 && c.memory == c.stream.memory {
		return s[0]
	}
	return storage.ShardID(hashShard(c.stream.acc.name, c.stream.name, st.Shards()))
}

// dropState removes the consumer's state for good.
func (c *consumerEntry) dropState() error {
	st := c.store()
	if st == nil {
		return storage.ErrStopped
	}
	return st.DropLog(c.logID, nil)
}

// newConsumerName makes a name of eight letters and digits that no consumer of the stream has.
func (a *account) newConsumerName(e *streamEntry) string {
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	a.mu.RLock()
	defer a.mu.RUnlock()
	for {
		var name [8]byte
		h := xxhash.Sum64String(nuid.Next())
		for i := range name {
			name[i] = alphabet[h%uint64(len(alphabet))]
			h /= uint64(len(alphabet))
		}
		if _, taken := e.consumers[string(name[:])]; !taken {
			return string(name[:])
		}
	}
}

// deleteConsumer removes a consumer that may be gone already; done (may be nil) is called once that is durable.
func (a *account) deleteConsumer(c *consumerEntry, done storage.Done) error {
	a.change.Lock()
	defer a.change.Unlock()
	a.mu.RLock()
	current := a.streams[c.stream.name]
	live := current == c.stream && current.consumers[c.name] == c
	a.mu.RUnlock()
	if done == nil {
		done = func(error) {}
	}
	if !live || c.gone.Swap(true) {
		done(nil)
		return nil
	}
	gone := c.removal()
	durable, stopped := whenBoth(done)
	if err := a.record(gone, durable); err != nil {
		c.gone.Store(false)
		return err
	}
	c.stop(jsapi.StatusConsumerDeleted)
	a.removeConsumer(c)
	if c.stream.stream != nil {
		c.stream.stream.DropUnneeded()
	}
	if err := c.dropState(); err != nil {
		c.logger().Warn("the state of a deleted consumer stays for now", slog.Any("error", err))
	}
	a.adviseConsumer(c.stream.name, c.name, server.DeleteEvent)
	stopped(nil)
	return nil
}
