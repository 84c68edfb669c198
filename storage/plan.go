package storage

import "sort"

const (
	// maxPlan bounds how many segments ahead are looked at.
	maxPlan = 16
	// minGain is what part of a step a plan must free, so that a full disk is not worn by moves that free next to
	// nothing; maxEffort is how many bytes may be written for each that is freed, earlyEffort the same while messages
	// are still taken.
	minGain     = 16
	maxEffort   = 16
	earlyEffort = 4
)

// planMoves is for a store that lacks room, or will soon. Only the first segment can be freed, and only into the room
// that is kept. It reports whether doing that, and the same with those after it until it pays, is possible: each
// segment's live bytes must fit what room there is by then, and enough dead ones must go.
func (s *Store) planMoves(segs []segmentStart, effort int64) bool {
	t, ok := s.w.tail.(roomy)
	if !ok {
		return false
	}
	step := t.Step()
	room := t.Room()
	room -= min(step/roomMargin, room/2)
	others := s.otherNeeds(segs)
	var dead, cost int64
	for i := 0; i+1 < len(segs) && i < maxPlan; i++ {
		used, live := s.w.usage(segs[i].sec, segs[i+1].sec)
		live += others[i]
		write := live + live/minGain // they are in other blocks then
		if write > room {
			return false
		}
		room -= write
		if 2*used > step { // not one of the small ones of a new directory: it is written again at once
			room += step
		}
		cost += write
		dead += used - live
		if dead >= step/minGain && dead >= cost/effort {
			return true
		}
	}
	return false
}

// usage returns how many bytes the sections in [from, to), of a segment that is not written any more, have, and how
// many of them live messages.
func (w *writer) usage(from, to uint64) (used, live int64) {
	for id := from; id < to; id++ {
		if sec := w.secs.get(id); sec != nil {
			used += int64(sec.size)
			live += int64(sec.live.Load())
		}
	}
	return used, live
}

// otherNeeds returns how many bytes must be written again for what is not a message, by the segment it keeps.
func (s *Store) otherNeeds(segs []segmentStart) []int64 {
	needs := make([]int64, len(segs))
	add := func(sec uint64, n int64) {
		i := sort.Search(len(segs), func(i int) bool { return segs[i].sec > sec })
		needs[max(i-1, 0)] += n
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logs {
		add(l.needs(), int64(maxLog(&l.meta)))
	}
	for _, l := range s.states {
		add(l.needs(), l.footprint()+int64(maxLog(&l.meta)))
	}
	return needs
}
