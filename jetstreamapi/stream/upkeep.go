package stream

import (
	"math"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// upkeep does what time brings about: messages grow too old, ids leave the dedup window, a full log gets room again.
// It is one timer, armed for the next thing that is due; nothing runs in between. The stream's lock guards it.
type upkeep struct {
	timer   *time.Timer
	due     int64 // Unix nanoseconds the timer is armed for; 0: not armed
	stopped bool
	quit    chan struct{} // closed when it is stopped, for what runs without the lock
	// running is the timer's function, and what a start leaves to do; added to under the lock, while not stopped.
	running sync.WaitGroup

	ageFrom uint64 // below it, what is left of messages older than max_age never expires
	expiry  expiry

	schedules schedules
	scans     []scan // of the log, which go on one after the other
}

// minTick is the shortest wait, so that many things due one after the other cost one run.
const minTick = 5 * time.Millisecond

// retryTick is the wait before the log is asked again for what it had no room for.
const retryTick = 50 * time.Millisecond

// wakeAt arms the timer for at (Unix nanoseconds), unless it fires before that anyway.
func (s *Stream) wakeAt(at int64) {
	u := &s.upkeep
	if u.stopped || (u.due != 0 && u.due <= at) {
		return
	}
	u.due = at
	wait := max(time.Until(time.Unix(0, at)), minTick)
	if u.timer == nil {
		u.timer = time.AfterFunc(wait, s.tick)
		return
	}
	u.timer.Reset(wait)
}

func (s *Stream) upkeepSoon() { s.wakeAt(time.Now().Add(retryTick).UnixNano()) }

// dedupeDue makes sure that ids expire even if nothing more is published.
func (s *Stream) dedupeDue(now int64) {
	if s.dedupe.window > 0 && s.upkeep.due == 0 {
		s.wakeAt(now + int64(s.dedupe.window))
	}
}

// stopUpkeep ends the timer. Who wants to know that it has ended waits for running, without the lock.
func (s *Stream) stopUpkeep() {
	if !s.upkeep.stopped {
		s.upkeep.stopped = true
		close(s.upkeep.quit)
	}
	if l := s.dedupe.loading; l != nil {
		l.stop.Store(true)
	}
	if s.upkeep.timer != nil {
		s.upkeep.timer.Stop()
	}
}

// quitting reports whether upkeep was stopped.
func (u *upkeep) quitting() bool {
	select {
	case <-u.quit:
		return true
	default:
		return false
	}
}

// tick is the timer's function.
func (s *Stream) tick() {
	s.mu.Lock()
	if s.upkeep.stopped {
		s.mu.Unlock()
		return
	}
	s.upkeep.running.Add(1)
	s.upkeep.due = 0
	set := s.settings.Load()
	now := time.Now().UnixNano()
	s.dedupe.expire(now)
	s.retryOwed()
	if s.head.trimDue {
		s.trim(set)
	}
	next := s.expireBatches(now)
	scanning := len(s.upkeep.scans) > 0
	s.mu.Unlock()
	defer s.upkeep.running.Done()

	if scanning {
		next = min(next, s.scanSome(now))
	}
	next = min(next, s.expireOld(set, now), s.expireTTLs(set, now), s.fireSchedules(set, now))
	s.mu.Lock()
	if at, ok := s.dedupe.oldest(); ok {
		next = min(next, at+int64(s.dedupe.window))
	}
	if next != never {
		s.wakeAt(next)
	}
	s.mu.Unlock()
	s.kick()
}

// never is a time that does not come.
const never = int64(math.MaxInt64)

// ageDue arms the timer for the oldest message's max_age.
func (s *Stream) ageDue(set *settings, stored int64) {
	if set.cfg.MaxAge > 0 {
		s.wakeAt(stored + int64(set.cfg.MaxAge))
	}
}

// expireOld deletes the messages that are older than max_age, and returns when the next one will be.
func (s *Stream) expireOld(set *settings, now int64) (next int64) {
	if set.cfg.MaxAge == 0 {
		return never
	}
	// The reads, which may have to go to the disk, are done without the lock.
	upTo := s.log.SeqAtTime(now - int64(set.cfg.MaxAge) + 1)
	if !s.expireBelow(set, upTo) {
		return now + int64(retryTick)
	}
	from := max(upTo, s.ageFrom())
	r, err := s.log.Next(from, nil)
	if err == nil {
		return r.Time + int64(set.cfg.MaxAge)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.head.lastSeq >= from { // not visible yet
		return now + int64(min(set.cfg.MaxAge, retryTick))
	}
	return never
}

func (s *Stream) ageFrom() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.upkeep.ageFrom
}

// expireBelow deletes the messages below upTo but for those that never expire; false if the log had no room for that.
func (s *Stream) expireBelow(set *settings, upTo uint64) bool {
	s.mu.Lock()
	if s.upkeep.stopped {
		s.mu.Unlock()
		return true
	}
	plain := !s.upkeep.scanning(findTTLs) && len(s.upkeep.expiry.never) == 0 && set.cfg.SubjectDeleteMarkerTTL == 0
	if !set.cfg.AllowMsgTTL || plain {
		defer s.mu.Unlock()
		if st := s.log.State(); st.Messages == 0 || st.FirstSeq >= upTo {
			return true
		}
		if _, err := s.log.Purge(nil, upTo, 0, nil); err != nil {
			return false
		}
		s.removed()
		return true
	}
	from := s.upkeep.ageFrom
	s.mu.Unlock()
	for {
		r, err := s.log.Next(from, nil)
		if err != nil || r.Seq >= upTo {
			break
		}
		if !s.expireOne(set, &r) {
			return false
		}
		from = r.Seq + 1
	}
	s.mu.Lock()
	s.upkeep.ageFrom = max(s.upkeep.ageFrom, from)
	s.mu.Unlock()
	return true
}

// expireOne deletes one message that has grown too old, or puts a marker in its place.
func (s *Stream) expireOne(set *settings, r *storage.Record) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.upkeep.stopped {
		return true
	}
	ttl, err := parseTTL(jsapi.HeaderValue(r.Header, jsapi.HeaderTTL))
	if err == nil && expiryTime(ttl, r.Time) == never {
		return true
	}
	return s.expireRecord(set, r)
}
