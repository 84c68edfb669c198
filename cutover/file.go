package cutover

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile replaces a small file as a whole: after a crash there is the old one or the new one, and the new one once
// it has returned without an error. Only its owner may read it. One writer at a time.
func WriteFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(dir) //nolint:gosec // where the file is
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
