package part

import (
	"bytes"
	"errors"
	"fmt"
)

// Verify reads the whole file: every block against its checksum, the blocks' order and number, and in each section the
// records against the columns, the dictionary, the postings and the totals, all counted again. It leaves the cache as
// it is and returns the first thing that is wrong as a *CorruptError.
func (r *Reader) Verify() error {
	u := *r
	u.cache = noCache{}
	if err := u.checkDirectory(); err != nil {
		return err
	}
	if err := u.verifyBlocks(); err != nil {
		return err
	}
	d, err := u.directory()
	if err != nil {
		return err
	}
	u.cache = NewCache(verifyCache) // pages are asked for again and again
	u.file = u.cache.NextFile()
	for i := range d.n {
		s, err := u.section(d.at(i))
		if err != nil {
			return err
		}
		if err := s.verify(); err != nil {
			return err
		}
	}
	return nil
}

const verifyCache = 8 << 20

// verifyBlocks walks from block to block.
func (r *Reader) verifyBlocks() error {
	var meta, data uint64
	end := int64(r.foot.size) - footerSize
	n := uint32(0)
	var head [blockHeader]byte
	for off := int64(headerSize); off < end; n++ {
		if end-off < blockHeader {
			return r.corrupt(off, "%d bytes between the last block and the footer", end-off)
		}
		if err := r.readAt(head[:], off); err != nil {
			return err
		}
		h, err := decodeBlock(head[:], blockSeed(&r.head.id, off))
		if err != nil {
			return r.corrupt(off, "%w", err)
		}
		ref := blockRef{off: off, len: blockHeader + h.len}
		if h.number != n || uint64(h.len)+blockHeader > uint64(end-off) {
			return r.corrupt(off, "block number %d of %d bytes where number %d is to be", h.number, h.len, n)
		}
		if _, err := r.readBlock(ref, h.kind, h.log); err != nil {
			return err
		}
		if h.kind == kindData {
			data += uint64(ref.len)
		} else {
			meta += uint64(ref.len)
		}
		off += int64(ref.len)
	}
	if n != r.foot.blocks || data != r.foot.data || meta != r.foot.meta {
		return r.corrupt(end, "%d blocks with %d and %d bytes of data and metadata; the footer says %d with %d and %d",
			n, data, meta, r.foot.blocks, r.foot.data, r.foot.meta)
	}
	return nil
}

// verify counts everything in the section again.
func (s *Section) verify() error {
	next, err := s.verifyKeys()
	if err != nil {
		return err
	}
	v := sectionVerifier{s: s, next: next, posts: s.postings(), dict: s.dict(), page: -1}
	for i := range int(s.nData) {
		if err := v.block(i); err != nil {
			return err
		}
	}
	return v.totals()
}

// verifyKeys checks that the dictionary ascends and is in the bloom filter, and returns where the postings of each key
// start.
func (s *Section) verifyKeys() (next []uint32, err error) {
	var last []byte
	err = s.eachID(0, s.info.Keys, func(id uint32, d *dict, key []byte) (bool, error) {
		pos, err := d.pos(id)
		if err != nil {
			return false, err
		}
		switch {
		case id > 0 && bytes.Compare(key, last) <= 0:
			err = fmt.Errorf("key %d is not above the one before it", id)
		case id == 0 && pos != 0, id > 0 && pos <= next[id-1]:
			err = fmt.Errorf("postings of key %d start at %d", id, pos)
		}
		if err != nil {
			return false, s.corrupt(d.p.ref, err)
		}
		if found, ok, err := s.FindKey(key); err != nil || !ok || found != id {
			return false, errors.Join(err, s.r.corrupt(s.off, "key %d is not found by its bytes", id))
		}
		last = append(last[:0], key...)
		next = append(next, pos)
		return true, nil
	})
	return next, err
}

type sectionVerifier struct {
	s     *Section
	next  []uint32 // by key id: where its next posting is
	posts postings
	dict  dict
	cols  columns
	page  int64

	ord      uint32
	seq      uint64
	time     int64
	bytes    uint64
	keyCache map[uint32][]byte
}

