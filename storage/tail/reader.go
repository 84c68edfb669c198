package tail

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// readAhead is how much of a segment is read at once, unless a block is larger.
const readAhead = 256 << 10

// noBlocks is what unwritten space holds; it is never changed.
var noBlocks [readAhead]byte

// window reads a file forward through a buffer.
type window struct {
	f     io.ReaderAt
	size  int64
	buf   []byte
	start int64 // offset of buf[0]
}

// view returns the n bytes at off; n must not reach beyond size. They are valid until the next call.
func (w *window) view(off, n int64) ([]byte, error) {
	if off >= w.start && off+n <= w.start+int64(len(w.buf)) {
		return w.buf[off-w.start:][:n], nil
	}
	want := min(max(n, readAhead), w.size-off)
	if int64(cap(w.buf)) < want {
		w.buf = make([]byte, want)
	}
	w.buf, w.start = w.buf[:want], off
	if m, err := w.f.ReadAt(w.buf, off); int64(m) < want {
		w.buf = w.buf[:0]
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read log segment at %d: %w", off, err)
	}
	return w.buf[:n], nil
}

// blockReader reads the blocks of one segment in order.
type blockReader struct {
	w     window
	salt  uint32
	stale bool  // as in segHeader
	off   int64 // of the next block
}

func newBlockReader(f io.ReaderAt, seg *segment) *blockReader {
	return &blockReader{w: window{f: f, size: seg.size}, salt: seg.salt, stale: seg.stale, off: segHeaderSize}
}

// header returns the header at off if there is one there whose block would fit.
func (r *blockReader) header(off int64) (blockHeader, bool, error) {
	if off+blockHeaderSize > r.w.size {
		return blockHeader{}, false, nil
	}
	b, err := r.w.view(off, blockHeaderSize)
	if err != nil {
		return blockHeader{}, false, err
	}
	h, ok := decodeBlockHeader(b, r.salt)
	return h, ok && off+h.size() <= r.w.size, nil
}

// next returns the block at off if it is whole and its position is want, and moves past it. Else ok is false and off
// stays. The body is valid until the next call. An error is one of reading, not of what was read.
func (r *blockReader) next(want LSN) (h blockHeader, body []byte, ok bool, err error) {
	h, ok, err = r.header(r.off)
	if err != nil || !ok || h.lsn != want {
		return h, nil, false, err
	}
	padded := h.size() - blockHeaderSize
	body, err = r.w.view(r.off+blockHeaderSize, padded)
	if err != nil || crc32.Update(r.salt, castagnoli, body) != h.bodyCRC {
		return h, nil, false, err
	}
	r.off += h.size()
	return h, body[:h.len], true, nil
}

// remains is what scan finds where a segment's blocks end.
type remains struct {
	end   int64 // the last byte that a block written here may have left; the start of the scan if there is none
	proof int64 // offset of a block header that says that block want was durable; 0 if there is none
}

// scan looks at everything from r.off, where block want should be and is not. Whole headers count whatever became of
// their bodies. Of other bytes, those at r.off are remains, see endSize, and the rest only if the file had no earlier
// life.
func (r *blockReader) scan(want LSN) (remains, error) {
	found := remains{end: r.off}
	for off := r.off; off+blockAlign <= r.w.size; {
		n := min(readAhead, r.w.size-off) &^ (blockAlign - 1)
		b, err := r.w.view(off, n)
		if err != nil {
			return found, err
		}
		if !bytes.Equal(b, noBlocks[:n]) {
			r.scanPart(b, off, want, &found)
		}
		if off+n+blockAlign > r.w.size {
			break
		}
		off += n - blockHeaderSize + blockAlign // a header may begin in this part and end in the next
	}
	return found, nil
}

// scanPart looks at the bytes b at off.
func (r *blockReader) scanPart(b []byte, off int64, want LSN, found *remains) {
	for ; len(b) >= blockAlign; b, off = b[blockAlign:], off+blockAlign {
		if (!r.stale || off == r.off) && binary.LittleEndian.Uint64(b) != 0 {
			found.end = max(found.end, off+blockAlign)
		}
		// A cheap look at the position first: each word of the file is looked at.
		if len(b) < blockHeaderSize || LSN(binary.LittleEndian.Uint64(b[8:])) < want {
			continue
		}
		h, ok := decodeBlockHeader(b, r.salt)
		if !ok {
			continue
		}
		found.end = max(found.end, min(off+h.size(), r.w.size))
		if h.durable > want && found.proof == 0 {
			found.proof = off
		}
	}
}
