// Package tail is the write-ahead log of a data directory: a sequence of blocks in pre-sized segment files.
package tail

import (
	"errors"
	"io"
)

// LSN is a block's position: the number of blocks before it since the directory was made. It never goes back.
type LSN uint64

// Pos locates bytes inside the log: a segment and an offset in its file.
type Pos struct {
	Segment uint64
	Offset  uint32
}

// Errors that callers act on.
var (
	// ErrPoisoned is returned by every write after an I/O error: what is on disk is no longer known. Reopen.
	ErrPoisoned = errors.New("log stopped after an I/O error")
	// ErrNoSpace is returned when the next segment cannot be reserved. Nothing was written and the log is not poisoned;
	// a later Append may succeed.
	ErrNoSpace = errors.New("no space left for the log")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("log closed")
)

// Log is the write-ahead log. Append and Sync are called by one goroutine (the commit loop); ReadAt by any.
type Log interface {
	// Append writes body as one block, after every earlier one, and returns where body starts. body may be split over
	// several slices, which are written as if they were one. Nothing is durable before Sync.
	Append(body ...[]byte) (LSN, Pos, error)
	// Sync makes every appended block durable.
	Sync() error
	// ReadAt fills p from pos, inside one block's body. It may be called while others append.
	ReadAt(p []byte, pos Pos) error
	// Replay calls fn for each block from the first kept one, in order. body is only valid during the call.
	// It is called once, after Open and before the first Append.
	Replay(fn func(lsn LSN, pos Pos, body []byte) error) error
	// DropBefore removes whole segments that hold only blocks below lsn.
	DropBefore(lsn LSN) error
	// Size returns the bytes on disk.
	Size() int64
	io.Closer
}
