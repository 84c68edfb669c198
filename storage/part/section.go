package part

import (
	"errors"
	"sort"
)

// Section is the records of one log in a part. Its methods may be called by several goroutines.
type Section struct {
	r    *Reader
	off  int64 // of its head
	info SectionInfo

	nData, nCols, nPosts, nKeys, nBloom uint32
	bloomBits                           uint32

	data, cols, posts, blooms, keys, first []byte // tables
}

// section reads the head of a section and checks the sizes of its tables.
func (r *Reader) section(e dirEntry) (*Section, error) {
	b, err := r.block(e.ref, kindSection, e.log)
	if err != nil {
		return nil, err
	}
	s := &Section{r: r, off: e.ref.off}
	if err := s.parse(b); err != nil {
		return nil, r.corrupt(s.off, "%w", err)
	}
	if i := &s.info; i.Log != e.log || i.Count != e.count || i.Bytes != e.bytes {
		return nil, r.corrupt(s.off, "section's totals are not those of the directory")
	}
	return s, nil
}

var errTables = errors.New("section's tables do not fit its head")

func (s *Section) parse(b []byte) error {
	if len(b) < sectionFixed {
		return errTables
	}
	u32 := func(at int) uint32 { return le.Uint32(b[at:]) }
	s.info = SectionInfo{
		Log: le.Uint64(b), FirstSeq: le.Uint64(b[8:]), LastSeq: le.Uint64(b[16:]),
		FirstTime: int64(le.Uint64(b[24:])), LastTime: int64(le.Uint64(b[32:])), Bytes: le.Uint64(b[40:]),
		Count: u32(48), Keys: u32(52),
	}
	s.nData, s.nCols, s.nPosts, s.nKeys, s.nBloom = u32(56), u32(60), u32(64), u32(68), u32(72)
	s.bloomBits = u32(76)
	rest := b[sectionFixed:]
	cut := func(n uint32, size int) (t []byte) {
		if uint64(n)*uint64(size) > uint64(len(rest)) {
			rest = nil
			return nil
		}
		t, rest = rest[:int(n)*size:int(n)*size], rest[int(n)*size:]
		return t
	}
	s.data, s.cols = cut(s.nData, dataEntrySize), cut(s.nCols, columnEntrySize)
	s.posts, s.blooms = cut(s.nPosts, pageEntrySize), cut(s.nBloom, pageEntrySize)
	s.keys, s.first = cut(s.nKeys, keyEntrySize), cut(u32(80), 1)
	want := sectionFixed + int64(s.nData)*dataEntrySize + int64(s.nCols)*columnEntrySize +
		(int64(s.nPosts)+int64(s.nBloom))*pageEntrySize + int64(s.nKeys)*keyEntrySize + int64(u32(80))
	pages := uint32((uint64(s.info.Count) + recordsPerPage - 1) / recordsPerPage)
	i := &s.info
	ok := int64(len(b)) == want && i.Count > 0 && i.Count <= MaxRecords && i.Keys > 0 && i.Keys <= i.Count &&
		s.nData > 0 && s.nData <= i.Count && s.nKeys > 0 && s.nKeys <= i.Keys &&
		s.nCols == pages && s.nPosts == pages &&
		i.LastSeq >= i.FirstSeq && i.LastSeq-i.FirstSeq >= uint64(i.Count-1)
	if !ok {
		return errTables
	}
	return nil
}

// Info sums the section up.
func (s *Section) Info() SectionInfo { return s.info }

func pageRef(b []byte) blockRef { return blockRef{off: int64(le.Uint64(b)), len: le.Uint32(b[8:])} }

func (s *Section) corrupt(ref blockRef, err error) error { return s.r.corrupt(ref.off, "%w", err) }

func (s *Section) dataEntry(i int) dataEntry {
	b := s.data[i*dataEntrySize:]
	return dataEntry{
		firstSeq: le.Uint64(b), firstTime: int64(le.Uint64(b[8:])), ref: pageRef(b[16:]),
		firstOrd: le.Uint32(b[32:]), count: le.Uint32(b[36:]),
	}
}

