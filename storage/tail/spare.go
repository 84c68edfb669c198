package tail

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

const (
	spareSuffix = ".spare" // ready to become a segment: its space is taken
	tempSuffix  = ".tmp"   // being made; removed at open
)

// zeroSyncEvery is how many bytes of a new file are written before they are synced: a sync of all of it at once would
// hold up the log's own syncs.
const zeroSyncEvery = 8 << 20

// spare is a file ready to become a segment.
type spare struct {
	path  string
	size  int64
	stale bool // it holds bytes of an earlier life
}

// spares keeps files for the segments to come, so that running out of space shows before it is needed, and so that a
// commit overwrites blocks the file system has already given out. At most one is made at a time, in the background.
type spares struct {
	fs   vfs.FS
	dir  string
	min  int64 // the smallest size of a segment, but for what is left of a small disk
	max  int64 // the largest, but for one of a large block
	keep int   // how many dropped segments are taken in
	// boxed: the log is encrypted, so no file is kept that may hold blocks which are not.
	boxed bool

	mu     sync.Mutex
	cond   *sync.Cond // busy or ready changed
	ready  []spare
	size   int64 // of the next one to be made: between min and max, as appends need it
	nextID uint64
	busy   bool
	err    error // of the last attempt
	closed bool
	wg     sync.WaitGroup
}

func newSpares(o Options) *spares {
	s := &spares{
		fs: o.FS, dir: o.Dir, size: o.FirstSegment, min: o.FirstSegment, max: o.SegmentSize, keep: o.Recycle,
	}
	s.cond = sync.NewCond(&s.mu)
	return s
}

// follow says how large the last segment is that there is: the next one is as large.
func (s *spares) follow(size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = min(max(s.size, size), s.max)
}

// growLocked doubles the size of the segments to come, if that leaves a small disk enough.
func (s *spares) growLocked() {
	if next := min(2*s.size, s.max); s.isSmall(next) { //nolint:mnd // doubles
		s.size = next
	}
}

// shrink makes segments to come of size bytes, if they are more than twice as large now, and gives up spares that are.
func (s *spares) shrink(size int64) error {
	s.mu.Lock()
	if s.size > 2*size { //nolint:mnd // else it might have to grow again at once
		s.size = size
	}
	var large []spare
	s.ready = slices.DeleteFunc(s.ready, func(sp spare) bool {
		if sp.size > s.size {
			large = append(large, sp)
		}
		return sp.size > s.size
	})
	s.mu.Unlock()
	for _, sp := range large {
		if err := s.fs.Remove(sp.path); err != nil {
			return err
		}
	}
	return nil
}

// shareOfFree is how many files of a size a disk must have room for before they may be that large: the log must not
// take a small disk for itself.
const shareOfFree = 8

// isSmall reports whether a file of size bytes is small for what the disk has left, if the file system tells that.
func (s *spares) isSmall(size int64) bool {
	fs, ok := s.fs.(interface {
		Free(dir string) (int64, error)
	})
	if !ok {
		return true
	}
	free, err := fs.Free(s.dir)
	return err != nil || free >= shareOfFree*size
}

// step returns the smaller of size and the next segment's size.
func (s *spares) step(size int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(size, s.size)
}

// readyLocked returns which spare has room for n bytes, or -1.
func (s *spares) readyLocked(n int64) int {
	return slices.IndexFunc(s.ready, func(sp spare) bool { return sp.size >= n })
}

// adopt takes over what an earlier process left: whole spares are kept, the rest is removed.
func (s *spares) adopt(names []string) error {
	for _, name := range names {
		full := path.Join(s.dir, name)
		if strings.HasSuffix(name, tempSuffix) {
			if err := s.fs.Remove(full); err != nil {
				return err
			}
			continue
		}
		num, ok := strings.CutSuffix(name, spareSuffix)
		if !ok {
			continue
		}
		id, err := strconv.ParseUint(num, 10, 64)
		if err != nil {
			continue // not ours
		}
		s.nextID = max(s.nextID, id+1)
		size, err := s.fs.Stat(full)
		if err != nil {
			return err
		}
		plain, err := s.isPlain(full)
		if err != nil {
			return err
		}
		if plain || size != s.size || len(s.ready) >= max(1, s.keep) {
			if err := s.fs.Remove(full); err != nil {
				return err
			}
			continue
		}
		s.ready = append(s.ready, spare{path: full, size: size, stale: true})
	}
	return nil
}

// isPlain reports whether a spare holds blocks that are not encrypted though those of the log are.
func (s *spares) isPlain(full string) (bool, error) {
	if !s.boxed {
		return false, nil
	}
	h, ok, err := peek(s.fs, full)
	return ok && !h.boxed, err
}

