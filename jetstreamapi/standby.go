package jetstreamapi

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
	"github.com/noetl/ehdb-gateway/jetstreamapi/consumer"
	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
)

// A standby is a stream whose authority is elsewhere: its log and the states of its consumers, and nothing that runs on
// them. So it has no interest on the bus, applies no limit and delivers nothing, by construction. To become the
// authority it is started, as after a restart; to become a standby again, it is stopped. The account keeps standbys
// apart from its streams: what looks at streams does not see them.

// Roles of streams that the cutover made, as the catalog has them.
const (
	roleStandby   = "standby"
	roleAuthority = "authority"
)

// errStandby answers requests about a standby. They get here only where no route leads to its authority.
var errStandby = &server.ApiError{
	Code: 503, ErrCode: uint16(server.JSClusterNotAvailErr),
	Description: "stream is a standby here: the NATS servers have the authority over it",
}

// standby is what a streamEntry has of its own while it is one, and how far its log is in either role.
type standby struct {
	mu     sync.Mutex // the owner's lock of the log while no stream runs on it
	closed bool       // nothing may be changed any more

	dedupe []stream.Remembered // what the dedup window has besides the log; guarded by mu

	pulls []cutover.Pull // requests that waited when the stream became a standby; guarded by moving

	served atomic.Pointer[[]*consumer.Consumer] // those that run, see standby_serve.go; nil: none

	moving sync.Mutex
	moved  chan struct{} // closed when the visible position moves; nil: nobody waits
}

// wake tells those who wait for the log that it moved.
func (s *standby) wake() {
	s.moving.Lock()
	defer s.moving.Unlock()
	if s.moved != nil {
		close(s.moved)
		s.moved = nil
	}
}

func (s *standby) wait() <-chan struct{} {
	s.moving.Lock()
	defer s.moving.Unlock()
	if s.moved == nil {
		s.moved = make(chan struct{})
	}
	return s.moved
}

// close ends changes through this entry.
func (s *standby) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wake()
}

// keep makes the entry a standby over log.
func (e *streamEntry) keep(log *storage.Log) {
	e.log = log
	log.OnVisible(func(visible uint64, _ error) {
		e.standby.wake()
		e.wakeServed(visible)
	})
}

func (a *account) addStandby(e *streamEntry) {
	a.mu.Lock()
	old := a.standbys[e.name]
	a.standbys[e.name] = e
	a.mu.Unlock()
	if old != nil {
		old.standby.wake() // who waits for the log has to wait for this one
	}
}

// replaceStandbys puts entries that say why in the place of the standbys on disk, and returns these. mu is held.
func (a *account) replaceStandbys(cause error) []*streamEntry {
	var gone []*streamEntry
	for name, e := range a.standbys {
		if !e.memory {
			gone = append(gone, e)
			a.standbys[name] = e.offlineCopy(cause)
		}
	}
	return gone
}

// forgetStandbys ends all standbys of an account that is served no more; what they have stays on disk.
func (a *account) forgetStandbys() {
	a.mu.Lock()
	gone := a.standbys
	a.standbys = make(map[string]*streamEntry)
	a.mu.Unlock()
	for _, e := range gone {
		e.standby.close()
		e.endServed(jsapi.StatusShutdown)
		if !e.memory {
			continue
		}
		if err := e.dropLog(); err != nil {
			e.logger().Warn("a standby in memory is not freed", slog.Any("error", err))
		}
	}
}

// change calls fn with the log of a standby, under its owner's lock.
func (e *streamEntry) change(fn func(log *storage.Log) error) error {
	if e.role != roleStandby {
		return fmt.Errorf("%w: it is the authority", cutover.ErrRole)
	}
	if e.offline != nil {
		return e.offline
	}
	e.standby.mu.Lock()
	defer e.standby.mu.Unlock()
	if e.standby.closed {
		return fmt.Errorf("%w: it has just changed", cutover.ErrRole)
	}
	return fn(e.log)
}

// apply stores records as they are, see cutover.Copy.
func (e *streamEntry) apply(batch []cutover.Record) (done int, stall <-chan struct{}, err error) {
	err = e.change(func(log *storage.Log) error {
		if err := e.affords(log, batch); err != nil {
			return err
		}
		last, prev := log.State().LastSeq, uint64(0)
		for i := range batch {
			r := &batch[i]
			if r.Seq <= prev {
				return fmt.Errorf("%w: %d after %d", cutover.ErrOrder, r.Seq, prev)
			}
			prev = r.Seq
			if r.Seq > last {
				m := storage.Record{Seq: r.Seq, Time: r.Time, Key: r.Subject, Header: r.Header, Data: r.Data}
				if err := log.Append(&m, nil); err != nil {
					return fmt.Errorf("message %d: %w", r.Seq, err)
				}
			}
			done++
		}
		return nil
	})
	if errors.Is(err, storage.ErrFull) {
		return done, e.room(), nil
	}
	if st := e.store(); st != nil {
		stall = st.Stall()
	}
	return done, stall, err
}

// affords refuses what the account could not keep if it became the authority: better now than then.
func (e *streamEntry) affords(log *storage.Log, batch []cutover.Record) error {
	a, kind := e.acc, e.config().Storage
	limit := storageLimit(a.limits.Load(), kind)
	if srv := a.svc.maxBytes(kind); limit < 0 || srv >= 0 && srv < limit {
		limit = srv
	}
	if limit < 0 {
		return nil
	}
	size := e.spec().Size
	need := log.State().Bytes
	for i := range batch {
		need += size(len(batch[i].Subject), len(batch[i].Header), len(batch[i].Data))
	}
	if used := nonNegative(a.used.used(kind).Load()); used+need > uint64(limit) {
		return fmt.Errorf("JetStream of account %s may store %d bytes here, of which %d are in use: %d do not fit; "+
			"raise the account's or the server's limit", a.name, limit, used, need)
	}
	return nil
}

