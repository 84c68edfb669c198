package storage

import (
	"sync"
	"sync/atomic"

	"github.com/noetl/ehdb-gateway/storage/tail"
)

// space knows what of a store's bytes is still needed: each section's live bytes, and where segments begin.
type space struct {
	off   bool // nobody asks: parts are where space is given back
	wake  chan struct{}
	grain int64        // how much must die before it is worth looking
	live  atomic.Int64 // footprint of live messages
	dead  atomic.Int64 // footprint of those that died since the last look
	slabs atomic.Int64 // bytes of sections in a memory store

	moved, dropped atomic.Uint64 // records and segments

	mu     sync.Mutex
	segs   []segmentStart // ascending
	oldest uint64         // memory store: no section below it is in RAM; guarded by the writer's lock
}

// segmentStart is where a segment of the tail begins.
type segmentStart struct {
	id  uint64
	lsn tail.LSN // of its first block
	sec uint64   // its first section
}

// note is told where a block lies whose first section is sec.
func (sp *space) note(seg uint64, lsn tail.LSN, sec uint64) {
	sp.mu.Lock()
	fresh := len(sp.segs) == 0 || sp.segs[len(sp.segs)-1].id != seg
	if fresh {
		sp.segs = append(sp.segs, segmentStart{seg, lsn, sec})
	}
	sp.mu.Unlock()
	if fresh {
		sp.kick()
	}
}

// starts returns the beginnings of the segments.
func (sp *space) starts() []segmentStart {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	return append([]segmentStart(nil), sp.segs...)
}

// forget forgets the segments before the one that begins with block lsn.
func (sp *space) forget(lsn tail.LSN) {
	sp.mu.Lock()
	defer sp.mu.Unlock()
	n := 0
	for n < len(sp.segs) && sp.segs[n].lsn < lsn {
		n++
	}
	sp.segs = sp.segs[n:]
}

// kick asks the sweeper to look.
func (sp *space) kick() {
	select {
	case sp.wake <- struct{}{}:
	default:
	}
}

// use reports that n bytes of a section are needed by the index.
func (sp *space) use(s *section, n int32) {
	if sp.off {
		return
	}
	s.live.Add(n)
	sp.live.Add(int64(n))
}

// drop reports that n bytes of section id are needed no more.
func (w *writer) drop(id uint64, n int32) {
	sp := &w.space
	if sp.off {
		return
	}
	sp.live.Add(-int64(n))
	if sp.dead.Add(int64(n)) >= sp.grain {
		sp.dead.Store(0)
		sp.kick()
	}
	s := w.secs.get(id)
	if s.live.Add(-n) == 0 && w.tail == nil {
		w.mu.Lock()
		w.releaseLocked(id, s)
		w.mu.Unlock()
	}
}

// releaseLocked lets go of a memory store's section that holds nothing any more.
func (w *writer) releaseLocked(id uint64, s *section) {
	sh := &w.shards[s.shard]
	sl := s.slab.Load()
	if sl == nil || s.live.Load() != 0 || sh.secID == id && sh.sec == s {
		return
	}
	s.slab.Store(nil)
	w.space.slabs.Add(-int64(len(sl.buf)))
	for w.space.oldest < w.secs.end && w.secs.get(w.space.oldest).slab.Load() == nil {
		w.space.oldest++
	}
	w.secs.trim(w.space.oldest)
}
