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

// deleteOrds deletes the live records with the ordinals in l.ords, which are ascending.
func (l *Log) deleteOrds(flags deleteFlags, done Done) error {
	if len(l.ords) == 0 {
		return l.settle(done)
	}
	x := l.head
	l.runs = l.runs[:0]
	for _, ord := range l.ords {
		l.runs = appendRuns(l.runs, x.at(ord).seq)
	}
	w := l.w
	w.mu.Lock()
	g, err := w.put(l.home(), maxDelete(l.runs), done, func(b []byte) []byte {
		return appendDelete(b, l.meta.ID, flags, l.runs)
	})
	if err == nil {
		t := g.touch(l)
		for _, ord := range l.ords {
			t.remove(x, ord, ord+1)
		}
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	for _, ord := range l.ords {
		x.doom(ord, l.sizeOf(x, ord))
	}
	l.trimScratch()
	return nil
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
	x := l.head
	cut := x.end
	if upTo != 0 {
		cut = x.lower(upTo)
	}
	for ; keep > 0 && cut > x.headFirst; keep-- {
		ord, ok := x.prev(cut)
		for ok && !x.isHeadLive(ord) {
			ord, ok = x.prev(ord)
		}
		if !ok {
			cut = 0
			break
		}
		cut = ord
	}
	first := x.headFirst
	if keep > 0 || cut <= first || first >= x.end {
		return 0, l.settle(done)
	}
	below := l.lastSeq + 1
	if cut < x.end {
		below = x.at(cut).seq
	}
	w := l.w
	w.mu.Lock()
	g, err := w.put(l.home(), maxFixed, done, func(b []byte) []byte {
		return appendTruncate(b, l.meta.ID, below)
	})
	if err == nil {
		g.touch(l).remove(x, first, cut)
	}
	w.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return l.doomRange(x, first, cut), nil
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
	n := uint64(len(l.ords))
	if err := l.deleteOrds(0, done); err != nil {
		return 0, err
	}
	return n, nil
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