// dataBlock reads data block i; with keep it goes to the cache.
//
//nolint:revive // keep is what the cache is told, not a mode
func (s *Section) dataBlock(e *dataEntry, keep bool) (d dataBlock, err error) {
	read := s.r.scanBlock
	if keep {
		read = s.r.block
	}
	b, err := read(e.ref, kindData, s.info.Log)
	if err != nil {
		return d, err
	}
	if d, err = parseData(b, e.count); err == nil && (d.seq != e.firstSeq || d.time != e.firstTime) {
		err = errors.New("data block does not start with the record its table says")
	}
	if err != nil {
		return d, s.corrupt(e.ref, err)
	}
	return d, nil
}

// columns is one column page.
type columns struct {
	ref              blockRef
	firstSeq         uint64
	n                uint32
	gaps, sizes, ids packed
}

func (c *columns) seq(i uint32) uint64 { return c.firstSeq + uint64(i) + c.gaps.at(i) }

// columnPage reads column page i, which exists.
func (s *Section) columnPage(i uint32) (c columns, err error) {
	b := s.cols[int(i)*columnEntrySize:]
	c = columns{firstSeq: le.Uint64(b), ref: pageRef(b[8:]), n: min(recordsPerPage, s.info.Count-i*recordsPerPage)}
	raw, err := s.r.block(c.ref, kindColumns, s.info.Log)
	if err != nil {
		return c, err
	}
	var rest []byte
	if c.gaps, rest, err = parsePacked(raw, c.n); err != nil {
		return c, s.corrupt(c.ref, err)
	}
	if c.sizes, rest, err = parsePacked(rest, c.n); err != nil {
		return c, s.corrupt(c.ref, err)
	}
	if c.ids, rest, err = parsePacked(rest, c.n); err != nil || len(rest) != 0 {
		return c, s.corrupt(c.ref, errPacked)
	}
	return c, nil
}

// dense reports that no sequence is missing between the first and the last.
func (s *Section) dense() bool { return s.info.LastSeq-s.info.FirstSeq == uint64(s.info.Count-1) }

// Lower returns the ordinal of the first record at or after seq, deleted or not; Count if there is none.
func (s *Section) Lower(seq uint64) (uint32, error) {
	switch {
	case seq <= s.info.FirstSeq:
		return 0, nil
	case seq > s.info.LastSeq:
		return s.info.Count, nil
	case s.dense():
		return uint32(seq - s.info.FirstSeq), nil
	}
	page := sort.Search(int(s.nCols), func(i int) bool { return le.Uint64(s.cols[i*columnEntrySize:]) > seq })
	if page == 0 {
		return 0, s.r.corrupt(s.off, "the first column page starts above the section's first sequence")
	}
	page--
	c, err := s.columnPage(uint32(page))
	if err != nil {
		return 0, err
	}
	i := sort.Search(int(c.n), func(i int) bool { return c.seq(uint32(i)) >= seq })
	return uint32(page*recordsPerPage + i), nil
}

// Find returns the ordinal of the record at seq, deleted or not.
func (s *Section) Find(seq uint64) (ord uint32, ok bool, err error) {
	ord, err = s.Lower(seq)
	if err != nil || ord == s.info.Count {
		return 0, false, err
	}
	at, err := s.Seq(ord)
	return ord, at == seq && err == nil, err
}

// Seq returns the sequence of the record at ord, which is below Count.
func (s *Section) Seq(ord uint32) (uint64, error) {
	if s.dense() {
		return s.info.FirstSeq + uint64(ord), nil
	}
	c, err := s.columnPage(ord / recordsPerPage)
	if err != nil {
		return 0, err
	}
	return c.seq(ord % recordsPerPage), nil
}

// Size returns what the record at ord, which is below Count, counts for in its log's bytes.
func (s *Section) Size(ord uint32) (uint64, error) {
	c, err := s.columnPage(ord / recordsPerPage)
	if err != nil {
		return 0, err
	}
	return c.sizes.at(ord % recordsPerPage), nil
}

