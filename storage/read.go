package storage

import (
	"bytes"
	"errors"
	"slices"
	"sort"

	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/tail"
)

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

// spot is where a record is in RAM's index.
type spot struct {
	x   *index
	ord uint64
}

// read looks a record up with find, which is called with the log's lock held and returns where it is or an error, and
// reads its bytes: from RAM, else from disk without the lock. errSealed as find's error has it called again with what
// the log has in parts as find asked for.
func (l *Log) read(find func(v *view) (spot, error)) (Record, error) {
	var last uint64 // section of a failed read
	for {
		l.mu.RLock()
		at, err := find(l.vis)
		if err != nil {
			l.mu.RUnlock()
			return Record{}, err
		}
		r := at.x.ref(at.ord)
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

// errSealed says that a record, if there is one, is in a part.
var errSealed = errors.New("in a part")

// Get returns the record at seq: ErrNotFound if it was deleted or never was, ErrEOF if seq is above the visible
// position.
func (l *Log) Get(seq uint64) (Record, error) {
	var views []sealedView
	r, err := l.read(func(v *view) (spot, error) {
		if seq > l.visible.Load() {
			return spot{}, ErrEOF
		}
		if runs := v.from(seq); len(runs) > 0 {
			var err error
			if views, err = snapshot(runs[:1], visible); err != nil {
				return spot{}, err
			}
			return spot{}, errSealed
		}
		for _, x := range v.ram() {
			if ord, ok := x.find(seq); ok && ord < x.vis {
				return spot{x, ord}, nil
			}
		}
		return spot{}, ErrNotFound
	})
	if !errors.Is(err, errSealed) {
		return r, err
	}
	defer release(views)
	for i := range views {
		sec, err := views[i].section()
		if err != nil {
			return Record{}, err
		}
		if r, ok, err := sec.Get(seq, views[i].dead); ok || err != nil {
			return Record(r), err
		}
	}
	return Record{}, ErrNotFound
}

// Last returns the newest live record that matches filter (nil: any) with a sequence <= upTo (0: no bound); ErrNotFound
// if there is none.
func (l *Log) Last(filter Filter, upTo uint64) (Record, error) {
	var views []sealedView
	r, err := l.read(func(v *view) (spot, error) {
		ram := v.ram()
		for _, x := range slices.Backward(ram) {
			if ord, ok := x.lastMatch(filter, x.below(upTo)); ok {
				return spot{x, ord}, nil
			}
		}
		var err error
		if views, err = snapshot(v.sealed, visible); err != nil {
			return spot{}, err
		}
		return spot{}, errSealed
	})
	if !errors.Is(err, errSealed) {
		return r, err
	}
	defer release(views)
	for i := len(views) - 1; i >= 0; i-- {
		if r, ok, err := views[i].last(filter, upTo); ok || err != nil {
			return r, err
		}
	}
	return Record{}, ErrNotFound
}

// last returns the newest record that matches filter (nil: any) with a sequence <= upTo (0: no bound).
func (v *sealedView) last(filter Filter, upTo uint64) (Record, bool, error) {
	if upTo != 0 && upTo < v.info.FirstSeq {
		return Record{}, false, nil
	}
	sec, err := v.section()
	if err != nil {
		return Record{}, false, err
	}
	var (
		ord uint32
		ok  bool
	)
	if filter != nil && filter.Literal() {
		ord, ok, err = sec.LastOf(filter.Prefix(), upTo, v.dead)
	} else {
		var (
			m     *part.Match
			limit uint32
		)
		if m, err = v.match(oneFilter(filter)); err == nil {
			limit, err = sec.Below(upTo)
		}
		if err == nil {
			ord, ok, err = sec.Prev(limit, m, v.dead)
		}
	}
	if !ok || err != nil {
		return Record{}, false, err
	}
	r, err := sec.ByOrdinal(ord)
	return Record(r), err == nil, err
}

func oneFilter(f Filter) []Filter {
	if f == nil {
		return nil
	}
	return []Filter{f}
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
	for from := seq; ; {
		var (
			views []sealedView
			end   uint64
		)
		r, err := l.read(func(v *view) (spot, error) {
			if runs := v.from(from); len(runs) > 0 {
				var err error
				if views, err = snapshot(runs, visible); err != nil {
					return spot{}, err
				}
				end = v.lastSealed()
				return spot{}, errSealed
			}
			for _, x := range v.ram() {
				if ord := x.nextMatch(filter, x.lower(from)); ord < x.vis {
					return spot{x, ord}, nil
				}
			}
			return spot{}, ErrEOF
		})
		if !errors.Is(err, errSealed) {
			return r, err
		}
		r, ok, err := nextIn(views, from, filter)
		release(views)
		if ok || err != nil {
			return r, err
		}
		from = end + 1
	}
}

func nextIn(views []sealedView, from uint64, filter Filter) (r Record, ok bool, err error) {
	for i := range views {
		if r, ok, err = views[i].next(from, filter); ok || err != nil {
			break
		}
	}
	return r, ok, err
}

// lookAhead is how many records next tries before it asks all keys.
const lookAhead = 64

// next returns the first record at or after from that matches filter (nil: any).
func (v *sealedView) next(from uint64, filter Filter) (Record, bool, error) {
	sec, err := v.section()
	if err != nil {
		return Record{}, false, err
	}
	ord, err := sec.Lower(from)
	if err != nil {
		return Record{}, false, err
	}
	for n := 0; filter != nil && !filter.Literal() && n < lookAhead; n++ {
		next, ok, err := sec.Next(ord, nil, v.dead)
		if err != nil || !ok {
			return Record{}, false, err
		}
		r, err := sec.ByOrdinal(next)
		if err != nil || filter.Match(r.Key) {
			return Record(r), err == nil, err
		}
		ord = next + 1
	}
	m, err := v.match(oneFilter(filter))
	if err != nil {
		return Record{}, false, err
	}
	ord, ok, err := sec.Next(ord, m, v.dead)
	if err != nil || !ok {
		return Record{}, false, err
	}
	r, err := sec.ByOrdinal(ord)
	return Record(r), err == nil, err
}

// nextMatch returns the first visible ordinal at or after ord that matches filter (nil: any) and is not gone; vis or
// more if there is none.
func (x *index) nextMatch(filter Filter, from uint64) uint64 {
	ord := x.next(from, x.vis)
	switch {
	case filter == nil:
	case filter.Literal():
		ord = x.vis
		if id := x.keys.find(filter.Prefix()); id != noKey {
			ord = x.chainAt(x.keys.info(id), from) - 1
		}
	default:
		for ord < x.vis && !filter.Match(x.keys.key(x.at(ord).key)) {
			ord = x.next(ord+1, x.vis)
		}
	}
	return ord
}

// SeqAtTime returns the sequence of the first live record with Time >= unixNano, or the visible position + 1.
func (l *Log) SeqAtTime(unixNano int64) uint64 {
	l.mu.RLock()
	ram := l.visible.Load() + 1
	for _, x := range l.vis.ram() {
		if ord := x.next(x.atTime(unixNano), x.vis); ord < x.vis {
			ram = x.at(ord).seq
			break
		}
	}
	runs := l.vis.sealed
	n := sort.Search(len(runs), func(i int) bool { return runs[i].info.LastTime >= unixNano })
	views, err := snapshot(runs[n:], visible)
	l.mu.RUnlock()
	defer release(views)
	for i := range views {
		var seq uint64
		if seq, err = views[i].atTime(unixNano); seq > 0 || err != nil {
			ram = seq
			break
		}
	}
	l.fault(err)
	return ram
}

// atTime returns the sequence of the first record that is left with a time at or after t; 0 if there is none.
func (v *sealedView) atTime(t int64) (uint64, error) {
	sec, err := v.section()
	if err != nil {
		return 0, err
	}
	ord, err := sec.AtTime(t)
	if err != nil {
		return 0, err
	}
	ord, ok, err := sec.Next(ord, nil, v.dead)
	if err != nil || !ok {
		return 0, err
	}
	return sec.Seq(ord)
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
	l.mu.RLock()
	plain := len(l.vis.sealed) == 0 && l.vis.mid == nil
	l.mu.RUnlock()
	if !plain {
		l.fault(l.eachKey(filter, fn))
		return
	}
	const batch = 512
	type item struct {
		end int
		ks  KeyState
	}
	var (
		names []byte
		items []item
		x     *index
	)
	for from, more := uint32(0), true; more; {
		names, items = names[:0], items[:0]
		l.mu.RLock()
		if x == nil || l.vis.mid == nil {
			x = l.vis.tail // else what is on its way to a part is what it began with
		}
		from, more = x.walkKeys(from, batch, filter, func(key []byte, ks KeyState) {
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
