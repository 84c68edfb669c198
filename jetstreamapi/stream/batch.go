package stream

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nuid"
)

// nats-server's defaults for batches.
const (
	batchTimeout      = 10 * time.Second
	atomicPerStream   = 50
	atomicTotal       = 1000
	atomicMaxMessages = 1000
	fastPerStream     = 1000
	fastTotal         = 50_000
)

// What is staged for atomic batches is in memory until they are committed. A batch is committed as one block, so it has
// to fit into the log's queue.
const (
	stagedPerBatch = 48 << 20
	stagedTotal    = 128 << 20
	stagedOverhead = 160 // of a message, about
)

// Batches bounds the batches under way in all streams of a server. The zero value has nats-server's defaults.
type Batches struct {
	// Limits are the MaxBatch... fields of the server's limits; 0: the default.
	Limits server.JSLimitOpts

	atomic, fast atomic.Int64 // under way
	staged       atomic.Int64 // bytes
}

func (b *Batches) timeout() time.Duration {
	if t := b.Limits.MaxBatchTimeout; t > 0 {
		return t
	}
	return batchTimeout
}

func orDefault(limit, fallback int) int {
	if limit > 0 {
		return limit
	}
	return fallback
}

func (b *Batches) maxMessages() int { return orDefault(b.Limits.MaxBatchSize, atomicMaxMessages) }

// begin takes a place among the batches under way; false if there is none.
func (b *Batches) begin(count *atomic.Int64, here, perStream, total int) bool {
	if here >= orDefault(b.Limits.MaxBatchInflightPerStream, perStream) {
		return false
	}
	if count.Add(1) > int64(orDefault(b.Limits.MaxBatchInflightTotal, total)) {
		count.Add(-1)
		return false
	}
	return true
}

// batches are those under way into one stream. The stream's lock guards them.
type batches struct {
	atomic map[string]*atomicBatch
	fast   map[string]*fastBatch
	alone  *staged // what a message of a fast batch is checked against
}

// expireBatches drops the batches that nothing was added to for too long, and returns when the next one will be.
func (s *Stream) expireBatches(now int64) (next int64) {
	next = never
	for _, b := range s.batches.atomic {
		if b.due <= now {
			s.dropAtomic(b)
			s.abandoned(b.id, server.BatchTimeout)
			continue
		}
		next = min(next, b.due)
	}
	for _, b := range s.batches.fast {
		if b.due <= now { // what it has stored stays; its publisher is told when it goes on
			s.dropFast(b)
			continue
		}
		next = min(next, b.due)
	}
	return next
}

// dropBatches forgets the batches under way of the kinds that are true.
//
//nolint:revive // both may be
func (s *Stream) dropBatches(atomics, fasts bool) {
	if atomics {
		for _, b := range s.batches.atomic {
			s.dropAtomic(b)
		}
	}
	if fasts {
		for _, b := range s.batches.fast {
			s.dropFast(b)
		}
	}
}

// abandoned tells that an atomic batch will not be committed.
func (s *Stream) abandoned(id string, reason server.BatchAbandonReason) {
	if s.o.Advisory == nil {
		return
	}
	name := s.settings.Load().cfg.Name
	s.o.Advisory(server.JSAdvisoryStreamBatchAbandonedPre+"."+name, &server.JSStreamBatchAbandonedAdvisory{
		TypedEvent: server.TypedEvent{
			Type: server.JSStreamBatchAbandonedAdvisoryType, ID: nuid.Next(), Time: time.Now().UTC(),
		},
		Stream: name, BatchId: id, Reason: reason,
	})
}

// mayBatch makes the checks that come before a batch is looked at.
func (s *Stream) mayBatch(set *settings, in *incoming) *server.ApiError {
	if set.cfg.Sealed {
		return server.NewJSStreamSealedError()
	}
	size := set.size(in)
	if err := s.reserve(size); err != nil {
		return err
	}
	s.release(size)
	if set.tooLarge(in) {
		return server.NewJSStreamMessageExceedsMaximumError()
	}
	return nil
}

var errBatchBytes = errors.New("its messages are staged in memory and take too much of it")
