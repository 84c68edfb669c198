package storage

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/noetl/ehdb-gateway/storage/part"
)

// MaxSeq is the highest sequence a record can have: the one after it is a number still, so that what reads on from
// the last record need not ask whether there is one.
const MaxSeq = math.MaxUint64 - 1

// LogSpec says what a log is when it is made. It is persisted but for Size, Route and Compress, which are given
// again at OpenLog.
type LogSpec struct {
	// Shards the log lives in: one, or several for a spread log.
	Shards []ShardID
	// Memory says that the log is to be kept in RAM only. Such a log lives in a store without a directory; elsewhere
	// it is refused.
	Memory bool
	// FirstSeq is the sequence of the first record; 0 means 1.
	FirstSeq uint64
	// Name is for people (logs, dumps, errors): "ACCOUNT/STREAM".
	Name string
	// Compress has the log's records compressed in parts; see Log.SetCompress.
	Compress bool
	// Size counts a record for State.Bytes from the lengths of its parts. Nil: their sum.
	Size func(key, header, data int) uint64
	// Route picks the shard of a key in a spread log (an index into Shards). Nil: always 0.
	Route func(key []byte) int
}

// Done is told when what was appended is durable (nil) or can never be (the error). It runs on the ack loop: it must
// not block, nor append to the same log synchronously under a lock it may be waiting for.
type Done func(error)

// Log is one ordered log of records. Methods that change it (Append, Delete, Purge) are called under the owner's
// lock, one at a time; they return at once, do no I/O and take effect at the head immediately. Methods that read may
// be called by anyone at any time and stop at the visible position, except where they say "at the head": a record
// appended is not shown before it is durable, and one deleted is shown until its deletion is.
type Log struct {
	w     *writer
	meta  logMeta
	size  func(key, header, data int) uint64
	route func(key []byte) int

	mu       sync.RWMutex // taken before the writer's
	head     *view        // what appends go to
	vis      *view        // what readers see; the same but while a purge of everything is on its way
	version  uint64       // of the lists of runs in parts
	nums     uint32       // runs ever
	lastSeq  uint64       // at the head
	lastTime int64
	visTime  int64  // lastTime at the visible position
	dropped  bool   // at the head
	compress bool   // in parts
	ready    bool   // it was made or opened: Size is known
	floor    uint64 // section of the record that says the log exists
	scratch  victims
	removals removalRing

	visible atomic.Uint64
	census  census                // the last count of the keys; has a lock of its own
	broken  atomic.Pointer[error] // why nothing is taken any more: a part of it is damaged
	onVis   atomic.Pointer[func(uint64, error)]

	group uint64 // last group that touches the log, guarded by the writer's lock
	touch int    // which touch of it
}

func newLog(w *writer, meta logMeta, x *index) *Log {
	l := &Log{w: w, meta: meta, lastSeq: meta.LastSeq, lastTime: meta.LastTime, visTime: meta.LastTime}
	l.head = l.newView(x)
	l.vis = l.head
	l.visible.Store(meta.LastSeq)
	l.configure(LogSpec{})
	return l
}

// newView returns a view of nothing but x.
func (l *Log) newView(x *index) *view {
	x.num = l.nextNum()
	v := &view{}
	v.set(nil, x)
	return v
}

func (l *Log) nextNum() uint32 {
	l.nums++
	return l.nums
}

// fault stops the log: what a part of it says cannot be trusted or read, so nothing that depends on it may go on.
func (l *Log) fault(err error) {
	if err == nil || errors.Is(err, ErrStopped) {
		return
	}
	err = fmt.Errorf("log %d (%s): %w", l.meta.ID, l.meta.Name, err)
	if l.broken.CompareAndSwap(nil, &err) {
		l.w.opts.Events.Damaged(err)
	}
}

// whole returns why the log takes nothing any more, or nil.
func (l *Log) whole() error {
	if err := l.broken.Load(); err != nil {
		return *err
	}
	if l.dropped {
		return ErrNoLog
	}
	return nil
}

// configure sets what is not persisted.
func (l *Log) configure(spec LogSpec) {
	l.size, l.route, l.compress = spec.Size, spec.Route, spec.Compress
	if l.size == nil {
		l.size = func(key, header, data int) uint64 { return uint64(key + header + data) }
	}
}

