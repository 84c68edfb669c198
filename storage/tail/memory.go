package tail

import (
	"errors"
	"sync"
)

// errMemory is returned by ReadAt of a log that keeps nothing.
var errMemory = errors.New("a log in memory keeps no blocks")

// memory is a Log that keeps nothing: its caller keeps what it appends.
type memory struct {
	mu     sync.Mutex
	next   LSN
	closed bool
}

// NewMemory returns a Log for a store in memory: Append gives positions, Sync does nothing, Replay finds nothing and
// ReadAt fails, since no bytes are kept.
func NewMemory() Log { return &memory{} }

func (m *memory) Append(...[]byte) (LSN, Pos, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, Pos{}, ErrClosed
	}
	m.next++
	return m.next - 1, Pos{}, nil
}

func (m *memory) Sync() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	return nil
}

func (m *memory) ReadAt([]byte, Pos) error                  { return errMemory }
func (m *memory) Replay(func(LSN, Pos, []byte) error) error { return nil }
func (m *memory) DropBefore(LSN) error                      { return nil }
func (m *memory) Size() int64                               { return 0 }
func (m *memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}
