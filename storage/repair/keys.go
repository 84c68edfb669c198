package repair

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/noetl/ehdb-gateway/storage/inspect"
)

// keys writes a damaged or missing file of the directory's keys again, from the other one.
func (r *repairer) keys(context.Context) error {
	names := []string{inspect.KeysName, inspect.KeysCopy}
	for i, name := range names {
		if r.d.Keys() == nil || !r.d.DamagedFile(name) {
			continue
		}
		if err := r.replaceWith(name, names[1-i]); err != nil {
			return err
		}
		r.did(name, "written again, from %s", names[1-i])
	}
	return nil
}

// replaceWith puts a copy of another file in the place of one, which is put aside if it is there.
func (r *repairer) replaceWith(file, other string) error {
	_, err := r.fs.Stat(path.Join(r.dir, file))
	if err == nil {
		err = r.putAside(file)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return r.copyFile(path.Join(r.dir, other), path.Join(r.dir, file))
}
