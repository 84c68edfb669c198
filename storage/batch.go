package storage

import (
	"cmp"
	"errors"
	"slices"
	"sync"
)

// Batch is a list of changes to logs and state logs of one store that become durable, and visible, together or not at
// all. Build it, then Commit it. The zero value is an empty batch.
type Batch struct{ ops []batchOp }

// batchOp is one change: an append, a deletion or a purge of log, or a change or checkpoint of state.
type batchOp struct {
	kind   kind
	log    *Log
	state  *StateLog
	rec    Record // append
	seqs   []uint64
	filter Filter // purge
	keep   uint64
	bytes  []byte // of a change or checkpoint
	plan   plan   // of a deletion or purge: what is in parts
}

// errForeign refuses a batch over two data directories: there is no group commit that spans them.
var errForeign = errors.New("a batch changes logs of one store only")

// Append adds r to l, as Log.Append does. Its bytes must not change before Commit returns.
func (b *Batch) Append(l *Log, r *Record) {
	b.ops = append(b.ops, batchOp{kind: kindMessage, log: l, rec: *r})
}

// Delete removes the live records among seqs from l, those that the batch itself appended before included.
func (b *Batch) Delete(l *Log, seqs ...uint64) {
	b.ops = append(b.ops, batchOp{kind: kindDelete, log: l, seqs: seqs})
}

// Purge removes what matches filter (nil: all) from l but for the newest keep, which is at least 1: what a limit or a
// rollup asks for after an append.
func (b *Batch) Purge(l *Log, filter Filter, keep uint64) {
	b.ops = append(b.ops, batchOp{kind: kindTruncate, log: l, filter: filter, keep: max(keep, 1)})
}

// Change appends a change to s, as StateLog.Append does.
func (b *Batch) Change(s *StateLog, change []byte) {
	b.ops = append(b.ops, batchOp{kind: kindChange, state: s, bytes: change})
}

// Checkpoint replaces what s has, as StateLog.Checkpoint does.
func (b *Batch) Checkpoint(s *StateLog, state []byte) {
	b.ops = append(b.ops, batchOp{kind: kindCheckpoint, state: s, bytes: state})
}

// Len returns the number of changes.
func (b *Batch) Len() int { return len(b.ops) }

// Reset empties b for use again.
func (b *Batch) Reset() {
	clear(b.ops)
	b.ops = b.ops[:0]
}

