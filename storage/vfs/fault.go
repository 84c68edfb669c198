package vfs

import (
	"errors"
	"io"
	"slices"
	"sync/atomic"
)

// Kind is a kind of operation.
type Kind uint8

// The kinds of operations that a Fault tells its hook about.
const (
	OpCreate Kind = iota + 1
	OpOpen
	OpOpenRead
	OpRename
	OpRemove
	OpStat
	OpList
	OpMkdirAll
	OpSyncDir
	OpLock
	OpRead
	OpWrite // WriteAt and WritevAt
	OpSync
	OpTruncate
	OpSize
	OpClose
)

// Changes reports whether the operation changes what is on disk or what is durable.
func (k Kind) Changes() bool {
	switch k {
	case OpCreate, OpRename, OpRemove, OpMkdirAll, OpSyncDir, OpLock, OpWrite, OpSync, OpTruncate:
		return true
	case OpOpen, OpOpenRead, OpStat, OpList, OpRead, OpSize, OpClose:
	}
	return false
}

// Op is one operation about to be done.
type Op struct {
	N    int64 // how many came before it
	Kind Kind
	Path string // of a rename, the old one
	Off  int64  // of a read or write; of a truncate, the size
	Len  int    // of a read or write
}

// Hook is called before each operation, on the goroutine that asked for it. An error is returned instead of doing the
// operation; see also ShortWriteError and ErrSyncLost. A hook may wait (a stalled disk) or take a crash clone.
type Hook func(op Op) error

// ErrSyncLost makes, when a hook's error for OpSync wraps it, what was not durable impossible to sync until it is
// written again, though it can be read: see File.Sync. It needs a Mem below.
var ErrSyncLost = errors.New("sync failed and lost what it was to write")

// ShortWriteError is a hook's error for OpWrite that lets the first N bytes be written before Err is returned.
type ShortWriteError struct {
	N   int
	Err error
}

// Error is that of Err.
func (s *ShortWriteError) Error() string { return s.Err.Error() }

// Unwrap returns Err.
func (s *ShortWriteError) Unwrap() error { return s.Err }

// Fault is a file system that asks a hook before each operation on another one.
type Fault struct {
	inner FS
	hook  atomic.Pointer[Hook]
	n     atomic.Int64
}

var _ FS = (*Fault)(nil)

// NewFault returns a Fault over inner. hook may be nil.
func NewFault(inner FS, hook Hook) *Fault {
	f := &Fault{inner: inner}
	f.SetHook(hook)
	return f
}

// SetHook replaces the hook; nil for none.
func (f *Fault) SetHook(hook Hook) {
	if hook == nil {
		hook = func(Op) error { return nil }
	}
	f.hook.Store(&hook)
}

// Ops returns how many operations were asked for.
func (f *Fault) Ops() int64 { return f.n.Load() }

func (f *Fault) before(op Op) error {
	op.N = f.n.Add(1) - 1
	return (*f.hook.Load())(op)
}

// FailAt returns a hook that fails operation n alone.
func FailAt(n int64, err error) Hook {
	return func(op Op) error {
		if op.N == n {
			return err
		}
		return nil
	}
}

// FailKind returns a hook that fails every operation of these kinds.
func FailKind(err error, kinds ...Kind) Hook {
	return func(op Op) error {
		if slices.Contains(kinds, op.Kind) {
			return err
		}
		return nil
	}
}

// Create implements FS.
func (f *Fault) Create(name string) (File, error) { return f.open(OpCreate, name, f.inner.Create) }

// Open implements FS.
func (f *Fault) Open(name string) (File, error) { return f.open(OpOpen, name, f.inner.Open) }

// OpenRead implements FS.
func (f *Fault) OpenRead(name string) (File, error) {
	return f.open(OpOpenRead, name, f.inner.OpenRead)
}

func (f *Fault) open(kind Kind, name string, open func(string) (File, error)) (File, error) {
	if err := f.before(Op{Kind: kind, Path: name}); err != nil {
		return nil, err
	}
	file, err := open(name)
	if err != nil {
		return nil, err
	}
	return &faultFile{inner: file, f: f, name: name}, nil
}

// Rename implements FS.
func (f *Fault) Rename(oldname, newname string) error {
	if err := f.before(Op{Kind: OpRename, Path: oldname}); err != nil {
		return err
	}
	return f.inner.Rename(oldname, newname)
}

// Remove implements FS.
func (f *Fault) Remove(name string) error {
	if err := f.before(Op{Kind: OpRemove, Path: name}); err != nil {
		return err
	}
	return f.inner.Remove(name)
}

// Stat implements FS.
func (f *Fault) Stat(name string) (int64, error) {
	if err := f.before(Op{Kind: OpStat, Path: name}); err != nil {
		return 0, err
	}
	return f.inner.Stat(name)
}

// List implements FS.
func (f *Fault) List(dir string) ([]string, error) {
	if err := f.before(Op{Kind: OpList, Path: dir}); err != nil {
		return nil, err
	}
	return f.inner.List(dir)
}

// MkdirAll implements FS.
func (f *Fault) MkdirAll(dir string) error {
	if err := f.before(Op{Kind: OpMkdirAll, Path: dir}); err != nil {
		return err
	}
	return f.inner.MkdirAll(dir)
}

// SyncDir implements FS.
func (f *Fault) SyncDir(dir string) error {
	if err := f.before(Op{Kind: OpSyncDir, Path: dir}); err != nil {
		return err
	}
	return f.inner.SyncDir(dir)
}

// Lock implements FS.
func (f *Fault) Lock(name string) (io.Closer, error) {
	if err := f.before(Op{Kind: OpLock, Path: name}); err != nil {
		return nil, err
	}
	return f.inner.Lock(name)
}
