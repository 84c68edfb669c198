package vfs

import (
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Mem is a file system in memory that knows what would survive a power loss: [Mem.CrashClone] returns it. Paths are
// taken from its root, with or without a leading slash.
type Mem struct {
	mu       sync.Mutex
	root     *memNode
	locks    map[string]bool
	capacity int64 // bytes that files may hold; 0: no bound
	used     int64
}

var _ FS = (*Mem)(nil)

// memNode is a file or a directory, whatever its names.
type memNode struct {
	isDir bool
	names memNames // of a directory
	data  memData  // of a file
}

// memNames is what a directory holds now, what of it is durable, and what changed between the two, in order.
type memNames struct {
	now, durable map[string]*memNode
	pending      []nameChange
}

// nameChange is one change of a directory that survives a power loss as a whole or not at all.
type nameChange struct {
	remove string
	add    string
	node   *memNode
}

func newMemDir() *memNode {
	return &memNode{isDir: true, names: memNames{now: map[string]*memNode{}, durable: map[string]*memNode{}}}
}

func (n *memNames) change(c nameChange) {
	c.applyTo(n.now)
	n.pending = append(n.pending, c)
}

func (c nameChange) applyTo(names map[string]*memNode) {
	if c.remove != "" {
		delete(names, c.remove)
	}
	if c.add != "" {
		names[c.add] = c.node
	}
}

// NewMem returns an empty file system.
func NewMem() *Mem { return &Mem{root: newMemDir(), locks: map[string]bool{}} }

// SetCapacity bounds the sum of all file sizes, 0 for no bound: a write beyond it is cut short with ENOSPC.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

// Used returns the sum of all file sizes.
func (m *Mem) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Free returns how many more bytes files may hold.
func (m *Mem) Free(string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.capacity == 0 {
		return math.MaxInt64, nil
	}
	return max(m.capacity-m.used, 0), nil
}

func pathErr(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// lookup returns the node at name, or nil.
func (m *Mem) lookup(name string) *memNode {
	n := m.root
	for _, part := range splitPath(name) {
		if !n.isDir {
			return nil
		}
		if n = n.names.now[part]; n == nil {
			return nil
		}
	}
	return n
}

func splitPath(name string) []string {
	name = strings.Trim(path.Clean("/"+name), "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

// parent returns the directory that holds name, and the last part of name.
func (m *Mem) parent(op, name string) (*memNode, string, error) {
	dir := m.lookup(path.Dir(path.Clean("/" + name)))
	if dir == nil {
		return nil, "", pathErr(op, name, fs.ErrNotExist)
	}
	if !dir.isDir {
		return nil, "", pathErr(op, name, syscall.ENOTDIR)
	}
	return dir, path.Base(path.Clean("/" + name)), nil
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("create", name)
	if err != nil {
		return nil, err
	}
	if dir.names.now[base] != nil {
		return nil, pathErr("create", name, fs.ErrExist)
	}
	n := &memNode{}
	dir.names.change(nameChange{add: base, node: n})
	return &memFile{m: m, n: n, name: name}, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.open(name, false) }

// OpenRead implements FS.
func (m *Mem) OpenRead(name string) (File, error) { return m.open(name, true) }

func (m *Mem) open(name string, readOnly bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.file("open", name)
	if err != nil {
		return nil, err
	}
	return &memFile{m: m, n: n, name: name, readOnly: readOnly}, nil
}

// file returns the node of a file.
func (m *Mem) file(op, name string) (*memNode, error) {
	n := m.lookup(name)
	if n == nil {
		return nil, pathErr(op, name, fs.ErrNotExist)
	}
	if n.isDir {
		return nil, pathErr(op, name, syscall.EISDIR)
	}
	return n, nil
}

// Rename implements FS.
func (m *Mem) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.file("rename", oldname)
	if err != nil {
		return err
	}
	from, oldBase, err := m.parent("rename", oldname)
	if err != nil {
		return err
	}
	to, newBase, err := m.parent("rename", newname)
	if err != nil {
		return err
	}
	if old := to.names.now[newBase]; old != nil && old != n {
		if old.isDir {
			return pathErr("rename", newname, syscall.EISDIR)
		}
		m.used -= int64(len(old.data.now))
	}
	switch {
	case from == to && oldBase == newBase:
	case from == to:
		from.names.change(nameChange{remove: oldBase, add: newBase, node: n})
	default:
		from.names.change(nameChange{remove: oldBase})
		to.names.change(nameChange{add: newBase, node: n})
	}
	return nil
}

// Remove implements FS. A directory must be empty.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.lookup(name)
	if n == nil || n == m.root {
		return pathErr("remove", name, fs.ErrNotExist)
	}
	if n.isDir && len(n.names.now) > 0 {
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	dir, base, err := m.parent("remove", name)
	if err != nil {
		return err
	}
	dir.names.change(nameChange{remove: base})
	m.used -= int64(len(n.data.now))
	return nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.lookup(name)
	if n == nil {
		return 0, pathErr("stat", name, fs.ErrNotExist)
	}
	return int64(len(n.data.now)), nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.lookup(dir)
	if n == nil || !n.isDir {
		return nil, pathErr("list", dir, fs.ErrNotExist)
	}
	return slices.Sorted(maps.Keys(n.names.now)), nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, part := range splitPath(dir) {
		child := n.names.now[part]
		if child == nil {
			child = newMemDir()
			n.names.change(nameChange{add: part, node: child})
		}
		if !child.isDir {
			return pathErr("mkdir", dir, syscall.ENOTDIR)
		}
		n = child
	}
	return nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.lookup(dir)
	if n == nil || !n.isDir {
		return pathErr("syncdir", dir, fs.ErrNotExist)
	}
	for _, c := range n.names.pending {
		c.applyTo(n.names.durable)
	}
	n.names.pending = nil
	return nil
}

// Lock implements FS. A clone has no locks.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent("lock", name)
	if err != nil {
		return nil, err
	}
	key := path.Clean("/" + name)
	if m.locks[key] {
		return nil, &LockedError{Path: name, PID: strconv.Itoa(os.Getpid())}
	}
	if dir.names.now[base] == nil {
		dir.names.change(nameChange{add: base, node: &memNode{}})
	}
	m.locks[key] = true
	return &memLock{m: m, key: key}, nil
}

type memLock struct {
	m    *Mem
	key  string
	once sync.Once
}

func (l *memLock) Close() error {
	l.once.Do(func() {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		delete(l.m.locks, l.key)
	})
	return nil
}
