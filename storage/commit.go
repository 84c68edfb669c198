package storage

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/noetl/ehdb-gateway/storage/tail"
)

// commitState belongs to the commit loop.
type commitState struct {
	head   []byte   // block and section headers
	body   [][]byte // what one block is made of
	window []windowed
	kept   int64 // bytes in window
}

// windowed is a committed group whose sections are in RAM.
type windowed struct {
	secFrom, secTo uint64
	bytes          int64
}

const (
	minRetry = 10 * time.Millisecond
	maxRetry = time.Second

	// The bounds of gather.
	gatherTurns  = 8
	gatherEnough = 64 // records
)

func (w *writer) start() {
	w.wg.Go(w.commitLoop)
	if w.tail != nil {
		w.wg.Go(w.ackLoop)
	}
}

// close refuses new appends, waits until what is queued is durable or failed and told, and ends the loops.
func (w *writer) close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed = true
	if w.err == nil {
		w.err = stopped(errClosed)
	}
	w.unstall()
	w.awake = false
	w.signal()
	w.mu.Unlock()
	close(w.quit)
	w.wg.Wait()
}

// gather lets those who are ready to run go first, as long as that makes the group grow: a commit costs much the same
// for one record as for fifty. It waits for nobody. When nobody else is ready it returns at once.
func (w *writer) gather() {
	if w.tail == nil {
		return
	}
	for seen, turn := 0, 0; turn < gatherTurns; turn++ {
		n := w.waiting()
		if n == seen || n >= gatherEnough {
			return
		}
		if seen > 0 {
			yieldThread()
		}
		seen = n
		runtime.Gosched()
	}
}

// waiting returns how many records are in the group that is next, gatherEnough if it is full.
func (w *writer) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch len(w.groups) {
	case 0:
		return 0
	case 1:
		return w.groups[0].records
	}
	return gatherEnough
}

// take removes the oldest group from the queue, waiting for one; nil when the writer is closed and the queue empty.
func (w *writer) take() *group {
	for {
		w.gather()
		w.mu.Lock()
		if len(w.groups) > 0 {
			g := w.groups[0]
			n := copy(w.groups, w.groups[1:])
			w.groups[n] = nil
			w.groups = w.groups[:n]
			w.mu.Unlock()
			return g
		}
		w.awake = false
		closed := w.closed
		w.mu.Unlock()
		if closed {
			return nil
		}
		<-w.wake
	}
}

// commitLoop makes one group after the other durable. While one is on its way the next fills: what arrives together is
// committed together, and nothing ever waits for a batch to fill.
func (w *writer) commitLoop() {
	for {
		g := w.take()
		if g == nil {
			break
		}
		var late error // of something else than g
		if w.fail.Load() == nil {
			if err := w.write(g); err != nil {
				w.poison(err)
			} else {
				late = w.checkRoom()
			}
		}
		if f := w.fail.Load(); f != nil {
			g.err = *f
		}
		if w.tail == nil {
			w.ack(g)
		} else {
			w.acks.push(g)
		}
		if late != nil {
			w.poison(late)
		}
	}
	w.acks.close()
}

