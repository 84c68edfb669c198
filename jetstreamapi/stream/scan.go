package stream

import (
	"bytes"
	"time"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
	"github.com/noetl/ehdb-gateway/storage"
)

// scan is a walk through the log for messages whose headers say that something is to be done later. It takes as long as
// the log is, so it is upkeep's work, and the stream serves meanwhile.
type scan struct {
	seq  uint64 // the log was looked through up to here
	to   uint64 // and will be, up to here
	find findings
}

// findings are what a scan looks for.
type findings uint8

const (
	findTTLs findings = 1 << iota
	findSchedules
)

// found is one message that a scan has found.
type found struct {
	record    storage.Record
	expires   int64 // 0: it has no TTL
	scheduled bool  // it is a schedule, which fires at due
	due       int64
}

// scanning reports whether there is still to be looked for what.
func (u *upkeep) scanning(what findings) bool {
	for i := range u.scans {
		if u.scans[i].find&what != 0 {
			return true
		}
	}
	return false
}

// startScan has the log looked through for TTLs, for schedules, or both.
func (s *Stream) startScan(ttls, schedules bool) { //nolint:revive // what is looked for
	u := &s.upkeep
	var find findings
	if ttls {
		find |= findTTLs
		u.expiry = expiry{}
	}
	if schedules {
		find |= findSchedules
		u.schedules.reset()
	}
	if find == 0 || s.head.lastSeq == 0 {
		return
	}
	if schedules {
		u.schedules.cancelled = make(map[string]uint64)
	}
	u.scans = append(u.scans, scan{to: s.head.lastSeq, find: find})
	s.wakeAt(time.Now().UnixNano())
}

// scanChunk is the number of records that one run of upkeep looks at.
const scanChunk = 4096

// scanSome goes on with what startScan began, and returns when to go on again.
func (s *Stream) scanSome(now int64) (next int64) {
	s.mu.Lock()
	sc := s.upkeep.scans[0] // only this goroutine takes from the list
	s.mu.Unlock()
	list := make([]found, 0, 64)
	ended := false
	for range scanChunk {
		r, err := s.log.Next(sc.seq+1, nil)
		if ended = err != nil || r.Seq > sc.to; ended {
			break
		}
		sc.seq = r.Seq
		if f := sc.examine(&r, now); f.expires != 0 || sc.find&findSchedules != 0 {
			list = append(list, f)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		s.takeFound(&list[i], sc.find)
	}
	s.upkeep.scans[0] = sc
	if ended {
		s.upkeep.scans = s.upkeep.scans[1:]
		if sc.find&findSchedules != 0 {
			s.upkeep.schedules.cancelled = nil
		}
	}
	if len(s.upkeep.scans) == 0 {
		return never
	}
	return now
}

// examine reads the headers of a record.
func (sc *scan) examine(r *storage.Record, now int64) found {
	f := found{record: *r}
	if sc.find&findTTLs != 0 {
		if ttl, err := parseTTL(jsapi.HeaderValue(r.Header, jsapi.HeaderTTL)); err == nil && ttl != 0 {
			f.expires = expiryTime(ttl, r.Time)
		}
	}
	if sc.find&findSchedules != 0 && bytes.Contains(r.Header, []byte(jsapi.HeaderSchedule)) {
		var h jsapi.PublishHeaders
		h.Parse(r.Header)
		if fire, ok := storedFire(&h, nil, r.Time, now); ok {
			f.scheduled, f.due = true, unixNano(fire.at)
		}
	}
	return f
}

// takeFound does with a message what was done with it when it was stored.
func (s *Stream) takeFound(f *found, find findings) {
	if find&findTTLs != 0 && f.expires != 0 {
		s.upkeep.expiry.add(f.record.Seq, f.expires)
	}
	if find&findSchedules == 0 {
		return
	}
	in := incoming{subject: f.record.Key, header: f.record.Header, scheduled: f.scheduled, due: f.due}
	if bytes.Contains(in.header, []byte(jsapi.HeaderSchedule)) {
		in.named.Parse(in.header)
	}
	s.followSchedules(&in, f.record.Seq)
}
