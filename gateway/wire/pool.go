package wire

import (
	"math/bits"
	"sync"
)

const (
	minPoolShift = 9  // 512 B
	maxPoolShift = 26 // 64 MiB; larger ones are left to the garbage collector
)

// Pool lends byte buffers whose sizes are powers of two. The zero value is ready to use; safe for concurrent use.
type Pool struct {
	classes [maxPoolShift - minPoolShift + 1]sync.Pool
	heads   sync.Pool // empty *[]byte, so that Put does not allocate one
}

// Get returns a buffer of at least n bytes, all of them in its length. What it holds is undefined.
func (p *Pool) Get(n int) []byte {
	shift := max(bits.Len(uint(max(n, 1)-1)), minPoolShift)
	if shift > maxPoolShift {
		return make([]byte, n)
	}
	if h, ok := p.classes[shift-minPoolShift].Get().(*[]byte); ok {
		b := *h
		*h = nil
		p.heads.Put(h)
		return b
	}
	return make([]byte, 1<<shift)
}

// Put takes back a buffer from Get. The caller must not use it, nor any slice of it, afterwards.
func (p *Pool) Put(b []byte) {
	b = b[:cap(b)]
	shift := bits.Len(uint(len(b))) - 1
	if shift < minPoolShift || shift > maxPoolShift || len(b) != 1<<shift {
		return
	}
	h, ok := p.heads.Get().(*[]byte)
	if !ok {
		h = new([]byte)
	}
	*h = b
	p.classes[shift-minPoolShift].Put(h)
}
