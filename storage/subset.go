package storage

import "sort"

// Subset follows records of a log that were picked one by one, and knows at every moment exactly how many of them are
// still to be passed. A Subset is used by one goroutine at a time and costs nothing while it is not used; at its next
// use, what was removed from the log meanwhile costs a binary search each.
type Subset struct {
	l       *Log
	idx     *index
	removal uint64 // removals accounted for
	members []member
	live    int // of members
}

// member is a record of a Subset; members are ascending.
type member struct {
	seq uint64 // 0: gone
	ord uint64
}

// NewSubset returns the subset of the visible records with these sequences, which are ascending.
func (l *Log) NewSubset(seqs []uint64) *Subset {
	s := &Subset{l: l, members: make([]member, len(seqs)), live: len(seqs)}
	for i, seq := range seqs {
		s.members[i].seq = seq
	}
	return s
}

// Len returns how many of the records are still in the log and not passed.
func (s *Subset) Len() int {
	s.sync()
	return s.live
}

// First returns the sequence of the first of them; false if there is none.
func (s *Subset) First() (seq uint64, ok bool) {
	s.sync()
	if s.live == 0 {
		return 0, false
	}
	return s.members[0].seq, true
}

// LenAfter returns what Len is after Pass(seq); seq is what First gave.
func (s *Subset) LenAfter(seq uint64) int {
	s.sync()
	if s.live > 0 && s.members[0].seq <= seq {
		return s.live - 1
	}
	return s.live
}

// Pass leaves behind what is at or below seq.
func (s *Subset) Pass(seq uint64) {
	s.sync()
	for s.live > 0 && s.members[0].seq <= seq {
		s.members[0].seq = 0
		s.live--
		s.trim()
	}
}

// Seqs returns the sequences of what is still in the log and not passed.
func (s *Subset) Seqs() []uint64 {
	s.sync()
	seqs := make([]uint64, 0, s.live)
	for _, m := range s.members {
		if m.seq != 0 {
			seqs = append(seqs, m.seq)
		}
	}
	return seqs
}

// sync accounts for what left the log since the last use.
func (s *Subset) sync() {
	if s.live == 0 {
		return
	}
	s.l.mu.RLock()
	defer s.l.mu.RUnlock()
	x := s.l.vis
	if s.idx == x && s.removal == x.removals {
		return
	}
	if s.idx != x || !x.removedSince(s.removal, s.lose) {
		s.look(x)
	}
	s.idx, s.removal = x, x.removals
	s.trim()
}

// lose takes note of a removal.
func (s *Subset) lose(r removal) {
	i := sort.Search(len(s.members), func(i int) bool { return s.members[i].ord >= r.ord })
	if i < len(s.members) && s.members[i].ord == r.ord && s.members[i].seq != 0 {
		s.members[i].seq = 0
		s.live--
	}
}

// look finds every member in x, and keeps those that are there. The log's lock is held.
func (s *Subset) look(x *index) {
	kept := s.members[:0]
	for _, m := range s.members {
		if m.seq == 0 {
			continue
		}
		if ord, ok := x.find(m.seq); ok && ord < x.vis {
			kept = append(kept, member{m.seq, ord})
		}
	}
	s.members, s.live = kept, len(kept)
}

// trim drops the members at the front that are gone, so that the first one is there.
func (s *Subset) trim() {
	if s.live == 0 {
		s.members = nil
		return
	}
	for s.members[0].seq == 0 {
		s.members = s.members[1:]
	}
}
