package part

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/noetl/ehdb-gateway/storage/crypt"
)

// The format, also in docs/format/part.md. All numbers are little-endian; CRCs are CRC-32C.
//
//	0        128                                                                      size-96   size
//	+--------+------------+-----------+---------+-----+-----------+-----------+-------+--------+
//	| header | data block | data block| pages   | sec | data block| ...   sec | dir   | footer |
//	+--------+------------+-----------+---------+-----+-----------+-----------+-------+--------+
//	          \____________ section of a log _________/\__ section ___________/
//
// Everything between header and footer is blocks, one after the other without a gap.
//
//	block
//
//	0       4     8      12       16      24   25     26     28        32            32+len
//	+-------+-----+------+--------+-------+----+------+------+---------+-------------+
//	| crc   | len | raw  | number | log   |kind| codec| zero | bodycrc | body        |
//	+-------+-----+------+--------+-------+----+------+------+---------+-------------+
//	 |       \________________ crc covers ____________________________/ \_ bodycrc _/
//	 crc starts from the CRC of the part's id and the block's offset: a block elsewhere does not verify
//
//	header, 128 bytes
//
//	0       8         12     13     16    32      36     40        48       56       116    124   128
//	+-------+---------+------+------+-----+-------+------+---------+--------+--------+------+-----+
//	| magic | version |cipher| zero | id  | shard | zero | created | key id | wrapped| zero | crc |
//	+-------+---------+------+------+-----+-------+------+---------+--------+--------+------+-----+
//
//	footer, 96 bytes
//
//	0       8         12       16   32        40       44         48        56      64
//	+-------+---------+--------+----+---------+--------+----------+---------+-------+
//	| magic | version | blocks | id | dir off | dir len| sections | records | bytes |
//	+-------+---------+--------+----+---------+--------+----------+---------+-------+
//
//	64     72     80     88       89     92    96
//	+------+------+------+--------+------+-----+
//	| size | meta | data | cipher | zero | crc |
//	+------+------+------+--------+------+-----+
const (
	headMagic   = "EHDBPART"
	footMagic   = "EHDBPEND"
	version     = 1
	headerSize  = 128
	footerSize  = 96
	blockHeader = 32
	idSize      = 16
	wrappedSize = 60

	dirEntrySize     = 32
	sectionFixed     = 88
	dataEntrySize    = 40
	columnEntrySize  = 24
	pageEntrySize    = 16
	keyEntrySize     = 32
	dataFixed        = 20 // of a data block's raw bytes
	restartEvery     = 16 // records or keys between restart points
	recordsPerPage   = 4096
	maxRaw           = 1 << 30
	maxDirectorySize = maxRaw
)

// MaxRecord is the most bytes that key, header and data of one record may have together.
const MaxRecord = maxRaw - 1<<16

// MaxRecords is the most records that one section may have.
const MaxRecords = math.MaxUint32 - 1

// Kinds of blocks. The zero kind is invalid, so that zeroed bytes are no block.
const (
	kindData      = 1
	kindColumns   = 2
	kindPostings  = 3
	kindKeys      = 4
	kindBloom     = 5
	kindSection   = 6
	kindDirectory = 7
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var le = binary.LittleEndian

// header is the head of a part file.
type header struct {
	cipher  crypt.Cipher
	id      [idSize]byte
	shard   uint32
	created int64
	keyID   uint64
	wrapped [wrappedSize]byte
}

func (h *header) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, headMagic)
	le.PutUint32(b[8:], version)
	b[12] = byte(h.cipher)
	copy(b[16:], h.id[:])
	le.PutUint32(b[32:], h.shard)
	le.PutUint64(b[40:], uint64(h.created))
	le.PutUint64(b[48:], h.keyID)
	copy(b[56:], h.wrapped[:])
	le.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	return b
}

// checkEnd tests magic, version and CRC of a header or footer. The version is named even if the CRC does not match,
// since another version may keep that elsewhere.
func checkEnd(b []byte, magic, what string) error {
	if string(b[:8]) != magic {
		return fmt.Errorf("no part %s: it starts with %q", what, b[:8])
	}
	n := len(b) - 4
	v, sum := le.Uint32(b[8:]), crc32.Checksum(b[:n], castagnoli) == le.Uint32(b[n:])
	switch {
	case !sum && v != version:
		return fmt.Errorf("%s is damaged or of version %d, which is not known", what, v)
	case !sum:
		return fmt.Errorf("%s does not match its checksum", what)
	case v != version:
		return fmt.Errorf("%s has format version %d, this program knows %d", what, v, version)
	}
	return nil
}

