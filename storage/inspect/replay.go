package inspect

import (
	"errors"
	"fmt"
	"path"
	"slices"
)

// catalogID is the log that is there without a record that says so.
const catalogID = 1

// replayer applies the records of whole blocks in order.
type replayer struct {
	d      *Directory
	block  block
	heads  []uint64 // by shard: its next position
	seen   []bool   // shards of which a section was read
	bumped []uint64 // what a store record in the block says the heads are at its end
	holes  int      // of Directory.Holes, those whose Heads are known
	said   int      // problems of records reported
}

// maxSaid bounds how many problems of records are reported: those that follow are of the same kind.
const maxSaid = 100

func newReplayer(d *Directory) *replayer { return &replayer{d: d} }

// shard makes room for a shard's position and says whether there is such a shard.
func (r *replayer) shard(s uint64) bool {
	if n := r.d.Shards; s >= uint64(maxShards) || n > 0 && s >= uint64(n) {
		return false
	}
	for uint64(len(r.heads)) <= s {
		r.heads, r.seen = append(r.heads, 0), append(r.seen, false)
	}
	r.d.maxShard = max(r.d.maxShard, int(s)+1)
	return true
}

func (r *replayer) problem(at, off int, format string, args ...any) {
	if r.said++; r.said > maxSaid {
		return
	}
	b := &r.d.blocks[at]
	r.d.damage(r.d.Segments[b.Segment].File, b.Offset+blockHead+int64(off), remedyNewer, format, args...)
}

// apply applies one block.
func (r *replayer) apply(at int, body []byte) {
	d := r.d
	if err := parseBody(body, &r.block); err != nil {
		off := 0
		if be, ok := errors.AsType[*bodyError](err); ok {
			off = be.off
		}
		r.problem(at, off, "block %d verifies but does not read: %v", d.blocks[at].LSN, err)
		return
	}
	if d.blocks[at].LSN < d.floor() {
		return // it is in parts and checkpoints
	}
	for ; r.holes < len(d.Holes); r.holes++ {
		d.Holes[r.holes].Heads = slices.Clone(r.heads)
	}
	for i := range r.block.sections {
		r.section(at, &r.block.sections[i])
	}
	r.bumped = r.bumped[:0]
	for i := range r.block.records {
		r.record(at, &r.block.records[i])
	}
	for s, h := range r.bumped {
		if r.shard(uint64(s)) {
			r.heads[s] = max(r.heads[s], h)
		}
	}
}

// section checks that a shard's positions have no gap, but where blocks are missing: there it says how many records
// are.
func (r *replayer) section(at int, s *section) {
	d := r.d
	if !r.shard(s.shard) {
		r.problem(at, s.off, "shard %d does not exist, there are %d", s.shard, d.Shards)
		return
	}
	head := r.heads[s.shard]
	switch {
	case s.first < head:
		r.problem(at, s.off, "the section starts at position %d of shard %d, which is at %d",
			s.first, s.shard, head)
	case s.first > head && r.seen[s.shard] && !r.lose(s.shard, s.first-head):
		r.problem(at, s.off, "positions %d to %d of shard %d are missing, and no block is",
			head, s.first-1, s.shard)
	}
	r.seen[s.shard] = true
	r.heads[s.shard] = max(head, s.first+s.count)
}

// lose notes that n records of a shard were in the last hole; false if there is none.
func (r *replayer) lose(shard, n uint64) bool {
	holes := r.d.Holes
	for i := len(holes) - 1; i >= 0; i-- {
		h := &holes[i]
		if h.From == h.To {
			continue // no block is lost there
		}
		for uint64(len(h.Lost)) <= shard {
			h.Lost = append(h.Lost, 0)
		}
		h.Lost[shard] += n
		return true
	}
	return false
}

func (r *replayer) record(at int, rec *WALRecord) {
	d := r.d
	d.Records++
	if rec.Kind == KindStore {
		r.store(at, rec)
		return
	}
	if rec.Kind == KindDrop {
		d.drop(rec.Log)
		return
	}
	isState := rec.Kind == KindChange || rec.Kind == KindCheckpoint || rec.Kind == KindLog && rec.State
	l := d.log(rec.Log, isState)
	if l.State != isState {
		r.problem(at, rec.off, "log %d has records both of a log and of a state log", rec.Log)
		return
	}
	l.sawShard(rec.Shard)
	switch rec.Kind {
	case KindMessage:
		r.message(at, l, rec)
	case KindMoved:
		l.moved(at, rec)
	case KindDelete:
		for _, run := range rec.Runs {
			l.remove(run.First, run.First+run.N)
		}
	case KindTruncate:
		l.remove(0, rec.Seq)
		if rec.Seq > 0 {
			l.LastSeq = max(l.LastSeq, rec.Seq-1)
		}
	case KindLog:
		r.exists(at, l, rec)
	case KindChange, KindCheckpoint:
		l.change(at, rec)
	case KindStore, KindDrop: // above
	}
}

// store applies what the directory must not forget.
func (r *replayer) store(at int, rec *WALRecord) {
	d := r.d
	if d.Shards > 0 && len(rec.Heads) != d.Shards {
		r.problem(at, rec.off, "the store record has %d shards, there are %d", len(rec.Heads), d.Shards)
		return
	}
	d.NextLog = max(d.NextLog, rec.Log)
	d.storeShards = len(rec.Heads)
	r.bumped = append(r.bumped[:0], rec.Heads...)
}

