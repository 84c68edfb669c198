package storage

import "github.com/noetl/ehdb-gateway/storage/part"

// bulkRun is many records of a run in a part that are to be deleted: a bitmap, and not one by one.
type bulkRun struct {
	run   *sealed
	set   *part.Tombstones
	msgs  uint64
	bytes uint64
}

// planPurge is planMatching for a purge that keeps the newest keep. When there is much to remove the oldest, which go
// in any case, are in p.bulk and p.runs, and only the newest keep in p.list.
func (l *Log) planPurge(p *plan, filter Filter, upTo, keep uint64) error {
	views, version, err := l.sealedHead(0)
	if err != nil {
		return err
	}
	defer release(views)
	p.version = version
	n := uint64(0)
	for i := range views {
		if upTo != 0 && upTo <= views[i].info.FirstSeq {
			break
		}
		b, err := views[i].collect(filter, upTo)
		if err != nil {
			return err
		}
		n += b.msgs
		p.bulk = append(p.bulk, b)
	}
	single := min(keep, n)
	if n-single < l.w.opts.bulkLeast {
		single = n
	}
	for i := len(p.bulk) - 1; i >= 0; i-- {
		v := &views[i]
		list, err := v.victims(p.bulk[i].set.TakeLast(single))
		if err != nil {
			return err
		}
		single -= uint64(len(list))
		for j := range list {
			p.bulk[i].msgs--
			p.bulk[i].bytes -= list[j].size
		}
		p.list = append(list, p.list...)
	}
	for i := range p.bulk {
		if err := views[i].addRuns(p, p.bulk[i].set); err != nil {
			return err
		}
	}
	return nil
}

// collect finds the records below upTo (0: all) that match filter.
func (v *sealedView) collect(filter Filter, upTo uint64) (b bulkRun, err error) {
	sec, err := v.section()
	if err != nil {
		return b, err
	}
	m, err := v.match(oneFilter(filter))
	if err != nil {
		return b, err
	}
	limit, err := v.below(upTo)
	if err != nil {
		return b, err
	}
	b.run = v.sealed
	b.set, b.bytes, err = sec.Collect(limit, m, v.dead)
	b.msgs = b.set.Count()
	return b, err
}

// victims returns the records at ords one by one.
func (v *sealedView) victims(ords []uint32) ([]victim, error) {
	list := make([]victim, 0, len(ords))
	for _, ord := range ords {
		seq, err := v.sec.Seq(ord)
		if err != nil {
			return nil, err
		}
		size, err := v.sec.Size(ord)
		if err != nil {
			return nil, err
		}
		list = append(list, victim{seq: seq, ord: uint64(ord), size: size, run: v.sealed})
	}
	return list, nil
}

// addRuns adds the sequences of the records at ords to what the purge's record says.
func (v *sealedView) addRuns(p *plan, ords *part.Tombstones) (err error) {
	dense := v.isDense()
	ords.Each(0, func(ord uint32) bool {
		seq := v.info.FirstSeq + uint64(ord)
		if !dense {
			if seq, err = v.sec.Seq(ord); err != nil {
				return false
			}
		}
		p.runs = appendRuns(p.runs, seq)
		return true
	})
	return err
}

// queueBulk adds the removal of what is in bulk to t.
func (t *touch) queueBulk(bulk []bulkRun) {
	for i := range bulk {
		if b := &bulk[i]; b.msgs > 0 {
			t.removals = append(t.removals, removalOp{
				run: b.run, set: b.set, msgs: b.msgs, bytes: b.bytes,
				seq: b.run.info.FirstSeq, end: b.run.info.LastSeq + 1,
			})
		}
	}
}

// killAll deletes the records at ords, which were all left: n, with bytes in all.
func (d *deaths) killAll(ords *part.Tombstones, n, bytes uint64) {
	if n == 0 {
		return
	}
	d.own()
	d.dead.AddAll(ords)
	d.msgs -= n
	d.bytes -= bytes
	d.from = d.dead.Live(d.from)
}

// buryAll takes the records in r.set out for readers; their deletion is now durable.
func (l *Log) buryAll(r *removalOp) {
	s, set := r.run, r.set
	for ; s.fwd != nil; s = s.fwd.to {
		moved := &part.Tombstones{}
		set.Each(0, func(ord uint32) bool {
			moved.Add(s.fwd.at(uint64(ord)))
			return true
		})
		set = moved
	}
	s.vis.killAll(set, r.msgs, r.bytes)
	s.dirty = true
	l.removals.note(removal{seq: r.seq, end: r.end})
}
