package vfs

import (
	"errors"
	"io/fs"
	"path"
)

// MakeDir makes a directory and its missing parents, durably: every directory that got a new name is synced, and dir's
// parent in any case, since an earlier attempt may have ended between the two.
func MakeDir(fsys FS, dir string) error {
	sync := []string{path.Dir(dir)}
	for p := path.Dir(dir); p != path.Dir(p); p = path.Dir(p) {
		_, err := fsys.Stat(p)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		sync = append(sync, path.Dir(p))
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	for i := len(sync) - 1; i >= 0; i-- {
		if err := fsys.SyncDir(sync[i]); err != nil {
			return err
		}
	}
	return nil
}
