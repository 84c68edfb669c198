package storage

import (
	"errors"
	"fmt"
)

// Errors that callers act on. Others name a file, an offset and a remedy (see [CorruptError]).
var (
	ErrNotFound   = errors.New("record not found")
	ErrEOF        = errors.New("no record there yet")
	ErrOutOfOrder = errors.New("record offered below the head of its log")
	ErrUsedUp     = errors.New("no sequence is left: nothing can be stored after sequence 18446744073709551614")
	ErrFull       = errors.New("shard queue is full")
	ErrStopped    = errors.New("data directory stopped")
	ErrNoLog      = errors.New("no such log")
	ErrLocked     = errors.New("data directory is in use")
	ErrTooLarge   = errors.New("record is too large to store")
)

// errClosed is the cause inside ErrStopped once Close was called.
var errClosed = errors.New("store is closed")

// errMemory refuses a log that is to be kept in memory in a store that has a directory.
var errMemory = errors.New("a log in memory needs a store in memory (no directory)")

// stopped wraps the cause of a stop, so that both ErrStopped and the cause are found by errors.Is.
func stopped(cause error) error {
	if errors.Is(cause, ErrStopped) {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrStopped, cause)
}

// noSpaceError refuses for lack of disk space. Its text is for clients, who need not know where the server keeps its
// files; what a person who looks after the server needs is in detail.
type noSpaceError struct {
	text  string
	cause error
}

const (
	textNoRoom = "no space left on the server's disk: purge or delete messages, or free space on it"
	textStuck  = "no space left on the server's disk: purge older messages, or free %d MiB on it to give back what " +
		"was deleted"
	textFull = "no space left on the server's disk, not even for deletions: free space on it"
)

func (e *noSpaceError) Error() string { return e.text }

// Unwrap makes both ErrStopped and the cause found by errors.Is.
func (e *noSpaceError) Unwrap() []error { return []error{ErrStopped, e.cause} }

// detail returns err with the cause and paths in its text, for logs and health.
func detail(err error) error {
	if e, ok := errors.AsType[*noSpaceError](err); ok {
		return fmt.Errorf("%w (%w)", err, e.cause)
	}
	return err
}

// CorruptError says that bytes which passed their checksum cannot be understood, or that what is on disk contradicts
// itself.
type CorruptError struct {
	Path   string // the data directory or file
	Offset int64  // in the file, or in the block when Path is a directory
	Shard  ShardID
	Err    error
	Hint   string // what a person can do
}

func (e *CorruptError) Error() string {
	s := fmt.Sprintf("%s: offset %d, shard %d: %v", e.Path, e.Offset, e.Shard, e.Err)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *CorruptError) Unwrap() error { return e.Err }
