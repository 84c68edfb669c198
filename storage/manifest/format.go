package manifest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"path"
	"strings"
)

// The format, also in docs/format/manifest.md. All numbers are little-endian; CRCs are CRC-32C.
//
//	manifest-GGGGGGGGGGGGGGGGGGGG  (generation in 20 decimal digits)
//
//	0        32
//	+--------+----------+------+------+------+------+-- - - --+
//	| header | snapshot | edit | mark | edit | mark |         |
//	+--------+----------+------+------+------+------+-- - - --+
//
//	header, 32 bytes
//
//	0       8         12     16           24     28    32
//	+-------+---------+------+------------+------+-----+
//	| magic | version | zero | generation | salt | crc |   crc over bytes 0 to 28
//	+-------+---------+------+------------+------+-----+
//
//	frame (snapshot, edit or mark)
//
//	0       4     8       16    17     20        24              24+len
//	+-------+-----+-------+-----+------+---------+---------------+
//	| crc   | len | edits | type| zero | bodycrc | body          |   both CRCs start from the header's salt
//	+-------+-----+-------+-----+------+---------+---------------+
//	 |       \________ crc covers _______________/\_ bodycrc ____/
const (
	magic         = "EHDBMANI"
	version       = 1
	encrypted     = 2 // the version of a file whose frames' bodies are boxes of storage/crypt, else the same
	headerSize    = 32
	frameHead     = 24
	maxBody       = 1 << 30
	namePrefix    = "manifest-"
	nameDigits    = 20
	tempExtension = ".tmp"
)

// Types of frames. The zero type is invalid, so that zeroed bytes are no frame.
const (
	frameSnapshot = 1 // the state after that many edits
	frameEdit     = 2 // the edit that makes it that many
	frameMark     = 3 // proof that what is before it is durable; no body
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var le = binary.LittleEndian

func fileName(generation uint64) string { return fmt.Sprintf("%s%020d", namePrefix, generation) }

// parseName returns the generation of a manifest's name.
func parseName(name string) (generation uint64, ok bool) {
	digits, ok := strings.CutPrefix(path.Base(name), namePrefix)
	if !ok || len(digits) != nameDigits {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' || generation > (math.MaxUint64-9)/10 {
			return 0, false
		}
		generation = generation*10 + uint64(c-'0')
	}
	return generation, true
}

func encodeHeader(generation uint64, salt, v uint32) []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	le.PutUint32(b[8:], v)
	le.PutUint64(b[16:], generation)
	le.PutUint32(b[24:], salt)
	le.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	return b
}

// decodeHeader reads the header of the file of that generation.
func decodeHeader(b []byte, generation uint64) (salt, v uint32, err error) {
	if len(b) < headerSize || string(b[:8]) != magic {
		return 0, 0, errors.New("this is not a manifest")
	}
	v, sum := le.Uint32(b[8:]), crc32.Checksum(b[:28], castagnoli) == le.Uint32(b[28:])
	known := v == version || v == encrypted
	switch {
	case !sum && !known:
		return 0, 0, fmt.Errorf("header is damaged or of version %d, which is not known", v)
	case !sum:
		return 0, 0, errors.New("header does not match its checksum")
	case !known:
		return 0, 0, fmt.Errorf("manifest has format version %d, this program knows %d and %d", v, version, encrypted)
	case le.Uint64(b[16:]) != generation:
		return 0, 0, fmt.Errorf("header is of generation %d", le.Uint64(b[16:]))
	}
	return le.Uint32(b[24:]), v, nil
}

// appendFrame adds a frame to b.
func appendFrame(b []byte, salt uint32, typ uint8, edits uint64, body []byte) []byte {
	at := len(b)
	b = append(b, make([]byte, frameHead)...)
	h := b[at:]
	le.PutUint32(h[4:], uint32(len(body)))
	le.PutUint64(h[8:], edits)
	h[16] = typ
	le.PutUint32(h[20:], crc32.Update(salt, castagnoli, body))
	le.PutUint32(h, crc32.Update(salt, castagnoli, h[4:frameHead]))
	return append(b, body...)
}

type frame struct {
	typ   uint8
	edits uint64
	body  []byte // borrowed
	size  int
}

var (
	errNoFrame   = errors.New("no frame here")
	errFrameBody = errors.New("frame's body does not match its checksum or is cut short")
)

// decodeFrame reads the frame at the start of b.
func decodeFrame(b []byte, salt uint32) (f frame, err error) {
	if len(b) < frameHead || crc32.Update(salt, castagnoli, b[4:frameHead]) != le.Uint32(b) {
		return f, errNoFrame
	}
	n := uint64(le.Uint32(b[4:]))
	f = frame{typ: b[16], edits: le.Uint64(b[8:])}
	if n > uint64(len(b)-frameHead) {
		return f, errFrameBody
	}
	f.size = frameHead + int(n)
	f.body = b[frameHead:f.size]
	if crc32.Update(salt, castagnoli, f.body) != le.Uint32(b[20:]) {
		return f, errFrameBody
	}
	return f, nil
}
