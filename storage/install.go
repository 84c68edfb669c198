package storage

import "slices"

// install makes the log read its section instead of what was frozen.
func (j *sealJob) install() {
	l, x, s := j.l, j.x, j.found
	if x == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var v *view
	switch x {
	case l.vis.mid:
		v = l.vis
	case l.head.mid:
		v = l.head
	default: // all of it was purged meanwhile
		if s != nil {
			s.die(0, s.info.Count, s.vis.msgs, s.vis.bytes)
		}
		return
	}
	v.set(nil, v.tail)
	l.version++
	if s == nil {
		return
	}
	s.num = l.nextNum()
	f := &forward{to: s, first: j.first, dead: j.left}
	x.deletedSince(j, func(ord uint64, gone bool) {
		at := f.at(ord)
		s.head.mark(at)
		if gone {
			s.vis.mark(at)
			s.dirty = true
		}
	})
	s.head.msgs, s.head.bytes, s.vis.msgs, s.vis.bytes = x.msgs, x.bytes, x.visMsgs, x.visBytes
	x.fwd = f
	v.sealed = append(slices.Clip(v.sealed), s)
}

// mark deletes an ordinal without counting it.
func (d *deaths) mark(ord uint32) {
	d.own()
	d.dead.Add(ord)
	if ord == d.from {
		d.from = d.dead.Live(ord)
	}
}

// deletedSince calls fn for the records that were written by j and are deleted at the head by now, or gone.
func (x *index) deletedSince(j *sealJob, fn func(ord uint64, gone bool)) {
	for ord := j.first; ord < x.end; ord++ {
		if ord >= x.start() {
			if c, i := x.chunk(ord), ord&chunkMask; c.live > 0 && c.gone[i>>6]|c.doomed[i>>6] == 0 {
				ord |= 63
				continue
			}
		}
		gone := !x.isLive(ord)
		if (gone || !x.isHeadLive(ord)) && !j.left.Contains(uint32(ord-j.first)) {
			fn(ord, gone)
		}
	}
}
