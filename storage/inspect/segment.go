package inspect

import (
	"fmt"
	"slices"
)

const (
	segMagic    = "EHDBTAIL"
	segHead     = 64
	blockHead   = 32
	blockAlign  = 8
	maxSegment  = 1<<32 - 1 - 1<<16
	typeData    = 1
	typeMark    = 2
	flagStale   = 1
	maxBodySize = 1 << 30

	// Versions of a segment.
	segPlain = 1
	segBoxed = 2
)

// Segment is one file of the write-ahead log.
type Segment struct {
	File   string `json:"file"`
	ID     uint64 `json:"id"`
	Base   uint64 `json:"base"` // position (LSN) of its first block
	Size   int64  `json:"size"`
	Salt   uint32 `json:"salt"`
	Boxed  bool   `json:"encrypted"` // the bodies of its blocks are encrypted
	Stale  bool   `json:"recycled"`  // unwritten space may hold bytes of the file's earlier life
	Blocks int    `json:"blocks"`
	Next   uint64 `json:"next"` // position behind its last block
	End    int64  `json:"end"`  // where its blocks end

	// Rebuilt: the header is damaged; its fields are what the file's name, size and blocks say.
	Rebuilt bool `json:"rebuilt,omitempty"`
}

// parseSegmentHeader reads a header without a look at the file around it.
func parseSegmentHeader(b []byte) (s Segment, err error) {
	if len(b) < segHead {
		return s, fmt.Errorf("the file has %d bytes, too few for a segment's header", len(b))
	}
	if string(b[:8]) != segMagic {
		return s, fmt.Errorf("this is no log segment: it starts with %q", b[:8])
	}
	v := le.Uint32(b[8:])
	if v != segPlain && v != segBoxed {
		return s, fmt.Errorf("the segment's header is damaged or of version %d, which is not known", v)
	}
	if checksum(0, b[:60]) != le.Uint32(b[60:]) {
		return s, fmt.Errorf("the segment's header does not match its checksum")
	}
	s = Segment{
		ID: le.Uint64(b[16:]), Base: le.Uint64(b[24:]), Size: int64(le.Uint64(b[32:])), Salt: le.Uint32(b[40:]),
		Stale: le.Uint32(b[12:])&flagStale != 0, Boxed: v == segBoxed,
	}
	if s.Size < segHead || s.Size > maxSegment {
		return s, fmt.Errorf("the segment's header gives a size of %d", s.Size)
	}
	return s, nil
}

// EncodeSegmentHeader returns the header of s.
func EncodeSegmentHeader(s *Segment) []byte {
	b := make([]byte, segHead)
	copy(b, segMagic)
	le.PutUint32(b[8:], segPlain)
	if s.Boxed {
		le.PutUint32(b[8:], segBoxed)
	}
	if s.Stale {
		le.PutUint32(b[12:], flagStale)
	}
	le.PutUint64(b[16:], s.ID)
	le.PutUint64(b[24:], s.Base)
	le.PutUint64(b[32:], uint64(s.Size))
	le.PutUint32(b[40:], s.Salt)
	le.PutUint32(b[60:], checksum(0, b[:60]))
	return b
}

// rebuildHeader finds out what the damaged header of the segment in b said. The salt is what makes the first block
// header's CRC come out: a CRC can be run backwards. The block's body then shows whether that is right.
func rebuildHeader(b []byte, id uint64, keys *Keys) (s Segment, ok bool) {
	if len(b) < segHead+blockHead {
		return s, false
	}
	h := b[segHead : segHead+blockHead]
	s = Segment{
		ID: id, Base: le.Uint64(h[8:]), Size: int64(len(b)), Salt: crcSeed(h[4:], le.Uint32(h)), Stale: true,
		Rebuilt: true,
	}
	first, whole := wholeBlock(b, segHead, &s)
	if whole && keys != nil { // the body tells whether it is encrypted
		s.Boxed = true
		if _, err := first.plain(b, &s, keys); err != nil {
			s.Boxed = false
		}
	}
	return s, whole
}

// crcSeed returns the seed from which the CRC-32C of b is sum.
func crcSeed(b []byte, sum uint32) uint32 {
	crc := ^sum
	for _, v := range slices.Backward(b) {
		// forward: crc' = table[low byte of crc ^ b] ^ crc>>8; the high byte of a table entry names the entry
		var at int
		for n := range castagnoli {
			if castagnoli[n]>>24 == crc>>24 {
				at = n
				break
			}
		}
		crc = (crc^castagnoli[at])<<8 | uint32(at) ^ uint32(v)
	}
	return ^crc
}

// BlockHeader is the head of a block in a segment.
type BlockHeader struct {
	Offset  int64  // in the file
	Len     uint32 // bytes of the body
	LSN     uint64
	Durable uint64 // all blocks below this position were durable when it was written
	Mark    bool   // no body: a proof that all blocks before it were durable
	bodyCRC uint32
}

// size is what the block takes in the file.
func (h *BlockHeader) size() int64 {
	return blockHead + (int64(h.Len)+blockAlign-1)/blockAlign*blockAlign
}

