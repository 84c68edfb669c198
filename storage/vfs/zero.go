package vfs

import (
	"errors"
	"syscall"
)

// zeros is what ZeroFill writes from; it is never changed.
var zeros [256 << 10]byte

// ZeroFill writes zeros over [from, to), so that the space is really taken and later writes there change no metadata.
// It does not sync. stop, if not nil, is asked before each chunk and ends the work with its error.
func ZeroFill(f File, from, to int64, stop func() error) error {
	for from < to {
		if stop != nil {
			if err := stop(); err != nil {
				return err
			}
		}
		n := min(to-from, int64(len(zeros)))
		if _, err := f.WriteAt(zeros[:n], from); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// IsNoSpace reports whether err says that the disk or the quota is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
