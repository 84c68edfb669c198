package vfs

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"syscall"
)

// MakeDir makes a directory and its missing parents, durably. All parents are synced, not only those that got a new
// name: an earlier attempt may have ended between making a directory and syncing it. A parent that was there and that
// this process may not open, or that its file system cannot sync, is left out.
func MakeDir(fsys FS, dir string) error {
	missing := map[string]bool{} // parents that get a new name
	var parents []string
	for p := path.Clean(dir); p != path.Dir(p); p = path.Dir(p) {
		_, err := fsys.Stat(p)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		parents = append(parents, path.Dir(p))
		missing[path.Dir(p)] = err != nil
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	for _, p := range slices.Backward(parents) {
		err := fsys.SyncDir(p)
		if err != nil && (missing[p] || !notOurs(err)) {
			return err
		}
	}
	return nil
}

// notOurs reports whether err says that a directory cannot be synced by us at all.
func notOurs(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL)
}
