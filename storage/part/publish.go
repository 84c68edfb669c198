package part

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// Extension is what the names of parts end with, TempExtension those of files being written.
const (
	Extension     = ".part"
	TempExtension = ".tmp"
)

// TempName returns a name for a file that is being written, that no other one has: base, 16 random digits, .tmp.
func TempName(base string) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return base + "-" + hex.EncodeToString(b[:]) + TempExtension
}

// Name returns the name of a part: number, which sorts by age, and the start of the file's own id, so that a file left
// by a crash never has the name of a later one.
func Name(number uint64, id [idSize]byte) string {
	return fmt.Sprintf("%020d-%x%s", number, id[:8], Extension)
}

// Publish gives a synced file its name and makes that durable. It never replaces a file: the error wraps fs.ErrExist.
func Publish(fsys vfs.FS, temp, name string) error {
	switch _, err := fsys.Stat(name); {
	case err == nil:
		return &fs.PathError{Op: "publish", Path: name, Err: fs.ErrExist}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := fsys.Rename(temp, name); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}
