package part

import (
	"bytes"
	"math/bits"
	"slices"
)

// Filter selects keys.
type Filter interface {
	// Match reports whether key is selected. It must be a pure function of key.
	Match(key []byte) bool
	// Prefix returns bytes that every selected key starts with; empty if there are none in common.
	Prefix() []byte
	// Literal reports whether Prefix is the only key that can match.
	Literal() bool
}

// PrefixFilter may be implemented by a Filter: WholePrefix reports that every key that starts with Prefix is selected,
// so that none has to be looked at.
type PrefixFilter interface {
	Filter
	WholePrefix() bool
}

// Match is the keys of one section that filters select. It does not change and is worth keeping as long as the part is
// there: it takes a bit for each key of the section, or nothing if the keys are neighbours.
type Match struct {
	n       uint32 // keys
	records uint32 // of these keys, deleted or not
	all     bool   // every key of the section
	runs    []idRun
	set     []uint64 // bits by id, instead of runs
}

// idRun is the ids in [lo, hi).
type idRun struct{ lo, hi uint32 }

// maxRuns is how many runs of ids are kept as such.
const maxRuns = 4

// Keys returns how many keys match.
func (m *Match) Keys() uint32 { return m.n }

// Records returns how many records of the section match, deleted or not.
func (m *Match) Records() uint32 { return m.records }

// All reports whether every record of the section matches.
func (m *Match) All() bool { return m.all }

// Bytes returns about what the match takes in RAM.
func (m *Match) Bytes() int { return 96 + len(m.runs)*8 + len(m.set)*8 }

// Has reports whether the key with that id matches.
func (m *Match) Has(id uint32) bool {
	if m.set != nil {
		return id/64 < uint32(len(m.set)) && m.set[id/64]&(1<<(id%64)) != 0
	}
	for _, r := range m.runs {
		if id-r.lo < r.hi-r.lo {
			return true
		}
	}
	return false
}

// count returns how many of ids match.
func (m *Match) count(ids []uint32) (n uint64) {
	if m.set == nil {
		for _, r := range m.runs { // they do not overlap
			for _, id := range ids {
				if id-r.lo < r.hi-r.lo {
					n++
				}
			}
		}
		return n
	}
	for _, id := range ids {
		if w := id / 64; w < uint32(len(m.set)) {
			n += m.set[w] >> (id % 64) & 1
		}
	}
	return n
}

// eachRun calls fn for the runs of matching ids, ascending, until it returns false or an error.
func (m *Match) eachRun(fn func(lo, hi uint32) (bool, error)) error {
	if m.set == nil {
		for _, r := range m.runs {
			if more, err := fn(r.lo, r.hi); err != nil || !more {
				return err
			}
		}
		return nil
	}
	end := uint32(len(m.set)) * 64
	for lo := m.nextBit(0, end, 0); lo < end; {
		hi := m.nextBit(lo, end, ^uint64(0))
		if more, err := fn(lo, hi); err != nil || !more {
			return err
		}
		lo = m.nextBit(hi, end, 0)
	}
	return nil
}

// nextBit returns the first id in [from, end) whose bit, flipped by flip, is set; end if there is none.
func (m *Match) nextBit(from, end uint32, flip uint64) uint32 {
	for from < end {
		if w := (m.set[from/64] ^ flip) >> (from % 64); w != 0 {
			return from + uint32(bits.TrailingZeros64(w))
		}
		from = from/64*64 + 64
	}
	return end
}

// add puts the ids in [lo, hi) into the match.
func (m *Match) add(lo, hi, keys uint32) {
	if m.set == nil {
		if n := len(m.runs); n > 0 && m.runs[n-1].hi == lo {
			m.runs[n-1].hi = hi
			return
		}
		m.runs = append(m.runs, idRun{lo, hi})
		if len(m.runs) <= maxRuns {
			return
		}
		m.set = make([]uint64, (uint64(keys)+63)/64)
		runs := m.runs
		m.runs = nil
		for _, r := range runs {
			m.fill(r.lo, r.hi)
		}
		return
	}
	m.fill(lo, hi)
}

