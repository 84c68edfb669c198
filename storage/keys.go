package storage

import (
	"bytes"
	"hash/maphash"
	"math/bits"
)

// keyInfo is what a log knows about one key. Positions are ordinals plus one; 0 means none. The chain (chainFirst,
// chainLast, chained) holds every record that is not yet removed for readers; first, last and count leave out those
// already deleted at the head.
type keyInfo struct {
	chainFirst, chainLast uint64
	first, last           uint64
	chained, count        uint32
	hash                  uint32
	page, off, size       uint32 // where the key's bytes are in the arena
}

const (
	keyPage   = 256      // keyInfo per page
	arenaPage = 16 << 10 // bytes of keys per page; a longer key gets a page of its own
	noKey     = ^uint32(0)
)

// keyTable maps keys to small dense ids: open addressing over ids, the bytes in an arena, no pointer per key. Ids of
// keys that have no records left are used again; assigned counts each time an id is given to a key, and recent
// remembers the last ids given, so that what is memoised per id can be kept up to date.
type keyTable struct {
	seed   maphash.Seed
	slots  []uint64 // hash<<32 | id+1; 0 is free
	infos  [][]keyInfo
	ids    uint32   // ids ever made
	free   []uint32 // ids to use again
	used   int      // keys that have an id
	live   int      // keys with records at the head
	arena  [][]byte
	waste  int // bytes of keys no longer there
	stored int // bytes of keys that are there

	assigned uint64
	recent   []uint32 // ring of the last ids given: assignment n is at n % len
}

// maxRecentKeys bounds the ring of recently given ids; must be a power of two.
const maxRecentKeys = 8192

func (t *keyTable) info(id uint32) *keyInfo { return &t.infos[id/keyPage][id%keyPage] }

func (t *keyTable) key(id uint32) []byte {
	k := t.info(id)
	return t.arena[k.page][k.off : k.off+k.size : k.off+k.size]
}

// find returns the id of key, or noKey.
func (t *keyTable) find(key []byte) uint32 {
	if len(t.slots) == 0 {
		return noKey
	}
	id, _ := t.lookup(key, uint32(maphash.Bytes(t.seed, key)))
	return id
}

// lookup returns the id of key, or noKey and the free slot where it would go.
func (t *keyTable) lookup(key []byte, h uint32) (id uint32, slot int) {
	mask := len(t.slots) - 1
	for i := int(h) & mask; ; i = (i + 1) & mask {
		s := t.slots[i]
		if s == 0 {
			return noKey, i
		}
		if uint32(s>>32) == h {
			if id := uint32(s) - 1; bytes.Equal(t.key(id), key) {
				return id, i
			}
		}
	}
}

// add returns the id of key, giving it one if it has none.
func (t *keyTable) add(key []byte) uint32 {
	if 4*(t.used+1) > 3*len(t.slots) {
		t.grow()
	}
	h := uint32(maphash.Bytes(t.seed, key))
	id, slot := t.lookup(key, h)
	if id != noKey {
		return id
	}
	if n := len(t.free); n > 0 {
		id, t.free = t.free[n-1], t.free[:n-1]
	} else {
		id = t.ids
		t.ids++
		if id%keyPage == 0 {
			t.infos = append(t.infos, nil)
		}
		p := &t.infos[id/keyPage]
		*p = append(*p, keyInfo{})
	}
	t.slots[slot] = uint64(h)<<32 | uint64(id+1)
	k := t.info(id)
	*k = keyInfo{hash: h}
	t.store(k, key)
	t.used++
	t.note(id)
	return id
}

// note remembers that id was given to a key.
func (t *keyTable) note(id uint32) {
	if n := len(t.recent); uint64(n) <= t.assigned && n < maxRecentKeys {
		t.recent = append(t.recent, make([]uint32, max(8, n))...)
		// the ring has not wrapped yet: positions are still equal to assignment numbers
	}
	t.recent[t.assigned%uint64(len(t.recent))] = id
	t.assigned++
}

// given calls fn with each id given since assignment number from and returns true, or returns false if not all of them
// are remembered.
func (t *keyTable) given(from uint64, fn func(id uint32)) bool {
	if t.assigned-from > uint64(len(t.recent)) {
		return false
	}
	for ; from < t.assigned; from++ {
		fn(t.recent[from%uint64(len(t.recent))])
	}
	return true
}

// remove forgets a key that has no records left.
func (t *keyTable) remove(id uint32) {
	k := t.info(id)
	mask := len(t.slots) - 1
	i := int(k.hash) & mask
	for uint32(t.slots[i])-1 != id {
		i = (i + 1) & mask
	}
	t.closeGap(i)
	t.waste += int(k.size)
	t.stored -= int(k.size)
	*k = keyInfo{}
	t.free = append(t.free, id)
	t.used--
	if t.waste > 4*arenaPage && t.waste > 2*t.stored {
		t.compact()
	}
}

// closeGap frees slot i and moves back the slots after it that probing would no longer reach.
func (t *keyTable) closeGap(i int) {
	mask := len(t.slots) - 1
	for j := (i + 1) & mask; t.slots[j] != 0; j = (j + 1) & mask {
		home := int(t.slots[j]>>32) & mask
		if (j-home)&mask >= (j-i)&mask {
			t.slots[i] = t.slots[j]
			i = j
		}
	}
	t.slots[i] = 0
}

func (t *keyTable) grow() {
	old := t.slots
	t.slots = make([]uint64, max(8, 2*len(old)))
	mask := len(t.slots) - 1
	for _, s := range old {
		if s == 0 {
			continue
		}
		i := int(s>>32) & mask
		for t.slots[i] != 0 {
			i = (i + 1) & mask
		}
		t.slots[i] = s
	}
}

// store copies key into the arena.
func (t *keyTable) store(k *keyInfo, key []byte) {
	n := len(t.arena)
	if n == 0 || len(t.arena[n-1])+len(key) > arenaPage {
		size := 256
		if n > 0 {
			size = arenaPage
		}
		t.arena = append(t.arena, make([]byte, 0, max(size, len(key))))
		n++
	}
	p := &t.arena[n-1]
	k.page, k.off, k.size = uint32(n-1), uint32(len(*p)), uint32(len(key))
	*p = append(*p, key...)
	t.stored += len(key)
}

// compact writes the arena anew without the bytes of forgotten keys.
func (t *keyTable) compact() {
	old := t.arena
	t.arena, t.waste, t.stored = nil, 0, 0
	t.each(func(id uint32) bool {
		k := t.info(id)
		t.store(k, old[k.page][k.off:k.off+k.size])
		return true
	})
}

// each calls fn for each key that has an id, until fn returns false.
func (t *keyTable) each(fn func(id uint32) bool) {
	for id := range t.ids {
		if t.info(id).chained > 0 && !fn(id) {
			return
		}
	}
}

// bitset is a growing set of small integers.
type bitset []uint64

func (b bitset) has(i uint32) bool { return int(i>>6) < len(b) && b[i>>6]&(1<<(i&63)) != 0 }

func (b *bitset) add(i uint32) {
	for int(i>>6) >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[i>>6] |= 1 << (i & 63)
}

func (b bitset) remove(i uint32) {
	if int(i>>6) < len(b) {
		b[i>>6] &^= 1 << (i & 63)
	}
}

// each calls fn for each member, ascending.
func (b bitset) each(fn func(i uint32)) {
	for w, word := range b {
		for ; word != 0; word &= word - 1 {
			fn(uint32(w<<6 + bits.TrailingZeros64(word)))
		}
	}
}
