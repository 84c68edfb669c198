package part

import (
	"crypto/cipher"

	"github.com/noetl/ehdb-gateway/storage/crypt"
)

// nonceSize is that of both ciphers.
const nonceSize = 12

// seal gives h a data key of its own, wrapped by keys, and returns the AEAD of it; nil without keys.
func (h *header) seal(keys *crypt.Keys) (aead cipher.AEAD, err error) {
	if keys == nil {
		return nil, nil //nolint:nilnil // a part without encryption has none
	}
	h.cipher, h.keyID = keys.Cipher(), keys.Current()
	aead, h.wrapped, err = keys.Wrap(h.id[:])
	return aead, err
}

// open returns the AEAD of the part with header h; nil if it is not encrypted.
func (h *header) open(keys *crypt.Keys) (cipher.AEAD, error) {
	if h.cipher == crypt.Plain {
		return nil, nil //nolint:nilnil // a part without encryption has none
	}
	return keys.Unwrap(h.cipher, h.keyID, h.wrapped[:], h.id[:])
}

// nonce of a block: its number. The key is the part's own, so no nonce is used twice.
func nonce(number uint32) []byte {
	b := make([]byte, nonceSize)
	le.PutUint32(b, number)
	return b
}
