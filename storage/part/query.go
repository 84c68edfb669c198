package part

// few is up to how many matching keys are followed along their postings by Next and Prev. More are found by a walk over
// the key ids.
const few = 16

// Next returns the first ordinal at or after from that is in m (nil: all) and not deleted.
func (s *Section) Next(from uint32, m *Match, dead *Tombstones) (ord uint32, ok bool, err error) {
	switch {
	case from >= s.info.Count || m != nil && m.n == 0:
		return 0, false, nil
	case m == nil || m.all:
		ord = dead.nextLive(from)
		return ord, ord < s.info.Count, nil
	case m.n <= few:
		return s.nextOfFew(from, m, dead)
	}
	for page := from / recordsPerPage; page < s.nCols; page++ {
		c, err := s.columnPage(page)
		if err != nil {
			return 0, false, err
		}
		if i, ok := c.next(from%recordsPerPage, page, m, dead); ok {
			return page*recordsPerPage + i, true, nil
		}
		from = 0
	}
	return 0, false, nil
}

const (
	idChunk = 256 // key ids unpacked at a time
	nearby  = 16  // ids looked at one by one before that
)

// next returns the first place in the page at or after i whose record is in m and not deleted.
func (c *columns) next(i, page uint32, m *Match, dead *Tombstones) (uint32, bool) {
	for end := min(i+nearby, c.n); i < end; i++ {
		if m.Has(uint32(c.ids.at(i))) && !dead.Contains(page*recordsPerPage+i) {
			return i, true
		}
	}
	var buf [idChunk]uint32
	for i < c.n {
		ids := c.ids.unpack(i, buf[:])
		for j, id := range ids {
			if at := i + uint32(j); m.Has(id) && !dead.Contains(page*recordsPerPage+at) {
				return at, true
			}
		}
		i += uint32(len(ids))
	}
	return 0, false
}