// room returns a channel that is closed once it is worth offering again what found the queue full.
func (e *streamEntry) room() <-chan struct{} {
	if st := e.store(); st != nil {
		if stall := st.Stall(); stall != nil {
			return stall
		}
	}
	soon := make(chan struct{})
	time.AfterFunc(fullRetry, func() { close(soon) })
	return soon
}

// advance makes last the last sequence, of that time. What has to be there for that goes again at once.
func (e *streamEntry) advance(last uint64, at int64) error {
	return e.change(func(log *storage.Log) error {
		if log.State().LastSeq >= last {
			return nil
		}
		var group storage.Batch
		group.Append(log, &storage.Record{Seq: last, Time: max(at, 0), Key: []byte("deleted")})
		group.Delete(log, last)
		return group.Commit(nil)
	})
}

func (e *streamEntry) removeRecords(seqs []uint64) error {
	return e.change(func(log *storage.Log) error {
		_, err := log.Delete(seqs, false, nil)
		e.trimServed()
		return err
	})
}

func (e *streamEntry) removeBelow(first uint64) error {
	return e.change(func(log *storage.Log) error {
		st := log.State()
		switch {
		case first > st.LastSeq+1:
			return fmt.Errorf("records up to %d cannot be removed: the last is %d", first-1, st.LastSeq)
		case first <= st.FirstSeq || st.Messages == 0:
			return nil
		}
		_, err := log.Purge(nil, first, 0, nil)
		e.trimServed()
		return err
	})
}

// awaitDurable waits until what was done to the log so far is durable and visible.
func (e *streamEntry) awaitDurable(ctx context.Context) error {
	if e.offline != nil {
		return e.offline
	}
	return awaitDurable(ctx, e.log)
}

// removeStandby removes a standby and its consumers; done is called once that is durable. change is held.
func (a *account) removeStandby(e *streamEntry, done storage.Done) error {
	if err := a.record(e.removal(), done); err != nil {
		return err
	}
	a.mu.Lock()
	delete(a.standbys, e.name)
	consumers := e.consumers
	e.consumers = make(map[string]*consumerEntry)
	a.mu.Unlock()
	e.standby.close()
	for _, c := range consumers {
		c.stop(jsapi.StatusConsumerDeleted)
		if err := c.dropState(); err != nil {
			c.logger().Warn("the state of a deleted consumer stays for now", slog.Any("error", err))
		}
	}
	if err := e.dropLog(); err != nil {
		e.logger().Warn("the log of a deleted standby stays for now", slog.Any("error", err))
	}
	return nil
}

// makeStandby makes the log of a standby and writes the catalog; done is called once that is durable. change is held.
func (a *account) makeStandby(cfg *server.StreamConfig, created time.Time, first uint64, done storage.Done) error {
	e := &streamEntry{
		acc: a, name: cfg.Name, created: created, memory: cfg.Storage == server.MemoryStorage,
		consumers: make(map[string]*consumerEntry), role: roleStandby,
	}
	e.cfg.Store(cfg)
	st := e.store()
	if st == nil {
		return storage.ErrStopped
	}
	e.shards = a.svc.place(a.name, cfg.Name, cfg.Subjects, st.Shards())
	spec := e.spec()
	if first > 0 {
		spec.FirstSeq = max(first-1, 1) // so that advance can say when the last record was, which is gone
	}
	log, err := st.CreateLog(spec)
	if err != nil {
		return err
	}
	e.logID = log.ID()
	if err := a.record(e.record(cfg), done); err != nil {
		return errors.Join(err, e.dropLog())
	}
	e.keep(log)
	a.addStandby(e)
	return nil
}

// checkStandby checks that a stream with this configuration could be served here. change is held.
func (a *account) checkStandby(cfg *server.StreamConfig) error {
	if apiErr := a.checkStreamCount(cfg); apiErr != nil {
		return fmt.Errorf("account %s cannot have this stream here: %w", a.name, apiErr)
	}
	if apiErr := stream.Complete(cloneConfig(cfg), false, a.streamLimits(cfg)); apiErr != nil {
		return fmt.Errorf("account %s cannot have a stream with this configuration here: %w", a.name, apiErr)
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	if other := a.served(cfg); other != "" {
		return fmt.Errorf("stream %s of account %s, which is served here, has one of its subjects: delete that or "+
			"change its subjects", other, a.name)
	}
	return nil
}

// reborn returns an entry for the same stream, its log and its consumers' states, in another role.
func (e *streamEntry) reborn(role string) *streamEntry {
	out := &streamEntry{
		acc: e.acc, name: e.name, created: e.created, logID: e.logID, shards: e.shards, memory: e.memory,
		consumers: make(map[string]*consumerEntry), role: role, recovering: role == roleAuthority,
		log: e.log, positionsID: e.positionsID, positions: e.positions,
	}
	out.cfg.Store(e.config())
	e.acc.mu.RLock()
	defer e.acc.mu.RUnlock()
	for name, old := range e.consumers {
		c := &consumerEntry{
			stream: out, name: name, created: old.created, logID: old.logID, memory: old.memory,
			state: old.state, exact: old.exact, pin: old.pin,
		}
		c.cfg.Store(old.config())
		c.durable.Store(old.durable.Load())
		out.consumers[name] = c
	}
	return out
}
