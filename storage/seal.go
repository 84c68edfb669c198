package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/noetl/ehdb-gateway/storage/manifest"
	"github.com/noetl/ehdb-gateway/storage/part"
	"github.com/noetl/ehdb-gateway/storage/tail"
	"github.com/noetl/ehdb-gateway/storage/vfs"
)

const (
	partsDir    = "parts"
	manifestDir = "manifest"
	// syncEvery is how much of a part is written between two syncs.
	syncEvery = 4 << 20
)

// sealer moves what is in the tail into parts, so that the tail, and with it what an open reads and what RAM holds,
// stays short. See docs/adr/0003-sealing.md.
type sealer struct {
	s     *Store
	man   *manifest.Manifest
	cache *part.Cache

	mu    sync.Mutex // one seal or merge at a time; guards what follows
	parts map[manifest.PartID]*sealedPart
	known map[LogID]manifest.Log // what the manifest says of each log
	late  tail.LSN               // floor of a seal that failed; its logs still have what they froze then
	retry bool
	pacer pacer
	large bool // the tail has more space than it needs when idle; belongs to the loop

	seals, merges atomic.Uint64
	files, bytes  atomic.Int64 // of parts
	plain         atomic.Int64 // parts that are still to be encrypted
}

// sealJob is what a log gives to be sealed.
type sealJob struct {
	l        *Log
	x        *index // nil: nothing
	lastSeq  uint64
	lastTime int64
	found    *sealed          // its section
	first    uint64           // ordinal that left counts from
	left     *part.Tombstones // what was not written, because it was gone
	fresh    bool             // frozen in this round
}

// freeze ends the log's run in RAM, so that it can be written to a part, and begins another. ok is false if there may
// be something that stays in the tail.
func (l *Log) freeze() (j sealJob, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.head
	j = sealJob{l: l, lastSeq: l.lastSeq, lastTime: l.lastTime}
	switch {
	case l.dropped:
		return sealJob{}, true
	case !l.ready && (v.mid != nil || !v.tail.isEmpty()):
		return sealJob{}, false
	case v.mid != nil:
		j.x, j.lastSeq, j.lastTime = v.mid, v.mid.sealTo, v.mid.time
		return j, true
	case v.tail.isEmpty():
		return j, true
	}
	x := v.tail
	x.sealTo, x.time = l.lastSeq, l.lastTime
	v.set(x, newIndex(x.keys.seed))
	v.tail.num = l.nextNum()
	j.x, j.fresh = x, true
	return j, true
}

// stateJob is the checkpoint of a state log.
type stateJob struct {
	l   *StateLog
	log manifest.Log
}

// checkpointed returns what the manifest is to say of s; false if it says that already.
func (s *StateLog) checkpointed() (stateJob, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.touched || s.dropped {
		return stateJob{}, false
	}
	s.touched = false
	s.w.mu.Lock()
	pos := s.w.shards[s.meta.Shards[0]].head
	s.w.mu.Unlock()
	return stateJob{l: s, log: manifest.Log{
		ID: uint64(s.meta.ID), Spec: appendLog(nil, &s.meta),
		Checkpoint: slices.Clone(s.entries), CheckpointPosition: pos,
	}}, true
}

func (s *StateLog) touch() {
	s.mu.Lock()
	s.touched = true
	s.mu.Unlock()
}

// round is one seal.
type round struct {
	floor  tail.LSN
	jobs   []sealJob
	states []stateJob
	drop   []uint64 // logs that are gone
	store  []byte
}

// seal writes what is in the tail to parts and drops the tail's segments that only held that. On an error nothing is
// lost, and the next seal goes on from there.
func (sl *sealer) seal(pace func(int64) error) error {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	for {
		again, err := sl.sealOnce(pace)
		if err != nil || !again {
			return err
		}
	}
}

func (sl *sealer) sealOnce(pace func(int64) error) (again bool, err error) {
	r := sl.begin()
	if err := sl.s.durable(); err != nil {
		sl.undo(&r)
		return false, err
	}
	parts, err := sl.writeParts(r.jobs, pace)
	if err == nil {
		err = sl.commit(&r, parts)
	}
	if err != nil {
		sl.undo(&r)
		for _, p := range parts {
			p.release()
		}
		return false, err
	}
	again, sl.retry, sl.late = sl.retry, false, 0
	if r.floor == 0 { // something stays in the tail
		sl.s.w.unsealed.since.CompareAndSwap(0, time.Now().UnixNano())
	}
	sl.seals.Add(1)
	sl.s.w.unsealed.arrived()
	sl.s.w.weighBacklog()
	return again, sl.dropTail()
}

