package parity

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// LeafSize is how many sequences a leaf of a digest takes in.
const LeafSize = 1024

// leaf holds the digests of a range of sequences on both sides. Each is an order-sensitive chain over the records.
type leaf struct {
	index           uint64 // (sequence-1) / LeafSize
	authority, copy uint64
}

func leafOf(seq uint64) uint64 { return (seq - 1) / LeafSize }

// chain is H(n) = h(H(n-1), record n).
func chain(h uint64, it *item, timed bool) uint64 { //nolint:revive // what a record is
	var b [32]byte
	binary.LittleEndian.PutUint64(b[0:], h)
	binary.LittleEndian.PutUint64(b[8:], it.seq)
	if timed {
		binary.LittleEndian.PutUint64(b[16:], uint64(it.time)) //nolint:gosec // any bits
	}
	binary.LittleEndian.PutUint64(b[24:], it.hash)
	return xxhash.Sum64(b[:])
}

// fold chains leaves, with their places, in order.
func fold(h, index, digest uint64) uint64 {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[0:], h)
	binary.LittleEndian.PutUint64(b[8:], index)
	binary.LittleEndian.PutUint64(b[16:], digest)
	return xxhash.Sum64(b[:])
}

// leaves are ascending.
type leaves []leaf

// at returns the leaf of a sequence, which is the last or a new one.
func (l *leaves) at(seq uint64) *leaf {
	i := leafOf(seq)
	if n := len(*l); n > 0 && (*l)[n-1].index == i {
		return &(*l)[n-1]
	}
	*l = append(*l, leaf{index: i})
	return &(*l)[len(*l)-1]
}

// digests returns the digest of each side over all leaves.
func (l leaves) digests() (authority, copied uint64) {
	for _, f := range l {
		authority, copied = fold(authority, f.index, f.authority), fold(copied, f.index, f.copy)
	}
	return authority, copied
}

// tree is a Merkle tree over leaves: levels[0] are they.
type tree struct{ levels [][]uint64 }

func grow(digests []uint64) tree {
	t := tree{levels: [][]uint64{digests}}
	for len(digests) > 1 {
		up := make([]uint64, (len(digests)+1)/2)
		for i := range up {
			up[i] = fold(0, 0, digests[2*i])
			if 2*i+1 < len(digests) {
				up[i] = fold(up[i], 1, digests[2*i+1])
			}
		}
		t.levels = append(t.levels, up)
		digests = up
	}
	return t
}

// differing returns the leaves in which two trees of the same size differ, and how many nodes it looked at.
func differing(a, b tree) (out []int, looked int) {
	var down func(level, i int)
	down = func(level, i int) {
		looked++
		if a.levels[level][i] == b.levels[level][i] {
			return
		}
		if level == 0 {
			out = append(out, i)
			return
		}
		down(level-1, 2*i)
		if 2*i+1 < len(a.levels[level-1]) {
			down(level-1, 2*i+1)
		}
	}
	if n := len(a.levels[0]); n > 0 {
		down(len(a.levels)-1, 0)
	}
	return out, looked
}

// Range is a range of sequences, both included.
type Range struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// ranges returns the ranges of sequences in which the sides differ.
func (l leaves) ranges() []Range {
	a, b := make([]uint64, len(l)), make([]uint64, len(l))
	for i, f := range l {
		a[i], b[i] = f.authority, f.copy
	}
	if len(l) == 0 {
		return nil
	}
	var out []Range
	at, _ := differing(grow(a), grow(b))
	for _, i := range at {
		out = append(out, Range{First: l[i].index*LeafSize + 1, Last: (l[i].index + 1) * LeafSize})
	}
	return out
}
