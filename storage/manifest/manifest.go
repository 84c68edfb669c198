package manifest

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"sync"

	"github.com/noetl/ehdb-gateway/storage/crypt"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

// Options configure Open. Zero values mean the defaults given here.
type Options struct {
	// Create makes a manifest if the directory has none. Without it that is an error that wraps fs.ErrNotExist: a data
	// directory that was in use before has one.
	Create bool
	// MinRewrite is how many bytes of edits are gathered before a snapshot is worth it; default 64 KiB.
	MinRewrite int64
	// Keys encrypt what is written; nil: nothing is encrypted. A file that is not encrypted with the current key is
	// replaced when it is opened.
	Keys *crypt.Keys
}

const defaultMinRewrite = 64 << 10

// rewriteFactor times the size of the snapshot is how far edits may grow before another is written.
const rewriteFactor = 2

// Manifest is an open manifest. Methods may be called by any goroutine; Apply waits for the disk, State does not.
type Manifest struct {
	fs  vfs.FS
	dir string
	o   Options

	writing sync.Mutex // serialises Apply; all below it belongs to it
	file    vfs.File
	gen     uint64
	salt    uint32
	stale   bool  // it is not encrypted as it should be
	boxed   bool  // the file is encrypted
	size    int64 // of the file
	base    int64 // size of header and snapshot
	retry   int64 // size from which a snapshot is tried again after a failure
	buf     []byte
	err     error // sticky

	mu    sync.RWMutex // never held across I/O
	state *State
	stats Stats
	given map[PartID]bool // numbers given out that no edit has used
	next  PartID          // above all given out
}

// Stats are totals of a Manifest.
type Stats struct {
	Bytes     int64  // of the file
	Snapshot  int64  // of which header and snapshot
	Edits     uint64 // applied since Open
	Snapshots uint64 // written since Open
	// SnapshotErr is why the last snapshot was not written; nil if it was. Edits go on to the old file meanwhile.
	SnapshotErr error
	Cut         int64 // bytes of a torn edit that Open cut off
}

// State returns what the manifest says: all that was applied. The maps are the caller's; slices are not to be changed.
func (m *Manifest) State() State {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.clone()
}

// Floor returns the position in the tail that everything below is in parts and checkpoints.
func (m *Manifest) Floor() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.Floor
}

// NewPart gives out a number for a part. Several may be out at a time, and edits may use them in any order; one that no
// edit uses is lost.
func (m *Manifest) NewPart() PartID {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := max(m.next, m.state.NextPart)
	m.next = id + 1
	m.given[id] = true
	return id
}

// isFresh tells whether an edit may add a part with that number.
func (m *Manifest) isFresh(id PartID) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.given[id] || id >= max(m.next, m.state.NextPart)
}

// Stats returns the totals.
func (m *Manifest) Stats() Stats {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.stats
}

// Path returns the name of the file.
func (m *Manifest) Path() string {
	m.writing.Lock()
	defer m.writing.Unlock()
	return m.path()
}

func (m *Manifest) path() string { return path.Join(m.dir, fileName(m.gen)) }

// Apply makes e durable and then shows it in State. One edit is written after the other, so none overwrites another.
// The slices in e are kept. Errors: ErrEdit for one that contradicts the state (nothing was written, the manifest goes
// on); ErrStopped after an I/O error, when it is not known whether e is there until the manifest is opened again.
func (m *Manifest) Apply(e *Edit) error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.err != nil {
		return m.err
	}
	// only this goroutine changes the state
	if err := m.state.check(e, m.isFresh); err != nil {
		return err
	}
	body := appendEdit(m.buf[:0], e)
	m.buf = body
	if len(body) > maxBody {
		return refuse("it takes %d bytes, above the bound of %d", len(body), maxBody)
	}
	n := m.state.Edits + 1
	b, err := m.frameAt(m.gen, m.salt, m.size, frameEdit, n, body)
	if err != nil {
		return m.stop(err)
	}
	if _, err := m.file.WriteAt(b, m.size); err != nil {
		return m.stop(err)
	}
	if err := m.file.Sync(); err != nil {
		return m.stop(err)
	}
	m.size += int64(len(b))
	m.mu.Lock()
	m.state.apply(e)
	for _, p := range e.AddParts {
		delete(m.given, p.ID)
	}
	m.stats.Edits++
	m.mu.Unlock()
	// e is durable: what fails from here on stops the manifest, but not this edit
	m.mark(n)
	m.maybeSnapshot()
	if cap(m.buf) > 1<<20 {
		m.buf = nil
	}
	m.mu.Lock()
	m.stats.Bytes, m.stats.Snapshot = m.size, m.base
	m.mu.Unlock()
	return nil
}

