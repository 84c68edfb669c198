package part

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
)

const (
	keyPageBytes  = 8 << 10 // raw bytes of a key page, about
	bloomPageBits = 64 << 10
	bloomBitsKey  = 10
	bloomProbes   = 7
)

// logBuilder gathers one section. Per record it keeps about 12 bytes, and its keys.
type logBuilder struct {
	b    *Builder
	size SizeFunc
	info SectionInfo
	data dataBuilder

	blocks []dataEntry
	keys   map[string]uint32 // to an id in order of arrival
	names  []string          // by that id
	counts []uint32          // by that id: records
	ids    []uint32          // by ordinal: that id

	gaps, sizes []uint64 // of the column page that is being filled
	pages       []columnBuild
}

// columnBuild is a column page without its key ids, which are known at the end.
type columnBuild struct {
	firstSeq uint64
	packed   []byte
}

// dataEntry is what the section's table says of a data block.
type dataEntry struct {
	firstSeq  uint64
	firstTime int64
	ref       blockRef
	firstOrd  uint32
	count     uint32
}

func newLogBuilder(b *Builder, log uint64, size SizeFunc) *logBuilder {
	return &logBuilder{b: b, size: size, info: SectionInfo{Log: log}, keys: map[string]uint32{}}
}

func (l *logBuilder) add(r *Record, size uint64) error {
	n := len(r.Key) + len(r.Header) + len(r.Data)
	if l.data.count > 0 && len(l.data.raw)+n > l.b.o.BlockSize {
		if err := l.flush(); err != nil {
			return l.b.fail(err)
		}
	}
	if l.info.Count == 0 {
		l.info.FirstSeq, l.info.FirstTime = r.Seq, r.Time
	}
	l.data.add(r)
	id, ok := l.keys[string(r.Key)]
	if !ok {
		id = uint32(len(l.names))
		name := string(r.Key)
		l.keys[name] = id
		l.names = append(l.names, name)
		l.counts = append(l.counts, 0)
	}
	l.counts[id]++
	l.ids = append(l.ids, id)
	l.column(r.Seq, size)
	l.info.Count++
	l.info.Bytes += size
	l.info.LastSeq, l.info.LastTime = r.Seq, r.Time
	return nil
}

// column adds to the column page. gaps are how much a sequence is above where it would be without gaps in the page.
func (l *logBuilder) column(seq, size uint64) {
	i := len(l.gaps)
	if i == 0 {
		l.pages = append(l.pages, columnBuild{firstSeq: seq})
	}
	p := &l.pages[len(l.pages)-1]
	l.gaps = append(l.gaps, seq-p.firstSeq-uint64(i))
	l.sizes = append(l.sizes, size)
	if i+1 == recordsPerPage {
		l.endColumns()
	}
}

func (l *logBuilder) endColumns() {
	if len(l.gaps) == 0 {
		return
	}
	p := &l.pages[len(l.pages)-1]
	p.packed = appendPacked(appendPacked(nil, l.gaps), l.sizes)
	l.gaps, l.sizes = l.gaps[:0], l.sizes[:0]
}

// flush writes the data block.
func (l *logBuilder) flush() error {
	d := &l.data
	if d.count == 0 {
		return nil
	}
	e := dataEntry{firstSeq: d.seq, firstTime: d.time, count: d.count, firstOrd: l.info.Count - d.count}
	ref, err := l.b.write(kindData, l.info.Log, d.finish())
	e.ref = ref
	l.blocks = append(l.blocks, e)
	return err
}

// finish writes the rest of the section and returns where its head is.
func (l *logBuilder) finish() (blockRef, error) {
	if err := l.flush(); err != nil {
		return blockRef{}, err
	}
	l.endColumns()
	l.info.Keys = uint32(len(l.names))
	order := make([]uint32, len(l.names)) // arrival ids, sorted by key
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(x, y uint32) int { return bytesCompare(l.names[x], l.names[y]) })
	rank := make([]uint32, len(order))
	first := make([]uint32, len(order)+1) // by final id: postings before its own
	for i, id := range order {
		rank[id] = uint32(i)
		first[i+1] = first[i] + l.counts[id]
	}
	s := sectionBuild{l: l}
	if err := s.columns(rank); err != nil {
		return blockRef{}, err
	}
	if err := s.postings(first); err != nil {
		return blockRef{}, err
	}
	if err := s.keyPages(order, first); err != nil {
		return blockRef{}, err
	}
	if err := s.bloom(); err != nil {
		return blockRef{}, err
	}
	return l.b.write(kindSection, l.info.Log, s.head())
}

