package storage

import (
	"errors"
	"slices"

	"github.com/noetl/ehdb-gateway/storage/part"
)

// Cursor walks the live records of a log that match its filters, in order of sequence, and knows at every moment
// exactly how many it has still to give. It is what a consumer reads from. A Cursor is used by one goroutine at a
// time and costs nothing while it is not used; deletes and purges that happen ahead of it are accounted for at its
// next use.
type Cursor struct {
	l       *Log
	filters []Filter
	seq     uint64 // where it stands
	from    uint64 // where the next search starts: nothing in [seq, from) matches

	v       *view  // pending is of; nil: it is to be counted anew
	counted uint64 // pending is of the records up to this sequence
	removal uint64 // removals accounted for
	pending uint64

	ram     []ramCursor // one for each run in RAM
	matches map[uint32]*part.Match
	size    int // of matches
	at      sealedSpot
	ahead   readAhead
}

// ramCursor is what a cursor knows of a run in RAM.
type ramCursor struct {
	x   *index
	sel selection
}

// sealedSpot is the record in a part that was found last.
type sealedSpot struct {
	run *sealed
	sec *part.Section
	seq uint64
	ord uint32
}

// maxMatches bounds what a cursor keeps of which keys match in parts.
const maxMatches = 256 << 10

// NewCursor returns a cursor that starts at from (0: the first record) and gives records that match one of filters
// (none: all).
func (l *Log) NewCursor(from uint64, filters []Filter) *Cursor {
	return &Cursor{l: l, seq: from, from: from, filters: filters}
}

// Next returns the next matching visible record and moves past it; ErrEOF when there is none yet. The read of its bytes
// is from RAM where the record is recent, else from disk.
func (c *Cursor) Next() (Record, error) {
	r, err := c.read()
	if err == nil {
		c.seq, c.from = r.Seq+1, r.Seq+1
		c.pending--
	}
	return r, err
}

// Peek is Next without moving.
func (c *Cursor) Peek() (Record, error) { return c.read() }

// Pass moves past seq, the record that Peek gave: also if it was removed since, when Next would take the one after it.
func (c *Cursor) Pass(seq uint64) {
	c.pending = c.PendingAfter(seq)
	c.seq, c.from = seq+1, seq+1
}

// PendingAfter returns what Pending is after Pass(seq).
func (c *Cursor) PendingAfter(seq uint64) uint64 {
	for {
		c.sync()
		there, known := c.isThere(seq)
		n := c.pending
		c.l.mu.RUnlock()
		if !known {
			if _, err := c.read(); err != nil && !errors.Is(err, ErrEOF) { // finds it again
				c.l.fault(err)
				return n
			}
			if c.at.seq != seq {
				c.at = sealedSpot{seq: seq} // it is gone
			}
			continue
		}
		if there {
			n--
		}
		return n
	}
}

// isThere reports whether the record at seq, which Peek gave, is still there; known is false if that is to be looked
// up. The log's lock is held and the cursor in sync.
func (c *Cursor) isThere(seq uint64) (there, known bool) {
	if seq < c.seq || seq > c.counted {
		return false, true
	}
	if seq > c.v.lastSealed() {
		for _, x := range c.v.ram() {
			if ord, ok := x.find(seq); ok && ord < x.vis {
				return true, true
			}
		}
		return false, true
	}
	switch {
	case c.at.seq != seq:
		return false, false
	case c.at.run == nil:
		return false, true
	case c.at.run.fwd != nil || !slices.Contains(c.v.sealed, c.at.run):
		return false, false
	}
	return !c.at.run.vis.dead.Contains(c.at.ord), true
}

