package storage

import (
	"encoding/binary"
	"sync"
)

// StateLog is a small durable value kept as its last checkpoint and the changes since: a consumer's position, the
// catalog. It shares the write-ahead log, its group commit and its ack loop with the message logs, so order between the
// two is order in time. Methods are called under the owner's lock, one at a time.
type StateLog struct {
	w    *writer
	meta logMeta

	mu      sync.Mutex // taken before the writer's
	dropped bool
	entries []byte // the last checkpoint and the changes since: uvarint(length<<1 | is checkpoint), bytes
	changes int
	bytes   int64  // of the changes
	floor   uint64 // section of the oldest entry
	begun   bool   // there is an entry
	made    uint64 // section of the record that says the log exists
	touched bool   // something happened that the manifest does not know
}

func newStateLog(w *writer, meta logMeta) *StateLog {
	return &StateLog{w: w, meta: meta, touched: true}
}

// ID returns the log's id.
func (s *StateLog) ID() LogID { return s.meta.ID }

// Name returns the name given at CreateStateLog.
func (s *StateLog) Name() string { return s.meta.Name }

// Append adds a change. Errors as for Log.Append, and ErrFull while the disk is so full that what room there is must
// go to deletions. done may be nil.
func (s *StateLog) Append(change []byte, done Done) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sec, err := s.queue(kindChange, change, done)
	if err != nil {
		return err
	}
	s.change(change, sec)
	return nil
}

// Checkpoint replaces everything before it by state.
func (s *StateLog) Checkpoint(state []byte, done Done) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	sec, err := s.queue(kindCheckpoint, state, done)
	if err != nil {
		return err
	}
	s.checkpoint(state, sec)
	return nil
}

// queue appends a record to the pending group and returns its section.
func (s *StateLog) queue(k kind, state []byte, done Done) (uint64, error) {
	if s.dropped {
		return 0, ErrNoLog
	}
	w := s.w
	sh := &w.shards[s.meta.Shards[0]]
	n := maxFixed + len(state)
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.meta.ID != catalogID && !w.affords(n) { // the catalog is where deleting a whole log begins
		return 0, ErrFull
	}
	if err := w.admit(sh, n, w.slack()); err != nil {
		return 0, err
	}
	return s.queueIn(w.current(), k, state, done), nil
}

// queueIn appends a record, which was admitted, to g and returns its section. The locks are held.
func (s *StateLog) queueIn(g *group, k kind, state []byte, done Done) uint64 {
	w := s.w
	sh := &w.shards[s.meta.Shards[0]]
	if w.tail == nil {
		w.count(g, sh, len(state), done)
		return 0
	}
	w.took(g, sh, len(appendState(w.room(g, sh, maxFixed+len(state)), k, s.meta.ID, state)), done)
	return sh.secID
}

func (s *StateLog) change(change []byte, sec uint64) {
	s.touched = true
	s.add(change, sec, 0)
	s.changes++
	s.bytes += int64(len(change))
}

func (s *StateLog) checkpoint(state []byte, sec uint64) {
	const most = 64 << 10
	s.touched = true
	if cap(s.entries) > most && cap(s.entries) > 4*len(state) {
		s.entries = nil
	}
	s.clear()
	s.add(state, sec, 1)
}

// clear forgets what was.
func (s *StateLog) clear() {
	s.entries = s.entries[:0]
	s.changes, s.bytes, s.begun = 0, 0, false
}

func (s *StateLog) add(b []byte, sec, flag uint64) {
	if !s.begun {
		s.begun, s.floor = true, sec
	}
	s.entries = binary.AppendUvarint(s.entries, uint64(len(b))<<1|flag)
	s.entries = append(s.entries, b...)
}

// Load calls fn for the last checkpoint (if there is one; checkpoint is true) and each change after it, in order. The
// bytes are only valid during the call. It is for the time before the first Append.
func (s *StateLog) Load(fn func(entry []byte, checkpoint bool) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for b := s.entries; len(b) > 0; {
		n, used := binary.Uvarint(b)
		b = b[used:]
		size := n >> 1
		if err := fn(b[:size:size], n&1 != 0); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// Changes returns the number of changes since the last checkpoint and their bytes: when to make the next one.
func (s *StateLog) Changes() (n int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes, s.bytes
}

// drop marks the log as gone and queues the record that says so.
func (s *StateLog) drop(done Done) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		return ErrNoLog
	}
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.put(&w.shards[s.meta.Shards[0]], maxFixed, done, func(b []byte) []byte {
		return appendDrop(b, s.meta.ID)
	})
	if err != nil {
		return err
	}
	s.dropped, s.entries, s.changes, s.bytes = true, nil, 0, 0
	return nil
}
