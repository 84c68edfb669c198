package crypt

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// Keys are the keys of a directory: the first one encrypts, the others are those that came before it. They may be used
// by several goroutines. A nil *Keys encrypts nothing and opens nothing.
type Keys struct {
	cipher Cipher
	keys   []dirKey
}

// dirKey is what is derived from one key of a directory.
type dirKey struct {
	id   uint64
	wrap []byte // for the data keys of parts
	box  []byte // for the keys of boxes
}

// Errors that callers act on.
var (
	// ErrKey is wrapped when something is encrypted with a key that is not known.
	ErrKey = errors.New("it is encrypted with a key that is not known")
	// ErrOpen is wrapped when something does not decrypt: it was changed, or is not what it is taken for.
	ErrOpen = errors.New("it does not decrypt: it was changed, or moved here from elsewhere")
)

// Labels of what is derived from a directory's key.
const (
	labelID   = "ehdb part master key id 1"
	labelWrap = "ehdb part master key 1"
	labelBox  = "ehdb box key 1"
)

// NewKeys returns keys of a directory. What is new is encrypted with c and the first of them.
func NewKeys(c Cipher, keys ...[]byte) (*Keys, error) {
	if c != AES256GCM && c != ChaCha20Poly1305 {
		return nil, fmt.Errorf("%v cannot encrypt a directory", c)
	}
	if len(keys) == 0 {
		return nil, errors.New("no key is given")
	}
	k := &Keys{cipher: c}
	for _, secret := range keys {
		if len(secret) == 0 {
			return nil, errors.New("a key is empty")
		}
		var d dirKey
		id, err := derive(secret, labelID, 8)
		if err == nil {
			d.id = le.Uint64(id)
			d.wrap, err = derive(secret, labelWrap, keySize)
		}
		if err == nil {
			d.box, err = derive(secret, labelBox, keySize)
		}
		if err != nil {
			return nil, err
		}
		k.keys = append(k.keys, d)
	}
	return k, nil
}

func derive(secret []byte, label string, n int) ([]byte, error) {
	return hkdf.Key(sha256.New, secret, nil, label, n)
}

// Current returns the id of the key that encrypts what is new; 0 if there is none.
func (k *Keys) Current() uint64 {
	if k == nil {
		return 0
	}
	return k.keys[0].id
}

// Cipher returns how what is new is encrypted.
func (k *Keys) Cipher() Cipher {
	if k == nil {
		return Plain
	}
	return k.cipher
}

func (k *Keys) find(id uint64) (*dirKey, error) {
	if k != nil {
		for i := range k.keys {
			if k.keys[i].id == id {
				return &k.keys[i], nil
			}
		}
	}
	return nil, ErrKey
}

// WrappedSize is the size of a wrapped key: a nonce, the key and a tag.
const WrappedSize = nonceSize + keySize + tagSize

// Wrap makes a random key for one file and returns its AEAD, and the key as it is kept in the file. id names the file:
// the wrapped key is of no use in another one.
func (k *Keys) Wrap(id []byte) (aead cipher.AEAD, wrapped [WrappedSize]byte, err error) {
	var key [keySize]byte
	_, _ = rand.Read(key[:]) // never fails
	_, _ = rand.Read(wrapped[:nonceSize])
	wrap, err := NewAEAD(k.cipher, k.keys[0].wrap)
	if err != nil {
		return nil, wrapped, err
	}
	wrap.Seal(wrapped[:nonceSize], wrapped[:nonceSize], key[:], id)
	aead, err = NewAEAD(k.cipher, key[:])
	return aead, wrapped, err
}

// Unwrap returns the AEAD of a file that was encrypted with c and a key that the directory's key keyID wraps. Errors
// wrap ErrKey or ErrOpen.
func (k *Keys) Unwrap(c Cipher, keyID uint64, wrapped, id []byte) (cipher.AEAD, error) {
	d, err := k.find(keyID)
	if err != nil {
		return nil, err
	}
	wrap, err := NewAEAD(c, d.wrap)
	if err != nil {
		return nil, err
	}
	key, err := wrap.Open(nil, wrapped[:nonceSize], wrapped[nonceSize:], id)
	if err != nil {
		return nil, fmt.Errorf("the file's key: %w", ErrOpen)
	}
	return NewAEAD(c, key)
}
