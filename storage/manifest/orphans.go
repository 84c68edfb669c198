package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// Orphan is a file that no live part accounts for.
type Orphan struct {
	Path string // relative to the data directory
	Size int64
	Temp bool // it was being written when the process ended
}

const partExtension = ".part"

// Orphans returns the files of parts (.part) and of unfinished writes (.tmp) in the directories dirs of the data
// directory root that the manifest does not account for, sorted by path. Other files are left alone. It is for the
// time before anything is written: what is being written later looks the same. Nothing is removed: the caller puts
// them aside, since an orphan may be all that is left of something.
func (m *Manifest) Orphans(root string, dirs ...string) ([]Orphan, error) {
	s := m.State()
	live := map[string]bool{}
	for _, p := range s.Parts {
		live[path.Clean(p.Path)] = true
	}
	var out []Orphan
	for _, dir := range dirs {
		names, err := m.fs.List(path.Join(root, dir))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			temp := strings.HasSuffix(name, tempExtension)
			rel := path.Join(dir, name)
			if live[rel] || !temp && !strings.HasSuffix(name, partExtension) {
				continue
			}
			size, err := m.fs.Stat(path.Join(root, rel))
			if err != nil {
				return nil, err
			}
			out = append(out, Orphan{Path: rel, Size: size, Temp: temp})
		}
	}
	slices.SortFunc(out, func(a, b Orphan) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// Missing returns a *CorruptError for each live part whose file in the data directory root is not there or has another
// size than it had when it was sealed, sorted by number. The other parts are to be served.
func (m *Manifest) Missing(root string) (damaged []error, err error) {
	s := m.State()
	for _, id := range slices.Sorted(maps.Keys(s.Parts)) {
		p := s.Parts[id]
		name := path.Join(root, p.Path)
		size, err := m.fs.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			damaged = append(damaged, missing(name, 0, fmt.Errorf("part %d is live, its file is not there", id)))
		case err != nil:
			return nil, err
		case size != p.Size:
			damaged = append(damaged, missing(name, min(size, p.Size),
				fmt.Errorf("part %d is live, its file has %d bytes, not %d", id, size, p.Size)))
		}
	}
	return damaged, nil
}

func missing(name string, off int64, err error) error {
	hint := "fetch the file from quarantine, a backup or a replica"
	return &CorruptError{Path: name, Offset: off, Err: err, Hint: hint}
}
