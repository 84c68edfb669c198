package storage

import (
	"encoding/binary"
	"fmt"
	"maps"
)

// moveOut writes what is needed of the sections in [from, to) again, at the end of the tail. planned says that it was
// found to fit what room there is; if not, it ends with errCramped when the disk turns out to be full meanwhile.
func (s *Store) moveOut(from, to uint64, planned bool) error {
	s.mu.Lock()
	logs, states := maps.Clone(s.logs), maps.Clone(s.states)
	s.mu.Unlock()
	m := mover{s: s, logs: logs, batch: moveBatch, planned: planned}
	if t, ok := s.w.tail.(roomy); ok {
		m.batch = int(min(moveBatch, max(t.Step()/16, 1)))
	}
	for _, l := range states {
		if l.needs() < to {
			if err := m.queued(l.rewrite()); err != nil {
				return err
			}
		}
	}
	for _, l := range logs {
		if l.needs() < to {
			if err := m.queued(l.rewrite()); err != nil {
				return err
			}
		}
	}
	for id := from; id < to; id++ {
		if sec := s.w.secs.get(id); sec != nil && sec.live.Load() != 0 {
			if err := m.section(id, sec); err != nil {
				return err
			}
		}
	}
	return m.wait()
}

// mover writes records again, and waits batch by batch until they are durable.
type mover struct {
	s       *Store
	logs    map[LogID]*Log
	planned bool // what is moved was found to fit what room there is
	batch   int  // how many bytes are queued before a wait
	bytes   int  // queued since the last wait
	rec     decoded
	buf     []byte
}

// queued accounts for n bytes queued.
func (m *mover) queued(n int, err error) error {
	if m.bytes += n; err != nil || m.bytes < m.batch {
		return err
	}
	return m.wait()
}

// wait returns once everything queued is durable, so that the sweeper takes no more than a small share of what the disk
// can do.
func (m *mover) wait() error {
	m.bytes = 0
	done := make(chan error, 1)
	if err := m.s.w.barrier(func(err error) { done <- err }); err != nil {
		return err
	}
	if err := m.s.await(done); err != nil {
		return err
	}
	if !m.planned && m.s.w.isCramped() {
		return errCramped
	}
	return nil
}

// section moves the records of a section that are live.
func (m *mover) section(id uint64, sec *section) error {
	b, err := m.read(sec)
	if err != nil {
		return err
	}
	d := decoder{b: b}
	for d.pos < len(b) {
		d.uvarint() // its place in the group it was in
		if err := d.next(&m.rec); err != nil {
			return fmt.Errorf("section %d at offset %d of segment %d: %w", id, sec.off, sec.seg, err)
		}
		if m.rec.kind != kindMessage && m.rec.kind != kindMoved {
			continue
		}
		if l := m.logs[m.rec.log]; l != nil {
			if err := m.queued(l.move(&m.rec, id, ShardID(sec.shard))); err != nil {
				return err
			}
		}
	}
	return nil
}

// read returns the bytes of a section.
func (m *mover) read(sec *section) ([]byte, error) {
	if sl := sec.slab.Load(); sl != nil {
		return sl.buf[sec.start:][:sec.size], nil
	}
	if cap(m.buf) < int(sec.size) {
		m.buf = make([]byte, sec.size)
	}
	b := m.buf[:sec.size]
	return b, m.s.w.tail.ReadAt(b, sec.pos())
}

// barrier queues a done function that is called when everything queued so far is durable.
func (w *writer) barrier(done Done) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	g := w.current()
	g.dones = append(g.dones, done)
	return nil
}

