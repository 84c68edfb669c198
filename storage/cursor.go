package storage

// Cursor walks the live records of a log that match its filters, in order of sequence, and knows at every moment
// exactly how many it has still to give. It is what a consumer reads from. A Cursor is used by one goroutine at a
// time and costs nothing while it is not used; deletes and purges that happen ahead of it are accounted for at its
// next use.
type Cursor struct {
	l       *Log
	idx     *index
	sel     selection
	seq     uint64 // where the next search starts
	ord     uint64 // the same as an ordinal, as far as it is known: see sync
	counted uint64 // pending counts what is below this ordinal
	removal uint64 // removals accounted for
	pending uint64
	ahead   readAhead
}

// NewCursor returns a cursor that starts at from (0: the first record) and gives records that match one of filters
// (none: all).
func (l *Log) NewCursor(from uint64, filters []Filter) *Cursor {
	return &Cursor{l: l, seq: from, sel: newSelection(filters)}
}

// Next returns the next matching visible record and moves past it; ErrEOF when there is none yet. The read of its bytes
// is from RAM where the record is recent, else from disk.
func (c *Cursor) Next() (Record, error) {
	r, ord, err := c.read()
	if err == nil {
		c.ord, c.seq = ord+1, r.Seq+1
		c.pending--
	}
	return r, err
}

// Peek is Next without moving.
func (c *Cursor) Peek() (Record, error) {
	r, _, err := c.read()
	return r, err
}

// Pass moves past seq, the record that Peek gave: also if it was removed since, when Next would take the one after it.
func (c *Cursor) Pass(seq uint64) {
	c.l.mu.RLock()
	defer c.l.mu.RUnlock()
	c.sync()
	if c.isNext(seq) {
		c.ord++
		c.pending--
	}
	c.seq = seq + 1
}

// PendingAfter returns what Pending is after Pass(seq).
func (c *Cursor) PendingAfter(seq uint64) uint64 {
	c.l.mu.RLock()
	defer c.l.mu.RUnlock()
	c.sync()
	if c.isNext(seq) {
		return c.pending - 1
	}
	return c.pending
}

// isNext reports whether the record with sequence seq is the next to be given, and moves to it if so. The log's lock is
// held and the cursor in sync.
func (c *Cursor) isNext(seq uint64) bool {
	x := c.idx
	ord := c.sel.next(x, c.ord, x.vis)
	if ord >= x.vis || x.at(ord).seq != seq {
		return false
	}
	c.ord = ord
	return true
}

// read returns the next matching record and its ordinal.
func (c *Cursor) read() (Record, uint64, error) {
	var last uint64 // section of a failed read
	for {
		c.l.mu.RLock()
		c.sync()
		x := c.idx
		ord := c.sel.next(x, c.ord, x.vis)
		if ord >= x.vis {
			c.l.mu.RUnlock()
			return Record{}, 0, ErrEOF
		}
		r := x.ref(ord)
		rec, ok := c.l.w.inRAM(&r)
		c.ord = ord // nothing before it matches: it is not searched for again
		c.l.mu.RUnlock()
		if ok {
			return rec, ord, nil
		}
		rec, err := c.ahead.read(c.l.w.tail, &r)
		if err == nil {
			return rec, ord, nil
		}
		// it may have moved, or been deleted and its space dropped, since it was looked up
		if last == r.e.sec+1 {
			return Record{}, 0, err
		}
		last = r.e.sec + 1
	}
}

// Pending returns how many matching records are visible and not yet given: exact, and consistent with Next.
func (c *Cursor) Pending() uint64 {
	c.l.mu.RLock()
	defer c.l.mu.RUnlock()
	c.sync()
	return c.pending
}

// Position returns the sequence at which the next search starts.
func (c *Cursor) Position() uint64 { return c.seq }

// Seek moves the cursor to from, in either direction.
func (c *Cursor) Seek(from uint64) {
	c.seq = from
	c.idx = nil // counts anew at the next use
}

// sync accounts for what happened to the log since the cursor's last use. The log's lock is held.
func (c *Cursor) sync() {
	x := c.l.vis
	if c.idx != x {
		c.reset(x)
		return
	}
	if c.counted == x.vis && c.removal == x.removals {
		return
	}
	if c.ord >= c.counted { // the position was beyond what was there: find it among what is there now
		c.ord = x.lower(c.seq)
	}
	// In this order: what is removed was matched with the key ids of its time, which may have been given anew since.
	known := x.removedSince(c.removal, func(r removal) {
		if r.ord >= c.ord && (c.sel.all() || r.ord < c.counted && c.sel.has(r.key)) {
			c.pending--
		}
	})
	if !known {
		c.reset(x)
		return
	}
	c.sel.learn(x)
	if from := max(c.ord, c.counted); from < x.vis {
		if c.sel.all() {
			c.pending += x.vis - from // those of them that are gone were subtracted above
		} else {
			c.pending += c.sel.count(x, from, x.vis)
		}
	}
	c.counted, c.removal = x.vis, x.removals
}

// reset counts anew.
func (c *Cursor) reset(x *index) {
	c.sel.forget()
	c.idx = x
	c.ord = x.lower(c.seq)
	c.sel.learn(x)
	c.pending = c.sel.countFrom(x, c.ord)
	c.counted, c.removal = x.vis, x.removals
}
