package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/noetl/ehdb-gateway/storage/tail"
)

var (
	// errSwept ends a sweep because the store is closing.
	errSwept = errors.New("store is closing")
	// errCramped ends a sweep because what room there is must be left for deletions.
	errCramped = errors.New("no room to move records")
)

const (
	// moveBatch is how many bytes are moved before the sweeper waits for them to be durable: so it takes no more than a
	// small share of what the disk can do.
	moveBatch = 256 << 10
	// spareSegments of garbage are not worth a move.
	spareSegments = 4
	spareSlabs    = 16
	// emptyFactor: a tail this many times larger than what is live in it is as good as empty.
	emptyFactor = 16
)

// sweepLoop gives back the space of what is dead. Whole segments at the front of the tail are dropped when nothing in
// them is needed; what is needed is written again at the end when more than half of what is on disk is dead, so that
// a few records that stay do not keep everything that was written after them. In a memory store the same is done slab
// by slab.
func (s *Store) sweepLoop() {
	sp := &s.w.space
	wait := minRetry
	for {
		var again <-chan time.Time
		if s.w.lacksRoom() {
			again = time.After(wait)
			wait = min(2*wait, maxRetry)
		} else {
			wait = minRetry
		}
		select {
		case <-s.quit:
			return
		case <-sp.wake:
		case <-again:
		}
		err := s.sweep()
		if errors.Is(err, tail.ErrPoisoned) {
			s.w.poison(err)
		}
		if err != nil && !errors.Is(err, ErrStopped) && !errors.Is(err, errSwept) {
			s.opts.Events.SweepFailed(err)
		}
	}
}

func (s *Store) sweep() error {
	if s.w.tail == nil {
		return s.sweepSlabs()
	}
	if !s.w.lacksRoom() {
		if err := s.w.reserve(); err != nil {
			return err
		}
	}
	if err := s.sweepSegments(); err != nil && !errors.Is(err, errCramped) {
		return err
	}
	if s.w.lacksRoom() {
		return nil // it was tried after each step
	}
	return s.w.reserve()
}

// sweepSegments drops what can be dropped, and moves what is in the way, until neither is worth it. Each step frees a
// segment, and what it held is durable elsewhere before.
func (s *Store) sweepSegments() error {
	for {
		if err := s.dropDead(); err != nil {
			return err
		}
		if s.w.lacksRoom() {
			if err := s.w.reserve(); err != nil {
				return err
			}
		}
		segs := s.w.space.starts()
		lacking := s.w.lacksRoom()
		if lacking && !s.planMoves(segs, maxEffort) {
			s.w.explain()
			return nil
		}
		if !lacking && (len(segs) < 2 || !s.worthMoving(segs)) {
			return nil
		}
		if err := s.moveOut(segs[0].sec, segs[1].sec, lacking); err != nil {
			return err
		}
		if s.firstNeeded() < segs[1].sec {
			return nil // something in it dies just now: that will wake the sweeper again
		}
	}
}

// worthMoving reports whether to move what is live out of the first segment: when more than half of the tail's bytes
// are dead, or nearly all. A store that lacks room, or will soon, cannot be so generous: see planMoves.
func (s *Store) worthMoving(segs []segmentStart) bool {
	if t, ok := s.w.tail.(roomy); ok && s.w.nearlyFull(t.Step()) && s.planMoves(segs, earlyEffort) {
		return true
	}
	live := s.w.space.live.Load()
	s.mu.Lock()
	for _, l := range s.states {
		live += l.footprint()
	}
	live += int64(len(s.logs)+len(s.states)) * maxFixed
	s.mu.Unlock()
	return int64(len(segs)-spareSegments)*s.opts.SegmentSize > 2*live || emptyFactor*live < s.w.tail.Size()
}

// firstNeeded returns the first section that holds something that is needed.
func (s *Store) firstNeeded() uint64 {
	w := s.w
	segs := w.space.starts()
	if len(segs) == 0 {
		return 0
	}
	need := segs[len(segs)-1].sec // the segment that is being written stays
	s.mu.Lock()
	for _, l := range s.logs {
		need = min(need, l.needs())
	}
	for _, l := range s.states {
		need = min(need, l.needs())
	}
	s.mu.Unlock()
	for id := segs[0].sec; id < need; id++ {
		if sec := w.secs.get(id); sec != nil && sec.live.Load() != 0 {
			return id
		}
	}
	return need
}

// dropDead drops the segments at the front in which nothing is needed.
func (s *Store) dropDead() error {
	segs := s.w.space.starts()
	need := s.firstNeeded()
	n := 0
	for n+1 < len(segs) && segs[n+1].sec <= need {
		n++
	}
	if n == 0 {
		return nil
	}
	// What is dropped may hold the last trace of a log id and of a shard's position. And what makes it dead, a
	// checkpoint say, may be queued still: it must be durable first. Writing the store record waits for both.
	if err := s.writeStore(); err != nil {
		return err
	}
	if err := s.w.tail.DropBefore(segs[n].lsn); err != nil {
		return fmt.Errorf("drop segments before block %d: %w", segs[n].lsn, err)
	}
	s.w.space.dropped.Add(uint64(n))
	s.w.space.forget(segs[n].lsn)
	s.w.mu.Lock()
	s.w.secs.trim(segs[n].sec)
	s.w.mu.Unlock()
	return nil
}

// writeStore appends a store record and waits until it is durable.
func (s *Store) writeStore() error {
	s.mu.Lock()
	w := s.w
	heads := make([]uint64, len(w.shards))
	done := make(chan error, 1)
	w.mu.Lock()
	for i := range w.shards {
		heads[i] = w.shards[i].head
	}
	sh := &w.shards[0]
	n := maxFixed + len(heads)*binary.MaxVarintLen64
	_, err := w.put(sh, n, func(err error) { done <- err }, func(b []byte) []byte {
		return appendStore(b, s.nextID, heads)
	})
	w.mu.Unlock()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.await(done)
}

// await waits for something appended to be durable.
func (s *Store) await(done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-s.quit:
		return errSwept
	}
}