// spans calls fn for where the postings of each matching key are.
func (s *Section) spans(m *Match, fn func(lo, hi uint32) error) error {
	d := s.dict()
	return m.eachRun(func(lo, hi uint32) (bool, error) {
		for id := lo; id < hi; id++ {
			from, to, err := d.span(id)
			if err == nil {
				err = fn(from, to)
			}
			if err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

func (s *Section) nextOfFew(from uint32, m *Match, dead *Tombstones) (ord uint32, ok bool, err error) {
	ord = s.info.Count
	posts := s.postings()
	err = s.spans(m, func(lo, hi uint32) error {
		pos, err := posts.lower(lo, hi, from)
		for ; pos < hi && err == nil; pos++ {
			var at uint32
			if at, err = posts.at(pos); err != nil || at >= ord {
				return err
			}
			if !dead.Contains(at) {
				ord = at
				return nil
			}
		}
		return err
	})
	return ord, ord < s.info.Count && err == nil, err
}

// Prev returns the last ordinal below limit that is in m (nil: all) and not deleted.
func (s *Section) Prev(limit uint32, m *Match, dead *Tombstones) (ord uint32, ok bool, err error) {
	limit = min(limit, s.info.Count)
	if m != nil && m.n == 0 {
		return 0, false, nil
	}
	if m != nil && m.n <= few {
		return s.prevOfFew(limit, m, dead)
	}
	every := m == nil || m.all
	for limit > 0 {
		page := (limit - 1) / recordsPerPage
		c, err := s.columnPage(page)
		if err != nil {
			return 0, false, err
		}
		for ; limit > page*recordsPerPage; limit-- {
			ord := limit - 1
			if !dead.Contains(ord) && (every || m.Has(uint32(c.ids.at(ord%recordsPerPage)))) {
				return ord, true, nil
			}
		}
	}
	return 0, false, nil
}

func (s *Section) prevOfFew(limit uint32, m *Match, dead *Tombstones) (ord uint32, ok bool, err error) {
	posts := s.postings()
	err = s.spans(m, func(lo, hi uint32) error {
		at, found, err := s.lastIn(&posts, lo, hi, limit, dead)
		if found && (!ok || at > ord) {
			ord, ok = at, true
		}
		return err
	})
	return ord, ok && err == nil, err
}

// lastIn returns the last ordinal below limit among the postings at [lo, hi) that is not deleted.
func (s *Section) lastIn(posts *postings, lo, hi, limit uint32, dead *Tombstones) (ord uint32, ok bool, err error) {
	pos := hi
	if limit < s.info.Count {
		if pos, err = posts.lower(lo, hi, limit); err != nil {
			return 0, false, err
		}
	}
	for ; pos > lo; pos-- {
		at, err := posts.at(pos - 1)
		if err != nil {
			return 0, false, err
		}
		if !dead.Contains(at) {
			return at, true, nil
		}
	}
	return 0, false, nil
}

// LastOf returns the ordinal of the newest record of key with a sequence <= upTo (0: no bound) that is not deleted.
func (s *Section) LastOf(key []byte, upTo uint64, dead *Tombstones) (ord uint32, ok bool, err error) {
	id, ok, err := s.FindKey(key)
	if err != nil || !ok {
		return 0, false, err
	}
	limit, err := s.Below(upTo)
	if err != nil {
		return 0, false, err
	}
	d, posts := s.dict(), s.postings()
	lo, hi, err := d.span(id)
	if err != nil {
		return 0, false, err
	}
	return s.lastIn(&posts, lo, hi, limit, dead)
}

// Below returns the ordinal that records with a sequence <= upTo (0: all) are below.
func (s *Section) Below(upTo uint64) (uint32, error) {
	if upTo == 0 || upTo >= s.info.LastSeq {
		return s.info.Count, nil
	}
	return s.Lower(upTo + 1)
}

// CountOf returns how many records of key from ordinal from on are not deleted.
func (s *Section) CountOf(key []byte, from uint32, dead *Tombstones) (uint64, error) {
	id, ok, err := s.FindKey(key)
	if err != nil || !ok {
		return 0, err
	}
	d, posts := s.dict(), s.postings()
	lo, hi, err := d.span(id)
	if err != nil {
		return 0, err
	}
	if lo, err = posts.lower(lo, hi, from); err != nil {
		return 0, err
	}
	if dead.empty() {
		return uint64(hi - lo), nil
	}
	n, err := posts.dead(lo, hi, dead)
	return uint64(hi-lo) - n, err
}

// dead counts the deleted among the postings at [lo, hi).
func (p *postings) dead(lo, hi uint32, dead *Tombstones) (n uint64, err error) {
	for ; lo < hi; lo++ {
		ord, err := p.at(lo)
		if err != nil {
			return 0, err
		}
		if dead.Contains(ord) {
			n++
		}
	}
	return n, nil
}

// Count returns how many records from ordinal from on are in m (nil: all) and not deleted. It is exact.
func (s *Section) Count(from uint32, m *Match, dead *Tombstones) (uint64, error) {
	if from >= s.info.Count || m != nil && m.n == 0 {
		return 0, nil
	}
	if m == nil || m.all {
		return uint64(s.info.Count-from) - (dead.Count() - dead.Rank(from)), nil
	}
	n, err := s.matching(from, m)
	if err != nil || n == 0 || dead.empty() {
		return n, err
	}
	gone, err := s.deadMatching(from, m, n, dead)
	return n - gone, err
}

// probeCost is about how many steps of a walk over key ids a search in the postings of a key costs.
const probeCost = 64

// matching counts the records in m from ordinal from on, deleted or not.
func (s *Section) matching(from uint32, m *Match) (n uint64, err error) {
	before, after := from, s.info.Count-from
	switch {
	case from == 0:
		return uint64(m.records), nil
	case uint64(m.n)*probeCost < uint64(min(before, after)):
		posts := s.postings()
		err = s.spans(m, func(lo, hi uint32) error {
			pos, err := posts.lower(lo, hi, from)
			n += uint64(hi - pos)
			return err
		})
		return n, err
	case before < after:
		n, err = s.walkIDs(0, from, m)
		return uint64(m.records) - n, err
	}
	return s.walkIDs(from, s.info.Count, m)
}

// walkIDs counts the records in [from, to) that are in m.
func (s *Section) walkIDs(from, to uint32, m *Match) (n uint64, err error) {
	var buf [idChunk]uint32
	for from < to {
		page := from / recordsPerPage
		c, err := s.columnPage(page)
		if err != nil {
			return 0, err
		}
		end := min(to-page*recordsPerPage, c.n)
		for i := from % recordsPerPage; i < end; i += idChunk {
			n += m.count(c.ids.unpack(i, buf[:min(idChunk, end-i)]))
		}
		from = page*recordsPerPage + end
	}
	return n, nil
}

// deadMatching counts the deleted among the n records in m from ordinal from on.
func (s *Section) deadMatching(from uint32, m *Match, n uint64, dead *Tombstones) (gone uint64, err error) {
	if uint64(m.n)*probeCost+n < dead.Count()-dead.Rank(from) {
		posts := s.postings()
		err = s.spans(m, func(lo, hi uint32) error {
			pos, err := posts.lower(lo, hi, from)
			if err != nil {
				return err
			}
			k, err := posts.dead(pos, hi, dead)
			gone += k
			return err
		})
		return gone, err
	}
	var c columns
	page := int64(-1)
	dead.Each(from, func(ord uint32) bool {
		if ord >= s.info.Count {
			return false
		}
		if p := ord / recordsPerPage; int64(p) != page {
			if c, err = s.columnPage(p); err != nil {
				return false
			}
			page = int64(p)
		}
		if m.Has(uint32(c.ids.at(ord % recordsPerPage))) {
			gone++
		}
		return true
	})
	return gone, err
}

// KeyState sums up the records of one key that are not deleted.
type KeyState struct {
	First, Last uint64 // sequences; 0 when Count is 0
	Count       uint64
}

// State returns the totals of one key.
func (s *Section) State(key []byte, dead *Tombstones) (KeyState, error) {
	id, ok, err := s.FindKey(key)
	if err != nil || !ok {
		return KeyState{}, err
	}
	d, posts := s.dict(), s.postings()
	return s.keyState(&d, &posts, id, dead)
}

func (s *Section) keyState(d *dict, posts *postings, id uint32, dead *Tombstones) (ks KeyState, err error) {
	lo, hi, err := d.span(id)
	if err != nil {
		return ks, err
	}
	ks.Count = uint64(hi - lo)
	if !dead.empty() {
		n, err := posts.dead(lo, hi, dead)
		if ks.Count -= n; err != nil || ks.Count == 0 {
			return KeyState{}, err
		}
	}
	first, err := posts.at(lo)
	for pos := lo + 1; err == nil && pos < hi && dead.Contains(first); pos++ {
		first, err = posts.at(pos)
	}
	if err != nil {
		return KeyState{}, err
	}
	last, _, err := s.lastIn(posts, lo, hi, s.info.Count, dead)
	if err != nil {
		return KeyState{}, err
	}
	if ks.First, err = s.Seq(first); err != nil {
		return KeyState{}, err
	}
	ks.Last, err = s.Seq(last)
	return ks, err
}

// EachKey calls fn for each key in m (nil: all) that has records which are not deleted, in order of the keys, until fn
// returns false. key is only valid during the call.
func (s *Section) EachKey(m *Match, dead *Tombstones, fn func(key []byte, ks KeyState) bool) error {
	posts, stopped := s.postings(), false
	visit := func(id uint32, d *dict, key []byte) (bool, error) {
		ks, err := s.keyState(d, &posts, id, dead)
		if err != nil || ks.Count == 0 {
			return true, err
		}
		stopped = !fn(key, ks)
		return !stopped, nil
	}
	if m == nil {
		return s.eachID(0, s.info.Keys, visit)
	}
	return m.eachRun(func(lo, hi uint32) (bool, error) {
		err := s.eachID(lo, hi, visit)
		return !stopped, err
	})
}

// LastPerKey calls fn with the ordinal of the newest record, with a sequence <= upTo (0: no bound) and not deleted, of
// each key in m (nil: all), in order of the keys, until fn returns false.
func (s *Section) LastPerKey(m *Match, upTo uint64, dead *Tombstones, fn func(id, ord uint32) bool) error {
	limit, err := s.Below(upTo)
	if err != nil {
		return err
	}
	if m == nil {
		m = &Match{runs: []idRun{{0, s.info.Keys}}}
	}
	d, posts := s.dict(), s.postings()
	return m.eachRun(func(lo, hi uint32) (bool, error) {
		for id := lo; id < hi; id++ {
			from, to, err := d.span(id)
			if err != nil {
				return false, err
			}
			ord, ok, err := s.lastIn(&posts, from, to, limit, dead)
			if err != nil || ok && !fn(id, ord) {
				return false, err
			}
		}
		return true, nil
	})
}

// Sizes returns how many records with ordinals in [lo, hi) are not deleted, and the sum of what they count for.
func (s *Section) Sizes(lo, hi uint32, dead *Tombstones) (n, bytes uint64, err error) {
	hi = min(hi, s.info.Count)
	if lo == 0 && hi == s.info.Count && dead.empty() {
		return uint64(hi), s.info.Bytes, nil
	}
	for ord := dead.nextLive(lo); ord < hi; {
		page := ord / recordsPerPage
		c, err := s.columnPage(page)
		if err != nil {
			return 0, 0, err
		}
		for end := min(hi, page*recordsPerPage+c.n); ord < end; ord = dead.nextLive(ord + 1) {
			n++
			bytes += c.sizes.at(ord % recordsPerPage)
		}
	}
	return n, bytes, nil
}

// EachOf calls fn for the first most records of key, deleted or not, ascending.
func (s *Section) EachOf(key []byte, most int, fn func(ord uint32, seq uint64)) error {
	id, ok, err := s.FindKey(key)
	if err != nil || !ok {
		return err
	}
	d, posts := s.dict(), s.postings()
	lo, hi, err := d.span(id)
	for ; err == nil && lo < hi && most > 0; lo, most = lo+1, most-1 {
		var (
			ord uint32
			seq uint64
		)
		if ord, err = posts.at(lo); err == nil {
			if seq, err = s.Seq(ord); err == nil {
				fn(ord, seq)
			}
		}
	}
	return err
}
