package storage

import "github.com/noetl/ehdb-gateway/storage/part"

// group is what one commit makes durable: everything appended while the one before it was on its way. It is filled
// under the writer's lock.
type group struct {
	num            uint64
	secFrom, secTo uint64 // its sections; none in a memory store, whose sections span groups
	heads          []sectionHead
	dones          []Done // in the order of Append
	touches        []touch
	queued         []int64 // bytes it holds of each shard's queue
	counts         []uint64
	records        int
	bytes          int64
	err            error // why it cannot become durable
}

// touch is what a group does to one log: where the log's head was at its end, and what was removed.
type touch struct {
	log      *Log
	idx      *index // the log's index at the end of the group
	end      uint64 // ordinal at the end of the group
	seq      uint64
	time     int64
	msgs     uint64 // records appended to idx
	bytes    uint64
	removals []removalOp
}

// removalOp takes out what was deleted when that is durable: the doomed records in [from, to) of idx, or the records in
// [from, to) of run, or everything, when view is what the log is then.
type removalOp struct {
	view     *view
	idx      *index
	run      *sealed
	from, to uint64
	set      *part.Tombstones // not nil: the records at these ordinals of run instead

	// Of a run:
	msgs, bytes uint64 // that are left in [from, to)
	seq, end    uint64 // sequences that [from, to) is in
}

func (t *touch) remove(idx *index, from, to uint64) {
	if n := len(t.removals); n > 0 {
		if r := &t.removals[n-1]; r.idx == idx && r.to == from {
			r.to = to
			return
		}
	}
	t.removals = append(t.removals, removalOp{idx: idx, from: from, to: to})
}

// bury adds the removal of records in a part.
func (t *touch) bury(op removalOp) {
	if n := len(t.removals); n > 0 && op.run.isDense() {
		if r := &t.removals[n-1]; r.run == op.run && r.set == nil && r.to == op.from {
			r.to, r.end = op.to, op.end
			r.msgs += op.msgs
			r.bytes += op.bytes
			return
		}
	}
	t.removals = append(t.removals, op)
}

// replace starts the log anew with v.
func (t *touch) replace(v *view) {
	t.removals = append(t.removals, removalOp{view: v})
	t.idx, t.end, t.msgs, t.bytes = v.tail, 0, 0, 0
}

// reset makes g ready to be filled again, keeping its memory within reason.
func (g *group) reset() {
	const keep = 4096
	clear(g.dones)
	g.dones = g.dones[:0]
	if cap(g.dones) > 16*keep {
		g.dones = nil
	}
	for i := range g.touches {
		r := g.touches[i].removals
		clear(r)
		if cap(r) > keep {
			r = nil
		}
		g.touches[i] = touch{removals: r[:0]}
	}
	g.touches = g.touches[:0]
	if cap(g.touches) > keep {
		g.touches = nil
	}
	g.heads = g.heads[:0]
	clear(g.queued)
	clear(g.counts)
	g.secFrom, g.secTo, g.records, g.bytes, g.err = 0, 0, 0, 0, nil
}

// touch returns what g does to l, new or begun. l's lock and the writer's are held.
func (g *group) touch(l *Log) *touch {
	if l.group == g.num && g.touches[l.touch].idx == l.head.tail {
		return &g.touches[l.touch]
	}
	l.group, l.touch = g.num, len(g.touches)
	if len(g.touches) < cap(g.touches) {
		g.touches = g.touches[:len(g.touches)+1] // keeps the memory of removals
	} else {
		g.touches = append(g.touches, touch{})
	}
	t := &g.touches[l.touch]
	*t = touch{
		log: l, idx: l.head.tail, end: l.head.tail.end, seq: l.lastSeq, time: l.lastTime, removals: t.removals[:0],
	}
	return t
}
