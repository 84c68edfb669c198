package bus

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// Bounds of one session's cache.
const (
	maxCached       = 1024 // subjects
	maxCachedTotal  = 16384
	maxCachedTarget = 4096 // targets of one subject; matching is cheap beside delivering to more
	evictAtOnce     = 64
	doorSlots       = 256 // a power of two
	admitOneIn      = 16  // of subjects that the door does not know
)

// target is a subscription and where the session queues for its sink.
type target struct {
	sub   *Subscription
	batch *batch
}

// result is what a subject matched for one session.
type result struct {
	stamp  stamp
	plain  []target
	queued []target // members of queue groups, sorted by group
	ends   []int    // where each group ends in queued
}

// size is what a result counts for in the cache.
func (r *result) size() int { return len(r.plain) + len(r.queued) }

func (r *result) reset() {
	clear(r.plain)
	clear(r.queued)
	r.plain, r.queued, r.ends = r.plain[:0], r.queued[:0], r.ends[:0]
}

// group sorts the queue members and finds the groups.
func (r *result) group() {
	if len(r.queued) == 0 {
		return
	}
	slices.SortFunc(r.queued, func(a, b target) int { return cmp.Compare(a.sub.Queue, b.sub.Queue) })
	for i := 1; i < len(r.queued); i++ {
		if r.queued[i].sub.Queue != r.queued[i-1].sub.Queue {
			r.ends = append(r.ends, i)
		}
	}
	r.ends = append(r.ends, len(r.queued))
}

// cache remembers results by subject. A subject is let in at its second use (or by chance), so that subjects used once,
// such as replies and acks, neither push the others out nor cost an entry.
type cache struct {
	results map[string]*result
	total   int // sum of size()
	door    *[doorSlots]uint32
}

// get returns the result for subject and whether it still holds. A stale one is returned to be filled again.
func (c *cache) get(subject []byte) (r *result, valid bool) {
	r = c.results[string(subject)]
	return r, r != nil && r.stamp.valid()
}

// admits reports whether subject should be kept: it was here before, or chance says so.
func (c *cache) admits(seed maphash.Seed, subject []byte, chance uint64) bool {
	if c.door == nil {
		c.door = new([doorSlots]uint32)
	}
	h := maphash.Bytes(seed, subject)
	known := &c.door[h%doorSlots]
	if mark := uint32(h>>32) | 1; *known != mark {
		*known = mark
		return chance%admitOneIn == 0
	}
	return true
}

// put keeps r under subject, making room if need be; one that is too large it does not keep.
func (c *cache) put(subject []byte, r *result) {
	if r.size() > maxCachedTarget {
		return
	}
	if c.results == nil {
		c.results = make(map[string]*result)
	}
	if len(c.results) >= maxCached {
		c.evict()
	}
	c.results[string(subject)] = r
	c.total += r.size()
	c.trim()
}

// resize accounts for a change of a result that is kept.
func (c *cache) resize(r *result, change func()) {
	c.total -= r.size()
	change()
	c.total += r.size()
	c.trim()
}

// trim drops results until the total is within its bound. It may drop any.
func (c *cache) trim() {
	for c.total > maxCachedTotal {
		c.evict()
	}
}

// evict drops some results, as the map gives them.
func (c *cache) evict() {
	n := 0
	for subject, r := range c.results {
		c.drop(subject, r)
		if n++; n == evictAtOnce {
			return
		}
	}
}

func (c *cache) drop(subject string, r *result) {
	delete(c.results, subject)
	c.total -= r.size()
}

// sweep drops results that no longer hold, with the subscriptions they keep from the collector.
func (c *cache) sweep() {
	for subject, r := range c.results {
		if !r.stamp.valid() {
			c.drop(subject, r)
		}
	}
}

func (c *cache) clear() {
	clear(c.results)
	c.total = 0
}
