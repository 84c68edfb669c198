package storage

import "slices"

// Delete removes the live records among seqs and returns how many there were. With erase their bytes are overwritten on
// disk when their space is next rewritten. Errors as for Append.
//
//nolint:revive // erase is what the record says, not a mode
func (l *Log) Delete(seqs []uint64, erase bool, done Done) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped {
		return 0, ErrNoLog
	}
	l.resolve(seqs)
	n := len(l.ords)
	var flags deleteFlags
	if erase {
		flags = flagErase
	}
	if err := l.deleteOrds(flags, done); err != nil {
		return 0, err
	}
	return n, nil
}

// resolve puts the ordinals of the live records among seqs into l.ords, ascending.
func (l *Log) resolve(seqs []uint64) {
	x := l.head
	l.ords = l.ords[:0]
	for _, seq := range seqs {
		if ord, ok := x.find(seq); ok && x.isHeadLive(ord) {
			l.ords = append(l.ords, ord)
		}
	}
	if len(l.ords) > 1 {
		slices.Sort(l.ords)
		l.ords = slices.Compact(l.ords)
	}
}

// deleteOrds deletes the live records with the ordinals in l.ords, which are ascending.
func (l *Log) deleteOrds(flags deleteFlags, done Done) error {
	if len(l.ords) == 0 {
		return l.settle(done)
	}
	l.findRuns()
	w := l.w
	w.mu.Lock()
	err := w.admit(l.home(), maxDelete(l.runs), w.slack())
	if err == nil {
		l.queueDelete(w.current(), flags, done)
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	l.doomOrds()
	return nil
}

// findRuns makes l.runs of the sequences of l.ords.
func (l *Log) findRuns() {
	l.runs = l.runs[:0]
	for _, ord := range l.ords {
		l.runs = appendRuns(l.runs, l.head.at(ord).seq)
	}
}

// queueDelete adds the deletion of l.ords, which was admitted, to g. The locks are held.
func (l *Log) queueDelete(g *group, flags deleteFlags, done Done) {
	l.w.putIn(g, l.home(), maxDelete(l.runs), done, func(b []byte) []byte {
		return appendDelete(b, l.meta.ID, flags, l.runs)
	})
	t := g.touch(l)
	for _, ord := range l.ords {
		t.remove(l.head, ord, ord+1)
	}
}

// doomOrds deletes l.ords at the head.
func (l *Log) doomOrds() {
	for _, ord := range l.ords {
		l.head.doom(ord, l.sizeOf(l.head, ord))
	}
	l.trimScratch()
}

// deleteIn deletes l.ords in g. The locks are held.
func (l *Log) deleteIn(g *group) {
	if len(l.ords) == 0 {
		return
	}
	l.findRuns()
	l.queueDelete(g, 0, nil)
	l.doomOrds()
}

// trimScratch lets go of the memory a large deletion took.
func (l *Log) trimScratch() {
	const most = 4096
	if cap(l.ords) > most {
		l.ords = nil
	}
	if cap(l.runs) > most {
		l.runs = nil
	}
}

// settle calls done when all that went before is visible. It goes through the queue, never at once: a caller of a
// mutator holds its own lock.
func (l *Log) settle(done Done) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.w.err != nil {
		return l.w.err
	}
	if done != nil {
		g := l.w.current()
		g.dones = append(g.dones, done)
	}
	return nil
}

// Purge removes the live records with a sequence below upTo (0: all) that match filter (nil: all), but keeps the newest
// keep of them. It is one record in the log however much it removes, and returns the exact number removed. A purge of
// everything moves FirstSeq to LastSeq+1, or to upTo. Errors as for Append.
func (l *Log) Purge(filter Filter, upTo, keep uint64, done Done) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dropped:
		return 0, ErrNoLog
	case filter != nil:
		return l.purgeMatching(filter, upTo, keep, done)
	case keep == 0 && (upTo == 0 || upTo > l.lastSeq):
		return l.purgeAll(max(upTo, l.lastSeq+1), done)
	default:
		return l.purgeFront(upTo, keep, done)
	}
}

// purgeAll starts the log anew: its next sequence is at least below.
func (l *Log) purgeAll(below uint64, done Done) (uint64, error) {
	n := l.head.msgs
	if n == 0 && below == l.lastSeq+1 {
		return 0, l.settle(done)
	}
	fresh := newIndex(l.head.keys.seed)
	w := l.w
	w.mu.Lock()
	g, err := w.put(l.home(), maxFixed, done, func(b []byte) []byte {
		return appendTruncate(b, l.meta.ID, below)
	})
	if err == nil {
		t := g.touch(l)
		t.replace(fresh)
		t.seq = below - 1
	}
	w.mu.Unlock()
	if err != nil {
		return 0, err
	}
	l.head, l.lastSeq = fresh, below-1
	return n, nil
}

