package storage

import (
	"sort"
)

// front says what to remove of the oldest records of a log.
type front struct {
	runs  []frontRun
	below uint64 // a sequence that everything in runs is below
	ram   ramFront
}

// frontRun is the ordinals below to of a run in a part, msgs of which are there, with bytes in all.
type frontRun struct {
	run         *sealed
	to          uint32
	msgs, bytes uint64
}

// ramFront is what to remove of the runs in RAM: the oldest most of those below upTo (0: all).
type ramFront struct{ upTo, most uint64 }

// below counts the records in RAM with a sequence below upTo (0: all) that are there at the head; not if keep is 0.
func (v *view) below(upTo, keep uint64) (n uint64) {
	for _, x := range v.ram() {
		switch {
		case keep == 0:
			return 0
		case upTo == 0:
			n += x.msgs
		default:
			n += x.headBelow(x.lower(upTo))
		}
	}
	return n
}

// planFront finds what is below upTo (0: all) but for the newest keep. ram is how many of them are in RAM.
func planFront(views []sealedView, ram, upTo, keep uint64) (f front, err error) {
	f.ram = ramFront{upTo: upTo, most: ^uint64(0)}
	limits := make([]uint32, len(views))
	total := ram
	for i := range views {
		if limits[i], err = views[i].below(upTo); err != nil {
			return f, err
		}
		total += views[i].leftBelow(limits[i])
	}
	left := ^uint64(0)
	if keep > 0 {
		left = total - min(keep, total)
		f.ram.most = 0
	}
	for i := range views {
		v, n := &views[i], views[i].leftBelow(limits[i])
		if left == 0 || n == 0 {
			continue
		}
		to := limits[i]
		if left < n {
			to = v.firstOf(left, to)
		}
		r := frontRun{run: v.sealed, to: to}
		if err = v.sum(&f, &r); err != nil {
			return f, err
		}
		if left != ^uint64(0) {
			left -= min(left, n)
		}
	}
	if keep > 0 {
		f.ram.most = left
	}
	return f, nil
}

// below returns the ordinal that what is below sequence upTo (0: all) is below.
func (v *sealedView) below(upTo uint64) (uint32, error) {
	if upTo == 0 || upTo > v.info.LastSeq {
		return v.info.Count, nil
	}
	sec, err := v.section()
	if err != nil {
		return 0, err
	}
	return sec.Lower(upTo)
}

// leftBelow returns how many records below ord are left.
func (v *sealedView) leftBelow(ord uint32) uint64 { return uint64(ord) - v.dead.Rank(ord) }

// firstOf returns the lowest ordinal that n of the records left are below; limit has more below it.
func (v *sealedView) firstOf(n uint64, limit uint32) uint32 {
	return uint32(sort.Search(int(limit), func(i int) bool { return v.leftBelow(uint32(i)) >= n }))
}

// sum adds r, whose totals it finds, to f.
func (v *sealedView) sum(f *front, r *frontRun) error {
	sec, err := v.section()
	if err != nil {
		return err
	}
	if r.msgs, r.bytes, err = sec.Sizes(0, r.to, v.dead); err != nil {
		return err
	}
	last, err := sec.Seq(r.to - 1)
	if err != nil {
		return err
	}
	f.below = last + 1
	f.runs = append(f.runs, *r)
	return nil
}

