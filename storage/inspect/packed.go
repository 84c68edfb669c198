package inspect

import "errors"

const (
	packedHead   = 16
	perPage      = 4096
	restartEvery = 16
)

var errPacked = errors.New("a packed array does not fit its page")

// unpack reads a packed array of n numbers.
func unpack(f *fields, n uint32) []uint64 {
	base, count, width := f.u64(), f.u32(), f.u8()
	f.bytes(3)
	if f.err == nil && (count != n || width > 64) {
		f.fail(errPacked)
	}
	words := f.bytes((uint64(n)*uint64(width) + 63) / 64 * 8)
	if f.err != nil {
		return nil
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = base + bitsAt(words, uint64(i)*uint64(width), uint(width))
	}
	return out
}

// bitsAt reads width bits at bit at of words, counted from the lowest bit of the first word.
func bitsAt(words []byte, at uint64, width uint) uint64 {
	if width == 0 {
		return 0
	}
	i, shift := at/64*8, uint(at%64)
	v := le.Uint64(words[i:]) >> shift
	if shift+width > 64 {
		v |= le.Uint64(words[i+8:]) << (64 - shift)
	}
	if width < 64 {
		v &= 1<<width - 1
	}
	return v
}

// pageSize is how many of count numbers are on page p.
func pageSize(count uint32, p int) uint32 { return min(perPage, count-uint32(p)*perPage) }

// pages is how many pages of numbers there are.
func pages(count uint32) uint32 { return uint32((uint64(count) + perPage - 1) / perPage) }
