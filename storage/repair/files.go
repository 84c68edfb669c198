package repair

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

const copyChunk = 1 << 20

// copyFile copies a file, durably, to a name that is free.
func (r *repairer) copyFile(from, to string) error {
	if err := vfs.MakeDir(r.fs, path.Dir(to)); err != nil {
		return err
	}
	src, err := r.fs.OpenRead(from)
	if err != nil {
		return err
	}
	defer src.Close()
	size, err := src.Size()
	if err != nil {
		return err
	}
	return r.create(to, func(dst vfs.File) error {
		buf := make([]byte, min(size, copyChunk))
		for off := int64(0); off < size; {
			n, err := src.ReadAt(buf[:min(size-off, copyChunk)], off)
			if n == 0 {
				return fmt.Errorf("copy %s: %w", from, errors.Join(err, io.ErrUnexpectedEOF))
			}
			if _, err := dst.WriteAt(buf[:n], off); err != nil {
				return err
			}
			off += int64(n)
		}
		return nil
	})
}

// create makes a file, durably.
func (r *repairer) create(name string, write func(vfs.File) error) error {
	f, err := r.fs.Create(name)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return r.fs.SyncDir(path.Dir(name))
}

// aside returns a free name for a file in quarantine.
func (r *repairer) aside(file string) (string, error) {
	to := path.Join(r.dir, Quarantine, file)
	if err := vfs.MakeDir(r.fs, path.Dir(to)); err != nil {
		return "", err
	}
	for name, n := to, 1; ; n++ {
		if _, err := r.fs.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", err
		}
		name = fmt.Sprintf("%s.%d", to, n)
	}
}

// keep copies a file, if it is there, to quarantine.
func (r *repairer) keep(file string) error {
	if _, err := r.fs.Stat(path.Join(r.dir, file)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	to, err := r.aside(file)
	if err != nil {
		return err
	}
	return r.copyFile(path.Join(r.dir, file), to)
}

// putAside moves a file to quarantine.
func (r *repairer) putAside(file string) error {
	to, err := r.aside(file)
	if err != nil {
		return err
	}
	from := path.Join(r.dir, file)
	if err := r.fs.Rename(from, to); err != nil {
		return err
	}
	return errors.Join(r.fs.SyncDir(path.Dir(to)), r.fs.SyncDir(path.Dir(from)))
}

// replace writes a file in the place of another, which is kept in quarantine. At every moment one of the two is there.
func (r *repairer) replace(file string, b []byte) error {
	r.progress(file)
	if err := r.keep(file); err != nil {
		return err
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	name := path.Join(r.dir, file)
	temp := name + "-" + hex.EncodeToString(id[:]) + ".tmp"
	if err := vfs.MakeDir(r.fs, path.Dir(name)); err != nil {
		return err
	}
	err := r.create(temp, func(f vfs.File) error {
		_, err := f.WriteAt(b, 0)
		return err
	})
	if err != nil {
		return err
	}
	if err := r.fs.Rename(temp, name); err != nil {
		return err
	}
	return r.fs.SyncDir(path.Dir(name))
}
