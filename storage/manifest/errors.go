package manifest

import (
	"errors"
	"fmt"
)

// ErrStopped is wrapped, with the cause, by every call after an I/O error: what is on disk is not known until the
// manifest is opened again.
var ErrStopped = errors.New("manifest stopped")

// CorruptError says that a manifest is damaged, or that two of them contradict each other.
type CorruptError struct {
	Path   string // the file
	Offset int64  // where in it
	Err    error  // what is wrong there
	Hint   string // what a person can do
}

// Error names the file, the offset, the damage and the remedy.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: damaged at offset %d: %v (%s)", e.Path, e.Offset, e.Err, e.Hint)
}

// Unwrap returns what is wrong.
func (e *CorruptError) Unwrap() error { return e.Err }

const hintRestore = "the list of parts is damaged, the parts may be whole: stop, copy the directory, then restore " +
	"the manifest from a backup or a replica, or rebuild it from the parts"

func corrupt(path string, off int64, format string, args ...any) error {
	return &CorruptError{Path: path, Offset: off, Err: fmt.Errorf(format, args...), Hint: hintRestore}
}
