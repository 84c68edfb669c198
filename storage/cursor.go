package storage

import "math/bits"

// Cursor walks the live records of a log that match its filters, in order of sequence, and knows at every moment exactly
// how many it has still to give. It is what a consumer reads from. A Cursor is used by one goroutine at a time and costs
// nothing while it is not used; deletes and purges that happen ahead of it are accounted for at its next use.
type Cursor struct {
	l       *Log
	idx     *index
	sel     selection
	seq     uint64 // where the next search starts
	ord     uint64 // the same as an ordinal, as far as it is known: see sync
	counted uint64 // pending counts what is below this ordinal
	removal uint64 // removals accounted for
	pending uint64
}

// NewCursor returns a cursor that starts at from (0: the first record) and gives records that match one of filters
// (none: all).
func (l *Log) NewCursor(from uint64, filters []Filter) *Cursor {
	return &Cursor{l: l, seq: from, sel: selection{filters: filters}}
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
		c.l.mu.RUnlock()
		if ok {
			return rec, ord, nil
		}
		rec, err := c.l.w.onDisk(&r)
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
	c.idx = nil
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
	if c.idx != x {
		c.sel.forget()
	}
	c.idx = x
	c.ord = x.lower(c.seq)
	c.sel.learn(x)
	c.pending = c.sel.countFrom(x, c.ord)
	c.counted, c.removal = x.vis, x.removals
}

// selection is the set of keys that match some filters, as ids of an index. Filters are evaluated once for each key.
type selection struct {
	filters []Filter
	ids     bitset
	mask    [words]uint64 // ids modulo the size of a chunk's key set
	only    uint32        // the one id there can be, when the only filter is a literal
	learned uint64        // assignments of ids evaluated
	known   bool          // learned is valid
}

func (s *selection) all() bool { return len(s.filters) == 0 }

func (s *selection) literal() bool { return len(s.filters) == 1 && s.filters[0].Literal() }

func (s *selection) has(id uint32) bool {
	if s.literal() {
		return id == s.only
	}
	return s.ids.has(id)
}

func (s *selection) match(key []byte) bool {
	for _, f := range s.filters {
		if f.Match(key) {
			return true
		}
	}
	return false
}

// forget makes s ready for another index.
func (s *selection) forget() {
	clear(s.ids)
	s.mask = [words]uint64{}
	s.only, s.learned, s.known = noKey, 0, false
}

// learn evaluates the filters for the keys that were given an id since the last call.
func (s *selection) learn(x *index) {
	t := &x.keys
	if s.all() || s.known && s.learned == t.assigned {
		return
	}
	switch {
	case s.literal():
		s.only = t.find(s.filters[0].Prefix())
	case !s.known || !t.given(s.learned, func(id uint32) { s.evaluate(t, id) }):
		s.ids.set(t.ids, false)
		for id := range t.ids {
			s.evaluate(t, id)
		}
	}
	s.learned, s.known = t.assigned, true
}

func (s *selection) evaluate(t *keyTable, id uint32) {
	on := t.info(id).chained > 0 && s.match(t.key(id))
	s.ids.set(id, on)
	if on {
		s.mask[id>>6%words] |= 1 << (id & 63)
	}
}

// next returns the first selected ordinal in [ord, limit) that is not gone; limit or more if there is none.
func (s *selection) next(x *index, ord, limit uint64) uint64 {
	switch {
	case s.all():
		return x.next(ord, limit)
	case s.literal():
		if s.only == noKey {
			return limit
		}
		return x.chainAt(x.keys.info(s.only), ord) - 1 // 0, for none, wraps around to the highest
	}
	for ord = x.next(ord, limit); ord < limit; {
		c := x.chunk(ord)
		if !s.meets(c) {
			ord = x.next(ord&^chunkMask+chunkSize, limit)
			continue
		}
		if s.ids.has(c.e[ord&chunkMask].key) {
			return ord
		}
		ord = x.next(ord+1, limit)
	}
	return limit
}

// meets reports whether c can have selected keys.
func (s *selection) meets(c *chunk) bool {
	for w := range words {
		if s.mask[w]&c.keys[w] != 0 {
			return true
		}
	}
	return false
}

// count counts the selected records in [from, to) that are not gone.
func (s *selection) count(x *index, from, to uint64) (n uint64) {
	if s.literal() {
		if s.only == noKey {
			return 0
		}
		for ord := x.keys.info(s.only).chainLast; ord != 0 && ord-1 >= from; ord = x.at(ord - 1).prev {
			if ord-1 < to {
				n++
			}
		}
		return n
	}
	for from = max(from, x.start()); from < to; from = from&^chunkMask + chunkSize {
		if c := x.chunk(from); c.live > 0 && s.meets(c) {
			n += s.countIn(c, from&chunkMask, min(to-from&^chunkMask, chunkSize))
		}
	}
	return n
}

// countIn counts in one chunk.
func (s *selection) countIn(c *chunk, from, to uint64) (n uint64) {
	for i := from; i < to; {
		word := ^c.gone[i>>6] >> (i & 63)
		if word == 0 {
			i = i&^63 + 64
			continue
		}
		if i += uint64(bits.TrailingZeros64(word)); i < to && s.ids.has(c.e[i].key) {
			n++
		}
		i++
	}
	return n
}

// countFrom counts the selected visible records at or after ord.
func (s *selection) countFrom(x *index, ord uint64) uint64 {
	switch {
	case ord >= x.vis:
		return 0
	case s.all():
		return x.visMsgs - x.liveBelow(ord)
	case s.literal() && s.only == noKey:
		return 0
	}
	// All there are, by the keys' totals, less what is before or all but what is after: whichever walk is shorter.
	if ord-x.start() > x.vis-ord && !s.literal() {
		return s.count(x, ord, x.vis)
	}
	var total uint64
	if s.literal() {
		total = uint64(x.keys.info(s.only).chained)
		return total - s.count(x, x.vis, x.end) - s.countBelow(x, ord)
	}
	s.ids.each(func(id uint32) { total += uint64(x.keys.info(id).chained) })
	return total - s.count(x, x.vis, x.end) - s.count(x, x.start(), ord)
}

// countBelow counts the records of a literal selection below ord, or, from the other end, all but those.
func (s *selection) countBelow(x *index, ord uint64) (n uint64) {
	k := x.keys.info(s.only)
	f, b, after := k.chainFirst, k.chainLast, uint64(0)
	for {
		switch {
		case f == 0 || f-1 >= ord:
			return n
		case b == 0 || b-1 < ord:
			return uint64(k.chained) - after
		}
		n++
		after++
		f, b = x.at(f-1).next, x.at(b-1).prev
	}
}