// poison refuses appends for ever. What is queued fails.
func (w *writer) poison(err error) {
	err = stopped(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail.Load() != nil {
		return
	}
	w.fail.Store(&err)
	w.err = err
	w.unstall()
	w.current() // a group, empty perhaps, that carries the news to the ack loop
}

// write makes g durable. A memory store has nothing to do.
func (w *writer) write(g *group) error {
	w.commits.Add(1)
	if w.tail == nil || g.secFrom == g.secTo {
		return nil
	}
	began := time.Now()
	n, err := w.append(g)
	if err != nil {
		return err
	}
	if err := w.tail.Sync(); err != nil {
		return err
	}
	w.syncs.Add(1)
	w.written.Add(uint64(n))
	w.keep(g)
	if w.space.off {
		w.unsealed.add(w, g.records, int64(n))
	}
	w.opts.Events.Synced(g.records, int64(n), time.Since(began).Seconds())
	return nil
}

// append writes g as one block. When there is no room it tries again, refusing new appends meanwhile, until there is or
// the store is closed.
func (w *writer) append(g *group) (int, error) {
	n := w.frame(g)
	lsn, pos, err := w.tail.Append(w.commit.body...)
	for wait := minRetry; errors.Is(err, tail.ErrNoSpace); wait = min(2*wait, maxRetry) {
		if wait == minRetry {
			w.refuse(&w.err, &noSpaceError{textFull, err})
		}
		w.space.kick() // who makes room may not have noticed, and sleep
		select {
		case <-time.After(wait):
		case <-w.quit:
			return 0, err
		}
		if lsn, pos, err = w.tail.Append(w.commit.body...); err == nil {
			w.refuse(&w.err, nil)
		}
	}
	if err != nil {
		return 0, err
	}
	w.locate(g, lsn, pos)
	return n, nil
}

// frame builds the slices of g's block in w.commit.body and returns their length.
func (w *writer) frame(g *group) int {
	c := &w.commit
	c.head = append(c.head[:0], formatVersion)
	c.head = binary.AppendUvarint(c.head, g.secTo-g.secFrom)
	// room for all headers first: the slices handed out must not move
	if need := len(c.head) + int(g.secTo-g.secFrom)*4*binary.MaxVarintLen64; cap(c.head) < need {
		c.head = append(make([]byte, 0, need), c.head...)
	}
	c.body = append(c.body[:0], c.head)
	n := len(c.head)
	for id := g.secFrom; id < g.secTo; id++ {
		s := w.secs.get(id)
		at := len(c.head)
		c.head = appendSectionHeader(c.head, s, g.heads[id-g.secFrom])
		n += len(c.head) - at + int(s.size)
		c.body = append(c.body, c.head[at:], s.slab.Load().buf[s.start:s.start+s.size])
	}
	return n
}

func appendSectionHeader(b []byte, s *section, h sectionHead) []byte {
	b = binary.AppendUvarint(b, uint64(s.shard))
	b = binary.AppendUvarint(b, h.count)
	b = binary.AppendUvarint(b, h.first)
	return binary.AppendUvarint(b, uint64(s.size))
}

// locate notes where the sections of g lie in the tail.
func (w *writer) locate(g *group, lsn tail.LSN, pos tail.Pos) {
	w.space.note(pos.Segment, lsn, g.secFrom)
	w.nextLSN.Store(uint64(lsn) + 1)
	pos.Offset += uint32(len(w.commit.body[0]))
	for i, id := 1, g.secFrom; id < g.secTo; i, id = i+2, id+1 {
		s := w.secs.get(id)
		pos.Offset += uint32(len(w.commit.body[i]))
		s.place(pos)
		pos.Offset += s.size
	}
}

// keep adds g to the window and lets go of the oldest groups beyond its bound.
func (w *writer) keep(g *group) {
	c := &w.commit
	c.window = append(c.window, windowed{g.secFrom, g.secTo, g.bytes})
	c.kept += g.bytes
	n := 0
	for ; c.kept > w.opts.WindowSize && n < len(c.window)-1; n++ {
		for id := c.window[n].secFrom; id < c.window[n].secTo; id++ {
			if s := w.secs.get(id); s != nil {
				s.slab.Store(nil)
			}
		}
		c.kept -= c.window[n].bytes
	}
	c.window = c.window[n:]
}

// ackQueue hands committed groups to the ack loop. It needs no bound of its own: what is in it still counts against the
// shards' queues.
type ackQueue struct {
	mu     sync.Mutex
	list   []*group
	closed bool
	wake   chan struct{}
}

func (q *ackQueue) push(g *group) {
	q.mu.Lock()
	q.list = append(q.list, g)
	q.mu.Unlock()
	q.signal()
}

func (q *ackQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

func (q *ackQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// takeAll waits for groups and returns them in batch, whose memory it uses again; ok is false when there will be none.
func (q *ackQueue) takeAll(batch []*group) (_ []*group, ok bool) {
	for {
		q.mu.Lock()
		if len(q.list) > 0 {
			full := q.list
			q.list = batch[:0]
			q.mu.Unlock()
			return full, true
		}
		closed := q.closed
		q.mu.Unlock()
		if closed {
			return nil, false
		}
		<-q.wake
	}
}

// ackLoop tells who waits for each group, in order.
func (w *writer) ackLoop() {
	var batch []*group
	for ok := true; ok; {
		batch, ok = w.acks.takeAll(batch)
		for _, g := range batch {
			w.ack(g)
		}
		clear(batch)
	}
}

// ack makes g visible, runs its done functions in order and then tells each touched log's reader.
func (w *writer) ack(g *group) {
	if g.err == nil {
		for i := range g.touches {
			g.touches[i].log.show(&g.touches[i])
		}
		for i := range w.shards {
			w.shards[i].committed.Add(g.counts[i])
		}
		w.acked.Store(g.num)
	}
	for _, done := range g.dones {
		done(g.err)
	}
	if g.err == nil {
		for i := range g.touches {
			g.touches[i].log.tell(nil)
		}
	} else if !w.told {
		w.told = true
		w.stop(g.err)
	}
	w.release(g)
}
