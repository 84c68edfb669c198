// Package stream is one JetStream stream: it admits messages, gives them their sequence, appends them to its log and
// acknowledges them once they are durable.
package stream

import (
	"errors"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/internal/bus"
	"github.com/noetl/ehdb-gateway/storage"
)

var errTODO = errors.New("not implemented")

// Options make a Stream.
type Options struct {
	Account string
	Config  server.StreamConfig // complete: defaults filled and checked (see Complete)
	Created time.Time
	Log     *storage.Log // recovered; the stream owns it from here on
	Bus     bus.Bus
	Domain  string // of PubAcks; empty: none
	// Reserve asks for room in the account and server limits before a message of size bytes is stored; nil error: taken.
	// Release gives room back. Both are called under the stream's lock and must be quick.
	Reserve func(size int64) error
	Release func(size int64)
	// Advisory publishes a JetStream advisory or metric; it does not block. May be nil.
	Advisory func(subject string, event any)
}

// Stream is one stream. It is a bus.Sink for the subjects it stores.
type Stream struct{}

// New makes the stream over its (new or recovered) log, rebuilds its dedup window from it, and subscribes to its subjects.
func New(o Options) (*Stream, error) { return nil, errTODO }

// Observer is a consumer as its stream sees it: what interest and work-queue retention ask.
type Observer interface {
	// Wants reports whether the consumer's filters match key.
	Wants(key []byte) bool
	// Done reports whether the consumer needs the message no more (acked, terminated, or before its start).
	Done(seq uint64, key []byte) bool
}

// Name returns the stream's name.
func (s *Stream) Name() string { panic(errTODO) }

// Config returns a copy of the configuration.
func (s *Stream) Config() server.StreamConfig { panic(errTODO) }

// Created returns when the stream was made.
func (s *Stream) Created() time.Time { panic(errTODO) }

// Log returns the stream's log, for reading.
func (s *Stream) Log() *storage.Log { panic(errTODO) }

// Deliver implements bus.Sink: the publish path.
func (s *Stream) Deliver(batch []bus.Delivery) <-chan struct{} { panic(errTODO) }

// Update changes the configuration (already checked by CheckUpdate) and trims at once what no longer fits.
func (s *Stream) Update(cfg server.StreamConfig) error { panic(errTODO) }

// Attach registers a consumer and returns what removes it again. wake is called (on the ack loop, quick, not blocking) when
// new messages are visible. For interest and work-queue streams removing the last one that needs a message deletes it.
func (s *Stream) Attach(o Observer, wake func(visible uint64)) (detach func()) { panic(errTODO) }

// Acked tells that the observer is done with seq. On interest and work-queue streams the message is deleted once nobody
// needs it. Quick; does no I/O.
func (s *Stream) Acked(o Observer, seq uint64) { panic(errTODO) }

// State returns the state as StreamInfo shows it (durable messages). details adds the deleted sequences; subjects is a
// filter whose matching subjects are counted ("" for none).
func (s *Stream) State(details bool, subjects string) server.StreamState { panic(errTODO) }

// Purge removes messages; done gets the count or the JetStream error once it is durable.
func (s *Stream) Purge(req server.JSApiStreamPurgeRequest, done func(purged uint64, err *server.ApiError)) {
	panic(errTODO)
}

// DeleteMsg removes one message; done is called once it is durable.
func (s *Stream) DeleteMsg(seq uint64, erase bool, done func(err *server.ApiError)) { panic(errTODO) }

// Stop ends the stream: unanswered publishers are told, timers stop, the bus session closes. The log stays.
func (s *Stream) Stop() { panic(errTODO) }

// Complete fills the defaults of a configuration and checks it by nats-server's rules and texts (all that does not need
// other streams). pedantic refuses what it would have to change. limits are the server's and account's.
func Complete(cfg *server.StreamConfig, pedantic bool, limits Limits) *server.ApiError {
	panic(errTODO)
}

// CheckUpdate checks that a running stream may go from old to cfg (both completed).
func CheckUpdate(old, cfg *server.StreamConfig, pedantic bool) *server.ApiError { panic(errTODO) }

// Limits are what the account and the server allow a stream; 0 or -1: no limit.
type Limits struct {
	MaxBytesRequired bool
	MaxStreamBytes   int64 // for the config's storage type
	Duplicates       time.Duration
}
