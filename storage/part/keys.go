package part

import (
	"bytes"
	"errors"
	"sort"
)

// keyPage is a page of the dictionary.
type keyPage struct {
	ref      blockRef
	firstID  uint32
	n        uint32
	entries  []byte
	restarts []byte
	pos      packed // postings before each key
}

var errKeys = errors.New("key page's lengths do not fit it")

func (s *Section) keyEntryID(i int) uint32 { return le.Uint32(s.keys[i*keyEntrySize:]) }

// firstKey returns the first key of key page i.
func (s *Section) firstKey(i int) ([]byte, error) {
	b := s.keys[i*keyEntrySize:]
	off, n := le.Uint32(b[24:]), le.Uint32(b[28:])
	if off > uint32(len(s.first)) || n > uint32(len(s.first))-off {
		return nil, s.r.corrupt(s.off, "first key of key page %d is not in the section's head", i)
	}
	return s.first[off : off+n], nil
}

// keyPage reads key page i, which exists.
func (s *Section) keyPage(i int) (p keyPage, err error) {
	p = keyPage{ref: pageRef(s.keys[i*keyEntrySize+8:]), firstID: s.keyEntryID(i)}
	end := s.info.Keys
	if i+1 < int(s.nKeys) {
		end = s.keyEntryID(i + 1)
	}
	if p.firstID >= end || end > s.info.Keys {
		return p, s.r.corrupt(s.off, "key page %d has ids %d to %d", i, p.firstID, end)
	}
	p.n = end - p.firstID
	raw, err := s.r.block(p.ref, kindKeys, s.info.Log)
	if err != nil {
		return p, err
	}
	if err := p.parse(raw); err != nil {
		return p, s.corrupt(p.ref, err)
	}
	return p, nil
}

func (p *keyPage) parse(b []byte) error {
	if len(b) < 8 || le.Uint32(b) != p.n {
		return errKeys
	}
	size, rest := le.Uint32(b[4:]), b[8:]
	restarts := (uint64(p.n) + restartEvery - 1) / restartEvery * 4
	if uint64(size)+restarts > uint64(len(rest)) {
		return errKeys
	}
	p.entries, rest = rest[:size], rest[size:]
	p.restarts, rest = rest[:restarts], rest[restarts:]
	var err error
	p.pos, rest, err = parsePacked(rest, p.n)
	if err == nil && len(rest) != 0 {
		err = errKeys
	}
	return err
}

// keyWalk reads the keys of a page one after the other.
type keyWalk struct {
	p   *keyPage
	pos int
	i   uint32 // of the next key
	key []byte // the last one read; valid until the next
}

// walk starts at the restart point at or before key i of the page.
func (p *keyPage) walk(i uint32) keyWalk {
	i -= i % restartEvery
	w := keyWalk{p: p, i: i}
	if i < p.n {
		w.pos = int(le.Uint32(p.restarts[i/restartEvery*4:]))
	}
	return w
}

func (w *keyWalk) next() error {
	b := w.p.entries
	shared, pos := uvarint(b, w.pos)
	n, pos := uvarint(b, pos)
	if pos < 0 || shared > uint64(len(w.key)) || n > uint64(len(b)-pos) || w.i%restartEvery == 0 && shared != 0 {
		return errKeys
	}
	w.key = append(w.key[:shared], b[pos:pos+int(n)]...)
	w.pos = pos + int(n)
	w.i++
	return nil
}

// restartKey returns the key that stands in full at restart point i.
func (p *keyPage) restartKey(i int) ([]byte, error) {
	w := p.walk(uint32(i) * restartEvery)
	_, pos := uvarint(p.entries, w.pos)
	n, pos := uvarint(p.entries, pos)
	if pos < 0 || n > uint64(len(p.entries)-pos) {
		return nil, errKeys
	}
	return p.entries[pos : pos+int(n)], nil
}

// lower returns the place in the page of the first key >= key, and whether it is key; n if all are below.
func (p *keyPage) lower(key []byte) (i uint32, equal bool, err error) {
	restarts := len(p.restarts) / 4
	r := sort.Search(restarts, func(i int) bool {
		k, e := p.restartKey(i)
		if e != nil {
			err = e
			return true
		}
		return bytes.Compare(k, key) > 0
	})
	if err != nil {
		return 0, false, err
	}
	w := p.walk(uint32(max(r-1, 0)) * restartEvery)
	for w.i < p.n {
		i := w.i
		if err := w.next(); err != nil {
			return 0, false, err
		}
		if c := bytes.Compare(w.key, key); c >= 0 {
			return i, c == 0, nil
		}
	}
	return p.n, false, nil
}

// keyLower returns the id of the first key >= key, and whether it is key; Keys if all are below.
func (s *Section) keyLower(key []byte) (id uint32, equal bool, err error) {
	page := sort.Search(int(s.nKeys), func(i int) bool {
		k, e := s.firstKey(i)
		if e != nil {
			err = e
			return true
		}
		return bytes.Compare(k, key) > 0
	}) - 1
	if err != nil {
		return 0, false, err
	}
	if page < 0 {
		return 0, false, nil
	}
	p, err := s.keyPage(page)
	if err != nil {
		return 0, false, err
	}
	i, equal, err := p.lower(key)
	if err != nil {
		return 0, false, s.corrupt(p.ref, err)
	}
	return p.firstID + i, equal, nil
}