// SetCompress has what is written to parts from now on compressed, or not: what is sealed or merged. What is in parts
// stays as it is until then, and in the write-ahead log nothing is compressed.
func (l *Log) SetCompress(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compress = on
}

// codec is how the log's records are compressed. Of one that nobody opened it is not known: then they are, which does
// not make them larger.
func (l *Log) codec() part.Codec {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.compress || !l.ready {
		return part.S2
	}
	return part.None
}

// ID returns the log's id.
func (l *Log) ID() LogID { return l.meta.ID }

// Name returns the name given at CreateLog.
func (l *Log) Name() string { return l.meta.Name }

// home is the shard of what concerns the whole log.
func (l *Log) home() *shard { return &l.w.shards[l.meta.Shards[0]] }

func (l *Log) shardOf(key []byte) *shard {
	if l.route == nil || len(l.meta.Shards) == 1 {
		return l.home()
	}
	return &l.w.shards[l.meta.Shards[l.route(key)]]
}

// Append adds r, copying its bytes once. r.Seq must be above the head's; a lower one is refused with ErrOutOfOrder and
// counted (out_of_order_appends), one above MaxSeq with ErrUsedUp. A gap is permitted: the skipped sequences count as
// deleted. r.Time is raised to the previous record's if it is below it. Errors: ErrFull when the shard's queue is at
// its bound (nothing was appended), ErrStopped (wrapped with the cause) when the directory has failed or is out of
// space. done may be nil.
func (l *Log) Append(r *Record, done Done) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.whole(); err != nil {
		return err
	}
	if r.Seq <= l.lastSeq {
		l.w.outOfOrder.Add(1)
		return ErrOutOfOrder
	}
	if r.Seq > MaxSeq {
		return ErrUsedUp
	}
	r.Time = max(r.Time, l.lastTime)
	size := l.size(len(r.Key), len(r.Header), len(r.Data))
	e, err := l.queue(r, size, done)
	if err != nil {
		return err
	}
	l.lastSeq, l.lastTime = r.Seq, r.Time
	l.head.tail.add(e, r.Key, size)
	return nil
}

// queue encodes r at the end of the pending group and returns its index entry.
func (l *Log) queue(r *Record, size uint64, done Done) (entry, error) {
	sh, w := l.shardOf(r.Key), l.w
	n := maxFixed + len(r.Key) + len(r.Header) + len(r.Data)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.admit(sh, n, 0); err != nil {
		return entry{}, err
	}
	return l.queueIn(w.current(), r, size, done), nil
}

// queueIn encodes r, which was admitted, at the end of g and returns its index entry. The locks are held.
func (l *Log) queueIn(g *group, r *Record, size uint64, done Done) entry {
	sh, w := l.shardOf(r.Key), l.w
	body := len(r.Key) + len(r.Header) + len(r.Data)
	b := appendMessage(w.room(g, sh, maxFixed+body), kindMessage, l.meta.ID, r)
	e := entry{
		seq: r.Seq, time: r.Time, sec: sh.secID, off: sh.sec.size + uint32(len(b)-body),
		hlen: uint32(len(r.Header)), dlen: uint32(len(r.Data)),
	}
	w.space.use(sh.sec, footprint(len(r.Key), &e))
	w.took(g, sh, len(b), done)
	w.appends.Add(1)
	t := g.touch(l)
	t.end, t.seq, t.time = l.head.tail.end+1, r.Seq, r.Time
	t.msgs++
	t.bytes += size
	return e
}

// appendIn is Append in g, of a record that was checked and admitted. The locks are held.
func (l *Log) appendIn(g *group, r *Record) {
	r.Time = max(r.Time, l.lastTime)
	size := l.size(len(r.Key), len(r.Header), len(r.Data))
	e := l.queueIn(g, r, size, nil)
	l.lastSeq, l.lastTime = r.Seq, r.Time
	l.head.tail.add(e, r.Key, size)
}

// recordHead is about what a record takes besides its key, header and data.
const recordHead = 24

// footprint is what a record takes of its section.
func footprint(klen int, e *entry) int32 {
	return int32(klen) + int32(e.hlen) + int32(e.dlen) + recordHead
}

// sizeOf returns what the record at ord counts for.
func (l *Log) sizeOf(x *index, ord uint64) uint64 {
	e := x.at(ord)
	return l.size(int(x.keys.info(e.key).size), int(e.hlen), int(e.dlen))
}