func bytesCompare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// sectionBuild gathers the tables of a section's head.
type sectionBuild struct {
	l         *logBuilder
	cols      []byte
	posts     []byte
	blooms    []byte
	keys      []byte
	first     []byte // first keys of key pages
	bloomBits uint32
}

func appendPage(b []byte, ref blockRef) []byte {
	b = le.AppendUint64(b, uint64(ref.off))
	b = le.AppendUint32(b, ref.len)
	return le.AppendUint32(b, 0)
}

// columns writes the column pages. It turns the ids from arrival to sorted ones.
func (s *sectionBuild) columns(rank []uint32) error {
	l := s.l
	for i, id := range l.ids {
		l.ids[i] = rank[id]
	}
	for i := range l.pages {
		p := &l.pages[i]
		lo := i * recordsPerPage
		hi := min(lo+recordsPerPage, len(l.ids))
		ref, err := l.b.write(kindColumns, l.info.Log, appendPacked(p.packed, l.ids[lo:hi]))
		if err != nil {
			return err
		}
		p.packed = nil
		s.cols = le.AppendUint64(s.cols, p.firstSeq)
		s.cols = appendPage(s.cols, ref)
	}
	return nil
}

func (s *sectionBuild) postings(first []uint32) error {
	l := s.l
	next := slices.Clone(first)
	posts := make([]uint32, len(l.ids))
	for ord, id := range l.ids {
		posts[next[id]] = uint32(ord)
		next[id]++
	}
	l.ids = nil
	var raw []byte
	for page := range slices.Chunk(posts, recordsPerPage) {
		raw = appendPacked(raw[:0], page)
		ref, err := l.b.write(kindPostings, l.info.Log, raw)
		if err != nil {
			return err
		}
		s.posts = appendPage(s.posts, ref)
	}
	return nil
}

// The raw bytes of a key page. Every 16th key stands in full, and its offset, counted from the first entry, in
// restarts.
//
//	0       4       8                8+len                    8+len+4*ceil(n/16)
//	+-------+-------+----------------+------------------------+----------------------------------+
//	| n     | len   | entries        | restarts, u32 each     | packed: postings before each key |
//	+-------+-------+----------------+------------------------+----------------------------------+
//
//	entry
//
//	+---------------------------+----------+------+
//	| bytes shared with the key | rest len | rest |   numbers are uvarints
//	| before                    |          |      |
//	+---------------------------+----------+------+
func (s *sectionBuild) keyPages(order, first []uint32) error {
	var entries, raw []byte
	var restarts []uint32
	lo := 0
	for i, id := range order {
		key := s.l.names[id]
		shared := 0
		if (i-lo)%restartEvery == 0 {
			restarts = append(restarts, uint32(len(entries)))
		} else {
			shared = commonPrefix(key, s.l.names[order[i-1]])
		}
		entries = binary.AppendUvarint(entries, uint64(shared))
		entries = binary.AppendUvarint(entries, uint64(len(key)-shared))
		entries = append(entries, key[shared:]...)
		if len(entries) < keyPageBytes && i+1 < len(order) {
			continue
		}
		raw = le.AppendUint32(raw[:0], uint32(i+1-lo))
		raw = le.AppendUint32(raw, uint32(len(entries)))
		raw = append(raw, entries...)
		for _, r := range restarts {
			raw = le.AppendUint32(raw, r)
		}
		raw = appendPacked(raw, first[lo:i+1])
		ref, err := s.l.b.write(kindKeys, s.l.info.Log, raw)
		if err != nil {
			return err
		}
		s.keyEntry(s.l.names[order[lo]], uint32(lo), first[lo], ref)
		entries, restarts, lo = entries[:0], restarts[:0], i+1
	}
	return nil
}

