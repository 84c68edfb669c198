package storage

import (
	"cmp"
	"slices"
	"sort"
)

// victim is a live record that is to be deleted.
type victim struct {
	seq  uint64
	ord  uint64
	size uint64
	run  *sealed // nil: it is in x
	x    *index
}

// victims are records to be deleted, ascending, and the same as runs of sequences.
type victims struct {
	bulk []bulkRun
	list []victim // newer than what is in bulk
	runs []seqRun
}

// plan is what was found in parts, without the log's lock, for a deletion.
type plan struct {
	made    bool
	version uint64   // of the log's runs in parts, then
	list    []victim // ascending
	front   front

	bulk []bulkRun // of a purge: older than all in list
	runs []seqRun  // what is in bulk
}

// settled returns with the log's lock held and a plan that fits what is in parts. make makes one, without the lock;
// it is not called when need says, with the lock held, that there is nothing to plan.
func (l *Log) settled(p *plan, need func() bool, find func(p *plan) error) error {
	for {
		l.mu.Lock()
		if err := l.whole(); err != nil {
			l.mu.Unlock()
			return err
		}
		if p.made && p.version == l.version || !need() {
			return nil
		}
		l.mu.Unlock()
		*p = plan{made: true}
		if err := find(p); err != nil {
			l.fault(err)
			return err
		}
	}
}

// reaches reports whether one of seqs may be in a part. The lock is held.
func (l *Log) reaches(seqs []uint64) bool {
	last := l.head.lastSealed()
	return last > 0 && slices.ContainsFunc(seqs, func(seq uint64) bool { return seq <= last })
}

// sealedHead returns what is in parts at the head, for sequences from from on, and the version of that.
func (l *Log) sealedHead(from uint64) ([]sealedView, uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	views, err := snapshot(l.head.from(from), atHead)
	return views, l.version, err
}

// planSeqs finds the live records among seqs.
func (l *Log) planSeqs(p *plan, seqs []uint64) error {
	views, version, err := l.sealedHead(slices.Min(seqs))
	if err != nil {
		return err
	}
	defer release(views)
	p.version = version
	for _, seq := range seqs {
		i := sort.Search(len(views), func(i int) bool { return views[i].info.LastSeq >= seq })
		if i == len(views) {
			continue
		}
		sec, err := views[i].section()
		if err != nil {
			return err
		}
		ord, ok, err := sec.Find(seq)
		if err != nil {
			return err
		}
		if !ok || views[i].dead.Contains(ord) {
			continue
		}
		size, err := sec.Size(ord)
		if err != nil {
			return err
		}
		p.list = append(p.list, victim{seq: seq, ord: uint64(ord), size: size, run: views[i].sealed})
	}
	return nil
}

// planMatching finds the live records below upTo (0: all) that match filter.
func (l *Log) planMatching(p *plan, filter Filter, upTo uint64) error {
	views, version, err := l.sealedHead(0)
	if err != nil {
		return err
	}
	defer release(views)
	p.version = version
	for i := range views {
		v := &views[i]
		if upTo != 0 && upTo <= v.info.FirstSeq {
			break
		}
		if err := v.matching(p, filter, upTo); err != nil {
			return err
		}
	}
	return nil
}

func (v *sealedView) matching(p *plan, filter Filter, upTo uint64) error {
	sec, err := v.section()
	if err != nil {
		return err
	}
	m, err := v.match(oneFilter(filter))
	if err != nil {
		return err
	}
	limit := v.info.Count
	if upTo != 0 {
		if limit, err = sec.Lower(upTo); err != nil {
			return err
		}
	}
	for ord := uint32(0); ; ord++ {
		var ok bool
		if ord, ok, err = sec.Next(ord, m, v.dead); err != nil || !ok || ord >= limit {
			return err
		}
		seq, err := sec.Seq(ord)
		if err != nil {
			return err
		}
		size, err := sec.Size(ord)
		if err != nil {
			return err
		}
		p.list = append(p.list, victim{seq: seq, ord: uint64(ord), size: size, run: v.sealed})
	}
}

// Delete removes the live records among seqs and returns how many there were. With erase their bytes are overwritten on
// disk when their space is next rewritten. Errors as for Append.
//
//nolint:revive // erase is what the record says, not a mode
func (l *Log) Delete(seqs []uint64, erase bool, done Done) (int, error) {
	var p plan
	err := l.settled(&p, func() bool { return l.reaches(seqs) }, func(p *plan) error { return l.planSeqs(p, seqs) })
	if err != nil {
		return 0, err
	}
	defer l.mu.Unlock()
	l.resolve(&p, seqs)
	n := len(l.scratch.list)
	var flags deleteFlags
	if erase {
		flags = flagErase
	}
	if err := l.deleteAll(flags, done); err != nil {
		return 0, err
	}
	return n, nil
}

// resolve makes l.scratch of the live records among seqs.
func (l *Log) resolve(p *plan, seqs []uint64) {
	v := &l.scratch
	v.start(p)
	for _, seq := range seqs {
		for _, x := range l.head.ram() {
			if ord, ok := x.find(seq); ok && x.isHeadLive(ord) {
				v.list = append(v.list, victim{seq: seq, ord: ord, size: l.sizeOf(x, ord), x: x})
			}
		}
	}
	if len(v.list) > 1 {
		slices.SortFunc(v.list, func(a, b victim) int { return cmp.Compare(a.seq, b.seq) })
		v.list = slices.CompactFunc(v.list, func(a, b victim) bool { return a.seq == b.seq })
	}
}

// start begins with what was found in parts and is still there.
func (v *victims) start(p *plan) {
	v.list, v.bulk, v.runs = v.list[:0], p.bulk, append(v.runs[:0], p.runs...)
	for _, c := range p.list {
		if !c.run.head.dead.Contains(uint32(c.ord)) {
			v.list = append(v.list, c)
		}
	}
}

