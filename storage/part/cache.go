package part

import (
	"sync"
	"sync/atomic"
)

// BlockKey names a block in a cache.
type BlockKey struct {
	File   uint64 // as given by NextFile
	Offset int64  // of the block
	Log    uint64
	Kind   uint8
}

// BlockCache keeps blocks that were read and found whole. What it holds is immutable and may be kept by whoever got it.
type BlockCache interface {
	// NextFile returns a number that no other reader uses.
	NextFile() uint64
	Get(k BlockKey) ([]byte, bool)
	// Put offers a block; the cache may leave it out.
	Put(k BlockKey, b []byte)
	// DropFile removes what belongs to a file that is closed.
	DropFile(file uint64)
}

const (
	// entryOverhead is about what an entry takes beside its bytes.
	entryOverhead = 160
	maxShards     = 16
	// minShardBytes keeps shards large enough for the largest blocks of ordinary parts.
	minShardBytes = 4 << 20
)

// Cache is a BlockCache of bounded size that lets go of what was not used for the longest time. All its methods may be
// called by any goroutine.
type Cache struct {
	shards []cacheShard
	files  atomic.Uint64
	hits   atomic.Uint64
	misses atomic.Uint64
}

var _ BlockCache = (*Cache)(nil)

type cacheShard struct {
	mu      sync.Mutex
	budget  int64
	used    int64 // invariant: used <= budget
	entries map[BlockKey]*cacheEntry
	lru     cacheEntry // ring; next is the most recently used
}

type cacheEntry struct {
	key        BlockKey
	b          []byte
	prev, next *cacheEntry
}

func (e *cacheEntry) cost() int64 { return int64(cap(e.b)) + entryOverhead }

// NewCache returns a cache that holds at most budget bytes, its own overhead included.
func NewCache(budget int64) *Cache {
	n := min(max(budget/minShardBytes, 1), maxShards)
	c := &Cache{shards: make([]cacheShard, n)}
	for i := range c.shards {
		s := &c.shards[i]
		s.budget = budget / n
		s.entries = map[BlockKey]*cacheEntry{}
		s.lru.prev, s.lru.next = &s.lru, &s.lru
	}
	return c
}

// NextFile implements BlockCache.
func (c *Cache) NextFile() uint64 { return c.files.Add(1) }

func (c *Cache) shard(k BlockKey) *cacheShard {
	h := (k.File*0x9e3779b97f4a7c15 ^ uint64(k.Offset)) * 0xff51afd7ed558ccd
	return &c.shards[(h>>32)%uint64(len(c.shards))]
}

// Get implements BlockCache.
func (c *Cache) Get(k BlockKey) ([]byte, bool) {
	s := c.shard(k)
	s.mu.Lock()
	e := s.entries[k]
	if e == nil {
		s.mu.Unlock()
		c.misses.Add(1)
		return nil, false
	}
	if s.lru.next != e {
		e.unlink()
		s.front(e)
	}
	b := e.b
	s.mu.Unlock()
	c.hits.Add(1)
	return b, true
}

// Put implements BlockCache. A block larger than a shard's share of the budget is left out.
func (c *Cache) Put(k BlockKey, b []byte) {
	s, e := c.shard(k), &cacheEntry{key: k, b: b}
	if e.cost() > s.budget {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.entries[k]; old != nil {
		s.remove(old)
	}
	for s.used+e.cost() > s.budget {
		s.remove(s.lru.prev)
	}
	s.used += e.cost()
	s.entries[k] = e
	s.front(e)
}

// DropFile implements BlockCache.
func (c *Cache) DropFile(file uint64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for e := s.lru.next; e != &s.lru; {
			next := e.next
			if e.key.File == file {
				s.remove(e)
			}
			e = next
		}
		s.mu.Unlock()
	}
}

func (e *cacheEntry) unlink() { e.prev.next, e.next.prev = e.next, e.prev }

func (s *cacheShard) front(e *cacheEntry) {
	e.prev, e.next = &s.lru, s.lru.next
	e.prev.next, e.next.prev = e, e
}

func (s *cacheShard) remove(e *cacheEntry) {
	e.unlink()
	delete(s.entries, e.key)
	s.used -= e.cost()
}

// CacheStats are the totals of a Cache.
type CacheStats struct {
	Bytes   int64 // held now, overhead included
	Blocks  int
	Hits    uint64
	Misses  uint64
	Budget  int64
	Largest int64 // the largest block that is kept
}

// Stats returns the totals.
func (c *Cache) Stats() CacheStats {
	st := CacheStats{Hits: c.hits.Load(), Misses: c.misses.Load(), Largest: c.shards[0].budget - entryOverhead}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		st.Bytes += s.used
		st.Blocks += len(s.entries)
		st.Budget += s.budget
		s.mu.Unlock()
	}
	return st
}
