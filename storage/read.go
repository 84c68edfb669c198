package storage

import (
	"bytes"
	"slices"

	"github.com/noetl/ehdb-gateway/storage/tail"
)

// State returns the log's totals at the head.
func (l *Log) State() State {
	l.mu.RLock()
	defer l.mu.RUnlock()
	x := l.head
	s := State{
		Messages: x.msgs, Bytes: x.bytes, FirstSeq: l.lastSeq + 1,
		LastSeq: l.lastSeq, LastTime: l.lastTime, Keys: x.keys.live,
	}
	if x.headFirst < x.end {
		e := x.at(x.headFirst)
		s.FirstSeq, s.FirstTime = e.seq, e.time
	}
	s.Deleted = s.LastSeq + 1 - s.FirstSeq - s.Messages
	return s
}

// VisibleState returns the log's totals as readers see them.
func (l *Log) VisibleState() State {
	l.mu.RLock()
	defer l.mu.RUnlock()
	x, last := l.vis, l.visible.Load()
	s := State{
		Messages: x.visMsgs, Bytes: x.visBytes, FirstSeq: last + 1,
		LastSeq: last, LastTime: l.visTime, Keys: x.keys.used,
	}
	if first := x.next(x.first, x.vis); first < x.vis {
		e := x.at(first)
		s.FirstSeq, s.FirstTime = e.seq, e.time
	}
	s.Deleted = s.LastSeq + 1 - s.FirstSeq - s.Messages
	for ord := x.next(x.vis, x.end); ord < x.end; ord = x.next(ord+1, x.end) {
		if x.keys.info(x.at(ord).key).chainFirst == ord+1 {
			s.Keys-- // it has no visible record yet
		}
	}
	return s
}

// Visible returns the visible position: the highest sequence that reads may show.
func (l *Log) Visible() uint64 { return l.visible.Load() }

// Key returns the totals of one key at the head.
func (l *Log) Key(key []byte) KeyState {
	l.mu.RLock()
	defer l.mu.RUnlock()
	id := l.head.keys.find(key)
	if id == noKey {
		return KeyState{}
	}
	return l.head.headKey(l.head.keys.info(id))
}

// ref is a record found in the index: what is needed to read its bytes.
type ref struct {
	e    entry
	klen uint32
	// of its section, if that is not in RAM
	pos  tail.Pos
	size uint32
}

func (x *index) ref(ord uint64) ref {
	e := x.at(ord)
	return ref{e: *e, klen: x.keys.info(e.key).size}
}

// record makes a Record of the bytes of its key, header and data.
func (r *ref) record(b []byte) Record {
	k, h := r.klen, r.klen+r.e.hlen
	return Record{Seq: r.e.seq, Time: r.e.time, Key: b[:k:k], Header: b[k:h:h], Data: b[h:len(b):len(b)]}
}

// inRAM returns the record if its bytes are in RAM. The log's lock is held.
func (w *writer) inRAM(r *ref) (Record, bool) {
	s := w.secs.get(r.e.sec)
	sl := s.slab.Load()
	if sl == nil {
		r.pos, r.size = s.pos(), s.size
		return Record{}, false
	}
	return r.record(sl.buf[s.start+r.e.off:][:r.klen+r.e.hlen+r.e.dlen]), true
}

// read looks a record up with find, which is called with the log's lock held and returns its ordinal or an error, and
// reads its bytes: from RAM, else from disk without the lock.
func (l *Log) read(find func(x *index) (uint64, error)) (Record, error) {
	var last uint64 // section of a failed read
	for {
		l.mu.RLock()
		ord, err := find(l.vis)
		if err != nil {
			l.mu.RUnlock()
			return Record{}, err
		}
		r := l.vis.ref(ord)
		rec, ok := l.w.inRAM(&r)
		l.mu.RUnlock()
		if ok {
			return rec, nil
		}
		if rec, err = l.w.onDisk(&r); err == nil {
			return rec, nil
		}
		// it may have moved, or been deleted and its space dropped, since it was looked up
		if last == r.e.sec+1 {
			return Record{}, err
		}
		last = r.e.sec + 1
	}
}