// start makes a spare in the background if there is none as large as the active segment, of size bytes.
func (s *spares) start(size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.busy || s.readyLocked(min(size, s.size)) >= 0 {
		return
	}
	s.busy = true
	name, next := s.nameLocked(), s.size
	s.wg.Go(func() { s.finish(s.make(name, next)) })
}

// finish records the outcome of an attempt.
func (s *spares) finish(sp spare, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy, s.err = false, err
	if err == nil {
		s.ready = append(s.ready, sp)
	}
	s.cond.Broadcast()
}

// reserve waits for a spare of at least n bytes, at most max, making it if nobody does. Where there is no space for a
// large one it is smaller, but not below least.
func (s *spares) reserve(n, least int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reserveLocked(n, least)
}

func (s *spares) reserveLocked(n, least int64) error {
	waited := false
	least = max(least, s.min)
	for s.readyLocked(n) < 0 {
		for s.size < n {
			s.size = min(2*s.size, s.max) //nolint:mnd // doubles
		}
		switch {
		case s.closed:
			return ErrClosed
		case s.busy:
			waited = true
			s.cond.Wait()
		case waited && errors.Is(s.err, ErrNoSpace) && s.size > least:
			s.size = max(alignUp(s.size/2, blockAlign), least) //nolint:mnd // halves
			n, waited = min(n, s.size), false
		case waited && s.err != nil:
			return s.err
		default:
			waited = true
			s.busy = true
			name, size := s.nameLocked(), s.size
			s.mu.Unlock()
			sp, err := s.make(name, size)
			s.finish(sp, err)
			s.mu.Lock()
		}
	}
	return nil
}

// take returns a spare of at least n bytes, waiting for one as reserve does. With grow those to come are to be larger.
//
//nolint:revive // grow is what is known of the appends, not a mode
func (s *spares) take(n int64, grow bool) (spare, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.reserveLocked(n, n); err != nil {
		return spare{}, err
	}
	i := s.readyLocked(n)
	sp := s.ready[i]
	s.ready = slices.Delete(s.ready, i, i+1)
	if grow {
		s.growLocked()
	}
	return sp, nil
}

// large makes a file of another size, for a block that does not fit a usual one.
func (s *spares) large(size int64) (spare, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return spare{}, ErrClosed
	}
	name := s.nameLocked()
	s.mu.Unlock()
	return s.make(name, size)
}

// slot returns the path under which a dropped segment of that size is to be kept, or false if it is not wanted.
func (s *spares) slot(size int64) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || size != s.size || len(s.ready) >= s.keep {
		return "", false
	}
	return s.nameLocked(), true
}

// add takes in a dropped segment of size bytes that was renamed, durably, to a path that slot gave.
func (s *spares) add(full string, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(s.ready, spare{path: full, size: size, stale: true})
	s.cond.Broadcast()
}

// bytes returns how much the spares that are ready hold.
func (s *spares) bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum int64
	for _, sp := range s.ready {
		sum += sp.size
	}
	return sum
}

// room returns how many bytes of blocks those that are ready can take.
func (s *spares) room() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum int64
	for _, sp := range s.ready {
		sum += sp.size - segHeaderSize - reserved
	}
	return sum
}

// close stops the making of a spare and waits for its end.
func (s *spares) close() {
	s.mu.Lock()
	s.closed = true
	s.cond.Broadcast()
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *spares) nameLocked() string {
	s.nextID++
	return path.Join(s.dir, fmt.Sprintf("%020d%s", s.nextID-1, spareSuffix))
}

// make writes a file of zeros. It is given its name only when all its space is taken, so that a half-made one is never
// mistaken for a spare. If it fails, what it took is given back.
func (s *spares) make(full string, size int64) (spare, error) {
	tmp := full + tempSuffix
	err := s.fill(tmp, size)
	if err == nil {
		err = s.fs.Rename(tmp, full)
	}
	if err != nil {
		rmErr := s.fs.Remove(tmp)
		if vfs.IsNoSpace(err) {
			return spare{}, fmt.Errorf("%w: %w", ErrNoSpace, err)
		}
		return spare{}, errors.Join(err, rmErr)
	}
	return spare{path: full, size: size}, nil
}

func (s *spares) fill(name string, size int64) error {
	f, err := s.fs.Create(name)
	if err != nil {
		return err
	}
	for off := int64(0); off < size && err == nil; off += zeroSyncEvery {
		if err = vfs.ZeroFill(f, off, min(off+zeroSyncEvery, size), s.stopped); err == nil {
			err = f.Sync()
		}
	}
	return errors.Join(err, f.Close())
}

func (s *spares) stopped() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	return nil
}