// undo notes that r came to nothing: what it froze stays in RAM until the next seal.
func (sl *sealer) undo(r *round) {
	for _, j := range r.states {
		j.l.touch()
	}
	if !sl.retry {
		sl.retry, sl.late = true, r.floor
	}
}

// begin takes what is to be sealed from all logs, one after the other. What is in the tail below the floor is in it,
// and perhaps more; what is more is found to be there when the tail is read again.
func (sl *sealer) begin() (r round) {
	s := sl.s
	r.floor = tail.LSN(s.w.nextLSN.Load())
	s.w.unsealed.begin()
	if sl.retry {
		r.floor = sl.late
	}
	s.mu.Lock()
	logs, states := maps.Clone(s.logs), maps.Clone(s.states)
	heads := make([]uint64, len(s.w.shards))
	s.w.mu.Lock()
	for i := range heads {
		heads[i] = s.w.shards[i].head
	}
	s.w.mu.Unlock()
	r.store = appendStore(nil, s.nextID, heads)
	s.mu.Unlock()
	for id := range sl.known {
		if logs[id] == nil && states[id] == nil {
			r.drop = append(r.drop, uint64(id))
		}
	}
	slices.Sort(r.drop)
	for _, id := range slices.Sorted(maps.Keys(logs)) {
		j, ok := logs[id].freeze()
		if !ok {
			r.floor = 0
		}
		if j.l != nil {
			r.jobs = append(r.jobs, j)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(states)) {
		if j, ok := states[id].checkpointed(); ok {
			r.states = append(r.states, j)
		}
	}
	return r
}

// durable waits until everything queued so far is durable and visible.
func (s *Store) durable() error {
	done := make(chan error, 1)
	if err := s.w.barrier(func(err error) { done <- err }); err != nil {
		return err
	}
	return <-done
}

// commit makes the manifest say what r did, and the logs read the parts from then on.
func (sl *sealer) commit(r *round, parts []*sealedPart) error {
	e := manifest.Edit{DropLogs: r.drop, Floor: uint64(r.floor), Store: r.store}
	for _, p := range parts {
		e.AddParts = append(e.AddParts, p.entry())
	}
	for i := range r.jobs {
		if log, changed := sl.describe(&r.jobs[i]); changed {
			e.Logs = append(e.Logs, log)
		}
	}
	for _, j := range r.states {
		e.Logs = append(e.Logs, j.log)
	}
	var err error
	if e.Tombs, err = sl.tombs(); err != nil {
		return err
	}
	if err := sl.apply(&e); err != nil {
		return err
	}
	for _, id := range r.drop {
		delete(sl.known, LogID(id))
	}
	for _, log := range e.Logs {
		log.Checkpoint = nil // it may be large, and nobody asks for it
		sl.known[LogID(log.ID)] = log
	}
	sl.keep(parts...)
	for i := range r.jobs {
		r.jobs[i].install()
	}
	return nil
}

// keep takes parts into account that the manifest has.
func (sl *sealer) keep(parts ...*sealedPart) {
	for _, p := range parts {
		sl.parts[p.id] = p
		sl.files.Add(1)
		sl.bytes.Add(p.size)
	}
}

// apply makes an edit durable. If it is not known whether it is, the directory stops.
func (sl *sealer) apply(e *manifest.Edit) error {
	err := sl.man.Apply(e)
	if err != nil {
		sl.s.w.poison(err)
	}
	return err
}

// entry is what the manifest says of p.
func (p *sealedPart) entry() manifest.Part {
	m := manifest.Part{ID: p.id, Path: p.path, Shard: uint32(p.shard), Size: p.size}
	for _, s := range p.runs {
		i := &s.info
		m.Sections = append(m.Sections, manifest.Section{
			Log: i.Log, Count: i.Count, Keys: i.Keys, FirstSeq: i.FirstSeq, LastSeq: i.LastSeq,
			FirstTime: i.FirstTime, LastTime: i.LastTime, Bytes: i.Bytes,
		})
	}
	return m
}

// describe returns what the manifest is to say of a log, and whether that is new.
func (sl *sealer) describe(j *sealJob) (manifest.Log, bool) {
	m := j.l.meta
	m.LastSeq, m.LastTime = j.lastSeq, j.lastTime
	log := manifest.Log{ID: uint64(m.ID), Spec: appendLog(nil, &m), LastSeq: m.LastSeq, LastTime: m.LastTime}
	old, ok := sl.known[m.ID]
	return log, !ok || old.LastSeq != log.LastSeq || old.LastTime != log.LastTime
}

// tombs returns the deletions in parts that the manifest does not have yet.
func (sl *sealer) tombs() (tombs []manifest.Tomb, err error) {
	for _, id := range slices.Sorted(maps.Keys(sl.parts)) {
		for _, s := range sl.parts[id].runs {
			l := sl.owner(s)
			if l == nil {
				continue
			}
			l.mu.Lock()
			dirty, bytes, dead := s.dirty, s.info.Bytes-s.vis.bytes, s.vis.share()
			s.dirty = false
			l.mu.Unlock()
			if !dirty {
				continue
			}
			blob, err := encodeTomb(dead, bytes)
			if err != nil {
				return nil, err
			}
			tombs = append(tombs, manifest.Tomb{TombKey: manifest.TombKey{Part: id, Log: s.info.Log}, Blob: blob})
		}
	}
	return tombs, nil
}

// owner returns the log that s is or was a run of; nil if that is gone.
func (sl *sealer) owner(s *sealed) *Log {
	sl.s.mu.Lock()
	defer sl.s.mu.Unlock()
	return sl.s.logs[LogID(s.info.Log)]
}

// encodeTomb encodes what is deleted of a section: how much the records counted for, and which they are.
func encodeTomb(dead *part.Tombstones, bytes uint64) ([]byte, error) {
	b, err := dead.Encode()
	return append(binary.LittleEndian.AppendUint64(nil, bytes), b...), err
}

func decodeTomb(where string, b []byte, count uint32) (dead *part.Tombstones, bytes uint64, err error) {
	if len(b) < 8 {
		return nil, 0, &part.CorruptError{Path: where, Err: errShort, Hint: "restore it from a backup or a replica"}
	}
	dead, err = part.DecodeTombstones(where, b[8:], count)
	return dead, binary.LittleEndian.Uint64(b), err
}

// dropTail drops the tail's segments below the manifest's floor.
func (sl *sealer) dropTail() error {
	w := sl.s.w
	floor := tail.LSN(sl.man.Floor())
	segs := w.space.starts()
	n := 0
	for n+1 < len(segs) && segs[n+1].lsn <= floor {
		n++
	}
	if n == 0 {
		return nil
	}
	if err := w.tail.DropBefore(segs[n].lsn); err != nil {
		return fmt.Errorf("drop segments before block %d: %w", segs[n].lsn, err)
	}
	w.space.dropped.Add(uint64(n))
	w.space.forget(segs[n].lsn)
	w.mu.Lock()
	w.secs.trim(segs[n].sec)
	w.mu.Unlock()
	return nil
}

// shrinkTail gives back the space that the tail needs no more at the rate of appends since the last time. sl.large is
// set while there will be more to give back when appends have ended.
func (sl *sealer) shrinkTail() (err error) {
	t, ok := sl.s.w.tail.(shrinker)
	if !ok {
		return nil
	}
	sl.large, err = t.Shrink(tail.LSN(sl.man.Floor()))
	return err
}

// remove removes the files of parts that the manifest does not have any more.
func (sl *sealer) remove(parts []*sealedPart) error {
	var errs []error
	o := &sl.s.opts
	for _, p := range parts {
		delete(sl.parts, p.id)
		sl.files.Add(-1)
		sl.bytes.Add(-p.size)
		p.release()
		if p.err != nil {
			continue // what is left of it may be wanted
		}
		if err := o.FS.Remove(path.Join(o.Dir, p.path)); err != nil {
			errs = append(errs, err)
		}
	}
	sl.countPlain()
	return errors.Join(append(errs, o.FS.SyncDir(path.Join(o.Dir, partsDir)))...)
}

// close gives up what the sealer holds.
func (sl *sealer) close() error {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	for _, p := range sl.parts {
		p.release()
	}
	return sl.man.Close()
}

// isFull reports whether err says that there is no room.
func isFull(err error) bool { return vfs.IsNoSpace(err) || errors.Is(err, tail.ErrNoSpace) }
