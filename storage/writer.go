package storage

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/noetl/ehdb-gateway/storage/tail"
)

const (
	// maxGroup is where a group is full and the next one begins: large enough to fill a disk's bandwidth, small enough
	// that the first record in it does not wait long for the last.
	maxGroup = 4 << 20
	// recordCost is what a queued record costs besides its bytes.
	recordCost = 64
	maxFree    = 4
	// maxRecord leaves room in a block of the tail for the rest of the group.
	maxRecord = tail.MaxBody / 2
)

// shard is the queue of one shard. Guarded by the writer's lock.
type shard struct {
	id        ShardID
	queued    int64
	head      uint64 // records ever
	committed atomic.Uint64
	stalled   bool
	slab      *slab
	used      uint32 // of slab
	sec       *section
	secID     uint64
	secGroup  uint64 // the group sec belongs to
	secHead   int    // which of that group's section heads is sec's
}

// writer is the one place where records get their order: the queue of groups, the commit loop that makes them durable
// and the ack loop that tells who waits. See the package comment for its invariants.
type writer struct {
	opts Options
	tail tail.Log // nil in a memory store

	mu     sync.Mutex
	groups []*group // queued; the last one is being filled
	free   []*group
	num    uint64 // of the last group made
	shards []shard
	err    error // why appends are refused
	noRoom error // why messages are refused: what room there is on disk is kept for deletions, moves and acks
	spend  int64 // with noRoom: how many bytes of state changes may be queued before deletions and moves need the rest
	closed bool
	awake  bool // the commit loop has been told that there is something
	stall  chan struct{}
	over   int // shards above StallBytes
	behind lag // of the sealer

	secs  sectionTable
	wake  chan struct{}
	quit  chan struct{} // closed by Close; ends a wait for room
	acks  ackQueue
	acked atomic.Uint64 // number of the last group that is visible
	fail  atomic.Pointer[error]
	stop  func(error) // called once, on the ack loop, when the directory has stopped
	told  bool        // stop was called; belongs to the ack loop
	wg    sync.WaitGroup

	isStalled atomic.Bool
	appends, outOfOrder,
	commits, syncs, written, held atomic.Uint64

	commit   commitState
	space    space
	nextLSN  atomic.Uint64 // of the tail's next block
	unsealed unsealed
}

