package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// iovMax is how many slices one pwritev takes (IOV_MAX).
const iovMax = 1024

// Sync implements File with fdatasync: times are not worth a journal commit.
func (f *osFile) Sync() error {
	for {
		err := unix.Fdatasync(f.fd)
		if !errors.Is(err, unix.EINTR) {
			return f.wrap("fdatasync", err)
		}
	}
}

// WritevAt implements File with pwritev.
func (f *osFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	total := 0
	for len(bufs) > 0 {
		chunk := bufs[:min(len(bufs), iovMax)]
		bufs = bufs[len(chunk):]
		n, err := f.writevChunk(chunk, off)
		total += n
		off += int64(n)
		if err != nil {
			return total, f.wrap("pwritev", err)
		}
	}
	return total, nil
}

// writevChunk writes at most iovMax slices. A short pwritev, which a signal or a full disk may cause, is finished with
// plain writes, whose error then says why.
func (f *osFile) writevChunk(bufs [][]byte, off int64) (int, error) {
	n, err := unix.Pwritev(f.fd, bufs, off)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Pwritev(f.fd, bufs, off)
	}
	if err != nil {
		return max(n, 0), err
	}
	rest, total := n, n
	for _, b := range bufs {
		if rest >= len(b) {
			rest -= len(b)
			continue
		}
		m, err := f.WriteAt(b[rest:], off+int64(total))
		total += m
		rest = 0
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// flock takes an exclusive lock without waiting; ErrLocked if another open file has it.
func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrLocked
		default:
			return err
		}
	}
}
