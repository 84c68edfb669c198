package storage

import (
	"fmt"
	"slices"

	"github.com/noetl/ehdb-gateway/storage/part"
)

// replayLog is a log or state log on its way back. Of one whose beginning was dropped from the tail the record that
// says it exists comes later than other records, or the record that says it is gone does.
type replayLog struct {
	id    LogID
	log   *Log
	state *StateLog
	known bool
	// late are records that were written again, to let go of their first place, which is gone: they are out of order.
	late map[uint64]lateRecord
	// Of what the manifest knows: records of a log up to sealed, and those of a state log that have positions
	// below skip, are accounted for.
	sealed, skip uint64
	secs         map[*sealed]*part.Section
}

type lateRecord struct {
	e   entry
	key []byte
}

// entry makes the index entry of a message.
func (d *decoded) entry(id uint64) entry {
	return entry{
		seq: d.rec.Seq, time: d.rec.Time, sec: id, off: uint32(d.off),
		hlen: uint32(len(d.rec.Header)), dlen: uint32(len(d.rec.Data)),
	}
}

func (d *decoded) size() uint64 { return uint64(len(d.rec.Key) + len(d.rec.Header) + len(d.rec.Data)) }

func (l *replayLog) message(d *decoded, id uint64, sec *section) error {
	if d.rec.Seq <= l.sealed {
		return nil
	}
	if d.rec.Seq <= l.log.lastSeq {
		return fmt.Errorf("log %d: record %d comes after record %d", l.id, d.rec.Seq, l.log.lastSeq)
	}
	e := d.entry(id)
	l.log.w.space.use(sec, footprint(len(d.rec.Key), &e))
	l.log.head.tail.add(e, d.rec.Key, d.size())
	l.log.lastSeq, l.log.lastTime = d.rec.Seq, max(d.rec.Time, l.log.lastTime)
	return nil
}

// moved notes the new place of a record. If the old one is gone with its segment the record is new here.
func (l *replayLog) moved(d *decoded, id uint64, sec *section) {
	if d.rec.Seq <= l.sealed {
		return
	}
	e := d.entry(id)
	foot := footprint(len(d.rec.Key), &e)
	l.log.w.space.use(sec, foot)
	x := l.log.head.tail
	if ord, ok := x.find(d.rec.Seq); ok {
		at := x.at(ord)
		l.log.w.drop(at.sec, foot)
		at.sec, at.off = e.sec, e.off
		return
	}
	if l.late == nil {
		l.late = map[uint64]lateRecord{}
	}
	if old, ok := l.late[e.seq]; ok {
		l.log.w.drop(old.e.sec, foot)
	}
	l.late[e.seq] = lateRecord{e, slices.Clone(d.rec.Key)}
	l.log.lastSeq, l.log.lastTime = max(l.log.lastSeq, e.seq), max(l.log.lastTime, e.time)
}

// remove takes out the records with a sequence in [from, to).
func (l *replayLog) remove(from, to uint64) error {
	if err := l.removeSealed(from, to); err != nil {
		return err
	}
	x := l.log.head.tail
	end := x.lower(to)
	for ord := x.next(x.lower(from), end); ord < end; ord = x.next(ord+1, end) {
		e := *x.at(ord)
		klen := int(x.keys.info(e.key).size)
		size := l.log.size(klen, int(e.hlen), int(e.dlen))
		x.doom(ord, size)
		x.remove(ord, size)
		l.log.w.drop(e.sec, footprint(klen, &e))
	}
	if len(l.late) == 0 {
		return nil
	}
	if to-from <= uint64(len(l.late)) {
		for seq := from; seq < to; seq++ {
			l.removeLate(seq)
		}
		return nil
	}
	for seq := range l.late {
		if seq >= from && seq < to {
			l.removeLate(seq)
		}
	}
	return nil
}

// removeSealed takes out the records in parts with a sequence in [from, to).
func (l *replayLog) removeSealed(from, to uint64) error {
	for _, s := range l.log.head.from(from) {
		if s.info.FirstSeq >= to {
			break
		}
		if s.head.msgs == 0 || s.p.err != nil {
			continue
		}
		if from <= s.info.FirstSeq && to > s.info.LastSeq {
			s.die(0, s.info.Count, s.head.msgs, s.head.bytes)
			continue
		}
		sec, err := l.section(s)
		if err != nil {
			return err
		}
		lo, err := sec.Lower(from)
		if err != nil {
			return err
		}
		hi, err := sec.Lower(to)
		if err != nil {
			return err
		}
		n, bytes, err := sec.Sizes(lo, hi, s.head.dead)
		if err != nil {
			return err
		}
		s.die(lo, hi, n, bytes)
	}
	return nil
}

// section returns the section of s, which is kept open.
func (l *replayLog) section(s *sealed) (*part.Section, error) {
	if sec := l.secs[s]; sec != nil {
		return sec, nil
	}
	v := sealedView{sealed: s}
	sec, err := v.section()
	if err != nil {
		return nil, err
	}
	if l.secs == nil {
		l.secs = map[*sealed]*part.Section{}
	}
	l.secs[s] = sec
	return sec, nil
}

// die deletes the ordinals in [lo, hi) in both views.
func (s *sealed) die(lo, hi uint32, n, bytes uint64) {
	s.head.kill(lo, hi, n, bytes)
	s.vis.kill(lo, hi, n, bytes)
	s.dirty = s.dirty || n > 0
}

func (l *replayLog) removeLate(seq uint64) {
	if late, ok := l.late[seq]; ok {
		l.log.w.drop(late.e.sec, footprint(len(late.key), &late.e))
		delete(l.late, seq)
	}
}

func (l *replayLog) truncate(below uint64) error {
	l.log.lastSeq = max(l.log.lastSeq, below-1)
	return l.remove(0, below)
}

func (l *replayLog) finish() {
	log := l.log
	if len(l.late) > 0 {
		l.merge()
	}
	x := log.head.tail
	x.vis, x.visMsgs, x.visBytes = x.end, x.msgs, x.bytes
	log.vis, log.visTime = log.head, log.lastTime
	l.secs = nil
	log.visible.Store(log.lastSeq)
}

// merge builds the index again with the late records in their places.
func (l *replayLog) merge() {
	old := l.log.head.tail
	all := make([]lateRecord, 0, len(l.late)+int(old.msgs))
	for _, late := range l.late {
		all = append(all, late)
	}
	for ord := old.next(0, old.end); ord < old.end; ord = old.next(ord+1, old.end) {
		e := *old.at(ord)
		all = append(all, lateRecord{e, old.keys.key(e.key)})
	}
	slices.SortFunc(all, func(a, b lateRecord) int {
		if a.e.seq < b.e.seq {
			return -1
		}
		return 1
	})
	x := newIndex(old.keys.seed)
	for _, r := range all {
		x.add(r.e, r.key, uint64(len(r.key))+uint64(r.e.hlen)+uint64(r.e.dlen))
	}
	x.num = old.num
	l.log.head.set(nil, x)
	l.late = nil
}
