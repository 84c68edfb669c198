package inspect

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// index is all that the pages of a section say.
type index struct {
	h        *head
	seqs     []uint64
	sizes    []uint64
	ids      []uint64
	keys     [][]byte
	before   []uint64 // by key id: postings before its own
	postings []uint64
}

// checkSection counts everything in a section again: its records against columns, keys, postings, bloom filter and
// totals. A section of which a block is damaged is left alone: that is reported already, and nothing would add up.
func (r *partReader) checkSection(h *head) error {
	for _, l := range r.lost {
		if l.block == nil || l.block.log == h.Log {
			return nil
		}
	}
	x := index{h: h}
	for _, load := range []func(*index) (*partBlock, error){
		r.loadColumns, r.loadPostings, r.loadKeys, r.loadBloom, r.compare,
	} {
		b, err := load(&x)
		if failed, ok := errors.AsType[*ioError](err); ok {
			return failed.err
		}
		if err != nil {
			off := h.off
			if b != nil {
				off = b.off
			}
			f := r.damage(off, "log %d: %v", h.Log, err)
			f.Affected = []Affected{{Log: h.Log, First: h.FirstSeq, Last: h.LastSeq}}
			return nil
		}
	}
	return nil
}

// page returns the raw bytes of the block that a table of h means.
func (r *partReader) page(h *head, off int64, size uint32, kind uint8) (*partBlock, []byte, error) {
	i, ok := r.byAt[off]
	if !ok {
		return nil, nil, fmt.Errorf("its table of %s blocks has one at offset %d, where none is", blockKinds[kind], off)
	}
	b := &r.p.blocks[i]
	if b.kind != kind || b.log != h.Log || b.size() != int64(size) {
		return b, nil, fmt.Errorf("the block is of kind %q, log %d, %d bytes, where kind %q, log %d, %d bytes is to be",
			blockKinds[b.kind], b.log, b.size(), blockKinds[kind], h.Log, size)
	}
	raw, err := r.raw(b)
	return b, raw, err
}

func (r *partReader) loadColumns(x *index) (*partBlock, error) {
	for p := range x.h.columns {
		e := &x.h.columns[p]
		b, raw, err := r.page(x.h, e.off, e.len, blockColumns)
		if err != nil {
			return b, err
		}
		n := pageSize(x.h.Count, p)
		f := fields{b: raw}
		gaps, sizes, ids := unpack(&f, n), unpack(&f, n), unpack(&f, n)
		if f.err != nil || f.left() != 0 {
			return b, fmt.Errorf("column page %d: %w", p, errPacked)
		}
		for i, gap := range gaps {
			x.seqs = append(x.seqs, e.firstSeq+uint64(i)+gap)
		}
		x.sizes, x.ids = append(x.sizes, sizes...), append(x.ids, ids...)
	}
	return nil, nil //nolint:nilnil // there is no block at fault
}

func (r *partReader) loadPostings(x *index) (*partBlock, error) {
	for p := range x.h.postings {
		e := &x.h.postings[p]
		b, raw, err := r.page(x.h, e.off, e.len, blockPostings)
		if err != nil {
			return b, err
		}
		f := fields{b: raw}
		x.postings = append(x.postings, unpack(&f, pageSize(x.h.Count, p))...)
		if f.err != nil || f.left() != 0 {
			return b, fmt.Errorf("postings page %d: %w", p, errPacked)
		}
	}
	return nil, nil //nolint:nilnil // there is no block at fault
}

func (r *partReader) loadKeys(x *index) (*partBlock, error) {
	for p := range x.h.keys {
		e := &x.h.keys[p]
		b, raw, err := r.page(x.h, e.off, e.len, blockKeys)
		if err != nil {
			return b, err
		}
		end := x.h.Keys
		if p+1 < len(x.h.keys) {
			end = x.h.keys[p+1].firstID
		}
		if int(e.firstID) != len(x.keys) || end <= e.firstID || end > x.h.Keys {
			return b, fmt.Errorf("key page %d has ids %d to %d, after %d keys", p, e.firstID, end, len(x.keys))
		}
		if err := x.keyPage(raw, end-e.firstID, e); err != nil {
			return b, fmt.Errorf("key page %d: %w", p, err)
		}
	}
	for i := range x.keys {
		if i == 0 && x.before[0] != 0 || i > 0 && x.before[i] <= x.before[i-1] || x.before[i] >= uint64(x.h.Count) {
			return nil, fmt.Errorf("the postings of key %d start at %d", i, x.before[i])
		}
		if i > 0 && bytes.Compare(x.keys[i-1], x.keys[i]) >= 0 {
			return nil, fmt.Errorf("key %d is not above the one before it", i)
		}
	}
	return nil, nil //nolint:nilnil // there is no block at fault
}

var errKeys = errors.New("its lengths do not fit it")

