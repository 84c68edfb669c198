package storage

import (
	"hash/maphash"
	"math/bits"
	"sort"
)

// entry is one record in the index of its log. It holds no pointers, so that the garbage collector need not look at it.
// The bytes of the record are at off in section sec: key, header and data, one after the other. prev and next link the
// records of the same key (ordinals plus one; 0: none).
type entry struct {
	seq        uint64
	time       int64
	sec        uint64
	prev, next uint64
	off        uint32
	hlen, dlen uint32
	key        uint32
}

const (
	chunkBits = 8
	chunkSize = 1 << chunkBits
	chunkMask = chunkSize - 1
	words     = chunkSize / 64
)

// chunk is a run of consecutive ordinals. gone are records removed for readers, doomed those deleted at the head whose
// deletion is not durable yet. keys is the set of key ids modulo 256, to skip chunks a filter cannot match in.
type chunk struct {
	e                   []entry
	live                int // not gone
	gone, doomed, keys  [words]uint64
	firstSeq, lastSeq   uint64
	firstTime, lastTime int64
}

func (c *chunk) isGone(i uint64) bool   { return c.gone[i>>6]&(1<<(i&63)) != 0 }
func (c *chunk) isDoomed(i uint64) bool { return c.doomed[i>>6]&(1<<(i&63)) != 0 }

// index holds the records of one log by ordinal: the n-th record appended to it has ordinal n, whatever its sequence,
// so that gaps cost nothing. It has two views. The head: what the last call left. The visible one: what is durable,
// with ordinals below vis; it still has the records whose deletion is not durable. Guarded by its log's lock.
type index struct {
	chunks  []*chunk
	base    uint64 // number of chunks[0]
	end     uint64 // the next ordinal
	gapless bool   // ordinal = seq - seq0 for every record
	seq0    uint64
	keys    keyTable

	// The head.
	msgs, bytes uint64
	headFirst   uint64 // no live record of the head is below this ordinal

	// The visible view.
	vis               uint64
	visMsgs, visBytes uint64
	first             uint64 // no record that is not gone is below this ordinal

	num    uint32   // of the run in its log
	sealTo uint64   // once nothing is appended any more: the log's last sequence then
	time   int64    // and its last time
	fwd    *forward // where its records are now, when it is no run of its log any more
}

func newIndex(seed maphash.Seed) *index {
	return &index{gapless: true, keys: keyTable{seed: seed}}
}

// isEmpty reports whether nothing was ever appended, or nothing is left of it.
func (x *index) isEmpty() bool { return x.end == x.start() }

// start returns the lowest ordinal the index still knows.
func (x *index) start() uint64 { return x.base << chunkBits }

func (x *index) chunk(ord uint64) *chunk { return x.chunks[ord>>chunkBits-x.base] }

func (x *index) at(ord uint64) *entry { return &x.chunk(ord).e[ord&chunkMask] }

// isLive reports whether ord is there for readers (leaving aside whether it is visible).
func (x *index) isLive(ord uint64) bool {
	return ord >= x.start() && ord < x.end && !x.chunk(ord).isGone(ord&chunkMask)
}

// isHeadLive reports whether ord is there at the head.
func (x *index) isHeadLive(ord uint64) bool {
	return x.isLive(ord) && !x.chunk(ord).isDoomed(ord&chunkMask)
}

// add appends a record at the head. e.key, prev and next are filled here.
func (x *index) add(e entry, key []byte, size uint64) {
	id := x.keys.add(key)
	k := x.keys.info(id)
	ord := x.end
	e.key, e.prev, e.next = id, k.chainLast, 0
	if k.chainLast != 0 {
		x.at(k.chainLast - 1).next = ord + 1
	} else {
		k.chainFirst = ord + 1
	}
	k.chainLast = ord + 1
	k.chained++
	k.last = ord + 1
	if k.count == 0 {
		k.first = ord + 1
		x.keys.live++
	}
	k.count++
	if ord == 0 {
		x.seq0 = e.seq
	}
	x.gapless = x.gapless && e.seq-x.seq0 == ord
	i := ord & chunkMask
	if i == 0 {
		x.chunks = append(x.chunks, &chunk{firstSeq: e.seq, firstTime: e.time})
		if ord > 0 { // the first one grows as needed: many logs stay small
			x.chunks[len(x.chunks)-1].e = make([]entry, 0, chunkSize)
		}
	}
	c := x.chunk(ord)
	c.e = append(c.e, e)
	c.lastSeq, c.lastTime = e.seq, e.time
	c.live++
	c.keys[id>>6%words] |= 1 << (id & 63)
	x.end++
	x.msgs++
	x.bytes += size
}

