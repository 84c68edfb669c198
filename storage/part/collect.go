package part

// Collect returns the ordinals below limit that are in m (nil: all) and not deleted, and the sum of what their records
// count for.
func (s *Section) Collect(limit uint32, m *Match, dead *Tombstones) (set *Tombstones, bytes uint64, err error) {
	set = &Tombstones{}
	set.init()
	limit = min(limit, s.info.Count)
	switch {
	case m != nil && m.n == 0:
		return set, 0, nil
	case m != nil && m.n <= few:
		bytes, err = s.collectFew(set, limit, m, dead)
		return set, bytes, err
	}
	every := m == nil || m.all
	var ids, found [idChunk]uint32
	for page := uint32(0); page*recordsPerPage < limit; page++ {
		c, err := s.columnPage(page)
		if err != nil {
			return nil, 0, err
		}
		base := page * recordsPerPage
		end := min(limit-base, c.n)
		for i := uint32(0); i < end; i += idChunk {
			n := 0
			for j, id := range c.ids.unpack(i, ids[:min(idChunk, end-i)]) {
				at := i + uint32(j)
				if (every || m.Has(id)) && !dead.Contains(base+at) {
					found[n] = base + at
					bytes += c.sizes.at(at)
					n++
				}
			}
			set.bm.AddMany(found[:n])
		}
	}
	return set, bytes, nil
}

// collectFew is Collect by the postings of the keys in m.
func (s *Section) collectFew(set *Tombstones, limit uint32, m *Match, dead *Tombstones) (bytes uint64, err error) {
	posts := s.postings()
	err = s.spans(m, func(lo, hi uint32) error {
		for ; lo < hi; lo++ {
			ord, err := posts.at(lo)
			if err != nil || ord >= limit {
				return err
			}
			if dead.Contains(ord) {
				continue
			}
			size, err := s.Size(ord)
			if err != nil {
				return err
			}
			set.bm.Add(ord)
			bytes += size
		}
		return nil
	})
	return bytes, err
}

// Reach returns the lowest ordinal below which what is not deleted counts for at least bytes, and how much that is. If
// all counts for less, the ordinal is the number of records.
func (s *Section) Reach(bytes uint64, dead *Tombstones) (ord uint32, sum uint64, err error) {
	for ord < s.info.Count && sum < bytes {
		c, err := s.columnPage(ord / recordsPerPage)
		if err != nil {
			return 0, 0, err
		}
		base := ord / recordsPerPage * recordsPerPage
		for end := base + c.n; ord < end && sum < bytes; ord++ {
			if !dead.Contains(ord) {
				sum += c.sizes.at(ord - base)
			}
		}
	}
	return ord, sum, nil
}

// AddAll marks what is deleted in other as deleted.
func (t *Tombstones) AddAll(other *Tombstones) {
	if !other.empty() {
		t.init()
		t.bm.Or(other.bm)
	}
}

// TakeLast takes the highest n ordinals out of t and returns them, ascending.
func (t *Tombstones) TakeLast(n uint64) []uint32 {
	n = min(n, t.Count())
	if n == 0 {
		return nil
	}
	out := make([]uint32, n)
	it := t.bm.ReverseIterator()
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = it.Next()
	}
	t.bm.RemoveRange(uint64(out[0]), uint64(out[len(out)-1])+1)
	return out
}
