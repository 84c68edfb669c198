package inspect

import (
	"errors"
	"fmt"
)

const (
	sectionHead = 88
	dirEntry    = 32
)

// head is the head of a section, taken apart.
type head struct {
	SectionInfo
	off       int64
	bloomBits uint32
	data      []dataEntry
	columns   []pageEntry
	postings  []pageEntry
	bloom     []pageEntry
	keys      []pageEntry
}

type dataEntry struct {
	firstSeq  uint64
	firstTime int64
	off       int64
	len       uint32
	firstOrd  uint32
	count     uint32
}

type pageEntry struct {
	off      int64
	len      uint32
	firstSeq uint64 // columns
	firstID  uint32 // keys
	before   uint32 // keys: postings before its first
	firstKey []byte // keys
}

var errTables = errors.New("the section's tables do not fit its head")

func parseHead(b []byte) (h head, err error) {
	f := fields{b: b}
	h.Log, h.FirstSeq, h.LastSeq = f.u64(), f.u64(), f.u64()
	h.FirstTime, h.LastTime, h.Bytes = f.i64(), f.i64(), f.u64()
	h.Count, h.Keys = f.u32(), f.u32()
	nd, nc, np, nk, nb := f.u32(), f.u32(), f.u32(), f.u32(), f.u32()
	h.bloomBits = f.u32()
	firstLen := f.u32()
	f.u32()
	want := uint64(sectionHead) + uint64(nd)*40 + uint64(nc)*24 + (uint64(np)+uint64(nb))*16 + uint64(nk)*32 +
		uint64(firstLen)
	switch {
	case f.err != nil || want != uint64(len(b)):
		return h, errTables
	case h.Count == 0 || h.Keys == 0 || h.Keys > h.Count || nd == 0 || nd > h.Count || nk == 0 || nk > h.Keys:
		return h, errTables
	case nc != pages(h.Count) || np != nc || h.LastSeq < h.FirstSeq || h.LastSeq-h.FirstSeq < uint64(h.Count-1):
		return h, errTables
	}
	for range nd {
		e := dataEntry{firstSeq: f.u64(), firstTime: f.i64(), off: f.i64(), len: f.u32()}
		f.u32()
		e.firstOrd, e.count = f.u32(), f.u32()
		h.data = append(h.data, e)
	}
	for range nc {
		seq := f.u64()
		e := f.page()
		e.firstSeq = seq
		h.columns = append(h.columns, e)
	}
	for range np {
		h.postings = append(h.postings, f.page())
	}
	for range nb {
		h.bloom = append(h.bloom, f.page())
	}
	first := b[len(b)-int(firstLen):]
	for range nk {
		id, before := f.u32(), f.u32()
		e := f.page()
		e.firstID, e.before = id, before
		off, n := uint64(f.u32()), uint64(f.u32())
		if off+n > uint64(len(first)) {
			return h, errTables
		}
		e.firstKey = first[off : off+n]
		h.keys = append(h.keys, e)
	}
	return h, f.err
}

func (f *fields) page() pageEntry {
	e := pageEntry{off: f.i64(), len: f.u32()}
	f.u32()
	return e
}

// sections checks the directory and every section, and notes the sections' data blocks.
func (r *partReader) sections() error {
	heads, err := r.heads()
	if err != nil {
		return err
	}
	logs := map[uint64]bool{}
	for i := range r.p.blocks {
		if b := &r.p.blocks[i]; b.kind != blockDirectory {
			logs[b.log] = true
		}
	}
	for _, log := range sortedKeys(logs) {
		s := r.section(log, heads[log])
		r.p.Sections = append(r.p.Sections, s)
		if h := heads[log]; h != nil {
			if err := r.checkSection(h); err != nil {
				return err
			}
		}
	}
	r.explain(heads)
	return nil
}

// heads reads the heads of all sections and the directory; none of them can be if the part is locked.
func (r *partReader) heads() (map[uint64]*head, error) {
	heads := map[uint64]*head{}
	if r.p.Locked {
		return heads, nil
	}
	for i := range r.p.blocks {
		if b := &r.p.blocks[i]; b.whole && b.kind == blockSection {
			if err := r.head(b, heads); err != nil {
				return nil, err
			}
		}
	}
	return heads, r.directory(heads)
}

func (r *partReader) head(b *partBlock, heads map[uint64]*head) error {
	raw, err := r.rawOrDamage(b)
	if err != nil || raw == nil {
		return err
	}
	h, err := parseHead(raw)
	if err == nil && h.Log != b.log {
		err = fmt.Errorf("it is of log %d, its block of log %d", h.Log, b.log)
	}
	if err == nil && heads[h.Log] != nil {
		err = fmt.Errorf("log %d has a section already", h.Log)
	}
	if err != nil {
		r.damage(b.off, "head of a section: %v", err)
		return nil
	}
	h.off = b.off
	heads[h.Log] = &h
	return nil
}

// rawOrDamage returns the raw bytes of a block that was whole; nil if it no longer is, which is reported.
func (r *partReader) rawOrDamage(b *partBlock) ([]byte, error) {
	raw, err := r.raw(b)
	if failed, ok := errors.AsType[*ioError](err); ok {
		return nil, failed.err
	}
	if err != nil {
		r.damage(b.off, "%v", err)
		return nil, nil
	}
	return raw, nil
}