// Within returns the lowest sequence from which on what is at the head counts for no more than bytes: to purge what is
// below it removes no record more than that needs. It is called as methods that change the log are. Errors are those of
// reading a part; ErrStopped when the store is closed.
func (l *Log) Within(bytes uint64) (uint64, error) {
	total := l.State().Bytes
	over := total - min(bytes, total)
	l.mu.RLock()
	ram := l.head.ram() // of the same moment as the runs in parts: the sealer moves what is in RAM there
	views, err := snapshot(l.head.sealed, atHead)
	l.mu.RUnlock()
	if err != nil {
		return 0, err
	}
	defer release(views)
	for i := range views {
		if seq, err := views[i].pass(&over); seq != 0 || err != nil {
			return seq, err
		}
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, x := range ram {
		for ord := x.headNext(x.headFirst); ord < x.end; ord = x.headNext(ord + 1) {
			if over == 0 {
				return x.at(ord).seq, nil
			}
			over -= min(over, l.sizeOf(x, ord))
		}
	}
	return l.lastSeq + 1, nil
}

// pass takes what the oldest records count for from over, and returns the sequence of the first that is left when over
// is 0; 0 if there is none.
func (v *sealedView) pass(over *uint64) (uint64, error) {
	sec, err := v.section()
	if err != nil {
		return 0, err
	}
	ord, sum, err := sec.Reach(*over, v.dead)
	if err != nil {
		return 0, err
	}
	*over -= min(*over, sum)
	if ord = v.dead.Live(ord); *over > 0 || ord >= v.info.Count {
		return 0, nil
	}
	return sec.Seq(ord)
}

// purgeFront removes what f says.
func (l *Log) purgeFront(f *front, done Done) (uint64, error) {
	stretches := l.stretches(&f.ram)
	if len(stretches) == 0 && len(f.runs) == 0 {
		return 0, l.settle(done)
	}
	w := l.w
	w.mu.Lock()
	err := w.admit(l.home(), maxFixed, w.slack())
	if err == nil {
		l.queueTruncate(w.current(), f, stretches, done)
	}
	w.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return l.doomFront(f, stretches), nil
}

// stretch is the ordinals in [from, to) of an index.
type stretch struct {
	x        *index
	from, to uint64
}

// stretches returns where in RAM the records of f are.
func (l *Log) stretches(f *ramFront) (out []stretch) {
	most := f.most
	for _, x := range l.head.ram() {
		limit := x.end
		if f.upTo != 0 {
			limit = x.lower(f.upTo)
		}
		first, to := x.headFirst, limit
		if most != ^uint64(0) {
			to = first
			for at := first; at < limit && most > 0; at = x.headNext(at + 1) {
				to = at + 1
				most--
			}
		}
		if to > first {
			out = append(out, stretch{x, first, to})
		}
	}
	return out
}

// queueTruncate adds the removal of the front, which was admitted, to g. The locks are held.
func (l *Log) queueTruncate(g *group, f *front, stretches []stretch, done Done) {
	below := f.below
	if n := len(stretches); n > 0 {
		s := stretches[n-1]
		last, _ := s.x.prev(s.to) // there is one: the first
		below = s.x.at(last).seq + 1
	}
	l.w.putIn(g, l.home(), maxFixed, done, func(b []byte) []byte {
		return appendTruncate(b, l.meta.ID, below)
	})
	t := g.touch(l)
	for _, r := range f.runs {
		t.bury(removalOp{
			run: r.run, to: uint64(r.to), msgs: r.msgs, bytes: r.bytes, seq: r.run.info.FirstSeq, end: below,
		})
	}
	for _, s := range stretches {
		t.remove(s.x, s.from, s.to)
	}
}

// doomFront deletes the front at the head.
func (l *Log) doomFront(f *front, stretches []stretch) (n uint64) {
	for _, r := range f.runs {
		r.run.head.kill(0, r.to, r.msgs, r.bytes)
		n += r.msgs
	}
	for _, s := range stretches {
		for ord := s.x.next(s.from, s.to); ord < s.to; ord = s.x.next(ord+1, s.to) {
			if s.x.isHeadLive(ord) {
				s.x.doom(ord, l.sizeOf(s.x, ord))
				n++
			}
		}
	}
	return n
}

// purgeIn removes what matches filter (nil: all) but for the newest keep, at least one, in g. The locks are held.
func (l *Log) purgeIn(g *group, p *plan, filter Filter, keep uint64) {
	if filter != nil {
		l.resolveMatching(p, filter, 0, keep)
		l.deleteIn(g)
		return
	}
	views, err := snapshot(l.head.sealed, atHead)
	defer release(views)
	var f front
	if err == nil {
		f, err = planFront(views, l.head.below(0, keep), 0, keep)
	}
	if err != nil {
		l.fault(err)
		return
	}
	if stretches := l.stretches(&f.ram); len(stretches) > 0 || len(f.runs) > 0 {
		l.queueTruncate(g, &f, stretches, nil)
		l.doomFront(&f, stretches)
	}
}
