package archive

import (
	"errors"
	"fmt"
)

// Magic is how an archive starts.
const Magic = "NATSARC1"

// Names of the entries that are not messages.
const (
	StateName      = "state.json"
	ConsumerPrefix = "consumers/"
)

// MaxName is the longest name of an entry, in bytes.
const MaxName = 1 << 20

// Errors of a Reader, besides *[FormatError]. All are final.
var (
	ErrDamaged   = errors.New("archive is damaged")
	ErrTruncated = errors.New("archive was truncated: its end is missing")
	ErrTooLarge  = errors.New("entry is larger than permitted")
)

// FormatError says that what was read is no archive.
type FormatError struct{ Start []byte } // how it starts instead

func (e *FormatError) Error() string {
	return fmt.Sprintf("not an archive: it starts with %q, not with %q", e.Start, Magic)
}

// errEnded refuses an entry after End.
var errEnded = errors.New("archive has ended")

// Entry is the head of an entry.
type Entry struct {
	Name   []byte // valid until the next call of Next
	Time   int64  // Unix nanoseconds
	Seq    uint64 // 0: not a message
	Header int64  // bytes of its header block
	Data   int64  // bytes of the rest
}

// isEnd reports whether the entry ends the archive.
func (e *Entry) isEnd() bool {
	return len(e.Name) == 0 && e.Time == 0 && e.Seq == 0 && e.Header == 0 && e.Data == 0
}
