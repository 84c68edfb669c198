package inspect

import (
	"slices"
	"sort"
)

// Log is a log, or a state log, as it is on disk.
type Log struct {
	ID       uint64
	Name     string
	State    bool // a state log
	Shards   []uint64
	LastSeq  uint64 // the last sequence given
	LastTime int64

	d       *Directory
	known   bool
	saw     []uint64 // shards its records are in
	entries []entry  // of the write-ahead log, ascending by sequence
	first   int      // no entry before it is live
	late    map[uint64]entry
	changes []entry // of a state log; seq is not used
	gone    []Run   // removed by records of the write-ahead log, of what may be in parts
	holes   int     // of Directory.Holes, those before its last record
	parts   []*Section
	sealed  uint64    // records up to this sequence are accounted for in parts
	skip    uint64    // of a state log: what has a position in its shard below this is in base
	base    []*Record // of a state log: what the manifest holds of it
}

// entry says where a record of the write-ahead log is.
type entry struct {
	seq        uint64
	block      uint32 // in Directory.blocks
	off        uint32 // in the block's body, of the record's kind
	size       uint32 // bytes of key, header and data
	dead       bool
	checkpoint bool
}

func newEntry(at int, rec *WALRecord) entry {
	return entry{
		seq: rec.Seq, block: uint32(at), off: uint32(rec.off),
		size:       uint32(len(rec.Key) + len(rec.Header) + len(rec.Data)),
		checkpoint: rec.Kind == KindCheckpoint,
	}
}

func (l *Log) sawShard(s uint64) {
	if !slices.Contains(l.saw, s) {
		l.saw = append(l.saw, s)
	}
}

func (l *Log) add(at int, rec *WALRecord) {
	l.entries = append(l.entries, newEntry(at, rec))
	l.LastSeq, l.LastTime = rec.Seq, max(l.LastTime, rec.Time)
}

// lower returns the index of the first entry at or above seq.
func (l *Log) lower(seq uint64) int {
	return sort.Search(len(l.entries), func(i int) bool { return l.entries[i].seq >= seq })
}

// moved notes a record that was written again. If its first place is gone it is new here.
func (l *Log) moved(at int, rec *WALRecord) {
	if rec.Seq <= l.sealed {
		return
	}
	e := newEntry(at, rec)
	if i := l.lower(rec.Seq); i < len(l.entries) && l.entries[i].seq == rec.Seq && !l.entries[i].dead {
		l.entries[i] = e
		return
	}
	if l.late == nil {
		l.late = map[uint64]entry{}
	}
	l.late[rec.Seq] = e
	l.LastSeq, l.LastTime = max(l.LastSeq, rec.Seq), max(l.LastTime, rec.Time)
}

// remove takes out the records with a sequence in [from, to).
func (l *Log) remove(from, to uint64) {
	for i := max(l.lower(from), l.first); i < len(l.entries) && l.entries[i].seq < to; i++ {
		l.entries[i].dead = true
	}
	for l.first < len(l.entries) && l.entries[l.first].dead {
		l.first++
	}
	for seq := range l.late {
		if seq >= from && seq < to {
			delete(l.late, seq)
		}
	}
	if l.d.Manifest != nil && to > from {
		l.gone = addRun(l.gone, Run{from, to - from})
	}
}

// addRun adds r to runs that are disjoint and ascending.
func addRun(runs []Run, r Run) []Run {
	lo := sort.Search(len(runs), func(i int) bool { return runs[i].First+runs[i].N >= r.First })
	hi := lo
	end := r.First + r.N
	for hi < len(runs) && runs[hi].First <= end {
		r.First = min(r.First, runs[hi].First)
		end = max(end, runs[hi].First+runs[hi].N)
		hi++
	}
	r.N = end - r.First
	return slices.Replace(runs, lo, hi, r)
}

func hasSeq(runs []Run, seq uint64) bool {
	i := sort.Search(len(runs), func(i int) bool { return runs[i].First > seq }) - 1
	return i >= 0 && seq-runs[i].First < runs[i].N
}

func (l *Log) change(at int, rec *WALRecord) {
	if rec.Pos < l.skip {
		return
	}
	if rec.Kind == KindCheckpoint {
		l.begin()
	}
	l.changes = append(l.changes, newEntry(at, rec))
}

// begin makes l a state log that holds nothing.
func (l *Log) begin() { l.changes, l.base = nil, nil }

// finish puts late records where they belong.
func (l *Log) finish() {
	if len(l.late) == 0 {
		return
	}
	for _, e := range l.late {
		l.entries = append(l.entries, e)
	}
	l.late, l.first = nil, 0
	slices.SortStableFunc(l.entries, func(a, b entry) int {
		switch {
		case a.seq < b.seq:
			return -1
		case a.seq > b.seq:
			return 1
		}
		return 0
	})
}

func (l *Log) firstBlock() (at int, ok bool) {
	for _, list := range [][]entry{l.entries, l.changes} {
		if len(list) > 0 {
			return int(list[0].block), true
		}
	}
	return 0, false
}