// Get returns the record at seq: ErrNotFound if it was deleted or never was, ErrEOF if seq is above the visible
// position.
func (l *Log) Get(seq uint64) (Record, error) {
	return l.read(func(x *index) (uint64, error) {
		if seq > l.visible.Load() {
			return 0, ErrEOF
		}
		if ord, ok := x.find(seq); ok && ord < x.vis {
			return ord, nil
		}
		return 0, ErrNotFound
	})
}

// Last returns the newest live record that matches filter (nil: any) with a sequence <= upTo (0: no bound); ErrNotFound
// if there is none.
func (l *Log) Last(filter Filter, upTo uint64) (Record, error) {
	return l.read(func(x *index) (uint64, error) {
		if ord, ok := x.lastMatch(filter, x.below(upTo)); ok {
			return ord, nil
		}
		return 0, ErrNotFound
	})
}

// below returns the ordinal that visible records with a sequence <= upTo (0: no bound) are below.
func (x *index) below(upTo uint64) uint64 {
	if upTo == 0 || upTo == ^uint64(0) {
		return x.vis
	}
	return min(x.lower(upTo+1), x.vis)
}

// lookBack is how many records Last tries before it asks the keys.
const lookBack = 1024

func (x *index) lastMatch(filter Filter, limit uint64) (uint64, bool) {
	if filter == nil {
		return x.prev(limit)
	}
	if !filter.Literal() {
		ord, ok := x.prev(limit)
		for range lookBack {
			if !ok {
				return 0, false
			}
			if filter.Match(x.keys.key(x.at(ord).key)) {
				return ord, true
			}
			ord, ok = x.prev(ord)
		}
	}
	var last uint64
	x.eachKey(filter, func(id uint32) bool {
		last = max(last, x.chainUpTo(x.keys.info(id), limit))
		return true
	})
	return last - 1, last != 0
}

// eachKey calls fn for each key in the index that matches filter (nil: all) until fn returns false.
func (x *index) eachKey(filter Filter, fn func(id uint32) bool) {
	switch {
	case filter == nil:
		x.keys.each(fn)
	case filter.Literal():
		if id := x.keys.find(filter.Prefix()); id != noKey {
			fn(id)
		}
	default:
		prefix := filter.Prefix()
		x.keys.each(func(id uint32) bool {
			key := x.keys.key(id)
			return !bytes.HasPrefix(key, prefix) || !filter.Match(key) || fn(id)
		})
	}
}

// Next returns the first live record at or after seq that matches filter (nil: any); ErrEOF if there is none yet.
func (l *Log) Next(seq uint64, filter Filter) (Record, error) {
	return l.read(func(x *index) (uint64, error) {
		ord := x.next(x.lower(seq), x.vis)
		switch {
		case filter == nil:
		case filter.Literal():
			ord = x.vis
			if id := x.keys.find(filter.Prefix()); id != noKey {
				ord = x.chainAt(x.keys.info(id), x.lower(seq)) - 1
			}
		default:
			for ord < x.vis && !filter.Match(x.keys.key(x.at(ord).key)) {
				ord = x.next(ord+1, x.vis)
			}
		}
		if ord >= x.vis {
			return 0, ErrEOF
		}
		return ord, nil
	})
}

// SeqAtTime returns the sequence of the first live record with Time >= unixNano, or the visible position + 1.
func (l *Log) SeqAtTime(unixNano int64) uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	x := l.vis
	if ord := x.next(x.atTime(unixNano), x.vis); ord < x.vis {
		return x.at(ord).seq
	}
	return l.visible.Load() + 1
}

// LastPerKey returns, ascending, the sequence of the newest live record (<= upTo; 0: no bound) of each key that matches
// one of filters (none: all). At most limit (0: no limit); more is true when it was cut.
func (l *Log) LastPerKey(filters []Filter, upTo uint64, limit int) (seqs []uint64, more bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	x := l.vis
	bound := x.below(upTo)
	x.eachMatch(filters, func(id uint32) {
		if ord := x.chainUpTo(x.keys.info(id), bound); ord != 0 {
			seqs = append(seqs, x.at(ord-1).seq)
		}
	})
	slices.Sort(seqs)
	if limit > 0 && len(seqs) > limit {
		return seqs[:limit], true
	}
	return seqs, false
}