// Sync calls done once everything appended to the log so far is durable and visible (at once if it is).
func (l *Log) Sync(done Done) {
	w := l.w
	w.mu.Lock()
	var err error
	if l.group > w.acked.Load() {
		if err = w.err; w.fail.Load() == nil && !w.closed {
			g := w.current()
			g.dones = append(g.dones, done)
			w.mu.Unlock()
			return
		}
	}
	w.mu.Unlock()
	done(err)
}

// OnVisible sets fn to be called on the ack loop, under no lock, whenever the visible position moves, with the new
// one and a nil error: once for a group commit (after the done functions of that commit), not once for each record.
// When the directory stops for good it is called one last time with the error: nothing above visible was or will be
// acknowledged by this Store; open the directory again to learn what is there.
func (l *Log) OnVisible(fn func(visible uint64, err error)) {
	if fn == nil {
		l.onVis.Store(nil)
		return
	}
	l.onVis.Store(&fn)
}

// tell calls the OnVisible function.
func (l *Log) tell(err error) {
	if fn := l.onVis.Load(); fn != nil {
		(*fn)(l.visible.Load(), err)
	}
}

// show makes what t did to the log visible. It runs on the ack loop.
func (l *Log) show(t *touch) {
	var retired []*view
	l.mu.Lock()
	t.idx.visMsgs += t.msgs
	t.idx.visBytes += t.bytes
	t.idx.vis = t.end
	for i := range t.removals {
		switch r := &t.removals[i]; {
		case r.view != nil:
			l.vis.forget()
			retired = append(retired, l.vis)
			l.vis = r.view
		case r.set != nil:
			l.buryAll(r)
		case r.run != nil:
			l.bury(r, r.run, uint32(r.from), uint32(r.to))
		default:
			l.removeDoomed(r)
		}
	}
	l.visTime = t.time
	l.visible.Store(t.seq)
	l.mu.Unlock()
	for _, v := range retired {
		for _, x := range v.ram() {
			l.w.retire(x)
		}
	}
}

// forget notes that nothing of v is left.
func (v *view) forget() {
	for _, s := range v.sealed {
		s.head.kill(0, s.info.Count, s.head.msgs, s.head.bytes)
		s.vis.kill(0, s.info.Count, s.vis.msgs, s.vis.bytes)
		s.dirty = true
	}
}

// bury takes the records of s that r is about out for readers; their deletion is now durable.
func (l *Log) bury(r *removalOp, s *sealed, from, to uint32) {
	for ; s.fwd != nil; s = s.fwd.to {
		from, to = s.fwd.at(uint64(from)), s.fwd.at(uint64(to))
	}
	switch {
	case s.isDense() && to-from < maxSingly:
		for ord := s.vis.dead.Live(from); ord < to; ord = s.vis.dead.Live(ord + 1) {
			l.removals.note(removal{seq: s.info.FirstSeq + uint64(ord), run: s.num, at: ord})
		}
	case to-from == 1:
		l.removals.note(removal{seq: r.seq, run: s.num, at: from})
	default:
		l.removals.note(removal{seq: r.seq, end: r.end})
	}
	s.vis.kill(from, to, r.msgs, r.bytes)
	s.dirty = true
}

// removeDoomed takes the records in [from, to) whose deletion is now durable out of an index.
func (l *Log) removeDoomed(r *removalOp) {
	x := r.idx
	for ord := x.next(r.from, r.to); ord < r.to; ord = x.next(ord+1, r.to) {
		if !x.chunk(ord).isDoomed(ord & chunkMask) {
			continue
		}
		e, size := *x.at(ord), l.sizeOf(x, ord)
		if x.fwd != nil {
			x.remove(ord, size)
			at := x.fwd.at(ord)
			one := removalOp{msgs: 1, bytes: size, seq: e.seq}
			l.bury(&one, x.fwd.to, at, at+1)
			continue
		}
		foot := footprint(int(x.keys.info(e.key).size), &e)
		x.remove(ord, size)
		l.removals.note(removal{seq: e.seq, run: x.num, at: e.key})
		l.w.drop(e.sec, foot)
	}
}

// retire lets go of the bytes of an index that nobody reads any more.
func (w *writer) retire(x *index) {
	for ord := x.next(0, x.end); ord < x.end; ord = x.next(ord+1, x.end) {
		e := x.at(ord)
		w.drop(e.sec, footprint(int(x.keys.info(e.key).size), e))
	}
}
