package storage

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"slices"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/manifest"
	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/tail"
)

var errNoRing = errors.New("the file with the data directory's keys is missing, and what is here is encrypted")

// openKeys opens the directory's keys, or makes them if it is to be encrypted from now on. The directory is locked, and
// nothing else was done to it yet.
func (s *Store) openKeys() (*crypt.Keys, error) {
	o := &s.opts
	if err := s.checkRing(); err != nil {
		return nil, err
	}
	ring, err := crypt.OpenRing(o.FS, o.Dir, o.Encryption)
	if err != nil {
		return nil, err
	}
	if s.keys = ring.Keys; s.keys != nil {
		o.Events.Encrypted(ring)
	}
	return s.keys, nil
}

// checkRing refuses a directory that is encrypted and has no ring: to make a new one would hide what is wrong.
func (s *Store) checkRing() error {
	o := &s.opts
	for _, name := range []string{crypt.RingName, crypt.CopyName} {
		_, err := o.FS.Stat(path.Join(o.Dir, name))
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	is, err := tail.IsEncrypted(o.FS, path.Join(o.Dir, walName))
	if err == nil && !is {
		is, err = manifest.IsEncrypted(o.FS, path.Join(o.Dir, manifestDir))
	}
	if err == nil && is {
		err = &CorruptError{
			Path: path.Join(o.Dir, crypt.RingName), Err: errNoRing,
			Hint: "restore it from a backup of the same directory: without it nothing can be read",
		}
	}
	return err
}

// encryptOld writes one part again that was made before the directory was encrypted. One that cannot be read stays.
func (sl *sealer) encryptOld() error {
	if sl.plain.Load() == 0 {
		return nil
	}
	sl.mu.Lock()
	defer sl.mu.Unlock()
	var old []*sealedPart
	for _, p := range sl.parts {
		if sl.isPlain(p) && !p.stuck && !slices.ContainsFunc(p.runs, sl.isLeaving) {
			old = append(old, p)
		}
	}
	if len(old) == 0 {
		return nil
	}
	p := slices.MinFunc(old, func(a, b *sealedPart) int { return cmp.Compare(a.size, b.size) })
	err := sl.merge([]*sealedPart{p}, sl.pace)
	if corrupt := (*part.CorruptError)(nil); errors.As(err, &corrupt) {
		p.stuck = true
		sl.countPlain()
	}
	return err
}

// isPlain reports whether p is not encrypted though it should be.
func (sl *sealer) isPlain(p *sealedPart) bool {
	return sl.s.keys != nil && p.err == nil && p.r.Cipher() == crypt.Plain
}

// countPlain notes how many parts are still to be encrypted, and says when none is left.
func (sl *sealer) countPlain() {
	n, stuck := int64(0), false
	for _, p := range sl.parts {
		switch {
		case !sl.isPlain(p):
		case p.stuck:
			stuck = true
		default:
			n++
		}
	}
	if sl.plain.Swap(n) > 0 && n == 0 && !stuck {
		sl.s.opts.Events.AllEncrypted()
	}
}
