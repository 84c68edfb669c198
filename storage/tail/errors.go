package tail

import (
	"errors"
	"fmt"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// More errors that callers act on.
var (
	// ErrTooLarge is returned by Append for a body of more than MaxBody bytes. Nothing was written.
	ErrTooLarge = errors.New("block too large for the log")
	// ErrDropped is returned by ReadAt for a position whose segment was dropped or never was.
	ErrDropped = errors.New("position is not in the log")
	// ErrNotReplayed is returned by writes before Replay: where the log ends is not known until then.
	ErrNotReplayed = errors.New("log not replayed yet")
)

// CorruptError says that bytes which were durable are missing or wrong. It is never used for a torn tail, which is what
// a crash leaves of blocks that were not synced.
type CorruptError = vfs.CorruptError

// hintRestore is the remedy when acknowledged bytes are gone.
const hintRestore = "acknowledged data is damaged: stop, copy the directory, then restore it from a backup or a replica"

// hintStranger is the remedy when a file is not the log's.
const hintStranger = "move the file out of the directory if it does not belong there"

// hintKeys is the remedy when what the log is encrypted with is not there.
const hintKeys = "restore the files KEYS and KEYS.copy of this data directory from a backup"

func corrupt(path string, offset int64, hint, format string, args ...any) error {
	return &CorruptError{Path: path, Offset: offset, Err: fmt.Errorf(format, args...), Hint: hint}
}
