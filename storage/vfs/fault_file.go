package vfs

import "errors"

// faultFile is an open file of a Fault.
type faultFile struct {
	inner File
	f     *Fault
	name  string
}

// ReadAt implements File.
func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.f.before(Op{Kind: OpRead, Path: f.name, Off: off, Len: len(p)}); err != nil {
		return 0, err
	}
	return f.inner.ReadAt(p, off)
}

// WriteAt implements File.
func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.f.before(Op{Kind: OpWrite, Path: f.name, Off: off, Len: len(p)}); err != nil {
		return f.short(err, off, p)
	}
	return f.inner.WriteAt(p, off)
}

// WritevAt implements File.
func (f *faultFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	if err := f.f.before(Op{Kind: OpWrite, Path: f.name, Off: off, Len: n}); err != nil {
		return f.short(err, off, bufs...)
	}
	return f.inner.WritevAt(bufs, off)
}

// short writes as much as a ShortWriteError lets through.
func (f *faultFile) short(cause error, off int64, bufs ...[]byte) (int, error) {
	var s *ShortWriteError
	if !errors.As(cause, &s) {
		return 0, cause
	}
	var p []byte
	for _, b := range bufs {
		p = append(p, b...)
	}
	n, err := f.inner.WriteAt(p[:min(s.N, len(p))], off)
	if err != nil {
		return n, err
	}
	return n, cause
}

// Sync implements File.
func (f *faultFile) Sync() error {
	err := f.f.before(Op{Kind: OpSync, Path: f.name})
	if err == nil {
		return f.inner.Sync()
	}
	if l, ok := f.inner.(interface{ loseUnsynced() }); ok && errors.Is(err, ErrSyncLost) {
		l.loseUnsynced()
	}
	return err
}

// Truncate implements File.
func (f *faultFile) Truncate(size int64) error {
	if err := f.f.before(Op{Kind: OpTruncate, Path: f.name, Off: size}); err != nil {
		return err
	}
	return f.inner.Truncate(size)
}

// Size implements File.
func (f *faultFile) Size() (int64, error) {
	if err := f.f.before(Op{Kind: OpSize, Path: f.name}); err != nil {
		return 0, err
	}
	return f.inner.Size()
}

// Close implements File. The file is closed even when the hook says that it failed.
func (f *faultFile) Close() error {
	err := f.f.before(Op{Kind: OpClose, Path: f.name})
	return errors.Join(err, f.inner.Close())
}