// parseBlockHeader reads the header of a block at off, whatever its body.
func parseBlockHeader(b []byte, off int64, salt uint32) (h BlockHeader, ok bool) {
	if off+blockHead > int64(len(b)) {
		return h, false
	}
	b = b[off : off+blockHead]
	typ := le.Uint32(b[24:]) // with the three zero bytes
	if typ != typeData && typ != typeMark || checksum(salt, b[4:]) != le.Uint32(b) {
		return h, false
	}
	h = BlockHeader{
		Offset: off, Len: le.Uint32(b[4:]), LSN: le.Uint64(b[8:]), Durable: le.Uint64(b[16:]), Mark: typ == typeMark,
		bodyCRC: le.Uint32(b[28:]),
	}
	return h, h.Durable <= h.LSN && h.Len <= maxBodySize && (!h.Mark || h.Len == 0)
}

// wholeBlock reads the block at off of the segment in b if header and body verify.
func wholeBlock(b []byte, off int64, s *Segment) (h BlockHeader, ok bool) {
	h, ok = parseBlockHeader(b, off, s.Salt)
	if !ok || off+h.size() > int64(len(b)) {
		return h, false
	}
	return h, checksum(s.Salt, b[off+blockHead:off+h.size()]) == h.bodyCRC
}

// body returns the body of a whole block.
func (h *BlockHeader) body(b []byte) []byte {
	return b[h.Offset+blockHead : h.Offset+blockHead+int64(h.Len)]
}

// plain returns the body of a whole block as it was before it was encrypted.
func (h *BlockHeader) plain(b []byte, s *Segment, keys *Keys) ([]byte, error) {
	if !s.Boxed || h.Mark {
		return h.body(b), nil
	}
	return keys.open(BlockPlace(s, h), h.body(b))
}

// BlockPlace is what the encryption of a body also vouches for: the segment, where in it the block is, and its header
// but for the checksums.
func BlockPlace(s *Segment, h *BlockHeader) []byte {
	b := le.AppendUint64(nil, s.ID)
	b = le.AppendUint32(b, s.Salt)
	b = le.AppendUint64(b, uint64(h.Offset))
	b = le.AppendUint32(b, h.Len)
	b = le.AppendUint64(b, h.LSN)
	b = le.AppendUint64(b, h.Durable)
	return le.AppendUint32(b, typeData)
}

// AppendBlock adds a data block to b, a segment's bytes from its first on.
func AppendBlock(b []byte, salt uint32, lsn, durable uint64, body []byte) []byte {
	return appendBlock(b, salt, typeData, lsn, durable, body)
}

// AppendMark adds a mark, which proves that all blocks below lsn were durable.
func AppendMark(b []byte, salt uint32, lsn uint64) []byte {
	return appendBlock(b, salt, typeMark, lsn, lsn, nil)
}

func appendBlock(b []byte, salt uint32, typ uint32, lsn, durable uint64, body []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, blockHead)...)
	b = append(b, body...)
	b = append(b, make([]byte, (blockAlign-len(body)%blockAlign)%blockAlign)...)
	h := b[at : at+blockHead]
	le.PutUint32(h[4:], uint32(len(body)))
	le.PutUint64(h[8:], lsn)
	le.PutUint64(h[16:], durable)
	le.PutUint32(h[24:], typ)
	le.PutUint32(h[28:], checksum(salt, b[at+blockHead:]))
	le.PutUint32(h, checksum(salt, h[4:]))
	return b
}

// remains is what is found behind the end of the last segment's blocks.
type remains struct {
	end   int64 // the last byte that a block written there may have left
	proof int64 // offset of a header that says that the block that is missing was durable; 0 if there is none
}

// scanRemains looks at everything from off, where block n should be and is not.
func scanRemains(b []byte, off int64, n uint64, s *Segment) remains {
	r := remains{end: off}
	for p := off; p+blockAlign <= int64(len(b)); p += blockAlign {
		if (!s.Stale || p == off) && le.Uint64(b[p:]) != 0 {
			r.end = p + blockAlign
		}
		if p+blockHead > int64(len(b)) || le.Uint64(b[p+8:]) < n {
			continue
		}
		h, ok := parseBlockHeader(b, p, s.Salt)
		if !ok {
			continue
		}
		r.end = max(r.end, min(p+h.size(), int64(len(b))))
		if h.Durable > n && r.proof == 0 {
			r.proof = p
		}
	}
	return r
}

// nextWhole returns the first whole block behind off whose position is in [n, limit]; a data block is below limit.
func nextWhole(b []byte, off int64, n, limit uint64, s *Segment) (h BlockHeader, ok bool) {
	for p := off + blockAlign; p+blockHead <= int64(len(b)); p += blockAlign {
		if lsn := le.Uint64(b[p+8:]); lsn < n || lsn > limit {
			continue
		}
		h, ok := wholeBlock(b, p, s)
		if ok && (h.LSN < limit || h.Mark) {
			return h, true
		}
	}
	return h, false
}
