package tail

import (
	"fmt"
	"hash/crc32"

	"github.com/noetl/ehdb-gateway/storage/crypt"
)

// zeros fill a block up to a multiple of blockAlign, and follow it.
var zeros [blockAlign + endSize]byte

// Append implements Log. Errors: ErrTooLarge, ErrNoSpace, ErrNotReplayed and ErrClosed leave the log as it was; any
// other wraps ErrPoisoned.
func (l *File) Append(body ...[]byte) (LSN, Pos, error) {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	var n int64
	for _, b := range body {
		n += int64(len(b))
	}
	if l.keys != nil {
		n = crypt.BoxSize(n)
	}
	if n > MaxBody {
		return 0, Pos{}, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, n, MaxBody)
	}
	seg, lsn, durable, err := l.segmentFor(blockSize(n))
	if err != nil {
		return 0, Pos{}, err
	}
	h := blockHeader{len: uint32(n), lsn: lsn, durable: durable, typ: typeData}
	off := seg.end.Load()
	if l.keys != nil {
		if body, err = l.encrypt(seg, off, &h, body); err != nil {
			return 0, Pos{}, err
		}
	}
	if err := l.writeBlock(seg, off, h, body); err != nil {
		return 0, Pos{}, err
	}
	l.marked = false
	seg.end.Store(off + h.size())
	l.since += h.size()
	l.mu.Lock()
	l.next = lsn + 1
	l.mu.Unlock()
	// A small segment is full in no time, so the one after it is made at once.
	if !l.asked && (seg.size < l.o.SegmentSize || seg.end.Load() >= seg.size/4) {
		l.asked = true
		l.spares.start(seg.size)
	}
	return lsn, Pos{Segment: seg.id, Offset: uint32(off + blockHeaderSize)}, nil
}

// writeBlock writes one block at off. The picture is at the top of format.go:
//
//	| crc | len | lsn | durable | type, zero | bodycrc | body ... | pad | 8 zeros that are not part of it
//
// It allocates nothing and does not copy the body.
func (l *File) writeBlock(seg *segment, off int64, h blockHeader, body [][]byte) error {
	crc := seg.salt
	l.iov = append(l.iov[:0], l.hdr[:])
	for _, b := range body {
		if len(b) == 0 {
			continue
		}
		crc = crc32.Update(crc, castagnoli, b)
		l.iov = append(l.iov, b)
	}
	pad := h.size() - blockHeaderSize - int64(h.len)
	h.bodyCRC = crc32.Update(crc, castagnoli, zeros[:pad])
	l.iov = append(l.iov, zeros[:pad+endSize])
	h.put(l.hdr[:], seg.salt)
	_, err := seg.file.WritevAt(l.iov, off)
	clear(l.iov) // keep no body alive
	if err != nil {
		return l.poison(fmt.Errorf("write block: %w", err))
	}
	return nil
}

// writeMark writes a block without body that proves that all blocks so far are durable, which they must be. There is
// always room for it: segmentFor keeps that free. The caller holds wmu.
func (l *File) writeMark(seg *segment) error {
	_, next, durable, err := l.usable()
	if err != nil {
		return err
	}
	h := blockHeader{lsn: next, durable: durable, typ: typeMark}
	off := seg.end.Load()
	if err := l.writeBlock(seg, off, h, nil); err != nil {
		return err
	}
	l.marked = true
	seg.end.Store(off + h.size())
	return nil
}

// segmentFor returns the active segment with room for a block of size bytes, starting a new one if need be or if the
// log has become an encrypted one, and the positions. The caller holds wmu.
func (l *File) segmentFor(size int64) (*segment, LSN, LSN, error) {
	seg, next, durable, err := l.usable()
	fits := err == nil && seg.end.Load()+size+reserved <= seg.size
	if err != nil || fits && seg.boxed == (l.keys != nil) {
		return seg, next, durable, err
	}
	if err := l.rotate(seg, next, segHeaderSize+size+reserved); err != nil {
		return nil, 0, 0, err
	}
	return l.usable()
}

// rotate starts the next segment. The space for it is taken first, while it is still possible to say no. Then the old
// one is synced: by invariant 1 the new one's base proves its blocks durable.
func (l *File) rotate(old *segment, next LSN, minSize int64) error {
	if minSize <= l.o.SegmentSize {
		if err := l.spares.reserve(minSize, minSize); err != nil {
			return l.spareError(err)
		}
	}
	if err := l.Sync(); err != nil {
		return err
	}
	if err := l.addSegment(old.id+1, next, minSize); err != nil {
		return l.spareError(err)
	}
	l.asked, l.marked = false, true
	list := l.segs.snapshot()
	l.mu.Lock()
	l.active = list[len(list)-1]
	l.mu.Unlock()
	return nil
}

// Sync implements Log. It may be called during an Append.
func (l *File) Sync() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	seg, next, durable, err := l.usable()
	if err != nil || next == durable {
		return err
	}
	// All blocks below next that are not durable are in seg: the segments before it were synced before it was started.
	if err := l.syncFileLocked(seg); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.durable = max(l.durable, next)
	return nil
}

// syncFile syncs a segment's file.
func (l *File) syncFile(seg *segment) error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	return l.syncFileLocked(seg)
}

func (l *File) syncFileLocked(seg *segment) error {
	ref, err := l.segs.acquire(seg.id)
	if err != nil {
		return l.poison(err)
	}
	err = ref.file.Sync()
	if relErr := l.segs.release(ref); err == nil {
		err = relErr
	}
	if err != nil {
		return l.poison(fmt.Errorf("sync: %w", err))
	}
	return nil
}
