package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// Open opens the manifest in dir, which is made if it is missing and o.Create is set. The newest generation counts; an
// older one that a crash left behind is removed. A torn last edit is cut off. Errors: a *CorruptError for damage.
func Open(fsys vfs.FS, dir string, o Options) (*Manifest, error) {
	if o.MinRewrite <= 0 {
		o.MinRewrite = defaultMinRewrite
	}
	m := &Manifest{fs: fsys, dir: dir, o: o, state: newState(), given: map[PartID]bool{}}
	if o.Create {
		if err := vfs.MakeDir(fsys, dir); err != nil {
			return nil, err
		}
	}
	gens, err := m.generations()
	if err != nil {
		return nil, err
	}
	if len(gens) == 0 {
		if !o.Create {
			return nil, fmt.Errorf("no manifest in %s: %w", dir, fs.ErrNotExist)
		}
		if err := m.snapshot(); err != nil {
			return nil, err
		}
	} else if err := m.recover(gens); err != nil {
		if m.file != nil {
			_ = m.file.Close()
		}
		return nil, err
	}
	if m.stale {
		if err := m.snapshot(); err != nil {
			_ = m.file.Close()
			return nil, fmt.Errorf("encrypt %s: %w", m.path(), err)
		}
	}
	m.stats.Bytes, m.stats.Snapshot = m.size, m.base
	return m, nil
}

// generations returns the generations that have a file, ascending.
func (m *Manifest) generations() (gens []uint64, err error) {
	names, err := m.fs.List(m.dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if gen, ok := parseName(name); ok {
			gens = append(gens, gen)
		}
	}
	slices.Sort(gens)
	return gens, nil
}

// recover reads the newest file and makes sure that what was read is durable.
func (m *Manifest) recover(gens []uint64) error {
	m.gen = gens[len(gens)-1]
	// the rename of the newest file may not be durable yet, and the older ones are about to go
	if err := m.fs.SyncDir(m.dir); err != nil {
		return err
	}
	f, err := m.fs.Open(m.path())
	if err != nil {
		return err
	}
	m.file = f
	b, err := readAll(f)
	if err != nil {
		return fmt.Errorf("%s: %w", m.path(), err)
	}
	end, proven, err := m.replay(b)
	if err != nil {
		return err
	}
	m.size = int64(end)
	if end < len(b) {
		m.stats.Cut = int64(len(b) - end)
		if err := f.Truncate(m.size); err != nil {
			return err
		}
	}
	// an edit may be whole and yet not durable; if its sync failed, only writing it again makes it so
	if proven < end {
		if _, err := f.WriteAt(b[proven:end], int64(proven)); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if proven < end || m.size == m.base {
		if m.mark(m.state.Edits); m.err != nil {
			return m.err
		}
	}
	for _, gen := range gens[:len(gens)-1] {
		if err := m.fs.Remove(path.Join(m.dir, fileName(gen))); err != nil {
			return err
		}
	}
	return nil
}

func readAll(f vfs.File) ([]byte, error) {
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if k, err := f.ReadAt(b, 0); k < len(b) {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return b, nil
}

// replay applies what b, the file, says. It returns where that ends, and below which offset a mark, or the file's
// having a name, proves it durable.
func (m *Manifest) replay(b []byte) (end, proven int, err error) {
	var v uint32
	if m.salt, v, err = decodeHeader(b, m.gen); err != nil {
		return 0, 0, m.corrupt(0, err)
	}
	if m.boxed = v == encrypted; m.boxed && m.o.Keys == nil {
		return 0, 0, m.corrupt(8, errNoKeys)
	}
	snap, err := decodeFrame(b[headerSize:], m.salt)
	if err == nil && snap.typ != frameSnapshot {
		err = errNoFrame
	}
	if err != nil {
		return 0, 0, m.corrupt(headerSize, fmt.Errorf("snapshot: %w", err))
	}
	m.stale = m.isStale(snap.body)
	if err := m.load(&snap); err != nil {
		return 0, 0, m.corrupt(headerSize, err)
	}
	at := headerSize + snap.size
	m.base = int64(at)
	for marked := false; at < len(b); {
		f, err := decodeFrame(b[at:], m.salt)
		switch {
		case err != nil:
			skip, err := m.broken(b, at, !marked, err)
			if err != nil || skip == 0 {
				return at, max(proven, int(m.base)), err
			}
			at, marked = at+skip, true
			continue
		case f.typ == frameMark && f.edits == m.state.Edits && len(f.body) == 0:
			marked, proven = true, at+f.size
		case f.typ == frameEdit && f.edits == m.state.Edits+1:
			if err := m.replayEdit(at, &f); err != nil {
				return 0, 0, m.corrupt(at, err)
			}
			marked = false
		default:
			err := fmt.Errorf("frame of type %d, edit %d after edit %d", f.typ, f.edits, m.state.Edits)
			return 0, 0, m.corrupt(at, err)
		}
		at += f.size
	}
	return at, max(proven, int(m.base)), nil
}

// broken decides about a frame at at that cannot be read. A frame is written only when all before it is durable, but
// for the mark just before it. So if there is a frame behind the broken one, that one is damage, unless it is where a
// mark is due: then nothing is lost, and skip says how far to go. If there is none, it was torn, skip is 0, and the
// file is to be cut there.
func (m *Manifest) broken(b []byte, at int, markDue bool, why error) (skip int, err error) { //nolint:revive // no mode
	next := at + frameHead
	if markDue && next < len(b) {
		if f, err := decodeFrame(b[next:], m.salt); err == nil && f.typ == frameEdit && f.edits == m.state.Edits+1 {
			return frameHead, nil
		}
	}
	for i := at + 1; i+frameHead <= len(b); i++ {
		// a header is enough: what was torn may be the frame behind the broken one
		f, err := decodeFrame(b[i:], m.salt)
		if errors.Is(err, errNoFrame) || f.edits < m.state.Edits {
			continue
		}
		if markDue && i == next && f.typ == frameEdit {
			continue // a torn edit behind a mark that was lost with it
		}
		return 0, m.corrupt(at, fmt.Errorf("%w, and at offset %d there is another frame", why, i))
	}
	return 0, nil
}

func (m *Manifest) corrupt(at int, err error) error { return corrupt(m.path(), int64(at), "%w", err) }

// load makes the state what the snapshot says.
func (m *Manifest) load(f *frame) error {
	body, err := m.plain(headerSize, f)
	if err != nil {
		return err
	}
	e, next, err := decodeEdit(body)
	if err != nil {
		return err
	}
	if err := m.state.check(&e, func(id PartID) bool { return !m.state.isLive(id) }); err != nil {
		return err
	}
	m.state.apply(&e)
	if next < m.state.NextPart {
		return fmt.Errorf("next part %d is not above those that are there", next)
	}
	m.state.NextPart, m.state.Edits = next, f.edits
	return nil
}

func (m *Manifest) replayEdit(at int, f *frame) error {
	body, err := m.plain(at, f)
	if err != nil {
		return err
	}
	e, _, err := decodeEdit(body)
	if err != nil {
		return err
	}
	if err := m.state.check(&e, func(id PartID) bool { return !m.state.isLive(id) }); err != nil {
		return err
	}
	m.state.apply(&e)
	return nil
}