// KeyID returns the id of the key of the record at ord, which is below Count. Ids are the places of the keys in the
// dictionary, from 0.
func (s *Section) KeyID(ord uint32) (uint32, error) {
	c, err := s.columnPage(ord / recordsPerPage)
	if err != nil {
		return 0, err
	}
	return s.keyID(&c, ord%recordsPerPage)
}

func (s *Section) keyID(c *columns, i uint32) (uint32, error) {
	id := c.ids.at(i)
	if id >= uint64(s.info.Keys) {
		return 0, s.r.corrupt(c.ref.off, "key id %d is beyond the section's %d keys", id, s.info.Keys)
	}
	return uint32(id), nil
}

// blockOf returns the index of the data block that holds ord.
func (s *Section) blockOf(ord uint32) (int, error) {
	i := sort.Search(int(s.nData), func(i int) bool { return le.Uint32(s.data[i*dataEntrySize+32:]) > ord }) - 1
	if i < 0 || ord-s.dataEntry(i).firstOrd >= s.dataEntry(i).count {
		return 0, s.r.corrupt(s.off, "the table of data blocks has no record %d", ord)
	}
	return i, nil
}

// ByOrdinal returns the record at ord, which is below Count, deleted or not.
func (s *Section) ByOrdinal(ord uint32) (Record, error) {
	i, err := s.blockOf(ord)
	if err != nil {
		return Record{}, err
	}
	e := s.dataEntry(i)
	d, err := s.dataBlock(&e, true)
	if err != nil {
		return Record{}, err
	}
	r, err := d.record(ord - e.firstOrd)
	if err != nil {
		return Record{}, s.corrupt(e.ref, err)
	}
	return r, nil
}

// Get returns the record at seq if the section has it and it is not deleted.
func (s *Section) Get(seq uint64, dead *Tombstones) (r Record, ok bool, err error) {
	ord, ok, err := s.Find(seq)
	if err != nil || !ok || dead.Contains(ord) {
		return Record{}, false, err
	}
	if r, err = s.ByOrdinal(ord); err != nil {
		return Record{}, false, err
	}
	if r.Seq != seq {
		return Record{}, false, s.r.corrupt(s.off, "record %d has sequence %d, its column says %d", ord, r.Seq, seq)
	}
	return r, true, nil
}

// AtTime returns the ordinal of the first record with a time >= unixNano, deleted or not; Count if there is none.
func (s *Section) AtTime(unixNano int64) (uint32, error) {
	switch {
	case unixNano <= s.info.FirstTime:
		return 0, nil
	case unixNano > s.info.LastTime:
		return s.info.Count, nil
	}
	// it is in the last block that starts before unixNano, or the first record behind that
	i := sort.Search(int(s.nData), func(i int) bool { return s.dataEntry(i).firstTime >= unixNano }) - 1
	if i < 0 {
		return 0, nil
	}
	e := s.dataEntry(i)
	d, err := s.dataBlock(&e, true)
	if err != nil {
		return 0, err
	}
	pos := dataFixed
	for n := range d.count {
		var r Record
		if pos, err = d.at(pos, &r); err != nil {
			return 0, s.corrupt(e.ref, err)
		}
		if r.Time >= unixNano {
			return e.firstOrd + n, nil
		}
	}
	return e.firstOrd + e.count, nil
}

// Scan calls fn for the records from ord on that are not deleted, ascending, until fn returns false. r is
// valid during the call only. It reads each block once and leaves the cache as it is: it is for walks over all of a
// section.
func (s *Section) Scan(from uint32, dead *Tombstones, fn func(ord uint32, r *Record) bool) error {
	if from >= s.info.Count {
		return nil
	}
	i, err := s.blockOf(from)
	if err != nil {
		return err
	}
	var r Record
	for ; i < int(s.nData); i++ {
		e := s.dataEntry(i)
		d, err := s.dataBlock(&e, false)
		if err != nil {
			return err
		}
		pos := dataFixed
		for n := range d.count {
			if pos, err = d.at(pos, &r); err != nil {
				return s.corrupt(e.ref, err)
			}
			ord := e.firstOrd + n
			if ord >= from && !dead.Contains(ord) && !fn(ord, &r) {
				return nil
			}
		}
	}
	return nil
}
