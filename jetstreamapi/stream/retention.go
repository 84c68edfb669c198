package stream

import (
	"errors"
	"slices"
	"sync"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/storage"
)

// Observer is a consumer as its stream sees it: what interest and work-queue retention ask. Both methods are called
// under the stream's lock: they must be quick, and must not call the stream.
type Observer interface {
	// Wants reports whether the consumer's filters match key.
	Wants(key []byte) bool
	// Done reports whether the consumer needs the message no more (acked, terminated, or before its start).
	Done(seq uint64, key []byte) bool
}

// attachment is one attached consumer.
type attachment struct {
	observer Observer
	wake     func(visible uint64)
}

// Attach registers a consumer and returns what removes it again. wake is called (on the ack loop, quick, not blocking)
// when new messages are visible; it may be nil. Detaching forgets the consumer and no more, so that it may be done at a
// shutdown; after a consumer was deleted, call [Stream.DropUnneeded] as well.
func (s *Stream) Attach(o Observer, wake func(visible uint64)) (detach func()) {
	a := &attachment{observer: o, wake: wake}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setViewers(func(old []*attachment) []*attachment { return append(old, a) })
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.setViewers(func(old []*attachment) []*attachment {
			return slices.DeleteFunc(old, func(x *attachment) bool { return x == a })
		})
	})
}

// DropUnneeded deletes the messages of an interest stream that no attached consumer needs. It is for when a consumer
// was deleted, or wants less than before. On other streams it does nothing: a work queue keeps its messages for the
// next consumer.
func (s *Stream) DropUnneeded() {
	if s.settings.Load().cfg.Retention != server.InterestPolicy {
		return
	}
	s.mu.Lock()
	if s.head.closed {
		s.mu.Unlock()
		return
	}
	if len(*s.audience.list.Load()) == 0 {
		if _, err := s.log.Purge(nil, 0, 0, nil); err == nil {
			s.removed()
			s.mu.Unlock()
			return
		}
	}
	s.mu.Unlock()
	s.sweep(0, unneeded)
}

// setViewers replaces the list of consumers by what change makes of a copy. The stream's lock is held.
func (s *Stream) setViewers(change func([]*attachment) []*attachment) {
	list := change(append([]*attachment(nil), *s.audience.list.Load()...))
	s.audience.list.Store(&list)
}

// wanted implements facts.
func (s *Stream) wanted(subject []byte) bool {
	if s.head.recovering {
		return true // by whom, shows later
	}
	for _, v := range *s.audience.list.Load() {
		if v.observer.Wants(subject) {
			return true
		}
	}
	return false
}

// Acked tells that the observer is done with seq. On interest and work-queue streams the message is deleted once nobody
// needs it.
func (s *Stream) Acked(o Observer, seq uint64) {
	retention := s.settings.Load().cfg.Retention
	if retention == server.LimitsPolicy {
		return
	}
	var key []byte
	// The filters of a work queue's consumers do not overlap, and a single consumer decides alone: no need to look.
	alone := retention == server.WorkQueuePolicy || len(*s.audience.list.Load()) <= 1
	if !alone {
		r, err := s.log.Get(seq)
		if err != nil {
			return // it is gone
		}
		key = r.Key
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head.closed || seq > s.head.lastSeq {
		return
	}
	if !alone && s.neededBy(o, seq, key) {
		return
	}
	s.remove(seq)
}

// neededBy reports whether a consumer other than o still needs the message.
func (s *Stream) neededBy(o Observer, seq uint64, key []byte) bool {
	for _, v := range *s.audience.list.Load() {
		if v.observer != o && v.observer.Wants(key) && !v.observer.Done(seq, key) {
			return true
		}
	}
	return false
}

// Reconcile ends the recovery of an interest or work-queue stream (see Options.Recovering), once its consumers are
// attached. It deletes the messages that all who want them have acknowledged, for a crash may have come between an
// ack and the deletion it caused, and the messages that came during recovery and that nobody wants. It reads the
// messages up to the last that any consumer was given, if the observers tell (see Delivered). Do not call it while a
// consumer could not be brought back: until then the stream keeps everything.
func (s *Stream) Reconcile() {
	s.mu.Lock()
	since := s.head.recoveredTo
	recovering := s.head.recovering
	s.head.recovering = false
	s.mu.Unlock()
	switch s.settings.Load().cfg.Retention {
	case server.LimitsPolicy:
	case server.InterestPolicy:
		s.sweep(0, acknowledged)
		if recovering {
			s.sweep(since+1, unneeded)
		}
	case server.WorkQueuePolicy:
		s.sweep(0, acknowledged)
	}
}

// Delivered may be implemented by an [Observer]: it returns the highest stream sequence the consumer was ever given.
type Delivered interface{ Delivered() uint64 }

// judgement reports whether a message may go, seen by the consumers: how many want it, how many of those need it.
type judgement func(wanting, needing int) bool

// unneeded is interest retention's: nobody needs it.
func unneeded(_, needing int) bool { return needing == 0 }

// acknowledged is for recovery: somebody wanted it and has had it.
func acknowledged(wanting, needing int) bool { return wanting > 0 && needing == 0 }

// sweepBatch is the number of messages looked at under one hold of the stream's lock.
const sweepBatch = 256

// sweep deletes the messages from from on that may go.
func (s *Stream) sweep(from uint64, mayGo judgement) {
	last := min(s.sweepEnd(mayGo), storage.MaxSeq) // so that what comes after it is a sequence, too
	records := make([]storage.Record, 0, sweepBatch)
	for seq := from; seq <= last; {
		records = records[:0]
		for len(records) < sweepBatch {
			r, err := s.log.Next(seq, nil)
			if err != nil || r.Seq > last {
				if err != nil && !errors.Is(err, storage.ErrEOF) {
					return // the log has told its owner of the damage
				}
				last = 0
				break
			}
			records = append(records, r)
			seq = r.Seq + 1
		}
		if !s.sweepSome(records, mayGo) {
			return
		}
		if last == 0 {
			return
		}
	}
}

// sweepEnd returns the sequence after which nothing can go.
func (s *Stream) sweepEnd(mayGo judgement) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !mayGo(0, 0) { // only what was delivered can be acknowledged
		last := uint64(0)
		for _, v := range *s.audience.list.Load() {
			d, ok := v.observer.(Delivered)
			if !ok {
				return s.head.lastSeq
			}
			last = max(last, d.Delivered())
		}
		return last
	}
	return s.head.lastSeq
}

// sweepSome deletes what may go of records, and reports whether the stream is still open.
func (s *Stream) sweepSome(records []storage.Record, mayGo judgement) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head.closed {
		return false
	}
	for i := range records {
		wanting, needing := 0, 0
		for _, v := range *s.audience.list.Load() {
			if !v.observer.Wants(records[i].Key) {
				continue
			}
			wanting++
			if !v.observer.Done(records[i].Seq, records[i].Key) {
				needing++
			}
		}
		if mayGo(wanting, needing) {
			s.remove(records[i].Seq)
		}
	}
	return true
}
