package tail

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// segment is one file of the log.
type segment struct {
	segHeader
	path string
	end  atomic.Int64 // where its last whole block ends

	blocksMu sync.RWMutex
	blocks   []uint32 // of an encrypted segment: where its data blocks begin

	// Guarded by segments.mu.
	file    vfs.File // nil: not open
	refs    int      // users of file
	pinned  bool     // the active segment: its file stays open
	dropped bool     // out of the list: its file is closed with the last reference
	used    uint64   // segments.clock at its last use
}

// segments is the ordered list of segments with a bounded set of open files.
type segments struct {
	fs  vfs.FS
	max int // open files that are not pinned

	mu    sync.Mutex
	list  []*segment // ascending ids without a gap; the last is the active one
	open  int        // open files that are not pinned
	clock uint64
}

// find returns the segment with that id, or nil. The caller holds mu.
func (s *segments) find(id uint64) *segment {
	if len(s.list) == 0 || id < s.list[0].id || id-s.list[0].id >= uint64(len(s.list)) {
		return nil
	}
	return s.list[id-s.list[0].id]
}

// acquire returns a segment with its file open until release. ErrDropped if it is not there.
func (s *segments) acquire(id uint64) (*segment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg := s.find(id)
	if seg == nil {
		return nil, fmt.Errorf("segment %d: %w", id, ErrDropped)
	}
	if seg.file == nil {
		f, err := s.fs.OpenRead(seg.path)
		if err != nil {
			return nil, err
		}
		seg.file = f
		s.open++
	}
	s.clock++
	seg.used = s.clock
	seg.refs++
	if err := s.evictLocked(); err != nil {
		seg.refs--
		return nil, err
	}
	return seg, nil
}

// release ends one acquire.
func (s *segments) release(seg *segment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg.refs--
	if seg.dropped {
		return s.closeLocked(seg)
	}
	return s.evictLocked()
}

// evictLocked closes the files longest unused while more than max are open.
func (s *segments) evictLocked() error {
	for s.open > s.max {
		var oldest *segment
		for _, seg := range s.list {
			idle := seg.file != nil && seg.refs == 0 && !seg.pinned
			if idle && (oldest == nil || seg.used < oldest.used) {
				oldest = seg
			}
		}
		if oldest == nil {
			return nil // all in use: release evicts
		}
		if err := s.closeLocked(oldest); err != nil {
			return err
		}
	}
	return nil
}

// closeLocked closes seg's file unless somebody uses it.
func (s *segments) closeLocked(seg *segment) error {
	if seg.file == nil || seg.refs > 0 {
		return nil
	}
	f := seg.file
	seg.file = nil
	if !seg.pinned {
		s.open--
	}
	return f.Close()
}

// push makes seg, whose file is open, the active segment and unpins the one before it.
func (s *segments) push(seg *segment) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.list); n > 0 {
		s.unpinLocked(s.list[n-1])
	}
	seg.pinned = true
	s.list = append(s.list, seg)
	return s.evictLocked()
}

// pinLast opens the last segment's file for writing and keeps it open.
func (s *segments) pinLast() (*segment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg := s.list[len(s.list)-1]
	if seg.file != nil {
		return seg, nil // just made
	}
	f, err := s.fs.Open(seg.path)
	if err != nil {
		return nil, err
	}
	seg.file, seg.pinned = f, true
	return seg, nil
}

func (s *segments) unpinLocked(seg *segment) {
	if seg.pinned && seg.file != nil {
		s.open++
	}
	seg.pinned = false
}

// popBelow takes the first segment out of the list if all its blocks are below lsn and it is not the active one; nil if
// there is none to take.
func (s *segments) popBelow(lsn LSN) (*segment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) < 2 || s.list[1].base > lsn {
		return nil, nil
	}
	seg := s.list[0]
	s.list = append([]*segment(nil), s.list[1:]...)
	seg.dropped = true
	return seg, s.closeLocked(seg)
}

// inUse reports whether somebody still reads a segment that is out of the list.
func (s *segments) inUse(seg *segment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return seg.refs > 0
}

// snapshot returns the list as it is now.
func (s *segments) snapshot() []*segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*segment(nil), s.list...)
}

// size returns the bytes of all files.
func (s *segments) size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum int64
	for _, seg := range s.list {
		sum += seg.size
	}
	return sum
}

// closeAll empties the list and closes the files; those in use are closed by their last release.
func (s *segments) closeAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, seg := range s.list {
		s.unpinLocked(seg)
		seg.dropped = true
		errs = append(errs, s.closeLocked(seg))
	}
	s.list = nil
	return errors.Join(errs...)
}
