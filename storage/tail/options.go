package tail

import (
	"errors"
	"fmt"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// Options say where a log is and how it uses the disk. Zero values mean the defaults given here.
type Options struct {
	FS  vfs.FS // default vfs.OS
	Dir string // the log's own directory; made if missing

	SegmentSize  int64 // bytes of a segment file, taken on disk in advance; default 64 MiB, at least 1 KiB
	FirstSegment int64 // of a new log; each next one is twice as large, to SegmentSize or less; default 2 MiB
	Recycle      int   // how many dropped segments are kept to be used again; default 2, negative: none
	OpenFiles    int   // how many files of old segments stay open for ReadAt; default 16

	// Floor is the lowest position that must be there, as the caller knows it from elsewhere: Replay fails if the log
	// starts above it or ends below it. 0 does not check.
	Floor LSN

	// Keys is called when the log is locked, before anything else is done to it, and gives the keys that blocks are
	// encrypted with; nil: they are not. Its error is that of Open. It may be nil.
	Keys func() (*crypt.Keys, error)

	// OnCut is told that a torn tail was cut back to offset in the file path: what a crash left of blocks that were not
	// synced. bytes is how many were set to zero. It may be nil; it is called during Replay.
	OnCut func(path string, offset, bytes int64)
}

const (
	defaultSegmentSize  = 64 << 20
	defaultFirstSegment = 2 << 20 // filled with zeros in a few milliseconds
	minSegmentSize      = 1 << 10
	defaultRecycle      = 2
	defaultOpenFiles    = 16
)

func (o Options) withDefaults() (Options, error) {
	if o.FS == nil {
		o.FS = vfs.OS{}
	}
	if o.Dir == "" {
		return o, errors.New("log directory is not given")
	}
	if o.SegmentSize == 0 {
		o.SegmentSize = defaultSegmentSize
	}
	if o.SegmentSize < minSegmentSize || o.SegmentSize > maxSegmentSize {
		return o, fmt.Errorf("log segment size %d is not between %d and %d",
			o.SegmentSize, minSegmentSize, int64(maxSegmentSize))
	}
	o.SegmentSize = alignUp(o.SegmentSize, blockAlign)
	if o.FirstSegment == 0 {
		o.FirstSegment = min(defaultFirstSegment, o.SegmentSize)
	}
	if o.FirstSegment < minSegmentSize || o.FirstSegment > o.SegmentSize {
		return o, fmt.Errorf("first log segment size %d is not between %d and that of the others, %d",
			o.FirstSegment, minSegmentSize, o.SegmentSize)
	}
	o.FirstSegment = alignUp(o.FirstSegment, blockAlign)
	switch {
	case o.Recycle == 0:
		o.Recycle = defaultRecycle
	case o.Recycle < 0:
		o.Recycle = 0
	}
	if o.OpenFiles <= 0 {
		o.OpenFiles = defaultOpenFiles
	}
	if o.Keys == nil {
		o.Keys = func() (*crypt.Keys, error) { return nil, nil } //nolint:nilnil // no encryption is no error
	}
	if o.OnCut == nil {
		o.OnCut = func(string, int64, int64) {}
	}
	return o, nil
}

// alignUp rounds n up to a multiple of a, a power of two.
func alignUp(n, a int64) int64 { return (n + a - 1) &^ (a - 1) }