// move writes a record that was read from section sec again, if it is still the one the index knows and is not
// deleted. It returns the bytes queued.
func (l *Log) move(d *decoded, sec uint64, shard ShardID) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.head.tail
	ord, ok := x.find(d.rec.Seq)
	if !ok || !x.isHeadLive(ord) {
		return 0, nil
	}
	e := x.at(ord)
	if e.sec != sec || e.off != uint32(d.off) {
		return 0, nil
	}
	body := len(d.rec.Key) + len(d.rec.Header) + len(d.rec.Data)
	w := l.w
	sh := &w.shards[shard]
	w.mu.Lock()
	if err := w.admit(sh, maxFixed+body, w.slack()); err != nil {
		w.mu.Unlock()
		return 0, err
	}
	w.space.moved.Add(1)
	g := w.current()
	b := appendMessage(w.room(g, sh, maxFixed+body), kindMoved, l.meta.ID, &d.rec)
	e.sec, e.off = sh.secID, sh.sec.size+uint32(len(b)-body)
	foot := footprint(len(d.rec.Key), e)
	w.space.use(sh.sec, foot)
	w.took(g, sh, len(b), nil)
	w.mu.Unlock()
	w.drop(sec, foot)
	return len(b), nil
}

// needs returns the section of the record that says that the log exists.
func (l *Log) needs() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.floor
}

// rewrite writes the record that says that the log exists again, with where its sequence is now.
func (l *Log) rewrite() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped {
		return 0, nil
	}
	m := l.meta
	m.LastSeq, m.LastTime = l.lastSeq, l.lastTime
	n := maxLog(&m)
	w := l.w
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.put(l.home(), n, nil, func(b []byte) []byte { return appendLog(b, &m) })
	if err != nil {
		return 0, err
	}
	l.floor = l.home().secID
	return n, nil
}

// needs returns the first section with something of the state log that is needed.
func (s *StateLog) needs() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	need := ^uint64(0)
	if s.meta.ID != catalogID { // which needs no record to exist
		need = s.made
	}
	if s.begun {
		need = min(need, s.floor)
	}
	return need
}

// footprint returns about how many bytes the state log needs in the tail.
func (s *StateLog) footprint() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.entries)) + recordHead*int64(s.changes+1)
}

// rewrite writes the whole state log again: the record that says that it exists, which is a new beginning, its
// checkpoint and its changes. They are in one group, so that either all of it is there after a crash or nothing of
// it.
func (s *StateLog) rewrite() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped {
		return 0, nil
	}
	w := s.w
	sh := &w.shards[s.meta.Shards[0]]
	n := maxLog(&s.meta) + len(s.entries) + (s.changes+1)*maxFixed
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admit(sh, n, w.slack()); err != nil {
		return 0, err
	}
	g := w.current()
	w.took(g, sh, len(appendLog(w.room(g, sh, maxLog(&s.meta)), &s.meta)), nil)
	s.made, s.floor = sh.secID, sh.secID
	for b := s.entries; len(b) > 0; {
		size, used := binary.Uvarint(b)
		k := kindChange
		if size&1 != 0 {
			k = kindCheckpoint
		}
		state := b[used:][:size>>1]
		b = b[used+len(state):]
		w.took(g, sh, len(appendState(w.room(g, sh, maxFixed+len(state)), k, s.meta.ID, state)), nil)
	}
	return n, nil
}

// sweepSlabs moves the live records of a memory store's slabs that are mostly dead, so that those can be freed.
func (s *Store) sweepSlabs() error {
	w := s.w
	if w.space.slabs.Load() < 2*w.space.live.Load()+spareSlabs*slabSize {
		return nil
	}
	s.mu.Lock()
	m := mover{s: s, logs: maps.Clone(s.logs), batch: moveBatch}
	s.mu.Unlock()
	w.mu.Lock()
	from, to := w.space.oldest, w.secs.end
	w.mu.Unlock()
	for id := from; id < to; id++ {
		sec := w.secs.get(id)
		if sec == nil || w.isCurrent(id) {
			continue
		}
		if sl := sec.slab.Load(); sl == nil || 2*int(sec.live.Load()) > len(sl.buf) {
			continue
		}
		if err := m.section(id, sec); err != nil {
			return err
		}
		if err := m.wait(); err != nil {
			return err
		}
	}
	return nil
}

// isCurrent reports whether records are still added to section id.
func (w *writer) isCurrent(id uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.shards {
		if w.shards[i].sec != nil && w.shards[i].secID == id {
			return true
		}
	}
	return false
}