// doom deletes a live record at the head.
func (x *index) doom(ord, size uint64) {
	c := x.chunk(ord)
	i := ord & chunkMask
	c.doomed[i>>6] |= 1 << (i & 63)
	x.msgs--
	x.bytes -= size
	if ord == x.headFirst {
		x.headFirst = x.headNext(ord + 1)
	}
	k := x.keys.info(c.e[i].key)
	k.count--
	switch {
	case k.count == 0:
		k.first, k.last = 0, 0
		x.keys.live--
	case k.first == ord+1:
		for k.first = c.e[i].next; !x.isHeadLive(k.first - 1); {
			k.first = x.at(k.first - 1).next
		}
	case k.last == ord+1:
		for k.last = c.e[i].prev; !x.isHeadLive(k.last - 1); {
			k.last = x.at(k.last - 1).prev
		}
	}
}

// remove takes a doomed record out for readers.
func (x *index) remove(ord, size uint64) {
	c := x.chunk(ord)
	i := ord & chunkMask
	c.doomed[i>>6] &^= 1 << (i & 63)
	c.gone[i>>6] |= 1 << (i & 63)
	c.live--
	x.visMsgs--
	x.visBytes -= size
	if ord == x.first {
		x.first = x.next(ord+1, x.end)
	}
	x.unlink(c.e[i])
	if c.live == 0 && len(c.e) == chunkSize {
		c.e = nil
		x.trim()
	}
}

// unlink takes e out of the chain of its key and forgets the key if it was the last.
func (x *index) unlink(e entry) {
	k := x.keys.info(e.key)
	if e.prev != 0 {
		x.at(e.prev - 1).next = e.next
	} else {
		k.chainFirst = e.next
	}
	if e.next != 0 {
		x.at(e.next - 1).prev = e.prev
	} else {
		k.chainLast = e.prev
	}
	if k.chained--; k.chained == 0 {
		x.keys.remove(e.key)
	}
}

// trim lets go of the chunks at the front that hold nothing any more.
func (x *index) trim() {
	n := 0
	for n < len(x.chunks) && x.chunks[n].live == 0 && (x.chunks[n].e == nil || len(x.chunks[n].e) == chunkSize) {
		x.chunks[n] = nil
		n++
	}
	x.chunks = x.chunks[n:]
	x.base += uint64(n)
}

// lower returns the lowest ordinal whose sequence is at or above seq; end if there is none. Among records that are all
// gone it may be a higher one.
func (x *index) lower(seq uint64) uint64 {
	if x.end == 0 || len(x.chunks) == 0 {
		return x.end
	}
	if x.gapless {
		if seq <= x.seq0 {
			return x.start()
		}
		return min(max(seq-x.seq0, x.start()), x.end)
	}
	n := sort.Search(len(x.chunks), func(i int) bool { return x.chunks[i].lastSeq >= seq })
	if n == len(x.chunks) {
		return x.end
	}
	c, ord := x.chunks[n], (x.base+uint64(n))<<chunkBits
	switch {
	case seq <= c.firstSeq:
		return ord
	case c.e == nil: // never too low: what a cursor has passed must not come back into its count
		return ord + chunkSize
	}
	return ord + uint64(sort.Search(len(c.e), func(i int) bool { return c.e[i].seq >= seq }))
}

// find returns the ordinal of the record with sequence seq.
func (x *index) find(seq uint64) (ord uint64, ok bool) {
	ord = x.lower(seq)
	if ord >= x.end || !x.isLive(ord) {
		return 0, false
	}
	return ord, x.at(ord).seq == seq
}

// next returns the first ordinal in [ord, limit) that is not gone, or limit.
func (x *index) next(ord, limit uint64) uint64 {
	ord = max(ord, x.start())
	for ord < limit {
		c := x.chunk(ord)
		if c.live > 0 {
			for w := ord & chunkMask >> 6; w < words; w++ {
				word := ^c.gone[w]
				if w == ord&chunkMask>>6 {
					word &= ^uint64(0) << (ord & 63)
				}
				if word != 0 {
					return min(ord&^chunkMask+w<<6+uint64(bits.TrailingZeros64(word)), limit)
				}
			}
		}
		ord = ord&^chunkMask + chunkSize
	}
	return limit
}

// prev returns the last ordinal in [start, ord) that is not gone.
func (x *index) prev(ord uint64) (uint64, bool) {
	for ord > x.start() {
		i := (ord - 1) & chunkMask
		c := x.chunk(ord - 1)
		if c.live == 0 {
			ord = (ord - 1) &^ chunkMask
			continue
		}
		word := ^c.gone[i>>6] & (^uint64(0) >> (63 - i&63))
		if word != 0 {
			return (ord-1)&^63 + uint64(63-bits.LeadingZeros64(word)), true
		}
		ord = (ord - 1) &^ 63
	}
	return 0, false
}

