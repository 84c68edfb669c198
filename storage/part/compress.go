package part

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// Codec says how a block is compressed. A block that does not get smaller is stored as it is.
type Codec uint8

// Codecs.
const (
	None Codec = iota
	S2
	Zstd
)

// zstdDecoder is made when it is first needed. It has no state between calls and no goroutines.
var zstdDecoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxRaw+1), zstd.WithDecoderConcurrency(0))
})

// compressor compresses the blocks of one file.
type compressor struct {
	codec Codec
	zstd  *zstd.Encoder
	buf   []byte
}

// set has what follows compressed with c.
func (k *compressor) set(c Codec) (err error) {
	switch {
	case c > Zstd:
		return fmt.Errorf("codec %d is not known", c)
	case c == Zstd && k.zstd == nil:
		k.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
	}
	k.codec = c
	return err
}

// compress returns raw in fewer bytes, or raw itself. The result is valid until the next call.
func (k *compressor) compress(raw []byte) ([]byte, Codec) {
	switch k.codec {
	case None:
		return raw, None
	case S2:
		if n := s2.MaxEncodedLen(len(raw)); n > cap(k.buf) {
			k.buf = make([]byte, n)
		}
		k.buf = s2.Encode(k.buf[:cap(k.buf)], raw)
	case Zstd:
		k.buf = k.zstd.EncodeAll(raw, k.buf[:0])
	}
	if len(k.buf) >= len(raw) {
		return raw, None
	}
	return k.buf, k.codec
}

var errRawLen = errors.New("block's raw length is not that of its bytes")

// decompress returns the raw bytes of b. Their number is known from two places before they are allocated.
func decompress(c Codec, b []byte, raw uint32) ([]byte, error) {
	switch c {
	case None:
		if len(b) != int(raw) {
			return nil, errRawLen
		}
		return b, nil
	case S2:
		if n, err := s2.DecodedLen(b); err != nil || n != int(raw) {
			return nil, errRawLen
		}
		return s2.Decode(make([]byte, raw), b)
	case Zstd:
		var h zstd.Header
		if err := h.Decode(b); err != nil || !h.HasFCS || h.FrameContentSize != uint64(raw) {
			return nil, errRawLen
		}
		d, err := zstdDecoder()
		if err != nil {
			return nil, err
		}
		out, err := d.DecodeAll(b, make([]byte, 0, raw))
		if err == nil && len(out) != int(raw) {
			err = errRawLen
		}
		return out, err
	}
	return nil, fmt.Errorf("block's codec %d is not known", c)
}