// FindKey returns the id of key if a record of the section, deleted or not, has it.
func (s *Section) FindKey(key []byte) (id uint32, ok bool, err error) {
	if s.nBloom > 0 {
		maybe, err := s.mayHave(key)
		if err != nil || !maybe {
			return 0, false, err
		}
	}
	return s.keyLower(key)
}

// mayHave asks the bloom filter.
func (s *Section) mayHave(key []byte) (bool, error) {
	h := hashKey(key)
	ref := pageRef(s.blooms[int(bloomPage(h, s.nBloom))*pageEntrySize:])
	page, err := s.r.block(ref, kindBloom, s.info.Log)
	if err != nil {
		return false, err
	}
	if len(page) == 0 || uint64(len(page))*8 != uint64(s.bloomBits) {
		return false, s.r.corrupt(ref.off, "bloom page has %d bytes, want %d bits", len(page), s.bloomBits)
	}
	return bloomHas(page, h), nil
}

// dict looks things up in the dictionary, remembering the page it used last.
type dict struct {
	s    *Section
	page int
	p    keyPage
}

func (s *Section) dict() dict { return dict{s: s, page: -1} }

// at makes p the page that holds id, which is below Keys.
func (d *dict) at(id uint32) error {
	if d.page >= 0 && id >= d.p.firstID && id-d.p.firstID < d.p.n {
		return nil
	}
	page := sort.Search(int(d.s.nKeys), func(i int) bool { return d.s.keyEntryID(i) > id }) - 1
	if page < 0 {
		return d.s.r.corrupt(d.s.off, "no key page has id %d", id)
	}
	p, err := d.s.keyPage(page)
	if err != nil {
		return err
	}
	if id < p.firstID || id-p.firstID >= p.n {
		return d.s.r.corrupt(d.s.off, "no key page has id %d", id)
	}
	d.page, d.p = page, p
	return nil
}

// pos returns how many postings there are before those of id, which may be Keys.
func (d *dict) pos(id uint32) (uint32, error) {
	if id >= d.s.info.Keys {
		return d.s.info.Count, nil
	}
	if err := d.at(id); err != nil {
		return 0, err
	}
	v := d.p.pos.at(id - d.p.firstID)
	if v > uint64(d.s.info.Count) {
		return 0, d.s.r.corrupt(d.p.ref.off, "postings of key %d start at %d, beyond the section's records", id, v)
	}
	return uint32(v), nil
}

// span returns where the postings of id are.
func (d *dict) span(id uint32) (lo, hi uint32, err error) {
	if hi, err = d.pos(id + 1); err != nil {
		return 0, 0, err
	}
	if lo, err = d.pos(id); err != nil {
		return 0, 0, err
	}
	if lo >= hi {
		return 0, 0, d.s.r.corrupt(d.s.off, "key %d has postings %d to %d", id, lo, hi)
	}
	return lo, hi, nil
}

// Key returns the key with that id, which is below Keys.
func (s *Section) Key(id uint32) ([]byte, error) {
	d := s.dict()
	if err := d.at(id); err != nil {
		return nil, err
	}
	i := id - d.p.firstID
	w := d.p.walk(i)
	for w.i <= i {
		if err := w.next(); err != nil {
			return nil, s.corrupt(d.p.ref, err)
		}
	}
	return w.key, nil
}

// postings reads posting entries, remembering the page it used last.
type postings struct {
	s    *Section
	page int64
	ref  blockRef
	p    packed
}

func (s *Section) postings() postings { return postings{s: s, page: -1} }

// at returns the ordinal at posting position pos, which is below Count.
func (p *postings) at(pos uint32) (uint32, error) {
	if page := pos / recordsPerPage; int64(page) != p.page {
		ref := pageRef(p.s.posts[int(page)*pageEntrySize:])
		raw, err := p.s.r.block(ref, kindPostings, p.s.info.Log)
		if err != nil {
			return 0, err
		}
		a, rest, err := parsePacked(raw, min(recordsPerPage, p.s.info.Count-page*recordsPerPage))
		if err != nil || len(rest) != 0 {
			return 0, p.s.corrupt(ref, errPacked)
		}
		p.page, p.p, p.ref = int64(page), a, ref
	}
	ord := p.p.at(pos % recordsPerPage)
	if ord >= uint64(p.s.info.Count) {
		return 0, p.s.r.corrupt(p.ref.off, "posting %d is record %d, beyond the section's", pos, ord)
	}
	return uint32(ord), nil
}

// lower returns the first position in [lo, hi) whose ordinal is >= ord; hi if there is none.
func (p *postings) lower(lo, hi, ord uint32) (uint32, error) {
	for lo < hi {
		mid := lo + (hi-lo)/2
		at, err := p.at(mid)
		if err != nil {
			return 0, err
		}
		if at < ord {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}
