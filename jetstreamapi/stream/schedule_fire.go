package stream

import (
	"bytes"
	"errors"
	"time"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// expectedPrefix starts the names of the headers that say what a publisher expects of the stream.
const expectedPrefix = "Nats-Expected-"

// refusedPause is the wait before a message is made again that the stream did not take, for want of room or because
// of its limits.
const refusedPause = time.Second

// noteEnd remembers, for a scan under way, that the message just stored at seq ends an older schedule of its subject.
func (s *Stream) noteEnd(in *incoming, seq uint64) {
	t := &s.upkeep.schedules
	if t.cancelled != nil && len(in.named.Scheduler) == 0 && s.log.Key(in.subject).First < seq {
		t.cancelled[string(in.subject)] = seq
	}
}

// followSchedules does for the schedules what a message that was stored at seq means to them.
func (s *Stream) followSchedules(in *incoming, seq uint64) {
	t := &s.upkeep.schedules
	switch {
	case in.scheduled:
		t.lookAtSome(s.scheduleLives)
		t.set(in.subject, seq, in.due)
		s.wakeAt(in.due)
	case len(in.named.Scheduler) == 0:
		t.end(in.subject, seq)
	}
	h := &in.named
	switch {
	case len(h.ScheduleNext) == 0 || len(h.Scheduler) == 0:
	case string(h.ScheduleNext) == nextPurge:
		s.purgeSchedule(h.Scheduler, seq)
	default:
		if next, err := time.Parse(time.RFC3339Nano, string(h.ScheduleNext)); err == nil {
			t.next(h.Scheduler, seq, unixNano(next))
			s.wakeAt(unixNano(next))
		}
	}
}

// purgeSchedule removes a schedule that the message at seq has ended, or that has fired for the last time with it.
func (s *Stream) purgeSchedule(subject []byte, seq uint64) {
	ended := s.upkeep.schedules.end(subject, seq)
	if s.log.Key(subject).Count == 0 {
		return
	}
	if _, err := s.log.Purge(exactly(subject), seq, 0, nil); err == nil {
		s.removed()
	} else if ended != nil {
		s.remove(ended.seq) // which tries again
	}
}

// scheduleLives reports whether a schedule's message is still there. It is the first of its subject, for it rolled up
// what was before.
func (s *Stream) scheduleLives(e *schedule) bool {
	key := s.log.Key([]byte(e.subject))
	return key.Count > 0 && key.First <= e.seq && e.seq <= key.Last
}

// fireSchedules publishes the messages that are due, and returns when the next one will be.
func (s *Stream) fireSchedules(set *settings, now int64) (next int64) {
	for {
		e, next := s.dueSchedule(set, now)
		if e == nil {
			return next
		}
		s.fire(set, e)
	}
}

// dueSchedule returns a copy of the next schedule that is due; nil if there is none, with when there will be one.
func (s *Stream) dueSchedule(set *settings, now int64) (e *schedule, next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.upkeep.schedules.due
	switch {
	case s.upkeep.stopped || set.cfg.Sealed || len(due) == 0 || s.upkeep.scanning(findSchedules):
		return nil, never
	case due[0].wake > now:
		return nil, due[0].wake
	}
	c := *due[0]
	return &c, never
}

// fire publishes the message of a schedule. What is read, which may have to come from the disk, is read without the
// lock.
func (s *Stream) fire(set *settings, due *schedule) {
	now := time.Now().UnixNano()
	in, err := s.makeScheduled(due, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.upkeep.schedules
	e := t.bySubject[due.subject]
	switch {
	case e == nil || e.seq != due.seq || e.at != due.at || s.upkeep.stopped || s.head.closed:
		// it was changed meanwhile
	case !s.scheduleLives(e) || errors.Is(err, storage.ErrNotFound) || errors.Is(err, errNoSchedule):
		t.drop(e)
	case errors.Is(err, storage.ErrEOF): // not on the disk yet
		t.postpone(e, now+int64(minTick))
	case err != nil || !s.publishScheduled(set, in):
		t.postpone(e, now+int64(refusedPause))
	}
}

// publishScheduled stores the message of a schedule; false if that was refused.
func (s *Stream) publishScheduled(set *settings, in *incoming) bool {
	in.now = s.stamp()
	if err := set.checkForm(in); err != nil {
		s.metrics.refuse(err.ErrCode)
		return false
	}
	rollup := rollupNone
	if len(in.named.Rollup) > 0 {
		rollup = rollupSubject
	}
	before := s.head.lastSeq
	if set.unwanted(s, in) {
		s.skip(set, in, rollup, in.now)
	} else {
		s.store(set, in, rollup, in.now)
	}
	s.trim(set)
	return s.head.lastSeq > before
}

var errNoSchedule = errors.New("not a schedule")

// storedFire returns when the schedule with these headers, which was set or fired last at from, fires next.
func storedFire(h *jsapi.PublishHeaders, z *zones, from, now int64) (fireTime, bool) {
	if len(h.Schedule) == 0 {
		return fireTime{}, false
	}
	var zone *time.Location
	if h.ScheduleTimeZone != nil {
		if z == nil {
			z = new(zones)
		}
		var err error
		if zone, err = z.load(h.ScheduleTimeZone); err != nil {
			return fireTime{}, false
		}
	}
	fire, ok := nextFire(string(h.Schedule), zone, time.Unix(0, from), time.Unix(0, now))
	return fire, ok && !fire.at.IsZero()
}

// makeScheduled makes the message of a schedule: the schedule's own content, or that of the last message of its source
// if there is one.
func (s *Stream) makeScheduled(due *schedule, now int64) (*incoming, error) {
	r, err := s.log.Get(due.seq)
	if err != nil {
		return nil, err
	}
	var h jsapi.PublishHeaders
	h.Parse(r.Header)
	fire, ok := storedFire(&h, nil, due.at, now)
	if !ok || len(h.ScheduleTarget) == 0 {
		return nil, errNoSchedule
	}
	content := r
	if len(h.ScheduleSource) > 0 {
		last, err := s.log.Last(exactly(h.ScheduleSource), 0)
		switch {
		case err == nil:
			content = last
		case !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrEOF):
			return nil, err
		}
	}
	next := nextPurge
	if fire.repeats {
		next = fire.at.Format(time.RFC3339Nano)
	}
	header := jsapi.WithoutHeaders(content.Header, notOnFired)
	header = jsapi.AddHeader(header, jsapi.HeaderScheduler, due.subject)
	header = jsapi.AddHeader(header, jsapi.HeaderScheduleNext, next)
	if len(h.ScheduleTTL) > 0 {
		header = jsapi.AddHeader(header, jsapi.HeaderTTL, string(h.ScheduleTTL))
	}
	if len(h.ScheduleRollup) > 0 {
		header = jsapi.AddHeader(header, jsapi.HeaderRollup, string(h.ScheduleRollup))
	}
	in := &incoming{subject: bytes.Clone(h.ScheduleTarget), header: header, data: content.Data}
	in.named = jsapi.PublishHeaders{
		Scheduler: []byte(due.subject), ScheduleNext: []byte(next), TTL: h.ScheduleTTL, Rollup: h.ScheduleRollup,
	}
	return in, nil
}

// notOnFired tells the headers that a schedule or its source has and the published message has not: those of
// schedules, and what could keep it from being stored.
func notOnFired(name []byte) bool {
	switch string(name) {
	case jsapi.HeaderMsgID, jsapi.HeaderTTL, jsapi.HeaderRollup:
		return true
	}
	return bytes.HasPrefix(name, []byte(jsapi.HeaderSchedule)) || bytes.HasPrefix(name, []byte(expectedPrefix))
}