func decodeHeader(b []byte) (h header, err error) {
	if err := checkEnd(b, headMagic, "header"); err != nil {
		return h, err
	}
	h.cipher = crypt.Cipher(b[12])
	copy(h.id[:], b[16:])
	h.shard = le.Uint32(b[32:])
	h.created = int64(le.Uint64(b[40:]))
	h.keyID = le.Uint64(b[48:])
	copy(h.wrapped[:], b[56:])
	if h.cipher > crypt.ChaCha20Poly1305 {
		return h, fmt.Errorf("header names cipher %d, which is not known", h.cipher)
	}
	return h, nil
}

// footer sums a part file up.
type footer struct {
	blocks   uint32
	id       [idSize]byte
	dir      blockRef
	sections uint32
	records  uint64
	bytes    uint64
	size     uint64       // of the file
	meta     uint64       // bytes of all blocks but the data blocks
	data     uint64       // bytes of all data blocks
	cipher   crypt.Cipher // that of the header
}

func (f *footer) encode() []byte {
	b := make([]byte, footerSize)
	copy(b, footMagic)
	le.PutUint32(b[8:], version)
	le.PutUint32(b[12:], f.blocks)
	copy(b[16:], f.id[:])
	le.PutUint64(b[32:], uint64(f.dir.off))
	le.PutUint32(b[40:], f.dir.len)
	le.PutUint32(b[44:], f.sections)
	le.PutUint64(b[48:], f.records)
	le.PutUint64(b[56:], f.bytes)
	le.PutUint64(b[64:], f.size)
	le.PutUint64(b[72:], f.meta)
	le.PutUint64(b[80:], f.data)
	b[88] = byte(f.cipher)
	le.PutUint32(b[92:], crc32.Checksum(b[:92], castagnoli))
	return b
}

// decodeFooter reads the footer of a file of size bytes.
func decodeFooter(b []byte, size int64) (f footer, err error) {
	if err := checkEnd(b, footMagic, "footer"); err != nil {
		return f, err
	}
	f = footer{
		blocks: le.Uint32(b[12:]), sections: le.Uint32(b[44:]), records: le.Uint64(b[48:]), bytes: le.Uint64(b[56:]),
		dir:  blockRef{off: int64(le.Uint64(b[32:])), len: le.Uint32(b[40:])},
		size: le.Uint64(b[64:]), meta: le.Uint64(b[72:]), data: le.Uint64(b[80:]),
		cipher: crypt.Cipher(b[88]),
	}
	copy(f.id[:], b[16:])
	switch {
	case f.size != uint64(size):
		return f, fmt.Errorf("file is %d bytes long, its footer says %d", size, f.size)
	case f.meta > f.size || f.data > f.size || headerSize+f.meta+f.data+footerSize != f.size:
		return f, errors.New("footer's lengths of blocks do not add up to the file's")
	case f.dir.off != size-footerSize-int64(f.dir.len):
		return f, errors.New("footer's directory does not end where the footer starts")
	}
	return f, nil
}

// blockRef says where a block is, header included.
type blockRef struct {
	off int64
	len uint32
}

// block is the header of one.
type block struct {
	len     uint32 // of the body as stored
	raw     uint32 // of the body decrypted and decompressed
	number  uint32 // of the block in the file, from 0; the nonce of its encryption
	log     uint64
	kind    uint8
	codec   Codec
	bodyCRC uint32
}

// blockSeed is where the CRC of the header of the block at off starts from.
func blockSeed(id *[idSize]byte, off int64) uint32 {
	var b [idSize + 8]byte
	copy(b[:], id[:])
	le.PutUint64(b[idSize:], uint64(off))
	return crc32.Checksum(b[:], castagnoli)
}

func (h *block) put(b []byte, seed uint32) {
	le.PutUint32(b[4:], h.len)
	le.PutUint32(b[8:], h.raw)
	le.PutUint32(b[12:], h.number)
	le.PutUint64(b[16:], h.log)
	b[24], b[25], b[26], b[27] = h.kind, byte(h.codec), 0, 0
	le.PutUint32(b[28:], h.bodyCRC)
	le.PutUint32(b, crc32.Update(seed, castagnoli, b[4:blockHeader]))
}

func decodeBlock(b []byte, seed uint32) (h block, err error) {
	if crc32.Update(seed, castagnoli, b[4:blockHeader]) != le.Uint32(b) {
		return h, errors.New("block header does not match its checksum")
	}
	h = block{
		len: le.Uint32(b[4:]), raw: le.Uint32(b[8:]), number: le.Uint32(b[12:]), log: le.Uint64(b[16:]),
		kind: b[24], codec: Codec(b[25]), bodyCRC: le.Uint32(b[28:]),
	}
	if h.kind < kindData || h.kind > kindDirectory || b[26] != 0 || b[27] != 0 || h.raw > maxRaw {
		return h, fmt.Errorf("block of kind %d, raw length %d is not known to version %d", h.kind, h.raw, version)
	}
	return h, nil
}
