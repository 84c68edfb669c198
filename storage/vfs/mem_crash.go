package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// CrashOptions say what survives a power loss of what was not synced.
type CrashOptions struct {
	Seed uint64
	// Keep is the share of unsynced changes that survive, from 0 to 1. Between the two, each sector of each file and
	// each change of a directory is lost or kept on its own, so they survive in any order.
	Keep float64
	// Sector is how many bytes survive or are lost together; default 512. A smaller one than any disk has tears writes
	// in places where they could not be torn, which is a harder test.
	Sector int64
	// Journal makes the changes of a directory survive in order, as a journaling file system has it.
	Journal bool
}

// CrashClone returns the file system as it could be found after a power loss at this moment. Files of the original stay
// usable; locks are gone.
func (m *Mem) CrashClone(o CrashOptions) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o.Sector <= 0 {
		o.Sector = 512
	}
	c := crasher{o: o, rnd: rand.New(rand.NewPCG(o.Seed, 0x9e3779b97f4a7c15)), done: map[*memNode]*memNode{}}
	clone := NewMem()
	clone.root = c.node(m.root)
	for _, n := range c.done {
		clone.used += int64(len(n.data.now))
	}
	return clone
}

type crasher struct {
	o    CrashOptions
	rnd  *rand.Rand
	done map[*memNode]*memNode
}

// survivors returns how many of n changes to one thing survive, in order: all, or by bad luck fewer.
func (c *crasher) survivors(n int) int {
	if n == 0 || c.rnd.Float64() < c.o.Keep {
		return n
	}
	if c.o.Keep == 0 {
		return 0
	}
	return c.rnd.IntN(n)
}

func (c *crasher) node(n *memNode) *memNode {
	if clone := c.done[n]; clone != nil {
		return clone
	}
	clone := &memNode{isDir: n.isDir}
	c.done[n] = clone
	if !n.isDir {
		clone.data.now = c.data(&n.data)
		clone.data.durable = append([]byte(nil), clone.data.now...)
		return clone
	}
	names := c.names(&n.names)
	clone.names = memNames{now: map[string]*memNode{}, durable: map[string]*memNode{}}
	for _, name := range slices.Sorted(maps.Keys(names)) { // sorted: the seed must give the same crash each time
		child := c.node(names[name])
		clone.names.now[name], clone.names.durable[name] = child, child
	}
	return clone
}

func (c *crasher) names(n *memNames) map[string]*memNode {
	out := maps.Clone(n.durable)
	if c.o.Journal {
		for _, change := range n.pending[:c.survivors(len(n.pending))] {
			change.applyTo(out)
		}
		return out
	}
	for _, change := range n.pending {
		if c.survivors(1) == 1 {
			change.applyTo(out)
		}
	}
	return out
}

// data returns a file's content after the crash. A sector holds what it held after some prefix of the writes that
// touched it, since the system keeps one copy of it in memory and writes that.
func (c *crasher) data(d *memData) []byte {
	out := append([]byte(nil), d.durable...)
	touched := map[int64][]int{} // sector -> changes
	for i, change := range d.pending {
		if len(change.data) == 0 {
			continue
		}
		last := (change.off + int64(len(change.data)) - 1) / c.o.Sector
		for s := change.off / c.o.Sector; s <= last; s++ {
			touched[s] = append(touched[s], i)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(touched)) {
		for _, i := range touched[s][:c.survivors(len(touched[s]))] {
			out = applyTo(out, d.pending[i], s*c.o.Sector, (s+1)*c.o.Sector)
		}
	}
	size := int64(len(d.durable))
	if n := c.survivors(len(d.pending)); n > 0 {
		size = d.pending[n-1].size
	}
	return resize(out, size)
}

// applyTo writes the part of a change that lies in [from, to).
func applyTo(b []byte, change dataChange, from, to int64) []byte {
	lo, hi := max(from, change.off), min(to, change.off+int64(len(change.data)))
	if hi > int64(len(b)) {
		b = resize(b, hi)
	}
	copy(b[lo:hi], change.data[lo-change.off:])
	return b
}