// resolveMatching makes l.scratch of the live records below upTo (0: all) that match filter, but for the newest keep.
func (l *Log) resolveMatching(p *plan, filter Filter, upTo, keep uint64) {
	v := &l.scratch
	v.start(p)
	for _, x := range l.head.ram() {
		limit, from := x.end, len(v.list)
		if upTo != 0 {
			limit = x.lower(upTo)
		}
		x.eachKey(filter, func(id uint32) bool {
			for ord := x.keys.info(id).chainFirst; ord != 0 && ord-1 < limit; ord = x.at(ord - 1).next {
				if x.isHeadLive(ord - 1) {
					found := victim{seq: x.at(ord - 1).seq, ord: ord - 1, size: l.sizeOf(x, ord-1), x: x}
					v.list = append(v.list, found)
				}
			}
			return true
		})
		slices.SortFunc(v.list[from:], func(a, b victim) int { return cmp.Compare(a.seq, b.seq) })
	}
	v.list = v.list[:len(v.list)-int(min(keep, uint64(len(v.list))))]
}

// deleteAll deletes what is in l.scratch.
func (l *Log) deleteAll(flags deleteFlags, done Done) error {
	if l.scratch.count() == 0 {
		return l.settle(done)
	}
	l.scratch.findRuns()
	w := l.w
	w.mu.Lock()
	err := w.admit(l.home(), maxDelete(l.scratch.runs), w.slack())
	if err == nil {
		l.queueDelete(w.current(), flags, done)
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	l.doomAll()
	return nil
}

// count returns how many records there are.
func (v *victims) count() uint64 {
	n := uint64(len(v.list))
	for i := range v.bulk {
		n += v.bulk[i].msgs
	}
	return n
}

// findRuns adds the sequences of what is in list to runs.
func (v *victims) findRuns() {
	for i := range v.list {
		v.runs = appendRuns(v.runs, v.list[i].seq)
	}
}

// queueDelete adds the deletion of l.scratch, which was admitted, to g. The locks are held.
func (l *Log) queueDelete(g *group, flags deleteFlags, done Done) {
	runs := l.scratch.runs
	l.w.putIn(g, l.home(), maxDelete(runs), done, func(b []byte) []byte {
		return appendDelete(b, l.meta.ID, flags, runs)
	})
	t := g.touch(l)
	t.queueBulk(l.scratch.bulk)
	for i := range l.scratch.list {
		if v := &l.scratch.list[i]; v.run != nil {
			t.bury(removalOp{
				run: v.run, from: v.ord, to: v.ord + 1, msgs: 1, bytes: v.size, seq: v.seq, end: v.seq + 1,
			})
		} else {
			t.remove(v.x, v.ord, v.ord+1)
		}
	}
}

// doomAll deletes l.scratch at the head.
func (l *Log) doomAll() {
	const most = 4096
	for i := range l.scratch.bulk {
		b := &l.scratch.bulk[i]
		b.run.head.killAll(b.set, b.msgs, b.bytes)
	}
	for i := range l.scratch.list {
		if v := &l.scratch.list[i]; v.run != nil {
			v.run.head.kill(uint32(v.ord), uint32(v.ord)+1, 1, v.size)
		} else {
			v.x.doom(v.ord, v.size)
		}
	}
	if cap(l.scratch.list) > most || cap(l.scratch.runs) > most { // let go of the memory a large deletion took
		l.scratch = victims{}
	}
	l.scratch.bulk = nil
	clear(l.scratch.list)
}

// deleteIn deletes l.scratch in g. The locks are held.
func (l *Log) deleteIn(g *group) {
	if len(l.scratch.list) == 0 {
		return
	}
	l.scratch.findRuns()
	l.queueDelete(g, 0, nil)
	l.doomAll()
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
	var (
		p     plan
		views []sealedView
	)
	defer func() { release(views) }()
	everything := func() bool { return filter == nil && keep == 0 && (upTo == 0 || upTo > l.lastSeq) }
	err := l.settled(&p, func() bool { return len(l.head.sealed) > 0 && !everything() }, func(p *plan) (err error) {
		if filter != nil {
			return l.planPurge(p, filter, upTo, keep)
		}
		release(views)
		l.mu.RLock()
		p.version = l.version
		views, err = snapshot(l.head.sealed, atHead)
		ram := l.head.below(upTo, keep)
		l.mu.RUnlock()
		if err == nil {
			p.front, err = planFront(views, ram, upTo, keep)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	defer l.mu.Unlock()
	switch {
	case filter != nil:
		l.resolveMatching(&p, filter, upTo, keep)
		n := l.scratch.count()
		return n, l.deleteAll(0, done)
	case everything():
		return l.purgeAll(max(upTo, l.lastSeq+1), done)
	case !p.made:
		if p.front, err = planFront(nil, l.head.below(upTo, keep), upTo, keep); err != nil {
			return 0, err
		}
	}
	return l.purgeFront(&p.front, done)
}

// purgeAll starts the log anew: its next sequence is at least below.
func (l *Log) purgeAll(below uint64, done Done) (uint64, error) {
	n := uint64(0)
	for _, s := range l.head.sealed {
		n += s.head.msgs
	}
	for _, x := range l.head.ram() {
		n += x.msgs
	}
	if n == 0 && below == l.lastSeq+1 {
		return 0, l.settle(done)
	}
	fresh := l.newView(newIndex(l.head.tail.keys.seed))
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

// drop marks the log as gone and queues the record that says so.
func (l *Log) drop(done Done) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped {
		return ErrNoLog
	}
	fresh := l.newView(newIndex(l.head.tail.keys.seed))
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