func (r *replayer) message(at int, l *Log, rec *WALRecord) {
	if rec.Seq <= l.sealed {
		return
	}
	if rec.Seq <= l.LastSeq {
		r.problem(at, rec.off, "record %d of log %d comes after record %d", rec.Seq, l.ID, l.LastSeq)
		return
	}
	if n := len(r.d.Holes); l.holes < n {
		if l.holes > 0 || l.LastSeq > 0 { // else it may have begun behind the hole
			if rec.Seq > l.LastSeq+1 {
				h := &r.d.Holes[n-1]
				h.gaps = append(h.gaps, Affected{
					Log: l.ID, First: l.LastSeq + 1, Last: rec.Seq - 1, Records: rec.Seq - 1 - l.LastSeq,
				})
			}
		} else if rec.Seq > 1 && !l.known {
			h := &r.d.Holes[n-1]
			h.gaps = append(h.gaps, Affected{Log: l.ID, First: 1, Last: rec.Seq - 1})
		}
		l.holes = n
	}
	l.add(at, rec)
}

func (r *replayer) exists(at int, l *Log, rec *WALRecord) {
	for _, s := range rec.Shards {
		if !r.shard(s) {
			r.problem(at, rec.off, "log %d is in shard %d, there are %d", l.ID, s, r.d.Shards)
			return
		}
	}
	r.d.NextLog = max(r.d.NextLog, l.ID+1)
	if l.State && rec.Pos < l.skip {
		return
	}
	if l.ID == catalogID {
		l.begin()
		return
	}
	l.known, l.Name, l.Shards = true, rec.Name, slices.Clone(rec.Shards)
	if l.State {
		l.begin()
		return
	}
	if n := len(r.d.Holes); l.holes < n && l.LastSeq == 0 {
		l.holes = n // it begins here
	}
	l.LastSeq, l.LastTime = max(l.LastSeq, rec.Seq), max(l.LastTime, rec.Time)
}

// log returns the log with that id, making it.
func (d *Directory) log(id uint64, isState bool) *Log {
	l := d.logs[id]
	if l == nil {
		l = &Log{d: d, ID: id, State: isState, holes: 0}
		if id == catalogID {
			l.Name, l.State, l.known, l.Shards = "catalog", true, true, []uint64{0}
		}
		d.logs[id] = l
	}
	return l
}

func (d *Directory) drop(id uint64) {
	d.NextLog = max(d.NextLog, id+1)
	delete(d.logs, id)
}

// finish brings logs into order and reports what the missing blocks mean for them.
func (r *replayer) finish() {
	d := r.d
	store, _ := d.storeRecord()
	d.NextLog = max(d.NextLog, store.Log)
	for s, h := range store.Heads {
		if r.shard(uint64(s)) && !r.seen[s] {
			r.heads[s] = max(r.heads[s], h)
		}
	}
	d.heads = r.heads
	for ; r.holes < len(d.Holes); r.holes++ {
		d.Holes[r.holes].Heads = slices.Clone(r.heads)
	}
	if r.said > maxSaid {
		d.add(Finding{
			Severity: Damage, File: WALDir, Remedy: remedyNewer,
			What: fmt.Sprintf("%d more problems like those above", r.said-maxSaid),
		})
	}
	for _, l := range d.logs {
		l.finish()
		d.Logs = append(d.Logs, l)
	}
	slices.SortFunc(d.Logs, func(a, b *Log) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	for _, l := range d.Logs {
		if !l.known {
			r.unknown(l)
		}
	}
	for i := range d.Holes {
		d.explain(&d.Holes[i])
	}
}

// unknown reports a log of which no record says that it exists.
func (r *replayer) unknown(l *Log) {
	d := r.d
	file, off := WALDir, int64(0)
	if b, ok := l.firstBlock(); ok {
		file, off = d.Segments[d.blocks[b].Segment].File, d.blocks[b].Offset
	}
	f := d.damage(file, off, remedyRepair, "log %d has records, but the one that says it exists is missing", l.ID)
	f.Affected = []Affected{{Log: l.ID, What: "its name is not known"}}
}

// explain says what a hole means for the logs.
func (d *Directory) explain(h *Hole) {
	f := &d.Findings[h.finding]
	var gaps, lost uint64
	for _, n := range h.Lost {
		lost += n
	}
	for _, g := range h.gaps {
		if l := d.logs[g.Log]; l != nil {
			g.Name = l.Name
			f.Affected = append(f.Affected, g)
			gaps += g.Records
		}
	}
	switch {
	case h.To <= d.floor() && !h.Open:
		f.Affected = []Affected{{What: "nothing is lost: all that was here is in parts"}}
	case h.Open:
		f.Affected = append(f.Affected, Affected{
			What: "nothing whole follows, so it is not known which logs: any may have lost its last records, and " +
				"what was deleted last may be there again",
		})
	case h.From == h.To:
	case lost > gaps:
		f.Affected = append(f.Affected, Affected{
			Records: lost - gaps,
			What: "which were deletions (what they removed may be there again), configuration or state of streams " +
				"and consumers, or records of logs of which nothing follows",
		})
	case lost == 0:
		f.Affected = append(f.Affected, Affected{
			What: "deletions, configuration or state, and records of logs of which nothing follows: it is not known " +
				"which",
		})
	}
}

// fileOf names the segment of a block.
func (d *Directory) fileOf(at int) string {
	return path.Join(d.Path, d.Segments[d.blocks[at].Segment].File)
}