// directory checks the table of sections against their heads and the footer.
func (r *partReader) directory(heads map[uint64]*head) error {
	i, ok := r.byAt[r.foot.dirOff]
	if !r.foot.ok || !ok || !r.p.blocks[i].whole {
		if r.foot.ok && len(r.lost) == 0 {
			r.damage(r.end, "the footer's directory is not where a block is")
		}
		return nil
	}
	b := &r.p.blocks[i]
	raw, err := r.rawOrDamage(b)
	if err != nil || raw == nil {
		return err
	}
	f := fields{b: raw}
	n := f.u32()
	if b.kind != blockDirectory || b.log != 0 || b.size() != int64(r.foot.dirLen) || n != r.foot.sections ||
		uint64(f.left()) != uint64(n)*dirEntry {
		r.damage(b.off, "this is not the directory that the footer says")
		return nil
	}
	r.entries(b, &f, heads)
	return nil
}

// entries checks the entries of the directory in block b.
func (r *partReader) entries(b *partBlock, f *fields, heads map[uint64]*head) {
	n := r.foot.sections
	var records, bytes, last uint64
	for i := range n {
		log, off, size, count, sum := f.u64(), f.i64(), f.u32(), f.u32(), f.u64()
		if i > 0 && log <= last || count == 0 {
			r.damage(b.off, "entry %d of the directory (log %d) is out of order or empty", i, log)
		}
		last = log
		records += uint64(count)
		bytes += sum
		h, at := heads[log], r.byAt[off]
		switch {
		case h == nil && len(r.lost) == 0:
			r.damage(b.off, "the directory has a section of log %d, and there is none", log)
		case h == nil:
		case h.off != off || r.p.blocks[at].size() != int64(size) || h.Count != count || h.Bytes != sum:
			r.damage(b.off, "the directory does not say of log %d what the head of its section does", log)
		}
	}
	if records != r.foot.records || bytes != r.foot.bytes {
		r.damage(b.off, "sections hold %d records, %d bytes; the footer says %d, %d", records, bytes, r.foot.records,
			r.foot.bytes)
	}
	if len(r.lost) == 0 && int(n) != len(heads) {
		r.damage(b.off, "the directory has %d sections, there are %d", n, len(heads))
	}
}

// section lists the whole data blocks of a log, and finds out which ordinals they have.
func (r *partReader) section(log uint64, h *head) *Section {
	s := &Section{Part: r.p}
	s.Log = log
	ords := map[int64]uint32{}
	if h != nil {
		s.SectionInfo = h.SectionInfo
		for i := range h.data {
			ords[h.data[i].off] = h.data[i].firstOrd
		}
	}
	next, known := uint32(0), true
	for i := range r.p.blocks {
		b := &r.p.blocks[i]
		if b.log != log || b.kind != blockData {
			continue
		}
		if !b.whole {
			known = false
			continue
		}
		ref := dataRef{at: i, firstOrd: next, ordKnown: known && r.gapless(b)}
		if ord, ok := ords[b.off]; ok {
			ref.firstOrd, ref.ordKnown = ord, true
		}
		known = ref.ordKnown
		next = ref.firstOrd + b.count
		s.data = append(s.data, ref)
		if h == nil {
			s.Count += b.count
			if len(s.data) == 1 {
				s.FirstSeq, s.FirstTime = b.firstSeq, b.firstTime
			}
			s.LastSeq, s.LastTime = b.lastSeq, b.lastTime
		}
	}
	return s
}

// gapless tells whether nothing before b is lost whose log is not known.
func (r *partReader) gapless(b *partBlock) bool {
	for _, l := range r.lost {
		if l.block == nil && l.off < b.off {
			return false
		}
	}
	return true
}

// explain reports what cannot be read, and what it means for the logs.
func (r *partReader) explain(heads map[uint64]*head) {
	for _, l := range r.lost {
		what := l.err.Error()
		if l.block != nil {
			what = fmt.Sprintf("block of kind %q of log %d: %v", blockKinds[l.block.kind], l.block.log, l.err)
		}
		f := r.damage(l.off, "%s", what)
		f.Length = l.len
		for _, log := range sortedKeys(heads) {
			f.Affected = append(f.Affected, heads[log].affected(l.off, l.len)...)
		}
		switch b := l.block; {
		case len(f.Affected) > 0:
		case b == nil:
			f.Affected = []Affected{{What: "it is not known which logs"}}
		case b.kind == blockData:
			f.Affected = []Affected{{Log: b.log, What: "records, it is not known which"}}
		default:
			f.Affected = []Affected{{Log: b.log, What: "index only: no record is lost"}}
		}
	}
}

// affected says which records of the section are in the blocks that touch a stretch of the file.
func (h *head) affected(off, size int64) (out []Affected) {
	for i := range h.data {
		e := &h.data[i]
		if e.off >= off+size || e.off+int64(e.len) <= off {
			continue
		}
		last := h.LastSeq
		if i+1 < len(h.data) {
			last = h.data[i+1].firstSeq - 1
		}
		if n := len(out); n > 0 {
			out[n-1].Last = last
			out[n-1].Records += uint64(e.count)
			continue
		}
		out = append(out, Affected{Log: h.Log, First: e.firstSeq, Last: last, Records: uint64(e.count)})
	}
	return out
}
