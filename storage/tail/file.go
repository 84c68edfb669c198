package tail

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"

	"github.com/noetl/ehdb-gateway/storage/crypt"
)

// File is a Log in a directory of segment files.
//
// Invariants:
//
//  1. A block is written only after every block before it, and a segment is given its name only after every block
//     before it is durable. So a valid block proves that the blocks below its durable field were on disk, and a
//     segment that the blocks below its base were.
//  2. Nothing is written after a failed write or sync.
//
// Append and Sync may run at the same time: a Sync covers the blocks whose Append had returned when it began.
type File struct {
	o      Options
	lock   io.Closer
	keys   *crypt.Keys // nil: nothing is encrypted
	spares *spares
	segs   segments

	wmu    sync.Mutex // one writer at a time; guards the fields below
	hdr    [blockHeaderSize]byte
	iov    [][]byte
	box    []byte // scratch of an encrypted body
	asked  bool   // a spare was asked for since the active segment was started
	since  int64  // bytes appended since the last Shrink
	marked bool   // the log ends with a mark, or with a segment header

	syncMu sync.Mutex // one sync of a file at a time: else one of two could take the error that the other must see
	dropMu sync.Mutex // one DropBefore at a time

	mu       sync.Mutex // guards the fields below
	active   *segment   // nil before Replay
	next     LSN        // all blocks below it are written
	durable  LSN        // all blocks below it are durable; <= next
	replayed bool
	failed   error // wraps ErrPoisoned
	closed   bool
}

var _ Log = (*File)(nil)

// usable returns the active segment and the positions, or why nothing can be written.
func (l *File) usable() (seg *segment, next, durable LSN, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		err = ErrClosed
	case l.failed != nil:
		err = l.failed
	case l.active == nil:
		err = ErrNotReplayed
	}
	return l.active, l.next, l.durable, err
}

// poison stops the log for good and returns the error that says so.
func (l *File) poison(cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = fmt.Errorf("%w: %w", ErrPoisoned, cause)
	}
	return l.failed
}

// Next returns the position of the next block, and the position below which all blocks are durable.
func (l *File) Next() (next, durable LSN) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next, l.durable
}

// First returns the position of the first block that is kept.
func (l *File) First() LSN {
	l.segs.mu.Lock()
	defer l.segs.mu.Unlock()
	if len(l.segs.list) == 0 {
		return 0
	}
	return l.segs.list[0].base
}

// Size implements Log: the bytes of all segments and of the files kept for segments to come.
func (l *File) Size() int64 { return l.segs.size() + l.spares.bytes() }

// Room returns how many bytes of blocks can be appended for certain: in the active segment and in those already taken
// on disk. Blocks have a header of 32 bytes and are padded to 8.
func (l *File) Room() int64 {
	seg, _, _, err := l.usable()
	if err != nil {
		return 0
	}
	room := seg.size - seg.end.Load() - reserved
	if seg.boxed != (l.keys != nil) {
		room = 0 // the next block begins another segment
	}
	return max(room, 0) + l.spares.room()
}

// Step returns the size of the active segment or of the next one, whichever is smaller: the measure of what Room
// returns, which is at least that, but for the blocks' headers, after Reserve. 0 if nothing can be written.
func (l *File) Step() int64 {
	seg, _, _, err := l.usable()
	if err != nil {
		return 0
	}
	return l.spares.step(seg.size)
}

// Reserve takes the space of the next segment if it is not taken yet, so that a caller who was told ErrNoSpace can
// learn without appending that there is room again. On a disk that is nearly full it is a small one. ErrNoSpace if
// there is no room for that.
func (l *File) Reserve() error {
	seg, _, _, err := l.usable()
	if err != nil {
		return err
	}
	step := l.spares.step(seg.size)
	if err := l.spares.reserve(step, min(step, l.o.FirstSegment)); err != nil {
		return l.spareError(err)
	}
	return nil
}

// spareError poisons the log unless err says that there is no space, or that it was closed.
func (l *File) spareError(err error) error {
	if errors.Is(err, ErrNoSpace) || errors.Is(err, ErrClosed) || errors.Is(err, ErrPoisoned) {
		return err
	}
	return l.poison(err)
}

// ReadAt implements Log. It does not verify a checksum: what it reads was verified by Replay or written by this
// process. In a segment that is encrypted an offset counts the plain bytes of a body from where the block's body is in
// the file. ErrDropped if pos is in a segment that was dropped.
func (l *File) ReadAt(p []byte, pos Pos) error {
	seg, err := l.segs.acquire(pos.Segment)
	if err != nil {
		return l.closedOr(err)
	}
	if seg.boxed {
		err = l.readBoxed(seg, p, int64(pos.Offset))
	} else {
		err = readSegment(seg, p, int64(pos.Offset))
	}
	return errors.Join(err, l.segs.release(seg))
}

func (l *File) closedOr(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	return err
}

func readSegment(seg *segment, p []byte, off int64) error {
	if end := seg.end.Load(); off < segHeaderSize || off+int64(len(p)) > end {
		return fmt.Errorf("%s: read of %d bytes at %d is outside the blocks, which end at %d",
			seg.path, len(p), off, end)
	}
	n, err := seg.file.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read log: %w", err)
}

// Close implements Log: it makes everything appended durable, notes that at the end of the log, and gives up the
// lock. It returns the error that stopped the log, if one did.
func (l *File) Close() error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	err := l.finish()
	if errors.Is(err, ErrClosed) {
		return nil
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.spares.close()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.dropMu.Lock()
	defer l.dropMu.Unlock()
	return errors.Join(err, l.segs.closeAll(), l.lock.Close())
}

// finish syncs, and leaves a mark that proves it.
func (l *File) finish() error {
	seg, _, _, err := l.usable()
	if errors.Is(err, ErrNotReplayed) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := l.Sync(); err != nil {
		return err
	}
	if l.marked {
		return nil
	}
	if err := l.writeMark(seg); err != nil {
		return err
	}
	return l.syncFile(seg)
}

func newSalt() uint32 { return rand.Uint32() }
