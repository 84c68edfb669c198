package manifest

import (
	"errors"
	"fmt"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// ErrStopped is wrapped, with the cause, by every call after an I/O error: what is on disk is not known until the
// manifest is opened again.
var ErrStopped = errors.New("manifest stopped")

// CorruptError says that a manifest is damaged, or that two of them contradict each other.
type CorruptError = vfs.CorruptError

var errNoKeys = errors.New("it is encrypted, and the directory's keys are missing: restore the files KEYS and " +
	"KEYS.copy of this data directory from a backup")

const hintRestore = "the list of parts is damaged, the parts may be whole: stop, copy the directory, then restore " +
	"the manifest from a backup or a replica, or rebuild it from the parts"

func corrupt(path string, off int64, format string, args ...any) error {
	return &CorruptError{Path: path, Offset: off, Err: fmt.Errorf(format, args...), Hint: hintRestore}
}
