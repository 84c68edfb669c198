package inspect

import (
	"context"
	"fmt"
	"math"
	"path"
	"slices"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// What a repair needs to know besides what Directory says.

// Blocks returns where the whole blocks of the write-ahead log are, in order.
func (d *Directory) Blocks() []Block { return d.blocks }

// Body returns the body of block i of Blocks, checked again.
func (d *Directory) Body(i int) ([]byte, error) { return d.readBlock(i) }

// Heads returns the positions of the shards at the end of the write-ahead log.
func (d *Directory) Heads() []uint64 { return d.heads }

// KnownHeads returns positions that the shards have reached by the manifest, also if the write-ahead log ends before.
// What a state log's checkpoint covers lies below them.
func (d *Directory) KnownHeads() []uint64 {
	store, _ := d.storeRecord()
	heads := slices.Clone(store.Heads)
	for _, l := range d.logs {
		for _, s := range l.Shards[:min(1, len(l.Shards))] {
			for uint64(len(heads)) <= s && s < maxShards {
				heads = append(heads, 0)
			}
			if s < maxShards {
				heads[s] = max(heads[s], l.skip)
			}
		}
	}
	return heads
}

// Known tells whether a record, or the manifest, says that the log exists: the gateway refuses a directory in which
// there are records of a log that is not.
func (l *Log) Known() bool { return l.known }

// SeenIn returns the shards in which records of the log are.
func (l *Log) SeenIn() []uint64 { return slices.Sorted(slices.Values(l.saw)) }

// FreeID returns an id that no log had, as far as can be told: each lost record may have made one.
func (d *Directory) FreeID() uint64 {
	next := max(d.NextLog, catalogID+1)
	for id := range d.logs {
		next = max(next, id+1)
	}
	for i := range d.Holes {
		for _, n := range d.Holes[i].Lost {
			next += min(n, math.MaxInt32)
		}
	}
	return next
}

// SegmentIDs returns the ids of all segment files there are, readable or not, ascending.
func (d *Directory) SegmentIDs() (ids []uint64) {
	for _, f := range d.Files {
		var id uint64
		if f.Kind != "segment" {
			continue
		}
		if _, err := fmt.Sscanf(path.Base(f.Path), "%d", &id); err == nil && SegmentName(id) == path.Base(f.Path) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// DamagedFile tells whether a finding says that the file is damaged.
func (d *Directory) DamagedFile(file string) bool {
	return slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Severity == Damage && f.File == file })
}

// SizedRecord is a record with what its log counts for it.
type SizedRecord struct {
	Record
	Size  uint64
	Exact bool // Size is the column's; else it is the sum of the lengths
}

// EachSized calls fn for the live records of a section that can be read, ascending. blind is how many deletions of the
// section cannot be told which records they are of, because a block before them is lost: those records are given too.
func (d *Directory) EachSized(ctx context.Context, s *Section, fn func(*SizedRecord) error) (blind uint64, err error) {
	sizes, err := d.sizes(s)
	if err != nil {
		return 0, err
	}
	l := d.log(s.Log, false)
	c := sectionCursor{d: d, l: l, s: s}
	placed := uint64(0) // deletions of records whose place is known
	for c.i < len(s.data) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		ref := s.data[c.i]
		placed += s.deadIn(&Log{}, ref)
		ord := ref.firstOrd
		err := c.each(func(_ uint32, r *Record, dead bool) error {
			sized := SizedRecord{Record: *r, Size: uint64(len(r.Key) + len(r.Header) + len(r.Data))}
			if ref.ordKnown && uint64(ord) < uint64(len(sizes)) && sizes[ord] != nil {
				sized.Size, sized.Exact = *sizes[ord], true
			}
			if ord++; dead {
				return nil
			}
			return fn(&sized)
		})
		if err != nil {
			return 0, err
		}
		if !ref.ordKnown && s.Dead != nil {
			blind = s.Dead.GetCardinality() - min(placed, s.Dead.GetCardinality())
		}
	}
	return blind, nil
}

// sizes returns what the column pages that are whole say, by ordinal.
func (d *Directory) sizes(s *Section) ([]*uint64, error) {
	f, err := d.fs.OpenRead(path.Join(d.Path, s.Part.File))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := partReader{d: d, f: f, p: s.Part}
	for i := range s.Part.blocks {
		b := &s.Part.blocks[i]
		if b.log != s.Log || b.kind != blockSection || !b.whole {
			continue
		}
		raw, err := r.raw(b)
		if err != nil {
			return nil, err
		}
		h, err := parseHead(raw)
		if err != nil {
			break // reported by Read; the sizes are not known then
		}
		return r.columnSizes(&h), nil
	}
	return nil, nil
}

func (r *partReader) columnSizes(h *head) []*uint64 {
	out := make([]*uint64, h.Count)
	r.byAt = map[int64]int{}
	for i := range r.p.blocks {
		r.byAt[r.p.blocks[i].off] = i
	}
	for p := range h.columns {
		e := &h.columns[p]
		_, raw, err := r.page(h, e.off, e.len, blockColumns)
		if err != nil {
			continue
		}
		f := fields{b: raw}
		n := pageSize(h.Count, p)
		unpack(&f, n)
		for i, size := range unpack(&f, n) {
			out[p*perPage+i] = &size
		}
	}
	return out
}

// CheckFile reads one part file that no manifest names, and returns what is wrong with it.
func CheckFile(fsys vfs.FS, dir, file string, keys *Keys) (*Part, []Finding, error) {
	d := &Directory{Path: dir, fs: fsys, keys: keys, logs: map[uint64]*Log{}}
	p, err := d.checkPart(file)
	return p, d.Findings, err
}
