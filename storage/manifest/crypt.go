package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// place is what the encryption of a frame's body also vouches for: the file, where in it the frame is, and which frame
// it is.
func place(gen uint64, salt uint32, at int64, typ uint8, edits uint64) []byte {
	b := le.AppendUint64(nil, gen)
	b = le.AppendUint32(b, salt)
	b = le.AppendUint64(b, uint64(at)) //nolint:gosec // not negative
	b = append(b, typ)
	return le.AppendUint64(b, edits)
}

// frameAt returns a frame that stands at the offset at of the file of that generation, its body encrypted if there
// are keys for it.
func (m *Manifest) frameAt(gen uint64, salt uint32, at int64, typ uint8, edits uint64, body []byte) ([]byte, error) {
	if m.o.Keys != nil {
		var err error
		if body, err = m.o.Keys.Seal(nil, place(gen, salt, at, typ, edits), body); err != nil {
			return nil, err
		}
	}
	return appendFrame(nil, salt, typ, edits, body), nil
}

// plain returns what the body of a frame at the offset at says.
func (m *Manifest) plain(at int, f *frame) ([]byte, error) {
	if !m.boxed {
		return f.body, nil
	}
	return m.o.Keys.Open(nil, place(m.gen, m.salt, int64(at), f.typ, f.edits), f.body)
}

// isStale reports whether the file is not encrypted as a new one would be: its snapshot with the current key.
func (m *Manifest) isStale(snap []byte) bool {
	if !m.boxed {
		return m.o.Keys != nil
	}
	return crypt.KeyOf(snap) != m.o.Keys.Current()
}

// IsEncrypted reports whether the newest manifest in dir, which may be missing, is encrypted.
func IsEncrypted(fsys vfs.FS, dir string) (bool, error) {
	m := &Manifest{fs: fsys, dir: dir}
	gens, err := m.generations()
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(gens) == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	m.gen = gens[len(gens)-1]
	f, err := fsys.OpenRead(path.Join(dir, fileName(m.gen)))
	if err != nil {
		return false, err
	}
	defer f.Close()
	b := make([]byte, headerSize)
	if n, err := f.ReadAt(b, 0); n < headerSize {
		return false, fmt.Errorf("%s: read header: %w", m.path(), err)
	}
	_, v, err := decodeHeader(b, m.gen)
	return err == nil && v == encrypted, nil
}
