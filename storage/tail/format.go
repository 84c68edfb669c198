package tail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// The format, also in docs/format/tail.md. All numbers are little-endian; CRCs are CRC-32C.
//
//	segment file  NNNNNNNNNNNNNNNNNNNN.seg  (id in 20 decimal digits)
//
//	0        64                                                         size
//	+--------+-------+-------+-- - - --+-------+--------+---------------+
//	| header | block | block |         | block | 8 zero | unwritten     |
//	+--------+-------+-------+-- - - --+-------+--------+---------------+
//
//	segment header, 64 bytes
//
//	0       8       12      16      24      32      40      44      60    64
//	+-------+-------+-------+-------+-------+-------+-------+-------+-----+
//	| magic |version| flags | id    | base  | size  | salt  | zero  | crc |
//	+-------+-------+-------+-------+-------+-------+-------+-------+-----+
//	 8 bytes u32     u32     u64     u64     u64     u32     16 bytes u32 over bytes 0 to 60
//
//	block, starts at a multiple of 8
//
//	0       4       8       16          24   25    28        32                32+len
//	+-------+-------+-------+-----------+----+-----+---------+-----------------+-----+
//	| crc   | len   | lsn   | durable   |type| zero| bodycrc | body            | pad |
//	+-------+-------+-------+-----------+----+-----+---------+-----------------+-----+
//	 u32      u32     u64     u64         u8  3 bytes  u32     len bytes         zeros to a multiple of 8
//	 |        \___________________ crc covers ____________/    \____ bodycrc covers __/
//	 both CRCs start from the segment's salt
const (
	segMagic      = "EHDBTAIL"
	segVersion    = 1
	segEncrypted  = 2 // the version of a segment whose blocks' bodies are boxes of storage/crypt, else the same
	segHeaderSize = 64

	blockHeaderSize = 32
	blockAlign      = 8

	// endSize zero bytes are written after every block and after the segment header, with them, where the next block
	// will start. So if there is no block but something else, it is the remains of one, whatever the file held
	// before.
	endSize = 8

	// reserved is kept free behind every block, so that a mark always fits.
	reserved = blockHeaderSize + endSize
)

// flagStale in a segment header says that unwritten space may hold bytes of the file's earlier life; without it that
// space is zero.
const flagStale = 1

// Block types. The zero type is invalid, so that unwritten space is no block.
const (
	typeData = 1 // a block of the log
	typeMark = 2 // no body and no position of its own: a proof that all blocks before it are durable
)

// MaxBody is the largest body of a block in bytes.
const MaxBody = 1 << 30

// maxSegmentSize bounds a segment file so that Pos.Offset can hold every offset in it.
const maxSegmentSize = math.MaxUint32 - 1<<16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// segHeader is the head of a segment file. It is durable before the file gets its name, so a damaged one is damage.
type segHeader struct {
	id    uint64
	base  LSN    // of its first block; all blocks before it were durable when the segment was started
	size  int64  // of the file
	salt  uint32 // seed of the block CRCs: blocks of the file's earlier life do not verify
	stale bool   // flagStale
	boxed bool   // the bodies of its blocks are encrypted
}

// encode returns the header and the zeros after it.
func (h segHeader) encode() []byte {
	b := make([]byte, segHeaderSize+endSize)
	copy(b, segMagic)
	binary.LittleEndian.PutUint32(b[8:], segVersion)
	if h.boxed {
		binary.LittleEndian.PutUint32(b[8:], segEncrypted)
	}
	if h.stale {
		binary.LittleEndian.PutUint32(b[12:], flagStale)
	}
	binary.LittleEndian.PutUint64(b[16:], h.id)
	binary.LittleEndian.PutUint64(b[24:], uint64(h.base))
	binary.LittleEndian.PutUint64(b[32:], uint64(h.size))
	binary.LittleEndian.PutUint32(b[40:], h.salt)
	binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
	return b
}

// decodeSegHeader reads a header. The version is looked at before the CRC, since another version may put it elsewhere.
func decodeSegHeader(b []byte) (segHeader, error) {
	if len(b) < segHeaderSize {
		return segHeader{}, fmt.Errorf("segment header is %d bytes long, want %d", len(b), segHeaderSize)
	}
	if string(b[:8]) != segMagic {
		return segHeader{}, fmt.Errorf("not a log segment: it starts with %q", b[:8])
	}
	sum, v := crc32.Checksum(b[:60], castagnoli), binary.LittleEndian.Uint32(b[8:])
	known := v == segVersion || v == segEncrypted
	if sum != binary.LittleEndian.Uint32(b[60:]) {
		if !known {
			return segHeader{}, fmt.Errorf("segment header is damaged or of version %d, which is not known", v)
		}
		return segHeader{}, errors.New("segment header does not match its checksum")
	}
	if !known {
		return segHeader{}, fmt.Errorf("segment has format version %d, this program knows %d and %d", v, segVersion,
			segEncrypted)
	}
	size := binary.LittleEndian.Uint64(b[32:])
	if size < segHeaderSize || size > maxSegmentSize {
		return segHeader{}, fmt.Errorf("segment header gives a size of %d", size)
	}
	return segHeader{
		id:    binary.LittleEndian.Uint64(b[16:]),
		base:  LSN(binary.LittleEndian.Uint64(b[24:])),
		size:  int64(size),
		salt:  binary.LittleEndian.Uint32(b[40:]),
		stale: binary.LittleEndian.Uint32(b[12:])&flagStale != 0,
		boxed: v == segEncrypted,
	}, nil
}

// blockHeader is the head of a block.
type blockHeader struct {
	len     uint32 // of the body
	lsn     LSN    // a mark has that of the next block
	durable LSN    // all blocks below it were durable when this one was written
	typ     uint8
	bodyCRC uint32
}

// put encodes h into b, which has blockHeaderSize bytes.
func (h *blockHeader) put(b []byte, salt uint32) {
	binary.LittleEndian.PutUint32(b[4:], h.len)
	binary.LittleEndian.PutUint64(b[8:], uint64(h.lsn))
	binary.LittleEndian.PutUint64(b[16:], uint64(h.durable))
	binary.LittleEndian.PutUint32(b[24:], uint32(h.typ))
	binary.LittleEndian.PutUint32(b[28:], h.bodyCRC)
	binary.LittleEndian.PutUint32(b, crc32.Update(salt, castagnoli, b[4:blockHeaderSize]))
}

// decodeBlockHeader returns the header in b, or false if there is none that belongs to a segment with that salt.
func decodeBlockHeader(b []byte, salt uint32) (blockHeader, bool) {
	typ := binary.LittleEndian.Uint32(b[24:])
	if typ != typeData && typ != typeMark {
		return blockHeader{}, false
	}
	if crc32.Update(salt, castagnoli, b[4:blockHeaderSize]) != binary.LittleEndian.Uint32(b) {
		return blockHeader{}, false
	}
	h := blockHeader{
		len:     binary.LittleEndian.Uint32(b[4:]),
		lsn:     LSN(binary.LittleEndian.Uint64(b[8:])),
		durable: LSN(binary.LittleEndian.Uint64(b[16:])),
		typ:     uint8(typ),
		bodyCRC: binary.LittleEndian.Uint32(b[28:]),
	}
	return h, h.durable <= h.lsn && (typ == typeData || h.len == 0)
}

// blockSize returns the bytes that a block with a body of n bytes takes.
func blockSize(n int64) int64 { return blockHeaderSize + (n+blockAlign-1)&^(blockAlign-1) }

// size returns the bytes of the whole block.
func (h *blockHeader) size() int64 { return blockSize(int64(h.len)) }
