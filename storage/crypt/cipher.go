package crypt

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
)

// Cipher says how something is encrypted.
type Cipher uint8

// Ciphers.
const (
	Plain Cipher = iota
	AES256GCM
	ChaCha20Poly1305
)

func (c Cipher) String() string {
	switch c {
	case Plain:
		return "none"
	case AES256GCM:
		return "AES-256-GCM"
	case ChaCha20Poly1305:
		return "ChaCha20-Poly1305"
	}
	return fmt.Sprintf("cipher %d", uint8(c))
}

const (
	keySize   = 32
	nonceSize = 12 // of both ciphers
	tagSize   = 16 // of both ciphers
)

var le = binary.LittleEndian

// NewAEAD returns c with a key of 32 bytes. It is an error for what is no cipher.
func NewAEAD(c Cipher, key []byte) (cipher.AEAD, error) {
	switch c {
	case Plain:
	case ChaCha20Poly1305:
		return chacha20poly1305.New(key)
	case AES256GCM:
		b, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		return cipher.NewGCM(b)
	}
	return nil, fmt.Errorf("%v cannot encrypt", c)
}
