package stream

import (
	"container/heap"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// expiry knows which messages have a TTL of their own. It holds one entry for each; an entry whose message is gone is
// found to be so when it is due. The stream's lock guards it.
type expiry struct {
	due   expiryHeap
	never map[uint64]bool // messages that max_age does not expire
}

// expiring is a message and when it expires (Unix nanoseconds).
type expiring struct {
	at  int64
	seq uint64
}

// expiryHeap is a heap.Interface, the next to expire first.
type expiryHeap []expiring

func (h expiryHeap) Len() int           { return len(h) }
func (h expiryHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h expiryHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *expiryHeap) Push(x any) {
	if e, ok := x.(expiring); ok {
		*h = append(*h, e)
	}
}

// Pop implements heap.Interface.
func (h *expiryHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// add notes when a message expires.
func (e *expiry) add(seq uint64, at int64) {
	if at == never {
		if e.never == nil {
			e.never = make(map[uint64]bool)
		}
		e.never[seq] = true
		return
	}
	heap.Push(&e.due, expiring{at: at, seq: seq})
}

// expiryTime returns when a message stored at time at with this TTL (in seconds; -1: never expires) expires.
func expiryTime(ttl, at int64) int64 {
	if ttl < 0 || ttl > (never-at)/int64(time.Second) {
		return never
	}
	return at + ttl*int64(time.Second)
}

// atLeastMarkerTTL raises a TTL to that of the delete markers: a message that expired before the marker it replaced
// would bring no marker of its own. A stream that keeps one message for each subject needs no such care.
func (s *Stream) atLeastMarkerTTL(set *settings, in *incoming, ttl int64) int64 {
	least := int64(set.cfg.SubjectDeleteMarkerTTL / time.Second)
	if ttl <= 0 || ttl >= least || set.cfg.MaxMsgsPer == 1 {
		return ttl
	}
	in.header = jsapi.SetHeader(in.header, jsapi.HeaderTTL, strconv.FormatInt(least, 10))
	return least
}

// expireAt sees to it that the message just stored goes when its time has come.
func (s *Stream) expireAt(set *settings, seq uint64, ttl, now int64) {
	s.ageDue(set, now)
	if ttl == 0 || !set.cfg.AllowMsgTTL {
		return
	}
	at := expiryTime(ttl, now)
	s.upkeep.expiry.add(seq, at)
	if at != never {
		s.wakeAt(at)
	}
}

// startExpiry arms the timer for what the log holds.
func (s *Stream) startExpiry(set *settings) {
	if st := s.log.State(); st.Messages > 0 {
		s.ageDue(set, st.FirstTime)
	}
}

// expireTTLs deletes the messages whose own TTL has passed, and returns when the next one's will have.
func (s *Stream) expireTTLs(set *settings, now int64) (next int64) {
	for {
		s.mu.Lock()
		due := s.upkeep.expiry.due
		if s.upkeep.stopped || len(due) == 0 {
			s.mu.Unlock()
			return never
		}
		if due[0].at > now {
			next = due[0].at
			s.mu.Unlock()
			return next
		}
		seq := due[0].seq
		s.mu.Unlock()
		if !s.expireTTL(set, seq) {
			return now + int64(retryTick)
		}
	}
}

// expireTTL deletes the message at seq, which is first in the heap; false: not yet.
func (s *Stream) expireTTL(set *settings, seq uint64) bool {
	r, err := s.log.Get(seq)
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(err, storage.ErrEOF) && seq <= s.head.lastSeq {
		return false
	}
	if err == nil && !s.upkeep.stopped && !s.expireRecord(set, &r) {
		return false
	}
	heap.Pop(&s.upkeep.expiry.due)
	return true
}

// expireRecord deletes a message that has expired, or replaces it by a delete marker where the configuration asks for
// that and it is the last of its subject; false if the log had no room.
func (s *Stream) expireRecord(set *settings, r *storage.Record) bool {
	marks := set.cfg.SubjectDeleteMarkerTTL > 0 && s.log.Key(r.Key).Last == r.Seq && !isMarker(r.Header)
	if marks && s.log.Key(r.Key).Count == 1 {
		return s.mark(set, r.Key)
	}
	s.head.one[0] = r.Seq
	if _, err := s.log.Delete(s.head.one[:], false, nil); err != nil {
		return false
	}
	s.removed()
	return true
}

// isMarker reports whether a message says that its subject was deleted.
func isMarker(header []byte) bool {
	return len(jsapi.HeaderValue(header, jsapi.HeaderMarkerReason)) > 0 ||
		string(jsapi.HeaderValue(header, jsapi.HeaderKVOperation)) == "PURGE"
}

// mark stores a delete marker in place of the last message of subject, which grew too old.
func (s *Stream) mark(set *settings, subject []byte) bool {
	header := fmt.Appendf(nil, "NATS/1.0\r\n%s: MaxAge\r\n%s: %s\r\n%s: %s\r\n\r\n",
		jsapi.HeaderMarkerReason,
		jsapi.HeaderTTL, set.cfg.SubjectDeleteMarkerTTL.Truncate(time.Second),
		jsapi.HeaderRollup, jsapi.RollupSubject)
	in := incoming{subject: subject, header: header}
	in.named.Parse(header)
	before := s.head.lastSeq
	s.store(set, &in, rollupSubject, s.stamp())
	return s.head.lastSeq > before
}