// mark writes the proof that all before it is durable. It need not be durable itself.
func (m *Manifest) mark(edits uint64) {
	b := appendFrame(nil, m.salt, frameMark, edits, nil)
	if _, err := m.file.WriteAt(b, m.size); err != nil {
		_ = m.stop(err) // said by the next Apply
		return
	}
	m.size += int64(len(b))
}

func (m *Manifest) stop(err error) error {
	m.err = fmt.Errorf("%w: %s: %w", ErrStopped, m.path(), err)
	return m.err
}

// maybeSnapshot begins a new file if the edits have outgrown the last snapshot.
func (m *Manifest) maybeSnapshot() {
	if m.err != nil || m.size-m.base < max(m.o.MinRewrite, rewriteFactor*m.base) || m.size < m.retry {
		return
	}
	err := m.snapshot()
	m.mu.Lock()
	m.stats.SnapshotErr = err
	if err == nil {
		m.stats.Snapshots++
	}
	m.mu.Unlock()
	if m.retry = 0; err != nil {
		m.retry = m.size + m.size/2
	}
}

// Snapshot begins a new file now. Errors as for Apply; one before the new file has its name leaves all as it was.
func (m *Manifest) Snapshot() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.err != nil {
		return m.err
	}
	err := m.snapshot()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stats.SnapshotErr = err
	m.stats.Bytes, m.stats.Snapshot = m.size, m.base
	if err == nil {
		m.stats.Snapshots++
	}
	return err
}

func (m *Manifest) snapshot() error {
	old, oldPath := m.file, m.path()
	f, salt, size, err := m.begin(m.gen + 1)
	if err != nil {
		return err
	}
	m.file, m.salt, m.size, m.base, m.boxed = f, salt, size, size, m.o.Keys != nil
	m.gen++
	if old != nil {
		_ = old.Close()          // all in it was synced
		_ = m.fs.Remove(oldPath) // else the next Open does it
	}
	return nil
}

// begin writes a file with a snapshot of the state and gives it its name, durably. An error after the renaming stops
// the manifest, since it is not known which file is there.
func (m *Manifest) begin(gen uint64) (f vfs.File, salt uint32, size int64, err error) {
	var random [12]byte
	if _, err = rand.Read(random[:]); err != nil {
		return nil, 0, 0, err
	}
	salt = le.Uint32(random[:])
	s := m.state
	body := appendUvarints(append(appendEdit(nil, s.asEdit()), itemNextPart), uint64(s.NextPart))
	if len(body) > maxBody {
		return nil, 0, 0, fmt.Errorf("manifest: a snapshot of %d bytes is above the bound of %d", len(body), maxBody)
	}
	v := uint32(version)
	if m.o.Keys != nil {
		v = encrypted
	}
	snap, err := m.frameAt(gen, salt, headerSize, frameSnapshot, s.Edits, body)
	if err != nil {
		return nil, 0, 0, err
	}
	b := appendFrame(append(encodeHeader(gen, salt, v), snap...), salt, frameMark, s.Edits, nil)
	name := path.Join(m.dir, fileName(gen))
	temp := name + "-" + hex.EncodeToString(random[4:]) + tempExtension
	if f, err = m.fs.Create(temp); err != nil {
		return nil, 0, 0, err
	}
	if _, err = f.WriteAt(b, 0); err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Close()
		_ = m.fs.Remove(temp) // else it is found by Orphans
		return nil, 0, 0, err
	}
	if err = m.fs.Rename(temp, name); err == nil {
		err = m.fs.SyncDir(m.dir)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, 0, m.stop(err)
	}
	return f, salt, int64(len(b)), nil
}

// Close closes the file. All that was applied is durable already; the proof of that is made so too.
func (m *Manifest) Close() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	var err error
	if m.err == nil {
		err = m.file.Sync()
	}
	if m.file != nil {
		if e := m.file.Close(); err == nil {
			err = e
		}
		m.file = nil
	}
	m.err = fmt.Errorf("%w: %w", ErrStopped, fs.ErrClosed)
	return err
}
