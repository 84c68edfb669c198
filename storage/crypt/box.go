package crypt

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
)

// A box is bytes that are encrypted for a place in a file. Each has a key of its own, derived from the directory's key
// and 16 random bytes, so whatever is written wherever however often (a block in the place of one that a crash tore, a
// copy that a repair makes), no key encrypts two things. All numbers are little-endian.
//
//	0        8        9      16     32
//	+--------+--------+------+------+-------+-------+-- - - --+-------+
//	| key id | cipher | zero | salt | chunk | chunk |         | chunk |
//	+--------+--------+------+------+-------+-------+-- - - --+-------+
//	 u64      u8       7      16     each 16 KiB of the plain bytes and a tag of 16; the last one: what is left
//
// The key is HKDF-Expand of the directory's box key with "ehdb box 1" and bytes 8 to 32; the nonce of a chunk is its
// number (u32) and the number of all plain bytes (u64); the place is the additional data of each. So chunks can be read
// one by one, and none can be left out, moved, or come from another box.
const (
	boxHead   = 32
	chunkSize = 16 << 10
	fullChunk = chunkSize + tagSize

	labelOneBox = "ehdb box 1"
	saltAt      = 16
)

// BoxSize returns the size of the box of n bytes.
func BoxSize(n int64) int64 { return boxHead + n + chunks(n)*tagSize }

// chunks returns how many chunks n bytes make: at least one, so that a box of nothing is one too.
func chunks(n int64) int64 { return max(1, (n+chunkSize-1)/chunkSize) }

// PlainSize returns how many bytes are in a box of n bytes; false if no box has that size.
func PlainSize(n int64) (int64, bool) {
	n -= boxHead
	plain := n - (n+fullChunk-1)/fullChunk*tagSize
	return plain, n > 0 && plain >= 0 && BoxSize(plain) == n+boxHead
}

// Seal appends the box of the bytes in parts, one after the other, to dst, of which it grows the memory at most once.
// place is what the box belongs to and can only be opened with: bytes that say which file and where in it.
func (k *Keys) Seal(dst, place []byte, parts ...[]byte) ([]byte, error) {
	total := int64(0)
	for _, p := range parts {
		total += int64(len(p))
	}
	at := len(dst)
	if need := at + int(BoxSize(total)); cap(dst) < need {
		dst = append(make([]byte, 0, need), dst...)
	}
	dst = dst[:at+boxHead]
	head := dst[at:]
	clear(head)
	le.PutUint64(head, k.keys[0].id)
	head[8] = byte(k.cipher)
	_, _ = rand.Read(head[saltAt:]) // never fails
	aead, err := k.keys[0].boxAEAD(head)
	if err != nil {
		return nil, err
	}
	var nonce [nonceSize]byte
	le.PutUint64(nonce[4:], uint64(total))
	rest := source{parts: parts}
	for n := range uint32(chunks(total)) { //nolint:gosec // of at most 1 GiB
		size := min(total, chunkSize)
		total -= size
		from := len(dst)
		dst = rest.append(dst, int(size))
		le.PutUint32(nonce[:], n)
		dst = aead.Seal(dst[:from], nonce[:], dst[from:], place)
	}
	return dst, nil
}

// source gives the bytes of several slices, one after the other.
type source struct {
	parts [][]byte
	off   int // in the first of them
}

// append adds the next n bytes to dst.
func (s *source) append(dst []byte, n int) []byte {
	for n > 0 {
		b := s.parts[0][s.off:]
		if len(b) > n {
			s.off += n
			return append(dst, b[:n]...)
		}
		dst = append(dst, b...)
		n -= len(b)
		s.parts, s.off = s.parts[1:], 0
	}
	return dst
}

func (d *dirKey) boxAEAD(head []byte) (cipher.AEAD, error) {
	key, err := hkdf.Expand(sha256.New, d.box, labelOneBox+string(head[8:boxHead]), keySize)
	if err != nil {
		return nil, err
	}
	return NewAEAD(Cipher(head[8]), key)
}

// KeyOf returns the id of the key that a box was made with, 0 if it is too short.
func KeyOf(box []byte) uint64 {
	if len(box) < boxHead {
		return 0
	}
	return le.Uint64(box)
}

// Open appends what is in box to dst. place is that of Seal. Errors wrap ErrKey or ErrOpen.
func (k *Keys) Open(dst, place, box []byte) ([]byte, error) {
	b, err := k.open(box, int64(len(box)), place)
	if err != nil {
		return nil, err
	}
	at := len(dst)
	if need := at + int(b.total); cap(dst) < need {
		dst = append(make([]byte, 0, need), dst...)
	}
	for n := range chunks(b.total) {
		from, to := b.chunk(n)
		if dst, err = b.decrypt(dst, n, box[from:to]); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// OpenAt fills p with what is at off in a box of size bytes, of which it reads what it needs: read fills a slice from
// an offset in the box. Errors wrap ErrKey or ErrOpen, or are those of read.
func (k *Keys) OpenAt(p, place []byte, size, off int64, read func(b []byte, off int64) error) error {
	if size < boxHead {
		return ErrOpen
	}
	head := make([]byte, boxHead)
	if err := read(head, 0); err != nil {
		return err
	}
	b, err := k.open(head, size, place)
	if err != nil {
		return err
	}
	if off < 0 || off+int64(len(p)) > b.total {
		return fmt.Errorf("%d bytes at %d are outside a box of %d", len(p), off, b.total)
	}
	if len(p) == 0 {
		return nil
	}
	first, last := off/chunkSize, (off+int64(len(p))-1)/chunkSize
	from, _ := b.chunk(first)
	_, to := b.chunk(last)
	buf := make([]byte, to-from)
	if err := read(buf, from); err != nil {
		return err
	}
	var plain []byte
	for n := first; n <= last; n++ {
		lo, hi := b.chunk(n)
		c := buf[lo-from : hi-from]
		if plain, err = b.decrypt(c[:0], n, c); err != nil {
			return err
		}
		skip := max(off-n*chunkSize, 0)
		p = p[copy(p, plain[skip:]):]
	}
	return nil
}

// opened is a box that is being read.
type opened struct {
	aead  cipher.AEAD
	place []byte
	total int64 // plain bytes
	size  int64
	nonce [nonceSize]byte
}

func (k *Keys) open(head []byte, size int64, place []byte) (*opened, error) {
	total, ok := PlainSize(size)
	if !ok {
		return nil, ErrOpen
	}
	d, err := k.find(le.Uint64(head))
	if err != nil {
		return nil, err
	}
	b := &opened{place: place, total: total, size: size}
	if b.aead, err = d.boxAEAD(head[:boxHead]); err != nil {
		return nil, fmt.Errorf("%w (%w)", ErrOpen, err)
	}
	le.PutUint64(b.nonce[4:], uint64(total))
	return b, nil
}

// chunk returns where chunk n is in the box.
func (b *opened) chunk(n int64) (from, to int64) {
	from = boxHead + n*fullChunk
	return from, min(from+fullChunk, b.size)
}

func (b *opened) decrypt(dst []byte, n int64, chunk []byte) ([]byte, error) {
	le.PutUint32(b.nonce[:], uint32(n)) //nolint:gosec // chunks of at most 1 GiB
	out, err := b.aead.Open(dst, b.nonce[:], chunk, b.place)
	if err != nil {
		return nil, ErrOpen
	}
	return out, nil
}