// headNext is next for the head's view: it leaves out what is deleted there.
func (x *index) headNext(ord uint64) uint64 {
	for ord = x.next(ord, x.end); ord < x.end && x.chunk(ord).isDoomed(ord&chunkMask); {
		ord = x.next(ord+1, x.end)
	}
	return ord
}

// countLive counts the records in [from, to) that are not gone.
func (x *index) countLive(from, to uint64) (n uint64) {
	for from = max(from, x.start()); from < to; {
		c, base := x.chunk(from), from&^chunkMask
		end := min(to-base, chunkSize)
		switch i := from - base; {
		case c.live == 0:
		case i == 0 && end >= uint64(len(c.e)):
			n += uint64(c.live)
		default:
			for ; i < end; i = i&^63 + 64 {
				word := ^c.gone[i>>6] & (^uint64(0) << (i & 63))
				if left := end - i&^63; left < 64 {
					word &= 1<<left - 1
				}
				n += uint64(bits.OnesCount64(word))
			}
		}
		from = base + chunkSize
	}
	return n
}

// headBelow counts the records below ord that are live at the head.
func (x *index) headBelow(ord uint64) (n uint64) {
	for at := x.headNext(x.headFirst); at < ord; at = x.headNext(at + 1) {
		n++
	}
	return n
}

// atTime returns the first ordinal below vis with a time at or after t, gone or not; vis if there is none.
func (x *index) atTime(t int64) uint64 {
	n := sort.Search(len(x.chunks), func(i int) bool { return x.chunks[i].lastTime >= t })
	if n == len(x.chunks) {
		return x.vis
	}
	c, ord := x.chunks[n], (x.base+uint64(n))<<chunkBits
	if c.e != nil {
		ord += uint64(sort.Search(len(c.e), func(i int) bool { return c.e[i].time >= t }))
	}
	return min(ord, x.vis)
}

// chainAt returns the first record (ordinal plus one; 0: none) of key at or after ord that is not gone. It walks the
// key's chain from both ends.
func (x *index) chainAt(k *keyInfo, ord uint64) uint64 {
	f, b := k.chainFirst, k.chainLast
	if b == 0 || b-1 < ord {
		return 0
	}
	for {
		if f-1 >= ord {
			return f
		}
		f = x.at(f - 1).next
		p := x.at(b - 1).prev
		if p == 0 || p-1 < ord {
			return b
		}
		b = p
	}
}

// chainAfter is chainAt for an ord beyond a record of the key that was found before: from (ordinal plus one; 0:
// none). A record that is gone keeps its link, so that the walk can go on from it.
func (x *index) chainAfter(k *keyInfo, from, ord uint64) uint64 {
	if k.chainLast == 0 || k.chainLast-1 < ord {
		return 0
	}
	for n := from; n != 0 && n-1 >= x.start(); {
		c := x.chunk(n - 1)
		if c.e == nil {
			break
		}
		if n-1 >= ord && !c.isGone((n-1)&chunkMask) {
			return n
		}
		n = c.e[(n-1)&chunkMask].next
	}
	return x.chainAt(k, ord)
}

// chainUpTo returns the last record (ordinal plus one; 0: none) of key below ord that is not gone.
func (x *index) chainUpTo(k *keyInfo, ord uint64) uint64 {
	if k.chainLast == 0 || k.chainLast-1 < ord {
		return k.chainLast
	}
	if n := x.chainAt(k, ord); n != 0 {
		return x.at(n - 1).prev
	}
	return k.chainLast
}

// visibleKey returns the totals of a key as readers see them.
func (x *index) visibleKey(k *keyInfo) KeyState {
	n := uint64(k.chained)
	last := k.chainLast
	for last != 0 && last-1 >= x.vis {
		last = x.at(last - 1).prev
		n--
	}
	if n == 0 {
		return KeyState{}
	}
	return KeyState{First: x.at(k.chainFirst - 1).seq, Last: x.at(last - 1).seq, Count: n}
}

// headKey returns the totals of a key at the head.
func (x *index) headKey(k *keyInfo) KeyState {
	if k.count == 0 {
		return KeyState{}
	}
	return KeyState{First: x.at(k.first - 1).seq, Last: x.at(k.last - 1).seq, Count: uint64(k.count)}
}

// chainBelow counts the records of key below ord, walking its chain from both ends.
func (x *index) chainBelow(k *keyInfo, ord uint64) (n uint64) {
	for f, b := k.chainFirst, k.chainLast; f != 0 && f-1 < ord; f, b = x.at(f-1).next, x.at(b-1).prev {
		if b-1 < ord {
			return uint64(k.chained) - n
		}
		n++
	}
	return n
}