// eachMatch calls fn once for each key that matches one of filters (none: all).
func (x *index) eachMatch(filters []Filter, fn func(id uint32)) {
	if len(filters) == 0 {
		x.keys.each(func(id uint32) bool { fn(id); return true })
		return
	}
	var seen bitset
	for _, f := range filters {
		x.eachKey(f, func(id uint32) bool {
			if !seen.has(id) {
				if len(filters) > 1 {
					seen.add(id)
				}
				fn(id)
			}
			return true
		})
	}
}

// Count returns how many live visible records at or after from match one of filters (none: all).
func (l *Log) Count(from uint64, filters []Filter) uint64 {
	return l.NewCursor(from, filters).Pending()
}

// EachKey calls fn for each key with live records that matches filter (nil: all), in no order, until fn returns false.
// key is only valid during the call. Keys that come or go during the walk may be left out.
func (l *Log) EachKey(filter Filter, fn func(key []byte, ks KeyState) bool) {
	const batch = 512
	type item struct {
		end int
		ks  KeyState
	}
	var (
		names []byte
		items []item
	)
	for from, more := uint32(0), true; more; {
		names, items = names[:0], items[:0]
		l.mu.RLock()
		from, more = l.vis.walkKeys(from, batch, filter, func(key []byte, ks KeyState) {
			names = append(names, key...)
			items = append(items, item{len(names), ks})
		})
		l.mu.RUnlock()
		at := 0
		for _, it := range items {
			if !fn(names[at:it.end:it.end], it.ks) {
				return
			}
			at = it.end
		}
	}
}

// walkKeys calls fn for the matching keys with visible records among the next ids from from, at most most of them, and
// returns where to go on.
func (x *index) walkKeys(from uint32, most int, filter Filter, fn func([]byte, KeyState)) (next uint32, more bool) {
	if filter != nil && filter.Literal() {
		x.eachKey(filter, func(id uint32) bool {
			if ks := x.visibleKey(x.keys.info(id)); ks.Count > 0 {
				fn(x.keys.key(id), ks)
			}
			return true
		})
		return 0, false
	}
	for id := from; id < x.keys.ids; id++ {
		k := x.keys.info(id)
		if k.chained == 0 || filter != nil && !filter.Match(x.keys.key(id)) {
			continue
		}
		if ks := x.visibleKey(k); ks.Count > 0 {
			fn(x.keys.key(id), ks)
			if most--; most == 0 {
				return id + 1, true
			}
		}
	}
	return 0, false
}

// EachDeleted calls fn for the sequences between the first and the last visible record that are not live, ascending,
// until fn returns false.
func (l *Log) EachDeleted(fn func(seq uint64) bool) {
	var want uint64
	for more := true; more; {
		var gaps []seqRun
		l.mu.RLock()
		gaps, want, more = l.gaps(want)
		l.mu.RUnlock()
		for _, g := range gaps {
			for i := range g.n {
				if !fn(g.first + i) {
					return
				}
			}
		}
	}
}

// gaps returns the next runs of sequences that are not live from want on (0: from the first record), where to go on,
// and whether there is more. The lock is held.
func (l *Log) gaps(want uint64) (gaps []seqRun, next uint64, more bool) {
	const batch = 4096
	x := l.vis
	ord := x.next(x.first, x.vis)
	if want != 0 {
		ord = x.next(x.lower(want), x.vis)
	} else if ord < x.vis {
		want = x.at(ord).seq
	} else {
		return nil, 0, false
	}
	for range batch {
		if ord >= x.vis {
			if last := l.visible.Load(); last >= want {
				gaps = append(gaps, seqRun{want, last + 1 - want})
			}
			return gaps, 0, false
		}
		seq := x.at(ord).seq
		if seq > want {
			gaps = append(gaps, seqRun{want, seq - want})
		}
		want = seq + 1
		ord = x.next(ord+1, x.vis)
	}
	return gaps, want, true
}
