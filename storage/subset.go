package storage

import (
	"slices"
	"sort"

	"github.com/noetl/ehdb-gateway/storage/part"
)

// Subset follows records of a log that were picked one by one, and knows at every moment exactly how many of them are
// still to be passed. A Subset is used by one goroutine at a time and costs nothing while it is not used; at its next
// use, what was removed from the log meanwhile costs a binary search each.
type Subset struct {
	l       *Log
	v       *view
	removal uint64 // removals accounted for
	members []member
	live    int // of members
}

// member is a record of a Subset; members are ascending.
type member struct {
	seq  uint64
	gone bool
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
		s.members[0].gone = true
		s.live--
		s.trim()
	}
}

// Add takes in the visible record at seq, which is above all that are there already; false if it is not in the log.
func (s *Subset) Add(seq uint64) bool {
	one := s.l.NewSubset([]uint64{seq})
	switch {
	case one.Len() == 0:
		return false
	case s.live == 0:
		*s = *one
		return true
	}
	if len(s.members) > 2*s.live+subsetSlack {
		s.members = slices.DeleteFunc(s.members, func(m member) bool { return m.gone })
	}
	s.members = append(s.members, member{seq: seq})
	s.live++
	return true
}

// subsetSlack is how many members that are gone a growing Subset keeps at least, beside as many as there are live ones.
const subsetSlack = 64

// Remove leaves the record at seq out from now on, if it is there.
func (s *Subset) Remove(seq uint64) {
	if i, ok := s.find(seq); ok {
		s.members[i].gone = true
		s.live--
		s.trim()
	}
}

// Has reports whether the record at seq is one of those that Len counts.
func (s *Subset) Has(seq uint64) bool {
	s.sync()
	_, ok := s.find(seq)
	return ok
}

// find returns where the member with seq is; false if it is not there or gone.
func (s *Subset) find(seq uint64) (int, bool) {
	i := sort.Search(len(s.members), func(i int) bool { return s.members[i].seq >= seq })
	return i, i < len(s.members) && s.members[i].seq == seq && !s.members[i].gone
}

// Seqs returns the sequences of what is still in the log and not passed.
func (s *Subset) Seqs() []uint64 {
	s.sync()
	seqs := make([]uint64, 0, s.live)
	for _, m := range s.members {
		if !m.gone {
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
	known := s.v == s.l.vis && s.l.removals.since(s.removal, s.lose)
	if known {
		s.removal = s.l.removals.n
	}
	s.l.mu.RUnlock()
	if !known {
		s.look()
	}
	s.trim()
}

// lose takes note of a removal; false if it may have been of any of several.
func (s *Subset) lose(r *removal) bool {
	i, there := s.find(r.seq)
	if r.end != 0 {
		return i == len(s.members) || s.members[i].seq >= r.end
	}
	if there {
		s.members[i].gone = true
		s.live--
	}
	return true
}

// look finds every member in the log, and keeps those that are there.
func (s *Subset) look() {
	kept := s.members[:0]
	var inParts []uint64
	s.l.mu.RLock()
	v := s.l.vis
	last := v.lastSealed()
	views, err := snapshot(v.sealed, visible)
	s.v, s.removal = v, s.l.removals.n
	for _, m := range s.members {
		switch {
		case m.gone:
		case m.seq <= last:
			inParts = append(inParts, m.seq)
		case v.has(m.seq):
			kept = append(kept, m)
		}
	}
	s.l.mu.RUnlock()
	defer release(views)
	s.members = append(make([]member, 0, len(inParts)+len(kept)), s.inParts(views, inParts, err)...)
	s.members = append(s.members, kept...)
	s.live = len(s.members)
}

// has reports whether the visible record at seq is in RAM.
func (v *view) has(seq uint64) bool {
	for _, x := range v.ram() {
		if ord, ok := x.find(seq); ok && ord < x.vis {
			return true
		}
	}
	return false
}

// inParts returns those of seqs that are in views.
func (s *Subset) inParts(views []sealedView, seqs []uint64, err error) (out []member) {
	for _, seq := range seqs {
		i := sort.Search(len(views), func(i int) bool { return views[i].info.LastSeq >= seq })
		if i == len(views) || err != nil {
			continue
		}
		var (
			sec *part.Section
			ord uint32
			ok  bool
		)
		if sec, err = views[i].section(); err == nil {
			ord, ok, err = sec.Find(seq)
		}
		if ok && err == nil && !views[i].dead.Contains(ord) {
			out = append(out, member{seq: seq})
		}
	}
	s.l.fault(err)
	return out
}

// trim drops the members at the front that are gone, so that the first one is there.
func (s *Subset) trim() {
	if s.live == 0 {
		s.members = nil
		return
	}
	for s.members[0].gone {
		s.members = s.members[1:]
	}
}
