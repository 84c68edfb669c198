package storage

import (
	"errors"
	"fmt"

	"github.com/noetl/ehdb-gateway/storage/tail"
)

// replayer rebuilds the logs from the blocks of the tail, which it is given in order.
type replayer struct {
	s      *Store
	w      *writer
	logs   map[LogID]*replayLog
	last   *replayLog // of the last record
	seen   []bool     // shards that a section was read of
	pieces []piece    // of the block
	heads  []uint64   // what a store record in the block says
	known  []uint64   // positions of the shards that the manifest knows of
	begin  []uint64   // position of the first record read of each shard
	counts []uint64   // records read of each shard
	total  uint64     // records
	floor  tail.LSN   // what is below it is in parts and in the manifest
	rec    decoded
}

func newReplayer(s *Store) *replayer {
	n := len(s.w.shards)
	return &replayer{
		s: s, w: s.w, logs: map[LogID]*replayLog{},
		seen: make([]bool, n), begin: make([]uint64, n), counts: make([]uint64, n),
	}
}

// logKind says which of the two a record belongs to.
type logKind bool

const (
	aLog      logKind = false
	aStateLog logKind = true
)

// piece is a section of a block on its way through replay.
type piece struct {
	d     decoder
	id    uint64
	sec   *section
	shard *shard
	order uint64 // place in the block of the record that is next
	start int    // of the section in the block
	first uint64 // position in the shard of the first record
	count uint64 // records
	read  uint64
}

// block applies one block.
func (r *replayer) block(lsn tail.LSN, pos tail.Pos, body []byte) error {
	if lsn < r.floor {
		r.w.space.note(pos.Segment, lsn, r.w.secs.end)
		return nil
	}
	d := decoder{b: body}
	if v := d.byte(); d.err == nil && v != formatVersion {
		d.fail(fmt.Errorf("block has format version %d, this program knows %d", v, formatVersion))
	}
	r.pieces = r.pieces[:0]
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		r.section(&d, lsn, pos)
	}
	if d.err == nil && d.pos < len(body) {
		d.fail(errors.New("there are bytes behind the last section"))
	}
	if d.err != nil {
		return r.corrupt(pos, 0, d.pos, d.err)
	}
	if p, err := r.records(); err != nil {
		return r.corrupt(pos, p.shard.id, p.start+p.d.pos, err)
	}
	for i, h := range r.heads {
		sh := &r.w.shards[i]
		sh.head = max(sh.head, h)
		sh.committed.Store(sh.head)
	}
	r.heads = r.heads[:0]
	return nil
}

func (r *replayer) corrupt(pos tail.Pos, shard ShardID, off int, err error) error {
	return &CorruptError{
		Path: fmt.Sprintf("%s, segment %d", r.s.opts.Dir, pos.Segment), Offset: int64(pos.Offset) + int64(off),
		Shard: shard, Err: err, Hint: "written by a newer version, or a defect: open it with the version that wrote it",
	}
}

// section reads the head of a section of a block and notes where its records are.
func (r *replayer) section(d *decoder, lsn tail.LSN, pos tail.Pos) {
	shard, count, first := d.uvarint(), d.uvarint(), d.uvarint()
	body := d.bytes(d.length())
	switch {
	case d.err != nil:
		return
	case shard >= uint64(len(r.w.shards)):
		d.fail(fmt.Errorf("shard %d does not exist, there are %d", shard, len(r.w.shards)))
		return
	case count == 0 || count > uint64(len(body)):
		d.fail(fmt.Errorf("section of %d bytes cannot have %d records", len(body), count))
		return
	}
	sh := &r.w.shards[shard]
	if first < sh.head || r.seen[shard] && first != sh.head {
		d.fail(fmt.Errorf("section starts at position %d of its shard, which is at %d", first, sh.head))
		return
	}
	if !r.seen[shard] {
		r.seen[shard] = true
		r.begin[shard] = first
	}
	sh.head = first + count
	sh.committed.Store(sh.head)
	id, sec := r.w.secs.add()
	start := d.pos - len(body)
	sec.shard, sec.size = uint16(sh.id), uint32(len(body))
	sec.place(tail.Pos{Segment: pos.Segment, Offset: pos.Offset + uint32(start)})
	r.w.space.note(pos.Segment, lsn, id)
	p := piece{d: decoder{b: body}, id: id, sec: sec, shard: sh, start: start, first: first, count: count}
	p.order = p.d.uvarint()
	r.pieces = append(r.pieces, p)
	r.total += count
	r.counts[shard] += count
}

// records applies the records of a block's sections in the order in which they were appended.
func (r *replayer) records() (*piece, error) {
	left := len(r.pieces)
	p := 0
	for order := uint64(0); left > 0; order++ {
		for n := 0; r.pieces[p].order != order; n++ {
			if n == len(r.pieces) {
				return &r.pieces[p], fmt.Errorf("record %d of the block is missing", order)
			}
			p = (p + 1) % len(r.pieces)
		}
		pc := &r.pieces[p]
		if err := pc.d.next(&r.rec); err != nil {
			return pc, err
		}
		if err := r.apply(pc); err != nil {
			return pc, err
		}
		pc.read++
		if pc.d.pos < len(pc.d.b) {
			pc.order = pc.d.uvarint()
			continue
		}
		if pc.read != pc.count {
			return pc, fmt.Errorf("section has %d records, its header says %d", pc.read, pc.count)
		}
		pc.order = ^uint64(0)
		left--
	}
	return nil, nil
}

