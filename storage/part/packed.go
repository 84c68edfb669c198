package part

import (
	"errors"
	"math/bits"
)

// A packed array holds n numbers as their differences from the least of them, each in width bits.
//
//	0       8     12     13     16                 16 + 8*ceil(n*width/64)
//	+-------+-----+------+------+------------------+
//	| base  | n   | width| zero | words            |   number i: bits i*width to (i+1)*width, lowest first
//	+-------+-----+------+------+------------------+
const packedHead = 16

type packed struct {
	base  uint64
	n     uint32
	width uint8
	mask  uint64
	words []byte
}

var errPacked = errors.New("packed array does not fit its page")

func packedSize(n uint32, width uint8) int { return int((uint64(n)*uint64(width)+63)/64) * 8 }

// appendPacked encodes vals at the end of b.
func appendPacked[T uint32 | uint64](b []byte, vals []T) []byte {
	var base, top T
	if len(vals) > 0 {
		base, top = vals[0], vals[0]
		for _, v := range vals {
			base, top = min(base, v), max(top, v)
		}
	}
	width := uint8(bits.Len64(uint64(top - base)))
	b = le.AppendUint64(b, uint64(base))
	b = le.AppendUint32(b, uint32(len(vals)))
	b = append(b, width, 0, 0, 0)
	if width == 0 {
		return b
	}
	var word uint64
	used := uint8(0)
	for _, val := range vals {
		v := uint64(val - base)
		word |= v << used
		if used+width >= 64 {
			b = le.AppendUint64(b, word)
			word = v >> (64 - used) // 0 when used is 0: a shift by 64 leaves nothing
			used = used + width - 64
			continue
		}
		used += width
	}
	if used > 0 {
		b = le.AppendUint64(b, word)
	}
	return b
}

// parsePacked reads the array of n numbers at the start of b and returns what is behind it.
func parsePacked(b []byte, n uint32) (p packed, rest []byte, err error) {
	if len(b) < packedHead {
		return p, nil, errPacked
	}
	p = packed{base: le.Uint64(b), n: le.Uint32(b[8:]), width: b[12]}
	if p.n != n || p.width > 64 {
		return p, nil, errPacked
	}
	size := packedSize(n, p.width)
	if size > len(b)-packedHead {
		return p, nil, errPacked
	}
	p.words = b[packedHead : packedHead+size]
	p.mask = ^uint64(0)
	if p.width < 64 {
		p.mask = 1<<p.width - 1
	}
	return p, b[packedHead+size:], nil
}

// at returns number i, which is below n.
func (p *packed) at(i uint32) uint64 {
	if p.width == 0 {
		return p.base
	}
	bit := uint64(i) * uint64(p.width)
	w, shift := bit/64*8, uint8(bit%64)
	v := le.Uint64(p.words[w:]) >> shift
	if shift+p.width > 64 {
		v |= le.Uint64(p.words[w+8:]) << (64 - shift)
	}
	return p.base + v&p.mask
}

// unpack reads the numbers from i on, as many as fit, into dst and returns those. They are known to fit 32 bits, or
// their lowest 32 will do. It takes a fraction of what at does for each.
func (p *packed) unpack(i uint32, dst []uint32) []uint32 {
	dst = dst[:min(uint32(len(dst)), p.n-i)]
	if p.width == 0 {
		for j := range dst {
			dst[j] = uint32(p.base)
		}
		return dst
	}
	bit := uint64(i) * uint64(p.width)
	words, shift := p.words[bit/64*8:], uint(bit%64)
	word, base, width := le.Uint64(words), uint32(p.base), uint(p.width)
	for j := range dst {
		v := word >> shift
		if shift += width; shift >= 64 {
			words, shift = words[8:], shift-64
			if len(words) >= 8 { // else it was the last number
				word = le.Uint64(words)
				v |= word << (width - shift)
			}
		}
		dst[j] = base + uint32(v&p.mask)
	}
	return dst
}