func (v *sectionVerifier) block(i int) error {
	s := v.s
	e := s.dataEntry(i)
	if e.firstOrd != v.ord || e.count == 0 || e.count > s.info.Count-v.ord {
		return s.r.corrupt(s.off, "data block %d has %d records from %d on, after %d", i, e.count, e.firstOrd, v.ord)
	}
	d, err := s.dataBlock(&e, false)
	if err != nil {
		return err
	}
	pos := dataFixed
	for n := range d.count {
		if n%restartEvery == 0 && pos != int(le.Uint32(d.restarts[n/restartEvery*4:])) {
			return s.corrupt(e.ref, fmt.Errorf("restart of record %d is not where it is", v.ord))
		}
		var r Record
		if pos, err = d.at(pos, &r); err != nil {
			return s.corrupt(e.ref, err)
		}
		if err := v.record(&r); err != nil {
			return s.corrupt(e.ref, err)
		}
	}
	if pos != len(d.b) {
		return s.corrupt(e.ref, errData)
	}
	return nil
}

func (v *sectionVerifier) record(r *Record) error {
	s, ord := v.s, v.ord
	if ord > 0 && (r.Seq <= v.seq || r.Time < v.time) {
		return fmt.Errorf("record %d does not ascend: sequence %d after %d", ord, r.Seq, v.seq)
	}
	if p := ord / recordsPerPage; int64(p) != v.page {
		var err error
		if v.cols, err = s.columnPage(p); err != nil {
			return err
		}
		v.page = int64(p)
	}
	i := ord % recordsPerPage
	id, err := s.keyID(&v.cols, i)
	if err != nil {
		return err
	}
	if seq := v.cols.seq(i); seq != r.Seq {
		return fmt.Errorf("record %d has sequence %d, its column says %d", ord, r.Seq, seq)
	}
	key, err := v.keyOf(id)
	if err != nil {
		return err
	}
	if !bytes.Equal(key, r.Key) {
		return fmt.Errorf("record %d has another key than its column says", ord)
	}
	if v.next[id] >= s.info.Count {
		return fmt.Errorf("key %d has more records than postings", id)
	}
	at, err := v.posts.at(v.next[id])
	if err != nil {
		return err
	}
	if at != ord {
		return fmt.Errorf("record %d is not in the postings of its key", ord)
	}
	v.next[id]++
	v.ord, v.seq, v.time = ord+1, r.Seq, r.Time
	v.bytes += v.cols.sizes.at(i)
	if ord == 0 && (r.Seq != s.info.FirstSeq || r.Time != s.info.FirstTime) {
		return errors.New("first record is not the one the section's head says")
	}
	return nil
}

// keyOf returns a key of the dictionary. The last few thousand are remembered.
func (v *sectionVerifier) keyOf(id uint32) ([]byte, error) {
	if key, ok := v.keyCache[id]; ok {
		return key, nil
	}
	if len(v.keyCache) >= recordsPerPage || v.keyCache == nil {
		v.keyCache = map[uint32][]byte{}
	}
	key, err := v.s.Key(id)
	if err == nil {
		v.keyCache[id] = key
	}
	return key, err
}

func (v *sectionVerifier) totals() error {
	s := v.s
	i := &s.info
	switch {
	case v.ord != i.Count, v.seq != i.LastSeq, v.time != i.LastTime, v.bytes != i.Bytes:
		return s.r.corrupt(s.off, "section has %d records, %d bytes, ends at %d; its head says %d, %d, %d",
			v.ord, v.bytes, v.seq, i.Count, i.Bytes, i.LastSeq)
	}
	for id, pos := range v.next {
		end, err := v.dict.pos(uint32(id) + 1)
		if err != nil {
			return err
		}
		if pos != end {
			return s.r.corrupt(s.off, "key %d has fewer records than postings", id)
		}
	}
	return nil
}