// log returns the log of a record, making one if its beginning is not in the tail any more.
func (r *replayer) log(id LogID, what logKind) (*replayLog, error) {
	l := r.last
	if l == nil || l.id != id {
		if l = r.logs[id]; l == nil {
			l = &replayLog{id: id}
			r.logs[id] = l
		}
		r.last = l
	}
	if l.log == nil && l.state == nil {
		r.make(l, what)
	}
	if (l.state != nil) != (what == aStateLog) {
		return nil, fmt.Errorf("log %d has records both of a log and of a state log", id)
	}
	return l, nil
}

func (r *replayer) make(l *replayLog, what logKind) {
	meta := logMeta{ID: l.id, State: what == aStateLog, Shards: []ShardID{0}}
	switch {
	case l.id == catalogID:
		l.state, l.known = r.s.catalog, true
	case meta.State:
		l.state = newStateLog(r.w, meta)
	default:
		l.log = newLog(r.w, meta, newIndex(r.s.seed))
	}
}

// apply does what the record in r.rec says, which is the next of p.
func (r *replayer) apply(p *piece) error {
	id, sec, pos := p.id, p.sec, p.first+p.read
	switch r.rec.kind {
	case kindStore:
		return r.store()
	case kindLog:
		return r.exists(id, pos)
	case kindDrop:
		r.drop(r.rec.log)
		return nil
	case kindChange, kindCheckpoint:
		return r.change(id, pos)
	case kindMessage, kindMoved, kindDelete, kindTruncate:
	}
	l, err := r.log(r.rec.log, aLog)
	if err != nil {
		return err
	}
	switch r.rec.kind {
	case kindMessage:
		return l.message(&r.rec, id, sec)
	case kindMoved:
		l.moved(&r.rec, id, sec)
	case kindDelete:
		for _, run := range r.rec.runs {
			if err := l.remove(run.first, run.first+run.n); err != nil {
				return err
			}
		}
	case kindTruncate:
		return l.truncate(r.rec.below)
	case kindStore, kindLog, kindDrop, kindChange, kindCheckpoint:
	}
	return nil
}

// store applies what the directory must not forget.
func (r *replayer) store() error {
	if len(r.rec.heads) != len(r.w.shards) {
		return fmt.Errorf("store record has %d shards, there are %d", len(r.rec.heads), len(r.w.shards))
	}
	r.s.nextID = max(r.s.nextID, r.rec.log)
	// the sections of this block may hold records from before it: the positions count from the block's end
	r.heads = append(r.heads[:0], r.rec.heads...)
	return nil
}

// exists applies the record that says a log is there. For a state log it is also a new beginning.
func (r *replayer) exists(sec, pos uint64) error {
	m := r.rec.meta
	for _, sh := range m.Shards {
		if int(sh) >= len(r.w.shards) {
			return fmt.Errorf("log %d is in shard %d, there are %d", m.ID, sh, len(r.w.shards))
		}
	}
	if len(m.Shards) == 0 {
		return fmt.Errorf("log %d is in no shard", m.ID)
	}
	what := aLog
	if m.State {
		what = aStateLog
	}
	l, err := r.log(m.ID, what)
	if err != nil {
		return err
	}
	l.known = true
	r.s.nextID = max(r.s.nextID, m.ID+1)
	if l.state != nil {
		if pos < l.skip {
			return nil
		}
		if m.ID != catalogID {
			l.state.meta = m
		}
		l.state.made = sec
		l.state.clear()
		return nil
	}
	l.log.meta, l.log.floor = m, sec
	l.log.lastSeq = max(l.log.lastSeq, m.LastSeq)
	l.log.lastTime = max(l.log.lastTime, m.LastTime)
	return nil
}

// drop forgets a log.
func (r *replayer) drop(id LogID) {
	r.s.nextID = max(r.s.nextID, id+1)
	if l := r.logs[id]; l != nil {
		if l.log != nil {
			r.w.retire(l.log.head.tail)
			l.log.head.forget()
			for _, late := range l.late {
				r.w.drop(late.e.sec, footprint(len(late.key), &late.e))
			}
		}
		delete(r.logs, id)
	}
	r.last = nil
}

func (r *replayer) change(sec, pos uint64) error {
	l, err := r.log(r.rec.log, aStateLog)
	if err != nil || pos < l.skip {
		return err
	}
	if r.rec.kind == kindCheckpoint {
		l.state.checkpoint(r.rec.state, sec)
	} else {
		l.state.change(r.rec.state, sec)
	}
	return nil
}

// finish puts late records where they belong and hands the logs to the store.
func (r *replayer) finish() error {
	for i := range r.w.shards {
		sh := &r.w.shards[i]
		if r.known != nil {
			sh.head = max(sh.head, r.known[i])
			sh.committed.Store(sh.head)
		}
		if !r.seen[i] {
			r.begin[i] = sh.head
		}
	}
	for id, l := range r.logs {
		if !l.known {
			return &CorruptError{
				Path: r.s.opts.Dir,
				Err:  fmt.Errorf("log %d has records, but the one that says it exists is missing", id),
				Hint: "restore the directory from a backup or a replica",
			}
		}
		if l.state != nil {
			r.s.states[id] = l.state
			continue
		}
		l.finish()
		r.s.logs[id] = l.log
	}
	return nil
}