func newWriter(o Options, t tail.Log) *writer {
	w := &writer{
		opts: o, tail: t, shards: make([]shard, o.Shards),
		wake: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	for i := range w.shards {
		w.shards[i].id = ShardID(i)
	}
	w.acks.wake = make(chan struct{}, 1)
	w.space.wake = make(chan struct{}, 1)
	w.space.grain = slabSize
	if t != nil {
		w.space.grain = o.SegmentSize
	}
	return w
}

// admit reports whether n more bytes may be queued in sh. A slack is permitted beyond the bound for what is not a new
// message. The lock is held.
func (w *writer) admit(sh *shard, n int, slack int64) error {
	if w.err != nil {
		return w.err
	}
	if slack == 0 && w.noRoom != nil {
		return w.noRoom
	}
	if slack == 0 && w.behind == lagFull {
		return ErrFull
	}
	if n > maxRecord {
		return ErrTooLarge
	}
	if sh.queued > 0 && sh.queued+int64(n)+recordCost > w.opts.QueueBytes+slack {
		return ErrFull
	}
	return nil
}

// slack is what may be queued beyond the bound by records that do not grow a log: refusing them because of a flood of
// appends would keep limits and acks from being applied.
func (w *writer) slack() int64 { return w.opts.QueueBytes / 4 }

// current returns the group that is being filled and sees to it that it will be committed. The lock is held.
func (w *writer) current() *group {
	g := w.pending()
	w.signal()
	return g
}

// pending returns the group that is being filled. What is put there is committed with what comes next, or by Close. The
// lock is held.
func (w *writer) pending() *group {
	if n := len(w.groups); n > 0 && w.groups[n-1].bytes < maxGroup {
		return w.groups[n-1]
	}
	var g *group
	if n := len(w.free); n > 0 {
		g, w.free = w.free[n-1], w.free[:n-1]
	} else {
		g = &group{queued: make([]int64, len(w.shards)), counts: make([]uint64, len(w.shards))}
	}
	w.num++
	g.num = w.num
	g.secFrom, g.secTo = w.secs.end, w.secs.end
	w.groups = append(w.groups, g)
	return g
}

func (w *writer) signal() {
	if w.awake {
		return
	}
	w.awake = true
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// room returns a slice at the end of sh's section of g with room for a record of n bytes. It holds the record's place
// in the group already. The lock is held.
func (w *writer) room(g *group, sh *shard, n int) []byte {
	full := sh.slab == nil || int(sh.used)+n > len(sh.slab.buf)
	if full {
		sh.slab = &slab{buf: make([]byte, max(slabSize, n))}
		sh.used = 0
	}
	if full || w.tail != nil && sh.secGroup != g.num {
		w.newSection(g, sh)
	}
	return binary.AppendUvarint(sh.slab.buf[sh.used:sh.used:len(sh.slab.buf)], uint64(g.records))
}

// newSection begins a section where sh's slab is filled up to.
func (w *writer) newSection(g *group, sh *shard) {
	old, oldID := sh.sec, sh.secID
	sh.secID, sh.sec = w.secs.add()
	sh.secGroup = g.num
	sh.sec.start, sh.sec.shard = sh.used, uint16(sh.id)
	sh.sec.slab.Store(sh.slab)
	if w.tail != nil {
		g.secTo = w.secs.end
		g.heads = append(g.heads, sectionHead{first: sh.head})
		sh.secHead = len(g.heads) - 1
		return
	}
	w.space.slabs.Add(int64(len(sh.slab.buf)))
	if old != nil {
		w.releaseLocked(oldID, old)
	}
}

// took queues the n bytes written into what room returned as one record. The lock is held.
func (w *writer) took(g *group, sh *shard, n int, done Done) {
	sh.used += uint32(n)
	sh.sec.size += uint32(n)
	if w.tail != nil {
		g.heads[sh.secHead].count++
	}
	g.bytes += int64(n)
	w.count(g, sh, n, done)
}

// count accounts for a record of n bytes. The lock is held.
func (w *writer) count(g *group, sh *shard, n int, done Done) {
	sh.head++
	sh.queued += int64(n) + recordCost
	g.queued[sh.id] += int64(n) + recordCost
	g.counts[sh.id]++
	g.records++
	if done != nil {
		g.dones = append(g.dones, done)
	}
	if !sh.stalled && sh.queued > w.opts.StallBytes {
		sh.stalled = true
		w.over++
		w.hold()
	}
}

// hold asks producers to pause. The lock is held.
func (w *writer) hold() {
	if w.stall == nil {
		w.stall = make(chan struct{})
		w.isStalled.Store(true)
	}
}

// put queues a record that is not a message: at most n bytes, written by enc. A memory store keeps only the messages.
// The lock is held.
func (w *writer) put(sh *shard, n int, done Done, enc func(b []byte) []byte) (*group, error) {
	if err := w.admit(sh, n, w.slack()); err != nil {
		return nil, err
	}
	g := w.current()
	w.putIn(g, sh, n, done, enc)
	return g, nil
}

// putIn is put in g of a record that was admitted. The lock is held.
func (w *writer) putIn(g *group, sh *shard, n int, done Done, enc func(b []byte) []byte) {
	if w.tail == nil {
		w.count(g, sh, 0, done)
		return
	}
	w.took(g, sh, len(enc(w.room(g, sh, n))), done)
}

// release gives back what g held of the queues and keeps it for use again.
func (w *writer) release(g *group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.shards {
		sh := &w.shards[i]
		sh.queued -= g.queued[i]
		if sh.stalled && sh.queued <= w.opts.StallBytes {
			sh.stalled = false
			w.over--
		}
	}
	if w.over == 0 && w.behind == lagNone {
		w.unstall()
	}
	if len(w.free) < maxFree {
		g.reset()
		w.free = append(w.free, g)
	}
}

func (w *writer) unstall() {
	if w.stall != nil {
		close(w.stall)
		w.stall = nil
		w.isStalled.Store(false)
	}
}

// stalled returns nil, or a channel that is closed when the queues have room again.
func (w *writer) stalled() <-chan struct{} {
	if !w.isStalled.Load() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stall
}

// health returns why messages cannot be acknowledged, or nil.
func (w *writer) health() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return detail(w.err)
	}
	return detail(w.noRoom)
}
