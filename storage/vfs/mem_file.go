package vfs

import (
	"io"
	"io/fs"
	"syscall"
)

// memData is a file's content now, what of it is durable, and what was written between the two, in order.
type memData struct {
	now, durable []byte
	pending      []dataChange
}

// dataChange is one write or one change of size.
type dataChange struct {
	off  int64
	data []byte
	size int64 // of the file after it
}

// write puts p at off and returns how much the file grew.
func (d *memData) write(p []byte, off int64) int64 {
	before := int64(len(d.now))
	size := max(before, off+int64(len(p)))
	d.now = resize(d.now, size)
	copy(d.now[off:], p)
	d.pending = append(d.pending, dataChange{off: off, data: append([]byte(nil), p...), size: size})
	return size - before
}

// truncate sets the size. What is cut off counts as written with zeros: it must not come back when the file grows
// again.
func (d *memData) truncate(size int64) int64 {
	before := int64(len(d.now))
	c := dataChange{off: size, size: size}
	if size < before {
		c.data = make([]byte, before-size)
	}
	d.now = resize(d.now, size)
	d.pending = append(d.pending, c)
	return size - before
}

func (d *memData) sync() {
	for _, c := range d.pending {
		d.durable = resize(d.durable, c.size)
		if c.off < c.size {
			copy(d.durable[c.off:], c.data)
		}
	}
	d.pending = nil
}

// resize returns b with that length; what is added is zero.
func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	if size <= int64(cap(b)) {
		n := len(b)
		b = b[:size]
		clear(b[n:])
		return b
	}
	grown := make([]byte, size, size+size/4)
	copy(grown, b)
	return grown
}

// memFile is an open file of a Mem.
type memFile struct {
	m        *Mem
	n        *memNode
	name     string
	readOnly bool
	closed   bool // guarded by m.mu
}

func (f *memFile) check(op string, write bool) error {
	switch {
	case f.closed:
		return pathErr(op, f.name, fs.ErrClosed)
	case write && f.readOnly:
		return pathErr(op, f.name, syscall.EBADF)
	}
	return nil
}

// ReadAt implements File.
func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("read", f.name, syscall.EINVAL)
	}
	if off >= int64(len(f.n.data.now)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data.now[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements File.
func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.writeLocked(p, off)
}

// WritevAt implements File.
func (f *memFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	total := 0
	for _, b := range bufs {
		n, err := f.writeLocked(b, off+int64(total))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (f *memFile) writeLocked(p []byte, off int64) (int, error) {
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("write", f.name, syscall.EINVAL)
	}
	if len(p) == 0 {
		return 0, nil
	}
	fits := len(p)
	if c := f.m.capacity; c > 0 {
		grow := off + int64(len(p)) - int64(len(f.n.data.now))
		if over := f.m.used + grow - c; grow > 0 && over > 0 {
			fits = int(max(0, int64(len(p))-over))
		}
	}
	if fits > 0 {
		f.m.used += f.n.data.write(p[:fits], off)
	}
	if fits < len(p) {
		return fits, pathErr("write", f.name, syscall.ENOSPC)
	}
	return fits, nil
}

// Sync implements File.
func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("sync", false); err != nil {
		return err
	}
	f.n.data.sync()
	return nil
}

// loseUnsynced makes what is not durable impossible to sync, though it can still be read, until it is written again:
// what Linux does to pages whose write-back failed.
func (f *memFile) loseUnsynced() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.data.pending = nil
}

// Truncate implements File.
func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return pathErr("truncate", f.name, syscall.EINVAL)
	}
	f.m.used += f.n.data.truncate(size)
	return nil
}

// Size implements File.
func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("stat", false); err != nil {
		return 0, err
	}
	return int64(len(f.n.data.now)), nil
}

// Close implements File. A second one is an error, as of os.File.
func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.check("close", false); err != nil {
		return err
	}
	f.closed = true
	return nil
}
