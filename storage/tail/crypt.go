package tail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/noetl/ehdb-gateway/storage/crypt"
)

// keepBox bounds the scratch that is kept for the next block.
const keepBox = 4 << 20

// place is what the encryption of a block's body also vouches for: the segment and where in it the block is, and what
// its header says but for the checksums.
func place(seg *segHeader, off int64, h *blockHeader) []byte {
	var head [blockHeaderSize]byte
	h.put(head[:], 0)
	b := make([]byte, 0, 48) //nolint:mnd // the sum of what follows
	b = binary.LittleEndian.AppendUint64(b, seg.id)
	b = binary.LittleEndian.AppendUint32(b, seg.salt)
	b = binary.LittleEndian.AppendUint64(b, uint64(off)) //nolint:gosec // not negative
	return append(b, head[4:28]...)
}

// encrypt returns the body of the block h at off as it is to be written. It is valid until the next call; the caller
// holds wmu.
func (l *File) encrypt(seg *segment, off int64, h *blockHeader, body [][]byte) ([][]byte, error) {
	if cap(l.box) > keepBox {
		l.box = nil
	}
	var err error
	if l.box, err = l.keys.Seal(l.box[:0], place(&seg.segHeader, off, h), body...); err != nil {
		return nil, l.poison(fmt.Errorf("encrypt block: %w", err))
	}
	seg.addBlock(off)
	return [][]byte{l.box}, nil
}

// addBlock notes where an encrypted block is, in the order of the file.
func (seg *segment) addBlock(off int64) {
	seg.blocksMu.Lock()
	defer seg.blocksMu.Unlock()
	seg.blocks = append(seg.blocks, uint32(off)) //nolint:gosec // at most maxSegmentSize
}

// blockAt returns the encrypted block that an offset is in.
func (seg *segment) blockAt(off int64) (int64, bool) {
	seg.blocksMu.RLock()
	defer seg.blocksMu.RUnlock()
	i, _ := slices.BinarySearchFunc(seg.blocks, off, func(block uint32, off int64) int {
		if int64(block)+blockHeaderSize <= off {
			return -1
		}
		return 1
	})
	if i == 0 {
		return 0, false
	}
	return int64(seg.blocks[i-1]), true
}

// decrypt returns the body of a block that Replay reads, appended to dst. What does not decrypt has right checksums: it
// was not torn but changed by somebody, or it is of another key.
func (l *File) decrypt(dst []byte, seg *segment, off int64, h *blockHeader, body []byte) ([]byte, error) {
	plain, err := l.keys.Open(dst, place(&seg.segHeader, off, h), body)
	if errors.Is(err, crypt.ErrKey) {
		return nil, corrupt(seg.path, off, hintKeys, "block %d: %w", h.lsn, err)
	}
	if err != nil {
		return nil, corrupt(seg.path, off, hintRestore, "block %d: %w", h.lsn, err)
	}
	seg.addBlock(off)
	return plain, nil
}

// readBoxed fills p from an encrypted block.
func (l *File) readBoxed(seg *segment, p []byte, off int64) error {
	at, ok := seg.blockAt(off)
	if !ok {
		return fmt.Errorf("%s: no block is at %d", seg.path, off)
	}
	var head [blockHeaderSize]byte
	if err := readSegment(seg, head[:], at); err != nil {
		return err
	}
	h, ok := decodeBlockHeader(head[:], seg.salt)
	if !ok {
		return corrupt(seg.path, at, hintRestore, "the block's header does not match its checksum")
	}
	body := at + blockHeaderSize
	err := l.keys.OpenAt(p, place(&seg.segHeader, at, &h), int64(h.len), off-body, func(b []byte, off int64) error {
		return readSegment(seg, b, body+off)
	})
	if errors.Is(err, crypt.ErrOpen) || errors.Is(err, crypt.ErrKey) {
		return corrupt(seg.path, at, hintRestore, "block %d: %w", h.lsn, err)
	}
	return err
}
