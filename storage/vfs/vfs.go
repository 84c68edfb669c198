// Package vfs is the file system as the storage packages see it: few operations, each with a stated durability, so
// that one implementation can be the operating system ([OS]), one a memory that loses power at will ([Mem]) and one a
// wrapper that fails where a test wants it to ([Fault]).
//
// # Durability
//
// What a write changed survives a power loss only after [File.Sync] of that file. What Create, Rename, Remove and
// MkdirAll changed survives only after [FS.SyncDir] of the directory that holds the name. Until then any part of it
// may be lost, in any order.
package vfs

import (
	"errors"
	"fmt"
	"io"
)

// ErrLocked is wrapped by the error of Lock when somebody else holds it.
var ErrLocked = errors.New("locked by another holder")

// LockedError says who holds a lock.
type LockedError struct {
	Path string // the lock file
	PID  string // the holder's process id as written in the file; empty when it cannot be read
}

// Error names the file and the holder.
func (e *LockedError) Error() string {
	if e.PID == "" {
		return fmt.Sprintf("%s is locked by another process", e.Path)
	}
	return fmt.Sprintf("%s is locked by process %s", e.Path, e.PID)
}

// Unwrap makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Unwrap() error { return ErrLocked }

// FS is a file system. Names are slash-separated paths. Methods may be called by any goroutine.
type FS interface {
	// Create makes a new file, open for reading and writing; fs.ErrExist if the name is taken.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing; fs.ErrNotExist if there is none.
	Open(name string) (File, error)
	// OpenRead opens an existing file for reading; writes to it fail.
	OpenRead(name string) (File, error)
	// Rename gives a file another name, replacing a file of that name, atomically.
	Rename(oldname, newname string) error
	// Remove removes a file's name. Open files stay readable.
	Remove(name string) error
	// Stat returns a file's size in bytes; fs.ErrNotExist if there is none.
	Stat(name string) (int64, error)
	// List returns the names (not paths) in a directory, sorted.
	List(dir string) ([]string, error)
	// MkdirAll makes a directory and its parents. It is not an error if they exist.
	MkdirAll(dir string) error
	// SyncDir makes the names in dir durable: every creation, renaming and removal so far.
	SyncDir(dir string) error
	// Lock takes the lock of that name, making the file if it is missing and writing this process's id into it. It does
	// not wait: a *LockedError names the holder. The lock ends with Close or with the process.
	Lock(name string) (io.Closer, error)
}

// File is an open file. ReadAt may be called by several goroutines, also during a write elsewhere in the file.
type File interface {
	io.ReaderAt
	io.WriterAt
	// WritevAt writes bufs one after the other from off, as if they were one slice, in one system call where the system
	// has it. It returns an error if it wrote less than all. bufs are not kept or changed.
	WritevAt(bufs [][]byte, off int64) (int, error)
	// Sync makes the bytes and the size durable. After an error it is not known which of them are, nor will a later
	// Sync tell: what was not durable must be written again.
	Sync() error
	// Truncate sets the size; what is added reads as zero and takes no space yet.
	Truncate(size int64) error
	// Size returns the size in bytes.
	Size() (int64, error)
	io.Closer
}
