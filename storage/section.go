package storage

import (
	"sync/atomic"

	"github.com/noetl/ehdb-gateway/storage/tail"
)

// slabSize is what is allocated at once for the bytes of new records.
const slabSize = 256 << 10

// slab is a piece of memory that sections lie in. Bytes once written never change, so that readers slice it without a
// copy; the garbage collector keeps it as long as somebody does.
type slab struct{ buf []byte }

// section is a run of encoded records of one shard, in one block of the tail. It is in RAM (slab is set) while it is
// queued and while it is in the window; after that it is read from the tail. In a memory store a section is as large as
// a slab and spans many commits. There may be one for each record, so it is kept small.
type section struct {
	slab     atomic.Pointer[slab]
	live     atomic.Int32 // footprint of message records that are not removed
	start    uint32       // in the slab
	size     uint32       // bytes; guarded by the writer's lock until the group is taken
	seg, off uint32       // where it is in the tail; set before any of its records is visible
	shard    uint16
}

// pos returns where the section is in the tail.
func (s *section) pos() tail.Pos { return tail.Pos{Segment: uint64(s.seg), Offset: s.off} }

func (s *section) place(pos tail.Pos) { s.seg, s.off = uint32(pos.Segment), pos.Offset }

// sectionHead is what the head of a section says besides its shard and size.
type sectionHead struct {
	first uint64 // shard position of the first record
	count uint64 // records
}

const (
	secPageBits = 8
	secPageSize = 1 << secPageBits
)

type secPage [secPageSize]section

// secDir is an immutable view of the table's pages.
type secDir struct {
	base  uint64 // number of pages[0]
	pages []*secPage
}

// sectionTable finds a section by its number. Numbers rise by one. Adding and trimming are guarded by the writer's
// lock, get is not.
type sectionTable struct {
	dir atomic.Pointer[secDir]
	end uint64 // guarded by the writer's lock
}

// get returns section id, nil if it was trimmed.
func (t *sectionTable) get(id uint64) *section {
	d := t.dir.Load()
	if id>>secPageBits < d.base {
		return nil
	}
	return &d.pages[id>>secPageBits-d.base][id&(secPageSize-1)]
}

func (t *sectionTable) add() (uint64, *section) {
	id := t.end
	if id&(secPageSize-1) == 0 {
		d := t.dir.Load()
		if d == nil {
			d = &secDir{}
		}
		// append may write behind the end of the old view's slice, which the old view never looks at
		t.dir.Store(&secDir{base: d.base, pages: append(d.pages, new(secPage))})
	}
	t.end++
	return id, t.get(id)
}

// trim forgets whole pages of sections below id.
func (t *sectionTable) trim(id uint64) {
	d := t.dir.Load()
	if d == nil || id>>secPageBits <= d.base {
		return
	}
	n := min(id>>secPageBits-d.base, uint64(len(d.pages)))
	t.dir.Store(&secDir{base: d.base + n, pages: append([]*secPage(nil), d.pages[n:]...)})
}