func (s *sectionBuild) keyEntry(first string, id, pos uint32, ref blockRef) {
	s.keys = le.AppendUint32(s.keys, id)
	s.keys = le.AppendUint32(s.keys, pos)
	s.keys = appendPage(s.keys, ref)
	s.keys = le.AppendUint32(s.keys, uint32(len(s.first)))
	s.keys = le.AppendUint32(s.keys, uint32(len(first)))
	s.first = append(s.first, first...)
}

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// bloom writes the filter over the keys, in pages: one page answers for one key. A section with one key page needs
// none.
func (s *sectionBuild) bloom() error {
	if len(s.keys) <= keyEntrySize {
		return nil
	}
	keys := uint64(len(s.l.names))
	n := uint32((keys*bloomBitsKey + bloomPageBits - 1) / bloomPageBits)
	s.bloomBits = uint32((keys*bloomBitsKey/uint64(n) + 63) / 64 * 64)
	pages := make([]byte, uint64(n)*uint64(s.bloomBits/8))
	for _, name := range s.l.names {
		h := xxhash.Sum64String(name)
		page := pages[uint64(bloomPage(h, n))*uint64(s.bloomBits/8):]
		for i := range uint32(bloomProbes) {
			bit := bloomBit(h, i, s.bloomBits)
			page[bit/8] |= 1 << (bit % 8)
		}
	}
	for page := range slices.Chunk(pages, int(s.bloomBits/8)) {
		ref, err := s.l.b.write(kindBloom, s.l.info.Log, page)
		if err != nil {
			return err
		}
		s.blooms = appendPage(s.blooms, ref)
	}
	return nil
}

// bloomPage returns which of n pages the key with that hash is in.
func bloomPage(h uint64, n uint32) uint32 { return uint32((h >> 32) * uint64(n) >> 32) }

// bloomBit returns probe i of the key with that hash in its page of that many bits.
func bloomBit(h uint64, i, bits uint32) uint32 { return (uint32(h) + i*(uint32(h>>17)|1)) % bits }

func bloomHas(page []byte, h uint64) bool {
	bits := uint32(len(page)) * 8
	for i := range uint32(bloomProbes) {
		bit := bloomBit(h, i, bits)
		if page[bit/8]&(1<<(bit%8)) == 0 {
			return false
		}
	}
	return true
}

// The raw bytes of a section's head: 88 fixed ones, then the tables.
//
//	0     8        16      24        32       40    48    52   56   60   64   68   72    76        80       84   88
//	+-----+--------+-------+---------+--------+-----+-----+----+----+----+----+----+-----+---------+--------+----+
//	| log |firstseq|lastseq|firsttime|lasttime|bytes|count|keys|data|cols|post|keyp|bloom|bloombits|firstlen|zero|
//	+-----+--------+-------+---------+--------+-----+-----+----+----+----+----+----+-----+---------+--------+----+
//
//	data   40 each: first seq u64, first time i64, offset u64, len u32, zero u32, first ordinal u32, count u32
//	cols   24 each: first seq u64, offset u64, len u32, zero u32
//	post   16 each: offset u64, len u32, zero u32
//	bloom  16 each: offset u64, len u32, zero u32
//	keyp   32 each: first id u32, postings before it u32, offset u64, len u32, zero u32, first key off u32, len u32
//	then the first keys of the key pages
func (s *sectionBuild) head() []byte {
	i := &s.l.info
	b := make([]byte, sectionFixed, sectionFixed+len(s.l.blocks)*dataEntrySize+len(s.cols)+len(s.posts)+
		len(s.blooms)+len(s.keys)+len(s.first))
	for at, v := range []uint64{i.Log, i.FirstSeq, i.LastSeq, uint64(i.FirstTime), uint64(i.LastTime), i.Bytes} {
		le.PutUint64(b[8*at:], v)
	}
	for at, v := range []int{
		int(i.Count), int(i.Keys), len(s.l.blocks), len(s.cols) / columnEntrySize, len(s.posts) / pageEntrySize,
		len(s.keys) / keyEntrySize, len(s.blooms) / pageEntrySize, int(s.bloomBits), len(s.first), 0,
	} {
		le.PutUint32(b[48+4*at:], uint32(v))
	}
	for _, e := range s.l.blocks {
		b = le.AppendUint64(b, e.firstSeq)
		b = le.AppendUint64(b, uint64(e.firstTime))
		b = appendPage(b, e.ref)
		b = le.AppendUint32(b, e.firstOrd)
		b = le.AppendUint32(b, e.count)
	}
	return slices.Concat(b, s.cols, s.posts, s.blooms, s.keys, s.first)
}

// hashKey is what the bloom filter goes by.
func hashKey(key []byte) uint64 { return xxhash.Sum64(key) }
