package jetstreamapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/jetstreamapi/stream"
	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// streamEntry is one incarnation of a stream: what the catalog says about it, and the running stream.
type streamEntry struct {
	acc     *account
	name    string
	created time.Time
	logID   storage.LogID
	shards  []storage.ShardID
	memory  bool
	cfg     atomic.Pointer[server.StreamConfig] // never changed in place

	consumers map[string]*consumerEntry // guarded by acc.mu

	role    string // of a stream that the cutover made, see standby.go; empty: it did not make it
	standby standby

	recovering bool // its consumers are still to be brought back

	// offline says why the stream does not serve; nil while it does. Set before the entry is published.
	offline error

	log     *storage.Log
	stream  *stream.Stream
	retired atomic.Bool // its counters went over to the service's
	direct  bus.Session // its direct gets; nil when they are not allowed

	positionsID storage.LogID     // of positions; 0: the stream never had sources
	positions   *storage.StateLog // how far its sources were copied
	copies      copies
}

// config returns the configuration; it must not be changed.
func (e *streamEntry) config() *server.StreamConfig { return e.cfg.Load() }

// logger returns the log with what the stream is.
func (e *streamEntry) logger() *slog.Logger {
	return e.acc.svc.log.With(slog.String("account", e.acc.name), slog.String("stream", e.name))
}

// logUnreadable logs why a message could not be read, where that is not that there is none: clients are told no more.
func (e *streamEntry) logUnreadable(err error) {
	none := errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrEOF) ||
		errors.Is(err, subjects.ErrInvalidFilter)
	if !none {
		e.logger().Error("a message could not be read", slog.Any("error", err))
	}
}

// overlaps reports whether one of the stream's subjects overlaps filter.
func (e *streamEntry) overlaps(filter string) bool {
	for _, s := range e.config().Subjects {
		if subjects.Overlap(filter, s) {
			return true
		}
	}
	return false
}

// store is the store the stream's records are in, nil while there is none.
func (e *streamEntry) store() *storage.Store {
	if e.memory {
		return e.acc.svc.mem
	}
	return e.acc.svc.fileStore()
}

// spec describes the stream's log.
func (e *streamEntry) spec() storage.LogSpec {
	cfg := e.config()
	spec := storage.LogSpec{
		Shards:   e.shards,
		Memory:   e.memory,
		FirstSeq: cfg.FirstSeq,
		Name:     e.acc.name + "/" + e.name,
		Compress: cfg.Compression == server.S2Compression,
		Size:     fileMsgSize,
	}
	if e.memory {
		spec.Size = memoryMsgSize
	}
	if len(e.shards) > 1 {
		spec.Route = e.acc.svc.router(e.acc.name, e.name, e.shards)
	}
	return spec
}

// start makes the running stream over log and opens it to clients.
func (e *streamEntry) start(log *storage.Log) error {
	cfg := e.config()
	a := e.acc
	e.log = log
	a.addUsed(cfg.Storage, int64(log.State().Bytes)) //nolint:gosec // bytes on a disk
	s, err := stream.New(stream.Options{
		Account:    a.name,
		Config:     *cfg,
		Created:    e.created,
		Log:        log,
		Bus:        a.svc.opts.Bus,
		Domain:     a.svc.opts.Domain,
		Stall:      e.store().Stall,
		Recovering: e.recovering,
		Reserve:    func(n int64) error { return a.reserve(cfg.Storage, n) },
		Release:    func(n int64) { a.addUsed(cfg.Storage, -n) },
		Positions:  e.positions,
		Batches:    &a.svc.batches,
		Advisory:   a.adviseInDomain,
		Published:  a.svc.opts.Published,
		Visible:    e.standby.wake,
		Dedupe:     e.standby.dedupe,
	})
	if err != nil {
		a.addUsed(cfg.Storage, -int64(log.State().Bytes)) //nolint:gosec // as above
		return fmt.Errorf("stream %s: %w", e.name, err)
	}
	e.stream = s
	if err := e.openDirect(); err != nil {
		e.stop()
		return fmt.Errorf("stream %s: %w", e.name, err)
	}
	if err := e.linkUp(cfg); err != nil {
		e.stop()
		return fmt.Errorf("stream %s: %w", e.name, err)
	}
	return nil
}

// stop ends the running stream and gives its bytes back to the account. The log stays.
func (e *streamEntry) stop() {
	e.unlink()
	if e.direct != nil {
		e.direct.Close()
		e.direct = nil
	}
	if e.stream == nil {
		return
	}
	e.stream.Stop()
	e.retired.Store(true)
	e.acc.svc.retired.add(e.stream.Counters())
	e.acc.addUsed(e.config().Storage, -int64(e.log.State().Bytes)) //nolint:gosec // bytes on a disk
}

// state returns the stream's state as StreamInfo shows it.
func (e *streamEntry) state(details bool, subjectsFilter string) server.StreamState {
	st := e.stream.State(details, subjectsFilter)
	st.Consumers = e.countConsumers(func(cfg *server.ConsumerConfig) bool { return !cfg.Direct })
	return st
}

// numLimited returns how many consumers count against limits.
func (e *streamEntry) numLimited() int {
	return e.countConsumers(func(cfg *server.ConsumerConfig) bool { return !cfg.Direct && !cfg.Sourcing })
}

// countConsumers counts the consumers whose configuration counts.
func (e *streamEntry) countConsumers(counts func(*server.ConsumerConfig) bool) int {
	e.acc.mu.RLock()
	defer e.acc.mu.RUnlock()
	n := 0
	for _, c := range e.consumers {
		if counts(c.config()) {
			n++
		}
	}
	return n
}

// info returns the stream as the API shows it. Configurations in lists come without the server's version metadata.
func (e *streamEntry) info(st server.StreamState) *server.StreamInfo {
	info := &server.StreamInfo{
		Created:   e.created,
		State:     st,
		Config:    *e.config(),
		Domain:    e.acc.svc.opts.Domain,
		TimeStamp: time.Now().UTC(),
	}
	info.Mirror, info.Sources = e.origins()
	return info
}

// Bytes a message counts for, by storage type: clients see them in a stream's state and set limits by them.
const (
	fileOverhead   = 22 + 8
	headerOverhead = 4
	memoryOverhead = 16
)

func fileMsgSize(key, header, data int) uint64 {
	n := fileOverhead + key + header + data
	if header > 0 {
		n += headerOverhead
	}
	return uint64(n) //nolint:gosec // lengths
}

func memoryMsgSize(key, header, data int) uint64 {
	return uint64(memoryOverhead + key + header + data) //nolint:gosec // lengths
}

// cloneConfig returns a deep copy.
func cloneConfig(cfg *server.StreamConfig) *server.StreamConfig {
	var out server.StreamConfig
	if !copyJSON(cfg, &out) {
		out = *cfg
	}
	return &out
}

// copyJSON copies a configuration by way of its JSON form, which is also how it is stored.
func copyJSON(from, to any) bool {
	b, err := json.Marshal(from)
	return err == nil && json.Unmarshal(b, to) == nil
}

// sameJSON reports whether two configurations say the same.
func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// dropLog removes the stream's log, and what is known of its sources, for good.
func (e *streamEntry) dropLog() error {
	st := e.store()
	if st == nil {
		return storage.ErrStopped
	}
	err := st.DropLog(e.logID, nil)
	if e.positionsID != 0 {
		err = errors.Join(err, st.DropLog(e.positionsID, nil))
	}
	return err
}
