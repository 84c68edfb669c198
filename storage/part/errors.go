package part

import (
	"errors"
	"fmt"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// Errors that callers act on.
var (
	// ErrOutOfOrder is returned by Add for a sequence not above, or a time below, those of the record before.
	ErrOutOfOrder = errors.New("record offered below the last one of its section")
	// ErrTooLarge is returned by Add for a record of more than MaxRecord bytes.
	ErrTooLarge = errors.New("record is too large for a part")
	// ErrFull is returned by Add when a section holds MaxRecords records.
	ErrFull = errors.New("section is full")
	// ErrNoLog is returned by Add before BeginLog, and by BeginLog for a log the part has already.
	ErrNoLog = errors.New("no section to add to")
	// ErrFinished is returned by a Builder that is finished, aborted or failed before.
	ErrFinished = errors.New("part is finished or failed")
)

// CorruptError says that a file is damaged, cut short, or not what it says it is.
type CorruptError = vfs.CorruptError

const (
	hintRestore  = "keep the file, fetch the part again from a backup or a replica, or salvage what verifies"
	hintStranger = "move the file away if it is not a part of this directory"
)

func corrupt(path string, offset int64, format string, args ...any) error {
	return &CorruptError{Path: path, Offset: offset, Err: fmt.Errorf(format, args...), Hint: hintRestore}
}
