package inspect

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/crypto/chacha20poly1305"
)

const (
	cipherNone   = 0
	cipherAES    = 1
	cipherChaCha = 2
	nonceSize    = 12
)

func newAEAD(kind uint8, key []byte) (cipher.AEAD, error) {
	if kind == cipherChaCha {
		return chacha20poly1305.New(key)
	}
	c, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(c)
}

const maxRaw = 1 << 30

// decompress returns the raw bytes of a block's body; their number is checked before they are allocated.
func decompress(codec uint8, b []byte, raw uint32) ([]byte, error) {
	switch codec {
	case 0:
		if len(b) != int(raw) {
			return nil, fmt.Errorf("the body has %d bytes, its header says %d", len(b), raw)
		}
		return b, nil
	case 1:
		n, err := s2.DecodedLen(b)
		if err != nil || n != int(raw) {
			return nil, fmt.Errorf("the body does not unpack to %d bytes", raw)
		}
		return s2.Decode(nil, b)
	case 2:
		var h zstd.Header
		if err := h.Decode(b); err != nil || !h.HasFCS || h.FrameContentSize != uint64(raw) {
			return nil, fmt.Errorf("the body is no frame with %d bytes of content", raw)
		}
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxRaw+1))
		if err != nil {
			return nil, err
		}
		defer d.Close()
		out, err := d.DecodeAll(b, nil)
		if err == nil && len(out) != int(raw) {
			err = fmt.Errorf("the body unpacks to %d bytes, not %d", len(out), raw)
		}
		return out, err
	}
	return nil, fmt.Errorf("codec %d is not known", codec)
}
