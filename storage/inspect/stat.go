package inspect

// LogStat sums up a log.
type LogStat struct {
	Log        uint64  `json:"log"`
	Name       string  `json:"name"`
	State      bool    `json:"state_log,omitempty"`
	Shards     []int   `json:"shards"`
	Messages   uint64  `json:"messages"` // live records; of a state log: its checkpoint and changes
	Bytes      uint64  `json:"bytes"`    // of their keys, headers and data
	FirstSeq   uint64  `json:"first_seq"`
	LastSeq    uint64  `json:"last_seq"`   // the last one given, live or not
	Parts      int     `json:"parts"`      // that hold records of it
	Segments   int     `json:"segments"`   // that hold records of it
	Dead       uint64  `json:"dead"`       // records on disk that are deleted
	DeadRatio  float64 `json:"dead_ratio"` // of all its records on disk
	LastTimeNS int64   `json:"last_time_ns"`
}

// Stat sums up l. In parts bytes are those that the section's head counts, less the same share for each dead record.
func (d *Directory) Stat(l *Log) LogStat {
	s := LogStat{
		Log: l.ID, Name: l.Name, State: l.State, LastSeq: l.LastSeq, LastTimeNS: l.LastTime, Shards: []int{},
	}
	for _, sh := range l.Shards {
		s.Shards = append(s.Shards, int(sh))
	}
	d.statTail(l, &s)
	d.statParts(l, &s)
	if all := s.Messages + s.Dead; all > 0 {
		s.DeadRatio = float64(s.Dead) / float64(all)
	}
	if s.Messages == 0 && !l.State {
		s.FirstSeq = s.LastSeq + 1
	}
	return s
}

func (d *Directory) statTail(l *Log, s *LogStat) {
	segs := map[int]bool{}
	list := l.entries
	if l.State {
		list = l.changes
	}
	for i := range list {
		e := &list[i]
		segs[d.blocks[e.block].Segment] = true
		if e.dead {
			s.Dead++
			continue
		}
		if s.Messages++; s.FirstSeq == 0 {
			s.FirstSeq = e.seq
		}
		s.Bytes += uint64(e.size)
	}
	s.Segments = len(segs)
}

func (d *Directory) statParts(l *Log, s *LogStat) {
	for _, sec := range l.parts {
		s.Parts++
		first, dead := uint64(0), uint64(0)
		for _, ref := range sec.data {
			b := &sec.Part.blocks[ref.at]
			n := sec.deadIn(l, ref)
			dead += n
			if n < uint64(b.count) && first == 0 {
				first = b.firstSeq
			}
		}
		s.Dead += dead
		live := uint64(sec.Count) - min(dead, uint64(sec.Count))
		s.Messages += live
		if sec.Count > 0 {
			s.Bytes += uint64(float64(sec.Bytes) * float64(live) / float64(sec.Count))
		}
		if first != 0 && (s.FirstSeq == 0 || first < s.FirstSeq) {
			s.FirstSeq = first
		}
	}
}

// deadIn counts the records of a block that are deleted; without a gap in its sequences where the write-ahead log
// deletes some of them.
func (s *Section) deadIn(l *Log, ref dataRef) (n uint64) {
	b := &s.Part.blocks[ref.at]
	if s.Dead != nil && ref.ordKnown && b.count > 0 {
		n = s.Dead.Rank(ref.firstOrd + b.count - 1)
		if ref.firstOrd > 0 {
			n -= s.Dead.Rank(ref.firstOrd - 1)
		}
	}
	for _, run := range l.gone {
		lo, hi := max(run.First, b.firstSeq), min(run.First+run.N-1, b.lastSeq)
		if lo <= hi {
			n += hi - lo + 1
		}
	}
	return min(n, uint64(b.count))
}
