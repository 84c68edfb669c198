package stream

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/subjects"
)

// Purge removes messages; done gets the count or the JetStream error once it is durable. done runs on the log's ack
// loop, or on the caller's goroutine where the answer is known at once.
func (s *Stream) Purge(req server.JSApiStreamPurgeRequest, done func(purged uint64, err *server.ApiError)) {
	set := s.settings.Load()
	switch {
	case req.Sequence > 0 && req.Keep > 0:
		done(0, server.NewJSBadRequestError())
		return
	case set.cfg.Sealed:
		done(0, server.NewJSStreamSealedError())
		return
	case set.cfg.DenyPurge:
		done(0, server.NewJSStreamPurgeFailedError(errors.New("stream purge not permitted")))
		return
	case req.Sequence == 1: // up to, but without, the first sequence there can be
		done(0, nil)
		return
	}
	filter, err := compileFilter(req.Subject)
	if err != nil {
		done(0, nil) // what is no subject matches nothing
		return
	}
	s.mu.Lock()
	if s.head.closed {
		s.mu.Unlock()
		done(0, server.NewJSStreamGeneralError(errStopped))
		return
	}
	var purged uint64
	counted, durable := both(func(err error) {
		if err != nil {
			done(0, server.NewJSStreamGeneralError(err))
			return
		}
		s.tellTrimmed()
		done(purged, nil)
	})
	purged, err = s.log.Purge(filter, req.Sequence, req.Keep, durable)
	if err == nil {
		s.removed()
		s.head.purged = s.head.purged || (filter == nil && req.Keep == 0)
		s.head.lastSeq = max(s.head.lastSeq, s.log.State().LastSeq)
	}
	s.mu.Unlock()
	if err != nil {
		done(0, server.NewJSStreamGeneralError(err))
		return
	}
	counted()
}

// both returns two functions; the second of them to be called calls fn, with the error of durable.
func both(fn func(error)) (counted func(), durable storage.Done) {
	var left atomic.Int32
	left.Store(2)
	var failure error
	counted = func() {
		if left.Add(-1) == 0 {
			fn(failure)
		}
	}
	return counted, func(err error) {
		failure = err
		counted()
	}
}

// compileFilter returns the filter of a subject; nil for all.
func compileFilter(subject string) (storage.Filter, error) {
	if subject == "" || subject == everything {
		return nil, nil
	}
	f, err := subjects.Compile(subject)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// DeleteMsg removes one message; done is called once it is durable, on the log's ack loop, or on the caller's goroutine
// where the answer is known at once.
func (s *Stream) DeleteMsg(seq uint64, erase bool, done func(err *server.ApiError)) {
	set := s.settings.Load()
	if set.cfg.Sealed {
		done(server.NewJSStreamSealedError())
		return
	}
	if set.cfg.DenyDelete {
		done(server.NewJSStreamMsgDeleteFailedError(errors.New("message delete not permitted")))
		return
	}
	s.mu.Lock()
	if s.head.closed {
		s.mu.Unlock()
		done(server.NewJSStreamMsgDeleteFailedError(errStopped))
		return
	}
	var n int
	counted, durable := both(func(err error) {
		switch {
		case err != nil:
			done(server.NewJSStreamMsgDeleteFailedError(err))
		case n == 0:
			done(notThere(set, seq, s.log.State()))
		default:
			s.tellTrimmed()
			done(nil)
		}
	})
	n, err := s.log.Delete([]uint64{seq}, erase, durable)
	s.removed()
	s.mu.Unlock()
	if err != nil {
		done(server.NewJSStreamMsgDeleteFailedError(err))
		return
	}
	counted()
}

// notThere is the error for a message that is not there to be deleted. It depends on the storage type, as in
// nats-server.
func notThere(set *settings, seq uint64, st storage.State) *server.ApiError {
	if set.cfg.Storage == server.FileStorage {
		switch {
		case seq == 0 || seq < st.FirstSeq:
			return server.NewJSStreamMsgDeleteFailedError(server.ErrStoreMsgNotFound)
		case seq > st.LastSeq:
			return server.NewJSStreamMsgDeleteFailedError(server.ErrStoreEOF)
		}
	}
	return server.NewJSSequenceNotFoundError(seq)
}

// State returns the state as StreamInfo shows it: what is durable. details adds the deleted sequences; subjects is a
// filter whose matching subjects are counted ("" for none).
func (s *Stream) State(details bool, subjects string) server.StreamState {
	out := StateOf(s.log, details)
	out.Consumers = len(*s.audience.list.Load())
	if out.LastSeq == 0 && !s.wasPurged() {
		out.FirstSeq = 0 // nothing was ever stored
	}
	if subjects != "" {
		out.Subjects = s.subjectCounts(subjects)
	}
	return out
}

// StateOf returns the state of a stream's log as StreamInfo shows it, without its consumers: what is durable. details
// adds the deleted sequences.
func StateOf(log *storage.Log, details bool) server.StreamState { //nolint:revive // as in the API
	st := log.VisibleState()
	out := server.StreamState{
		Msgs:        st.Messages,
		Bytes:       st.Bytes,
		FirstSeq:    st.FirstSeq,
		FirstTime:   wallClock(st.FirstTime),
		LastSeq:     st.LastSeq,
		LastTime:    wallClock(st.LastTime),
		NumSubjects: log.Keys(),
		NumDeleted:  int(st.Deleted), //nolint:gosec // not above the number of sequences
	}
	if details && st.Deleted > 0 {
		out.Deleted = make([]uint64, 0, st.Deleted)
		log.EachDeleted(func(seq uint64) bool {
			out.Deleted = append(out.Deleted, seq)
			return true
		})
	}
	return out
}

// DurableState calls done with the state, once all that was done to the stream before is part of it: what a publish
// pushed out may become durable a moment after its PubAck. done runs on a goroutine of its own.
func (s *Stream) DurableState(details bool, subjects string, done func(server.StreamState)) {
	s.log.Sync(func(error) {
		go func() { done(s.State(details, subjects)) }() // it may be a walk, which is not for the ack loop
	})
}

// wasPurged reports whether everything was purged: after that the first sequence of a stream without messages is 1.
func (s *Stream) wasPurged() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.head.purged
}

func (s *Stream) subjectCounts(filter string) map[string]uint64 {
	f, err := compileFilter(filter)
	if err != nil {
		return nil
	}
	counts := make(map[string]uint64)
	s.log.EachKey(f, func(key []byte, ks storage.KeyState) bool {
		counts[string(key)] = ks.Count
		return true
	})
	return counts
}

func wallClock(unixNano int64) time.Time {
	if unixNano == 0 {
		return time.Time{}
	}
	return time.Unix(0, unixNano).UTC()
}