func (x *index) keyPage(raw []byte, n uint32, e *pageEntry) error {
	f := fields{b: raw}
	count := f.u32()
	entries := fields{b: f.bytes(uint64(f.u32()))}
	restarts := fields{b: f.bytes((uint64(n) + restartEvery - 1) / restartEvery * 4)}
	before := unpack(&f, n)
	if f.err != nil || f.left() != 0 || count != n {
		return errKeys
	}
	var key []byte
	for i := range n {
		at := entries.pos
		shared, rest := entries.uvarint(), entries.uvarint()
		if i%restartEvery == 0 && (shared != 0 || restarts.u32() != uint32(at)) || shared > uint64(len(key)) {
			return errKeys
		}
		key = append(append([]byte(nil), key[:shared]...), entries.bytes(rest)...)
		if entries.err != nil {
			return entries.err
		}
		x.keys = append(x.keys, key)
	}
	if entries.left() != 0 {
		return errKeys
	}
	if first := x.keys[e.firstID]; !bytes.Equal(first, e.firstKey) || before[0] != uint64(e.before) {
		return errors.New("its first key is not what the section's head says")
	}
	x.before = append(x.before, before...)
	return nil
}

func (r *partReader) loadBloom(x *index) (*partBlock, error) {
	n := uint64(len(x.h.bloom))
	if n == 0 && len(x.h.keys) > 1 {
		return nil, errors.New("it has several key pages and no bloom filter")
	}
	pages := make([][]byte, n)
	for p := range x.h.bloom {
		e := &x.h.bloom[p]
		b, raw, err := r.page(x.h, e.off, e.len, blockBloom)
		if err != nil {
			return b, err
		}
		if len(raw) == 0 || uint64(len(raw))*8 != uint64(x.h.bloomBits) {
			return b, fmt.Errorf("bloom page %d has %d bytes, not %d bits", p, len(raw), x.h.bloomBits)
		}
		pages[p] = raw
	}
	for i, key := range x.keys {
		if n > 0 && !bloomHas(pages, key, x.h.bloomBits) {
			return nil, fmt.Errorf("key %d is not in the bloom filter", i)
		}
	}
	return nil, nil //nolint:nilnil // there is no block at fault
}

func bloomHas(pages [][]byte, key []byte, size uint32) bool {
	h := xxhash.Sum64(key)
	page := pages[(h>>32)*uint64(len(pages))>>32]
	h1, h2 := uint32(h), uint32(h>>17)|1
	for i := range uint32(7) {
		bit := (h1 + i*h2) % size
		if page[bit/8]&(1<<(bit%8)) == 0 {
			return false
		}
	}
	return true
}

// compare goes through the records and holds them against the index.
func (r *partReader) compare(x *index) (*partBlock, error) {
	h := x.h
	c := comparison{x: x, next: append([]uint64(nil), x.before...)}
	for i := range h.data {
		e := &h.data[i]
		b, raw, err := r.page(h, e.off, e.len, blockData)
		if err != nil {
			return b, err
		}
		if e.firstOrd != c.ord || e.count != b.count || e.firstSeq != b.firstSeq || e.firstTime != b.firstTime {
			return b, fmt.Errorf("the section's head says %d records from number %d, sequence %d on; there are %d "+
				"from %d, %d on", e.count, e.firstOrd, e.firstSeq, b.count, c.ord, b.firstSeq)
		}
		if err := eachRecord(raw, func(_ uint32, rec *Record) error { return c.record(rec) }); err != nil {
			return b, err
		}
	}
	if c.ord != h.Count || c.seq != h.LastSeq || c.time != h.LastTime || c.bytes != h.Bytes {
		return nil, fmt.Errorf("there are %d records, %d bytes, up to sequence %d; the section's head says %d, %d, %d",
			c.ord, c.bytes, c.seq, h.Count, h.Bytes, h.LastSeq)
	}
	for id, pos := range c.next {
		end := uint64(h.Count)
		if id+1 < len(x.before) {
			end = x.before[id+1]
		}
		if pos != end {
			return nil, fmt.Errorf("key %d has %d postings and fewer records", id, end-x.before[id])
		}
	}
	return nil, nil //nolint:nilnil // there is no block at fault
}

// comparison holds the records of a section, as they come, against its index.
type comparison struct {
	x     *index
	next  []uint64 // by key id: where its next posting is
	ord   uint32
	seq   uint64
	time  int64
	bytes uint64
}

func (c *comparison) record(r *Record) error {
	x, n := c.x, c.ord
	if n >= x.h.Count {
		return fmt.Errorf("there are more than %d records", x.h.Count)
	}
	id := x.ids[n]
	switch {
	case n == 0 && (r.Seq != x.h.FirstSeq || r.Time != x.h.FirstTime):
		return errors.New("the first record is not the one the section's head says")
	case n > 0 && (r.Seq <= c.seq || r.Time < c.time):
		return fmt.Errorf("record %d does not ascend: sequence %d after %d", n, r.Seq, c.seq)
	case x.seqs[n] != r.Seq:
		return fmt.Errorf("record %d has sequence %d, its column says %d", n, r.Seq, x.seqs[n])
	case id >= uint64(len(x.keys)):
		return fmt.Errorf("record %d has key %d by its column, there are %d", n, id, len(x.keys))
	case !bytes.Equal(x.keys[id], r.Key):
		return fmt.Errorf("record %d has another key than its column says", n)
	case c.next[id] >= uint64(len(x.postings)) || x.postings[c.next[id]] != uint64(n):
		return fmt.Errorf("record %d is not in the postings of its key", n)
	}
	c.next[id]++
	c.ord, c.seq, c.time = n+1, r.Seq, r.Time
	c.bytes += x.sizes[n]
	return nil
}
