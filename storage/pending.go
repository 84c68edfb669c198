package storage

import "slices"

// sync accounts for what happened to the log since the cursor's last use, and returns with the log's lock held for
// reading. What it needs of parts it reads without the lock: then something may happen meanwhile, and it looks again.
func (c *Cursor) sync() {
	for tries := 0; ; tries++ {
		c.l.mu.RLock()
		if c.catchUp() {
			return
		}
		more := c.sealedPast()
		c.l.mu.RUnlock()
		if err := more.run(c); err != nil {
			c.l.fault(err)
		}
		release(more.views)
	}
}

// catchUp accounts for what RAM alone tells; false if parts must be read too. The log's lock is held.
func (c *Cursor) catchUp() bool {
	v, end := c.l.vis, c.l.visible.Load()
	if c.v != v || c.counted < v.lastSealed() {
		return false
	}
	if c.counted == end && c.removal == c.l.removals.n && c.follows(v) {
		return true
	}
	// In this order: what is removed was matched with the key ids of its time, which may have been given anew since.
	left := c.pending
	known := c.l.removals.since(c.removal, func(r *removal) bool {
		switch {
		case r.end != 0:
			return r.end <= c.seq || r.seq > c.counted
		case r.seq < c.seq || r.seq > c.counted:
			return true
		case len(c.filters) == 0:
			left--
			return true
		}
		sel := c.selection(r.run)
		if sel == nil {
			return false
		}
		if sel.has(r.at) {
			left--
		}
		return true
	})
	if !known {
		return false
	}
	c.pending, c.removal = left, c.l.removals.n
	c.follow(v)
	for i := range c.ram {
		rc := &c.ram[i]
		rc.sel.learn(rc.x)
		c.pending += rc.sel.countNew(rc.x, rc.x.lower(max(c.counted+1, c.seq)))
	}
	c.counted = end
	return true
}

// countNew counts the selected visible records at or after ord.
func (s *selection) countNew(x *index, ord uint64) uint64 {
	switch {
	case ord >= x.vis:
		return 0
	case s.all():
		return x.countLive(ord, x.vis)
	}
	return s.countFrom(x, ord)
}

// selection returns what the cursor knows of the keys of a run in RAM; nil if it knows nothing.
func (c *Cursor) selection(num uint32) *selection {
	for i := range c.ram {
		if c.ram[i].x.num == num {
			return &c.ram[i].sel
		}
	}
	return nil
}

// follows reports whether c.ram are the runs of v in RAM.
func (c *Cursor) follows(v *view) bool {
	if v.mid == nil {
		return len(c.ram) == 1 && c.ram[0].x == v.tail
	}
	return len(c.ram) == 2 && c.ram[0].x == v.mid && c.ram[1].x == v.tail
}

// follow makes c.ram the runs of v in RAM, keeping what is known of them.
func (c *Cursor) follow(v *view) {
	if c.follows(v) {
		return
	}
	old := c.ram
	c.ram = nil
	for _, x := range v.ram() {
		if i := slices.IndexFunc(old, func(rc ramCursor) bool { return rc.x == x }); i >= 0 {
			c.ram = append(c.ram, old[i])
		} else {
			c.ram = append(c.ram, ramCursor{x: x, sel: newSelection(c.filters)})
		}
	}
}

// sealedPast is what is to be found out in parts so that a cursor is in sync with its log.
type sealedPast struct {
	v       *view
	anew    bool // nothing of what was counted holds
	views   []sealedView
	err     error
	end     uint64 // sequence up to which runs in parts reach
	removal uint64
	removed []removal // of counted records
}

// sealedPast takes from the log, whose lock is held, what run needs.
func (c *Cursor) sealedPast() (p sealedPast) {
	p.v, p.end, p.removal = c.l.vis, c.l.vis.lastSealed(), c.l.removals.n
	p.anew = c.v != p.v || !c.l.removals.since(c.removal, func(r *removal) bool {
		switch {
		case r.end != 0:
			return r.end <= c.seq || r.seq > c.counted
		case r.seq >= c.seq && r.seq <= c.counted:
			p.removed = append(p.removed, *r)
		}
		return true
	})
	p.views, p.err = snapshot(p.v.from(c.seq), visible)
	return p
}

// run brings c to where the log was when p was made, up to the end of its parts.
func (p *sealedPast) run(c *Cursor) error {
	if p.err != nil {
		return p.giveUp(c, p.err)
	}
	if !p.anew {
		var err error
		if p.anew, err = c.subtract(p); err != nil {
			return p.giveUp(c, err)
		}
	}
	from := c.counted + 1
	if p.anew {
		c.pending, c.ram, from = 0, nil, 0
	}
	for i := range p.views {
		n, err := c.countSealed(&p.views[i], max(from, c.seq))
		if err != nil {
			return p.giveUp(c, err)
		}
		c.pending += n
	}
	p.done(c)
	return nil
}

func (p *sealedPast) done(c *Cursor) {
	if p.anew {
		c.counted = p.end
	}
	c.v, c.removal, c.counted = p.v, p.removal, max(c.counted, p.end)
}

// giveUp leaves c as if there were nothing in parts: they cannot be read.
func (p *sealedPast) giveUp(c *Cursor, err error) error {
	p.anew = true
	c.pending, c.ram = 0, nil
	p.done(c)
	return err
}

// subtract accounts for what was removed; anew is true if that cannot be told any more.
func (c *Cursor) subtract(p *sealedPast) (anew bool, err error) {
	for _, r := range p.removed {
		on := len(c.filters) == 0
		if !on {
			if sel := c.selection(r.run); sel != nil {
				on = sel.has(r.at)
			} else if i := slices.IndexFunc(p.views, func(v sealedView) bool { return v.num == r.run }); i >= 0 {
				if on, err = c.matchesAt(&p.views[i], r.at); err != nil {
					return true, err
				}
			} else {
				return true, nil
			}
		}
		if on {
			c.pending--
		}
	}
	return false, nil
}

func (c *Cursor) matchesAt(v *sealedView, ord uint32) (bool, error) {
	sec, err := v.section()
	if err != nil {
		return false, err
	}
	m, err := c.match(v)
	if err != nil {
		return false, err
	}
	id, err := sec.KeyID(ord)
	return m.Has(id), err
}

// countSealed counts the matching records of a run from a sequence on.
func (c *Cursor) countSealed(v *sealedView, from uint64) (uint64, error) {
	if from > v.info.LastSeq {
		return 0, nil
	}
	sec, err := v.section()
	if err != nil {
		return 0, err
	}
	m, err := c.match(v)
	if err != nil {
		return 0, err
	}
	ord, err := sec.Lower(from)
	if err != nil {
		return 0, err
	}
	return sec.Count(ord, m, v.dead)
}