func (m *Match) fill(lo, hi uint32) {
	for lo < hi {
		n := min(hi, lo/64*64+64)
		m.set[lo/64] |= (^uint64(0) >> (64 - (n - lo))) << (lo % 64)
		lo = n
	}
}

// normalize sorts and joins runs that came from several filters.
func (m *Match) normalize() {
	slices.SortFunc(m.runs, func(a, b idRun) int { return int(int64(a.lo) - int64(b.lo)) })
	out := m.runs[:0]
	for _, r := range m.runs {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi {
			out[n-1].hi = max(out[n-1].hi, r.hi)
		} else {
			out = append(out, r)
		}
	}
	m.runs = out
}

// Match finds the keys that any of filters selects; without filters, all of them.
func (s *Section) Match(filters ...Filter) (*Match, error) {
	m := &Match{}
	if len(filters) == 0 {
		m.add(0, s.info.Keys, s.info.Keys)
	}
	for _, f := range filters {
		if err := s.addMatch(m, f); err != nil {
			return nil, err
		}
	}
	m.normalize()
	d := s.dict()
	err := m.eachRun(func(lo, hi uint32) (bool, error) {
		from, err := d.pos(lo)
		if err != nil {
			return false, err
		}
		to, err := d.pos(hi)
		if err == nil && to <= from {
			err = s.r.corrupt(s.off, "keys %d to %d have postings %d to %d", lo, hi, from, to)
		}
		m.n += hi - lo
		m.records += to - from
		return true, err
	})
	m.all = m.n == s.info.Keys
	return m, err
}

func (s *Section) addMatch(m *Match, f Filter) error {
	prefix := f.Prefix()
	if f.Literal() {
		id, ok, err := s.FindKey(prefix)
		if ok && err == nil && f.Match(prefix) {
			m.add(id, id+1, s.info.Keys)
		}
		return err
	}
	lo, hi, err := s.prefixIDs(prefix)
	if err != nil || lo >= hi {
		return err
	}
	if p, ok := f.(PrefixFilter); ok && p.WholePrefix() {
		m.add(lo, hi, s.info.Keys)
		return nil
	}
	return s.eachID(lo, hi, func(id uint32, _ *dict, key []byte) (bool, error) {
		if f.Match(key) {
			m.add(id, id+1, s.info.Keys)
		}
		return true, nil
	})
}

// prefixIDs returns the ids of the keys that start with prefix.
func (s *Section) prefixIDs(prefix []byte) (lo, hi uint32, err error) {
	if lo, _, err = s.keyLower(prefix); err != nil {
		return 0, 0, err
	}
	after := bytes.TrimRight(prefix, "\xff")
	if len(after) == 0 {
		return lo, s.info.Keys, nil
	}
	after = bytes.Clone(after)
	after[len(after)-1]++ // the first key behind all that start with prefix
	hi, _, err = s.keyLower(after)
	return lo, hi, err
}

// eachID calls fn for the keys with ids in [lo, hi) until it returns false or an error. d stands at the key's page.
func (s *Section) eachID(lo, hi uint32, fn func(id uint32, d *dict, key []byte) (bool, error)) error {
	d := s.dict()
	var key []byte // a page's walk takes over the buffer of the last
	for lo < hi {
		if err := d.at(lo); err != nil {
			return err
		}
		p := d.p // a copy: fn may move d to the next page
		w := p.walk(lo - p.firstID)
		w.key = key[:0]
		for w.i < p.n && p.firstID+w.i < hi {
			id := p.firstID + w.i
			if err := w.next(); err != nil {
				return s.corrupt(p.ref, err)
			}
			if id < lo {
				continue
			}
			if more, err := fn(id, &d, w.key); err != nil || !more {
				return err
			}
		}
		key, lo = w.key, p.firstID+w.i
	}
	return nil
}
