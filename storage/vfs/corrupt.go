package vfs

import "fmt"

// CorruptError says that a file is damaged, cut short, or not what it says it is. The formats kept on this file system
// share it, so that whoever reports damage needs to know one error.
type CorruptError struct {
	Path   string // the file; for bytes kept elsewhere, what the caller called them
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