// purgeFront removes what is below upTo (0: everything) but for the newest keep of it.
func (l *Log) purgeFront(upTo, keep uint64, done Done) (uint64, error) {
	cut, ok := l.cutFront(upTo, keep)
	if !ok {
		return 0, l.settle(done)
	}
	x, first := l.head, l.head.headFirst
	w := l.w
	w.mu.Lock()
	err := w.admit(l.home(), maxFixed, w.slack())
	if err == nil {
		l.queueTruncate(w.current(), cut, done)
	}
	w.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return l.doomRange(x, first, cut), nil
}

// cutFront returns the ordinal below which everything is to go; false if there is nothing.
func (l *Log) cutFront(upTo, keep uint64) (cut uint64, ok bool) {
	x := l.head
	cut = x.end
	if upTo != 0 {
		cut = x.lower(upTo)
	}
	for ; keep > 0 && cut > x.headFirst; keep-- {
		ord, ok := x.prev(cut)
		for ok && !x.isHeadLive(ord) {
			ord, ok = x.prev(ord)
		}
		if !ok {
			return 0, false
		}
		cut = ord
	}
	return cut, keep == 0 && cut > x.headFirst && x.headFirst < x.end
}

// queueTruncate adds the removal of what is below cut, which was admitted, to g. The locks are held.
func (l *Log) queueTruncate(g *group, cut uint64, done Done) {
	x := l.head
	below := l.lastSeq + 1
	if cut < x.end {
		below = x.at(cut).seq
	}
	l.w.putIn(g, l.home(), maxFixed, done, func(b []byte) []byte {
		return appendTruncate(b, l.meta.ID, below)
	})
	g.touch(l).remove(x, x.headFirst, cut)
}

// purgeIn removes what matches filter (nil: all) but for the newest keep, in g. The locks are held.
func (l *Log) purgeIn(g *group, filter Filter, keep uint64) {
	if filter != nil {
		l.resolveMatching(filter, l.head.end, keep)
		l.deleteIn(g)
		return
	}
	if cut, ok := l.cutFront(0, keep); ok {
		first := l.head.headFirst
		l.queueTruncate(g, cut, nil)
		l.doomRange(l.head, first, cut)
	}
}

// doomRange deletes what is live in [from, to) at the head.
func (l *Log) doomRange(x *index, from, to uint64) (n uint64) {
	for ord := x.next(from, to); ord < to; ord = x.next(ord+1, to) {
		if x.isHeadLive(ord) {
			x.doom(ord, l.sizeOf(x, ord))
			n++
		}
	}
	return n
}

// purgeMatching removes what matches filter. The sequences are resolved here, so that replay needs no filter.
func (l *Log) purgeMatching(filter Filter, upTo, keep uint64, done Done) (uint64, error) {
	x := l.head
	limit := x.end
	if upTo != 0 {
		limit = x.lower(upTo)
	}
	l.resolveMatching(filter, limit, keep)
	n := uint64(len(l.ords))
	if err := l.deleteOrds(0, done); err != nil {
		return 0, err
	}
	return n, nil
}

// resolveMatching puts the ordinals below limit of the live records that match filter into l.ords, ascending, but for
// the newest keep.
func (l *Log) resolveMatching(filter Filter, limit, keep uint64) {
	x := l.head
	l.ords = l.ords[:0]
	x.eachKey(filter, func(id uint32) bool {
		for ord := x.keys.info(id).chainFirst; ord != 0 && ord-1 < limit; ord = x.at(ord - 1).next {
			if x.isHeadLive(ord - 1) {
				l.ords = append(l.ords, ord-1)
			}
		}
		return true
	})
	slices.Sort(l.ords)
	l.ords = l.ords[:len(l.ords)-int(min(keep, uint64(len(l.ords))))]
}

// drop marks the log as gone and queues the record that says so.
func (l *Log) drop(done Done) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped {
		return ErrNoLog
	}
	fresh := newIndex(l.head.keys.seed)
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	g, err := w.put(l.home(), maxFixed, done, func(b []byte) []byte { return appendDrop(b, l.meta.ID) })
	if err != nil {
		return err
	}
	g.touch(l).replace(fresh)
	l.dropped, l.head = true, fresh
	return nil
}