// read returns the next matching record.
func (c *Cursor) read() (Record, error) {
	var last uint64 // section of a failed read
	for {
		c.sync()
		v := c.v
		if runs := v.from(c.from); len(runs) > 0 {
			views, err := snapshot(c.near(runs), visible)
			c.l.mu.RUnlock()
			if err != nil {
				return Record{}, err
			}
			r, ok, err := c.readSealed(views)
			release(views)
			if ok || err != nil {
				return r, err
			}
			continue
		}
		x, ord := c.find()
		if x == nil {
			c.l.mu.RUnlock()
			return Record{}, ErrEOF
		}
		r := x.ref(ord)
		rec, ok := c.l.w.inRAM(&r)
		c.from = max(c.from, r.e.seq)
		c.l.mu.RUnlock()
		if ok {
			return rec, nil
		}
		rec, err := c.ahead.read(c.l.w.tail, &r)
		if err == nil {
			return rec, nil
		}
		// it may have moved, or been deleted and its space dropped, since it was looked up
		if last == r.e.sec+1 {
			return Record{}, err
		}
		last = r.e.sec + 1
	}
}

// near returns the first of runs that has something left.
func (c *Cursor) near(runs []*sealed) []*sealed {
	for i := range runs {
		if runs[i].vis.msgs > 0 || i == len(runs)-1 {
			return runs[i : i+1]
		}
	}
	return nil
}

// readSealed returns the next matching record in the run in views, or moves the search behind it. What was found there
// is remembered.
func (c *Cursor) readSealed(views []sealedView) (Record, bool, error) {
	for i := range views {
		v := &views[i]
		if c.at.run == v.sealed {
			v.sec = c.at.sec
		}
		sec, err := v.section()
		if err != nil {
			return Record{}, false, err
		}
		m, err := c.match(v)
		if err != nil {
			return Record{}, false, err
		}
		ord, err := sec.Lower(c.from)
		if err != nil {
			return Record{}, false, err
		}
		ord, ok, err := sec.Next(ord, m, v.dead)
		if err != nil {
			return Record{}, false, err
		}
		if ok {
			r, err := sec.ByOrdinal(ord)
			if err != nil {
				return Record{}, false, err
			}
			c.at = sealedSpot{run: v.sealed, sec: sec, seq: r.Seq, ord: ord}
			c.from = r.Seq
			return Record(r), true, nil
		}
		c.from = v.info.LastSeq + 1
	}
	if len(views) == 0 { // nothing was left in any of them
		c.skipDead()
	}
	return Record{}, false, nil
}

// skipDead moves the search behind the runs in parts that have nothing left.
func (c *Cursor) skipDead() {
	c.l.mu.RLock()
	defer c.l.mu.RUnlock()
	for _, s := range c.l.vis.from(c.from) {
		if s.vis.msgs > 0 {
			return
		}
		c.from = s.info.LastSeq + 1
	}
}

// find returns the next matching record in RAM; nil if there is none. The log's lock is held.
func (c *Cursor) find() (*index, uint64) {
	for i := range c.ram {
		x := c.ram[i].x
		if ord := c.ram[i].sel.next(x, x.lower(c.from), x.vis); ord < x.vis {
			return x, ord
		}
	}
	return nil, 0
}

// match returns the keys of a run that match; nil for all. It remembers some.
func (c *Cursor) match(v *sealedView) (*part.Match, error) {
	if len(c.filters) == 0 {
		return nil, nil //nolint:nilnil // all
	}
	if m := c.matches[v.num]; m != nil {
		return m, nil
	}
	m, err := v.match(c.filters)
	if err != nil {
		return nil, err
	}
	if c.size += m.Bytes(); c.size > maxMatches || c.matches == nil {
		c.matches, c.size = map[uint32]*part.Match{}, m.Bytes()
	}
	c.matches[v.num] = m
	return m, nil
}

// Pending returns how many matching records are visible and not yet given: exact, and consistent with Next.
func (c *Cursor) Pending() uint64 {
	c.sync()
	defer c.l.mu.RUnlock()
	return c.pending
}

// Position returns the sequence at which the next search starts.
func (c *Cursor) Position() uint64 { return c.seq }

// Seek moves the cursor to from, in either direction.
func (c *Cursor) Seek(from uint64) {
	c.seq, c.from = from, from
	c.v = nil // counts anew at the next use
}
