package part

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
)

// Cipher says how a part is encrypted.
type Cipher uint8

// Ciphers.
const (
	Plain Cipher = iota
	AES256GCM
	ChaCha20Poly1305
)

const (
	dataKeySize = 32
	nonceSize   = 12
)

// Keys are the master keys of a directory. Each part has a data key of its own, wrapped by a master key: to rotate the
// master, give the old one as previous until the last part that needs it was merged away.
type Keys struct {
	cipher Cipher
	keys   []masterKey // the first one wraps
}

type masterKey struct {
	id  uint64
	key []byte
}

// NewKeys derives master keys from secrets. New parts are encrypted with c and current; previous open older ones,
// whatever their cipher.
func NewKeys(c Cipher, current []byte, previous ...[]byte) (*Keys, error) {
	if c != AES256GCM && c != ChaCha20Poly1305 {
		return nil, fmt.Errorf("cipher %d cannot encrypt parts", c)
	}
	k := &Keys{cipher: c}
	for _, secret := range append([][]byte{current}, previous...) {
		if len(secret) == 0 {
			return nil, errors.New("master key is empty")
		}
		key, err := hkdf.Key(sha256.New, secret, nil, "ehdb part master key 1", dataKeySize)
		if err != nil {
			return nil, err
		}
		id, err := hkdf.Key(sha256.New, secret, nil, "ehdb part master key id 1", 8)
		if err != nil {
			return nil, err
		}
		k.keys = append(k.keys, masterKey{id: le.Uint64(id), key: key})
	}
	return k, nil
}

func newAEAD(c Cipher, key []byte) (cipher.AEAD, error) {
	if c == ChaCha20Poly1305 {
		return chacha20poly1305.New(key)
	}
	b, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(b)
}

// seal gives h a new data key and returns the AEAD of it; nil without keys.
func (k *Keys) seal(h *header) (cipher.AEAD, error) {
	if k == nil {
		return nil, nil //nolint:nilnil // a part without encryption has none
	}
	var data [dataKeySize]byte
	if _, err := rand.Read(data[:]); err != nil {
		return nil, err
	}
	h.cipher, h.keyID = k.cipher, k.keys[0].id
	wrap, err := newAEAD(h.cipher, k.keys[0].key)
	if err != nil {
		return nil, err
	}
	if _, err := rand.Read(h.wrapped[:nonceSize]); err != nil {
		return nil, err
	}
	wrap.Seal(h.wrapped[:nonceSize], h.wrapped[:nonceSize], data[:], h.id[:])
	return newAEAD(h.cipher, data[:])
}

// open returns the AEAD of the part with header h; nil if it is not encrypted.
func (k *Keys) open(h *header) (cipher.AEAD, error) {
	if h.cipher == Plain {
		return nil, nil //nolint:nilnil // a part without encryption has none
	}
	if k == nil {
		return nil, ErrKey
	}
	for _, m := range k.keys {
		if m.id != h.keyID {
			continue
		}
		wrap, err := newAEAD(h.cipher, m.key)
		if err != nil {
			return nil, err
		}
		data, err := wrap.Open(nil, h.wrapped[:nonceSize], h.wrapped[nonceSize:], h.id[:])
		if err != nil {
			return nil, errors.New("the wrapped data key does not open with its master key")
		}
		return newAEAD(h.cipher, data)
	}
	return nil, ErrKey
}

// nonce of a block: its number. The key is the part's own, so no nonce is used twice.
func nonce(number uint32) []byte {
	b := make([]byte, nonceSize)
	le.PutUint32(b, number)
	return b
}
