package storage

import (
	"math/bits"
	"slices"
)

// maxFew is up to how many selected keys are followed along their chains. More are found by looking at every record.
const maxFew = 16

// selection is the set of keys that match some filters, as ids of an index. Filters are evaluated once for each key.
type selection struct {
	filters  []Filter
	literals bool // all filters are
	known    bool // learned is valid
	many     bool // few is not kept
	few      []keyWalk
	ids      bitset        // unless literals
	mask     [words]uint64 // ids modulo the size of a chunk's key set
	learned  uint64        // assignments of ids evaluated
}

// keyWalk is a selected key and the record of it that is next (ordinal plus one; 0: none found yet).
type keyWalk struct {
	id   uint32
	next uint64
}

func newSelection(filters []Filter) selection {
	literals := len(filters) <= maxFew && !slices.ContainsFunc(filters, func(f Filter) bool { return !f.Literal() })
	return selection{filters: filters, literals: literals}
}

func (s *selection) all() bool { return len(s.filters) == 0 }

func (s *selection) has(id uint32) bool {
	if !s.many {
		return slices.ContainsFunc(s.few, func(w keyWalk) bool { return w.id == id })
	}
	return s.ids.has(id)
}

func (s *selection) match(key []byte) bool {
	for _, f := range s.filters {
		if f.Match(key) {
			return true
		}
	}
	return false
}

// learn evaluates the filters for the keys that were given an id since the last call.
func (s *selection) learn(x *index) {
	t := &x.keys
	if s.all() || s.known && s.learned == t.assigned {
		return
	}
	switch {
	case s.literals:
		s.findLiterals(t)
	case !s.known || !t.given(s.learned, func(id uint32) { s.evaluate(t, id) }):
		for id := range t.ids {
			s.evaluate(t, id)
		}
	}
	s.learned, s.known = t.assigned, true
}

func (s *selection) findLiterals(t *keyTable) {
	old := slices.Clone(s.few)
	s.few = s.few[:0]
	for _, f := range s.filters {
		id := t.find(f.Prefix())
		if id == noKey || s.has(id) {
			continue
		}
		w := keyWalk{id: id}
		if i := slices.IndexFunc(old, func(w keyWalk) bool { return w.id == id }); i >= 0 {
			w = old[i]
		}
		s.few = append(s.few, w)
	}
}

// evaluate decides whether the key that has id now is selected.
func (s *selection) evaluate(t *keyTable, id uint32) {
	on := t.info(id).chained > 0 && s.match(t.key(id))
	if !s.many {
		s.few = slices.DeleteFunc(s.few, func(w keyWalk) bool { return w.id == id })
	}
	if !on {
		s.ids.remove(id)
		return
	}
	s.ids.add(id)
	s.mask[id>>6%words] |= 1 << (id & 63)
	if s.many = s.many || len(s.few) == maxFew; s.many {
		s.few = s.few[:0]
		return
	}
	s.few = append(s.few, keyWalk{id: id})
}

// next returns the first selected ordinal in [ord, limit) that is not gone; limit or more if there is none.
func (s *selection) next(x *index, ord, limit uint64) uint64 {
	switch {
	case s.all():
		return x.next(ord, limit)
	case !s.many:
		return s.nextOfFew(x, ord, limit)
	}
	for ord = x.next(ord, limit); ord < limit; {
		c := x.chunk(ord)
		if !s.meets(c) {
			ord = x.next(ord&^chunkMask+chunkSize, limit)
			continue
		}
		if s.ids.has(c.e[ord&chunkMask].key) {
			return ord
		}
		ord = x.next(ord+1, limit)
	}
	return limit
}

func (s *selection) nextOfFew(x *index, ord, limit uint64) uint64 {
	first := limit
	for i := range s.few {
		w := &s.few[i]
		if w.next == 0 || w.next-1 < ord || !x.isLive(w.next-1) {
			n := x.chainAfter(x.keys.info(w.id), w.next, ord)
			if n == 0 {
				continue // w.next stays: what comes later is linked to it
			}
			w.next = n
		}
		first = min(first, w.next-1)
	}
	return first
}

// meets reports whether c can have selected keys.
func (s *selection) meets(c *chunk) bool {
	for w := range words {
		if s.mask[w]&c.keys[w] != 0 {
			return true
		}
	}
	return false
}

// count counts the selected records in [from, to) that are not gone.
func (s *selection) count(x *index, from, to uint64) (n uint64) {
	if !s.many {
		for _, w := range s.few {
			k := x.keys.info(w.id)
			for ord := k.chainLast; ord != 0 && ord-1 >= from; ord = x.at(ord - 1).prev {
				if ord-1 < to {
					n++
				}
			}
		}
		return n
	}
	for from = max(from, x.start()); from < to; from = from&^chunkMask + chunkSize {
		if c := x.chunk(from); c.live > 0 && s.meets(c) {
			n += s.countIn(c, from&chunkMask, min(to-from&^chunkMask, chunkSize))
		}
	}
	return n
}

// countIn counts in one chunk.
func (s *selection) countIn(c *chunk, from, to uint64) (n uint64) {
	for i := from; i < to; {
		word := ^c.gone[i>>6] >> (i & 63)
		if word == 0 {
			i = i&^63 + 64
			continue
		}
		if i += uint64(bits.TrailingZeros64(word)); i < to && s.ids.has(c.e[i].key) {
			n++
		}
		i++
	}
	return n
}

// countFrom counts the selected visible records at or after ord.
func (s *selection) countFrom(x *index, ord uint64) (n uint64) {
	switch {
	case ord >= x.vis:
		return 0
	case s.all():
		return x.countLive(ord, x.vis)
	case !s.many:
		for _, w := range s.few {
			k := x.keys.info(w.id)
			n += uint64(k.chained) - x.chainBelow(k, ord)
		}
		return n - s.count(x, x.vis, x.end)
	case ord-x.start() > x.vis-ord:
		return s.count(x, ord, x.vis)
	}
	// all there are, by the keys' totals, less the shorter walk
	s.ids.each(func(id uint32) { n += uint64(x.keys.info(id).chained) })
	return n - s.count(x, x.vis, x.end) - s.count(x, x.start(), ord)
}