// Commit makes the changes of b, in order, in one group commit. The owners' locks of all logs in it must be held. It
// returns at once, and like the single calls it takes effect at the head immediately; on an error nothing was changed.
// Errors: as for Log.Append and StateLog.Append, ErrTooLarge if all of it does not fit in one block. done may be nil.
func (b *Batch) Commit(done Done) error {
	if len(b.ops) == 0 {
		return errors.New("the batch is empty")
	}
	w := b.ops[0].writer()
	locks, err := b.settled(w)
	if err != nil {
		return err
	}
	defer locks.unlock()
	if err := b.check(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := b.admit(w); err != nil {
		return err
	}
	g := w.current()
	for i := range b.ops {
		b.ops[i].do(g)
	}
	if done != nil {
		g.dones = append(g.dones, done)
	}
	return nil
}

// settled takes the locks, with plans that fit what is in parts.
func (b *Batch) settled(w *writer) (batchLocks, error) {
	for {
		locks, err := b.lock(w)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(b.ops, func(o batchOp) bool { return o.outdated() }) {
			return locks, nil
		}
		locks.unlock()
		for i := range b.ops {
			if err := b.ops[i].find(); err != nil {
				return nil, err
			}
		}
	}
}

// outdated reports whether o needs to know what is in parts, and does not. The log's lock is held.
func (o *batchOp) outdated() bool {
	if o.log == nil || o.plan.made && o.plan.version == o.log.version {
		return false
	}
	return o.kind == kindDelete && o.log.reaches(o.seqs) || o.filter != nil && len(o.log.head.sealed) > 0
}

// find looks up what o needs to know of what is in parts.
func (o *batchOp) find() (err error) {
	o.plan = plan{made: true}
	switch {
	case o.kind == kindDelete && len(o.seqs) > 0:
		err = o.log.planSeqs(&o.plan, o.seqs)
	case o.kind == kindTruncate && o.filter != nil:
		err = o.log.planMatching(&o.plan, o.filter, 0)
	}
	if err != nil {
		o.log.fault(err)
	}
	return err
}

func (o *batchOp) writer() *writer {
	if o.log != nil {
		return o.log.w
	}
	return o.state.w
}

// batchLocks are the locks of what a batch changes.
type batchLocks []batchLock

type batchLock struct {
	id LogID
	mu sync.Locker
}

func (l batchLocks) unlock() {
	for i := range l {
		l[i].mu.Unlock()
	}
}

// lock takes the lock of each log once, by rising id, so that two batches never wait for each other.
func (b *Batch) lock(w *writer) (batchLocks, error) {
	locks := make(batchLocks, 0, min(len(b.ops), 4))
	for i := range b.ops {
		o := &b.ops[i]
		if o.writer() != w {
			return nil, errForeign
		}
		l := batchLock{}
		if o.log != nil {
			l = batchLock{o.log.meta.ID, &o.log.mu}
		} else {
			l = batchLock{o.state.meta.ID, &o.state.mu}
		}
		if !slices.ContainsFunc(locks, func(have batchLock) bool { return have.id == l.id }) {
			locks = append(locks, l)
		}
	}
	slices.SortFunc(locks, func(a, b batchLock) int { return cmp.Compare(a.id, b.id) })
	for i := range locks {
		locks[i].mu.Lock()
	}
	return locks, nil
}

// check finds what the logs would refuse. Their locks are held.
func (b *Batch) check() error {
	last := map[*Log]uint64{}
	for i := range b.ops {
		o := &b.ops[i]
		switch {
		case o.log == nil:
			if o.state.dropped {
				return ErrNoLog
			}
			continue
		case o.log.whole() != nil:
			return o.log.whole()
		case o.kind != kindMessage:
			continue
		}
		if o.rec.Seq <= max(last[o.log], o.log.lastSeq) {
			o.log.w.outOfOrder.Add(1)
			return ErrOutOfOrder
		}
		if o.rec.Seq > MaxSeq {
			return ErrUsedUp
		}
		last[o.log] = o.rec.Seq
	}
	return nil
}

// admit reports whether all of b may be queued. The locks of its logs and the writer's are held.
func (b *Batch) admit(w *writer) error {
	need := map[*shard]int{}
	total, states, slack := 0, 0, w.slack()
	for i := range b.ops {
		sh, n := b.ops[i].need()
		need[sh] += n
		total += n
		switch b.ops[i].kind { //nolint:exhaustive // the others may use the slack
		case kindMessage:
			slack = 0
		case kindChange, kindCheckpoint:
			if b.ops[i].state.meta.ID != catalogID {
				states += n
			}
		}
	}
	if total > maxRecord {
		return ErrTooLarge
	}
	if states > 0 && !w.affords(states) {
		return ErrFull
	}
	for sh, n := range need {
		if err := w.admit(sh, n, slack); err != nil {
			return err
		}
	}
	return nil
}

// need returns the shard that o writes to and a bound for its bytes.
func (o *batchOp) need() (*shard, int) {
	switch o.kind { //nolint:exhaustive // what a batch has
	case kindMessage:
		return o.log.shardOf(o.rec.Key), maxFixed + len(o.rec.Key) + len(o.rec.Header) + len(o.rec.Data) + recordCost
	case kindDelete:
		return o.log.home(), maxFixed + 4*len(o.seqs)
	case kindTruncate:
		return o.log.home(), maxFixed + 4*(o.log.head.count(o.filter)+len(o.plan.list))
	}
	return &o.state.w.shards[o.state.meta.Shards[0]], maxFixed + len(o.bytes) + recordCost
}

// count returns how many records in RAM with a key that filter selects are live at the head, 0 if it is nil.
func (v *view) count(filter Filter) (n int) {
	if filter == nil {
		return 0
	}
	for _, x := range v.ram() {
		x.eachKey(filter, func(id uint32) bool {
			n += int(x.keys.info(id).count)
			return true
		})
	}
	return n
}

// do makes the change, which was admitted, in g. The locks of the log and of the writer are held.
func (o *batchOp) do(g *group) {
	switch o.kind { //nolint:exhaustive // what a batch has
	case kindMessage:
		o.log.appendIn(g, &o.rec)
	case kindDelete:
		o.log.resolve(&o.plan, o.seqs)
		o.log.deleteIn(g)
	case kindTruncate:
		o.log.purgeIn(g, &o.plan, o.filter, o.keep)
	case kindChange:
		o.state.change(o.bytes, o.state.queueIn(g, o.kind, o.bytes, nil))
	case kindCheckpoint:
		o.state.checkpoint(o.bytes, o.state.queueIn(g, o.kind, o.bytes, nil))
	}
}
